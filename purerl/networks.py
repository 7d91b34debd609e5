"""Torsos, heads and the orthogonal initialiser."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.types import Array, Key, PyTree, Space

ACTIVATIONS = {"tanh": nn.tanh, "relu": nn.relu, "silu": nn.silu, "gelu": nn.gelu, "elu": nn.elu}


def orthogonal(scale: float = 1.0) -> Callable[..., Array]:
    """An initialiser of ``[..., in, out]`` kernels with orthonormal rows or columns, times ``scale``.

    Saxe et al. 2014 (arXiv 1312.6120). Gram-Schmidt on Gaussian columns, run twice over ("twice is enough", Giraud et
    al. 2005) gives the factor Q of the QR decomposition with a positive diagonal in R, which is uniformly distributed
    over the orthogonal matrices. It is plain array arithmetic: batched LAPACK calls, which several initialisers under
    vmap become, deadlock XLA on CPU.
    """

    def init(key: Key, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        tall = draw.normal(key, (max(rows, columns), min(rows, columns)))

        def orthogonalise(i, basis):
            column = jax.lax.dynamic_slice_in_dim(basis, i, 1, axis=1)
            done = jnp.where(jnp.arange(basis.shape[1])[None] < i, basis, 0.0)
            for _ in range(2):
                along = jnp.sum(done * column, axis=0, keepdims=True)
                column = column - jnp.sum(done * along, axis=1, keepdims=True)
            column = column * jax.lax.rsqrt(jnp.sum(jnp.square(column)))
            return jax.lax.dynamic_update_slice_in_dim(basis, column, i, axis=1)

        basis = jax.lax.fori_loop(0, tall.shape[1], orthogonalise, tall)
        return (scale * (basis if rows >= columns else basis.T)).reshape(shape).astype(dtype)

    return init


def dense(size: int, scale: float) -> nn.Dense:
    """A dense layer with an orthogonal kernel and no bias at the start."""
    return nn.Dense(size, kernel_init=orthogonal(scale))


class MLP(nn.Module):
    """Flattens the last ``obs_ndim`` axes, then dense ``hidden_sizes``. ``[..., *obs] -> [..., features]``.

    With ``layer_norm`` each dense layer is normalised over its units before the activation (Ba et al. 2016,
    arXiv 1607.06450), as PQN needs (Gallici et al. 2024, arXiv 2407.04811). Without ``hidden_sizes`` the features are
    the flattened observation.
    """

    hidden_sizes: Sequence[int]
    activation: Callable[[Array], Array] = nn.tanh
    obs_ndim: int = 1
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        x = obs.astype(jnp.float32).reshape(*obs.shape[: obs.ndim - self.obs_ndim], -1)
        for size in self.hidden_sizes:
            x = dense(size, np.sqrt(2))(x)
            x = self.activation(nn.LayerNorm()(x) if self.layer_norm else x)
        return x


class Conv(nn.Module):
    """A 3x3 convolution, orthogonal at the start. ``[..., H, W, C] -> [..., H - 2, W - 2, features]``.

    With ``pad`` a border of zeros keeps height and width. It is one matrix product over all patches.
    `flax.linen.Conv`'s gradient with respect to its kernel takes ten times as long in a loop on CPU, and a `jax.vmap`
    over kernels turns it into a grouped convolution.
    """

    features: int
    pad: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", orthogonal(np.sqrt(2)), (3, 3, x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        patches = jnp.concatenate(windows(_border(x, 0.0) if self.pad else x), axis=-1)
        out = patches @ kernel.reshape(-1, self.features)
        return out + bias.reshape(*[1] * (out.ndim - 1), -1)


def windows(x: Array) -> list[Array]:
    """The elements of each 3x3 window of ``[..., H, W, C]``, row by row: nine arrays ``[..., H - 2, W - 2, C]``."""
    height, width = x.shape[-3] - 2, x.shape[-2] - 2
    return [x[..., i : i + height, j : j + width, :] for i in range(3) for j in range(3)]


def _border(x: Array, value: float, low: tuple[int, int] = (1, 1)) -> Array:
    """``[..., H, W, C]`` with ``low`` rows and columns of ``value`` before it, and one of each behind."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(low[0], 1), (low[1], 1), (0, 0)], constant_values=value)


