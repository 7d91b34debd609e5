"""Evaluation of policies on whole episodes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import exact, spaces, trees
from purerl.envs import seats
from purerl.envs.fleet import told
from purerl.envs.hosted import on_device
from purerl.errors import ConfigError
from purerl.formulas import distributions, exploration
from purerl.formulas.outcomes import outcomes
from purerl.loops.rollout import forgets, restart
from purerl.spaces import Discrete, Space
from purerl.types import Array, Env, Key, Learner, PyTree, Situation, Step

__all__ = ["Evaluation", "Player", "evaluate", "player", "random_player", "versus"]

Choose = Callable[[PyTree, Situation, Key], tuple[Array, PyTree]]
"""A function ``(policy, situation [B], key) -> (action, carry)``."""


class Evaluation(NamedTuple):
    """The results of the played episodes, all ``[E]``.

    ``episode_return`` is an episode's undiscounted return, ``episode_length`` its length in steps; ``finished`` is
    False where the episode was cut off. Of several agents, each counts the steps in which it was in the game. ``info``
    are the numbers by name that the last steps told (`Step.info`), nan where there was none; ``()`` without any.

    Of several agents, whose rows of a game lie side by side, ``outcome`` is 1 where an agent won its game, 0 where it
    drew it and -1 where it lost it (`purerl.formulas.outcomes`); ``()`` of one agent.
    """

    episode_return: Array
    episode_length: Array
    finished: Array
    info: Any = ()
    outcome: Any = ()


class Player(NamedTuple):
    """A function that acts in rows, and what it remembers.

    ``act(situation [B], key) -> (action, carry)`` chooses actions; ``begin_anew(carry, step) -> carry`` is applied
    after each step. If it is None, the carry is reset where an episode ended.
    """

    act: Callable[[Situation, Key], tuple[Array, PyTree]]
    init_carry: Callable[[int], PyTree]
    begin_anew: Callable[[PyTree, Step], PyTree] | None = None

    def remember(self, carry: PyTree, step: Step) -> PyTree:
        """Returns the carry after a step."""
        return (self.begin_anew or forgets(self.init_carry))(carry, step)


def chosen_by(learner: Learner, sample: bool) -> Choose:
    """Returns what chooses actions in an evaluation: `Learner.exploit`, or to ``sample`` `Learner.sample`.

    Raises:
        ConfigError: There is no distribution to ``sample`` from.
    """
    if sample and learner.sample is None:
        raise ConfigError("sample = True: the algorithm's policy has no distribution of actions; omit it")
    return learner.sample if sample and learner.sample else learner.exploit


def player(learner: Learner, policy: PyTree, *, sample: bool = False) -> Player:
    """Makes a `Player` of the evaluated policy of ``learner``, which acts as `chosen_by` says. Errors are its own."""
    choose = chosen_by(learner, sample)
    return Player(lambda here, key: choose(policy, here, key), learner.init_carry, restart(learner))


def watched(learner: Learner, policy: PyTree, *, sample: bool = False) -> Player:
    """Makes the `player` of ``learner`` with a carry ``(carry, found)`` that also has what its last search found.

    ``found`` is what `Learner.search` returns; ``()`` before the first step, and of a learner that does not search.
    """
    whole, search = player(learner, policy, sample=sample), learner.search

    def act(here: Situation, key: Key) -> tuple[PyTree, PyTree]:
        own = here._replace(carry=here.carry[0])
        if search is None:
            action, carry = whole.act(own, key)
            return action, (carry, ())
        action, carry, found = search(policy, own, key, sample)
        return action, (carry, found)

    return Player(
        act,
        lambda num_envs: (whole.init_carry(num_envs), ()),
        lambda carry, step: (whole.remember(carry[0], step), carry[1]),
    )


def random_player(env: Env) -> Player:
    """Makes a `Player` that draws uniformly random actions from those that are legal."""

    def act(here: Situation, key: Key) -> tuple[PyTree, PyTree]:
        if env.legal is None:
            return spaces.sample(env.action_space, key, (trees.length(here.obs),)), here.carry
        legal = env.legal(here.obs)
        if not isinstance(env.action_space, Discrete):
            return _legal_sample(env.action_space, key, legal), here.carry
        noise = jax.random.uniform(key, (*legal.shape[:-1], 2))
        return exploration.epsilon_greedy(legal.astype(jnp.float32), 1.0, noise, legal), here.carry

    return Player(act, lambda num_envs: ())


def _legal_sample(space: Space, key: Key, legal: Array) -> PyTree:
    """Draws actions ``[B]`` whose choices are uniform among the legal ones; numbers are drawn by `spaces.sample`."""
    key_choices, key_numbers = jax.random.split(key)
    uniform = distributions.for_space(space)
    logits = exploration.masked(jnp.zeros(legal.shape), legal)
    params = jnp.pad(logits, ((0, 0), (0, uniform.num_params - legal.shape[-1])))
    chosen = uniform.sample(params, uniform.noise(key_choices, legal.shape[:-1]))
    drawn = spaces.sample(space, key_numbers, legal.shape[:-1])
    return spaces.tree_map(lambda leaf, x, y: x if spaces.choices(leaf) else y, space, chosen, drawn)


def versus(
    key: Key, env: Env, one: Player, other: Player, num_episodes: int = 100, max_steps: int = 10_000
) -> Evaluation:
    """Plays ``one`` in one seat of each episode and ``other`` in all other seats, and evaluates ``one``.

    The seat of ``one`` changes from one episode to the next. Otherwise this is `evaluate`.

    Args:
        key: Consumed.
        env: An environment of several agents.
        one: The player that is evaluated.
        other: The player in all other seats.
        num_episodes: The number of episodes ``E``.
        max_steps: The number of steps after which an episode is cut off.

    Returns:
        The results of ``one``, ``[E]``.
    """
    both, rows = seated(one, other, num_episodes, env.num_agents)
    evaluation: Evaluation = jax.tree.map(lambda x: x[rows], play(key, env, both, num_episodes, max_steps))
    return evaluation


def seated(one: Player, other: Player, num_episodes: int, num_agents: int) -> tuple[Player, np.ndarray]:
    """Makes a player of all rows of games in which ``one`` has one seat, by turns, and ``other`` all other seats.

    Returns:
        The player of ``num_episodes`` games, and the rows ``[E]`` of ``one``.
    """
    seat = np.arange(num_episodes) % num_agents
    ours = np.arange(num_agents)[None] == seat[:, None]  # [E, N]
    rows = np.flatnonzero(ours.reshape(-1))

    def act(here: Situation, key: Key) -> tuple[Array, PyTree]:
        keys, of = jax.random.split(key), lambda i: here._replace(carry=here.carry[i])
        (first, carry_one), (second, carry_other) = one.act(of(0), keys[0]), other.act(of(1), keys[1])
        which = ours.reshape(-1, *[1] * (first.ndim - 1))
        return jnp.where(which, first, second), (carry_one, carry_other)

    both = Player(
        act,
        lambda num_envs: (one.init_carry(num_envs), other.init_carry(num_envs)),
        lambda carry, step: (one.remember(carry[0], step), other.remember(carry[1], step)),
    )
    return both, rows


def evaluate(
    key: Key,
    env: Env,
    learner: Learner,
    policy: PyTree,
    num_episodes: int = 100,
    max_steps: int = 10_000,
    levels: PyTree = None,
    *,
    sample: bool = False,
) -> Evaluation:
    """Plays episodes side by side with the most likely actions, for jit and vmap over keys and policies.

    The first episode of each environment counts, whatever its length, so that short episodes are not favoured. In an
    environment with several agents, each agent's episode is a row of its own.

    Args:
        key: Consumed.
        env: An environment that is not the host's.
        learner: The learner.
        policy: ``learner.policy(state)``.
        num_episodes: The number of episodes.
        max_steps: The number of steps after which an episode is cut off.
        levels: ``[num_episodes, ...]``, in which the episodes begin; None: random ones.
        sample: Whether actions are drawn from the policy's distribution instead (`Learner.sample`).

    Returns:
        The results, one row for each agent of each episode.

    Raises:
        ConfigError: The environment is the host's, or there is no distribution to ``sample`` from.
    """
    return play(key, env, player(learner, policy, sample=sample), num_episodes, max_steps, levels)


def play(key: Key, env: Env, whole: Player, num_episodes: int, max_steps: int, levels: PyTree = None) -> Evaluation:
    """Plays episodes side by side as `evaluate` does, with a player of all rows.

    Args:
        key: Consumed.
        env: An environment that is not the host's.
        whole: The player of all rows.
        num_episodes: The number of episodes.
        max_steps: The number of steps after which an episode is cut off.
        levels: ``[num_episodes, ...]``, in which the episodes begin; None: random ones.
    """
    begin, move = playing(key, env, whole, num_episodes, levels)

    def under_way(loop: tuple[Any, ...]) -> Array:
        time, *_, finished = loop
        return (time < max_steps) & ~jnp.all(finished)

    def act(loop: tuple[Any, ...]) -> tuple[Any, ...]:
        time, here, info, total, length, finished = loop
        here, _, step = move(here, time)
        total = exact.plus(total, exact.of(jnp.where(finished, 0.0, step.reward)))
        acted = ~finished if isinstance(step.present, tuple) else ~finished & step.present
        info = jax.tree.map(lambda old, new: jnp.where(acted & step.last, new, old), info, step.info)
        return time + 1, here, info, total, length + acted, finished | step.game_over

    size = num_episodes * env.num_agents
    nothing = exact.zeros(size), jnp.zeros(size, jnp.int32), jnp.zeros(size, bool)
    untold = {name: jnp.full(size, jnp.nan) for name in env.info_names} or ()
    start = jnp.zeros((), jnp.int32), begin(), untold, *nothing
    *_, info, total, length, finished = jax.lax.while_loop(under_way, act, start)
    returns = exact.value(total)
    outcome = outcomes(returns.reshape(num_episodes, -1)).reshape(-1) if env.num_agents > 1 else ()
    return Evaluation(returns, length, finished, info, outcome)


def playing(
    key: Key, env: Env, whole: Player, num_episodes: int, levels: PyTree = None
) -> tuple[Callable[[], Situation], Callable[[Situation, Array], tuple[Situation, Array, Step]]]:
    """Makes the two functions that play ``num_episodes`` games side by side.

    Nothing begins anew: once a game has ended, the results of its further moves have no meaning.

    Args:
        key: Consumed. It determines everything that is drawn at random.
        env: An environment that is not the host's.
        whole: The player of all rows.
        num_episodes: The number of games.
        levels: ``[num_episodes, ...]``, in which the games begin; None: random ones.

    Returns:
        ``begin() -> situation`` and ``move(situation, time) -> (situation, action, step)``.

    Raises:
        ConfigError: The environment is the host's.
    """
    on_device(env, "purerl eval plays in it")
    env = seats.seated(env)
    key_reset, key_step = jax.random.split(key)
    several = env.num_agents > 1
    size = num_episodes * env.num_agents

    def begin() -> Situation:
        if levels is None:
            env_state, obs = jax.vmap(env.reset)(jax.random.split(key_reset, num_episodes))
        else:
            env_state, obs = jax.vmap(env.begin)(levels)
        return Situation(trees.merge(obs, 2) if several else obs, whole.init_carry(size), env_state)

    def move(here: Situation, time: Array) -> tuple[Situation, Array, Step]:
        key_env, key_policy = jax.random.split(jax.random.fold_in(key_step, time))
        action, carry = whole.act(here, key_policy)
        by_env = trees.split(action, (num_episodes, env.num_agents)) if several else action
        env_state, step = jax.vmap(env.step)(env.noise(key_env, (num_episodes,)), here.env_state, by_env)
        step = step._replace(info=told(env, step))
        step = trees.merge(step, 2) if several else step
        return Situation(step.next_obs, whole.remember(carry, step), env_state), action, step

    return begin, move
