"""Policies by evolution strategies: no learner, only the returns of whole episodes.

Source: Salimans et al. 2017, arXiv 1703.03864.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import trees
from purerl.formulas import distributions
from purerl.loops.evaluation import Player, play
from purerl.meta.evolution import Evolution, Tasks, evolution, scores
from purerl.meta.strategies import make as make_strategy
from purerl.networks import Head, torso
from purerl.types import Array, Env, Key, PyTree, Situation


def make_network(env: Env, hidden_sizes: tuple[int, ...] = (64,), activation: str = "tanh") -> nn.Module:
    """Makes a torso of dense layers, and a head with the parameters of the distribution of the actions of ``env``."""
    distribution = distributions.for_space(env.action_space)
    size = distribution.num_params - distribution.num_free
    return Head(torso(env.observation_space, hidden_sizes, activation), size, scale=0.01, free=distribution.num_free)


def player(env: Env, network: nn.Module, params: PyTree) -> Player:
    """Makes a player whose actions are the modes of the distributions that ``network`` with ``params`` puts out."""
    distribution = distributions.for_space(env.action_space)

    def act(here: Situation, key: Key) -> tuple[Array, PyTree]:
        out: Any = network.apply(params, here.obs)
        return distribution.mode(out), here.carry

    return Player(act, lambda num_envs: ())


def of_policies(
    env: Env,
    network: nn.Module,
    *,
    strategy: str = "Open_ES",
    population: int = 64,
    num_episodes: int = 64,
    max_steps: int = 10_000,
    **options: float,
) -> Evolution:
    """Makes a search for the parameters of ``network`` whose policy has the highest mean return, as an `Evolution`.

    All candidates of a generation meet the same episodes. Metrics are those of `evolution.evolution`, with the mean
    return over episodes (and agents) as the fitness.

    Args:
        env: The environment.
        network: Maps observations to the parameters of the distribution of the actions; `make_network` makes one.
        strategy: The name of the strategy (`strategies.make`).
        population: The number of candidates.
        num_episodes: Episodes of each candidate in a generation.
        max_steps: The most steps of an episode.
        options: Further arguments of `strategies.make`.
    """

    def mean(key: Key) -> PyTree:
        key_reset, key_network = jax.random.split(key)
        _, obs = jax.vmap(env.reset)(key_reset[None])
        params: PyTree = network.init(key_network, trees.merge(obs, 2) if env.num_agents > 1 else obs)
        return params

    def live(candidates: PyTree, key: Key) -> Array:
        """Plays every candidate and returns its fitness, ``[P, 1, 1]``."""
        [key] = jax.random.split(key, 1)
        fitness = lambda params: jnp.mean(
            play(key, env, player(env, network, params), num_episodes, max_steps).episode_return
        )
        return jax.vmap(fitness)(candidates)[:, None, None]

    like = trees.zeros(jax.eval_shape(mean, jax.random.key(0)))
    return evolution(make_strategy(strategy, population, like, **options), mean, Tasks(live, scores))
