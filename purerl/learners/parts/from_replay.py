"""Learning from a replay: its settings, the ring that they describe, and the trainer around it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from purerl import config as cfg
from purerl import loops, replay, spaces
from purerl.envs.fleet import fleet
from purerl.learners.parts import settings
from purerl.loops.settings import Loop
from purerl.replay.fixed import Stored
from purerl.replay.ring import CUT_ROWS, least_rows, most_frames
from purerl.types import Array, Dataset, Env, Learner, PyTree, Replay, Trainer


@cfg.config(num_envs=8, num_steps=8)
class ReplayConfig(Loop):
    """Settings of a replay and of learning from it."""

    heading: ClassVar[str] = "replay"
    total_steps: cfg.Frames = 500_000
    """Environment steps of the whole training of one agent, warm-up included, rounded down to whole iterations."""
    num_updates: cfg.Count = 4
    """Number of gradient steps in one iteration."""
    batch_size: cfg.Count = 64
    """Number of samples in one gradient step, each a transition or a sequence."""
    capacity: cfg.Count = 100_000
    """Environment steps that the replay stores, rounded up to whole iterations of num_envs * num_steps. At least a
    batch, and the span of one sample in each environment. With several agents, per agent."""
    store_next_obs: bool = False
    """Store the next observation of every step, for twice the memory, instead of that of one truncated step in 32.
    Needed only if episodes are truncated more often than that."""
    warmup_steps: cfg.Count = 5_000
    """Environment steps before the first gradient step, rounded up to whole iterations."""
    prioritised: bool = False
    """Prioritised replay: sample in proportion to priority instead of uniformly."""
    priority_exponent: Annotated[cfg.Fraction, settings.WITH_PRIORITIES] = 0.6
    """Exponent (alpha) of priorities in the sampling probabilities. 0: uniform."""
    importance_exponent: Annotated[cfg.Fraction, settings.WITH_PRIORITIES] = 0.4
    """Importance-sampling exponent (beta) at the start of training."""
    importance_exponent_end: Annotated[cfg.Fraction, settings.WITH_PRIORITIES] = 1.0
    """Importance-sampling exponent (beta) at the end of training."""

    @property
    def sample_rows(self) -> int:
        """Number of consecutive rows that one sample spans."""
        return 1

    @property
    def sample_stride(self) -> int:
        """Number of rows between the places at which samples may start."""
        return 1

    @property
    def warmup_rows(self) -> int:
        """Number of steps of each environment before the first update."""
        return _round_up(self.warmup_steps, self.num_envs * self.num_steps) // self.num_envs

    @property
    def capacity_rows(self) -> int:
        """Number of steps of each environment that are kept."""
        return _round_up(self.capacity, self.num_envs * self.num_steps) // self.num_envs

    @property
    def num_iterations(self) -> int:
        """Number of iterations after the warm-up."""
        return (self.total_steps - self.num_envs * self.warmup_rows) // (self.num_envs * self.num_steps)

    @property
    def total_updates(self) -> int:
        """Number of gradient steps of the whole training."""
        return self.num_iterations * self.num_updates


WITH_DEMOS = cfg.Needs("demos", part="demos")


@cfg.config
class DemoSettings:
    """Settings of learning from demonstrations beside a replay (`make_replay`), for a `ReplayConfig`."""

    heading: ClassVar[str] = "replay"
    demo_ratio: Annotated[cfg.Fraction, WITH_DEMOS] = 0.5
    """Probability that a sample of a batch is from the demonstrations (demos). 0: none is. 1: all are."""


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def problems(config: ReplayConfig, env: Env | None) -> list[str]:
    """Returns the reasons why learning from replay is impossible with ``config``, a line each.

    These are less than one iteration, and a ring that is too small or too large.

    Args:
        config: Settings.
        env: The environment; None: not known.
    """
    problems = []
    least = least_rows(
        config.sample_rows, config.sample_stride, most_frames(spaces.frames(env.observation_space)) if env else 1
    )
    if cfg.known(config.total_steps) and config.num_iterations < 1:
        frames = config.num_envs * (config.warmup_rows + config.num_steps)
        problems.append(f"total_steps = {config.total_steps}: must be at least the warm-up and one iteration, {frames}")
    frames, actors = least * config.num_envs, config.num_envs * (env.num_agents if env else 1)
    must = f"must hold {least} steps of each environment, {frames}"
    if config.capacity // config.num_envs < least:
        problems.append(f"capacity = {config.capacity}: {must}")
    if config.warmup_rows < least:
        problems.append(f"warmup_steps = {config.warmup_steps}: {must}")
    if frames <= config.capacity < config.batch_size:
        problems.append(f"capacity = {config.capacity}: must hold a batch, batch_size = {config.batch_size}")
    if config.capacity_rows * actors >= 2**31:
        problems.append(
            f"capacity = {config.capacity}: must be below {2**31} when rounded up to whole iterations of all agents"
        )
    return problems


def num_actors(config: ReplayConfig, env: Env, rows: np.ndarray | None) -> int:
    """Returns the number of rows of a fleet that are learned from: ``rows`` (`Learner.rows`), or all if it is None."""
    return config.num_envs * env.num_agents if rows is None else len(rows)


def make_ring(
    config: ReplayConfig,
    env: Env,
    view: replay.View,
    initial: Callable[[PyTree], Array] | None = None,
    rows: np.ndarray | None = None,
) -> Replay:
    """Makes the ring that ``config`` describes, with weights that are not yet normalised.

    Args:
        config: Settings.
        env: Environment to learn in.
        view: What a sample is.
        initial: Computes the priorities of new samples; None: the largest so far. Not used without priorities.
        rows: Rows of the fleet whose steps are stored (`num_actors`); None: all.
    """
    shape = {
        "num_rows": config.capacity_rows,
        "num_envs": num_actors(config, env, rows),
        "batch_size": config.batch_size,
        "view": view,
        "num_frames": spaces.frames(env.observation_space),
        "next_obs": 1 if config.store_next_obs else CUT_ROWS,
    }
    if not config.prioritised:
        return replay.uniform(**shape)
    return replay.weighted(**shape, **priorities(config), initial=initial)


def make_fixed(config: ReplayConfig, env: Env, view: replay.View, data: Dataset | Stored) -> Replay:
    """Makes a replay of a dataset, to stand beside that of `make_ring`, with weights that are not yet normalised.

    Args:
        config: Settings, by which it is sampled.
        env: Environment to learn in.
        view: What a sample is.
        data: The dataset.
    """
    exponents = priorities(config) if config.prioritised else {"alpha": 0.0, "beta": 0.0, "beta_end": 0.0}
    frames = spaces.frames(env.observation_space)
    return replay.fixed(data, batch_size=config.batch_size, view=view, num_frames=frames, **exponents)


def priorities(config: ReplayConfig) -> dict[str, Any]:
    """Returns how ``config`` samples by priority, as arguments of `replay.weighted`."""
    return {
        "alpha": config.priority_exponent,
        "beta": config.importance_exponent,
        "beta_end": config.importance_exponent_end,
        "num_updates": config.total_updates,
    }


def make_replay(
    config: ReplayConfig, env: Env, view: replay.View, demos: Dataset | Stored | None = None, **more: Any
) -> Replay:
    """Makes the ring of `make_ring`, with normalised weights, and beside it a replay of ``demos`` (None: none).

    Args:
        config: Settings; with ``demos`` also those of `DemoSettings`.
        env: Environment to learn in.
        view: What a sample is.
        demos: The demonstrations.
        **more: The remaining arguments of `make_ring`.
    """
    memory = make_ring(config, env, view, **more)
    if demos is not None:
        if TYPE_CHECKING:
            assert isinstance(config, DemoSettings)
        given = make_fixed(config, env, view, demos)
        memory = replay.mixed(memory, given, config.demo_ratio, num_actors(config, env, more.get("rows")))
    return replay.normalised(memory) if config.prioritised else memory


def make_trainer(config: ReplayConfig, env: Env, learner: Learner, **memory: Any) -> Trainer:
    """Makes one iteration as a `Trainer`; ``memory`` goes to `make_replay`."""
    return loops.off_policy(
        fleet(env, config.num_envs),
        learner,
        make_replay(config, env, rows=learner.rows, **memory),
        num_steps=config.num_steps,
        num_updates=config.num_updates,
        warmup=config.warmup_rows,
    )
