"""Evolution strategies of evosax as `Strategy` bundles, which maximise fitness and use only its ranks."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import trees
from purerl.errors import ConfigError
from purerl.types import Array, Key, PyTree

NAMES = "Open_ES", "SNES", "PGPE", "CMA_ES", "Sep_CMA_ES", "LES"
"""The names of the strategies: those of their classes in evosax, but for LES, which is `LearnedES` there."""
ANTITHETIC = "Open_ES", "PGPE"
"""Strategies whose candidate ``i + P / 2`` is on the other side of the mean of candidate ``i``."""
MOST_DIMENSIONS = {"CMA_ES": 2000}
"""The largest number of meta-parameters for strategies that decompose a square matrix of that size."""


class Strategy(NamedTuple):
    """An evolution strategy that maximises fitness, with ``P = size`` candidates, each a tree like the ``mean``.

    ``init``, ``ask`` and ``tell`` consume their keys. Non-finite fitness ranks last. ``tell`` leaves the state as it is
    if all candidates rank equal, from which nothing can be learned, or if the new mean would not be finite.
    """

    size: int
    init: Callable[[Key, PyTree], PyTree]  # (key, mean) -> state
    ask: Callable[[Key, PyTree], tuple[PyTree, PyTree]]  # (key, state) -> (candidates [P], state)
    tell: Callable[[Key, PyTree, Array, PyTree], PyTree]  # (key, candidates [P], fitness [P], state) -> state
    mean: Callable[[PyTree], PyTree]


def ranks(fitness: Array) -> Array:
    """Computes centred ranks ``[P]`` of ``fitness`` ``[P]``: from -0.5 for the lowest to 0.5 for the highest.

    They are evenly spaced. Ties share their mean rank. Non-finite fitness is tied for the lowest rank.
    """
    fitness = _comparable(fitness)
    below = jnp.sum(fitness[None] < fitness[:, None], axis=1)
    equal = jnp.sum(fitness[None] == fitness[:, None], axis=1)
    return (below + 0.5 * (equal - 1)) / max(fitness.shape[0] - 1, 1) - 0.5


def _comparable(fitness: Array) -> Array:
    """Ties the non-finite values of ``fitness`` below all others."""
    return jnp.where(jnp.isfinite(fitness), fitness, -jnp.inf)


def make(
    name: str,
    size: int,
    like: PyTree,
    *,
    sigma: float = 0.04,
    sigma_decay: float = 0.999,
    sigma_limit: float = 0.01,
    learning_rate: float = 0.01,
    momentum: float = 0.99,
) -> Strategy:
    """Makes the evolution strategy ``name``.

    Args:
        name: One of `NAMES`. ``Open_ES`` is OpenAI's (Salimans et al. 2017, arXiv 1703.03864), with antithetic pairs.
        size: The number of candidates.
        like: A tree of arrays like a candidate.
        sigma: The standard deviation of the first candidates.
        sigma_decay: The factor on ``sigma`` per generation (Open_ES only; the others adapt it).
        sigma_limit: The lower bound of ``sigma`` (Open_ES only).
        learning_rate: Adam's step size on the mean (Open_ES only).
        momentum: Adam's ``b1`` (Open_ES only).

    Raises:
        ConfigError: The name is unknown, ``size`` is below 2 or, for a strategy with pairs, odd, ``sigma_limit`` is
            above ``sigma``, or there are more meta-parameters than the strategy supports (`MOST_DIMENSIONS`).
    """
    if name not in NAMES:
        raise ConfigError(f"strategy = {name!r}: unknown; must be one of {', '.join(NAMES)}")
    if size < 2 or (size % 2 and name in ANTITHETIC):
        raise ConfigError(f"population = {size}: must be at least 2, and even for {name}")
    dimensions = sum(x.size for x in jax.tree.leaves(like))
    if dimensions > MOST_DIMENSIONS.get(name, dimensions):
        most = MOST_DIMENSIONS[name]
        raise ConfigError(f"strategy = {name!r}: {dimensions} meta-parameters, at most {most}; take Sep_CMA_ES")
    if name == "Open_ES" and sigma_limit > sigma:
        raise ConfigError(f"sigma_limit = {sigma_limit}: must not exceed sigma = {sigma}")
    from evosax import algorithms  # imported late: evosax runs JAX on import, which fixes the devices
    from evosax.core.fitness_shaping import identity_fitness_shaping_fn

    options = {}
    if name == "Open_ES":
        options["optimizer"] = optax.adam(learning_rate, b1=momentum)
        options["std_schedule"] = lambda count: jnp.maximum(sigma * sigma_decay**count, sigma_limit)
        options["fitness_shaping_fn"] = identity_fitness_shaping_fn
    if name == "PGPE":
        options["fitness_shaping_fn"] = identity_fitness_shaping_fn
    algorithm = getattr(algorithms, "LearnedES" if name == "LES" else name)(size, like, **options)
    params = algorithm.default_params
    if hasattr(params, "std_init"):
        params = params.replace(std_init=jnp.full_like(params.std_init, sigma))
    return of_evosax(algorithm, params)


def of_evosax(algorithm: Any, params: Any) -> Strategy:
    """Makes a `Strategy` of a distribution-based algorithm of evosax.

    Its fitness shaping, and the features that `LearnedES` computes of fitness, are changed so that candidates of equal
    fitness get equal weights. Even so, when all are equal the weights of Sep_CMA_ES and LES, which sum to 1, would move
    the mean to that of the candidates, about ``std / sqrt(P)`` away in a random direction, and CMA_ES and Sep_CMA_ES
    would take the short step for a sign that their ``std`` is too large, and shrink it to nothing in 200 generations.
    """
    shape = algorithm.fitness_shaping_fn

    def shared(fitness: Array, values: Array) -> Array:
        equal = (fitness[None] == fitness[:, None]).astype(jnp.float32)
        return (equal @ values).T / jnp.sum(equal, axis=1)

    def fair(candidates: Array, fitness: Array, state: Any, params: Any) -> Array:
        distinct = jnp.argsort(jnp.argsort(fitness)) / (fitness.shape[0] - 1) - 0.5
        return shared(fitness, shape(candidates, distinct, state, params))

    algorithm.fitness_shaping_fn = fair
    if hasattr(algorithm, "fitness_features"):
        features = algorithm.fitness_features.apply
        algorithm.fitness_features = SimpleNamespace(
            apply=lambda candidates, fitness, best: shared(fitness, features(candidates, fitness, best)).T
        )

    def init(key: Key, mean: PyTree) -> PyTree:
        return trees.strong(_lenient(algorithm.init, key, mean, params))

    def ask(key: Key, state: PyTree) -> tuple[PyTree, PyTree]:
        candidates, state = _lenient(algorithm.ask, key, state, params)
        return candidates, trees.strong(state)

    def tell(key: Key, candidates: PyTree, fitness: Array, state: PyTree) -> PyTree:
        updated, _ = _lenient(algorithm.tell, key, candidates, -ranks(fitness), state, params)
        updated = trees.strong(updated)
        floats = [x for x in jax.tree.leaves(algorithm.get_mean(updated)) if jnp.issubdtype(x.dtype, jnp.inexact)]
        comparable = _comparable(fitness)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
        informative = jnp.any(comparable != comparable[0]) & finite
        return jax.tree.map(lambda new, old: jnp.where(informative, new, old), updated, state)

    return Strategy(algorithm.population_size, init, ask, tell, algorithm.get_mean)


def _lenient(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of evosax, which relies on rank promotion."""
    with jax.numpy_rank_promotion("allow"):
        return function(*args)
