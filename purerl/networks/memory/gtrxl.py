"""The gated transformer (GTrXL): attention over a window of past steps."""

from collections.abc import Callable
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks import layers
from purerl.networks.memory.base import Memory
from purerl.trees import like, restart
from purerl.types import Array, PyTree


class Gate(nn.Module):
    """GTrXL's GRU-type gate, in place of a residual connection: ``(1 - z) * x + z * h``, all ``[..., size]``.

    ``r = sigmoid(W_r y + U_r x)``, ``z = sigmoid(W_z y + U_z x - bias)``, ``h = tanh(W_h y + U_h (r * x))`` (arXiv
    1910.06764, eq. 7). The bias is initialised to 2, so that the gate initially passes most of the skip input ``x``.
    """

    @nn.compact
    def __call__(self, x: Array, y: Array) -> Array:
        """Returns the gated sum of the skip input ``x`` and the layer's output ``y``."""
        size = x.shape[-1]

        def linear(name: str, of: Array) -> Array:
            return nn.Dense(size, use_bias=False, kernel_init=layers.orthogonal(), name=name)(of)

        bias = like(self.param("bias", nn.initializers.constant(2.0), (size,)), x)
        r = nn.sigmoid(linear("reset_y", y) + linear("reset_x", x))
        z = nn.sigmoid(linear("update_y", y) + linear("update_x", x) - bias)
        h = nn.tanh(linear("new_y", y) + linear("new_x", r * x))
        return (1 - z) * x + z * h


class GatedAttention(nn.Module):
    """The layers of `transformer`: attention of one step over itself and the ``window`` steps before it."""

    size: int
    heads: int
    window: int

    def setup(self) -> None:
        """Makes the layers."""
        parts = self.size // self.heads
        self.embedding = layers.dense(self.size, np.sqrt(2))
        self.norm, self.norm_out = nn.LayerNorm(), nn.LayerNorm()
        self.query, self.key, self.value = (
            nn.DenseGeneral((self.heads, parts), kernel_init=nn.initializers.lecun_normal()) for _ in range(3)
        )
        small = nn.initializers.normal(0.02)
        self.position = self.param("position", small, (self.window + 1, self.heads, parts))
        self.position_bias = self.param("position_bias", nn.initializers.zeros, (self.heads, parts))
        self.mix, self.hidden, self.out = (layers.dense(self.size, np.sqrt(2)) for _ in range(3))
        self.gate, self.gate_out = Gate(), Gate()

    def embed(self, x: Array) -> Array:
        """Returns the embedded inputs: ``[..., F] -> [..., size]``."""
        return self.embedding(x)

    def look(self, embedded: Array) -> tuple[Array, Array]:
        """Returns keys and values ``[..., heads, parts]`` of embedded inputs."""
        normed = self.norm(embedded)
        return self.key(normed), self.value(normed)

    def attend(self, embedded: Array, keys: Array, values: Array, visible: Array) -> Array:
        """Returns the block's output ``[..., size]`` for one step.

        Args:
            embedded: ``[..., size]``, the embedded input of the step.
            keys: ``[..., W + 1, heads, parts]``, those of the window, the step itself last.
            values: As ``keys``.
            visible: ``[..., W + 1]``, the attention mask.
        """
        query = self.query(self.norm(embedded))  # [..., heads, parts]
        shifted = query + self.position_bias.reshape(*[1] * (query.ndim - 2), *self.position_bias.shape)
        score = jnp.einsum("...hp,...whp->...hw", query, keys) + jnp.einsum("...hp,whp->...hw", shifted, self.position)
        score = jnp.where(visible[..., None, :], score / np.sqrt(query.shape[-1]), -jnp.inf)
        attended = jnp.einsum("...hw,...whp->...hp", jax.nn.softmax(score), values)
        y = self.gate(embedded, nn.relu(self.mix(attended.reshape(*attended.shape[:-2], -1))))
        return self.gate_out(y, nn.relu(self.out(nn.relu(self.hidden(self.norm_out(y))))))

    def __call__(self, x: Array) -> Array:
        """Returns the output for a window that holds only the step itself, over and over: ``init`` traces it."""
        embedded = self.embed(x)
        keys, values = (jnp.repeat(part[..., None, :, :], self.window + 1, axis=-3) for part in self.look(embedded))
        return self.attend(embedded, keys, values, jnp.ones((*x.shape[:-1], self.window + 1), bool))


def transformer(size: int, window: int) -> Memory:
    """Makes one block of a gated transformer that attends to ``window`` past steps.

    Attention over the current input and those before it, followed by a dense network (Parisotto et al. 2020, arXiv
    1910.06764); each with layer normalisation of its input, not its output, and a `Gate` (eq. 5 and 6). Relative
    positions have learned embeddings in place of the sinusoids of Dai et al. 2019 (arXiv 1901.02860, term (d) in
    section 3.3). There are 4 heads, or 2 or 1 if ``size`` is not divisible.

    The carry is the embedded inputs ``[B, window, size]``, oldest first, and a mask ``[B, window]`` (float, 0 or 1) of
    those that exist. ``init`` consumes its key.
    """
    heads = next(heads for heads in (4, 2, 1) if size % heads == 0)
    module = GatedAttention(size, heads, window)
    apply: Callable[..., Any] = module.apply

    def init_carry(num_envs: int) -> tuple[Array, Array]:
        return jnp.zeros((num_envs, window, size)), jnp.zeros((num_envs, window))

    def step(params: PyTree, x: Array, carry: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        embedded = apply(params, x, method="embed")
        past, present = carry
        past = jnp.concatenate([past, embedded[..., None, :]], axis=-2)
        present = jnp.concatenate([present, jnp.ones_like(present[..., :1])], axis=-1)
        keys, values = apply(params, past, method="look")
        out = apply(params, embedded, keys, values, present > 0, method="attend")
        return out, (past[..., 1:, :], present[..., 1:])

    def unroll(params: PyTree, x: Array, carry: tuple[Array, Array], last: Array) -> tuple[Array, Any, Any]:
        chex.assert_shape(last, x.shape[:2])
        steps = x.shape[0]
        embedded = apply(params, x, method="embed")
        past, present = (jnp.swapaxes(part, 0, 1) for part in carry)  # [window, B, ...]
        inputs = jnp.concatenate([past, embedded])  # [window + T, B, size]
        begins = jnp.concatenate([jnp.zeros_like(last[:1]), last[:-1]])
        number = jnp.cumsum(begins.astype(jnp.int32), axis=0)  # [T, B], index of the episode within the trajectory
        episode = jnp.concatenate([jnp.where(present > 0, 0, -1), number])  # [window + T, B]
        rows = np.arange(steps)[:, None] + np.arange(window + 1)[None]  # [T, window + 1]

        def windows(part: Array) -> Array:
            return jnp.swapaxes(part[rows], 1, 2)  # [T, B, window + 1, ...]

        keys, values = (windows(part) for part in apply(params, inputs, method="look"))
        visible = windows(episode) == number[..., None]
        out = apply(params, embedded, keys, values, visible, method="attend")
        kept = visible[..., 1:]
        carries = jnp.where(kept[..., None], windows(inputs)[..., 1:, :], 0.0), kept.astype(jnp.float32)
        return out, carries, restart(jax.tree.map(lambda c: c[-1], carries), init_carry(x.shape[1]), last[-1])

    return Memory(module.init, init_carry, step, unroll)
