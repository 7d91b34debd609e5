"""The face of the package: what users import, and the names that they meet."""

import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import face
import pytest

import purerl
from purerl.algos import ALGORITHMS

PACKAGE = Path(purerl.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
SHARED = {"Behaviour", "Carry", "Config", "Parts", "Policy", "Program", "Settings", "State"}
"""Names that many modules have a class for."""
LATER = {"alepy", "brax", "craftax", "cv2", "envpool", "imageio_ffmpeg", "jaxmarl", "jumanji", "mujoco_playground"}
LATER |= {"onnx", "pettingzoo", "pgx", "resvg_py", "tensorboardX", "wandb", "xminigrid", "pandas", "matplotlib"}
"""Packages that are imported where they are used, and no sooner."""


@pytest.fixture(scope="module")
def modules():
    return face.modules()


def test_classes_say_whose_they_are():
    classes = [
        (path.relative_to(PACKAGE).as_posix(), node.name)
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    assert len(classes) > 300
    assert not [(path, name) for path, name in classes if name in SHARED]


def test_every_algorithm_is_a_stable_name(modules):
    assert {name for name in modules["purerl"] if name in ALGORITHMS.modules.values()} == set(
        ALGORITHMS.modules.values()
    )
    assert purerl.qr_dqn is ALGORITHMS["qr-dqn"]


def test_stable_names_are_listed_where_a_user_imports_them(modules):
    listed = {f"{module}.{name}" for module, names in modules.items() for name in names}
    assert {"purerl.ppo", "purerl.envs.make", "purerl.envs.wrappers.frame_stack", "purerl.types.Env"} <= listed
    assert not [name for name in listed if name.rpartition(".")[2].startswith("_") and name != "purerl.__version__"]


def test_the_page_of_stable_names_lists_the_packages_that_have_none(modules):
    page = (PACKAGE.parent / "docs/stability.md").read_text()
    listed = re.search(r"those of the packages (.*?), and names", page, re.DOTALL)[1]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)`", listed)) == {name for name in packages if f"purerl.{name}" not in modules}


def test_the_package_offers_nothing_else():
    assert dir(purerl) == sorted(purerl.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        purerl.nonsense  # noqa: B018


def test_importing_the_package_imports_neither_jax_nor_extras():
    code = """
import sys, purerl
assert "jax" not in sys.modules
import face
face.modules()
print(*{name.partition(".")[0] for name in sys.modules})
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(face.__file__).parent
    )
    assert not LATER & set(ran.stdout.split())


def test_types_of_stable_names_are_checked_strictly(modules):
    strict = next(each["module"] for each in PROJECT["tool"]["mypy"]["overrides"])
    values = [value for names in modules.values() for value in names.values()]
    defined = {*modules, *(getattr(value, "__module__", "") for value in values)}
    own = {name for name in defined if name.startswith("purerl")}
    inside = lambda name: any(fnmatch.fnmatch(name, each) or name == each.removesuffix(".*") for each in strict)
    assert not [name for name in own if not inside(name)]
    assert (PACKAGE / "py.typed").is_file()
