"""A program of plain operations as a graph of ONNX. Needs the package onnx (the extra ``purerl[export]``)."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from purerl.errors import ConfigError
from purerl.exports.programs import BATCH, ExportedProgram, ExportedStep, Value

OPSET = 18
"""The version of ONNX's operations; onnxruntime has it since 1.14."""
PLAIN = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "max": "Max",
    "min": "Min",
    "pow": "Pow",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "neg": "Neg",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "logistic": "Sigmoid",
    "copy": "Identity",
    "and": "And",
    "or": "Or",
    "xor": "Xor",
    "not": "Not",
}
"""Operations that are one operation of ONNX each; ``and``, ``or``, ``xor`` and ``not`` are so for booleans only."""
REDUCED = {"reduce_sum": "ReduceSum", "reduce_prod": "ReduceProd", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}


def serialized(program: ExportedProgram, card: dict[str, Any], actions: tuple[str, ...] = ("action",)) -> bytes:
    """Returns a checked model for batches of any size, serialised, with the card in its metadata.

    Its first outputs are called ``actions``.

    Raises:
        ConfigError: If the program has an operation that is not written here.
    """
    graph = _Graph(program)
    for step in program.steps:
        graph.add(step)
    outputs = []
    for place, value in enumerate(program.outputs):
        name = actions[place] if place < len(actions) else f"after{place - len(actions)}"
        graph.node("Identity", [value.name], name)
        outputs.append(_described(value, name))
    inputs = [_described(value, value.name) for value in program.inputs]
    made = helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="purerl"
    )
    helper.set_model_props(model, {"purerl": json.dumps(card)})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _described(value: Value, name: str) -> Any:
    shape = [BATCH if size == [1] else None if isinstance(size, list) else size for size in value.shape]
    return helper.make_tensor_value_info(name, _dtype(value.dtype), shape)


def _dtype(name: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(name)))


