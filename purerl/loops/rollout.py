"""Stepping ``B`` environments under a policy for ``T`` steps, with all randomness drawn beforehand."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from purerl import backend, exact, shards, trees
from purerl.envs.fleet import Fleet
from purerl.exact import Sum
from purerl.loops.seat_metrics import seat_metrics, seat_sums
from purerl.types import Actors, Array, Env, Key, Learner, Metrics, PyTree, Situation, Step, Transition


def init_actors(key: Key, fleet: Fleet, learner: Learner) -> Actors:
    """Resets the rows of ``fleet``. Consumes ``key``."""
    env_state, obs = fleet.reset(key)
    return Actors(
        env_state=env_state,
        obs=obs,
        carry=learner.init_carry(fleet.size),
        episode_return=exact.zeros(fleet.size),
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
        The actors after the last step, the trajectory ``[T, B]``, and the metrics of `episode_metrics`, of the
        environment's `Step.info` and of the fleet's resets.
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
        return (env_state, following, carry), (transition(obs, action, step, extras), step.info)

    start = actors.env_state, actors.obs, actors.carry
    with jax.named_scope("rollout"):
        scan = jax.lax.scan if backend.is_cpu() else packed_scan
        (env_state, obs, carry), (trajectory, info) = scan(act, start, noises, num_steps)
    totals = actors.episode_return, actors.episode_length
    episode_return, episode_length, metrics = episode_metrics(*totals, trajectory, fleet.env)
    metrics |= info_metrics(info, trajectory) | shards.mean(fleet.metrics(trajectory.game_over))
    return Actors(env_state, obs, carry, episode_return, episode_length), trajectory, metrics


def transition(obs: PyTree, action: Array, step: Step, extras: PyTree) -> Transition:
    """Makes a row of a trajectory ``[B]``: what was seen and done, and the step that followed."""
    ends = step.reward, step.terminated, step.truncated, step.next_obs
    return Transition(obs, action, *ends, extras, step.present, step.over)


def episode_metrics(
    episode_return: Sum, episode_length: Array, trajectory: Transition, env: Env | None = None
) -> tuple[Sum, Array, Metrics]:
    """Computes the mean return and length of the episodes that ended in a trajectory, after the rollout's scan.

    The returns of these episodes are the running ones of rows in which one ended, and all rewards up to the last end
    there. No other episode's rewards enter, and sums are `exact`, so that a return of 10 is one beside any other. Of
    several agents each has its own return and length, of the steps in which it was in the game, and they count when the
    game is over.

    Args:
        episode_return: Returns so far of the episodes that are running at the start ``[B]``.
        episode_length: Their lengths so far ``[B]``.
        trajectory: ``[T, B]``.
        env: The environment that the rows are of; None: the rows are something else.

    Returns:
        The new running totals, both ``[B]``, and the metrics ``episode_return`` and ``episode_length`` (means over the
        episodes that ended; nan if none did) and ``episodes`` (their number); of an environment of several agents also
        those of `seat_metrics`.
    """
    last, reward = trajectory.game_over, trajectory.reward
    played = jnp.ones_like(last) if isinstance(trajectory.present, tuple) else trajectory.present
    time = jnp.arange(len(last))[:, None]
    last_end = jnp.max(jnp.where(last, time, -1), axis=0)  # [B]
    over = jnp.stack([time <= last_end[None], time > last_end[None]])  # [2, T, B]: is over, goes on
    before = jnp.stack([last_end >= 0, last_end < 0])  # [2, B]: which of them began before the trajectory
    returns = exact.plus(
        exact.where(before, Sum(*(x[None] for x in episode_return))),
        exact.total(exact.of(jnp.where(over, reward[None], 0.0)), 1),
    )
    lengths = jnp.where(before, episode_length[None], 0) + jnp.sum(over & played[None], axis=1, dtype=jnp.int32)
    ended = exact.at(returns, 0)
    seats = seat_sums(env, episode_return, ended, trajectory) if env and env.num_agents > 1 else None
    sums = exact.total(ended), exact.total(exact.of(lengths[0])), jnp.sum(last, dtype=jnp.int32), seats
    all_returns, all_lengths, count, seats = shards.total(sums)
    mean = lambda x: jnp.where(count > 0, exact.value(x) / jnp.maximum(count, 1).astype(jnp.float32), jnp.nan)
    metrics = {"episode_return": mean(all_returns), "episode_length": mean(all_lengths), "episodes": count}
    if env and seats:
        metrics |= seat_metrics(seats, (count // env.num_agents).astype(jnp.float32))
    return exact.at(returns, 1), lengths[1], metrics


def info_metrics(info: PyTree, trajectory: Transition) -> Metrics:
    """Computes ``info/NAME``, the mean of what `Step.info` has in the last steps of episodes; nan if none ended.

    Args:
        info: ``[T, B]`` by name; ``()``: there is none.
        trajectory: ``[T, B]``.
    """
    last = trajectory.ended
    sums = {name: jnp.sum(jnp.where(last, x, 0.0)) for name, x in dict(info).items()}
    sums, count = shards.total((sums, jnp.sum(last, dtype=jnp.float32)))
    return {f"info/{name}": x / count for name, x in sums.items()}
