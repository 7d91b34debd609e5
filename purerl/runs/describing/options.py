"""The options of commands that train, and what all commands share, with help texts; `purerl.cli` reads them."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import yaml

from purerl import config as cfg
from purerl.catalogue import COUNTS, TEXTS
from purerl.errors import ConfigError
from purerl.learned import socket_settings
from purerl.store import guards

FORMER = {"kernels": "off"}
"""The options that no longer exist and that files of runs may hold, each with the default that it had."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Options about the machine, for commands that compute."""

    heading: ClassVar[str] = "device"
    device: Literal["any", "cpu", "gpu", "tpu"] = "any"
    """Kind of device to compute on; an error if this machine has none. any: the fastest that JAX finds."""
    deterministic: bool = False
    """Make repeated runs on a GPU give identical results; slower. A CPU always does."""
    threads: Literal["auto", "one", "all"] = "auto"
    """CPU threads to compute with: one, or all (one for each core; each core is then a device for agents). auto: one if
    a single agent learns on a CPU from small vectors with layers of at most 128 units, which is faster; otherwise all.
    They also compile programs for a GPU."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Precision of networks. auto: JAX's default, which on a GPU is tf32 for matrix products. bfloat16: for dense
    layers; parameters, optimisers and losses stay in float32."""
    compile: Literal["full", "quick"] = "full"
    """quick: compile CPU programs in a fraction of the time, to slower programs, for short trials. Results may differ
    from those of full by rounding, which can grow during training. No effect on a GPU."""
    compilation_cache: str = "~/.cache/purerl"
    """Directory in which compiled programs are cached, for a faster start next time. off: no cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trust:
    """Option of commands that read files from other sources."""

    trust: bool = False
    """Import and run the user modules that the run or artefact names, and trust them until their source changes.
    Without this option, untrusted modules are an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Printed:
    """Option of commands that print results."""

    json: bool = False
    """Print JSON instead of text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overwrite:
    """Option of commands that write a run directory or a file."""

    overwrite: bool = False
    """Replace an existing run directory or file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvParams:
    """Options of commands that take an environment."""

    env_params: tuple[str, ...] = ()
    """Environment parameters and wrappers, each as NAME=VALUE, such as frame_stack=4, mode=hard or slippery=false.
    Values are as in YAML. With several environments they apply to all; of a run they replace its own."""

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as keyword arguments of environments. Raises `ConfigError` (`env_params`)."""
        return env_params(self.env_params, getattr(self, "resets", ""))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained(EnvParams):
    """Options of commands that describe a training."""

    resets: str = ""
    """How environments reset. every: each step computes a first state for every environment. pool:N: draws from N first
    states made once. few: computes first states only where episodes ended; few:N: N at a time. It sets the environment
    parameter resets. Empty: the environment's default."""
    preset: str = ""
    """Named settings of the algorithm to start from, such as image, memory or continuous for tasks of that kind. Other
    options override them. Empty: the defaults."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Described(Overwrite, Trained):
    """Options of commands that run a training or a search."""

    config: str | None = None
    """JSON or YAML file with options to start from, such as the config.json of a run. Options on the command line
    override it."""
    checkpoint_seconds: cfg.NonNegative = 60.0
    """Seconds between checkpoints. 0: only at the end and on an interrupt."""
    keep: cfg.Count = 2
    """Number of checkpoints to keep. Older ones are used if the newest is damaged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun:
    """Options of commands that begin a run."""

    dry_run: bool = False
    """Only print what the run would take: frames, memory and time. Nothing is trained or written."""
    yes: bool = False
    """Begin a run that is expected to take more than a day without asking. Only at a terminal is there a question."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """Options of commands that use several devices."""

    heading: ClassVar[str] = "device"
    num_devices: cfg.NonNegativeCount = 0
    """Number of devices to use, in JAX's order. 0: all."""
    processes: str = ""
    """Run over several processes, each with its own devices: ADDRESS,N,ID, where ADDRESS is HOST:PORT of process 0, N
    the number of processes and ID the number of this one, from 0; or auto, to read them from Slurm, Open MPI or
    Kubernetes. Start the same command in every process, with a run directory on a shared file system. Empty: one
    process."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lanes:
    """Option of commands that run many short trainings."""

    heading: ClassVar[str] = "device"
    lanes: cfg.NonNegativeCount = 0
    """Number of trainings that a device runs in parallel. 0: 8 on a CPU core, all on other devices."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampled:
    """Option of commands that play with policies."""

    sample: bool = False
    """Draw actions from the policy's distribution, instead of taking the most likely one. For algorithms whose policy
    has a distribution, such as PPO and SAC."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searched:
    """Option of commands that play with policies that may search."""

    simulations: Annotated[int | None, cfg.Range(0, 2**31)] = None
    """Number of simulations of a search before each action. 0: the network acts alone. For algorithms that search, such
    as AlphaZero. None: as many as in the training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """Option of commands that use one agent of a run."""

    agent: str = "0"
    """Which agent of the run: its number, from 0; or best or worst, by the mean return of the final evaluation, of a
    sweep among the agents of all configurations."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episodes:
    """Options of commands that play episodes."""

    max_steps: cfg.Count = 10_000
    """Number of steps after which an episode is truncated."""
    seed: cfg.Seed = 0
    """Seed of the episodes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosted:
    """Options of trainings in host environments."""

    heading: ClassVar[str] = "host environment"
    workers: str = "auto"
    """Number of worker processes that step a host environment, such as one of Gymnasium. none: step in this process.
    auto: one for each core if stepping is slow, otherwise none."""
    double_buffering: Literal["auto", "on", "off"] = "auto"
    """Step one half of the copies of a host environment while actions are computed for the other half. auto: on with
    workers and an even num_envs."""
    ahead: cfg.NonNegativeCount = 0
    """Number of iterations that a host environment may be ahead of learning, so that acting and learning overlap.
    Actions then use parameters that are this many iterations old. 0: no overlap."""
    worker_timeout: cfg.Positive = 60.0
    """Seconds that a worker may take to step its environments before it is restarted."""
    worker_restarts: cfg.NonNegativeCount = 10
    """Number of worker restarts, over all workers, before the run fails."""
    eval_envs: cfg.NonNegativeCount = 0
    """Largest number of copies of a host environment that an agent is evaluated in; they share its eval_episodes. 0: as
    many as it is trained in."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placed(Devices):
    """Options of commands that place agents on devices."""

    heading: ClassVar[str] = "device"
    agents_at_once: cfg.NonNegativeCount = 0
    """Number of agents in memory at the same time; the others are trained afterwards. 0: as many as fit."""
    lanes: cfg.NonNegativeCount = 0
    """Number of agents that a device trains in parallel. 0: one on a CPU core, all on other devices."""
    shards: Annotated[int, cfg.Range(1, 2**16, open_high=False)] = 1
    """Number of equal shards of each agent, for training it on several devices. Each shard has its part of the
    environments, the replay and every batch; gradients are averaged over shards. It changes the results."""
    devices_per_agent: cfg.Count = 1
    """Number of devices for each agent; must divide shards. A device computes its shards one after another, so a run
    can be resumed with another number of devices."""
    exact: bool = False
    """Sum over the shards of an agent in a fixed order and compute each shard separately, so that results do not depend
    on the number of devices (on GPUs, add deterministic). Somewhat slower."""


@dataclasses.dataclass(frozen=True)
class RunOptions(Placed, Hosted, Described, MachineOptions):
    """What to train on, how many agents, and where to write the results."""

    env: str
    """Environment: a name from `purerl list envs`, or MODULE:FUNCTION for your own."""
    num_seeds: cfg.Members = 1
    """Number of agents to train in parallel, each with its own seed."""
    seed: cfg.Seed = 0
    """Seed of the first agent; agent i has seed + i. An agent has the same results as a single run with its seed."""
    out: str | None = None
    """Run directory to create (default: runs/ALGO-ENV-DATE-TIME)."""
    warm_start: str = ""
    """Start from what another run has learned: networks, critics and observation statistics. RUN:N, RUN:best,
    RUN:worst: that agent, for all. RUN: agent i starts from agent i, or all from the only one. Empty: new networks."""
    keep_best: bool = False
    """Also save the best policy of each agent in RUN/best, by its mean return between two checkpoints."""
    eval_episodes: cfg.Count = 100
    """Number of episodes that each agent plays in an evaluation, after training and during it (eval_every)."""
    sample: bool = False
    """Draw actions from the policy's distribution in all evaluations, instead of taking the most likely one. For
    algorithms whose policy has a distribution, such as PPO and SAC."""
    eval_every: cfg.NonNegativeCount = 0
    """Environment steps of an agent between evaluations during training, rounded up to whole iterations. Results go to
    RUN/evaluations.jsonl and do not affect training, except through stop_at. 0: none."""
    stop_at: float | str | None = None
    """Mean return at which an agent stops learning; the run ends when all agents have stopped. The mean is over
    stop_episodes training episodes or, with eval_every, over each evaluation. info/NAME:NUMBER: the mean of a number
    that the environment tells at the end of an episode, such as info/success:0.9. None: no early stop."""
    stop_episodes: cfg.Count = 100
    """Number of training episodes in the mean return that is compared with stop_at; each comparison uses new episodes.
    With eval_every, eval_episodes is used instead."""
    log: tuple[Literal["csv", "tensorboard", "wandb"], ...] = ()
    """Additional loggers, besides RUN/metrics.jsonl. csv writes RUN/log.csv; tensorboard and wandb need their packages.
    wandb stays offline unless the environment variable WANDB_MODE is online."""
    diagnostics: bool = False
    """Also log dormant_units and feature_rank of the policy's network. Costs one forward pass per update."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selected:
    """Options of commands that train several configurations."""

    select: Literal["none", "pbt", "halving"] = "none"
    """Select among the configurations during the training, by the mean return of the episodes that ended since the last
    selection. pbt: population-based training; the worst fifth of the agents take the state of agents of the best fifth,
    and new values within the swept ranges; costs as many frames as without. halving: successive halving; the worse half
    of the configurations stop and take no more frames. none: all train to the end."""
    select_every: cfg.NonNegativeCount = 0
    """Environment steps of an agent between selections, rounded up to whole iterations; with halving until the first
    one, and each further one after twice as many in all. 0: a twentieth of total_steps; with halving so many that the
    last configuration trains alone for the second half."""


