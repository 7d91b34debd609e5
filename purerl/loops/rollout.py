"""Stepping ``B`` environments under a policy for ``T`` steps, with all randomness drawn beforehand."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from purerl import backend, kernels, shards, trees
from purerl.envs.fleet import Fleet
from purerl.types import Actors, Array, Key, Learner, Metrics, PyTree, Situation, Step, Transition


def init_actors(key: Key, fleet: Fleet, learner: Learner) -> Actors:
    """Resets the rows of ``fleet``. Consumes ``key``."""
    env_state, obs = fleet.reset(key)
    return Actors(
        env_state=env_state,
        obs=obs,
        carry=learner.init_carry(fleet.size),
        episode_return=jnp.zeros(fleet.size),
        episode_length=jnp.zeros(fleet.size, jnp.int32),
    )


def restart(learner: Learner) -> Callable[[PyTree, Step], PyTree]:
    """Makes ``(carry [B, ...], step [B]) -> carry``: how a learner's carry continues after a step.

    This is ``learner.restart``, or a reset of the carry where an episode ended.
    """
    if learner.restart is not None:
        return learner.restart
    return forgets(learner.init_carry)


def forgets(init_carry: Callable[[int], PyTree]) -> Callable[[PyTree, Step], PyTree]:
    """Makes ``(carry [B, ...], step [B]) -> carry``, which resets the carry where an episode ended."""
    return lambda carry, step: trees.restart(carry, init_carry(step.reward.shape[0]), step.last)


PACKED_UNROLL = 2
"""The number of steps per iteration of the compiled loop of `packed_scan`. With one step the state is copied at each
step."""


def packed_scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], state: PyTree, xs: PyTree, length: int
) -> tuple[PyTree, PyTree]:
    """Scans as `jax.lax.scan` does, with states and results ``[B, ...]`` packed into few arrays (`trees.pack`).

    On a GPU each array costs a kernel at each step.
    """
    packed, unpack_state = trees.pack(state)

    def packed_step(packed: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        state, result = step(unpack_state(packed), x)
        row, unpack = trees.pack(result)
        return trees.pack(state)[0], (row, Partial(unpack))

    packed, (rows, unpack) = jax.lax.scan(packed_step, packed, xs, length, unroll=PACKED_UNROLL)
    return unpack_state(packed), unpack(rows)


def rollout(
    key: Key, fleet: Fleet, learner: Learner, behaviour: PyTree, actors: Actors, num_steps: int
) -> tuple[Actors, Transition, Metrics]:
    """Acts for ``T = num_steps`` steps in the ``B`` rows of ``fleet``, by a ``behaviour`` of ``learner``.

    Where an episode ends, `restart` resets the carry. No gradient flows from the results into the behaviour.

    Args:
        key: Consumed.
        fleet: The rows.
        learner: The learner.
        behaviour: ``learner.behaviour(state)``.
        actors: The actors before the first step.
        num_steps: The number of steps ``T``.

    Returns:
        The actors after the last step, the trajectory ``[T, B]``, and the metrics of `episode_metrics` and of the
        fleet's resets.
    """
    behaviour = jax.lax.stop_gradient(behaviour)
    key_env, key_policy = jax.random.split(key)
    noises = fleet.noise(key_env, (num_steps,)), learner.noise(key_policy, (num_steps, fleet.size))
    begin_anew = restart(learner)

    def act(state: PyTree, noises: PyTree) -> tuple[PyTree, PyTree]:
        env_state, obs, carry = state
        env_noise, policy_noise = noises
        action, carry, extras = learner.explore(behaviour, Situation(obs, carry, env_state), policy_noise)
        env_state, following, step = fleet.step(env_noise, env_state, action)
        carry = begin_anew(carry, step)
        transition = Transition(obs, action, step.reward, step.terminated, step.truncated, step.next_obs, extras)
        return (env_state, following, carry), transition

    start = actors.env_state, actors.obs, actors.carry
    with jax.named_scope("rollout"):
        plain = jax.lax.scan if backend.is_cpu() else packed_scan
        (env_state, obs, carry), trajectory = kernels.scan(act, start, noises, num_steps, "rollout", plain)
    episode_return, episode_length, metrics = episode_metrics(
        actors.episode_return, actors.episode_length, trajectory.reward, trajectory.last
    )
    metrics |= shards.mean(fleet.metrics(trajectory.last))
    return Actors(env_state, obs, carry, episode_return, episode_length), trajectory, metrics


def episode_metrics(
    episode_return: Array, episode_length: Array, reward: Array, last: Array
) -> tuple[Array, Array, Metrics]:
    """Computes the mean return and length of the episodes that ended in a trajectory, after the rollout's scan.

    The total return of these episodes is the running returns at the start of the trajectory, plus all of its rewards,
    minus the returns of the episodes that are still running at its end; lengths likewise.

    Args:
        episode_return: Returns so far of the episodes that are running at the start ``[B]``.
        episode_length: Their lengths so far ``[B]``.
        reward: ``[T, B]``.
        last: ``[T, B]``.

    Returns:
        The new running totals, both ``[B]``, and the metrics ``episode_return`` and ``episode_length`` (means over the
        episodes that ended; nan if none did) and ``episodes`` (their number).
    """
    time = jnp.arange(reward.shape[0])[:, None]
    last_end = jnp.max(jnp.where(last, time, -1), axis=0)  # [B]
    under_way = time > last_end[None]
    unbroken = last_end < 0
    open_return = jnp.where(unbroken, episode_return, 0.0) + jnp.sum(reward * under_way, axis=0)
    open_length = jnp.where(unbroken, episode_length, 0) + jnp.sum(under_way, axis=0, dtype=jnp.int32)
    all_returns, all_lengths, ended = shards.total(
        (
            jnp.sum(episode_return) + jnp.sum(reward) - jnp.sum(open_return),
            jnp.sum(episode_length) + reward.size - jnp.sum(open_length),
            jnp.sum(last, dtype=jnp.int32),
        )
    )
    per_episode = jnp.where(ended > 0, 1 / jnp.maximum(ended, 1).astype(jnp.float32), jnp.nan)
    metrics = {
        "episode_return": all_returns * per_episode,
        "episode_length": all_lengths * per_episode,
        "episodes": ended,
    }
    return open_return, open_length, metrics
