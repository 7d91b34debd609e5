"""Layers that remember: the gated cells of LSTM and GRU, a linear recurrent unit, a gated transformer.

All are a `Memory`, so whoever unrolls one knows nothing of what is inside.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import networks
from purerl.types import Array, Key, PyTree

MEMORIES = ("gru", "lstm", "lru", "gtrxl")


class Memory(NamedTuple):
    """A layer with a ``carry``, ``[B, ...]`` leading, which is zeros at the start of an episode.

    ``unroll`` begins a new episode after each step whose ``last`` is true. Besides what the layer puts out it returns
    the carries as each step leaves them, whatever its ``last``, and the carry with which the next step begins.
    """

    init: Callable[[Key, Array], PyTree]  # (key, x [B, F]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    step: Callable[[PyTree, Array, PyTree], tuple[Array, PyTree]]
    # (params, x [..., F], carry [...]) -> (out [..., size], carry [...])
    unroll: Callable[[PyTree, Array, PyTree, Array], tuple[Array, PyTree, PyTree]]
    # (params, x [T, B, F], carry [B], last [T, B]) -> (out [T, B, size], carries [T, B], carry [B])


def restart(carry: PyTree, initial: PyTree, last: Array) -> PyTree:
    """A carry ``[B, ...]``, and ``initial`` instead for the environments whose episode ended, ``last`` ``[B]``."""
    return jax.tree.map(lambda new, old: jnp.where(last.reshape(-1, *[1] * (new.ndim - 1)), old, new), carry, initial)


def make(kind: Literal["gru", "lstm", "lru", "gtrxl"], size: int, window: int = 32) -> Memory:
    """A memory of ``size`` outputs: ``gru`` and ``lstm`` are `cell`, ``lru`` is `linear`, ``gtrxl`` is `transformer`,
    which sees ``window`` steps back."""
    if kind == "lru":
        return linear(size)
    return transformer(size, window) if kind == "gtrxl" else cell(kind, size)


def cell(kind: Literal["gru", "lstm"], size: int) -> Memory:
    """A gated cell of ``size`` units, stepped in a scan.

    ``gru``: Cho et al. 2014 (arXiv 1406.1078), with the reset gate on the recurrent product as in Flax. ``lstm``:
    Hochreiter & Schmidhuber 1997, with a forget gate (Gers et al. 2000) whose bias begins as 1 (Jozefowicz et al. 2015,
    section 2.2). Recurrent kernels are `networks.orthogonal`.
    """
    module = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}[kind](size, recurrent_kernel_init=networks.orthogonal())

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

        carry, (out, carries) = jax.lax.scan(advance, carry, (x, last))
        return out, carries, carry

    return Memory(init, init_carry, step, unroll)


class LinearRecurrentUnit(nn.Module):
    """What `linear` computes before and after its recurrence; ``size`` is the width of input, state and output."""

    size: int

    def setup(self):
        n = self.size
        self.embed, self.norm = networks.dense(n, np.sqrt(2)), nn.LayerNorm()
        self.log_nu = self.param("log_nu", _ring, (n,))
        self.log_theta = self.param("log_theta", _phases, (n,))
        self.log_gamma = self.param("log_gamma", lambda key: 0.5 * jnp.log(-jnp.expm1(-2 * jnp.exp(self.log_nu))))
        scaled = nn.initializers.normal(1 / np.sqrt(2 * n))
        self.into_real, self.into_imag = (
            self.param("into_real", scaled, (n, n)),
            self.param("into_imag", scaled, (n, n)),
        )
        scaled = nn.initializers.normal(1 / np.sqrt(n))
        self.out_real, self.out_imag = self.param("out_real", scaled, (n, n)), self.param("out_imag", scaled, (n, n))
        self.direct = self.param("direct", nn.initializers.normal(1.0), (n,))
        self.gate, self.value = networks.dense(n, 1.0), networks.dense(n, 1.0)

    def before(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """The embedded input, the same normalised, what it adds to the state (complex), and the state's factor."""
        embedded = self.embed(x)
        u = self.norm(embedded)
        added = jnp.exp(_wide(self.log_gamma, u)) * jax.lax.complex(u @ self.into_real, u @ self.into_imag)
        size, phase = jnp.exp(-jnp.exp(self.log_nu)), jnp.exp(self.log_theta)
        return embedded, u, added, jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase))

    def after(self, embedded: Array, u: Array, state: Array) -> Array:
        """``embedded + value * sigmoid(gate)``, both linear in ``gelu`` of the unit's output."""
        y = jnp.real(state) @ self.out_real - jnp.imag(state) @ self.out_imag + _wide(self.direct, u) * u
        y = nn.gelu(y)
        return embedded + self.value(y) * nn.sigmoid(self.gate(y))

    def __call__(self, x: Array) -> Array:
        embedded, u, added, _ = self.before(x)
        return self.after(embedded, u, added)


