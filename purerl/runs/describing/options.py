"""The options of each command, with their help texts. `purerl.cli` reads them from a command line."""

import dataclasses
from typing import Annotated, Literal

from purerl import config as cfg
from purerl.learned import chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """What a command that computes needs to know of the machine."""

    device: Literal["any", "cpu", "gpu", "tpu"] = "any"
    """Kind of device to compute on; a kind that this machine lacks is refused. any: the fastest that JAX finds."""
    deterministic: bool = False
    """Have a GPU compute the same bits every time, more slowly. A CPU does so anyway."""
    threads: Literal["auto", "one", "all"] = "auto"
    """Threads of the CPU to compute with: one, or as many as it has cores, each of which is also a device for agents.
    auto: one where a lone agent learns from small vectors with layers of at most 128 units, which is faster then."""
    kernels: Literal["auto", "off"] = "off"
    """Whether a GPU computes rollouts and updates of dense networks in kernels of our own. auto: wherever they can. Off
    by default, because they are checked against the plain program on a CPU only, and no GPU has run them yet."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Precision of networks. auto: JAX's, which on a GPU is tf32 in matrix products. bfloat16: dense layers compute in
    it; parameters, optimisers and losses stay in float32."""
    compile: Literal["full", "quick"] = "full"
    """quick: have a CPU's programs compiled in a fraction of the time, to ones that run more slowly, for trying things.
    Results may differ from those of full in last bits, and grow apart. A GPU's programs are the same either way."""
    compilation_cache: str = "~/.cache/purerl"
    """Directory of compiled programs, for a faster start the next time; "off" keeps none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trust:
    """Of commands that read what others may have written."""

    trust: bool = False
    """Import and run the modules of anybody's own that the run or artefact names, and remember that these may be, as
    long as their source does not change. Without it, one that names others is refused."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Printed:
    """Of commands that print what they find."""

    json: bool = False
    """Print JSON instead of text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overwrite:
    """Of commands that write a run directory or a file."""

    overwrite: bool = False
    """Replace what is there: an earlier run in the run directory, or the file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvParams:
    """Of commands that are given an environment."""

    env_params: tuple[str, ...] = ()
    """Parameters of the environment, or of all of them, and transforms such as frame_stack=4, each as NAME=VALUE."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained(EnvParams):
    """Of commands that are given all that a training follows from."""

    resets: str = ""
    """How episodes begin anew: every (each step computes a new first state for every environment), pool:N (one of N
    states drawn once), few (states are computed only where episodes ended) or few:N (N at a time). It becomes the
    parameter resets of the environment. Empty: the environment's default."""
    preset: str = ""
    """Named settings of the algorithm to start from: image, memory or continuous for tasks of that kind, and others;
    options that are given override them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Described(Overwrite, Trained):
    """Of commands that carry out a training or a search."""

    config: str | None = None
    """JSON or YAML file to start from, such as the config.json of a run; options that are given change it."""
    checkpoint_seconds: cfg.NonNegative = 60.0
    """Seconds between two checkpoints. 0: one at the end, and one when the run is interrupted."""
    keep: cfg.Count = 2
    """Number of checkpoints to keep: the newest, and those to fall back to if it is damaged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """Of commands that use several devices at once."""

    num_devices: cfg.NonNegativeCount = 0
    """Number of devices to use, the first that JAX finds. 0: all."""
    processes: str = ""
    """Other processes that carry out this command too, each with devices of its own, over all of which agents are
    dealt: ADDRESS,N,ID with HOST:PORT of process 0, the number of processes, and that of this one, from 0 on; or auto,
    as Slurm, Open MPI and Kubernetes tell. The run directory lies on a file system that they share. Empty: none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lanes:
    """Of commands that carry out many short trainings."""

    lanes: cfg.NonNegativeCount = 0
    """Number of trainings that a device computes side by side. 0: 8 on a CPU core, all on other devices."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """Of commands that take one agent of a run."""

    agent: cfg.NonNegativeCount = 0
    """Number of the run's agent, which always takes its most likely action."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episodes:
    """Of commands that play episodes."""

    max_steps: cfg.Count = 10_000
    """Number of steps after which an episode is cut off, as if by a time limit."""
    seed: cfg.Seed = 0
    """Seed of the episodes."""