class _Graph:
    """The nodes and constants of a graph that is being written."""

    def __init__(self, program: ExportedProgram):
        self.nodes: list[Any] = []
        self.constants = [numpy_helper.from_array(np.asarray(x), name) for name, x in program.constants.items()]
        self._count = 0
        first = program.inputs[0].name
        self.node("Shape", [first], "batch", start=0, end=1)

    def node(self, op: str, given: list[str], made: str = "", **settings: Any) -> str:
        """Adds an operation, and returns the name of its output."""
        self._count += 1
        made = made or f"t{self._count}"
        self.nodes.append(helper.make_node(op, given, [made], **settings))
        return made

    def constant(self, array: Any) -> str:
        """Adds a constant, and returns its name."""
        self._count += 1
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"k{self._count}"))
        return f"k{self._count}"

    def shape(self, sizes: list[Any]) -> str:
        """Adds a shape whose batch size is known only when the graph runs, and returns its name."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(np.array(sizes, np.int64))
        parts = [
            self.node("Mul", ["batch", self.constant(np.array(size, np.int64))])
            if isinstance(size, list)
            else self.constant(np.array([size], np.int64))
            for size in sizes
        ]
        return self.node("Concat", parts, axis=0)

    def add(self, step: ExportedStep) -> None:
        """Adds the nodes of a step.

        Raises:
            ConfigError: If the operation is not written here.
        """
        given, out = [value.name for value in step.given], step.made[0].name
        integers = step.given[0].dtype not in ("float32", "bool")
        if step.op in PLAIN and not (step.op in ("and", "or", "xor", "not") and integers):
            self.node(PLAIN[step.op], given, out)
        elif step.op in REDUCED:
            axes = self.constant(np.array(step.how["axes"], np.int64))
            self.node(REDUCED[step.op], [given[0], axes], out, keepdims=0)
        elif step.op in WRITTEN:
            WRITTEN[step.op](self, step, given, out)
        else:
            raise ConfigError(
                f"this policy needs {step.op}, which the ONNX export does not support; use --to stablehlo"
            )


def _ne(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Not", [graph.node("Equal", given)], out)


def _rsqrt(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Reciprocal", [graph.node("Sqrt", given)], out)


def _square(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Mul", [given[0], given[0]], out)


def _expm1(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Sub", [graph.node("Exp", given), graph.constant(np.float32(1))], out)


def _log1p(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Log", [graph.node("Add", [given[0], graph.constant(np.float32(1))])], out)


def _power(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Pow", [given[0], graph.constant(np.array(step.how["power"], step.given[0].dtype))], out)


def _rem(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Mod", given, out, fmod=1)


def _clamp(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    low, x, high = given
    graph.node("Min", [graph.node("Max", [x, low]), high], out)


def _select(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    if len(given) != 3 or step.given[0].dtype != "bool":
        raise ConfigError(
            "this policy selects among several arrays, which the ONNX export does not support; use --to stablehlo"
        )
    graph.node("Where", [given[0], given[2], given[1]], out)


def _reshape(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Reshape", [given[0], graph.shape(step.how["shape"])], out)


def _spread(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    kept: list[Any] = [1] * len(step.how["shape"])
    for axis, size in zip(step.how["axes"], step.given[0].shape, strict=True):
        kept[axis] = size
    lifted = graph.node("Reshape", [given[0], graph.shape(kept)])
    graph.node("Expand", [lifted, graph.shape(step.how["shape"])], out)


def _transpose(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Transpose", given, out, perm=step.how["axes"])


def _stack(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    axis = graph.constant(np.array([step.how["axis"]], np.int64))
    graph.node("Concat", [graph.node("Unsqueeze", [each, axis]) for each in given], out, axis=step.how["axis"])


def _take(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Gather", given, out, axis=step.how["axis"])


def _concatenate(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Concat", given, out, axis=step.how["axis"])


def _cut(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    begin = step.how["begin"]
    steps = graph.constant(np.array(step.how["step"] or [1] * len(begin), np.int64))
    axes = graph.constant(np.arange(len(begin), dtype=np.int64))
    graph.node("Slice", [given[0], graph.shape(begin), graph.shape(step.how["end"]), axes, steps], out)


def _split(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    sizes = graph.constant(np.array(step.how["sizes"], np.int64))
    made = [value.name for value in step.made]
    graph.nodes.append(helper.make_node("Split", [given[0], sizes], made, axis=step.how["axis"]))


def _pad(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    low, high = zip(*step.how["widths"], strict=True)
    graph.node("Pad", [given[0], graph.constant(np.array([*low, *high], np.int64)), given[1]], out)


def _cast(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    graph.node("Cast", given, out, to=_dtype(step.how["dtype"]))


def _best(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[step.op]
    index = graph.node(op, given, axis=step.how["axes"][0], keepdims=0)
    graph.node("Cast", [index], out, to=_dtype(step.how["dtype"]))


def _any(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    number = graph.node("Cast", given, to=TensorProto.INT32)
    axes = graph.constant(np.array(step.how["axes"], np.int64))
    op = {"reduce_or": "ReduceMax", "reduce_and": "ReduceMin"}[step.op]
    graph.node("Cast", [graph.node(op, [number, axes], keepdims=0)], out, to=TensorProto.BOOL)


def _product(graph: _Graph, step: ExportedStep, given: list[str], out: str) -> None:
    """Writes ``dot_general`` as a product of matrices where it is one, and as an Einsum otherwise."""
    (of_x, of_y), (along_x, along_y) = step.how["sum"], step.how["along"]
    x, y = (value.shape for value in step.given)
    if not along_x and of_x == [len(x) - 1] and of_y == [0] and len(y) == 2:
        graph.node("MatMul", given, out)
        return
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    names_x, names_y = ["" for _ in x], ["" for _ in y]
    for i, j in (*zip(along_x, along_y, strict=True), *zip(of_x, of_y, strict=True)):
        names_x[i] = names_y[j] = next(letters)
    shared, summed = [names_x[i] for i in along_x], {names_x[i] for i in of_x}
    names_x, names_y = ([name or next(letters) for name in names] for names in (names_x, names_y))
    rest = [name for name in (*names_x, *names_y) if name not in summed and name not in shared]
    equation = f"{''.join(names_x)},{''.join(names_y)}->{''.join(shared + rest)}"
    graph.node("Einsum", given, out, equation=equation)


WRITTEN: dict[str, Callable[[_Graph, ExportedStep, list[str], str], None]] = {
    "ne": _ne,
    "rsqrt": _rsqrt,
    "square": _square,
    "expm1": _expm1,
    "log1p": _log1p,
    "integer_pow": _power,
    "rem": _rem,
    "clamp": _clamp,
    "select_n": _select,
    "dot_general": _product,
    "reshape": _reshape,
    "broadcast_in_dim": _spread,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "stack": _stack,
    "take": _take,
    "slice": _cut,
    "split": _split,
    "pad": _pad,
    "convert_element_type": _cast,
    "argmax": _best,
    "argmin": _best,
    "reduce_or": _any,
    "reduce_and": _any,
}
"""The functions that write the operations that need more than the name of an operation of ONNX."""
