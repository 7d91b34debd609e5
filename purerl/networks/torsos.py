"""Torsos: modules from observations to features."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, spaces
from purerl.networks.layers import ACTIVATIONS, MLP, Conv, dense, halve
from purerl.spaces import Box, Space
from purerl.types import Array, PyTree


class Convolution(NamedTuple):
    """One convolution of a torso: its channels, the height and width of its kernel, and its stride."""

    channels: int
    size: int = 3
    stride: int = 1


KINDS = {
    "plain": (Convolution(16),),
    "resnet": (Convolution(16), Convolution(32), Convolution(32)),
    "nature": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    "simba": (Convolution(16),),
}
"""The convolutions of each kind: MinAtar's, IMPALA's and DQN's. SimBa's, for images, are those of "plain".

"plain" is that of MinAtar's authors (Young & Tian 2019, arXiv 1903.03176), "resnet" IMPALA's (`ResNet`), "nature" that
of DQN on Atari (Mnih et al. 2015, Nature 518, Methods), which has a dense layer of 512 behind them.
"""


class Convolutions(NamedTuple):
    """How images become features: the ``kind`` of network, one of `KINDS`, and its ``layers``.

    In a resnet each of ``layers`` is a section, of which only ``channels`` counts.
    """

    kind: str = "plain"
    layers: tuple[Convolution, ...] = KINDS["plain"]

    def fit(self, shape: Sequence[int]) -> bool:
        """Returns whether an image ``[H, W, C]`` is large enough for them. A resnet takes every image, as it pads."""
        return len(shape) == 3 and (self.kind == "resnet" or min(self.left(shape)) > 0)

    def left(self, shape: Sequence[int]) -> tuple[int, int]:
        """Returns the height and the width that convolutions without padding leave of an image ``[H, W, C]``.

        0 or less means that the image is too small.
        """
        height, width = shape[:2]
        for _, size, stride in self.layers:
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        return height, width


class CNN(nn.Module):
    """Convolutions without padding, then dense layers. ``[..., H, W, C] -> [..., features]``.

    Each of ``layers`` is a convolution. ``layer_norm`` is that of `MLP`; a convolution is normalised over the channels
    of each position. Without ``hidden_sizes`` the features are the flattened convolution. With ``bytes`` uint8 images
    are divided by 255.
    """

    layers: Sequence[Convolution] = KINDS["plain"]
    hidden_sizes: Sequence[int] = (128,)
    activation: Callable[[Array], Array] = nn.relu
    layer_norm: bool = False
    bytes: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Returns the features of images, which are converted to float32."""
        x = obs
        for channels, size, stride in self.layers:
            divisor = 255.0 if self.bytes and x.dtype == jnp.uint8 else 1.0
            x = Conv(channels, size=size, stride=stride, divisor=divisor)(x)
            x = self.activate(nn.LayerNorm()(x) if self.layer_norm else x)
        return MLP(self.hidden_sizes, self.activation, obs_ndim=3, layer_norm=self.layer_norm)(x)

    def activate(self, x: Array) -> Array:
        """Applies the activation function; like `MLP.activate` it can be observed."""
        return self.activation(x)


class ResNet(nn.Module):
    """The deep network of IMPALA (Espeholt et al. 2018, arXiv 1802.01561, figure 3, right), without its memory.

    ``[..., H, W, C] -> [..., features]``. Each of ``channels`` is a section: a 3x3 convolution, `halve`, and two
    residual blocks, each of which is an activation and a convolution, twice. An activation and dense layers of
    ``hidden_sizes`` follow.
    """

    channels: Sequence[int] = (16, 32, 32)
    hidden_sizes: Sequence[int] = (256,)
    activation: Callable[[Array], Array] = nn.relu

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Returns the features of images, which are converted to float32."""
        x = obs
        for size in self.channels:
            x = halve(Conv(size, pad=True)(x))
            for _ in range(2):
                inner = Conv(size, pad=True)(self.activation(x))
                x = x + Conv(size, pad=True)(self.activation(inner))
        return MLP(self.hidden_sizes, self.activation, obs_ndim=3)(self.activation(x))


class SimBa(nn.Module):
    """Residual blocks of dense layers, normalised before and at the end (Lee et al. 2024, arXiv 2410.09754, figure 4).

    ``[..., D] -> [..., F]``: a dense layer of ``width``, ``num_blocks`` times
    ``x + dense(activation(dense(layer_norm(x))))``, whose inner layer is four times as wide, and a layer norm. The
    paper's activation is relu.
    """

    width: int
    num_blocks: int
    activation: Callable[[Array], Array] = nn.relu

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Returns the features ``[..., width]``."""
        dtype = backend.activations()
        x = dense(self.width, 1.0, dtype)(x)
        for _ in range(self.num_blocks):
            inner = dense(4 * self.width, np.sqrt(2), dtype)(nn.LayerNorm(dtype=dtype)(x))
            x = x + dense(self.width, 1.0, dtype)(self.activation(inner))
        return nn.LayerNorm(dtype=dtype)(x)


