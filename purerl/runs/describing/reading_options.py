"""The options of commands that train nothing: they read runs, play, show, check and write. See `options`."""

import dataclasses
from typing import Annotated, Literal

from purerl import config as cfg
from purerl.runs.describing.options import (
    Agent,
    EnvParams,
    Episodes,
    MachineOptions,
    Overwrite,
    Printed,
    Sampled,
    Searched,
    Trust,
)


@dataclasses.dataclass(frozen=True)
class EvalOptions(Printed, Trust, Searched, Sampled, Episodes, EnvParams, MachineOptions):
    """What to evaluate, and how."""

    run: str
    """Run directory, or one agent of it: RUN:N, RUN:best or RUN:worst. The best and the worst by the final evaluation
    play other episodes than those that they were chosen by."""
    episodes: cfg.Count = 100
    """Number of episodes for each agent. With the run's eval_episodes and sample and with seed 0 they equal the final
    evaluation of the training."""
    eval_envs: cfg.NonNegativeCount = 0
    """Largest number of copies of a host environment that an agent is evaluated in; they share its episodes. 0: as many
    as it was trained in."""
    simulations_against: Annotated[int | None, cfg.Range(0, 2**31)] = None
    """Number of simulations of the opponents' searches, with against. None: as in simulations."""
    against: str = ""
    """Opponent in an environment with several agents: another run directory, whose agent of the same number plays, one
    agent of it (RUN:N, RUN:best, RUN:worst), or random. Seats rotate between episodes. Empty: each policy plays against
    itself."""
    levels: str = ""
    """Levels to evaluate on, each for the same number of episodes. A file of levels, such as the levels.safetensors of
    a run; random:N:SEED: N random levels that no training draws; held-out: the test levels of Maze-v0. Empty: each
    episode draws a level."""


@dataclasses.dataclass(frozen=True)
class RecordOptions(Printed, Trust, Overwrite, Agent, Searched, Sampled, Episodes, EnvParams, MachineOptions):
    """Which policies to record, in which environment, and where to write the file."""

    who: tuple[str, ...]
    """Policy to record: a run directory, or one agent of it (RUN:N, RUN:best, RUN:worst); MODULE:FUNCTION for your own,
    which takes an Env and returns a Player; or random. Several share the episodes, each as POLICY=SHARE, such as
    random=0.9 runs/x:best=0.1."""
    out: str = "dataset.safetensors"
    """File to write: every step of all episodes, and a description of them."""
    episodes: cfg.Count = 20
    """Number of episodes of all policies together. With several agents, this many for each."""
    eval_envs: cfg.NonNegativeCount = 0
    """Largest number of copies of a host environment that the episodes are played in. 0: as many as the run was trained
    in, or 8 for a policy that is not of a run."""
    env: str = ""
    """Environment to play in; needed unless a run is recorded, in whose own all policies play."""


@dataclasses.dataclass(frozen=True)
class DataOptions(Printed, Overwrite, EnvParams):
    """Which dataset to look at; and of Minari's, where to write it as a file that algorithms learn from."""

    source: str
    """Dataset: a file of `purerl record`; minari:NAME for a dataset of Minari on this machine, such as
    minari:D4RL/door/human-v2; or the folder of one."""
    out: str = ""
    """File to write the dataset of Minari to, as `purerl record` would. Empty: it is only shown."""
    episodes: cfg.NonNegativeCount = 0
    """Number of episodes of Minari's to read, from the first one. 0: all."""
    env: str = ""
    """Environment that policies of the dataset are for, with env_params. Empty: the one that Minari's metadata name."""
    trust: bool = False
    """Read Minari's HDF5 file in this process. Otherwise another one reads it, within limits."""
    limit_seconds: cfg.NonNegative = 600.0
    """Time limit of that process in seconds; it ends with exit code 6 at the limit. 0: no limit."""
    limit_gigabytes: cfg.NonNegative = 8.0
    """Memory limit of that process in GB; it ends with exit code 4 at the limit. 0: no limit."""


