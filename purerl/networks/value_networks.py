"""Networks of action values: dueling streams, noisy layers, atoms and implicit quantiles.

``N`` observations, ``A`` actions, ``K`` atoms or quantiles of a distribution of returns, ``F`` features of a torso.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw, spaces, trees
from purerl.errors import ConfigError
from purerl.formulas import exploration
from purerl.networks import layers, torsos
from purerl.spaces import Space
from purerl.types import Array, Key, PyTree

__all__ = ["ValueNetwork", "implicit_quantile_network", "legal_only", "q_network"]


class ValueNetwork(NamedTuple):
    """Action values, or their distributions.

    ``noise(key, shape)`` draws the randomness of learning for ``shape`` many forward passes, one element for each
    observation; ``acting_noise(key, shape)`` draws that of acting. Both consume their key. ``still(shape)`` stands for
    no randomness, in evaluation.
    """

    init: Callable[[Key, PyTree], PyTree]  # (key, obs [N, ...]) -> params
    apply: Callable[[PyTree, PyTree, PyTree], PyTree]  # (params, obs [N, ...], noise [N, ...]) -> out [N, ...]
    noise: Callable[[Key, tuple[int, ...]], PyTree]
    acting_noise: Callable[[Key, tuple[int, ...]], PyTree]
    still: Callable[[tuple[int, ...]], PyTree]


class NoisyDense(nn.Module):
    """A dense layer whose weights are perturbed anew for each input. ``[..., in], [..., in + size] -> [..., size]``.

    Factorised Gaussian noise, Fortunato et al. 2018 (arXiv 1706.10295), eq. 9 to 11: the standard normal ``noise`` is
    ``in`` numbers and ``size`` numbers, and the weight from ``i`` to ``j`` is ``mean + deviation * f(noise_i) *
    f(noise_j)`` with ``f(x) = sign(x) sqrt|x|``, the bias ``mean + deviation * f(noise_j)``. Initial values are those
    of section 3.2, with sigma_0 = 0.5.
    """

    size: int

    @nn.compact
    def __call__(self, x: Array, noise: Array) -> Array:
        """Returns the outputs ``[..., size]`` for inputs ``x`` and ``noise``."""
        bound = 1 / np.sqrt(x.shape[-1])
        chex.assert_shape(noise, (*x.shape[:-1], x.shape[-1] + self.size))
        inward, outward = jnp.split(jnp.sign(noise) * jnp.sqrt(jnp.abs(noise)), [x.shape[-1]], axis=-1)

        def uniform(key: Key, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
            return draw.uniform(key, shape, -bound, bound).astype(dtype)

        constant = nn.initializers.constant(0.5 * bound)
        mean = nn.Dense(self.size, kernel_init=uniform, bias_init=uniform, name="mean")
        deviation = nn.Dense(self.size, kernel_init=constant, bias_init=constant, name="deviation")
        return mean(x) + outward * deviation(inward * x)


def plain(x: Array, noise: PyTree, size: int, scale: float) -> Array:
    """Applies a dense layer without noise, as the ``layer`` of `Streams`: ``noise`` is ``()``."""
    return layers.dense(size, scale)(x)


def noisy_dense(x: Array, noise: Array, size: int, scale: float) -> Array:
    """Applies `NoisyDense`, as the ``layer`` of `Streams`. Its initial values do not depend on ``scale``."""
    return NoisyDense(size)(x, noise)


class Streams(nn.Module):
    """Features ``[..., F]`` to action values ``[..., A]``, or with ``num_atoms`` to ``[..., A, K]``.

    A stream is a hidden layer of ``width`` and a linear layer. A single stream gives the values of all actions; with
    ``dueling`` there are two, and the result is ``value + advantage - mean over actions of advantage`` (Wang et al.
    2016, arXiv 1511.06581, eq. 9), for each atom (Hessel et al. 2018, arXiv 1710.02298). ``layer`` is `plain` or
    `noisy_dense`. ``noise`` is ``()`` or one vector ``[..., sum(noise_sizes(F))]``, which is split among the layers.
    """

    num_actions: int
    width: int
    activation: Callable[[Array], Array]
    dueling: bool
    num_atoms: int | None = None
    layer: Callable[[Array, PyTree, int, float], Array] = plain

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of outputs of each stream: of values, or of the value and of the advantages."""
        atoms = self.num_atoms or 1
        return (atoms, self.num_actions * atoms) if self.dueling else (self.num_actions * atoms,)

    def noise_sizes(self, num_features: int) -> list[int]:
        """Returns the number of inputs and outputs of each layer, first both layers of one stream, then of the next."""
        return [n for size in self.sizes for n in (num_features + self.width, self.width + size)]

    @nn.compact
    def __call__(self, features: Array, noise: PyTree = ()) -> Array:
        """Returns the action values of features."""
        parts, streams = iter(_cut(noise, self.noise_sizes(features.shape[-1]))), []
        for size in self.sizes:
            hidden = self.activation(self.layer(features, next(parts), self.width, np.sqrt(2)))
            out = self.layer(hidden, next(parts), size, 0.01)
            streams.append(out.reshape(*out.shape[:-1], -1, self.num_atoms or 1))  # [..., A or 1, K]
        values = streams[-1]
        if self.dueling:
            values = streams[0] + values - jnp.mean(values, axis=-2, keepdims=True)
        return values if self.num_atoms else jnp.squeeze(values, axis=-1)