def dense_layers(
    kind: str,
    hidden_sizes: Sequence[int],
    activation: Callable[[Array], Array],
    layer_norm: bool = False,
    dropout: float = 0.0,
) -> nn.Module:
    """Makes the dense layers of a torso of this ``kind``, for vectors ``[..., D]``.

    They are an `MLP`, or a `SimBa` with a block for each of ``hidden_sizes``, which are one width. ``layer_norm`` and
    ``dropout`` are those of `MLP`.
    """
    if kind == "simba" and hidden_sizes:
        return SimBa(hidden_sizes[0], len(hidden_sizes), activation)
    return MLP(tuple(hidden_sizes), activation, layer_norm=layer_norm, dropout=dropout)


class OneHot(nn.Module):
    """Integers as one-hot vectors, concatenated.

    The input is ``[...]`` for one size, and ``[..., len(sizes)]`` with ``several``.
    """

    sizes: tuple[int, ...]
    several: bool

    def __call__(self, x: Array) -> Array:
        """Returns the one-hot vectors ``[..., sum(sizes)]``."""
        columns = jnp.moveaxis(x, -1, 0) if self.several else [x]
        return jnp.concatenate([jax.nn.one_hot(c, n) for c, n in zip(columns, self.sizes, strict=True)], axis=-1)


class Join(nn.Module):
    """The features of each leaf of an observation by its own of ``parts``, concatenated, through ``joint``."""

    parts: tuple[nn.Module, ...]
    joint: nn.Module

    def __call__(self, obs: PyTree) -> Array:
        """Returns the features of an observation with one leaf for each of ``parts``."""
        features = [part(x) for part, x in zip(self.parts, jax.tree.leaves(obs), strict=True)]
        return self.joint(jnp.concatenate(features, axis=-1))


class OnPart(nn.Module):
    """The module ``inner`` on the part of an observation that ``select`` returns."""

    select: Callable[[PyTree], PyTree]
    inner: nn.Module

    def __call__(self, obs: PyTree) -> Array:
        """Returns the output of ``inner``."""
        out: Array = self.inner(self.select(obs))
        return out


class Informed(nn.Module):
    """The features of ``inner``, concatenated with a description of all else.

    The input is ``(obs, more)``: the result is ``inner(obs)`` beside ``describe(more)``.
    """

    inner: nn.Module
    describe: Callable[[PyTree], Array]

    def __call__(self, inputs: tuple[PyTree, PyTree]) -> Array:
        """Returns the features ``[..., F]`` of a pair ``(obs, more)``."""
        obs, more = inputs
        return jnp.concatenate([self.inner(obs), self.describe(more)], axis=-1)


def torso(
    space: Space,
    hidden_sizes: Sequence[int],
    activation: str,
    layer_norm: bool = False,
    convolutions: Convolutions = Convolutions(),  # noqa: B008  # immutable
) -> nn.Module:
    """Makes a module from observations of ``space`` to features.

    A Box with three axes ``[H, W, C]`` that the ``convolutions`` fit into gets a `CNN`, any other Box an `MLP`; with
    the kind "resnet" a Box gets a `ResNet`, which needs three axes. Of a tree of spaces each image goes through such a
    network without dense layers, each integer becomes one-hot, and all else is flattened; dense layers of
    ``hidden_sizes`` on all of them, concatenated, follow. With the kind "simba" all dense layers are a `SimBa`.

    Args:
        space: The space of observations.
        hidden_sizes: The units of the dense layers.
        activation: The name of an activation function, a key of `ACTIVATIONS`.
        layer_norm: Whether to normalise before the activation, see `MLP`. `ResNet` ignores it.
        convolutions: The convolutions for images.
    """
    act = ACTIVATIONS[activation]
    if convolutions.kind == "simba":
        features = torso(space, (), activation, layer_norm, convolutions._replace(kind="plain"))
        return nn.Sequential([features, dense_layers("simba", hidden_sizes, act)]) if hidden_sizes else features
    if isinstance(space, Box):
        return _of_box(space, tuple(hidden_sizes), act, layer_norm, convolutions)
    parts = tuple(_of_leaf(leaf, act, layer_norm, convolutions) for leaf in spaces.leaves(space))
    return Join(parts, MLP(tuple(hidden_sizes), act, layer_norm=layer_norm))


def is_image(leaf: spaces.Leaf) -> bool:
    """Returns whether observations have three axes ``[H, W, C]`` that a 3x3 convolution fits into."""
    return isinstance(leaf, Box) and Convolutions().fit(leaf.shape)


def _of_box(
    space: Box,
    hidden_sizes: tuple[int, ...],
    act: Callable[[Array], Array],
    layer_norm: bool,
    convolutions: Convolutions,
) -> nn.Module:
    kind, layers = convolutions
    if kind == "resnet":
        return ResNet(tuple(layer.channels for layer in layers), hidden_sizes, act)
    if convolutions.fit(space.shape):
        return CNN(layers, hidden_sizes, act, layer_norm, bytes=kind == "nature")
    return MLP(hidden_sizes, act, obs_ndim=len(space.shape), layer_norm=layer_norm)


def _of_leaf(
    leaf: spaces.Leaf, act: Callable[[Array], Array], layer_norm: bool, convolutions: Convolutions
) -> nn.Module:
    if isinstance(leaf, Box):
        return _of_box(leaf, (), act, layer_norm, convolutions if is_image(leaf) else Convolutions())
    return OneHot((leaf.n,), False) if isinstance(leaf, spaces.Discrete) else OneHot(leaf.sizes, True)
