"""Counts the kernels of a compiled GPU program and the bytes that they move, loop by loop.

A kernel is an instruction that runs: anything but a tuple, a bitcast, a parameter, a constant, a call or a loop. It
moves its operands and its result, each once. Of an operand of which a kernel reads slices only the slices count, of an
array that it updates in place the part that is new. Caches are not modelled: what stays in one counts all the same, and
in this the bytes are an upper bound. Of a conditional the branch counts that moves most.
"""

import re
from typing import NamedTuple

from purerl.hardware import hlo
from purerl.hardware.hlo import Computation, HloProgram, Instruction

FREE = frozenset(
    [
        "get-tuple-element",
        "tuple",
        "parameter",
        "constant",
        "bitcast",
        "after-all",
        "partition-id",
        "replica-id",
        "opt-barrier",
        "add-dependency",
    ]
)
"""Operations that take no kernel. Neither does the end of an asynchronous operation."""
SLICES = "dynamic-slice", "slice", "gather"
"""Operations that read as much of their first operand as they return."""
UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
"""Operations that write into their first operand in place, and the number of the operand that holds the new part."""
NO_SCOPE = re.compile(r"^(while|body|cond|closed_call|call|scan|checkpoint|\w*jit\(.*\)|\W*)$")


class Loop(NamedTuple):
    """A loop, or at ``depth`` 0 all instructions outside of loops.

    It goes round ``runs`` times in the whole program. Each time it takes ``kernels`` and moves ``traffic_bytes``,
    without those of the loops inside.
    """

    label: str
    depth: int
    runs: int
    kernels: int
    traffic_bytes: int


class Census(NamedTuple):
    """The loops of a program, each before those inside, and sums over the whole program."""

    loops: list[Loop]

    @property
    def kernels(self) -> int:
        """The number of kernels that run."""
        return sum(loop.runs * loop.kernels for loop in self.loops)

    @property
    def traffic_bytes(self) -> int:
        """The bytes that the kernels move between a device's memory and its processors."""
        return sum(loop.runs * loop.traffic_bytes for loop in self.loops)

    def named(self, label: str, runs: int = 1) -> "Census":
        """Returns the census of ``runs`` runs, in which the instructions outside of loops are called ``label``."""
        loops = [loop._replace(runs=loop.runs * runs) for loop in self.loops]
        return Census([loops[0]._replace(label=label), *loops[1:]])


def count(text: str, unknown_trips: int = 1) -> Census:
    """Counts the text of an optimised HLO module.

    Args:
        text: The text of the module.
        unknown_trips: The number of iterations of a loop whose number is not known until it runs. Such a loop within
            another one counts once.

    Raises:
        ValueError: It is the text of something else.
    """
    program = hlo.parse(text)
    return Census(_loops(program, program.entry, "", 0, 1, unknown_trips))


def _loops(program: HloProgram, name: str, label: str, depth: int, runs: int, unknown_trips: int) -> list[Loop]:
    """Counts a computation that runs ``runs`` times, and the loops inside."""
    kernels = moved = 0
    inner: list[Loop] = []
    for each in program.computations[name].values():
        if each.op == "while":
            trips = unknown_trips if each.trips is None else each.trips
            further = 1 if each.trips is None else unknown_trips
            body = _loops(program, _must(each, "body"), scope(each), depth + 1, runs * trips, further)
            if each.trips is None:  # the condition is evaluated in each iteration
                extra = _loops(program, _must(each, "condition"), "", depth + 1, runs * trips, 1)[0]
                body[0] = _with(body[0], extra)
            inner += body
        elif each.op == "conditional":
            branches = [_loops(program, branch, scope(each), depth + 1, runs, 1) for branch in _branches(each)]
            dearest = max(branches, key=_traffic)
            inner += dearest
        elif each.op == "call":
            same, *further_in = _loops(program, _must(each, "to_apply"), label, depth, runs, unknown_trips)
            kernels, moved = kernels + same.kernels, moved + same.traffic_bytes
            inner += further_in
        elif each.op not in FREE and not each.op.endswith("-done"):
            kernels += 1
            moved += traffic(program, program.computations[name], each)
    return [Loop(label or "once", depth, runs, kernels, moved), *inner]


