"""What may know what: the imports of every module, read from its source."""

import ast
import functools
from importlib.machinery import PathFinder
from pathlib import Path

import purerl

PACKAGE = Path(purerl.__file__).parent
GROUND = (
    "errors",
    "version",
    "names",
    "types",
    "spaces",
    "trees",
    "draw",
    "counters",
    "exact",
    "shards",
    "config",
    "compat",
    "jaxprs",
    "backend",
    "channel",
    "interrupts",
    "processes",
    "catalogue",
)
ROOMS = [
    "formulas",
    "networks",
    "hosts",
    "envs",
    "replay",
    "loops",
    "curricula",
    "learners",
    "algos",
    "hardware",
    "population",
    "store",
    "display",
    "learned",
    "runs",
    "exports",
    "meta",
    "benchmarks",
    "cli",
]
"""From the bottom to the top: a room imports itself, those before it, and the modules on the ground."""
INNER = {
    "learners": ["parts", "families", "wrappers"],
    "runs": ["describing", "reading", "running"],
}
"""Rooms inside of rooms, in the same order."""
BESIDE = {("learners", "families", "wrappers")}
"""Rooms of which the second imports nothing of the first either."""
FORBIDDEN = {
    "hardware": ROOMS[: ROOMS.index("hardware")],
    "loops": ("learners", "networks"),
    "networks": ("envs", "replay"),
    "replay": ("envs", "networks"),
    "population/planning": ("replay",),
    "store": ("population", "algos"),
}
"""What a room or a module may not import although it stands above it."""


def modules():
    return {path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


MODULES = modules()


@functools.cache
def parsed(path):
    """The tree of a file, and all its nodes."""
    tree = ast.parse(path.read_text())
    return tree, list(ast.walk(tree))


def imported(path, everywhere=True, typing=True):
    """Modules that a file imports, as names with dots.

    ``everywhere``: not only at its top. ``typing``: also those that only a type checker imports.
    """
    tree, nodes = parsed(path)
    blocks = [node for node in nodes if not typing and _type_checking(node)]
    left_out = {node for block in blocks for node in ast.walk(block)}
    results = []
    for node in nodes if everywhere else tree.body:
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            results += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            results += [f"{node.module}.{alias.name}" for alias in node.names]
    return results


def _type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def room(name):
    """The room of ``purerl.room.module`` or of ``room/module``; None for what is not of this package."""
    parts = name.replace("/", ".").split(".")
    return parts[1] if parts[0] == "purerl" and len(parts) > 1 else None


def test_every_module_stands_in_a_room():
    here = {name.split("/")[0] for name in MODULES} - {"__init__"}
    assert here == {*GROUND, *ROOMS}


def test_a_checkout_has_one_copy_of_a_module():
    """A link such as ``algos`` in the root of a checkout makes ``import algos`` a second copy of ``purerl.algos``."""
    for name in (*GROUND, *ROOMS):
        spec = PathFinder.find_spec(name, [str(PACKAGE.parent)])
        assert spec is None or spec.loader is None, name  # a folder such as runs/, without modules


def test_imports_run_down():
    for name in MODULES:
        own = name.split("/")[0]
        for target in imported(MODULES[name]) if "/" in name else ():
            other = room(target)
            if other is None or other in GROUND or other == own:
                continue
            assert other in ROOMS, f"{name} imports {target} through the package's face"
            assert ROOMS.index(other) < ROOMS.index(own), f"{name} imports {target}, which stands above it"
            for rule in (own, name):
                assert other not in FORBIDDEN.get(rule, ()), f"{name} imports {target}"


def test_imports_run_down_inside_of_a_room():
    for name in MODULES:
        own, inner, *more = [*name.split("/"), ""][:3]
        for target in imported(MODULES[name]) if own in INNER and any(more) else ():
            parts, order = target.split("."), INNER[own]
            if parts[:2] == ["purerl", own] and len(parts) > 2 and parts[2] != inner:
                assert order.index(parts[2]) < order.index(inner), f"{name} imports {target}, which stands above it"
                assert (own, parts[2], inner) not in BESIDE, f"{name} imports {target}"


def test_a_room_of_rooms_holds_nothing_else():
    for name, order in INNER.items():
        here = {other.split("/")[1] for other in MODULES if other.startswith(name + "/")} - {"__init__"}
        assert here == set(order)


def test_the_ground_knows_no_room():
    for name in set(MODULES) - {"__init__"}:
        targets = imported(MODULES[name]) if "/" not in name else ()
        assert not [target for target in targets if room(target) in ROOMS], name


def test_modules_import_one_another_in_no_circle():
    """Imports within functions count too."""
    dotted = {("purerl." + name.replace("/", ".")).removesuffix(".__init__"): path for name, path in MODULES.items()}
    edges = {}
    for name, path in dotted.items():
        targets = {t if t in dotted else t.rpartition(".")[0] for t in imported(path, typing=False)}
        edges[name] = {t for t in targets if t in dotted and t != name and not name.startswith(t + ".")}

    def visit(name, path):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in edges[name]:
                visit(target, [*path, name])
            done.add(name)

    done = set()
    for name in edges:
        visit(name, [])


def test_nothing_experimental_is_imported_at_import_time():
    for name, path in MODULES.items():
        assert not [t for t in imported(path, everywhere=False, typing=False) if ".experimental" in t], name
