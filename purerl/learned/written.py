"""Functions that a user wrote for a socket, in Python: their inputs, and checks of what they return.

Such a function is what the algorithm's ``make_train`` takes in that place, for instance ``value_loss=``. For the socket
``optimiser`` the user's function makes the optimiser from the config.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import names
from purerl.errors import ConfigError
from purerl.learned import artefacts, sockets
from purerl.learners.parts import given_parts
from purerl.types import Array, Env, PyTree

EXAMPLES = (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0)
"""Values of each input on which a function is tried, in all combinations."""


class Place(NamedTuple):
    """The inputs of an elementwise function, before the config, and the number of its outputs, which have their shape.

    If ``sloped``, the first output is differentiated by the first input.
    """

    inputs: tuple[str, ...]
    outputs: int = 1
    sloped: bool = True


OPTIMISER = "optimiser"
PLACES = {
    "value-loss": Place(("value", "old_value", "target")),
    "policy-drift": Place(("log_ratio", "advantage")),
    "td-loss": Place(("error",)),
    "vtrace-weight": Place(("log_ratio",), outputs=2, sloped=False),
}
"""The sockets of elementwise functions."""


class Written(NamedTuple):
    """A ``function`` that a user wrote for a socket, by its ``name``; it can stand in place of an artefact."""

    socket: str
    name: str
    function: Callable[..., Any]
    meta_params: PyTree = ()

    @property
    def made(self) -> sockets.Socket:
        """The socket that the function fits."""
        return sockets.make(self.socket)

    def parts(self, config: Any) -> dict[str, Any]:
        """Returns the keyword argument of an algorithm's ``make_trainer`` that plugs in the function."""
        return {self.made.option: self.function(config) if self.socket == OPTIMISER else self.function}

    def env(self, env: Env) -> Env:
        """Returns ``env`` unchanged: there is nothing to plug in."""
        return env


Function = artefacts.Artefact | Written
"""A function for a socket, learned or written."""


def check_socket(socket: str) -> None:
    """Raises `ConfigError` for a socket that takes no function of arrays alone."""
    able = *PLACES, OPTIMISER
    if socket not in able:
        raise ConfigError(f"socket = {socket!r}: does not take a function of your own; {', '.join(able)} do")


def load(socket: str, name: str) -> Written:
    """Imports the function that ``MODULE:FUNCTION`` names.

    Raises:
        ConfigError: There is no such function, or ``socket`` takes none.
    """
    check_socket(socket)
    function = names.imported(socket, name)
    if not callable(function):
        raise ConfigError(f"{socket} = {name!r}: is {type(function).__name__}, must be a function")
    return Written(socket, name, function)


def check(written: Written, config: Any) -> None:
    """Raises `ConfigError`, a line, for a function that does not fit its socket.

    Such a function raises, returns something else than it must, or returns a value or has a slope that is not finite on
    one of the `EXAMPLES`.
    """
    field = f"{written.socket} = {written.name!r}"
    try:
        _check_optimiser(written, config) if written.socket == OPTIMISER else _check_elementwise(written, config)
    except _Misfit as misfit:
        raise ConfigError(f"{field}: {misfit}") from None


class _Misfit(Exception):
    """A way in which a function does not fit its socket, as the end of a line."""


def _check_elementwise(written: Written, config: Any) -> None:
    place = PLACES[written.socket]
    grid = np.meshgrid(*[np.array(EXAMPLES, np.float32)] * len(place.inputs))
    inputs = [jnp.asarray(x.reshape(-1)) for x in grid]  # [N]
    of_config = lambda *inputs: written.function(*inputs, config)
    if misfit := given_parts.misfit(written.made.option, written.function, config):
        raise _Misfit(misfit)

    def outcome(*inputs: Array) -> tuple[Array, ...]:
        result = of_config(*inputs)
        values = tuple(result) if place.outputs > 1 else (result,)
        slope = jax.grad(lambda first: jnp.sum(of_config(first, *inputs[1:])))
        return (*values, slope(inputs[0])) if place.sloped else values

    names_of_results = ("value", f"slope by {place.inputs[0]}") if place.sloped else ("first value", "second value")
    results = names.called(written.socket, written.name, jax.jit(outcome), *inputs)
    for name, values in zip(names_of_results, results, strict=True):
        for i in np.flatnonzero(~np.isfinite(np.asarray(values)))[:1]:
            where = ", ".join(f"{each} = {x[i]:g}" for each, x in zip(place.inputs, inputs, strict=True))
            raise _Misfit(f"its {name} is {float(values[i])} at {where}")


def _check_optimiser(written: Written, config: Any) -> None:
    """Checks an optimiser by two updates, the second by gradients of 0."""
    optimiser = names.called(written.socket, written.name, written.function, config)
    if not isinstance(optimiser, optax.GradientTransformation):
        raise _Misfit(f"returns {type(optimiser).__name__}, must return an optax.GradientTransformation")
    params = {"kernel": jnp.linspace(-1.0, 1.0, 6).reshape(2, 3), "bias": jnp.ones(3)}

    def updates(params: PyTree) -> PyTree:
        state, zeros = optimiser.init(params), jax.tree.map(jnp.zeros_like, params)
        first, state = optimiser.update(params, state, params)
        return first, optimiser.update(zeros, state, params)[0]

    returned = names.called(written.socket, written.name, jax.eval_shape, updates, params)
    shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
    if any(shapes(each) != shapes(params) for each in returned):
        raise _Misfit("its updates must have the shapes and types of the parameters")
    results = names.called(written.socket, written.name, jax.jit(updates), params)
    for tree, name in zip(results, ("update", "update by gradients of 0"), strict=True):
        if not all(np.all(np.isfinite(x)) for x in jax.tree.leaves(tree)):
            raise _Misfit(f"its {name} is not finite")
