"""The face of the package: what users import, and the names that they meet."""

import ast
from pathlib import Path

import purerl

PACKAGE = Path(purerl.__file__).parent
SHARED = {"Behaviour", "Carry", "Config", "Parts", "Policy", "Program", "Settings", "State"}
"""Names that many modules have a class for."""


def test_classes_say_whose_they_are():
    classes = [
        (path.relative_to(PACKAGE).as_posix(), node.name)
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    assert len(classes) > 300
    assert not [(path, name) for path, name in classes if name in SHARED]