@dataclasses.dataclass(frozen=True)
class TrainOptions(Devices, Described, MachineOptions):
    """What to train on, how many agents, and where to write the results."""

    env: str
    """Environment: a name that `purerl list envs` prints, or MODULE:FUNCTION of your own."""
    num_seeds: cfg.Members = 1
    """Number of agents to train at once, in one program."""
    seed: cfg.Seed = 0
    """Seed of the first agent; agent i has seed + i. An agent equals a lone run with its seed."""
    out: str | None = None
    """Run directory to make (default: runs/ALGO-ENV-DATE-TIME)."""
    warm_start: str = ""
    """Run directory whose policies the agents begin with, their networks and the moments of observations, as RUN:AGENT,
    or as RUN with one agent or as many as here: agent i begins with agent i. All else is new. Empty: new networks."""
    keep_best: bool = False
    """Also keep the best policy of each agent so far in RUN/best, by its mean return between two checkpoints."""
    eval_episodes: cfg.Count = 100
    """Number of episodes that each agent plays in an evaluation, after training and as it goes on (eval_every)."""
    eval_every: cfg.NonNegativeCount = 0
    """Environment steps of an agent between two evaluations during training, rounded up to whole iterations, for
    RUN/evaluations.jsonl. They change no bit of the training, unless stop_at looks at them. 0: none."""
    stop_at: float | None = None
    """Return at which an agent stops learning; the run ends once all of its agents have stopped. Looked at is the mean
    return of stop_episodes episodes of the training, or with eval_every that of each evaluation. None: all agents train
    to the end."""
    stop_episodes: cfg.Count = 100
    """Number of episodes whose mean return stop_at looks at: it looks after each iteration by which so many have ended
    since the last look. With eval_every it is eval_episodes that counts."""
    log: tuple[Literal["csv", "tensorboard", "wandb"], ...] = ()
    """Where metrics go beside RUN/metrics.jsonl: csv is RUN/log.csv; tensorboard and wandb are extras to install. wandb
    stays offline unless WANDB_MODE=online is in the environment."""
    workers: str = "auto"
    """Worker processes that step an environment of the host, such as Gymnasium's: a number, or none, which steps in
    this process. auto: as many as there are cores if stepping is slow, otherwise none."""
    double_buffering: Literal["auto", "on", "off"] = "auto"
    """Step one half of an environment of the host while actions are computed for the other half. auto: with workers,
    if num_envs is even."""
    ahead: cfg.NonNegativeCount = 0
    """Number of iterations that may be collected in an environment of the host before the new parameters arrive, so
    that acting and learning overlap; actions are then by parameters so many iterations old. 0: none."""
    worker_timeout: cfg.Positive = 60.0
    """Seconds that a worker may take for a step of its environments, before it is ended and started anew."""
    worker_restarts: cfg.NonNegativeCount = 10
    """Number of times that workers may be started anew in a run, because they failed."""
    diagnostics: bool = False
    """Also log how much of the policy's network is in use: dormant_units and feature_rank, for a forward pass an
    update."""
    agents_at_once: cfg.NonNegativeCount = 0
    """Number of agents in memory at the same time; the others wait for their turn. 0: as many as fit."""
    lanes: cfg.NonNegativeCount = 0
    """Number of agents that a device computes side by side. 0: one on a CPU core, all on other devices."""
    shards: Annotated[int, cfg.Range(1, 2**16, open_high=False)] = 1
    """Number of equal parts into which each agent is cut, to lie over several devices: each has its part of the
    environments, of the replay and of every batch, and all take each gradient step together. Results follow from it."""
    devices_per_agent: cfg.Count = 1
    """Number of devices over which each agent lies; must divide shards. A device computes its shards one after another,
    so that a run can go on with another number of devices."""
    exact: bool = False
    """Add what the shards of an agent sum in one order, and compute each shard apart from the others, so that no bit of
    the results follows from the number of devices (on a CPU; on GPUs also give deterministic). Somewhat slower."""


