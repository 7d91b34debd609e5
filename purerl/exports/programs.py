"""A policy as a list of plain operations on arrays, derived from what JAX traces of it.

The operations are those of `runner.OPERATIONS`, which numpy has; a policy that needs another one is refused.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export

from purerl import jaxprs
from purerl.errors import ConfigError
from purerl.exports.runner import OPERATIONS
from purerl.types import PyTree

BATCH = "b"
"""The name of the batch size."""
INSTEAD = "export it --to stablehlo"


class Value(NamedTuple):
    """An array of a program: its name, shape and dtype. ``[k]`` in a shape stands for ``k`` times the batch size."""

    name: str
    shape: list[Any]
    dtype: str


class ExportedStep(NamedTuple):
    """One operation: its name, the arrays that it takes, those that it makes, and its settings."""

    op: str
    given: list[Value]
    made: list[Value]
    how: dict[str, Any]


class ExportedProgram(NamedTuple):
    """A program: its inputs, its constants by name, and the steps that lead to its outputs."""

    inputs: list[Value]
    constants: dict[str, np.ndarray]
    steps: list[ExportedStep]
    outputs: list[Value]


def batched(leaves: list[jax.ShapeDtypeStruct]) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes ``leaves`` with a leading axis of unknown size."""
    (batch,) = export.symbolic_shape(BATCH)
    return [jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype) for leaf in leaves]


def trace(function: Callable[..., list[Any]], names: list[str], leaves: list[jax.ShapeDtypeStruct]) -> ExportedProgram:
    """Traces the program of ``function(*arrays [B, ...]) -> arrays`` for any ``B``.

    Args:
        function: The function.
        names: The names of its arrays.
        leaves: The shapes and dtypes of one row of each.

    Raises:
        ConfigError: If it needs an operation, a dtype or a shape that has no counterpart in numpy here.
    """
    closed = jax.make_jaxpr(lambda *arrays: function(*arrays))(*batched(leaves))
    writing = _Writing()
    inputs = [writing.value(var, name) for var, name in zip(closed.jaxpr.invars, names, strict=True)]
    known = dict(zip(closed.jaxpr.invars, inputs, strict=True))
    known |= {var: np.asarray(array) for var, array in zip(closed.jaxpr.constvars, closed.consts, strict=True)}
    outputs = [writing.named(out) for out in writing.run(closed.jaxpr, known)]
    return _needed(ExportedProgram(inputs, writing.constants, writing.steps, outputs))


