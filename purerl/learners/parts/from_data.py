"""Learning from recorded play alone: its settings, and the trainer around a learner."""

import functools
from collections.abc import Callable
from typing import ClassVar

import jax.numpy as jnp

from purerl import config as cfg
from purerl import loops, replay, spaces
from purerl.envs.fleet import fleet
from purerl.learners.parts import checks
from purerl.replay import storage
from purerl.replay.fixed import Held
from purerl.replay.streamed import Streamed
from purerl.types import Dataset, Env, Learner, PyTree, Scalar, Trainer


@cfg.config
class DataConfig:
    """Settings of learning from recorded play. No environment is stepped, so steps are those of the learner."""

    heading: ClassVar[str] = "loop"
    total_steps: cfg.Frames = 100_000
    """Gradient steps of the whole training of one agent, rounded down to whole iterations."""
    num_updates: cfg.Count = 100
    """Number of gradient steps in one iteration, over which metrics are averaged."""
    batch_size: cfg.Count = 256
    """Number of transitions in one gradient step."""
    num_envs: ClassVar[int] = 4
    """Number of environments of the host that an evaluation steps at once."""

    @property
    def num_iterations(self) -> int:
        """Number of iterations of the whole training."""
        return self.total_steps // self.num_updates

    @property
    def total_updates(self) -> int:
        """Number of gradient steps of the whole training."""
        return self.num_iterations * self.num_updates


def problems(config: DataConfig, env: Env | None, kinds: tuple[type, ...]) -> list[str]:
    """Returns the reasons why learning from play in ``env`` is impossible with ``config``, a line each.

    These are less than one iteration, and actions of a space that is none of ``kinds``.

    Args:
        config: Settings.
        env: The environment; None: not known.
        kinds: As for `checks.space_problems`.
    """
    lines = checks.bounded_space_problems(env, kinds)
    if cfg.known(config.total_steps) and config.num_iterations < 1:
        lines.append(f"total_steps = {config.total_steps}: must be at least num_updates = {config.num_updates}")
    return lines


def make_trainer(
    config: DataConfig,
    env: Env,
    learner: Learner,
    data: Dataset | Held,
    gamma: Scalar,
    begin: Callable[[PyTree], PyTree] = lambda state: state,
) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from transitions of ``data``, drawn uniformly.

    ``gamma`` discounts the value of the next observation; ``begin`` is that of `loops.offline`.
    """
    view = replay.transitions(1, gamma)
    offline = functools.partial(loops.offline, fleet(env, 1), learner, num_updates=config.num_updates, begin=begin)
    if isinstance(data, Streamed):
        stream = loops.Stream(data, config.batch_size, config.num_updates)
        return offline(replay.fed(data, view), None, stream=stream)
    frames = spaces.frames(env.observation_space)
    play = replay.held(data, frames)
    memory = replay.evenly(play, batch_size=config.batch_size, view=view, num_frames=frames)
    every = jnp.arange(len(play.rows.reward))[:, None]
    shown = play.rows._replace(obs=storage.observe(play.rows, every, jnp.zeros_like(every), frames), next_obs=())
    return offline(memory, shown)
