"""Action distributions, as `Distribution` bundles of functions of a policy network's outputs."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw, spaces
from purerl.spaces import Box, Discrete, MultiDiscrete, Space
from purerl.trees import like
from purerl.types import Array, Distribution, Key

__all__ = ["categorical", "for_space", "gaussian", "integers", "joint", "product"]


def categorical(num_actions: int) -> Distribution:
    """Makes a categorical distribution over the actions ``0 .. A - 1``, with ``A = num_actions``.

    The parameters are logits ``[..., A]``, the noise is standard Gumbel ``[..., A]``, actions are int32 ``[...]``.
    Sampling is the Gumbel-max trick: ``argmax(logits + noise)``.
    """

    def log_prob(logits: Array, action: Array) -> Array:
        log_probs = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.where(action[..., None] == _actions(logits), log_probs, 0.0), axis=-1)

    def entropy(logits: Array) -> Array:
        log_probs = jax.nn.log_softmax(logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

    return Distribution(
        num_params=num_actions,
        num_free=0,
        noise=lambda key, shape: draw.gumbel(key, (*shape, num_actions)),
        sample=lambda logits, noise: jnp.argmax(logits + noise, axis=-1).astype(jnp.int32),
        mode=lambda logits: jnp.argmax(logits, axis=-1).astype(jnp.int32),
        log_prob=log_prob,
        entropy=entropy,
    )


def _actions(logits: Array) -> Array:
    """Returns ``0 .. A - 1``, with leading axes of length 1 for the comparison with ``action[..., None]``."""
    return jnp.arange(logits.shape[-1]).reshape((1,) * (logits.ndim - 1) + (-1,))


def gaussian(space: Box) -> Distribution:
    """Makes a diagonal Gaussian over a Box of ``D`` dimensions.

    The parameters are means and log standard deviations ``[..., 2 * D]``, in units in which the Box is [-1, 1]; a
    dimension without finite bounds keeps its own units. The noise is standard normal ``[..., D]``. Actions have the
    shape and the units of ``space``. They may lie outside the Box: environments clip them. A dimension whose bounds are
    equal is a constant, without a share in log-probability and entropy.
    """
    size = int(np.prod(space.shape))
    centre, scale = spaces.unit(space)
    moves = np.ravel(scale) > 0
    count, divisor = int(np.sum(moves)), scale + (scale == 0)
    log_scale = np.sum(np.log(divisor))

    def total(x: Array) -> Array:
        """Sums over the dimensions that are not constant."""
        return jnp.sum(x if count == size else jnp.where(like(moves, x), x, 0.0), axis=-1)

    def to_action(unit: Array) -> Array:
        unit = unit.reshape(*unit.shape[:-1], *space.shape)
        return unit * like(scale, unit) + like(centre, unit)

    def log_prob(params: Array, action: Array) -> Array:
        mean, log_std = jnp.split(params, 2, axis=-1)
        unit = ((action - like(centre, action)) / like(divisor, action)).reshape(mean.shape)
        z = (unit - mean) * jnp.exp(-log_std)
        return -total(0.5 * jnp.square(z) + log_std) - (0.5 * count * np.log(2 * np.pi) + log_scale)

    def entropy(params: Array) -> Array:
        log_std = jnp.split(params, 2, axis=-1)[1]
        return total(log_std) + (0.5 * count * np.log(2 * np.pi * np.e) + log_scale)

    def sample(params: Array, noise: Array) -> Array:
        mean, log_std = jnp.split(params, 2, axis=-1)
        return to_action(mean + jnp.exp(log_std) * noise)

    return Distribution(
        num_params=2 * size,
        num_free=size,
        noise=lambda key, shape: draw.normal(key, (*shape, size)),
        sample=sample,
        mode=lambda params: to_action(jnp.split(params, 2, axis=-1)[0]),
        log_prob=log_prob,
        entropy=entropy,
    )


def product(sizes: Sequence[int]) -> Distribution:
    """Makes a distribution of independent categorical ones, one for each of ``sizes``.

    The parameters are their concatenated logits ``[..., sum(sizes)]``, the noise is standard Gumbel of that shape, and
    actions are int32 ``[..., len(sizes)]``.
    """
    parts, ends = [categorical(n) for n in sizes], np.cumsum(sizes)[:-1]

    def split(params: Array) -> list[Array]:
        return jnp.split(params, ends, axis=-1)

    def stack(name: str, params: Array, *more: Iterable[Array]) -> Array:
        columns = zip(parts, split(params), *more, strict=True)
        return jnp.stack([getattr(part, name)(*rest) for part, *rest in columns], axis=-1)

    return Distribution(
        num_params=sum(sizes),
        num_free=0,
        noise=lambda key, shape: draw.gumbel(key, (*shape, sum(sizes))),
        sample=lambda params, noise: stack("sample", params, split(noise)),
        mode=lambda params: stack("mode", params),
        log_prob=lambda params, action: jnp.sum(stack("log_prob", params, jnp.moveaxis(action, -1, 0)), axis=-1),
        entropy=lambda params: jnp.sum(stack("entropy", params), axis=-1),
    )


def integers(space: Box) -> Distribution:
    """Makes a distribution over a bounded Box of integers: a categorical one for each element, over ``low .. high``.

    This is `product` with the values of the elements offset by their ``low``. Actions have the shape and the dtype of
    ``space``.
    """
    choices = product(spaces.choices(space))
    return choices._replace(
        sample=lambda logits, noise: spaces.from_choices(space, choices.sample(logits, noise)),
        mode=lambda logits: spaces.from_choices(space, choices.mode(logits)),
        log_prob=lambda logits, action: choices.log_prob(logits, spaces.to_choices(space, action)),
    )


def joint(space: Space) -> Distribution:
    """Makes a distribution of independent ones, one for each leaf of a tree of spaces.

    Actions are trees of the structure of ``space``; log-probabilities and entropies are sums over the leaves, in the
    order of `spaces.leaves`. The parameters are the logits of all choices (`spaces.choices`), then the means of all
    numbers, then their log standard deviations, each in the order of the leaves. The noise is a tuple of that of each
    leaf.
    """
    flat, structure = jax.tree.flatten(space, is_leaf=spaces.is_leaf)
    parts = [for_space(leaf) for leaf in flat]
    free = [part.num_free for part in parts]
    fixed = [part.num_params - part.num_free for part in parts]
    order = sorted(range(len(parts)), key=lambda i: free[i] > 0)
    ends = np.cumsum([*(fixed[i] for i in order), *free])[:-1]

    def split(params: Array) -> list[Array]:
        """Returns the parameters of each leaf."""
        cut = jnp.split(params, ends, axis=-1)
        of_fixed = dict(zip(order, cut, strict=False))
        return [
            jnp.concatenate([of_fixed[i], own], axis=-1) if free[i] else of_fixed[i]
            for i, own in enumerate(cut[len(parts) :])
        ]

    def each(name: str, params: Array, *more: Iterable[Any]) -> list[Any]:
        columns = zip(parts, split(params), *more, strict=True)
        return [getattr(part, name)(*rest) for part, *rest in columns]

    def noise(key: Key, shape: tuple[int, ...]) -> tuple[Any, ...]:
        keys = jax.random.split(key, len(parts))
        return tuple(part.noise(own, shape) for part, own in zip(parts, keys, strict=True))

    return Distribution(
        num_params=sum(part.num_params for part in parts),
        num_free=sum(free),
        noise=noise,
        sample=lambda params, noise: jax.tree.unflatten(structure, each("sample", params, noise)),
        mode=lambda params: jax.tree.unflatten(structure, each("mode", params)),
        log_prob=lambda params, action: sum(each("log_prob", params, jax.tree.leaves(action))),
        entropy=lambda params: sum(each("entropy", params)),
    )


def for_space(space: Space) -> Distribution:
    """Makes the default distribution for an action space.

    This is `categorical` for Discrete, `product` for MultiDiscrete, `gaussian` for Box, `integers` for one of integers
    or bools, and `joint` for a tree of spaces.
    """
    if not spaces.is_leaf(space):
        return joint(space)
    if isinstance(space, MultiDiscrete):
        return product(space.sizes)
    if isinstance(space, Discrete):
        return categorical(space.n)
    return integers(space) if spaces.is_whole(space) else gaussian(space)