def _ring(key: Key, shape: tuple[int, ...]) -> Array:
    """``log nu`` for moduli ``exp(-nu)`` whose squares are uniform between those of 0.9 and 0.999."""
    low, high = 0.9**2, 0.999**2
    return jnp.log(-0.5 * jnp.log(low + (high - low) * jax.random.uniform(key, shape)))


def _phases(key: Key, shape: tuple[int, ...]) -> Array:
    """``log theta`` for phases uniform in (0, pi / 10)."""
    return jnp.log(jax.random.uniform(key, shape, minval=1e-3, maxval=np.pi / 10))


def _wide(vector: Array, like: Array) -> Array:
    """``[n]`` with leading axes of length one, to combine with ``like`` without rank promotion."""
    return vector.reshape(*[1] * (like.ndim - 1), -1)


def linear(size: int) -> Memory:
    """The linear recurrent unit (Orvieto et al. 2023, arXiv 2303.06349), one block of it.

    ``state[t] = lambda * state[t-1] + gamma * (B u[t])`` with ``lambda = exp(-nu + i theta)``, complex and diagonal
    (eq. 6 and 7), and ``y = Re(C state) + D u``; then a gated linear unit and a residual connection. ``unroll`` is an
    associative scan: where an episode ended before a step, the state's factor is zero, as Lu et al. 2023
    (arXiv 2303.03982, section 4) reset theirs. The carry is ``[B, 2, size]``, real and imaginary.
    """
    module = LinearRecurrentUnit(size)

    def init_carry(num_envs: int) -> Array:
        return jnp.zeros((num_envs, 2, size))

    def as_complex(carry: Array) -> Array:
        return jax.lax.complex(carry[..., 0, :], carry[..., 1, :])

    def as_carry(state: Array) -> Array:
        return jnp.stack([jnp.real(state), jnp.imag(state)], axis=-2)

    def step(params: PyTree, x: Array, carry: Array) -> tuple[Array, Array]:
        embedded, u, added, factor = module.apply(params, x, method="before")
        state = _wide(factor, added) * as_complex(carry) + added
        return module.apply(params, embedded, u, state, method="after"), as_carry(state)

    def unroll(params: PyTree, x: Array, carry: Array, last: Array) -> tuple[Array, Array, Array]:
        chex.assert_shape(last, x.shape[:2])
        embedded, u, added, factor = module.apply(params, x, method="before")
        begins = jnp.concatenate([jnp.zeros_like(last[:1]), last[:-1]])
        factors = jnp.where(begins[..., None], 0.0, _wide(factor, added))
        added = added.at[0].add(factors[0] * as_complex(carry))

        def join(early: tuple[Array, Array], late: tuple[Array, Array]) -> tuple[Array, Array]:
            return early[0] * late[0], late[0] * early[1] + late[1]

        _, state = jax.lax.associative_scan(join, (factors, added))
        carries = as_carry(state)
        out = module.apply(params, embedded, u, state, method="after")
        return out, carries, restart(carries[-1], init_carry(x.shape[1]), last[-1])

    return Memory(module.init, init_carry, step, unroll)


class Gate(nn.Module):
    """What two streams become: ``(1 - z) * x + z * h``, the gated recurrent unit of GTrXL (eq. 7 there).

    ``r = sigmoid(W_r y + U_r x)``, ``z = sigmoid(W_z y + U_z x - bias)``, ``h = tanh(W_h y + U_h (r * x))``. The bias
    begins as 2, which leaves most of ``x`` as it is.
    """

    @nn.compact
    def __call__(self, x: Array, y: Array) -> Array:
        size = x.shape[-1]

        def linear(name: str, of: Array) -> Array:
            return nn.Dense(size, use_bias=False, kernel_init=networks.orthogonal(), name=name)(of)

        bias = _wide(self.param("bias", nn.initializers.constant(2.0), (size,)), x)
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
        self.embedding = networks.dense(self.size, np.sqrt(2))
        self.norm, self.norm_out = nn.LayerNorm(), nn.LayerNorm()
        self.query, self.key, self.value = (
            nn.DenseGeneral((self.heads, parts), kernel_init=nn.initializers.lecun_normal()) for _ in range(3)
        )
        small = nn.initializers.normal(0.02)
        self.position = self.param("position", small, (self.window + 1, self.heads, parts))
        self.position_bias = self.param("position_bias", nn.initializers.zeros, (self.heads, parts))
        self.mix, self.hidden, self.out = (networks.dense(self.size, np.sqrt(2)) for _ in range(3))
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