@dataclasses.dataclass(frozen=True)
class TrainOptions(Begun, RunOptions):
    """What to train on, how many agents, and where to write the results."""


@dataclasses.dataclass(frozen=True)
class SweepOptions(Selected, TrainOptions):
    """What to sweep: any number as LOW:HIGH:lin|log:COUNT, LOW:HIGH:lin|log (drawn at random) or VALUE,VALUE,..."""

    num_samples: Annotated[int, cfg.Range(1, cfg.CONFIGURATIONS, open_high=False)] = 16
    """Number of configurations to draw at random, if ranges are given without a count."""


@dataclasses.dataclass(frozen=True)
class PlanOptions(Selected, Printed, RunOptions):
    """Which training to plan."""

    measure: bool = False
    """Train for a few seconds to measure the speed, which is otherwise estimated from the compiled program."""
    target: str = ""
    """GPU to plan for, which this machine need not have: h200, h100, a100, a100-40gb, a40, l40s, l4, rtx4090 or t4.
    Prints memory, kernels, memory traffic and the predicted speed. Needs pip install 'purerl[gpu-plan]'."""


@dataclasses.dataclass(frozen=True)
class EvolveOptions(Lanes, Devices, Begun, Described, MachineOptions):
    """Environments and algorithm, length of the search, and output."""

    algo: str = ""
    """Algorithm that trains with each candidate: a name from `purerl list algos`, or MODULE:ATTRIBUTE for your own
    (default: one that has this socket)."""
    env: tuple[str, ...] = ()
    """One or more environments to train in. Each pair of an environment and a lifetime is a task."""
    lifetimes: tuple[cfg.Positive, ...] = (1.0,)
    """Lengths of the trainings, as fractions of total_steps. Each one makes a task of every environment."""
    tasks: Literal["shared", "paired"] = "shared"
    """Tasks in which a candidate is evaluated. shared: all tasks, with the same random keys for every candidate; the
    fitness is the mean rank. paired: one task for each antithetic pair of candidates; the fitness is which of the two
    is better, and a generation costs as much with many tasks as with one. paired needs Open_ES or PGPE."""
    initial: str = ""
    """Learned function at which the search begins, with its settings: a run directory of `purerl evolve`, a file of it
    or a name of `purerl list learned` (default: the socket's own initial function)."""
    population: cfg.Members = 64
    """Number of candidates in a generation. With strategy meta_gradient: number of agents."""
    generations: cfg.Count = 256
    """Number of generations."""
    num_seeds: cfg.Members = 1
    """Number of trainings of each candidate in each task."""
    strategy: str = "Open_ES"
    """Search method: the evolution strategy Open_ES, SNES, PGPE, CMA_ES, Sep_CMA_ES or LES, or meta_gradient."""
    sigma: cfg.Positive = 0.04
    """Standard deviation of the candidates around their mean in the first generation."""
    sigma_decay: cfg.Fraction = 0.999
    """Factor that multiplies the standard deviation after each generation. Open_ES only."""
    sigma_limit: cfg.Positive = 0.01
    """Lower bound of the standard deviation as it decays. Open_ES only."""
    meta_learning_rate: cfg.Positive = 0.01
    """Adam's learning rate for the mean of the candidates. Open_ES and meta_gradient only."""
    momentum: Annotated[float, cfg.Range(0, 1)] = 0.99
    """Adam's first-moment decay (beta 1) for the mean of the candidates. Open_ES only."""
    seed: cfg.Seed = 0
    """Seed of the search."""
    out: str | None = None
    """Run directory to create (default: runs/SOCKET-ALGO-DATE-TIME)."""
    budget_seconds: cfg.NonNegative = 0.0
    """Seconds after which the search stops early. Those before it was resumed count too. 0: no limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared(Printed, Lanes, MachineOptions):
    """Options of commands that compare a function with its baselines."""

    seeds: cfg.Members = 256
    """Number of trainings with the function and with each baseline. Their seeds are used neither by a search nor to
    tune baselines."""
    tuning_seeds: cfg.Members = 64
    """Number of trainings for each value of a baseline's tuned setting."""
    seed: cfg.Seed = 0
    """Seed of all these trainings. It selects the held-out seeds."""


