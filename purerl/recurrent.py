"""Recurrent networks: a torso, a cell that remembers, and a head."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import networks
from purerl.types import Array, Key, PyTree

CELLS = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}


class Recurrent(NamedTuple):
    """A network with a memory, the ``carry``: ``[B, ...]`` leading, zeros at the start of an episode.

    ``unroll`` sets the carry back to that after each step whose ``last`` is true, so that the next step begins an
    episode; the carry that it returns continues where the steps ended.
    """

    init: Callable[[Key, Array], PyTree]  # (key, obs [B, ...]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    step: Callable[[PyTree, Array, PyTree], tuple[PyTree, PyTree]]
    # (params, obs [B, ...], carry) -> (out [B, ...], carry)
    unroll: Callable[[PyTree, Array, PyTree, Array], tuple[PyTree, PyTree]]
    # (params, obs [T, B, ...], carry, last [T, B]) -> (out [T, B, ...], carry)


def recurrent(torso: nn.Module, cell: Literal["gru", "lstm"], size: int, head: nn.Module) -> Recurrent:
    """``head(cell(torso(obs)))`` with ``size`` units in the cell; ``head`` maps ``[..., size]`` to anything.

    ``gru``: Cho et al. 2014 (arXiv 1406.1078), with the reset gate on the recurrent product as in Flax. ``lstm``:
    Hochreiter & Schmidhuber 1997, with a forget gate (Gers et al. 2000). Recurrent kernels are `networks.orthogonal`.
    ``unroll`` applies torso and head to all steps at once; only the cell is scanned.
    """
    module = CELLS[cell](size, recurrent_kernel_init=networks.orthogonal())

    def init_carry(num_envs: int) -> PyTree:
        idle = jax.random.key(0)
        return module.initialize_carry(idle, (num_envs, size))

    def init(key: Key, obs: Array) -> PyTree:
        key_torso, key_cell, key_head = jax.random.split(key, 3)
        features, torso_params = torso.init_with_output(key_torso, obs)
        (_, memory), cell_params = module.init_with_output(key_cell, init_carry(obs.shape[0]), features)
        return {"torso": torso_params, "cell": cell_params, "head": head.init(key_head, memory)}

    def step(params: PyTree, obs: Array, carry: PyTree) -> tuple[PyTree, PyTree]:
        carry, memory = module.apply(params["cell"], carry, torso.apply(params["torso"], obs))
        return head.apply(params["head"], memory), carry

    def unroll(params: PyTree, obs: Array, carry: PyTree, last: Array) -> tuple[PyTree, PyTree]:
        features, start = torso.apply(params["torso"], obs), init_carry(obs.shape[1])
        chex.assert_shape(last, obs.shape[:2])

        def advance(carry: PyTree, row: tuple[Array, Array]) -> tuple[PyTree, Array]:
            x, ended = row
            carry, memory = module.apply(params["cell"], carry, x)
            return jax.tree.map(lambda new, old: jnp.where(ended[:, None], new, old), start, carry), memory

        carry, memory = jax.lax.scan(advance, carry, (features, last))  # memory [T, B, size]
        return head.apply(params["head"], memory), carry

    return Recurrent(init, init_carry, step, unroll)
