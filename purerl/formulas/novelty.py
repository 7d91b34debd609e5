"""Novelty: how unlike an observation is to the episode so far, how unlike to all that was ever seen, and the schedules
of policies that seek it to different degrees.

``K`` neighbours, ``M`` places of a memory, ``D`` numbers of an embedding, ``N`` policies, of which number 0 seeks none.
Equations are those of Never Give Up (Badia et al. 2020, arXiv 2002.06038) where nothing else is said.
"""

import jax
import jax.numpy as jnp

from purerl.types import Array, Scalar

OFFSET = 1e-3
"""What is added to the root of the summed similarities (the paper's c)."""
MOST_SIMILAR = 8.0
"""Beyond this similarity an observation is worth nothing (the paper's s_m)."""
LARGEST_MODULATOR = 5.0
"""The paper's L."""
SMALLEST_DISTANCE = 1e-8
"""In place of a smaller mean distance."""


def nearest(memory: Array, present: Array, x: Array, num: int) -> tuple[Array, Array]:
    """Squared Euclidean distances ``[K]`` from ``x`` ``[D]`` to its ``K = num`` nearest rows of ``memory`` ``[M, D]``,
    and which of them there are (bool).

    Only rows that are ``present`` ``[M]`` are neighbours; with fewer of them than ``K`` the other distances are 0.
    """
    distance = jnp.sum(jnp.square(memory - x[None]), axis=-1)
    closest, _ = jax.lax.top_k(jnp.where(present, -distance, -jnp.inf), num)
    real = jnp.isfinite(closest)
    return jnp.where(real, -closest, 0.0), real


def episodic_bonus(
    distance: Array, real: Array, mean_distance: Array, epsilon: Scalar = 1e-4, cluster: Scalar = 8e-3
) -> Array:
    """What an observation is worth in its episode, by its nearest neighbours: eq. 2 and Algorithm 1. A scalar >= 0.

    ``1 / (sqrt(sum_k similarity_k) + c)`` with ``similarity_k = epsilon / (max(distance_k / mean - cluster, 0) +
    epsilon)``, and 0 where the denominator is above 8. Neighbours that there are not count as if infinitely far and yet
    of similarity ``epsilon``: the first observation of an episode is worth ``1 / (sqrt(K * epsilon) + c)``.

    - ``distance, real``: ``[K]``, squared, as `nearest` gives them.
    - ``mean_distance``: the running mean of such squared distances.
    - ``epsilon``: positive. ``cluster``: distances below so many means count as 0.
    """
    rate = jnp.maximum(distance / jnp.maximum(mean_distance, SMALLEST_DISTANCE) - cluster, 0.0)
    similarity = jnp.where(real, epsilon / (rate + epsilon), epsilon)
    total = jnp.sqrt(jnp.sum(similarity)) + OFFSET
    return jnp.where(total > MOST_SIMILAR, 0.0, 1 / total)


def modulator(error: Array, mean: Array, deviation: Array) -> Array:
    """The life-long novelty ``alpha = 1 + (error - mean) / deviation`` of an error of distillation, elementwise
    (section 2, "life-long novelty module"), by the running mean and deviation of such errors."""
    return 1 + (error - mean) / deviation


def modulated(episodic: Array, alpha: Array) -> Array:
    """The intrinsic reward ``episodic * min(max(alpha, 1), L)``, elementwise (eq. 1)."""
    return episodic * jnp.clip(alpha, 1.0, LARGEST_MODULATOR)


def lifelong_bonus(alpha: Array) -> Array:
    """What the life-long factor adds if it stands alone: ``min(max(alpha - 1, 0), L)``, elementwise. It vanishes where
    nothing is new."""
    return jnp.clip(alpha - 1, 0.0, LARGEST_MODULATOR)


def betas(num: int, largest: Scalar) -> Array:
    """The weights of intrinsic rewards ``[N]``: 0, then a sigmoid in ``j``, then ``largest`` (appendix A).

    ``beta_j = largest * sigmoid(10 (2 j - (N - 2)) / (N - 2))`` in between. ``num`` is at least 2.
    """
    j = jnp.arange(num)
    inner = jax.nn.sigmoid(10 * (2 * j - (num - 2)) / max(num - 2, 1))
    return largest * jnp.where(j == 0, 0.0, jnp.where(j == num - 1, 1.0, inner))


def gammas(num: int, largest: Scalar, smallest: Scalar) -> Array:
    """Discount factors ``[N]`` from ``largest`` down to ``smallest``, evenly in ``log(1 - gamma)`` (appendix A).

    Both lie in [0, 1). ``num`` is at least 2.
    """
    part = jnp.arange(num) / (num - 1)
    return 1 - jnp.exp((1 - part) * jnp.log1p(-jnp.asarray(largest)) + part * jnp.log1p(-jnp.asarray(smallest)))


def wide_gammas(num: int, largest: Scalar, middle: Scalar, smallest: Scalar) -> Array:
    """Agent57's discount factors ``[N]`` (Badia et al. 2020, arXiv 2003.13350, appendix).

    The first ``H = N / 4`` fall from ``largest`` to ``middle``: ``gamma_0`` and ``gamma_(H - 1)`` are these, and
    between them lies ``largest + (middle - largest) * sigmoid(10 (2 j - (H - 2)) / (H - 2))``. The others are `gammas`
    from ``middle`` to ``smallest``. With ``N = 32``, as published, ``H = 8``; it is at least 2, and ``num`` at least 4.
    """
    head = max(num // 4, 2)
    j = jnp.arange(head)
    inner = jax.nn.sigmoid(10 * (2 * j - (head - 2)) / max(head - 2, 1))
    first = largest + (middle - largest) * jnp.where(j == 0, 0.0, jnp.where(j == head - 1, 1.0, inner))
    return jnp.concatenate([first, gammas(num - head, middle, smallest)])
