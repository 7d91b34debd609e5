"""How much of a layer is in use: dormant units, and how many directions its features span."""

import jax.numpy as jnp

from purerl.types import Array

THRESHOLD = 0.025
"""Share of the layer's mean activity at and below which a unit counts as dormant."""


def dormant(features: Array, threshold: float = THRESHOLD) -> Array:
    """Which of a layer's ``F`` units are dormant over ``N`` observations: ``[F]`` bool, of ``features`` ``[N, F]``.

    Sokar et al. 2023 (arXiv 2302.12902), Definition 3.1: a unit whose mean absolute activation is at most ``threshold``
    times the mean of that over the layer. In a layer of zeros all are.
    """
    activity = jnp.mean(jnp.abs(features), axis=0)
    return activity <= threshold * jnp.mean(activity)


def effective_rank(features: Array) -> Array:
    """How many directions ``features`` ``[N, F]`` span: from 1 to the smaller of ``N`` and ``F``; 0 if all are zero.

    The participation ratio ``(sum s_i^2)^2 / sum s_i^4`` of their singular values ``s``, not centred (Gao et al. 2017,
    bioRxiv 214262, eq. 1, of the second moments). It counts ``k`` equal ones as ``k``, and needs no decomposition:
    the sums are traces of the second moments and of their square.
    """
    scale = jnp.max(jnp.abs(features))
    unit = features / jnp.where(scale > 0, scale, 1.0)
    moments = unit.T @ unit / features.shape[0]
    return jnp.where(scale > 0, jnp.trace(moments) ** 2 / jnp.maximum(jnp.sum(jnp.square(moments)), 1e-30), 0.0)
