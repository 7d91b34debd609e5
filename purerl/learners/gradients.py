"""Gradient steps: one alone, and epochs of them over minibatches."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from purerl import counters, draw
from purerl.counters import Count
from purerl.trees import scan_means
from purerl.types import Array, Key, Metrics, PyTree, Scalar


def minibatch_indices(key: Key, num_samples: int, num_epochs: int, num_minibatches: int) -> Array:
    """A fresh permutation of ``num_samples`` for each epoch, cut into minibatches. Consumes ``key``.

    Returns ``[num_epochs * num_minibatches, num_samples // num_minibatches]`` int32. Up to 2^16 samples, each epoch
    sorts random words whose low bits are the sample's index, which is several times faster on CPU than sorting pairs;
    samples that draw the same of the remaining 16 or more random bits keep their order.
    """
    index_bits = max(num_samples - 1, 1).bit_length()
    if index_bits <= 16:
        words = draw.bits(key, (num_epochs, num_samples)) << index_bits
        permutations = jnp.sort(words | jnp.arange(num_samples, dtype=jnp.uint32)[None], axis=-1) & (2**index_bits - 1)
    else:
        keys = jax.random.split(key, num_epochs)
        permutations = jax.vmap(lambda k: jax.random.permutation(k, num_samples))(keys)
    return permutations.astype(jnp.int32).reshape(num_epochs * num_minibatches, num_samples // num_minibatches)


def epochs(
    loss: Callable[[PyTree, PyTree], tuple[Array, Metrics]],
    optimiser: optax.GradientTransformation,
    params: PyTree,
    opt_state: PyTree,
    batch: PyTree,
    indices: Array,
) -> tuple[PyTree, PyTree, Metrics]:
    """A `gradient_step` on the minibatch of each row of ``indices`` ``[updates, size]``, one after another.

    ``batch`` has leading axis ``[N]`` and is gathered inside the scan. Returns the last parameters and state, and the
    means over all updates of the metrics.
    """
    flat, unravel = ravel_pytree(params)

    def step(state, index):
        minibatch = jax.tree.map(lambda x: x[index], batch)
        state, metrics, more = _flat_step(loss, optimiser, unravel, state, minibatch)
        return state, metrics | more

    (flat, opt_state), metrics = scan_means(step, (flat, opt_state), indices)
    return unravel(flat), opt_state, metrics


def gradient_step(
    loss: Callable[[PyTree, PyTree], tuple[Array, PyTree]],
    optimiser: optax.GradientTransformation,
    params: PyTree,
    opt_state: PyTree,
    batch: PyTree,
    at: PyTree | None = None,
) -> tuple[PyTree, PyTree, PyTree, Metrics]:
    """One step down ``loss(params, batch) -> (loss, aux)``; the gradient is taken at ``at`` (None: ``params``).

    The optimiser sees parameters and gradients as one vector (``opt_state`` begins as ``init_optimiser``'s): a handful
    of array operations instead of a handful a leaf. Returns the new parameters and state, ``aux``, and the metrics
    ``loss`` and ``grad_norm``.
    """
    flat, unravel = ravel_pytree(params)
    (flat, opt_state), aux, metrics = _flat_step(loss, optimiser, unravel, (flat, opt_state), batch, at)
    return unravel(flat), opt_state, aux, metrics


def _flat_step(loss, optimiser, unravel, state, batch, at=None):
    """`gradient_step` on the parameters as one vector: ``state`` is ``(flat, opt_state)``."""
    flat, opt_state = state
    at = unravel(flat) if at is None else at
    (value, aux), grads = jax.value_and_grad(loss, has_aux=True)(at, batch)
    grads, _ = ravel_pytree(grads)
    updates, opt_state = optimiser.update(grads, opt_state, flat)
    return (flat + updates, opt_state), aux, {"loss": value, "grad_norm": norm(grads)}


def init_optimiser(optimiser: optax.GradientTransformation, params: PyTree) -> PyTree:
    """The state of an optimiser that `gradient_step` runs, on all parameters as one vector."""
    return optimiser.init(ravel_pytree(params)[0])


def norm(vector: Array) -> Array:
    """Euclidean length. As a dot product it is many times faster on CPU than a sum of squares."""
    return jnp.sqrt(jnp.vdot(vector, vector))


def clip_by_norm(max_norm: Scalar) -> optax.GradientTransformation:
    """Scales a gradient vector down to length ``max_norm`` if it is longer: `optax.clip_by_global_norm` of `norm`."""

    def clip(grads, state, params=None):
        return grads * (max_norm / jnp.maximum(norm(grads), max_norm)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)


class Descent(NamedTuple):
    """State of `descent`: the number of updates so far."""

    updates: Count


def descent(schedule: Callable[[Count], Array]) -> optax.GradientTransformation:
    """Multiplies a direction by minus the step size ``schedule(updates)``: `optax.scale_by_learning_rate`, whose own
    counter stops at 2^31 - 1 updates. (Those of optax's Adams stop there too, where nothing depends on them any more.)
    """

    def update(direction, state, params=None):
        size = -1 * schedule(state.updates)
        return size.astype(direction.dtype) * direction, Descent(counters.increment(state.updates))

    return optax.GradientTransformation(lambda params: Descent(counters.of()), update)
