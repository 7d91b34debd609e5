"""Torsos: what turns an observation into features."""

from collections.abc import Callable, Sequence
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp

from purerl.networks.layers import ACTIVATIONS, MLP, Conv, halve
from purerl.spaces import Space
from purerl.types import Array


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


def torso(
    space: Space,
    hidden_sizes: Sequence[int],
    activation: str,
    layer_norm: bool = False,
    kind: Literal["plain", "resnet"] = "plain",
) -> nn.Module:
    """``plain``: `CNN` for observations of three axes ``[H, W, C]`` whose convolution fits, `MLP` for all others.
    ``resnet``: `ResNet`, for observations of three axes; it has no ``layer_norm``."""
    act = ACTIVATIONS[activation]
    if kind == "resnet":
        return ResNet(hidden_sizes=hidden_sizes, activation=act)
    if len(space.shape) == 3 and min(space.shape[:2]) >= 3:
        return CNN(hidden_sizes=hidden_sizes, activation=act, layer_norm=layer_norm)
    return MLP(hidden_sizes, act, obs_ndim=len(space.shape), layer_norm=layer_norm)
