"""Torsos: what turns an observation into features."""

from collections.abc import Callable, Sequence
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import spaces
from purerl.networks.layers import ACTIVATIONS, MLP, Conv, halve
from purerl.spaces import Box, Space
from purerl.types import Array, PyTree


class CNN(nn.Module):
    """3x3 convolutions without padding, then dense layers. ``[..., H, W, C] -> [..., features]``.

    With 16 channels and one dense layer of 128 it is the network of MinAtar's authors (Young & Tian 2019,
    arXiv 1903.03176). ``layer_norm`` is that of `MLP`; a convolution is normalised over the channels of each position.
    Without ``hidden_sizes`` the features are the flattened convolution.
    """

    channels: Sequence[int] = (16,)
    hidden_sizes: Sequence[int] = (128,)
    activation: Callable[[Array], Array] = nn.relu
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = obs.astype(jnp.float32)
        for size in self.channels:
            x = Conv(size)(x)
            x = self.activation(nn.LayerNorm()(x) if self.layer_norm else x)
        return MLP(self.hidden_sizes, self.activation, obs_ndim=3, layer_norm=self.layer_norm)(x)


class ResNet(nn.Module):
    """The deep network of IMPALA (Espeholt et al. 2018, arXiv 1802.01561, figure 3, right), without its memory.

    Each of ``channels`` is a section: a 3x3 convolution, `halve`, and two residual blocks of twice an activation and a
    convolution. Then an activation and dense ``hidden_sizes``. ``[..., H, W, C] -> [..., features]``.
    """

    channels: Sequence[int] = (16, 32, 32)
    hidden_sizes: Sequence[int] = (256,)
    activation: Callable[[Array], Array] = nn.relu

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = obs.astype(jnp.float32)
        for size in self.channels:
            x = halve(Conv(size, pad=True)(x))
            for _ in range(2):
                inner = Conv(size, pad=True)(self.activation(x))
                x = x + Conv(size, pad=True)(self.activation(inner))
        return MLP(self.hidden_sizes, self.activation, obs_ndim=3)(self.activation(x))


class OneHot(nn.Module):
    """Integers as one-hot vectors side by side: ``[...]`` for one of ``sizes``, ``[..., len(sizes)]`` for several."""

    sizes: tuple[int, ...]
    several: bool

    def __call__(self, x: Array) -> Array:
        columns = jnp.moveaxis(x, -1, 0) if self.several else [x]
        return jnp.concatenate([jax.nn.one_hot(c, n) for c, n in zip(columns, self.sizes, strict=True)], axis=-1)


class Join(nn.Module):
    """Features of each leaf of an observation by its own part of ``parts``, side by side, through ``joint``."""

    parts: tuple[nn.Module, ...]
    joint: nn.Module

    def __call__(self, obs: PyTree) -> Array:
        features = [part(x) for part, x in zip(self.parts, jax.tree.leaves(obs), strict=True)]
        return self.joint(jnp.concatenate(features, axis=-1))


class Seen(nn.Module):
    """``inner`` of the part of an observation that ``select`` selects."""

    select: Callable[[PyTree], PyTree]
    inner: nn.Module

    def __call__(self, obs: PyTree) -> Array:
        out: Array = self.inner(self.select(obs))
        return out


class Informed(nn.Module):
    """The features of ``inner``, and beside them what ``describe`` makes of all else: of ``(obs, more)``."""

    inner: nn.Module
    describe: Callable[[PyTree], Array]

    def __call__(self, seen: tuple[PyTree, PyTree]) -> Array:
        obs, more = seen
        return jnp.concatenate([self.inner(obs), self.describe(more)], axis=-1)


def torso(
    space: Space,
    hidden_sizes: Sequence[int],
    activation: str,
    layer_norm: bool = False,
    kind: Literal["plain", "resnet"] = "plain",
) -> nn.Module:
    """A module from observations of ``space`` to features.

    A Box alone: `CNN` for three axes ``[H, W, C]`` whose convolution fits, otherwise `MLP`; ``resnet``: `ResNet`, for
    three axes; it has no ``layer_norm``. A tree of spaces: each image through such a network without dense layers, each
    integer one-hot, all else flattened; then dense ``hidden_sizes`` on all of them side by side.
    """
    act = ACTIVATIONS[activation]
    if isinstance(space, Box):
        return _of_box(space, tuple(hidden_sizes), act, layer_norm, kind)
    parts = tuple(_of_leaf(leaf, act, layer_norm, kind) for leaf in spaces.leaves(space))
    return Join(parts, MLP(tuple(hidden_sizes), act, layer_norm=layer_norm))


def is_image(leaf: spaces.Leaf) -> bool:
    """Whether observations have three axes ``[H, W, C]`` that a 3x3 convolution fits into."""
    return isinstance(leaf, Box) and len(leaf.shape) == 3 and min(leaf.shape[:2]) >= 3


def _of_box(space: Box, hidden_sizes: tuple[int, ...], act: Callable, layer_norm: bool, kind: str) -> nn.Module:
    if kind == "resnet":
        return ResNet(hidden_sizes=hidden_sizes, activation=act)
    if is_image(space):
        return CNN(hidden_sizes=hidden_sizes, activation=act, layer_norm=layer_norm)
    return MLP(hidden_sizes, act, obs_ndim=len(space.shape), layer_norm=layer_norm)


def _of_leaf(leaf: spaces.Leaf, act: Callable, layer_norm: bool, kind: str) -> nn.Module:
    if isinstance(leaf, Box):
        return _of_box(leaf, (), act, layer_norm, kind if is_image(leaf) else "plain")
    return OneHot((leaf.n,), False) if isinstance(leaf, spaces.Discrete) else OneHot(leaf.sizes, True)
