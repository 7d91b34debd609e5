"""Mixers: how the action values of a team's ``M`` agents make values of what they do together."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from purerl.networks.layers import MLP, dense
from purerl.types import Array, Key, PyTree


class Mixer(NamedTuple):
    """``mix(params, q [..., M], state [..., S])`` gives ``G`` values ``[..., G]``: one of the whole team, or one of
    each agent."""

    init: Callable[[Key, Array, Array], PyTree]  # (key, q, state) -> params
    mix: Callable[[PyTree, Array, Array], Array]


def apart() -> Mixer:
    """Every agent's value is its own: independent learners."""
    return Mixer(lambda key, q, state: {}, lambda params, q, state: q)


def summed() -> Mixer:
    """The sum over agents: value decomposition networks (Sunehag et al. 2017, arXiv 1706.05296, eq. 4)."""
    return Mixer(lambda key, q, state: {}, lambda params, q, state: jnp.sum(q, axis=-1, keepdims=True))


SCALE = 0.2
"""Of the layers that give weights at first: a team's value then moves about as much as those of its agents."""


class Monotonic(nn.Module):
    """A network of the values that grows with each of them (Rashid et al. 2018, arXiv 1803.11485, section 4).

    ``|W_2(s)| elu(|W_1(s)| q + b_1(s)) + V(s)``, with ``width`` hidden units. The weights, which may not be negative,
    come from networks of the state with a hidden layer of ``hyper_width`` (0: none); the biases may be.
    """

    width: int
    hyper_width: int

    @nn.compact
    def __call__(self, q: Array, state: Array) -> Array:
        def weights(size: int) -> Array:
            hidden = MLP((self.hyper_width,) if self.hyper_width else (), nn.relu)(state)
            return jnp.abs(dense(size, SCALE)(hidden))

        first = weights(q.shape[-1] * self.width).reshape(*q.shape, self.width)
        hidden = nn.elu(jnp.sum(q[..., None] * first, axis=-2) + dense(self.width, 1.0)(state))
        value = dense(1, 1.0)(MLP((self.width,), nn.relu)(state))
        mixed: Array = jnp.sum(hidden * weights(self.width), axis=-1, keepdims=True) + value
        return mixed


def monotonic(width: int, hyper_width: int) -> Mixer:
    """QMIX's: `Monotonic`."""
    module = Monotonic(width, hyper_width)

    def mix(params: PyTree, q: Array, state: Array) -> Array:
        out: Any = module.apply(params, q, state)
        return out

    return Mixer(module.init, mix)
