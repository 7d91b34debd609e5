"""Shaping of an opponent that learns while it is played against, in games that are played step by step.

Source: M-FOS; Lu et al. 2022, arXiv 2205.01447.

The meta-agent has one seat of many games at once, in all of which the other seat belongs to one learner. An episode of
the meta-agent is the learner's whole training.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces, trees
from purerl.algos.ppo import ppo
from purerl.envs.adapters.stepping import check_counts
from purerl.envs.fleet import Fleet, fleet
from purerl.envs.native.games.coin_game import coin_game
from purerl.envs.native.games.game import check
from purerl.errors import ConfigError
from purerl.loops.rollout import init_actors
from purerl.loops.trainers import collector, initial_state, next_state, observe
from purerl.meta.learning import learning
from purerl.spaces import Box
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Step, Trainer, TrainState, Transition


class Game(NamedTuple):
    """Games ``[B]`` in which one seat waits for the meta-agent's next action.

    They hold the states of the games, the meta-agent's observations, and, of the step before, the rewards of both ``[B,
    2]`` and the ends of episodes ``[B]``. All lead with ``[B]``.
    """

    env_state: PyTree
    obs: PyTree
    reward: Array
    last: Array


def against(env: Env, size: int, action: Array) -> Fleet:
    """Makes the fleet of agent 1 in ``size`` games of two agents, in which agent 0 does ``action`` ``[B, ...]``."""
    both = fleet(env, size)

    def reset(key: Key) -> tuple[Game, PyTree]:
        env_state, obs = both.reset(key)
        return Game(env_state, _seat(obs, 0), jnp.zeros((size, 2)), jnp.zeros(size, bool)), _seat(obs, 1)

    def step(noise: PyTree, game: Game, other: Array) -> tuple[Game, PyTree, Step]:
        actions = trees.merge(jnp.stack([action, other], axis=1), 2)
        env_state, obs, made = both.step(noise, game.env_state, actions)
        of_other: Step = _seat(made, 1)
        reward = trees.split(made.reward, (size, 2))
        return Game(env_state, _seat(obs, 0), reward, of_other.last), _seat(obs, 1), of_other

    return Fleet(size, both.env_steps, reset, both.noise, step)


def _seat(tree: PyTree, agent: int) -> PyTree:
    """Selects the rows of one of two agents."""
    return jax.tree.map(lambda x: x[agent::2], tree)


def by_step(fleet: Fleet, learner: Learner, *, num_steps: int) -> Trainer:
    """Makes `loops.on_policy` cut into its steps: an iteration takes one step in every row of ``fleet``.

    At every ``num_steps``-th iteration the learner learns from the trajectory ``[T = num_steps, B]`` of the last ones,
    which is in ``TrainState.replay`` while it grows. Metrics of learning are 0 at the iterations between.
    """
    collect = collector(fleet, learner, 1)

    def init(key: Key) -> TrainState:
        key, key_actors, key_learner = jax.random.split(key, 3)
        actors = init_actors(key_actors, fleet, learner)
        initial = learner.init(key_learner, actors.obs)
        _, taken, _ = jax.eval_shape(collect, learner.behaviour(initial), actors, key)
        rows = jax.tree.map(lambda x: jnp.zeros((num_steps, *x.shape[1:]), x.dtype), taken)
        return initial_state(initial, actors, rows, key)

    def learn(state: TrainState, trajectory: Transition, key: Key) -> tuple[TrainState, Metrics]:
        row = (state.iteration.low % num_steps).astype(jnp.int32)
        rows = jax.tree.map(lambda all_rows, new: all_rows.at[row].set(new[0]), state.replay, trajectory)
        observed, _, more = observe(learner, state.learner, trajectory, key)
        update = lambda: learner.update(observed, rows, key)[:2]
        nothing = trees.zeros(jax.eval_shape(update)[1])
        after, metrics = where_needed(row == num_steps - 1, update, (observed, nothing))
        return next_state(state, after, rows, {**metrics, **more}, trajectory)

    return Trainer(init, collect, learn, learner, fleet, 1)


def where_needed(needed: Array, make: Callable[[], PyTree], otherwise: PyTree) -> PyTree:
    """Returns ``make()`` if ``needed`` (bool ``[]``), else ``otherwise``, which has the same shapes and dtypes.

    Under vmap ``make`` is computed only if a lane needs it, where `jax.lax.cond` would always compute it: it is the
    body of a loop that runs once or not at all. So it has no gradient in reverse mode.
    """
    once = lambda loop: (jnp.zeros_like(loop[0]), make())
    return jax.lax.while_loop(lambda loop: loop[0], once, (needed, otherwise))[1]


def shaping(name: str, env: Env, algo: Any, config: Any, num_trainings: int, *, see_mean: bool = False) -> Env:
    """Makes the meta-game in ``env``, a game of two agents: an `Env` in which a learner of ``algo`` has the other seat.

    Its ``N = config.num_envs`` agents are rows of one meta-agent, each in seat 0 of a game of its own. One learner has
    seat 1 of all games, and learns at every ``config.num_steps``-th step from what happened in all of them. An episode
    has ``num_trainings`` such updates; games within it end and begin anew, and a meta-agent with a memory remembers
    them. It sees ``{"obs", "reward" [2], "last" [1]}``: agent 0's observation, the rewards of both at the step before,
    its own first, and whether that step ended a game. Its rewards are those of agent 0.

    Args:
        name: The name of the `Env`.
        env: The game.
        algo: A policy gradient of `purerl.algos`.
        config: The Config of ``algo``.
        num_trainings: Updates of the learner in an episode.
        see_mean: Agents also see ``"mean_reward" [2]``, the mean of "reward" over all games. It tells what the learner
            does in the games of others; M-FOS's policy has a gate for this, computed from a mean over the games.

    Raises:
        ConfigError: ``env`` has another number of agents, or ``algo`` cannot train with ``config``.
    """
    if env.num_agents != 2:
        raise ConfigError(f"env = {env.name!r}: has {env.num_agents} agents; shaping needs 2")
    alone = env._replace(num_agents=1)
    if problems := algo.problems(config, alone):
        raise ConfigError("\n".join(problems))
    learner, size = algo.make_learner(config, alone), config.num_envs
    action = spaces.struct(env.action_space)

    def make_trainer(action: Array) -> Trainer:
        return by_step(against(env, size, action), learner, num_steps=config.num_steps)

    def observe(state: TrainState, metrics: Metrics) -> PyTree:
        game: Game = state.actors.env_state
        seen = {"obs": game.obs, "reward": game.reward, "last": game.last[:, None]}
        mean = jnp.broadcast_to(jnp.mean(game.reward, axis=0), game.reward.shape)
        return seen | ({"mean_reward": mean} if see_mean else {})

    rewards = Box(-np.inf, np.inf, (2,), jnp.float32)
    return learning(
        name,
        make_trainer,
        start=jnp.zeros((size, *action.shape), action.dtype),
        observe=observe,
        reward=lambda state, metrics: state.actors.env_state.reward[:, 0],
        num_iterations=num_trainings * config.num_steps,
        observation_space={
            "obs": env.observation_space,
            "reward": rewards,
            "last": Box(False, True, (1,), jnp.dtype(bool)),
            **({"mean_reward": rewards} if see_mean else {}),
        },
        action_space=env.action_space,
        num_agents=size,
    )


def coin_shaping(
    *,
    lanes: int = 32,
    num_trainings: int = 16,
    rounds: int = 16,
    learning_rate: float = 5e-3,
    num_epochs: int = 16,
    stolen: float = 2.0,
    see_mean: int = 0,
) -> Env:
    """Makes `shaping` in the coin game (`CoinGame-v0`): ``--env purerl.meta.shaping:coin_shaping``.

    Args:
        lanes: Games of one learner, each with an agent.
        num_trainings: Updates of the learner in an episode, one after each game.
        rounds: Steps of a game.
        learning_rate: The step size of the learner, PPO with layers of 32 units. M-FOS's is 0.005.
        num_epochs: The epochs of the learner. M-FOS's has 80.
        stolen: As in `CoinGame-v0`.
        see_mean: With 1 the agents also see the mean of both rewards over all games (`shaping`).

    Raises:
        ConfigError: A count is not valid, or ``see_mean`` is neither 0 nor 1 (the message names the parameter); and in
            the cases of `shaping`.
    """
    counts = {"lanes": lanes, "num_trainings": num_trainings, "rounds": rounds, "num_epochs": num_epochs}
    check_counts("CoinShaping", **{name: (value, 1) for name, value in counts.items()})
    check("CoinShaping", "see_mean", see_mean, see_mean in (0, 1), "0 or 1")
    config = ppo.Config(
        num_envs=lanes,
        num_steps=rounds,
        num_epochs=num_epochs,
        num_minibatches=1,
        gamma=0.96,
        learning_rate=learning_rate,
        learning_rate_decay=0.0,
        hidden_sizes=(32,),
        total_steps=lanes * rounds * num_trainings,
    )
    game = coin_game(stolen=stolen, max_steps=rounds)
    return shaping("CoinShaping", game, ppo, config, num_trainings, see_mean=bool(see_mean))
