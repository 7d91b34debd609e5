"""The gated transformer: attention over a window of past steps."""

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
    """What two streams become: ``(1 - z) * x + z * h``, the gated recurrent unit of GTrXL (eq. 7 there).

    ``r = sigmoid(W_r y + U_r x)``, ``z = sigmoid(W_z y + U_z x - bias)``, ``h = tanh(W_h y + U_h (r * x))``. The bias
    begins as 2, which leaves most of ``x`` as it is.
    """

    @nn.compact
    def __call__(self, x: Array, y: Array) -> Array:
        size = x.shape[-1]

        def linear(name: str, of: Array) -> Array:
            return nn.Dense(size, use_bias=False, kernel_init=layers.orthogonal(), name=name)(of)

        bias = like(self.param("bias", nn.initializers.constant(2.0), (size,)), x)
        r = nn.sigmoid(linear("reset_y", y) + linear("reset_x", x))
        z = nn.sigmoid(linear("update_y", y) + linear("update_x", x) - bias)
        h = nn.tanh(linear("new_y", y) + linear("new_x", r * x))
        return (1 - z) * x + z * h


class GatedAttention(nn.Module):
    """What `transformer` computes of an input and the window of those before it."""

    size: int
    heads: int
    window: int

    def setup(self):
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
        """``[..., F] -> [..., size]``."""
        return self.embedding(x)

    def look(self, embedded: Array) -> tuple[Array, Array]:
        """Keys and values ``[..., heads, parts]`` of embedded inputs."""
        normed = self.norm(embedded)
        return self.key(normed), self.value(normed)

    def attend(self, embedded: Array, keys: Array, values: Array, seen: Array) -> Array:
        """``embedded`` ``[..., size]``; ``keys, values`` ``[..., W + 1, heads, parts]``, its own last; ``seen``
        ``[..., W + 1]`` says which of them may be looked at."""
        query = self.query(self.norm(embedded))  # [..., heads, parts]
        shifted = query + self.position_bias.reshape(*[1] * (query.ndim - 2), *self.position_bias.shape)
        score = jnp.einsum("...hp,...whp->...hw", query, keys) + jnp.einsum("...hp,whp->...hw", shifted, self.position)
        score = jnp.where(seen[..., None, :], score / np.sqrt(query.shape[-1]), -jnp.inf)
        found = jnp.einsum("...hw,...whp->...hp", jax.nn.softmax(score), values)
        y = self.gate(embedded, nn.relu(self.mix(found.reshape(*found.shape[:-2], -1))))
        return self.gate_out(y, nn.relu(self.out(nn.relu(self.hidden(self.norm_out(y))))))

    def __call__(self, x: Array) -> Array:
        embedded = self.embed(x)
        keys, values = (jnp.repeat(part[..., None, :, :], self.window + 1, axis=-3) for part in self.look(embedded))
        return self.attend(embedded, keys, values, jnp.ones((*x.shape[:-1], self.window + 1), bool))


def transformer(size: int, window: int) -> Memory:
    """A gated transformer (Parisotto et al. 2020, arXiv 1910.06764), one block of it, that sees ``window`` steps back.

    Attention over its own input and those before it, with learned embeddings of how far back they are (in place of the
    sinusoids of Dai et al. 2019, arXiv 1901.02860, eq. (d) in section 3.3), and a dense network; both behind a `Gate`,
    and normalised before, not after (eq. 5 and 6). It has 4 heads, or 2 or 1 if ``size`` does not divide. The carry is
    the embedded inputs ``[B, window, size]``, oldest first, and which of them there are ``[B, window]`` (0 or 1).
    """
    heads = next(heads for heads in (4, 2, 1) if size % heads == 0)
    module = GatedAttention(size, heads, window)

    def init_carry(num_envs: int) -> tuple[Array, Array]:
        return jnp.zeros((num_envs, window, size)), jnp.zeros((num_envs, window))

    def step(params: PyTree, x: Array, carry: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        embedded = module.apply(params, x, method="embed")
        past, there = carry
        past = jnp.concatenate([past, embedded[..., None, :]], axis=-2)
        there = jnp.concatenate([there, jnp.ones_like(there[..., :1])], axis=-1)
        keys, values = module.apply(params, past, method="look")
        out = module.apply(params, embedded, keys, values, there > 0, method="attend")
        return out, (past[..., 1:, :], there[..., 1:])

    def unroll(params: PyTree, x: Array, carry: tuple[Array, Array], last: Array):
        chex.assert_shape(last, x.shape[:2])
        steps = x.shape[0]
        embedded = module.apply(params, x, method="embed")
        past, there = (jnp.swapaxes(part, 0, 1) for part in carry)  # [window, B, ...]
        inputs = jnp.concatenate([past, embedded])  # [window + T, B, size]
        begins = jnp.concatenate([jnp.zeros_like(last[:1]), last[:-1]])
        number = jnp.cumsum(begins.astype(jnp.int32), axis=0)  # of the episode, within the trajectory
        episode = jnp.concatenate([jnp.where(there > 0, 0, -1), number])
        rows = np.arange(steps)[:, None] + np.arange(window + 1)[None]  # [T, window + 1]

        def windows(part: Array) -> Array:
            return jnp.swapaxes(part[rows], 1, 2)  # [T, B, window + 1, ...]

        keys, values = (windows(part) for part in module.apply(params, inputs, method="look"))
        seen = windows(episode) == number[..., None]
        out = module.apply(params, embedded, keys, values, seen, method="attend")
        kept = seen[..., 1:]
        carries = jnp.where(kept[..., None], windows(inputs)[..., 1:, :], 0.0), kept.astype(jnp.float32)
        return out, carries, restart(jax.tree.map(lambda c: c[-1], carries), init_carry(x.shape[1]), last[-1])

    return Memory(module.init, init_carry, step, unroll)
