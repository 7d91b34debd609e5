"""Target networks: copies of parameters that follow them slowly."""

import jax
import jax.numpy as jnp

from purerl.types import Array, PyTree, Scalar


def periodic(params: PyTree, target_params: PyTree, age: Array, period: int) -> tuple[PyTree, Array]:
    """Sets a target network to ``params`` at every ``period``-th update.

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


def polyak(params: PyTree, target_params: PyTree, rate: Scalar) -> PyTree:
    """Moves a target network towards ``params`` (Lillicrap et al. 2016, arXiv 1509.02971, Algorithm 1).

    `optax.incremental_update` rounds otherwise: it adds two products.

    Args:
        params: Parameters after an update.
        target_params: Parameters of the target network.
        rate: Fraction of the way that it moves.
    """
    return jax.tree.map(lambda new, old: old + rate * (new - old), params, target_params)