def scope(loop: Instruction) -> str:
    """Returns the innermost name that the program gives to the place of a loop."""
    names = [part for part in re.split(r"/", loop.label) if not NO_SCOPE.match(_bare(part))]
    return _bare(names[-1]) if names else "loop"


def _bare(part: str) -> str:
    """Removes the transformations around a part of a path: ``vmap(rollout)`` becomes ``rollout``."""
    while match := re.match(r"^(?:vmap|transpose|jvp|checkpoint|rematted_computation)\((.*)\)$", part):
        part = match.group(1)
    return part


def _traffic(loops: list[Loop]) -> int:
    return Census(loops).traffic_bytes


def _with(loop: Loop, other: Loop) -> Loop:
    return loop._replace(kernels=loop.kernels + other.kernels, traffic_bytes=loop.traffic_bytes + other.traffic_bytes)


def _must(instruction: Instruction, attribute: str) -> str:
    value = instruction.named(attribute)
    if value is None:
        raise ValueError(f"{instruction.name}: a {instruction.op} without {attribute}")
    return value


def _branches(conditional: Instruction) -> list[str]:
    many = re.search(r"branch_computations=\{([^}]*)\}", conditional.text)
    if many:
        return re.findall(r"%?([\w.\-]+)", many.group(1))
    return [_must(conditional, f"{which}_computation") for which in ("true", "false")]


def traffic(program: HloProgram, around: Computation, kernel: Instruction) -> int:
    """Counts the bytes that one kernel reads and writes."""
    shapes = [around[name].shape if name in around else "" for name in kernel.operands]
    inside = program.computations.get(kernel.named("calls") or "")
    if kernel.op == "fusion" and inside:
        parameters = {each.text.split(")")[0]: each for each in inside.values() if each.op == "parameter"}
        read = sum(_read(inside, parameters[str(i)]) for i in range(len(shapes)) if str(i) in parameters)
        root = next(each for each in inside.values() if each.root)
        return read + _written(inside, root)
    if kernel.op in SLICES:
        return 2 * hlo.nbytes(kernel.shape) + sum(map(hlo.nbytes, shapes[1:]))
    if kernel.op in UPDATES:
        return sum(map(hlo.nbytes, shapes[1:])) + hlo.nbytes(shapes[UPDATES[kernel.op]])
    result = kernel.shape
    if "$" in kernel.target:  # library matrix products list scratch memory besides the result
        result = re.sub(r",?\s*s8\[\d+\]", "", result)
    return hlo.nbytes(result) + sum(map(hlo.nbytes, shapes))


def _read(inside: Computation, value: Instruction) -> int:
    """Counts the bytes that a fusion reads of one of its parameters, or of a bitcast of one."""
    whole, read = hlo.nbytes(value.shape), 0
    for user in inside.values():
        if value.name not in user.operands:
            continue
        first = user.operands[0] == value.name and value.name not in user.operands[1:]
        if user.op == "bitcast":
            read += _read(inside, user)
        elif user.op in SLICES and first:
            read += hlo.nbytes(user.shape)
        elif user.op in UPDATES and first:
            continue
        elif user.op != "tuple":
            return whole
    return min(whole, read)


def _written(inside: Computation, value: Instruction) -> int:
    """Counts the bytes that a fusion writes for its result."""
    if value.op == "tuple":
        return sum(_written(inside, inside[name]) for name in value.operands)
    if value.op == "bitcast" and value.operands[0] in inside:
        return _written(inside, inside[value.operands[0]])
    if value.op in UPDATES:
        return hlo.nbytes(inside[value.operands[UPDATES[value.op]]].shape)
    return hlo.nbytes(value.shape)
