"""Measures of how much of a layer is in use: its dormant units, and how many directions its features span."""

import jax.numpy as jnp

from purerl.types import Array

THRESHOLD = 0.025
"""The fraction of the layer's mean activity at or below which a unit counts as dormant."""


def dormant(features: Array, threshold: float = THRESHOLD) -> Array:
    """Finds the units of a layer that are dormant (Sokar et al. 2023, arXiv 2302.12902, Definition 3.1).

    A unit is dormant if its mean absolute activation is at most ``threshold`` times the mean of these over the layer.
    In a layer of zeros all units are dormant.

    Args:
        features: ``[N, F]``, the activations of ``F`` units for ``N`` observations.
        threshold: A fraction of the layer's mean activity.

    Returns:
        ``[F]`` bool.
    """
    activity = jnp.mean(jnp.abs(features), axis=0)
    return activity <= threshold * jnp.mean(activity)


def effective_rank(features: Array) -> Array:
    """Computes how many directions ``features`` span, as the participation ratio of their singular values.

    The ratio is ``(sum s_i^2)^2 / sum s_i^4`` of the singular values ``s``, not centred (Gao et al. 2017, bioRxiv
    214262, eq. 1, of the second moments). ``k`` equal singular values count as ``k``. It needs no decomposition: the
    sums are traces of the second moments and of their square.

    Args:
        features: ``[N, F]``.

    Returns:
        A scalar from 1 to the smaller of ``N`` and ``F``; 0 if all features are zero.
    """
    scale = jnp.max(jnp.abs(features))
    unit = features / jnp.where(scale > 0, scale, 1.0)
    moments = unit.T @ unit / features.shape[0]
    return jnp.where(scale > 0, jnp.trace(moments) ** 2 / jnp.maximum(jnp.sum(jnp.square(moments)), 1e-30), 0.0)
