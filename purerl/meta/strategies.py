"""Evolution strategies of evosax as one bundle, in which fitness is maximised and only its ranks count."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.errors import ConfigError
from purerl.types import Array, Key, PyTree

NAMES = {
    "Open_ES": "Open_ES",
    "SNES": "SNES",
    "PGPE": "PGPE",
    "CMA_ES": "CMA_ES",
    "Sep_CMA_ES": "Sep_CMA_ES",
    "LES": "LearnedES",
}
"""Strategies, with evosax's names for them."""
MOST_DIMENSIONS = {"CMA_ES": 2000}
"""Where a strategy holds a matrix of them and decomposes it."""


class Strategy(NamedTuple):
    """A search for the largest fitness. ``P`` candidates, each a tree like the ``mean``.

    ``tell`` takes any fitness: nan, and the infinities, rank last. If no fitness is finite, or the new mean would not
    be, the state stays as it was.
    """

    size: int
    init: Callable[[Key, PyTree], PyTree]  # (key, mean) -> state
    ask: Callable[[Key, PyTree], tuple[PyTree, PyTree]]  # (key, state) -> (candidates [P], state)
    tell: Callable[[Key, PyTree, Array, PyTree], PyTree]  # (key, candidates [P], fitness [P], state) -> state
    mean: Callable[[PyTree], PyTree]


def ranks(fitness: Array) -> Array:
    """Ranks ``[P]`` spread evenly over ``[-0.5, 0.5]``, the largest fitness last; equals share the mean of theirs.

    What is not finite ranks last, all of it equal.
    """
    fitness = jnp.where(jnp.isfinite(fitness), fitness, -jnp.inf)
    below = jnp.sum(fitness[None] < fitness[:, None], axis=1)
    equal = jnp.sum(fitness[None] == fitness[:, None], axis=1)
    return (below + 0.5 * (equal - 1)) / max(fitness.shape[0] - 1, 1) - 0.5


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
    """The strategy ``name`` with ``size`` candidates like ``like``.

    ``sigma`` is the deviation of the first candidates. `Open_ES` (Salimans et al. 2017, arXiv 1703.03864) has
    antithetic pairs, multiplies it by ``sigma_decay`` every generation down to ``sigma_limit``, and moves its mean by
    Adam with ``learning_rate`` and ``momentum``; the others adapt both themselves. Raises `ConfigError` for an unknown
    name, an odd ``size`` where candidates come in pairs, a ``sigma_limit`` above ``sigma``, and more meta-parameters
    than the strategy can hold.
    """
    if name not in NAMES:
        raise ConfigError(f"strategy = {name!r}: unknown; must be one of {', '.join(NAMES)}")
    if size < 2 or (size % 2 and name in ("Open_ES", "PGPE")):
        raise ConfigError(f"population = {size}: must be at least 2, and even for {name}")
    dimensions = sum(x.size for x in jax.tree.leaves(like))
    if dimensions > MOST_DIMENSIONS.get(name, dimensions):
        most = MOST_DIMENSIONS[name]
        raise ConfigError(f"strategy = {name!r}: {dimensions} meta-parameters, at most {most}; take Sep_CMA_ES")
    if name == "Open_ES" and sigma_limit > sigma:
        raise ConfigError(f"sigma_limit = {sigma_limit}: must not exceed sigma = {sigma}")
    from evosax import algorithms  # computes as it is imported, and so fixes the devices
    from evosax.core.fitness_shaping import identity_fitness_shaping_fn

    options = {}
    if name == "Open_ES":
        options["optimizer"] = optax.adam(learning_rate, b1=momentum)
        options["std_schedule"] = lambda count: jnp.maximum(sigma * sigma_decay**count, sigma_limit)
        options["fitness_shaping_fn"] = identity_fitness_shaping_fn
    if name == "PGPE":
        options["fitness_shaping_fn"] = identity_fitness_shaping_fn
    found = getattr(algorithms, NAMES[name])(size, like, **options)
    params = found.default_params
    if hasattr(params, "std_init"):
        params = params.replace(std_init=jnp.full_like(params.std_init, sigma))
    return of_evosax(found, params)


def of_evosax(found: Any, params: Any) -> Strategy:
    """Any of evosax's strategies that have a mean. Equal candidates get equal parts in what it learns."""
    shape = found.fitness_shaping_fn

    def fair(candidates: Array, fitness: Array, state: Any, params: Any) -> Array:
        equal = (fitness[None] == fitness[:, None]).astype(jnp.float32)
        distinct = jnp.argsort(jnp.argsort(fitness)) / (fitness.shape[0] - 1) - 0.5
        return equal @ shape(candidates, distinct, state, params) / jnp.sum(equal, axis=1)

    found.fitness_shaping_fn = fair

    def init(key: Key, mean: PyTree) -> PyTree:
        return _strong(_lenient(found.init, key, mean, params))

    def ask(key: Key, state: PyTree) -> tuple[PyTree, PyTree]:
        candidates, state = _lenient(found.ask, key, state, params)
        return candidates, _strong(state)

    def tell(key: Key, candidates: PyTree, fitness: Array, state: PyTree) -> PyTree:
        told, _ = _lenient(found.tell, key, candidates, -ranks(fitness), state, params)
        told = _strong(told)
        floats = [x for x in jax.tree.leaves(found.get_mean(told)) if jnp.issubdtype(x.dtype, jnp.inexact)]
        some = jnp.any(jnp.isfinite(fitness)) & jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
        return jax.tree.map(lambda new, old: jnp.where(some, new, old), told, state)

    return Strategy(found.population_size, init, ask, tell, found.get_mean)


def _lenient(function: Callable[..., Any], *args: Any) -> Any:
    """evosax counts on arrays of fewer axes being promoted."""
    with jax.numpy_rank_promotion("allow"):
        return function(*args)


def _strong(state: PyTree) -> PyTree:
    """Without weak types: a state that changes its type makes its program compile again."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(jnp.asarray(x), jnp.asarray(x).dtype), state)
