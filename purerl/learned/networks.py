"""Small elementwise networks of learned functions: each element of the inputs is processed separately."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Array, Key, PyTree


class Network(NamedTuple):
    """The functions of a network, elementwise in its inputs.

    ``init(key) -> params`` consumes its key. ``apply(params, *inputs) -> outputs`` maps ``num_inputs`` arrays to
    ``num_outputs`` arrays, all of one shape.
    """

    init: Callable[[Key], PyTree]
    apply: Callable[..., tuple[Array, ...]]


def mlp(num_inputs: int, hidden_sizes: tuple[int, ...], num_outputs: int, bias: bool = True) -> Network:
    """Makes an elementwise `Network` of dense layers with tanh between them, whose outputs are initially 0.

    Hidden kernels are initialised as Gaussians with standard deviation ``1 / sqrt(fan_in)``, hidden biases as standard
    Gaussians, the last layer as zeros. Without ``bias`` outputs are 0 where all inputs are 0, for any parameters.
    """
    sizes = (num_inputs, *hidden_sizes, num_outputs)

    def init(key: Key) -> PyTree:
        layers: list[dict[str, Array]] = []
        keys = jax.random.split(key, len(sizes) - 1)
        for (fan_in, fan_out), key_layer in zip(itertools.pairwise(sizes), keys, strict=True):
            hidden = float(len(layers) < len(hidden_sizes))
            key_kernel, key_bias = jax.random.split(key_layer)
            layer = {"kernel": hidden / np.sqrt(fan_in) * jax.random.normal(key_kernel, (fan_in, fan_out))}
            if bias:
                layer["bias"] = hidden * jax.random.normal(key_bias, (fan_out,))
            layers.append(layer)
        return layers

    def apply(params: PyTree, *inputs: Array) -> tuple[Array, ...]:
        x = jnp.stack(inputs, axis=-1)
        for i, layer in enumerate(params):
            x = (jnp.tanh(x) if i else x) @ layer["kernel"]
            if bias:
                x = x + layer["bias"].reshape(*[1] * (x.ndim - 1), -1)
        return tuple(x[..., i] for i in range(num_outputs))

    return Network(init, apply)
