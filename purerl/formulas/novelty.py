"""Novelty of observations, within an episode and over all training, and schedules of policies that seek it.

Novelty within an episode is how unlike an observation is to the episode so far; life-long novelty is how unlike it is
to all that was ever observed. The policies seek novelty to different degrees.

There are ``K`` neighbours, ``M`` rows of a memory, ``D`` numbers of an embedding, and ``N`` policies, of which number 0
seeks no novelty. Equations are those of Never Give Up (Badia et al. 2020, arXiv 2002.06038) unless another source is
named.
"""

import jax
import jax.numpy as jnp

from purerl.types import Array, Scalar

OFFSET = 1e-3
"""The constant that is added to the root of the summed similarities (the paper's c)."""
MOST_SIMILAR = 8.0
"""An observation of a larger similarity has a bonus of 0 (the paper's s_m)."""
LARGEST_MODULATOR = 5.0
"""The largest factor of life-long novelty (the paper's L)."""
SMALLEST_DISTANCE = 1e-8
"""A lower bound of the mean distance by which distances are divided."""


def nearest(memory: Array, present: Array, x: Array, num: int) -> tuple[Array, Array]:
    """Computes the squared Euclidean distances from ``x`` to its ``K = num`` nearest rows of ``memory``.

    Only rows that are ``present`` are neighbours. If there are fewer than ``K`` of them, the other distances are 0.

    Args:
        memory: ``[M, D]``.
        present: ``[M]`` bool.
        x: ``[D]``.
        num: The number of neighbours ``K``.

    Returns:
        Distances ``[K]``, and which of them are those of neighbours, bool ``[K]``.
    """
    distance = jnp.sum(jnp.square(memory - x[None]), axis=-1)
    closest, _ = jax.lax.top_k(jnp.where(present, -distance, -jnp.inf), num)
    real = jnp.isfinite(closest)
    return jnp.where(real, -closest, 0.0), real


def episodic_bonus(
    distance: Array, real: Array, mean_distance: Array, epsilon: Scalar = 1e-4, cluster: Scalar = 8e-3
) -> Array:
    """Computes the bonus of an observation within its episode, from its nearest neighbours (eq. 2 and Algorithm 1).

    ``1 / (sqrt(sum_k similarity_k) + c)`` with
    ``similarity_k = epsilon / (max(distance_k / mean - cluster, 0) + epsilon)``, and 0 where the denominator is above
    8. Missing neighbours have the similarity ``epsilon``, although they count as infinitely far: the bonus of the first
    observation of an episode is ``1 / (sqrt(K * epsilon) + c)``.

    Args:
        distance: ``[K]``, squared distances as computed by `nearest`.
        real: ``[K]`` bool, which of them are those of neighbours.
        mean_distance: The running mean of such squared distances.
        epsilon: A positive number.
        cluster: Distances below this many means count as 0.

    Returns:
        A non-negative scalar.
    """
    rate = jnp.maximum(distance / jnp.maximum(mean_distance, SMALLEST_DISTANCE) - cluster, 0.0)
    similarity = jnp.where(real, epsilon / (rate + epsilon), epsilon)
    total = jnp.sqrt(jnp.sum(similarity)) + OFFSET
    return jnp.where(total > MOST_SIMILAR, 0.0, 1 / total)


def modulator(error: Array, mean: Array, deviation: Array) -> Array:
    """Computes the life-long novelty ``alpha = 1 + (error - mean) / deviation``, elementwise.

    ``error`` is an error of distillation (section 2, "life-long novelty module"); ``mean`` and ``deviation`` are the
    running mean and standard deviation of such errors.
    """
    return 1 + (error - mean) / deviation


def modulated(episodic: Array, alpha: Array) -> Array:
    """Computes the intrinsic reward ``episodic * min(max(alpha, 1), L)``, elementwise (eq. 1)."""
    return episodic * jnp.clip(alpha, 1.0, LARGEST_MODULATOR)


def lifelong_bonus(alpha: Array) -> Array:
    """Computes the bonus of life-long novelty alone: ``min(max(alpha - 1, 0), L)``, elementwise.

    It vanishes where nothing is new.
    """
    return jnp.clip(alpha - 1, 0.0, LARGEST_MODULATOR)


def betas(num: int, largest: Scalar) -> Array:
    """Computes the weights of intrinsic rewards ``[N]``: 0, then a sigmoid in ``j``, then ``largest`` (appendix A).

    ``beta_j = largest * sigmoid(10 (2 j - (N - 2)) / (N - 2))`` in between. ``num`` is at least 2.
    """
    j = jnp.arange(num)
    inner = jax.nn.sigmoid(10 * (2 * j - (num - 2)) / max(num - 2, 1))
    return largest * jnp.where(j == 0, 0.0, jnp.where(j == num - 1, 1.0, inner))


def gammas(num: int, largest: Scalar, smallest: Scalar) -> Array:
    """Computes discount factors ``[N]`` from ``largest`` to ``smallest``, evenly in ``log(1 - gamma)`` (appendix A).

    Both lie in [0, 1). ``num`` is at least 2.
    """
    part = jnp.arange(num) / (num - 1)
    return 1 - jnp.exp((1 - part) * jnp.log1p(-jnp.asarray(largest)) + part * jnp.log1p(-jnp.asarray(smallest)))


def wide_gammas(num: int, largest: Scalar, middle: Scalar, smallest: Scalar) -> Array:
    """Computes Agent57's discount factors ``[N]`` (Badia et al. 2020, arXiv 2003.13350, appendix).

    The first ``H = N / 4`` fall from ``largest`` to ``middle``: ``gamma_0`` and ``gamma_(H - 1)`` are these, and
    between them lies ``largest + (middle - largest) * sigmoid(10 (2 j - (H - 2)) / (H - 2))``. The others are `gammas`
    from ``middle`` to ``smallest``. With ``N = 32``, as published, ``H = 8``; it is at least 2, and ``num`` at least 4.
    """
    head = max(num // 4, 2)
    j = jnp.arange(head)
    inner = jax.nn.sigmoid(10 * (2 * j - (head - 2)) / max(head - 2, 1))
    first = largest + (middle - largest) * jnp.where(j == 0, 0.0, jnp.where(j == head - 1, 1.0, inner))
    return jnp.concatenate([first, gammas(num - head, middle, smallest)])