@dataclasses.dataclass(frozen=True)
class GrowOptions(Trust, Overwrite, MachineOptions):
    """Which run to grow, and the new widths."""

    run: str
    """Run directory of a training or a sweep; it is not changed."""
    hidden_sizes: tuple[cfg.Count, ...] = ()
    """New widths of the dense layers: as many as the run has, each at least as large."""
    out: str | None = None
    """Run directory to create (default: RUN-grown)."""
    dry_run: bool = False
    """Only print what would be made, and what a training with the new widths takes. Nothing is written."""


@dataclasses.dataclass(frozen=True)
class CheckOptions(Printed, EnvParams, MachineOptions):
    """Which environment to check, and how many random steps to play."""

    env: str
    """Environment: MODULE:FUNCTION for your own, or a name from `purerl list envs`."""
    steps: cfg.Count = 1000
    """Number of random steps for each copy. Events that do not occur in them, such as an episode's end, are not
    checked."""
    envs: cfg.Count = 16
    """Number of copies of the environment that are played in parallel."""
    seed: cfg.Seed = 0
    """Seed of the random actions and of the environments."""


OFFLINE = cfg.Needs("offline", lambda options: options.offline)
NOT_OFFLINE = cfg.Needs("offline = False", lambda options: not options.offline)


@dataclasses.dataclass(frozen=True)
class CompareOptions(Printed, Trust):
    """Which runs to compare, and by what."""

    runs: tuple[str, ...]
    """Two or more run directories, agents of a run (RUN:N, RUN:best, RUN:worst), or lines of a file of results
    (FILE.jsonl:ROW). Each is compared with the first. A sweep, also one alone, stands for all its configurations, the
    best first; a table then shows how much each of its settings matters."""
    by: Annotated[str, NOT_OFFLINE] = "final"
    """Number by which agents are compared. final: mean return of the final evaluation. mean: mean return over the whole
    training. reach:VALUE: frames until 100 episodes of the training have the mean return VALUE, as stop_at finds it."""
    offline: bool = False
    """Compare sweeps by how good a policy they give whoever plays only a few episodes to choose one: the return of the
    policy chosen after 1, 2, 5, ..., 500 episodes, as a bandit plays them. For trainings from a dataset."""
    episodes: Annotated[cfg.Count, OFFLINE] = 100
    """With offline: number of episodes of each policy that may be played to choose one. As many others say what it
    returns."""
    policies: Annotated[cfg.Count, OFFLINE] = 8
    """With offline: number of policies to choose among, drawn anew for each trial. All, if a sweep has fewer."""
    out: Annotated[str, OFFLINE] = ""
    """With offline: also draw the returns to this file, with the extension .png, .svg or .pdf. An existing file is
    replaced."""


Port = Annotated[int, cfg.Range(0, 2**16, open_high=True)]


@dataclasses.dataclass(frozen=True)
class DashboardOptions:
    """Which runs to show, and on which port."""

    folder: str
    """Folder that contains run directories, up to four levels deep (default: runs)."""
    port: Port = 8787
    """Port on 127.0.0.1. 0: any free port."""
    open: bool = False
    """Also open the page in a browser."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenderOptions(Trust, Overwrite, Agent, Searched, Sampled, Episodes, EnvParams, MachineOptions):
    """Which agent to render, for how many episodes, and where to write the film."""

    run: str
    """Run directory."""
    out: str = ""
    """File to write, with the extension .gif, .mp4 or .html (default: film.gif in the run directory)."""
    episodes: cfg.Count = 1
    """Number of episodes to render, one after another."""
    max_steps: cfg.Count = 1000
    """Number of steps after which an episode is truncated."""
    fps: Annotated[float, cfg.Range(0, 1000)] = 0.0
    """Environment steps shown per second. 0: the environment's default."""
    size: Annotated[int, cfg.Range(64, 2048)] = 320
    """Height of the film in pixels."""