def halve(x: Array) -> Array:
    """The maximum of every second 3x3 window. ``[..., H, W, C] -> [..., ceil(H / 2), ceil(W / 2), C]``.

    `flax.linen.max_pool` with stride 2 and padding "SAME", whose gradient takes longer on CPU.
    """
    bordered = _border(x, -jnp.inf, low=(x.shape[-3] % 2, x.shape[-2] % 2))
    return functools.reduce(jnp.maximum, windows(bordered))[..., ::2, ::2, :]


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


class Head(nn.Module):
    """A torso and a linear layer. ``free`` more outputs are parameters that do not depend on the observation."""

    torso: nn.Module
    size: int
    scale: float
    free: int = 0

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        out = dense(self.size, self.scale)(self.torso(obs))
        if self.free:
            shared = self.param("free", nn.initializers.zeros, (self.free,))
            out = jnp.concatenate([out, jnp.broadcast_to(shared, (*out.shape[:-1], self.free))], axis=-1)
        return out


class ActorCritic(NamedTuple):
    """A policy, as distribution parameters, and its value; with a memory, or with ``()`` for its ``carry``.

    ``unroll`` begins a new episode after each step whose ``last`` is true, and returns the carries as each step leaves
    them. Without a memory, any leading axes will do everywhere.
    """

    init: Callable[[Key, Array], PyTree]  # (key, obs [B, ...]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    act: Callable[[PyTree, Array, PyTree], tuple[Array, PyTree]]
    # (params, obs [B, ...], carry) -> (policy [B, num_params], carry)
    unroll: Callable[[PyTree, Array, PyTree, Array], tuple[Array, Array, PyTree]]
    # (params, obs [T, B, ...], carry, last [T, B]) -> (policy [T, B, num_params], value [T, B], carries [T, B, ...])
    value: Callable[[PyTree, Array, PyTree], Array]  # (params, obs [..., *obs], carry [...]) -> [...]


def actor_critic(actor: nn.Module, critic: nn.Module) -> ActorCritic:
    """Two modules without memory that share nothing: the actor puts out distribution parameters, the critic
    ``[..., K]`` predictions, or ``[..., 1]`` for a value ``[...]``."""

    def init(key: Key, obs: Array) -> PyTree:
        key_actor, key_critic = jax.random.split(key)
        return {"actor": actor.init(key_actor, obs), "critic": critic.init(key_critic, obs)}

    def policy(params: PyTree, obs: Array) -> Array:
        return actor.apply(params["actor"], obs)

    def value(params: PyTree, obs: Array, carry: PyTree = ()) -> Array:
        return predictions(critic.apply(params["critic"], obs))

    return ActorCritic(
        init=init,
        init_carry=lambda num_envs: (),
        act=lambda params, obs, carry: (policy(params, obs), carry),
        unroll=lambda params, obs, carry, last: (policy(params, obs), value(params, obs), ()),
        value=value,
    )


def predictions(out: Array) -> Array:
    """What a critic puts out, ``[..., K]``; a single prediction without its axis."""
    return jnp.squeeze(out, axis=-1) if out.shape[-1] == 1 else out


def merge(tree: PyTree, ndim: int) -> PyTree:
    """The first ``ndim`` axes of every leaf made one. What is summed over them then has the same bits alone and under
    vmap; sums over two axes take other orders there."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[ndim:]), tree)


def split(tree: PyTree, shape: tuple[int, ...]) -> PyTree:
    """The first axis of every leaf made ``shape`` again."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), tree)


class PolicyAndValue(nn.Module):
    """Two `Head`s on the same features ``[..., F]``: ``(policy [..., size], value [...])``, each with a dense layer of
    ``width`` before it. ``free`` more parameters of the policy do not depend on the features. With several
    ``num_predictions`` the value is ``[..., num_predictions]``."""

    width: int
    size: int
    free: int
    activation: Callable[[Array], Array]
    num_predictions: int = 1

    @nn.compact
    def __call__(self, features: Array) -> tuple[Array, Array]:
        hidden = MLP((self.width,), self.activation), MLP((self.width,), self.activation)
        policy = Head(hidden[0], self.size, scale=0.01, free=self.free)(features)
        return policy, predictions(Head(hidden[1], self.num_predictions, scale=1.0)(features))
