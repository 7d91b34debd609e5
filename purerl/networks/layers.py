"""Orthogonal initialisation, dense layers, and convolution and pooling that are fast inside loops on CPU."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, draw
from purerl.types import Array, Key

ACTIVATIONS = {"tanh": nn.tanh, "relu": nn.relu, "silu": nn.silu, "gelu": nn.gelu, "elu": nn.elu}


def orthogonal(scale: float = 1.0) -> Callable[..., Array]:
    """Makes an initialiser ``init(key, shape, dtype)`` of orthogonal kernels ``[..., in, out]``.

    Rows or columns are orthonormal, times ``scale`` (Saxe et al. 2014, arXiv 1312.6120). The initialiser consumes its
    key. Gram-Schmidt orthogonalisation of Gaussian columns, with every projection applied twice ("twice is enough",
    Giraud et al. 2005), yields the factor Q of the QR decomposition whose R has a positive diagonal; it is uniformly
    distributed over the orthogonal matrices. LAPACK is avoided because its batched calls, which result from
    initialisers under vmap, deadlock XLA on CPU.
    """

    def init(key: Key, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        tall = draw.normal(key, (max(rows, columns), min(rows, columns)))

        def orthogonalise(i: Array, basis: Array) -> Array:
            column = jax.lax.dynamic_slice_in_dim(basis, i, 1, axis=1)
            done = jnp.where(jnp.arange(basis.shape[1])[None] < i, basis, 0.0)
            for _ in range(2):
                along = jnp.sum(done * column, axis=0, keepdims=True)
                column = column - jnp.sum(done * along, axis=1, keepdims=True)
            column = column * jax.lax.rsqrt(jnp.sum(jnp.square(column)))
            return jax.lax.dynamic_update_slice_in_dim(basis, column, i, axis=1)

        basis = jax.lax.fori_loop(0, tall.shape[1], orthogonalise, tall)
        return (scale * (basis if rows >= columns else basis.T)).reshape(shape).astype(dtype)

    return init


def dense(
    size: int, scale: float, dtype: Any = None, init: Callable[[float], Callable[..., Array]] = orthogonal
) -> nn.Dense:
    """Makes a dense layer of ``size`` units with float32 parameters.

    Args:
        size: The number of units.
        scale: The kernel is initialised by ``init(scale)``, the bias by zeros.
        dtype: The type in which the layer computes; None: that of its parameters and inputs.
        init: Makes the initialiser of the kernel.
    """
    return nn.Dense(size, kernel_init=init(scale), dtype=dtype)


class MLP(nn.Module):
    """Dense layers of ``hidden_sizes`` on an observation with its last ``obs_ndim`` axes flattened.

    ``[..., *obs] -> [..., F]``. With ``layer_norm`` the outputs of each dense layer are normalised before the
    activation (Ba et al. 2016, arXiv 1607.06450), as PQN needs (Gallici et al. 2024, arXiv 2407.04811). With empty
    ``hidden_sizes`` the features are the flattened observation. With ``dropout`` each output of a dense layer is 0 with
    that probability, and divided by what is left of 1 otherwise, before the normalisation: where `apply` is given
    ``rngs={"dropout": key}``, and nowhere else (Hiraoka et al. 2021, arXiv 2110.02034, figure 2).
    """

    hidden_sizes: Sequence[int]
    activation: Callable[[Array], Array] = nn.tanh
    obs_ndim: int = 1
    layer_norm: bool = False
    dropout: float = 0.0

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Returns the features ``[..., F]`` of observations, which are converted to float32."""
        x = obs.astype(jnp.float32).reshape(*obs.shape[: obs.ndim - self.obs_ndim], -1)
        for size in self.hidden_sizes:
            x = dense(size, np.sqrt(2), backend.activations())(x)
            if self.dropout:
                x = nn.Dropout(self.dropout, deterministic=not self.has_rng("dropout"))(x)
            x = self.activate(nn.LayerNorm(dtype=backend.activations())(x) if self.layer_norm else x)
        return x

    def activate(self, x: Array) -> Array:
        """Applies the activation function. It is a method so that `nn.intercept_methods` can observe it."""
        return self.activation(x)


