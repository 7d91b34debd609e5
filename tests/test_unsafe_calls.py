"""The source reads data as data: nothing in it unpickles, evaluates, or imports what a file names unasked."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import purerl

ROOT = Path(purerl.__file__).parent.parent
FILES = sorted(path for folder in ("purerl", "scripts") for path in (ROOT / folder).rglob("*.py"))
MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "torch", "_pickle", "pty"}
"""What nothing imports."""
NAMES = {"eval", "exec", "compile", "__import__"}
"""Built-in functions that nothing calls."""
CALLS = {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "np.load", "numpy.load", "jnp.load", "jax.numpy.load"}
CALLS |= {"os.system", "os.popen", "runpy.run_path", "runpy.run_module", "importlib.util.spec_from_file_location"}
"""Functions of modules that nothing calls; `np.load` may be called with ``allow_pickle=False``."""
IMPORTERS = {
    "purerl/algos/__init__.py": "an algorithm of this package, a file beside it",
    "purerl/envs/__init__.py": "a native environment, from a table",
    "purerl/cli/__init__.py": "a command's module, from a table",
    "purerl/hardware/drivers.py": "a plugin of JAX, from a table",
    "purerl/hosts/libraries.py": "a package of environments, from a table or from the files of PettingZoo",
    "scripts/face.py": "the modules among the stable names",
    "scripts/all_tiny.py": "the scripts of its own folder, for their parsers",
    "purerl/names.py": "MODULE:ATTRIBUTE, which a person named or trusts (`check_trusted`)",
}
"""The files that import by name, and what."""
EXECUTES = {
    "scripts/workloads/meta.py": "the notebook of a peer, from a checkout that a person names, to time it",
    "scripts/workloads/jaxued_mazes.py": "the script of a peer, likewise, to compare what it learns",
}
"""The only files that call `exec`, and on what."""


def faults(source, name):
    """What a file does that no file may, a line each."""
    results = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            results += [f"imports {each}" for each in names if each.split(".")[0] in MODULES]
            if isinstance(node, ast.ImportFrom) and node.module in ("numpy", "yaml", "importlib", "os"):
                bad = {"load", "unsafe_load", "full_load", "import_module", "system", "popen"}
                results += [f"imports {node.module}.{each.name}" for each in node.names if each.name in bad]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            pickles = [word for word in node.keywords if word.arg == "allow_pickle"]
            forbids = bool(pickles) and ast.unparse(pickles[0].value) == "False"
            allowed = (called == "exec" and name in EXECUTES) or (called == "np.load" and forbids)
            if (called in NAMES | CALLS and not allowed) or (
                called == "importlib.import_module" and name not in IMPORTERS
            ):
                results.append(f"calls {called}")
            results += ["allows pickles"] if pickles and not forbids else []
    return results


def test_data_are_read_as_data():
    names = {path.relative_to(ROOT).as_posix(): path for path in FILES}
    found = {name: faults(path.read_text(), name) for name, path in names.items()}
    assert len(found) > 300 and not {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from torch import load",
        "eval(text)",
        "exec(text)",
        "yaml.load(file)",
        "from yaml import unsafe_load",
        "np.load(path)",
        "np.savez(path, allow_pickle=True)",
        "np.savez(path, allow_pickle=allowed)",
        "importlib.import_module(name)",
        "from importlib import import_module",
        "__import__(name)",
    ],
)
def test_faults_are_found(source):
    assert len(faults(source, "purerl/any.py")) == 1


def test_importers_import():
    for name in IMPORTERS:
        assert "importlib.import_module(" in (ROOT / name).read_text()


def test_an_interpreter_without_purerl_is_a_side_of_a_benchmark():
    without = "import sys; sys.modules |= dict.fromkeys(['purerl', 'jax', 'numpy']); sys.path.insert(0, 'scripts')"
    ran = subprocess.run([sys.executable, "-c", f"{without}; import benchmark"], cwd=ROOT, timeout=60)
    assert ran.returncode == 0