@dataclasses.dataclass(frozen=True)
class SweepOptions(TrainOptions):
    """What to sweep: any number as LOW:HIGH:lin|log:COUNT, LOW:HIGH:lin|log (drawn at random) or VALUE,VALUE,..."""

    num_samples: Annotated[int, cfg.Range(1, cfg.CONFIGURATIONS, open_high=False)] = 16
    """Number of configurations to draw at random, if ranges are given without a count."""


@dataclasses.dataclass(frozen=True)
class PlanOptions(Printed, TrainOptions):
    """What to plan for."""

    measure: bool = False
    """Also train for a few seconds, and estimate the speed and the time of the whole training from that."""
    target: str = ""
    """GPU to plan for, which this machine need not have: h200, h100, a100, a100-40gb, a40, l40s, l4, rtx4090 or t4.
    Tells memory, kernels, traffic and a prediction of the speed. Needs pip install 'purerl[gpu-plan]'."""


@dataclasses.dataclass(frozen=True)
class EvolveOptions(Lanes, Devices, Described, MachineOptions):
    """What to evolve on, how long, and where to write the results."""

    algo: str = ""
    """Algorithm to train with each candidate, or MODULE:ATTRIBUTE of your own (default: one that has the socket)."""
    env: tuple[str, ...] = ()
    """Environment to train in, or several. A task is an environment and a lifetime."""
    lifetimes: tuple[cfg.Positive, ...] = (1.0,)
    """Lengths of the trainings, as fractions of total_steps. With several, each environment is as many tasks."""
    tasks: Literal["shared", "paired"] = "shared"
    """Which tasks a candidate is tried in. "shared": all, on the same keys as every other candidate; its score is its
    mean rank. "paired": each antithetic pair of candidates in one task, on keys of its own; what counts is which of the
    two did better. A generation of many tasks then costs as much as one of a single task. Open_ES and PGPE only."""
    population: cfg.Members = 64
    """Number of candidates in a generation; with the strategy meta_gradient, number of agents."""
    generations: cfg.Count = 256
    """Number of generations of the whole search."""
    num_seeds: cfg.Members = 1
    """Number of trainings of each candidate in each of its tasks."""
    strategy: str = "Open_ES"
    """Evolution strategy: Open_ES, SNES, PGPE, CMA_ES, Sep_CMA_ES or LES; or meta_gradient."""
    sigma: cfg.Positive = 0.04
    """Standard deviation of the first generation's candidates around their mean."""
    sigma_decay: cfg.Fraction = 0.999
    """Factor that multiplies the standard deviation after each generation. Open_ES only."""
    sigma_limit: cfg.Positive = 0.01
    """Smallest standard deviation that sigma_decay leads to. Open_ES only."""
    meta_learning_rate: cfg.Positive = 0.01
    """Step size of Adam on the mean of the candidates. Open_ES and meta_gradient only."""
    momentum: Annotated[float, cfg.Range(0, 1)] = 0.99
    """First-moment decay (beta 1) of Adam on the mean of the candidates. Open_ES only."""
    seed: cfg.Seed = 0
    """Seed of the search."""
    out: str | None = None
    """Run directory to make (default: runs/SOCKET-ALGO-DATE-TIME)."""
    budget_seconds: cfg.NonNegative = 0.0
    """Seconds after which the search ends, even if generations are left. 0: no limit."""
    dry_run: bool = False
    """Only print how many frames, how much memory and how many hours the search would take."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared(Printed, Lanes, MachineOptions):
    """Of commands that compare a function with its baselines."""

    seeds: cfg.Members = 256
    """Number of trainings with the function, and with each baseline, on seeds that neither a search nor the tuning of
    baselines uses."""
    tuning_seeds: cfg.Members = 64
    """Number of trainings for each value that a baseline is tuned over."""
    seed: cfg.Seed = 0
    """Seed of all these trainings; another one gives other held-out seeds."""


@dataclasses.dataclass(frozen=True)
class ReportOptions(Trust, Compared):
    """What to compare with its baselines, and on how many seeds. A function of your own, MODULE:FUNCTION in place of
    RUN, is compared with --socket SOCKET; purerl evolve report MODULE:FUNCTION --socket SOCKET --help lists the
    options of that."""

    run: str
    """Run directory of a search, or an artefact's file, such as a closed form."""
    env: tuple[str, ...] = ()
    """Further environments to try it in, beside those that it was evolved in."""


