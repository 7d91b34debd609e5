"""Mixers: how the action values of a team's ``M`` agents are combined into values of their joint action."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from purerl.networks.layers import MLP, dense
from purerl.types import Array, Key, PyTree


class Mixer(NamedTuple):
    """``mix(params, q [..., M], state [..., S])`` gives ``G`` values ``[..., G]``.

    ``G`` is 1, the value of the whole team, or ``M``, a value of each agent.
    """

    init: Callable[[Key, Array, Array], PyTree]  # (key, q, state) -> params
    mix: Callable[[PyTree, Array, Array], Array]


def apart() -> Mixer:
    """Makes the `Mixer` of independent learners: the value of every agent stays its own."""
    return Mixer(lambda key, q, state: {}, lambda params, q, state: q)


def summed() -> Mixer:
    """Makes the `Mixer` that sums over agents.

    These are value decomposition networks (Sunehag et al. 2017, arXiv 1706.05296, eq. 4).
    """
    return Mixer(lambda key, q, state: {}, lambda params, q, state: jnp.sum(q, axis=-1, keepdims=True))


SCALE = 0.2
"""The initial scale of the layers that give weights: a team's value then moves about as much as those of its agents."""


class Monotonic(nn.Module):
    """A network of agents' values that increases with each of them.

    ``|W_2(s)| elu(|W_1(s)| q + b_1(s)) + V(s)`` with ``width`` hidden units (Rashid et al. 2018, arXiv 1803.11485,
    section 4). The weights, which may not be negative, come from networks of the state with a hidden layer of
    ``hyper_width`` units (0: none). The biases may be negative.
    """

    width: int
    hyper_width: int

    @nn.compact
    def __call__(self, q: Array, state: Array) -> Array:
        """Returns the team's value ``[..., 1]`` for ``q`` ``[..., M]`` and ``state`` ``[..., S]``."""

        def weights(size: int) -> Array:
            hidden = MLP((self.hyper_width,) if self.hyper_width else (), nn.relu)(state)
            return jnp.abs(dense(size, SCALE)(hidden))

        first = weights(q.shape[-1] * self.width).reshape(*q.shape, self.width)
        hidden = nn.elu(jnp.sum(q[..., None] * first, axis=-2) + dense(self.width, 1.0)(state))
        value = dense(1, 1.0)(MLP((self.width,), nn.relu)(state))
        mixed: Array = jnp.sum(hidden * weights(self.width), axis=-1, keepdims=True) + value
        return mixed


def monotonic(width: int, hyper_width: int) -> Mixer:
    """Makes the `Mixer` of QMIX: `Monotonic`. Its ``init`` consumes its key."""
    module = Monotonic(width, hyper_width)

    def mix(params: PyTree, q: Array, state: Array) -> Array:
        out: Any = module.apply(params, q, state)
        return out

    return Mixer(module.init, mix)
