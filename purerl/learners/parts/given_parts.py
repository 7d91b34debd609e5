"""Checks of the losses, estimates and optimisers that a user gives an algorithm, by their shapes alone."""

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.errors import RAISED, ConfigError, one_line
from purerl.formulas.returns import Columns
from purerl.learners.parts import gradients
from purerl.learners.parts.time_aware import Timed
from purerl.loops.settings import Loop

COUNT = 7
"""The number of elements, steps or actions that a function is tried with."""
EACH = jax.ShapeDtypeStruct((COUNT,), jnp.float32)
ONE = jax.ShapeDtypeStruct((), jnp.float32)
ACTION = jax.ShapeDtypeStruct((), jnp.int32)
ENDS = jax.ShapeDtypeStruct((COUNT,), bool)
COLUMNS = Columns._make([*[EACH] * 6, ENDS])


class Form(NamedTuple):
    """What a function among the parts must be.

    - ``signature``: Its arguments and results, in words.
    - ``arguments``: The arguments that it is tried with, before the config if it takes one.
    - ``shape``: The shape of each result, an array of float32.
    - ``results``: The number of results; several are a tuple.
    """

    signature: str
    arguments: tuple[Any, ...]
    shape: tuple[int, ...] = (COUNT,)
    results: int = 1


FORMS = {
    "objective": Form("objective(log_ratio, advantage, config) -> [N]", (EACH, EACH)),
    "value_loss": Form("value_loss(value, old_value, target, config) -> [N]", (EACH, EACH, EACH)),
    "td_loss": Form("td_loss(error, config) -> [N]", (EACH,)),
    "td_error": Form(
        "td_error(q, target_q, action, reward, discount, chooser, next_q) -> []",
        (EACH, EACH, ACTION, ONE, ONE, EACH, EACH),
        (),
    ),
    "weights": Form("weights(log_ratio, config) -> (rho [N], c [N])", (EACH,), results=2),
    "estimate": Form("estimate(columns) -> (advantage [N], target [N])", (COLUMNS,), results=2),
}
"""The functions among the parts of algorithms, by name."""


def check(config: Loop, parts: dict[str, Any]) -> None:
    """Checks the parts that have a form (`FORMS`), and the optimiser. Nothing is computed.

    Functions of this package, and those for several predictions of a critic, are not checked.

    Raises:
        ConfigError: A line for each part that is of another type, cannot be called with its arguments, or returns
            something else.
    """
    several = parts.get("num_predictions", 1) > 1
    lines = []
    for name, part in parts.items():
        library = part is None or isinstance(part, Timed) or getattr(part, "__module__", "").startswith("purerl.")
        if name in FORMS and not library and not several and (line := misfit(name, part, config)):
            lines.append(f"{name}: {line}")
    optimiser = parts.get("optimiser")
    if optimiser is not None and not isinstance(optimiser, optax.GradientTransformation):
        lines.append(f"optimiser: is {type(optimiser).__name__}; must be an optax.GradientTransformation")
    decay = getattr(config, "weight_decay", 0)
    ours = optimiser is None or isinstance(optimiser, gradients.Named | gradients.ElementwiseDecaying | Timed)
    if not ours and decay:
        lines.append(f"weight_decay = {decay}: has no effect with an optimiser that is given")
    if lines:
        raise ConfigError("\n".join(lines))


def misfit(name: str, part: Any, config: Loop) -> str:
    """Returns why a part of this name does not have its form (`FORMS`); empty: it has."""
    form = FORMS[name]
    must = f"must be a function {form.signature}"
    if not callable(part):
        return f"{must}; is {type(part).__name__}"
    names = form.signature.partition("(")[2].partition(")")[0].split(", ")
    own = _argument_names(part)
    if own != names and sorted(own) == sorted(names):
        return f"{must}; its arguments are in the order ({', '.join(own)})"
    returned: list[Any] = []
    try:
        more = [config] if names[-1] == "config" else []
        jax.eval_shape(lambda *args: returned.append(part(*args, *more)), *form.arguments)
    except RAISED as error:
        return f"{must}; with N = {COUNT} it raised {one_line(error)}"
    made = returned[0]
    results = made if form.results > 1 and isinstance(made, tuple | list) else (made,)
    types = [(x.shape, x.dtype) if hasattr(x, "shape") else None for x in results]
    if types == [(form.shape, jnp.float32)] * form.results:
        return ""
    words = [f"{x.dtype}{list(x.shape)}" if hasattr(x, "shape") else type(x).__name__ for x in results]
    return f"{must}; with N = {COUNT} it returns {', '.join(words)}"


def _argument_names(function: Any) -> list[str]:
    """Returns the names of the arguments of a function; none if they are not known."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