@dataclasses.dataclass(frozen=True)
class WrittenOptions(Overwrite, Trained, Compared):
    """How a function that somebody wrote is compared with the baselines of its socket: what is trained, on how many
    seeds, and within what limits."""

    socket: str
    """What the function is: value-loss, policy-drift, td-loss, vtrace-weight or optimiser."""
    algo: str = ""
    """Algorithm to train, or MODULE:ATTRIBUTE of your own (default: one that has the socket)."""
    env: tuple[str, ...] = ()
    """Environment to train in, or several, each with rows of its own."""
    out: str | None = None
    """Directory to make for report.json and the function's picture (default: runs/SOCKET-ALGO-DATE-TIME)."""
    limit_seconds: cfg.NonNegative = 3600.0
    """Seconds that all of it may take in a process of its own, which is then ended with exit code 6. 0: any number."""
    limit_gigabytes: cfg.NonNegative = 8.0
    """Memory that this process may hold, in GB, before it is ended with exit code 4. 0: any. Without both limits the
    function runs in this very process."""


@dataclasses.dataclass(frozen=True)
class DistillOptions(Trust):
    """What to fit to which learned function, and where to write it."""

    run: str
    """Run directory of a search, or an artefact's file."""
    into: Literal["expression", "network"] = "expression"
    """What to fit: a closed form, to a value loss or a policy drift, or a fresh network, to these or a TD loss."""
    hidden_sizes: tuple[chosen.Size, ...] = (16,)
    """Widths of the hidden layers of the network."""
    seed: cfg.Seed = 0
    """Seed of what the network is fitted from."""
    out: str | None = None
    """File to write (default: closed.json or network.json in the run directory)."""


@dataclasses.dataclass(frozen=True)
class EvalOptions(Printed, Trust, Episodes, MachineOptions):
    """What to evaluate, and how."""

    run: str
    """Run directory."""
    episodes: cfg.Count = 100
    """Number of episodes to play with each agent's policy, always with its most likely action. With as many as the run
    has (eval_episodes), and seed 0, they are those of the end of the training."""
    against: str = ""
    """Who plays the other agents, where there are several: another run directory, whose agent of the same number does,
    or "random". The seat changes from one episode to the next. Empty: each agent's policy plays all of them."""
    levels: str = ""
    """Levels to play in, each for as many episodes: a file of levels, such as the levels.safetensors of a run;
    random:N:SEED, for N random ones, which no training draws; or held-out, for those of Maze-v0 that nobody trains in.
    Empty: each episode draws one."""


@dataclasses.dataclass(frozen=True)
class RecordOptions(Printed, Trust, Overwrite, Agent, Episodes, EnvParams, MachineOptions):
    """Who plays, where, and into which file."""

    who: str
    """Run directory of which an agent plays; or MODULE:FUNCTION of your own, which makes a Player of an Env; or
    "random"."""
    out: str = "dataset.safetensors"
    """File to write: every step of all episodes, and a card that says what they are."""
    episodes: cfg.Count = 20
    """Number of episodes. Of several agents, each has as many of its own."""
    env: str = ""
    """Environment, unless a run plays, which plays in its own."""