@dataclasses.dataclass(frozen=True)
class ReportOptions(Trust, Compared):
    """Which learned function to compare with its baselines, and on how many seeds. For a function of your own give
    MODULE:FUNCTION and --socket SOCKET; `purerl evolve report MODULE:FUNCTION --socket SOCKET --help` lists its
    options."""

    run: str
    """Run directory of a search, or an artefact file."""
    env: tuple[str, ...] = ()
    """Additional environments to compare in, besides those of the search."""


@dataclasses.dataclass(frozen=True)
class WrittenOptions(Overwrite, Trained, Compared):
    """Which training and which limits to use when comparing a function of your own with the baselines of its socket."""

    socket: str
    """Socket of the function: value-loss, policy-drift, td-loss, vtrace-weight or optimiser."""
    algo: str = ""
    """Algorithm to train: a name from `purerl list algos`, or MODULE:ATTRIBUTE for your own (default: one that has this
    socket)."""
    env: tuple[str, ...] = ()
    """One or more environments to train in; each has its own rows in the report."""
    out: str | None = None
    """Directory to create for report.json and the plot of the function (default: runs/SOCKET-ALGO-DATE-TIME)."""
    limit_seconds: cfg.NonNegative = 3600.0
    """Time limit in seconds; the comparison runs in a separate process and ends with exit code 6 at the limit. 0: no
    limit."""
    limit_gigabytes: cfg.NonNegative = 8.0
    """Memory limit of that process in GB; it ends with exit code 4 at the limit. 0: no limit. Without both limits the
    function runs in the main process."""


