"""Older parameters: target networks, and past versions that actors or gradients use."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from purerl.types import Array, PyTree, Scalar


class Past(NamedTuple):
    """The last versions of some parameters, each as one vector: ``[max_lag + 1, P]``; the next goes to ``position``."""

    versions: Array
    position: Array


def past(params: PyTree, max_lag: int) -> Past | tuple[()]:
    """Makes a past in which the parameters have always been ``params``; with ``max_lag`` 0 it is ``()``."""
    if max_lag == 0:
        return ()
    flat, _ = ravel_pytree(params)
    return Past(jnp.broadcast_to(flat, (max_lag + 1, *flat.shape)), jnp.zeros((), jnp.int32))


def delay(past: Past | tuple[()], params: PyTree, lag: Scalar) -> tuple[PyTree, Past | tuple[()]]:
    """Returns the parameters of ``lag`` calls ago, and the past with ``params`` added.

    Args:
        past: The past; without one, ``()``, the result is ``params``.
        params: The newest parameters.
        lag: A whole number up to ``max_lag``, which may be traced; 0 gives ``params``.
    """
    if not past:
        return params, past
    flat, unravel = ravel_pytree(params)
    versions = jax.lax.dynamic_update_index_in_dim(past.versions, flat, past.position, 0)
    chosen = (past.position - jnp.asarray(lag, jnp.int32)) % len(versions)
    return unravel(versions[chosen]), Past(versions, (past.position + 1) % len(versions))


def refresh(params: PyTree, target_params: PyTree, age: Array, period: int) -> tuple[PyTree, Array]:
    """Sets the target network to ``params`` at every ``period``-th update.

    Args:
        params: Parameters after an update.
        target_params: Parameters of the target network.
        age: Updates since its last refresh, before this one, int32 ``[]``.
        period: Updates between two refreshes.

    Returns:
        The parameters of the target network, and its new age.
    """
    age = (age + 1) % period
    return jax.tree.map(lambda new, old: jnp.where(age == 0, new, old), params, target_params), age


def approach(params: PyTree, target_params: PyTree, rate: Scalar) -> PyTree:
    """Moves a target network towards ``params`` (Lillicrap et al. 2016, arXiv 1509.02971, Algorithm 1).

    `optax.incremental_update` rounds otherwise: it adds two products.

    Args:
        params: Parameters after an update.
        target_params: Parameters of the target network.
        rate: Fraction of the way that it moves.
    """
    return jax.tree.map(lambda new, old: old + rate * (new - old), params, target_params)
