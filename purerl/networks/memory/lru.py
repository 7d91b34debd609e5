"""The linear recurrent unit (LRU), unrolled by an associative scan."""

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
from purerl.types import Array, Key, PyTree


class LinearRecurrentUnit(nn.Module):
    """The layers of `linear` before and after the recurrence; ``size`` is the width of embedding, state and output."""

    size: int

    def setup(self) -> None:
        """Makes the layers."""
        n = self.size
        self.embed, self.norm = layers.dense(n, np.sqrt(2)), nn.LayerNorm()
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
        self.gate, self.value = layers.dense(n, 1.0), layers.dense(n, 1.0)

    def before(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Returns the embedded input, the same normalised, the input to the state, and lambda.

        All but lambda ``[size]`` are ``[..., size]``; the last two are complex.
        """
        embedded = self.embed(x)
        u = self.norm(embedded)
        added = jnp.exp(like(self.log_gamma, u)) * jax.lax.complex(u @ self.into_real, u @ self.into_imag)
        size, phase = jnp.exp(-jnp.exp(self.log_nu)), jnp.exp(self.log_theta)
        return embedded, u, added, jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase))

    def after(self, embedded: Array, u: Array, state: Array) -> Array:
        """Returns the output ``embedded + value * sigmoid(gate)``; ``value`` and ``gate`` are linear in ``gelu(y)``."""
        y = jnp.real(state) @ self.out_real - jnp.imag(state) @ self.out_imag + like(self.direct, u) * u
        y = nn.gelu(y)
        return embedded + self.value(y) * nn.sigmoid(self.gate(y))

    def __call__(self, x: Array) -> Array:
        """Returns the output where the input is the whole state: ``init`` traces it."""
        embedded, u, added, _ = self.before(x)
        return self.after(embedded, u, added)


def _ring(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws initial ``log nu``, such that the squared moduli ``exp(-2 nu)`` are uniform in [0.9^2, 0.999^2]."""
    low, high = 0.9**2, 0.999**2
    return jnp.log(-0.5 * jnp.log(low + (high - low) * jax.random.uniform(key, shape)))


def _phases(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws initial ``log theta``, for phases uniform in [0.001, pi / 10)."""
    return jnp.log(jax.random.uniform(key, shape, minval=1e-3, maxval=np.pi / 10))


def linear(size: int) -> Memory:
    """Makes one block of the linear recurrent unit (Orvieto et al. 2023, arXiv 2303.06349) with ``size`` units.

    ``state[t] = lambda * state[t-1] + gamma * (B u[t])`` with ``lambda = exp(-nu + i theta)``, complex and diagonal
    (eq. 6 and 7), and ``y = Re(C state) + D u``; then a gated linear unit and a residual connection. ``unroll`` is an
    associative scan in which lambda is zero at the first step of an episode, as in Lu et al. 2023 (arXiv 2303.03982,
    section 4). The carry is the state ``[B, 2, size]``, real and imaginary part. ``init`` consumes its key.
    """
    module = LinearRecurrentUnit(size)
    apply: Callable[..., Any] = module.apply

    def init_carry(num_envs: int) -> Array:
        return jnp.zeros((num_envs, 2, size))

    def as_complex(carry: Array) -> Array:
        return jax.lax.complex(carry[..., 0, :], carry[..., 1, :])

    def as_carry(state: Array) -> Array:
        return jnp.stack([jnp.real(state), jnp.imag(state)], axis=-2)

    def step(params: PyTree, x: Array, carry: Array) -> tuple[Array, Array]:
        embedded, u, added, factor = apply(params, x, method="before")
        state = like(factor, added) * as_complex(carry) + added
        return apply(params, embedded, u, state, method="after"), as_carry(state)

    def unroll(params: PyTree, x: Array, carry: Array, last: Array) -> tuple[Array, Array, Array]:
        chex.assert_shape(last, x.shape[:2])
        embedded, u, added, factor = apply(params, x, method="before")
        begins = jnp.concatenate([jnp.zeros_like(last[:1]), last[:-1]])
        factors = jnp.where(begins[..., None], 0.0, like(factor, added))
        added = added.at[0].add(factors[0] * as_complex(carry))

        def join(early: tuple[Array, Array], late: tuple[Array, Array]) -> tuple[Array, Array]:
            return early[0] * late[0], late[0] * early[1] + late[1]

        _, state = jax.lax.associative_scan(join, (factors, added))
        carries = as_carry(state)
        out = apply(params, embedded, u, state, method="after")
        return out, carries, restart(carries[-1], init_carry(x.shape[1]), last[-1])

    return Memory(module.init, init_carry, step, unroll)