@dataclasses.dataclass(frozen=True)
class DistillOptions(Trust):
    """Which learned function to distil, what to fit to it, and where to write the result."""

    run: str
    """Run directory of a search, or an artefact file."""
    into: Literal["expression", "network"] = "expression"
    """What to fit. expression: a closed form, to a value loss or a policy drift. network: a new network, to these or a
    TD loss."""
    hidden_sizes: tuple[socket_settings.Size, ...] = (16,)
    """Widths of the hidden layers of the network."""
    seed: cfg.Seed = 0
    """Seed of the network's initial parameters."""
    out: str | None = None
    """File to write (default: closed.json or network.json in the run directory)."""


def env_params(pairs: Sequence[str], resets: str = "") -> dict[str, Any]:
    """Reads parameters of an environment, such as ``("gravity=9.8", "mode=hard")``, into a dictionary.

    Values are read by `guards.yaml_value`; those of the names in `TEXTS` are always text, and 1e3 is a whole number for
    the names in `COUNTS`.

    Args:
        pairs: The parameters, each ``NAME=VALUE``.
        resets: The option of that name, which becomes a parameter (empty: none).

    Raises:
        ConfigError: A pair is wrong, a name is given twice, or the option and a parameter contradict each other.
    """
    params: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise ConfigError(f"env_params = {pair!r}: must be NAME=VALUE")
        if name in params:
            raise ConfigError(f"env_params = {pair!r}: {name} is given twice")
        value = _value(pair, text)
        if name in TEXTS and not isinstance(value, str):
            value = text
        if name in COUNTS and isinstance(value, float) and value.is_integer():
            value = int(value)
        params[name] = value
    if resets and params.setdefault("resets", resets) != resets:
        raise ConfigError(f"resets = {resets!r}: env_params has resets={params['resets']}; give only one of them")
    return params


def _value(pair: str, text: str) -> Any:
    """Reads the value of a ``NAME=VALUE``, which JSON must be able to hold unless it is a number."""
    try:
        value = guards.yaml_value(text)
        if isinstance(value, list | dict) and json.loads(json.dumps(value, allow_nan=False)) != value:
            raise ValueError("names must be text")
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:80]
        raise ConfigError(
            f"env_params = {pair!r}: is not a value of YAML ({reason}); put text in quotes: '\"...\"'"
        ) from None
    return value