def _cut(noise: PyTree, sizes: list[int]) -> list[PyTree]:
    """Splits the last axis into parts of these ``sizes``."""
    chex.assert_tree_shape_suffix(noise, (sum(sizes),))
    ends = np.cumsum(sizes)
    return [
        jax.tree.map(lambda x, start=end - size, end=end: x[..., start:end], noise)
        for size, end in zip(sizes, ends, strict=True)
    ]


class TorsoAndStreams(nn.Module):
    """A torso, and `Streams` on its features."""

    torso: nn.Module
    streams: Streams

    def __call__(self, obs: PyTree, noise: PyTree) -> Array:
        """Returns the action values of observations."""
        return self.streams(self.torso(obs), noise)


def cosines(taus: Array, num_cosines: int) -> Array:
    """Computes ``cos(pi i tau)`` for ``i = 0 .. num_cosines - 1``. ``[...] -> [..., num_cosines]``."""
    return jnp.cos(jnp.multiply.outer(taus, jnp.pi * jnp.arange(num_cosines)))


class ImplicitQuantiles(nn.Module):
    """Quantiles ``[N, A, K]`` of the return at ``taus`` ``[N, K]``, and ``taus``.

    Dabney et al. 2018 (arXiv 1806.06923), eq. 4: ``phi_j(tau) = relu(sum_i cos(pi i tau) w_ij + b_j)`` multiplies the
    features, and the streams compute action values of each product.
    """

    torso: nn.Module
    streams: Streams
    num_cosines: int

    @nn.compact
    def __call__(self, obs: PyTree, taus: Array) -> tuple[Array, Array]:
        """Returns the quantiles ``[N, A, K]``, and ``taus``."""
        features = self.torso(obs)
        chex.assert_equal_rank([features, taus])
        chex.assert_equal_shape_prefix([features, taus], features.ndim - 1)
        phi = nn.relu(layers.dense(features.shape[-1], np.sqrt(2))(cosines(taus, self.num_cosines)))  # [N, K, F]
        values = self.streams(jnp.expand_dims(features, -2) * phi)  # [N, K, A]
        return jnp.swapaxes(values, -1, -2), taus


def q_network(
    space: Space,
    num_actions: int,
    hidden_sizes: Sequence[int],
    activation: str,
    *,
    dueling: bool,
    layer_norm: bool = False,
    convolutions: torsos.Convolutions = torsos.Convolutions(),  # noqa: B008  # immutable
    num_atoms: int | None = None,
    noisy: bool = False,
) -> ValueNetwork:
    """Makes a network of action values ``[N, A]``, or ``[N, A, K]`` with ``num_atoms``.

    The ``noise`` of the network is ``()``. With ``noisy`` it is standard normal ``[N, D]``, acting draws it likewise,
    and ``still`` is zeros, which leaves the mean weights.

    Args:
        space: The space of observations.
        num_actions: The number ``A`` of actions.
        hidden_sizes: Units of the dense layers; the last is the width of the `Streams`, the others are the torso's.
        activation: The name of an activation function, see `torso`.
        dueling: Whether there are streams of the value and of the advantages.
        layer_norm: Whether the torso normalises, see `torso`.
        convolutions: The torso's convolutions for images.
        num_atoms: The number ``K`` of atoms or quantiles; None: plain action values.
        noisy: Whether the layers of the streams are `NoisyDense`.

    Raises:
        ValueError: ``hidden_sizes`` is empty.
    """
    *torso_sizes, width = hidden_sizes
    torso = torsos.torso(space, tuple(torso_sizes), activation, layer_norm, convolutions)
    layer = noisy_dense if noisy else plain
    streams = Streams(num_actions, width, layers.ACTIVATIONS[activation], dueling, num_atoms, layer)
    module = TorsoAndStreams(torso, streams)
    if not noisy:
        return _bundle(module, lambda key, shape: (), lambda key, shape: (), lambda shape: ())
    size = sum(streams.noise_sizes(_num_features(torso, space)))

    def noise(key: Key, shape: tuple[int, ...]) -> Array:
        return draw.normal(key, (*shape, size))

    return _bundle(module, noise, noise, lambda shape: jnp.zeros((*shape, size)))


