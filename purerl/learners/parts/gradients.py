"""Gradient steps: one alone, and epochs of them over minibatches; and the optimisers that take them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from optax import contrib

from purerl import backend, counters, draw, shards, trees
from purerl.counters import Count
from purerl.formulas import schedules
from purerl.learners.parts import kernels
from purerl.learners.parts.settings import Adam
from purerl.types import Array, Key, Metrics, PyTree, Scalar


def minibatch_indices(key: Key, num_samples: int, num_epochs: int, num_minibatches: int) -> Array:
    """Draws a permutation of the samples for each epoch, cut into minibatches.

    Up to 2^16 samples, each epoch sorts random words whose low bits are the sample's index, which is several times
    faster on CPU than sorting pairs. Samples that draw the same of the remaining 16 or more random bits keep their
    order.

    Args:
        key: Consumed.
        num_samples: Number of samples, a multiple of ``num_minibatches``.
        num_epochs: Number of passes over them.
        num_minibatches: Minibatches of one pass.

    Returns:
        Indices ``[num_epochs * num_minibatches, num_samples // num_minibatches]`` int32.
    """
    index_bits = max(num_samples - 1, 1).bit_length()
    if index_bits <= 16:
        words = draw.bits(key, (num_epochs, num_samples)) << index_bits
        permutations = jnp.sort(words | jnp.arange(num_samples, dtype=jnp.uint32)[None], axis=-1) & (2**index_bits - 1)
    else:
        keys = jax.random.split(key, num_epochs)
        permutations = jax.vmap(lambda k: jax.random.permutation(k, num_samples))(keys)
    return permutations.astype(jnp.int32).reshape(num_epochs * num_minibatches, num_samples // num_minibatches)


def minibatch_epochs(
    loss: Callable[[PyTree, PyTree], tuple[Array, Metrics]],
    optimiser: optax.GradientTransformation,
    params: PyTree,
    opt_state: PyTree,
    samples: PyTree,
    key: Key,
    *,
    num_epochs: int,
    num_minibatches: int,
    stop: Callable[[Metrics], Array] | None = None,
    divergence: Callable[[Metrics], Array] | None = None,
) -> tuple[PyTree, PyTree, Metrics]:
    """Takes a `gradient_step` on each minibatch of `minibatch_indices`, one after another.

    Args:
        loss: ``loss(params, minibatch) -> (loss, metrics)``.
        optimiser: As for `gradient_step`.
        params: Parameters before the first step.
        opt_state: The optimiser's state, begun by `init_optimiser`.
        samples: Samples with a leading axis ``[N]``, gathered inside of the scan.
        key: Consumed.
        num_epochs: Number of passes over the samples.
        num_minibatches: Minibatches of one pass, a divisor of ``N``.
        stop: ``stop(metrics)`` tells from a minibatch's metrics before its step, means over all `shards` of an agent,
            whether to stop. From the first minibatch on where it is True no more steps are taken, while schedules of
            step sizes (`descent`) go on as if they were. None: all steps are taken.
        divergence: ``divergence(metrics)`` is what an optimiser with an `adaptive_descent` follows, from a minibatch's
            metrics before its step; it takes the mean over all `shards` of an agent. The minibatch that stops the
            others counts. None: the optimiser follows nothing.

    Returns:
        The last parameters and state, and the means of the metrics over all updates. With ``stop`` they are means over
        the minibatches up to the one that stopped, and ``updates_taken`` is the fraction of the steps that were taken.
        With ``divergence`` ``learning_rate`` is the last step size.
    """
    indices = minibatch_indices(key, trees.length(samples), num_epochs, num_minibatches)
    joined, split = join(optimiser, params)

    def step(state, index):
        minibatch = jax.tree.map(lambda x: x[index], samples)
        state, (metrics, more) = _step(loss, optimiser, split, state, minibatch, divergence=divergence)
        return state, metrics | more

    scan = trees.scan_means if stop is None else functools.partial(_scan_until, stop)
    (joined, opt_state), metrics = scan(step, (joined, opt_state), indices)
    if divergence:
        metrics["learning_rate"] = adapted_step_size(opt_state)
    return split(joined), opt_state, metrics


def _scan_until(
    stop: Callable[[Metrics], Array],
    step: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]],
    start: PyTree,
    indices: Array,
) -> tuple[PyTree, Metrics]:
    """Does what `trees.scan_means` does up to the step before which ``stop(metrics)`` is True (`minibatch_epochs`)."""

    def step_until(state, index):
        before, active = state
        after, metrics = step(before, index)
        metrics = shards.mean(metrics)
        take = active & ~stop(metrics)
        metrics = {name: jnp.where(active, value, 0.0) for name, value in metrics.items()}
        fractions = {"updates_taken": take.astype(jnp.float32), "active": active.astype(jnp.float32)}
        return (_taken(take, active, after, before), take), metrics | fractions

    (last, _), metrics = trees.scan_means(step_until, (start, jnp.ones((), bool)), indices)
    taken = metrics.pop("updates_taken")
    active = metrics.pop("active")
    return last, {**{name: value / active for name, value in metrics.items()}, "updates_taken": taken}


def _taken(taking: Array, looking: Array, after: PyTree, before: PyTree) -> PyTree:
    """Returns ``after`` where a step is taken, else ``before``.

    The counts of `descent` are those of ``after``, and so are the step sizes of `adaptive_descent` where a minibatch
    was looked at.
    """

    def keep(new: Any, old: Any) -> Any:
        if isinstance(new, Descent):
            return new
        if isinstance(new, AdaptiveDescent):
            return AdaptiveDescent(jnp.where(looking, new.step_size, old.step_size))
        return jnp.where(taking, new, old)

    return jax.tree.map(keep, after, before, is_leaf=lambda x: isinstance(x, Descent | AdaptiveDescent))


def gradient_step(
    loss: Callable[[PyTree, PyTree], tuple[Array, PyTree]],
    optimiser: optax.GradientTransformation,
    params: PyTree,
    opt_state: PyTree,
    batch: PyTree,
    at: PyTree | None = None,
) -> tuple[PyTree, PyTree, PyTree, Metrics]:
    """Takes one step down ``loss(params, batch) -> (loss, aux)``.

    The optimiser sees parameters and gradients as `join` gives them: as trees, unless it is `Elementwise` or
    `Observant`, which is also given the network's layers. In a split agent the gradient is the mean over its
    `shards`; the optimiser clips it after that.

    Args:
        loss: The loss function.
        optimiser: Any optax transformation.
        params: Parameters before the step.
        opt_state: The optimiser's state, begun by `init_optimiser`.
        batch: Argument of ``loss``.
        at: Parameters at which the gradient is taken; None: ``params``.

    Returns:
        The new parameters and state, ``aux``, and the metrics ``loss`` and ``grad_norm``.
    """
    joined, split = join(optimiser, params)
    (joined, opt_state), (aux, metrics) = _step(loss, optimiser, split, (joined, opt_state), batch, at)
    return split(joined), opt_state, aux, metrics


def _step(
    loss: Callable[[PyTree, PyTree], tuple[Array, PyTree]],
    optimiser: optax.GradientTransformation,
    split: Callable[[PyTree], PyTree],
    state: tuple[PyTree, PyTree],
    batch: PyTree,
    at: PyTree | None = None,
    divergence: Callable[[PyTree], Array] | None = None,
) -> tuple[tuple[PyTree, PyTree], tuple[PyTree, Metrics]]:
    """Takes a `gradient_step` on joined parameters: ``state`` is ``(joined, opt_state)``.

    ``divergence`` is that of `minibatch_epochs`.
    """
    joined, opt_state = state
    at = split(joined) if at is None else at
    extra: dict[str, Any] = {}
    if isinstance(optimiser, Observant):
        (value, (aux, layers)), grads = jax.value_and_grad(optimiser.watched(loss), has_aux=True)(at, batch)
        extra["layers"] = layers
    else:
        (value, aux), grads = jax.value_and_grad(loss, has_aux=True)(at, batch)
    if divergence:
        extra["divergence"] = shards.mean(divergence(aux))
    if isinstance(optimiser, ElementwiseDecaying):
        extra["kernels"] = join(optimiser, kernels.mask(split(joined)))[0]
    grads = shards.mean(join(optimiser, grads)[0])
    updates, opt_state = optimiser.update(grads, opt_state, joined, **extra)
    return (optax.apply_updates(joined, updates), opt_state), (aux, {"loss": value, "grad_norm": norm(grads)})


class Elementwise(optax.GradientTransformation):
    """An optimiser that does the same to every number, so that it may see all parameters as one vector.

    Only an optimiser made by this module is one: a mask, or a step that looks at the shape of a matrix, needs the tree.
    """


class ElementwiseDecaying(Elementwise):
    """An `Elementwise` with weight decay: ``update`` takes ``kernels``, 1 for each number of a kernel and else 0."""


class Named(optax.GradientTransformation):
    """An optimiser of optax in the form of `named`, which `given_or_made` makes again with other settings."""

    name: str


def make_optimiser(
    config: Adam,
    *change: optax.GradientTransformation,
    period: int = 1,
    step: optax.GradientTransformation | None = None,
    scale: optax.GradientTransformation | None = None,
) -> Elementwise:
    """Makes Adam with clipped gradients, a linearly decaying step size and decoupled weight decay.

    Args:
        config: Settings.
        *change: Transformations of Adam's direction, applied before the step size. They must do the same to every
            number.
        period: The optimiser takes a step at every ``period``-th of the config's updates.
        step: Multiplies the direction by minus the step size; None: a `descent` with that of ``config``.
        scale: Gives the direction in place of Adam; it does the same to every number.
    """
    scale = scale or optax.scale_by_adam(config.adam_b1, eps=config.adam_epsilon)
    steps = clip_by_norm(config.max_grad_norm), scale, *change, _last(config, period, step)
    return ElementwiseDecaying(*optax.chain(*steps)) if config.weight_decay else chain(*steps)


def named(config: Adam, name: str, *, period: int = 1, step: optax.GradientTransformation | None = None) -> Named:
    """Makes an optimiser of optax with clipped gradients, and the step size and weight decay of ``config``.

    ``muon`` is `optax.contrib.muon` (Jordan 2024, kellerjordan.github.io/posts/muon): `kernels.matrices` by Muon,
    everything else by Adam. Its steps are as long as Adam's (Liu et al. 2025, arXiv 2502.16982, section 2.2), so that
    it takes Adam's step sizes. Where an optimiser has a weight decay of its own, as adamw, that of ``config`` takes its
    place unless it is 0.

    Args:
        config: Settings.
        name: A name that `is_name` knows.
        period: That of `make_optimiser`.
        step: That of `make_optimiser`.
    """
    make: Callable[..., optax.GradientTransformation] = MUON if name == "muon" else getattr(optax, name)
    if config.weight_decay and "weight_decay" in inspect.signature(make).parameters:
        make = functools.partial(make, weight_decay=0.0)
    made = Named(*of_optax(config, make, period=period, step=step))
    made.name = name
    return made


MUON = functools.partial(contrib.muon, consistent_rms=0.2, muon_weight_dimension_numbers=kernels.matrices)
"""Muon, of steps as long as Adam's."""
BESIDE_GRADIENTS = "lbfgs", "polyak_sgd"
"""Optimisers of optax that need more than gradients."""


def is_name(word: str) -> bool:
    """Returns whether `named` makes an optimiser of this name, which needs a step size and gradients alone."""
    make = getattr(optax, word, None) if word.isidentifier() else None
    if not inspect.isfunction(make) or word in BESIDE_GRADIENTS:
        return word == "muon"
    parameters = list(inspect.signature(make).parameters.values())
    needed = [each.name for each in parameters[1:] if each.default is each.empty]
    return bool(parameters) and parameters[0].name == "learning_rate" and not needed


def given_or_made(
    given: optax.GradientTransformation | None,
    config: Adam,
    *,
    period: int = 1,
    step: optax.GradientTransformation | None = None,
) -> optax.GradientTransformation:
    """Returns a ``given`` optimiser, or `make_optimiser`; one that is `Named` is made again with these settings."""
    if isinstance(given, Named):
        return named(config, given.name, period=period, step=step)
    return given or make_optimiser(config, period=period, step=step)


def of_optax(
    config: Adam,
    make: Callable[..., optax.GradientTransformation],
    *,
    period: int = 1,
    step: optax.GradientTransformation | None = None,
) -> optax.GradientTransformation:
    """Makes an optimiser of optax with clipped gradients, and the step size and weight decay of ``config``.

    Args:
        config: Settings.
        make: A function ``make(learning_rate)`` of optax. The step size, which may be traced, is applied after it.
        period: That of `make_optimiser`.
        step: That of `make_optimiser`.
    """
    back = lambda direction, params, extra: jax.tree.map(jnp.negative, direction)  # what ``make`` returns descends
    along = _after(back, _last(config, period, step))
    return optax.chain(clip_by_norm(config.max_grad_norm), make(1.0), along)


def _last(config: Adam, period: int, step: optax.GradientTransformation | None) -> optax.GradientTransformation:
    """Makes the last part of an optimiser, which decays kernels and then applies the step size (`make_optimiser`).

    Its state is that of the part that applies the step size.
    """
    if step is None:
        num_updates = jnp.maximum(jnp.float32(config.total_updates) // period, 1.0)
        step = descent(schedules.linear_decay(config.learning_rate, config.learning_rate_decay, num_updates))
    if not config.weight_decay:
        return step

    def decay(direction: PyTree, params: PyTree, extra: dict[str, Any]) -> PyTree:
        """Adds the decay of the kernels (Loshchilov & Hutter 2019, arXiv 1711.05101, algorithm 2)."""
        which = extra["kernels"] if "kernels" in extra else kernels.mask(params)
        return jax.tree.map(lambda d, x, kernel: d + config.weight_decay * kernel * x, direction, params, which)

    return _after(decay, step)


def _after(
    change: Callable[[PyTree, PyTree, dict[str, Any]], PyTree], step: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    """Makes ``step`` of the direction ``change(direction, params, extra)``; the state is that of ``step``."""
    step = optax.with_extra_args_support(step)

    def update(direction, state, params=None, **extra):
        return step.update(change(direction, params, extra), state, params, **extra)

    return optax.GradientTransformationExtraArgs(step.init, update)


class Observant(optax.GradientTransformationExtraArgs):
    """An optimiser of one vector of all parameters whose ``update`` also takes the network's ``layers``.

    What it sees of them is what the loss of `watched` returns beside ``aux``.
    """

    @staticmethod
    def watched(loss: Callable[[PyTree, Any], tuple[Array, Any]]) -> Callable[[PyTree, Any], tuple[Array, Any]]:
        """Turns ``loss(params, batch) -> (loss, aux)`` into a function that returns ``(loss, (aux, layers))``."""
        raise NotImplementedError


def join(optimiser: optax.GradientTransformation, params: PyTree) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Returns a tree of parameters or gradients as ``optimiser`` sees it, and the function that restores the tree.

    For an `Elementwise` optimiser on CPU it is one vector: a few array operations instead of a few for each leaf. For
    an `Observant` one it always is. For every other optimiser it is the tree itself, and so it is on other
    devices, where slices of a vector are copied before they can enter a matrix product.
    """
    if isinstance(optimiser, Observant) or (backend.is_cpu() and isinstance(optimiser, Elementwise)):
        return ravel_pytree(params)
    return params, lambda joined: joined


def init_optimiser(optimiser: optax.GradientTransformation, params: PyTree) -> PyTree:
    """Initialises the state of an optimiser that `gradient_step` runs."""
    return optimiser.init(join(optimiser, params)[0])


def chain(*steps: optax.GradientTransformation) -> Elementwise:
    """Chains steps that all do the same to every number, as `optax.chain` does."""
    return Elementwise(*optax.chain(*steps))


def norm(tree: PyTree) -> Array:
    """Computes the Euclidean length of all leaves as one vector.

    On CPU a dot product is many times faster than a sum of squares.
    """
    vector, _ = ravel_pytree(tree)
    return jnp.sqrt(jnp.vdot(vector, vector) if backend.is_cpu() else jnp.sum(jnp.square(vector)))


def clip_by_norm(max_norm: Scalar) -> optax.GradientTransformation:
    """Scales gradients down to length ``max_norm`` if they are longer.

    `optax.clip_by_global_norm` divides first and multiplies then, which rounds otherwise.
    """

    def clip(grads, state, params=None):
        factor = max_norm / jnp.maximum(norm(grads), max_norm)
        return jax.tree.map(lambda x: x * factor, grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)


class Descent(NamedTuple):
    """The state of `descent`: the number of updates so far."""

    updates: Count


def descent(schedule: Callable[[Count], Array]) -> optax.GradientTransformation:
    """Makes a transformation that multiplies a direction by minus the step size ``schedule(updates)``.

    It is `optax.scale_by_learning_rate`, whose own counter stops at 2^31 - 1 updates, with a wider counter. (The
    counters of optax's Adams stop there, too, where nothing depends on them any more.)
    """

    def update(direction, state, params=None):
        size = -1 * schedule(state.updates)
        moved = jax.tree.map(lambda x: size.astype(x.dtype) * x, direction)
        return moved, Descent(counters.increment(state.updates))

    return optax.GradientTransformation(lambda params: Descent(counters.of()), update)


class AdaptiveDescent(NamedTuple):
    """The state of `adaptive_descent`: the present step size, float32 ``[]``."""

    step_size: Array


def adaptive_descent(start: Scalar, target: float) -> optax.GradientTransformationExtraArgs:
    """Makes a transformation that multiplies a direction by minus a step size that follows a divergence.

    The step size, part of the state, is changed by `schedules.by_divergence` before the step: the divergence of a
    minibatch changes the step on that minibatch. ``update`` takes the ``divergence`` by name (`minibatch_epochs`).

    Args:
        start: The first step size, which may be traced.
        target: The divergence that the step size aims at.
    """

    def update(direction, state, params=None, *, divergence, **extra):
        size = schedules.by_divergence(state.step_size, divergence, target)
        moved = jax.tree.map(lambda x: -size.astype(x.dtype) * x, direction)
        return moved, AdaptiveDescent(size)

    begin = lambda params: AdaptiveDescent(jnp.asarray(start, jnp.float32))
    return optax.GradientTransformationExtraArgs(begin, update)


def adapted_step_size(opt_state: PyTree) -> Array:
    """Returns the step size ``[]`` in the state of an optimiser with one `adaptive_descent`."""
    is_adaptive = lambda x: isinstance(x, AdaptiveDescent)
    [found] = filter(is_adaptive, jax.tree.leaves(opt_state, is_leaf=is_adaptive))
    return found.step_size
