"""Batch renormalisation (Ioffe 2017, arXiv 1702.03275), and dense layers that it stands between."""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, shards
from purerl.networks.layers import dense
from purerl.trees import like
from purerl.types import Array

STATISTICS = "batch_stats"
"""The collection of a module's variables that holds running statistics. No optimiser moves it."""
MOMENTUM, EPSILON = 0.99, 1e-3
LARGEST_SCALE, LARGEST_SHIFT = 3.0, 5.0


class BatchRenorm(nn.Module):
    """Normalises features ``[..., F]`` over all leading axes, then scales and shifts each (Algorithm 1).

    Where `apply` may change `STATISTICS` (``mutable``), it normalises by the mean and deviation of the batch, corrected
    towards the running ones by ``r``, their ratio in [1/3, 3], and ``d``, their distance in [-5, 5], through which no
    gradient flows. For the first ``warmup`` batches it does not correct: it is batch normalisation. Elsewhere it
    normalises by the running statistics alone, which are the same for any batch. Running variances are averaged, not
    deviations. Of an agent in shards the batch is that of all.
    """

    warmup: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Returns the normalised features ``[..., F]``."""
        size = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, size)
        bias = self.param("bias", nn.initializers.zeros, size)
        running_mean = self.variable(STATISTICS, "mean", jnp.zeros, size)
        running_var = self.variable(STATISTICS, "var", jnp.ones, size)
        batches = self.variable(STATISTICS, "batches", lambda: jnp.zeros((), jnp.int32))
        mean, deviation = running_mean.value, jnp.sqrt(running_var.value + EPSILON)
        if self.is_mutable_collection(STATISTICS) and not self.is_initializing():
            axes = tuple(range(x.ndim - 1))
            of_batch, var = shards.joined(jnp.mean(x, axis=axes), jnp.var(x, axis=axes))
            corrects = batches.value >= self.warmup
            r, d = jax.lax.stop_gradient(correction(of_batch, var, mean, deviation))
            r = jnp.where(corrects, r, 1.0)
            d = jnp.where(corrects, d, 0.0)
            normal = (x - like(of_batch, x)) / like(jnp.sqrt(var + EPSILON), x) * like(r, x) + like(d, x)
            running_mean.value = MOMENTUM * mean + (1 - MOMENTUM) * jax.lax.stop_gradient(of_batch)
            running_var.value = MOMENTUM * running_var.value + (1 - MOMENTUM) * jax.lax.stop_gradient(var)
            batches.value = jnp.minimum(batches.value + 1, max(self.warmup, 1))
        else:
            normal = (x - like(mean, x)) / like(deviation, x)
        return normal * like(scale, x) + like(bias, x)


def correction(of_batch: Array, var: Array, mean: Array, deviation: Array) -> tuple[Array, Array]:
    """Computes ``r`` and ``d`` of batch renormalisation, ``[F]`` each (Ioffe 2017, arXiv 1702.03275, Algorithm 1).

    Args:
        of_batch: Means of the batch.
        var: Variances of the batch.
        mean: Running means.
        deviation: Running deviations.
    """
    r = jnp.clip(jnp.sqrt(var + EPSILON) / deviation, 1 / LARGEST_SCALE, LARGEST_SCALE)
    return r, jnp.clip((of_batch - mean) / deviation, -LARGEST_SHIFT, LARGEST_SHIFT)


class RenormMLP(nn.Module):
    """Dense layers of ``hidden_sizes`` with batch renormalisation before the first and after each activation.

    ``[..., D] -> [..., F]``, as in CrossQ (Bhatt et al. 2024, arXiv 1902.05605, figure 1). ``warmup`` is that of
    `BatchRenorm`, which computes in float32 whatever type dense layers compute in.
    """

    hidden_sizes: Sequence[int]
    activation: Callable[[Array], Array]
    warmup: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Returns the features ``[..., F]``."""
        x = BatchRenorm(self.warmup)(x)
        for size in self.hidden_sizes:
            x = self.activation(dense(size, np.sqrt(2), backend.activations())(x))
            x = BatchRenorm(self.warmup)(x.astype(jnp.float32))
        return x
