"""Actors that act by older parameters than those that learn, as distributed actors do."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from purerl import config as cfg
from purerl.learners.parts import settings
from purerl.learners.parts.nesting import inside
from purerl.types import Array, Key, Learner, PyTree, Scalar, Transition, Updated


@cfg.config
class StaleActorSettings:
    """Settings of `delayed`."""

    lag: cfg.NonNegative = 0.0
    """Age in iterations of the parameters that act, relative to those that learn; a whole number, at most max_lag."""
    max_lag: Annotated[cfg.NonNegativeCount, settings.WITH_LAG] = 0
    """Upper bound of lag: the number of past parameter versions to keep."""


class History(NamedTuple):
    """The last versions of some parameters, each as one vector: ``[max_lag + 1, P]``; the next goes to ``position``."""

    versions: Array
    position: Array


class StaleActors(NamedTuple):
    """The state of a learner whose actors lag: that of the learner, and the parameters that act."""

    learner: Any
    acting: PyTree
    history: History


def problems(config: StaleActorSettings) -> list[str]:
    """Returns a line if the lag is not a whole number up to its bound."""
    if cfg.known(config.lag) and (config.lag > config.max_lag or config.lag % 1):
        return [f"lag = {config.lag!r}: must be a whole number, at most max_lag = {config.max_lag}"]
    return []


def delayed(config: StaleActorSettings, learner: Learner) -> Learner:
    """Returns ``learner`` with actors that act by the parameters of ``lag`` iterations ago.

    Its state and behaviour have ``params``. An update of a ``lag`` above ``max_lag``, which only a traced one can be,
    changes nothing.

    Args:
        config: Settings.
        learner: The learner, whose ``update`` has a fourth argument, the parameters that acted.
    """
    learn: Callable[..., Updated] = learner.update

    def init(key: Key, obs: PyTree) -> StaleActors:
        state = learner.init(key, obs)
        return StaleActors(state, state.params, begin(state.params, config.max_lag))

    def update(state: StaleActors, trajectory: Transition, key: Key) -> Updated:
        learned, metrics, scores = learn(state.learner, trajectory, key, state.acting)
        kept = lambda new, old: jnp.where(config.lag <= config.max_lag, new, old)
        learned = jax.tree.map(kept, learned, state.learner)
        acting, history = lagged(state.history, learned.params, config.lag)
        metrics = {**metrics, "lag": jnp.asarray(config.lag, jnp.float32)}
        return Updated(StaleActors(learned, acting, history), metrics, scores)

    behaviour = lambda state: learner.behaviour(state.learner)._replace(params=state.acting)
    return inside(learner, init=init, behaviour=behaviour, update=update)


def begin(params: PyTree, max_lag: int) -> History:
    """Makes a history in which the parameters have always been ``params``."""
    flat, _ = ravel_pytree(params)
    return History(jnp.broadcast_to(flat, (max_lag + 1, *flat.shape)), jnp.zeros((), jnp.int32))


def lagged(history: History, params: PyTree, lag: Scalar) -> tuple[PyTree, History]:
    """Returns the parameters of ``lag`` calls ago, and the history with ``params`` added.

    Args:
        history: The history.
        params: The newest parameters.
        lag: A whole number up to ``max_lag``, which may be traced; 0 gives ``params``.
    """
    flat, unravel = ravel_pytree(params)
    versions = jax.lax.dynamic_update_index_in_dim(history.versions, flat, history.position, 0)
    chosen = (history.position - jnp.asarray(lag, jnp.int32)) % len(versions)
    return unravel(versions[chosen]), History(versions, (history.position + 1) % len(versions))