class _Writing:
    """A program that is being written, and the constants that it needs."""

    def __init__(self) -> None:
        self.steps: list[ExportedStep] = []
        self.constants: dict[str, np.ndarray] = {}
        self._count = 0

    def value(self, var: Any, name: str = "") -> Value:
        """Makes a value of the shape and dtype of a variable of JAX."""
        self._count += 1
        return Value(name or f"v{self._count}", [_size(size) for size in var.aval.shape], _dtype(var.aval.dtype))

    def named(self, value: Any) -> Value:
        """Returns a value as it is; keeps an array as a constant, and returns the value of that."""
        if isinstance(value, Value):
            return value
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(value, order="C")
        return Value(name, list(value.shape), _dtype(value.dtype))

    def run(self, jaxpr: Any, known: dict[Any, Any]) -> list[Any]:
        """Writes the steps of a program of JAX, and returns its outputs.

        ``known`` has the values and arrays of variables.
        """
        at = lambda var: np.asarray(var.val, var.aval.dtype) if hasattr(var, "val") else known[var]
        for equation in jaxpr.eqns:
            given = [at(var) for var in equation.invars]
            for var, value in zip(equation.outvars, self._made(equation, given), strict=True):
                known[var] = value
        return [at(var) for var in jaxpr.outvars]

    def _made(self, equation: Any, given: list[Any]) -> list[Any]:
        """Returns the outputs of an operation: arrays if it was given arrays alone, otherwise values of new steps."""
        name, params = equation.primitive.name, equation.params
        if inner := jaxprs.called(equation):
            jaxpr, consts = inner
            known = dict(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
            return self.run(jaxpr, known | dict(zip(jaxpr.invars, given, strict=True)))
        fixed = all(isinstance(size, int) for var in equation.outvars for size in var.aval.shape)
        if fixed and name != "dim_as_value" and not any(isinstance(each, Value) for each in given):
            return jaxprs.compute(equation, given)
        if name == "gather":
            return [self._cut(equation, given)]
        if name == "unstack":
            made = [self.value(var) for var in equation.outvars]
            for place, each in enumerate(made):
                index = self.named(np.asarray(place))
                self.steps.append(ExportedStep("take", [self.named(given[0]), index], [each], {"axis": params["axis"]}))
            return list(made)
        if name in ("squeeze", "expand_dims"):
            name = "reshape"
        op = {"copy_p": "copy", "stop_gradient": "copy"}.get(name, name)
        if op not in OPERATIONS:
            raise ConfigError(f"this policy needs {name}, which the numpy export does not support; {INSTEAD}")
        made = [self.value(var) for var in equation.outvars]
        self.steps.append(ExportedStep(op, [self.named(each) for each in given], made, _how(op, params, given, made)))
        return list(made)

    def _cut(self, equation: Any, given: list[Any]) -> Value:
        """Writes a gather that is a slice from a known place, or that takes elements of one axis after another.

        Raises:
            ConfigError: If it is another gather.
        """
        x, where = given
        numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
        made, axes = self.value(equation.outvars[0]), list(numbers.start_index_map)
        known, rank = not isinstance(where, Value), len(where.shape)
        beside = [axis for axis in range(len(made.shape)) if axis not in numbers.offset_dims]
        if known and rank == 1 and not numbers.operand_batching_dims:
            begin: list[Any] = [0] * len(sizes)
            for axis, place in zip(axes, np.asarray(where).tolist(), strict=True):
                begin[axis] = place
            end = [_size(size) if not place else place + size for place, size in zip(begin, sizes, strict=True)]
            part = self.value(equation.outvars[0])._replace(shape=[_size(size) for size in sizes])
            self.steps.append(
                ExportedStep("slice", [self.named(x)], [part], {"begin": begin, "end": end, "step": None})
            )
            self.steps.append(ExportedStep("reshape", [part], [made], {"shape": made.shape}))
            return made
        taken = rank == len(axes) + 1 and axes == list(numbers.collapsed_slice_dims) == beside
        if taken and not known and rank == 2:
            index = self.value(equation.outvars[0])._replace(shape=where.shape[:1], dtype=where.dtype)
            self.steps.append(ExportedStep("reshape", [where], [index], {"shape": index.shape}))
            self.steps.append(ExportedStep("take", [self.named(x), index], [made], {"axis": axes[0]}))
            return made
        if taken and known and (places := _along(np.asarray(where))):
            for axis, place in zip(axes, places, strict=True):
                of = self.named(x)
                x = made
                if axis != axes[-1]:
                    shape = [*of.shape[:axis], len(place), *of.shape[axis + 1 :]]
                    x = self.value(equation.outvars[0])._replace(shape=shape)
                self.steps.append(ExportedStep("take", [of, self.named(place)], [x], {"axis": axis}))
            return made
        raise ConfigError(
            f"this policy indexes arrays by observations, which the numpy export does not support; {INSTEAD}"
        )


def _along(places: np.ndarray) -> list[np.ndarray]:
    """Returns the elements of each axis that a grid of places ``[..., N]`` has; empty if the places are no grid."""
    count = places.shape[-1]
    each = [places[(0,) * k + (slice(None),) + (0,) * (count - k - 1) + (k,)].astype(np.int64) for k in range(count)]
    grid = np.stack(np.meshgrid(*each, indexing="ij"), axis=-1)
    return each if np.array_equal(grid, places) else []


def _how(op: str, params: dict[str, Any], given: list[Any], made: list[Value]) -> dict[str, Any]:
    """Returns the settings of an operation, as JSON holds them."""
    if op == "dot_general":
        (of_x, of_y), (along_x, along_y) = params["dimension_numbers"]
        return {"sum": [list(of_x), list(of_y)], "along": [list(along_x), list(along_y)]}
    if op == "pad":
        if any(inner or low < 0 or high < 0 for low, high, inner in params["padding_config"]):
            raise ConfigError(f"this policy pads between elements, which the numpy export does not support; {INSTEAD}")
        return {"widths": [[low, high] for low, high, _ in params["padding_config"]]}
    readers: dict[str, Callable[[], dict[str, Any]]] = {
        "reshape": lambda: {"shape": made[0].shape},
        "broadcast_in_dim": lambda: {"shape": made[0].shape, "axes": list(params["broadcast_dimensions"])},
        "transpose": lambda: {"axes": list(params["permutation"])},
        "stack": lambda: {"axis": params["axis"]},
        "concatenate": lambda: {"axis": params["dimension"]},
        "slice": lambda: {
            "begin": [_size(size) for size in params["start_indices"]],
            "end": [_size(size) for size in params["limit_indices"]],
            "step": list(params["strides"]) if params["strides"] else None,
        },
        "split": lambda: {"sizes": list(params["sizes"]), "axis": params["axis"]},
        "rev": lambda: {"axes": list(params["dimensions"])},
        "iota": lambda: {"shape": made[0].shape, "axis": params["dimension"], "dtype": made[0].dtype},
        "convert_element_type": lambda: {"dtype": made[0].dtype},
        "integer_pow": lambda: {"power": params["y"]},
        "argmax": lambda: {"axes": list(params["axes"]), "dtype": made[0].dtype},
        "argmin": lambda: {"axes": list(params["axes"]), "dtype": made[0].dtype},
    }
    if op.startswith("reduce_"):
        return {"axes": list(params["axes"])}
    return readers[op]() if op in readers else {}


def _size(size: Any) -> Any:
    """Returns a size of a shape: a number, or ``[k]`` for ``k`` times the batch size.

    Raises:
        ConfigError: If the size is anything else.
    """
    if isinstance(size, int):
        return size
    product = re.fullmatch(rf"(?:(\d+)\*)?{BATCH}", str(size).replace(" ", ""))
    if product is None:
        raise ConfigError(f"this policy makes an array of {size} elements for a batch of {BATCH}; {INSTEAD}")
    return [int(product[1] or 1)]


def _dtype(dtype: Any) -> str:
    """Returns the name of a dtype. Raises `ConfigError` for one that numpy does not have."""
    if np.dtype(dtype).isbuiltin != 1:
        raise ConfigError(f"this policy computes in {np.dtype(dtype).name}, which numpy does not have; {INSTEAD}")
    return np.dtype(dtype).name


def _needed(program: ExportedProgram) -> ExportedProgram:
    """Returns a program without the steps and constants that its outputs do not depend on."""
    needed, steps = {value.name for value in program.outputs}, []
    for step in reversed(program.steps):
        if any(value.name in needed for value in step.made):
            steps.append(step)
            needed |= {value.name for value in step.given}
    kept = {name: array for name, array in program.constants.items() if name in needed}
    return program._replace(steps=steps[::-1], constants=kept)


def uses_first(function: Callable[..., PyTree], *args: Any) -> bool:
    """Returns whether the result of ``function(*args)`` may depend on its first argument, which is one array or key."""
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    first = jaxpr.invars[0]
    return first in jaxpr.outvars or any(first is var for equation in jaxpr.eqns for var in equation.invars)
