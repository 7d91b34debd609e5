"""Gated recurrent cells, GRU and LSTM, unrolled by a scan."""

from typing import Any

import chex
import flax.linen as nn
import jax

from purerl.networks import layers
from purerl.networks.memory.base import Memory
from purerl.trees import restart
from purerl.types import Array, Key, PyTree


def cell(kind: str, size: int) -> Memory:
    """Makes a gated recurrent cell of ``size`` units, unrolled by a scan.

    "gru": Cho et al. 2014 (arXiv 1406.1078), with the reset gate applied to the recurrent product, as in Flax.
    "lstm": Hochreiter & Schmidhuber 1997, with a forget gate (Gers et al. 2000) whose bias is initialised to 1
    (Jozefowicz et al. 2015, section 2.2). Recurrent kernels are initialised by `layers.orthogonal`. ``init`` consumes
    its key.
    """
    cells: dict[str, Any] = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}
    module = cells[kind](size, recurrent_kernel_init=layers.orthogonal())

    def init(key: Key, x: Array) -> PyTree:
        params = module.init(key, init_carry(x.shape[0]), x)
        if kind == "lstm":
            forget = params["params"]["hf"]
            forget["bias"] = forget["bias"] + 1.0
        return params

    def init_carry(num_envs: int) -> PyTree:
        return module.initialize_carry(jax.random.key(0), (num_envs, size))

    def step(params: PyTree, x: Array, carry: PyTree) -> tuple[Array, PyTree]:
        carry, out = module.apply(params, carry, x)
        return out, carry

    def unroll(params: PyTree, x: Array, carry: PyTree, last: Array) -> tuple[Array, PyTree, PyTree]:
        chex.assert_shape(last, x.shape[:2])
        start = init_carry(x.shape[1])

        def advance(carry: PyTree, row: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, PyTree]]:
            x, ended = row
            out, carry = step(params, x, carry)
            return restart(carry, start, ended), (out, carry)

        with jax.named_scope("memory"):
            carry, (out, carries) = jax.lax.scan(advance, carry, (x, last))
        return out, carries, carry

    return Memory(init, init_carry, step, unroll)
