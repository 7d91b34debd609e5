"""What was trusted is remembered outside of runs; any difference asks again, and no module is run to find that out."""

import json
import os
import py_compile
import sys
from pathlib import Path

import pytest

from purerl.errors import ConfigError
from purerl.names import check_trusted
from purerl.store import trusted_modules

RUN = Path("runs/mine")
NEW, CHANGED = "is new here", "has changed since it was trusted"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with modules that must not be run, and a state directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "ours" / "inner").mkdir(parents=True)
    (tmp_path / "bare").mkdir()
    for name in ("mine", "ours/__init__", "ours/inner/__init__", "ours/inner/deep", "bare/deep"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was run')\n")
    return tmp_path


def why(name, where=RUN):
    return trusted_modules.memory(False)(where, name)


def remembered():
    return json.loads(trusted_modules.location().read_text())["trusted"]


def test_asked_once(here):
    assert why("mine:make") == NEW and not trusted_modules.location().exists()
    assert trusted_modules.memory(True)(RUN, "mine:make") == "" and why("mine:make") == ""
    assert why("mine:other") == why("mine:make", Path("runs/other")) == NEW
    assert why("mine:make", here / "runs" / ".." / "runs" / "mine") == ""
    assert [(where, name) for where, name, _ in remembered()] == [(str(here / "runs" / "mine"), "mine:make")]
    file = trusted_modules.location()
    assert file == here / "state" / "purerl" / "trusted.json" and file.stat().st_mode & 0o777 == 0o600
    before = (here / "mine.py").read_text()
    (here / "mine.py").write_text(before + "# changed\n")
    assert why("mine:make") == CHANGED
    (here / "mine.py").write_text(before)
    assert why("mine:make") == ""
    (here / "mine.py").unlink()
    assert why("mine:make") == "whose source can no longer be found"
    assert not {"mine", "ours", "bare"} & set(sys.modules)


def test_the_gate():
    with pytest.raises(
        ConfigError,
        match="env = 'mine:make': .* imported and run, and is new here; --trust imports it, in Python trust=True$",
    ):
        check_trusted("env", "mine:make", trusted_modules.memory(False), RUN)
    check_trusted("env", "mine:make", trusted_modules.memory(True), RUN)
    check_trusted("env", "mine:make", trusted_modules.memory(False), RUN)
    check_trusted("env", "CartPole-v1", False)
    with pytest.raises(ConfigError, match="imported and run; --trust imports it, in Python trust=True$"):
        check_trusted("env", "mine:make", False, RUN)


def test_each_part_of_a_name():
    trusted_modules.remember(RUN, ["ppo+mine:wrap+ours.inner.deep:wrap", "CartPole-v1"])
    assert [name for _, name, _ in remembered()] == ["mine:wrap", "ours.inner.deep:wrap"]
    assert why("mine:wrap+ours.inner.deep:wrap") == "" and why("dqn+mine:wrap+mine:make") == NEW


@pytest.mark.parametrize("changed", ["ours/__init__.py", "ours/inner/__init__.py", "ours/inner/deep.py"])
def test_packages_are_run_with_their_modules(changed, here):
    trusted_modules.remember(RUN, ["ours.inner.deep:make"])
    assert why("ours.inner.deep:make") == ""
    with open(here / changed, "a") as file:
        file.write("# changed\n")
    assert why("ours.inner.deep:make") == CHANGED


def test_what_would_be_imported(here, monkeypatch):
    """What the working directory has, as Python sees it; what it would take from elsewhere is not remembered."""
    trusted_modules.remember(RUN, ["bare.deep:make", "mine:make"])
    assert why("bare.deep:make") == ""
    (here / "mine").mkdir()
    assert why("mine:make") == ""  # a folder without source comes after all modules
    (here / "mine" / "__init__.py").write_text("")
    assert why("mine:make") == CHANGED
    (here / "mine.abi3.so").write_text("")
    (here / "mine" / "__init__.py").unlink()
    assert why("mine:make") == "whose source can no longer be found"
    py_compile.compile(str(here / "mine.py"), str(here / "only.pyc"))
    for name in ("only:x", "sys:exit", "nowhere:x", "ours.mine:x", "mine.deep:x", "bare:x", "..mine:x", "a b:x", ":x"):
        trusted_modules.remember(RUN, [name])
        assert why(name) == NEW, name
    (here / "archive.zip").write_bytes(b"PK")
    monkeypatch.syspath_prepend(here / "archive.zip")
    assert trusted_modules.digest("mine:make") == ""


def test_it_is_bounded(monkeypatch):
    monkeypatch.setattr(trusted_modules, "MOST", 3)  # a bound that a test can reach
    for i in range(5):
        trusted_modules.remember(Path(f"runs/{i}"), ["mine:make"])
    assert [Path(where).name for where, *_ in remembered()] == ["2", "3", "4"]
    assert why("mine:make", Path("runs/1")) == NEW and why("mine:make", Path("runs/4")) == ""
    trusted_modules.remember(Path("runs/3"), ["mine:make"])
    assert [Path(where).name for where, *_ in remembered()] == ["2", "4", "3"]


DAMAGED = [b"", b"[]", b"{", b'{"format": 1}', b'{"format": 2, "trusted": []}', b"\xff", b"[" * 10**5, b'{"a":1,"a":2}']
DAMAGED += [json.dumps({"format": 1, "trusted": rows}).encode() for rows in ([1], [["a", "b"]], [["a", 1, "c"]], {})]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_ignored_in_a_line(text, here, capsys):
    trusted_modules.remember(RUN, ["mine:make"])
    trusted_modules.location().write_bytes(text)
    assert why("mine:make") == NEW
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"purerl: {trusted_modules.location()}: ") and line.endswith("; ignored: no code is trusted")
    trusted_modules.remember(RUN, ["mine:make"])
    assert why("mine:make") == ""


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless", "loop", "far"])
def test_something_else_in_its_place(kind, here, capsys):
    path = trusted_modules.location()
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "far":
        path.write_bytes(b" " * (trusted_modules.MOST_BYTES + 1))
    else:
        path.symlink_to("/dev/zero" if kind == "endless" else path)
    assert why("mine:make") == NEW and len(capsys.readouterr().err.splitlines()) == 1
    trusted_modules.remember(RUN, ["mine:make"])
    assert why("mine:make") == ("" if kind != "folder" else NEW)


def test_where_nothing_can_be_written(here, monkeypatch):
    (here / "state").write_text("")
    assert trusted_modules.memory(True)(RUN, "mine:make") == "" and why("mine:make") == NEW
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert trusted_modules.location() == Path("~/.local/state/purerl/trusted.json").expanduser()
