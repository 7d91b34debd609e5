"""Learning from each trajectory more than once, by a queue of those before the newest."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import replay, trees
from purerl.learners.parts.nesting import inside
from purerl.types import Array, Key, Learner, PyTree, Replay, Situation, Transition, Updated


@cfg.config
class ReuseSettings:
    """Settings of `reusing`."""

    max_uses: cfg.Count = 1
    """Number of iterations that learn from a trajectory. Above 1 each iteration learns off policy also from the
    max_uses - 1 trajectories before the newest, in minibatches that are max_uses times larger."""


class Reusing(NamedTuple):
    """The state of a learner that reuses trajectories: that of the learner, and the queue of the older ones."""

    learner: Any
    queue: PyTree

    @property
    def params(self) -> PyTree:
        """The parameters of the learner."""
        return self.learner.params


def problems(config: ReuseSettings, batch_size: int) -> list[str]:
    """Returns a line if all that an iteration learns from are too many steps for int32."""
    if batch_size < 2**31 <= batch_size * config.max_uses:
        return [f"num_envs * num_steps * max_uses = {batch_size * config.max_uses}: must be below {2**31}"]
    return []


def reusing(
    config: ReuseSettings,
    learner: Learner,
    scale: Callable[[Any, Transition], tuple[Any, Transition]],
    learn: Callable[..., Updated],
    *,
    num_steps: int,
    may_leave: bool,
) -> Learner:
    """Returns ``learner`` that learns from each trajectory ``max_uses`` times, by a `replay.queue`.

    The first time is when it is new. It learns from the columns of ``max_uses`` trajectories, the newest first. As long
    as the queue has fewer, the last columns repeat the newest trajectory, so that they are finite, and are masked.

    Args:
        config: Settings.
        learner: The learner.
        scale: ``scale(state, trajectory)`` returns the state and the trajectory with the rewards that are learned from.
        learn: ``learn(state, trajectory [T, B], given [T, N], present [T, N], key, acted_by)`` learns from ``given``
            where it is ``present``; the first ``B`` columns are ``trajectory``.
        num_steps: Steps ``T`` of a trajectory.
        may_leave: Whether agents may end before the others of their environment.
    """

    def older(num_envs: int) -> Replay:
        uses = config.max_uses - 1
        sizes = {"num_slots": uses, "num_steps": num_steps, "num_envs": num_envs, "max_uses": uses}
        return replay.queue(**sizes, batch_size=uses * num_envs)

    def init(key: Key, obs: PyTree) -> Reusing:
        state = learner.init(key, obs)
        num_envs = trees.length(obs)

        def step() -> Transition:
            here = Situation(obs, learner.init_carry(num_envs))
            action, _, extras = learner.explore(learner.behaviour(state), here, learner.noise(key, (num_envs,)))
            ended = jnp.zeros(num_envs, bool)
            seat = (ended, ended) if may_leave else ()
            return Transition(obs, action, jnp.zeros(num_envs), ended, ended, obs, extras, *seat)

        item = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), jax.eval_shape(step))
        return Reusing(state, older(num_envs).init(item))

    def update(state: Reusing, trajectory: Transition, key: Key, acted_by: PyTree = None) -> Updated:
        scaled, newest = scale(state.learner, trajectory)
        num_envs = newest.reward.shape[1]
        ring = older(num_envs)
        sample = ring.sample(state.queue, key)
        queue = ring.add(ring.update(state.queue, sample, sample.weight), newest)
        exists = sample.weight > 0

        def beside(new: Array, old: Array) -> Array:
            again = jnp.concatenate([new] * (config.max_uses - 1), axis=1)
            shape = (1, -1, *[1] * (new.ndim - 2))
            return jnp.concatenate([new, jnp.where(exists.reshape(shape), old, again)], axis=1)

        given = jax.tree.map(beside, newest, sample.items)
        present = jnp.broadcast_to(jnp.concatenate([jnp.ones(num_envs, bool), exists]), given.reward.shape)
        learned, metrics, scores = learn(scaled, trajectory, given, present, key, acted_by)
        return Updated(Reusing(learned, queue), metrics, scores)

    return inside(learner, init=init, update=update)
