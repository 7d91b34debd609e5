"""Reads the text of a compiled XLA program: computations, their instructions, and the bytes of shapes."""

import math
import re
from typing import NamedTuple

BITS = {"pred": 8, "bf16": 16, "token": 0, "opaque": 0}
"""Bits of an element of the types whose names do not end in their number."""
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
LINE = re.compile(r"^(ROOT )?%?([\w.\-]+) = (\(.*?\)(?= [\w\-]+\()|\S+) ([\w\-]+)\((.*)$")


class Instruction(NamedTuple):
    """One instruction: ``operands`` are names of instructions, ``text`` is its line after the opening bracket."""

    name: str
    shape: str
    op: str
    operands: list[str]
    text: str
    root: bool

    def named(self, attribute: str) -> str | None:
        """Returns the computation that an attribute such as ``body`` or ``calls`` names; None without the attribute."""
        match = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.text)
        return match and match.group(1)

    @property
    def target(self) -> str:
        """The function that a custom call calls."""
        match = re.search(r'custom_call_target="([^"]*)"', self.text)
        return match.group(1) if match else ""

    @property
    def trips(self) -> int | None:
        """The number of iterations of a loop, or None where the compiler does not know it."""
        match = re.search(r'known_trip_count":\{"n":"(\d+)"', self.text)
        return int(match.group(1)) if match else None

    @property
    def label(self) -> str:
        """The place in the program that it comes from: the names of scopes and functions around it."""
        match = re.search(r'op_name="([^"]*)"', self.text)
        return match.group(1) if match else ""


Computation = dict[str, Instruction]
"""The instructions of a computation by name, in order."""


class HloProgram(NamedTuple):
    """The computations of a program by name, and the name of the one that runs first."""

    computations: dict[str, Computation]
    entry: str


def parse(text: str) -> HloProgram:
    """Reads the text of an optimised HLO module.

    Raises:
        ValueError: It has no entry.
    """
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for line in text.splitlines():
        if current is None:
            if start := HEAD.match(line):
                current = computations.setdefault(start.group(2), {})
                entry = start.group(2) if start.group(1) else entry
        elif line.startswith("}"):
            current = None
        elif match := LINE.match(line.strip()):
            root, name, shape, op, rest = match.groups()
            current[name] = Instruction(name, shape, op, operands(rest), rest, bool(root))
    if not entry:
        raise ValueError("no entry computation: not the text of a compiled program")
    return HloProgram(computations, entry)


def operands(rest: str) -> list[str]:
    """Lists the names between an instruction's opening bracket and the one that closes it."""
    depth = 1
    for i, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return re.findall(r"%([\w.\-]+)", rest[:i])
    return []


def nbytes(shape: str) -> int:
    """Returns the bytes of an array, or of all arrays of a tuple."""
    return sum(size * bits // 8 for size, bits in _arrays(shape))


def _arrays(shape: str) -> list[tuple[int, int]]:
    arrays = []
    for kind, sizes in SHAPE.findall(shape):
        number = re.search(r"(\d+)", kind)
        bits = BITS[kind] if kind in BITS else max(8, int(number.group(1))) if number else 32
        arrays.append((math.prod(int(size) for size in sizes.split(",") if size), bits))
    return arrays
