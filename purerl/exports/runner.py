"""Runs an exported policy with numpy alone. Copy this file together with the two files beside it.

    import policy

    it = policy.load(".")
    carry = it.begin(8)
    action, carry = it.act(obs, carry)

``obs`` is one array ``[B, ...]``, or a list of them in the order of ``it.card["inputs"]``. ``carry`` is the memory of
the policy; where an episode ends, its row begins anew with that of ``it.begin(1)``. ``action`` has the leading axis
``[B]``; where actions have several parts it is a list of arrays, in the order of ``it.card["actions"]``. Whatever ``B``
is, the rows do not affect each other.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = 1
"""The format version of the files; others are refused."""
PROGRAM, ARRAYS = "policy.json", "policy.safetensors"
DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U32": "<u4", "U8": "<u1"}
DTYPES |= {"BOOL": "?", "U16": "<u2", "U64": "<u8", "F16": "<f2"}


class ExportedPolicy(NamedTuple):
    """An exported policy.

    It has ``act(obs, carry) -> (action, carry)``, ``begin(B) -> carry``, and ``card``, which describes the policy.
    """

    act: Any
    begin: Any
    card: dict


def load(directory: Any) -> ExportedPolicy:
    """Loads the policy whose files are in ``directory``.

    Raises:
        ValueError: If the files have another format.
    """
    card = json.loads((Path(directory) / PROGRAM).read_text())
    if card.get("format") != FORMAT:
        raise ValueError(f"format {card.get('format')!r}, expected {FORMAT}")
    constants = _arrays(Path(directory) / ARRAYS)

    def begin(batch: int) -> list:
        return [np.zeros((batch, *each["shape"]), each["dtype"]) for each in card["carry"]]

    def act(obs: Any, carry: Any = ()) -> tuple:
        given = [*(obs if isinstance(obs, (list, tuple)) else [obs]), *carry]
        expected = card["inputs"] + card["carry"]
        if len(given) != len(expected):
            raise ValueError(f"{len(given)} arrays given, {len(expected)} expected")
        values = dict(constants)
        for each, array in zip(expected, given, strict=True):
            values[each["name"]] = array = np.asarray(array, each["dtype"])
            if array.shape[1:] != tuple(each["shape"]):
                raise ValueError(f"{each['name']}: is {array.shape}, expected [B, {str(each['shape'])[1:]}")
        batch = len(values[expected[0]["name"]])
        with np.errstate(all="ignore"):
            for step in card["steps"]:
                out = OPERATIONS[step["op"]]([values[name] for name in step["in"]], step["with"], batch)
                for name, value in zip(step["out"], out if isinstance(out, list) else [out], strict=True):
                    values[name] = value
        outputs = [values[name] for name in card["outputs"]]
        count = len(card.get("actions", ["action"]))
        return outputs[:count] if "actions" in card else outputs[0], outputs[count:]

    return ExportedPolicy(act, begin, card)


def _arrays(path: Path) -> dict:
    """Reads the arrays of a safetensors file by name."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, arrays = json.loads(raw[8 : 8 + size]), {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def _sizes(shape: list, batch: int) -> tuple:
    """Replaces each ``[k]`` in a shape by ``k`` times the batch size."""
    return tuple(size[0] * batch if isinstance(size, list) else size for size in shape)


def _one(function: Any) -> Any:
    return lambda given, _, batch: function(given[0])


def _two(function: Any) -> Any:
    return lambda given, _, batch: function(*given)


def _over(function: Any) -> Any:
    return lambda given, how, batch: function(given[0], axis=tuple(how["axes"]))


def _best(function: Any) -> Any:
    return lambda given, how, batch: function(given[0], axis=how["axes"][0]).astype(how["dtype"])