def implicit_quantile_network(
    space: Space,
    num_actions: int,
    hidden_sizes: Sequence[int],
    activation: str,
    *,
    dueling: bool,
    layer_norm: bool = False,
    convolutions: torsos.Convolutions = torsos.Convolutions(),  # noqa: B008  # immutable
    num_quantiles: int,
    num_cosines: int,
    level: Array | float,
) -> ValueNetwork:
    """Makes a network of quantiles of the return, ``(quantiles [N, A, K], taus [N, K])``: `ImplicitQuantiles`.

    ``noise`` is ``num_quantiles`` uniform taus; ``apply`` takes any number of them. ``acting_noise`` is ``level`` times
    such taus, and ``still`` is the midpoints ``(k + 0.5) / K * level``. The mean of the quantiles is then the
    conditional value at risk: the mean of the lower part ``level`` of the returns.

    Args:
        space: The space of observations.
        num_actions: The number ``A`` of actions.
        hidden_sizes: Units of the dense layers, as in `q_network`.
        activation: The name of an activation function, see `torso`.
        dueling: Whether there are streams of the value and of the advantages.
        layer_norm: Whether the torso normalises, see `torso`.
        convolutions: The torso's convolutions for images.
        num_quantiles: The number ``K`` of quantiles that are drawn.
        num_cosines: The number of cosines that embed a tau.
        level: In ``(0, 1]``; may be traced. 1 gives the plain mean.

    Raises:
        ValueError: ``hidden_sizes`` is empty.
    """
    *torso_sizes, width = hidden_sizes
    torso = torsos.torso(space, tuple(torso_sizes), activation, layer_norm, convolutions)
    streams = Streams(num_actions, width, layers.ACTIVATIONS[activation], dueling)

    def noise(key: Key, shape: tuple[int, ...]) -> Array:
        return draw.uniform(key, (*shape, num_quantiles))

    def still(shape: tuple[int, ...]) -> Array:
        midpoints = (jnp.arange(num_quantiles, dtype=jnp.float32) + 0.5) / num_quantiles * level
        return jnp.broadcast_to(midpoints, (*shape, num_quantiles))

    module = ImplicitQuantiles(torso, streams, num_cosines)
    return _bundle(module, noise, lambda key, shape: level * noise(key, shape), still)


def as_value_network(network: Any) -> ValueNetwork:
    """Returns ``network`` itself, or the `ValueNetwork` of a Flax Linen module.

    The module maps ``obs [N, ...]`` to ``out [N, ...]``, without noise.

    Raises:
        ConfigError: ``network`` is neither.
    """
    if isinstance(network, ValueNetwork):
        return network
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"network: is {type(network).__name__}; must be a value_networks.ValueNetwork, or a Flax Linen module from "
            "observations to what the algorithm learns"
        )
    nothing = lambda *_: ()
    return ValueNetwork(network.init, lambda params, obs, noise: network.apply(params, obs), nothing, nothing, nothing)


def legal_only(network: ValueNetwork, legal: Callable[[PyTree], Array | None]) -> ValueNetwork:
    """Masks a network of action values ``[N, A]``: those of illegal actions become `exploration.ILLEGAL`.

    ``legal`` is that of `Env`: the mask of actions that an observation allows, or None for all.
    """

    def apply(params: PyTree, obs: PyTree, noise: PyTree) -> Array:
        return exploration.masked(network.apply(params, obs, noise), legal(obs))

    return network._replace(apply=apply)


def _bundle(
    module: nn.Module, noise: Callable[..., Any], acting_noise: Callable[..., Any], still: Callable[..., Any]
) -> ValueNetwork:
    return ValueNetwork(
        init=lambda key, obs: module.init(key, obs, still((trees.length(obs),))),
        apply=module.apply,
        noise=noise,
        acting_noise=acting_noise,
        still=still,
    )


def _num_features(torso: nn.Module, space: Space) -> int:
    """Returns the length of the vector that ``torso`` makes of an observation; nothing is computed."""
    obs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), spaces.struct(space))
    features, _ = jax.eval_shape(torso.init_with_output, jax.random.key(0), obs)
    return features.shape[-1]
