"""What an optimiser can see of a network's layers while a loss runs: how active their units are, and their order."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import tracers

from purerl import shards
from purerl.learners.parts import gradients
from purerl.networks import CNN, MLP, Head
from purerl.types import Array, PyTree

UNKNOWN = 0.5
"""The place of a layer about which nothing is known."""
APART = {"actor", "critic"}
"""The parts of an agent's parameters that are separate networks."""


class Layer(NamedTuple):
    """What is known about the layer to which a parameter tensor ``[..., n]`` belongs.

    ``activity`` ``[n]`` is the mean of each output unit's absolute activation over a minibatch: after the activation
    function in `MLP` and `CNN`, without one in the last layer of a `Head`. Elsewhere, as in memories and in modules
    from outside of the package, it is 1. ``place``, of the tensor's shape, is that of the layer in its network, from 0
    for the first that runs to 1 for the last; it is `UNKNOWN` for a layer inside of a loop or a `jax.vmap`.
    """

    activity: Array
    place: Array


def networks(params: PyTree) -> dict[str, PyTree]:
    """Returns the networks of an agent by name: its actor and its critic, or all parameters as an actor."""
    if isinstance(params, Mapping) and set(params) == APART:
        return {name: params[name] for name in sorted(params)}
    return {"actor": params}


def watched(loss: Callable[[PyTree, Any], tuple[Array, Any]]) -> Callable[[PyTree, Any], tuple[Array, Any]]:
    """Turns ``loss(params, batch) -> (loss, aux)`` into a function that returns ``(loss, (aux, layers))``.

    ``layers`` is a tree like ``params`` of the parameters' `Layer`s.
    """

    def watching(params: PyTree, batch: Any) -> tuple[Array, Any]:
        notes = _Notes(params)
        with nn.intercept_methods(notes.look):
            value, aux = loss(params, batch)
        return value, (aux, notes.layers(params))

    return watching


class SeesLayers(gradients.Observant):
    """An optimiser whose ``update`` takes a tree of the parameters' `Layer`s."""

    watched = staticmethod(watched)


class _Notes:
    """The layers in the order in which they first run. A parameter is identified by its array object."""

    def __init__(self, params: PyTree) -> None:
        self._given = {id(x) for x in jax.tree.leaves(params)}
        self._level = tracers.current_trace()
        self._layer_of: dict[int, int] = {}  # parameter -> index of its layer
        self._activity: dict[int, Array] = {}  # by index of a layer
        self._last: dict[int, int] = {}  # module -> index of its layer that ran last

    def look(self, call: Callable[..., Any], args: tuple, kwargs: dict[str, Any], context: Any) -> Any:
        """Intercepts the calls of Flax modules (`nn.intercept_methods`)."""
        out, module = call(*args, **kwargs), context.module
        if tracers.current_trace() != self._level:
            return out
        if context.method_name == "activate" and isinstance(module, MLP | CNN) and id(module) in self._last:
            self._activity.setdefault(self._last[id(module)], _mean_size(out))
        elif context.method_name == "__call__":
            own = [x for x in module.variables.get("params", {}).values() if id(x) in self._given]
            if own:
                self._enter(module, own, out)
            else:
                self._last.pop(id(module.parent), None)
        return out

    def _enter(self, module: nn.Module, own: list[Array], out: Array) -> None:
        within = id(module.parent)
        if not (isinstance(module, nn.LayerNorm) and within in self._last):
            self._last[within] = self._layer_of.setdefault(id(own[0]), len(set(self._layer_of.values())))
        number = self._last[within]
        for x in own:
            self._layer_of.setdefault(id(x), number)
        if isinstance(module, nn.Dense) and isinstance(module.parent, Head):
            self._activity.setdefault(number, _mean_size(out))

    def layers(self, params: PyTree) -> PyTree:
        """Returns the `Layer`s of a tree of parameters."""
        activity = shards.mean(self._activity)

        def of_network(tree: PyTree) -> PyTree:
            order = sorted({self._layer_of[id(x)] for x in jax.tree.leaves(tree) if id(x) in self._layer_of})
            places = {number: i / max(len(order) - 1, 1) for i, number in enumerate(order)}

            def of_parameter(x: Array) -> Layer:
                number = self._layer_of.get(id(x), -1)
                units = x.shape[-1:]
                active = activity.get(number, jnp.ones(units))
                active = active if active.shape == units else jnp.ones(units)
                return Layer(active, jnp.full(x.shape, places.get(number, UNKNOWN)))

            return jax.tree.map(of_parameter, tree)

        outputs = {name: of_network(tree) for name, tree in networks(params).items()}
        return outputs if networks(params).keys() == APART else outputs["actor"]


def _mean_size(out: Array) -> Array:
    """Computes the mean ``[n]`` of absolute numbers ``[..., n]``."""
    return jnp.mean(jnp.abs(jax.lax.stop_gradient(out)).reshape(-1, out.shape[-1]), axis=0, dtype=jnp.float32)