class Conv(nn.Module):
    """A convolution with orthogonal initialisation. ``[..., H, W, C] -> [..., h, w, features]``.

    A kernel of ``size`` x ``size`` moves by ``stride``: ``h = (H - size) // stride + 1``, and ``w`` likewise. With
    ``pad`` the input is padded with one border of zeros, which keeps the height and width of a 3x3 kernel with stride
    1. Images of any type, divided by ``divisor``, give float32.

    A stride that divides ``size`` becomes 1 by `in_blocks`, which copies longer rows. What remains is a matrix product,
    over patches or over positions, whichever makes the smaller array: the kernel gradient of `flax.linen.Conv` takes
    ten times as long in a loop on CPU, and `jax.vmap` over kernels would turn it into a grouped convolution.
    """

    features: int
    pad: bool = False
    size: int = 3
    stride: int = 1
    divisor: float = 1.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Returns the convolution of images ``[..., H, W, C]``."""
        kernel = self.param("kernel", orthogonal(np.sqrt(2)), (self.size, self.size, x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        images, kernel, stride = x.reshape(-1, *x.shape[-3:]), kernel / self.divisor, self.stride
        if self.pad:
            images = _border(images, 0)
        if self.size % stride == 0:
            images, stride = in_blocks(images, stride), 1
            kernel = jnp.moveaxis(in_blocks(jnp.moveaxis(kernel, -1, 0), self.stride), 0, -1)
        out = _convolve(images, kernel, stride)
        return (out + bias[None, None, None]).reshape(*x.shape[:-3], *out.shape[1:])


CACHE = 4 * 2**20
"""Bytes that an array between two steps of a convolution may take on CPU, so that it stays in the caches."""


def _convolve(images: Array, kernel: Array, stride: int) -> Array:
    """Convolves images ``[N, H, W, C]`` of any type with a kernel ``[size, size, C, F]``. Returns ``[N, h, w, F]``."""
    size, _, channels, features = kernel.shape
    height, width = images.shape[1:3]
    patches = ((height - size) // stride + 1) * ((width - size) // stride + 1) * channels
    positions = height * width * features
    if stride == 1 and positions < patches:
        over, numbers = lambda x: _over_positions(x, kernel), size**2 * positions
    else:
        over, numbers = lambda x: _over_patches(x, kernel, stride), size**2 * patches
    return _in_parts(over, images, CACHE // (4 * numbers)) if backend.is_cpu() else over(images)


def _over_patches(images: Array, kernel: Array, stride: int) -> Array:
    """Multiplies all patches, each of ``size ** 2 * C`` numbers, by the kernel.

    The product has two dimensions, or XLA transposes its cotangent.
    """
    patches = jnp.concatenate(windows(images, len(kernel), stride), axis=-1).astype(jnp.float32)
    out = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, kernel.shape[-1])
    return out.reshape(*patches.shape[:-1], -1)


def _over_positions(images: Array, kernel: Array) -> Array:
    """Multiplies all positions by each element of the kernel, which makes ``size ** 2 * F`` numbers of one, and adds.

    The stride is 1.
    """
    size, _, channels, features = kernel.shape
    columns = jnp.moveaxis(kernel, 2, 0).reshape(channels, -1)
    out = (images.astype(jnp.float32).reshape(-1, channels) @ columns).reshape(*images.shape[:-1], -1)
    of = lambda i, window: window[..., i * features : (i + 1) * features]
    return functools.reduce(jnp.add, itertools.starmap(of, enumerate(windows(out, size))))


def _in_parts(function: Callable[[Array], Array], x: Array, largest: int) -> Array:
    """Maps a function over equal parts of at most ``largest`` rows, one after another, and recomputes it for gradients.

    All rows are one part if they are few, if no number of them near ``largest`` divides them, and in a program that is
    exported for any number of them.
    """
    if not isinstance(x.shape[0], int) or len(x) <= largest:
        return function(x)
    size = max(n for n in range(1, max(largest, 1) + 1) if len(x) % n == 0)
    if 2 * size < largest:
        return function(x)
    out = jax.lax.map(jax.checkpoint(function, prevent_cse=False), x.reshape(-1, size, *x.shape[1:]))
    return out.reshape(-1, *out.shape[2:])


def in_blocks(x: Array, size: int) -> Array:
    """Turns blocks of ``size`` x ``size`` of ``[..., H, W, C]`` into channels.

    Rows and columns beyond the last whole block are dropped.

    Returns:
        ``[..., H // size, W // size, size ** 2 * C]``.
    """
    *batch, height, width, channels = x.shape
    height, width = height // size, width // size
    x = x[..., : height * size, : width * size, :].reshape(*batch, height, size, width, size, channels)
    return jnp.swapaxes(x, -3, -4).reshape(*batch, height, width, size * size * channels)


def windows(x: Array, size: int = 3, stride: int = 1) -> list[Array]:
    """Lists the elements of each ``size`` x ``size`` window of ``[..., H, W, C]``, row by row.

    Returns:
        ``size ** 2`` arrays ``[..., (H - size) // stride + 1, (W - size) // stride + 1, C]``.
    """
    height, width = x.shape[-3] - size + 1, x.shape[-2] - size + 1
    return [x[..., i : i + height : stride, j : j + width : stride, :] for i in range(size) for j in range(size)]


def _border(x: Array, value: float, low: tuple[int, int] = (1, 1)) -> Array:
    """Pads ``[..., H, W, C]`` with ``value``: ``low`` rows and columns before, one row and one column after."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(low[0], 1), (low[1], 1), (0, 0)], constant_values=value)


def halve(x: Array) -> Array:
    """Applies 3x3 max pooling with stride 2. ``[..., H, W, C] -> [..., ceil(H / 2), ceil(W / 2), C]``.

    It equals `flax.linen.max_pool` with padding "SAME", whose gradient takes longer on CPU.
    """
    bordered = _border(x, -jnp.inf, low=(x.shape[-3] % 2, x.shape[-2] % 2))
    return functools.reduce(jnp.maximum, windows(bordered))[..., ::2, ::2, :]