@dataclasses.dataclass(frozen=True)
class PlayOptions(Trust, Agent, Searched, Sampled, EnvParams, MachineOptions):
    """Which agent to play against, and in which seat."""

    run: str
    """Run directory of a training in a game of two that act in turn."""
    seat: Literal["0", "1", "random"] = "random"
    """Seat that you take. random: drawn for each game."""
    seed: cfg.Seed = 0
    """Seed of the games: of seats, of what the game draws, such as who begins, and of what the agent draws."""
    page: bool = False
    """Play on a page in the browser of this machine instead of in the terminal."""
    port: Port = 8787
    """Port of the page on 127.0.0.1. 0: any free port."""
    open: bool = False
    """Also open the page in a browser."""


@dataclasses.dataclass(frozen=True)
class ExportOptions(Trust, Overwrite, Agent, MachineOptions):
    """Which agent's policy to export, the format, and where to write it."""

    run: str
    """Run directory."""
    to: Literal["stablehlo", "numpy", "onnx"] = "stablehlo"
    """Format. stablehlo: a program of jax.export. numpy: arrays and a Python file that needs only numpy. onnx: an ONNX
    graph. stablehlo and onnx need pip install 'purerl[export]'."""
    out: str = ""
    """File to write, or for numpy the directory to create (default: policy.stablehlo, policy-numpy or policy.onnx in
    the run directory)."""


MEASURES = cfg.Needs("something to measure; compare reads two files", lambda options: not options.compare)
Repeats = Annotated[int, cfg.Range(0, 1000), MEASURES]


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions(Printed):
    """Which workloads to measure, how often, and where to write the figures."""

    workloads: tuple[str, ...]
    """Workloads: ppo-cartpole (with 1, 64 and 2048 agents; ppo-cartpole-64 is one of these), dqn, sac, minatar, brax or
    host; or your own, as what follows purerl train, in quotes. None: all whose libraries are installed."""
    processes: Repeats = 0
    """Number of fresh processes of each workload. 0: 3, with quick 1."""
    rounds: Repeats = 0
    """Number of timed trainings in each process. 0: 3, with quick 1."""
    warmups: Repeats = 0
    """Number of trainings in each process before the first that is timed. 0: 2, with quick 1."""
    quick: Annotated[bool, MEASURES] = False
    """Measure shorter trainings, once: a look of a minute or two. Its figures compare with those of quick alone."""
    out: Annotated[str, MEASURES] = "benchmark.json"
    """JSON file to write: the figures, with the machine, versions and settings. It is written after each process."""
    overwrite: Annotated[bool, MEASURES] = False
    """Replace an existing file of figures. Any other file is never replaced."""
    compare: tuple[str, ...] = ()
    """Compare two such files instead, as BEFORE.json AFTER.json: how many times as many frames/s the second has."""


@dataclasses.dataclass(frozen=True)
class PlotOptions:
    """Which plot to draw, and where to write it."""

    runs: tuple[str, ...]
    """One or more run directories. Several trainings or searches are drawn in one plot."""
    out: str = "plot.png"
    """File to write, with the extension .png, .svg or .pdf. An existing file is replaced."""
    kind: Literal["auto", "curves", "quantiles", "map", "search", "levels"] = "auto"
    """Kind of plot. curves: interquartile means over agents with bootstrap bands. quantiles: quantiles of the returns
    over a population. map: the results of a sweep. search: the fitness over frames and the learned function. levels:
    the levels of a curriculum with the highest scores. auto: the kind that suits the first run."""
    x: Literal["frames", "seconds"] = "frames"
    """Horizontal axis of curves: frames of an agent (for a search: of all trainings), or seconds of training."""
    y: str = ""
    """Metric of curves: any in the logs, such as loss, eval_return or frames_per_second (default: episode_return; for a
    search: fitness)."""
    group_by: str = ""
    """Setting in which the configurations of curves differ, or "run": one curve for each of its values, over all agents
    with that value. Default: a curve for each configuration if there are at most eight, otherwise the setting that
    explains most of the variance of their last values."""