@dataclasses.dataclass(frozen=True)
class GrowOptions(Trust, Overwrite, MachineOptions):
    """What to grow, and to which widths."""

    run: str
    """Run directory of a training or a sweep, which is only read."""
    hidden_sizes: tuple[cfg.Count, ...] = ()
    """Widths of the dense layers: as many as the run has, each as large or larger."""
    out: str | None = None
    """Run directory to make (default: RUN-grown)."""


@dataclasses.dataclass(frozen=True)
class CheckOptions(Printed, EnvParams, MachineOptions):
    """What to check, and how long to play it at random."""

    env: str
    """Environment: MODULE:FUNCTION of your own, or a name that `purerl list envs` prints."""
    steps: cfg.Count = 1000
    """Number of steps that each copy is played. What they do not meet, such as an end, is not looked at."""
    envs: cfg.Count = 16
    """Number of copies that are played at once."""
    seed: cfg.Seed = 0
    """Seed of the play."""


@dataclasses.dataclass(frozen=True)
class CompareOptions(Printed):
    """What to compare."""

    runs: tuple[str, ...]
    """Run directories, two or more. Each of the others is compared with the first."""


@dataclasses.dataclass(frozen=True)
class DashboardOptions:
    """Whose runs to show, and where."""

    folder: str
    """Folder with run directories, at any depth up to four (default: runs)."""
    port: Annotated[int, cfg.Range(0, 2**16, open_high=True)] = 8787
    """Port of this machine's loopback interface, 127.0.0.1; 0: any that is free."""
    open: bool = False
    """Also open the page in the browser."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenderOptions(Trust, Overwrite, Agent, Episodes, MachineOptions):
    """Which agent to film, for how long, and into which file."""

    run: str
    """Run directory."""
    out: str = ""
    """File to write, whose name ends in .gif, .mp4 or .html (default: film.gif in the run directory)."""
    episodes: cfg.Count = 1
    """Number of episodes to film, one after another."""
    max_steps: cfg.Count = 1000
    """Number of steps after which an episode is cut off."""
    fps: Annotated[float, cfg.Range(0, 1000)] = 0.0
    """Steps that are shown in a second. 0: what suits the environment."""
    size: Annotated[int, cfg.Range(64, 2048)] = 320
    """Height of the picture in pixels."""


@dataclasses.dataclass(frozen=True)
class ExportOptions(Trust, Overwrite, Agent, MachineOptions):
    """Which agent's policy to export, as what, and where to."""

    run: str
    """Run directory."""
    to: Literal["stablehlo", "numpy", "onnx"] = "stablehlo"
    """stablehlo: a program of jax.export. numpy: arrays and a Python file that needs numpy alone. onnx: a graph of
    ONNX. All but numpy need pip install 'purerl[export]'."""
    out: str = ""
    """File to write, or for numpy a directory to make (default: policy.stablehlo, policy-numpy or policy.onnx in the
    run directory)."""


@dataclasses.dataclass(frozen=True)
class PlotOptions:
    """What to draw, and where to."""

    runs: tuple[str, ...]
    """Run directories. Of trainings and searches several are drawn beside each other."""
    out: str = "plot.png"
    """File to write, as .png, .svg or .pdf. What is there is replaced."""
    kind: Literal["auto", "curves", "quantiles", "map", "search", "levels"] = "auto"
    """curves: interquartile means over agents with bootstrap bands. quantiles: of the returns over a population. map:
    of a sweep. search: the fitness over frames and the learned function. levels: those of a curriculum with the highest
    scores. auto: what suits the first run."""
    x: Literal["frames", "seconds"] = "frames"
    """What curves are drawn over: frames of an agent (of a search: of all trainings), or seconds of training."""
    y: str = ""
    """Metric that curves are of: any in the logs, such as loss, eval_return or frames_per_second (default:
    episode_return; of a search: fitness)."""