def _divided(x: Any, y: Any) -> Any:
    """Divides ``x`` by ``y``; integers are rounded towards zero."""
    if x.dtype.kind == "f":
        return x / y
    return (np.sign(x) * np.sign(y) * (np.abs(x) // np.maximum(np.abs(y), 1))).astype(x.dtype)


def _product(given: list, how: dict, batch: int) -> Any:
    """Computes ``dot_general``: sums over the axes ``sum`` of both arrays, with the axes ``along`` in common."""
    (of_x, of_y), (along_x, along_y) = how["sum"], how["along"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    x, y = given
    names_x, names_y = ["" for _ in x.shape], ["" for _ in y.shape]
    for pairs in (zip(along_x, along_y, strict=True), zip(of_x, of_y, strict=True)):
        for i, j in pairs:
            names_x[i] = names_y[j] = next(letters)
    shared = [names_x[i] for i in along_x]
    names_x, names_y = ([name or next(letters) for name in names] for names in (names_x, names_y))
    summed = {names_x[i] for i in of_x} | set(shared)
    out = shared + [name for name in names_x if name not in summed] + [name for name in names_y if name not in summed]
    if not shared and list(of_x) == [x.ndim - 1] and list(of_y) == [0]:
        return np.tensordot(x, y, axes=1)
    return np.einsum(f"{''.join(names_x)},{''.join(names_y)}->{''.join(out)}", x, y).astype(x.dtype)


def _spread(given: list, how: dict, batch: int) -> Any:
    shape = _sizes(how["shape"], batch)
    kept = [1] * len(shape)
    for axis, size in zip(how["axes"], given[0].shape, strict=True):
        kept[axis] = size
    return np.broadcast_to(given[0].reshape(kept), shape)


def _cut(given: list, how: dict, batch: int) -> Any:
    ends, steps = _sizes(how["end"], batch), how["step"] or [1] * given[0].ndim
    return given[0][tuple(slice(*each) for each in zip(how["begin"], ends, steps, strict=True))]


def _chosen(given: list, how: dict, batch: int) -> Any:
    which, *cases = given
    return np.where(which, cases[1], cases[0]) if len(cases) == 2 else np.choose(which, cases)


def _counted(given: list, how: dict, batch: int) -> Any:
    shape = _sizes(how["shape"], batch)
    lead = [1] * len(shape)
    lead[how["axis"]] = -1
    return np.broadcast_to(np.arange(shape[how["axis"]], dtype=how["dtype"]).reshape(lead), shape)


def _parts(given: list, how: dict, batch: int) -> list:
    return np.split(given[0], np.cumsum(how["sizes"])[:-1], axis=how["axis"])


OPERATIONS = {
    **{name: _one(getattr(np, name)) for name in ("sign", "floor", "ceil", "exp", "expm1", "log", "log1p", "tanh")},
    **{name: _one(getattr(np, name)) for name in ("sin", "cos", "tan", "sqrt", "abs", "square", "exp2")},
    "neg": _one(np.negative),
    "not": _one(np.invert),
    "is_finite": _one(np.isfinite),
    "rsqrt": _one(lambda x: (1 / np.sqrt(x)).astype(x.dtype)),
    "logistic": _one(lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype)),
    "copy": _one(lambda x: x),
    "integer_pow": lambda given, how, batch: given[0] ** np.asarray(how["power"], given[0].dtype),
    "add": _two(np.add),
    "sub": _two(np.subtract),
    "mul": _two(np.multiply),
    "div": _two(_divided),
    "rem": _two(np.fmod),
    "pow": _two(np.power),
    "max": _two(np.maximum),
    "min": _two(np.minimum),
    "eq": _two(np.equal),
    "ne": _two(np.not_equal),
    "lt": _two(np.less),
    "le": _two(np.less_equal),
    "gt": _two(np.greater),
    "ge": _two(np.greater_equal),
    "and": _two(np.bitwise_and),
    "or": _two(np.bitwise_or),
    "xor": _two(np.bitwise_xor),
    "clamp": lambda given, how, batch: np.minimum(np.maximum(given[1], given[0]), given[2]),
    "select_n": _chosen,
    "dot_general": _product,
    "reshape": lambda given, how, batch: given[0].reshape(_sizes(how["shape"], batch)),
    "broadcast_in_dim": _spread,
    "transpose": lambda given, how, batch: np.transpose(given[0], how["axes"]),
    "concatenate": lambda given, how, batch: np.concatenate(given, axis=how["axis"]),
    "stack": lambda given, how, batch: np.stack(given, axis=how["axis"]),
    "take": lambda given, how, batch: np.take(given[0], given[1], axis=how["axis"]),
    "slice": _cut,
    "split": _parts,
    "pad": lambda given, how, batch: np.pad(given[0], how["widths"], constant_values=given[1]),
    "rev": lambda given, how, batch: np.flip(given[0], how["axes"]),
    "iota": _counted,
    "convert_element_type": lambda given, how, batch: np.asarray(given[0]).astype(how["dtype"]),
    "reduce_sum": lambda given, how, batch: np.sum(given[0], axis=tuple(how["axes"]), dtype=given[0].dtype),
    "reduce_prod": lambda given, how, batch: np.prod(given[0], axis=tuple(how["axes"]), dtype=given[0].dtype),
    "reduce_max": _over(np.max),
    "reduce_min": _over(np.min),
    "reduce_and": _over(np.all),
    "reduce_or": _over(np.any),
    "argmax": _best(np.argmax),
    "argmin": _best(np.argmin),
}
"""The function of each operation of a program: ``(arrays, how, batch) ->`` an array, or a list of arrays."""
