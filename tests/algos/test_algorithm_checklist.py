"""What an algorithm needs beside its file, by name: one test tells what is missing, and the command that makes it."""

import json
import re

import index
import pytest
import results
from budgets import TABLE, TARGET
from test_conformance import ROWS

from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.hardware import absent
from purerl.learned import ENV_SOCKET_NAMES, SOCKET_NAMES


def missing(name):
    """A line for each thing that there is not. What learns from a dataset has no row of results: rows are commands."""
    result = []
    if ALGORITHMS[name].name not in {row.algo.name for row in ROWS.values()}:
        result.append("a row in ROWS of tests/algos/test_conformance.py")
    if name not in {row.algo for row in results.ROWS} and not ALGORITHMS[name].required:
        command = f"python scripts/reproduce.py results --scale full --names {name}"
        result.append(f"a row in ROWS of scripts/rows.py; then: {command}")
    if not (index.FOLDER / f"{name}.md").is_file():
        result.append(f"its page, docs/algorithms/{name}.md; then: python scripts/index.py")
    if name not in json.loads(TABLE.read_text()) and compiles():
        result.append(f"its budget in tests/hardware/budgets.json: python scripts/budgets.py {name} --write")
    return result


def compiles():
    """Whether there is something that compiles for GPUs; without it nobody can make a budget."""
    try:
        absent.device(TARGET)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_nothing_is_missing(name):
    assert missing(name) == []


def test_nothing_is_left_of_algorithms_that_are_gone():
    pages = {page.stem for page in index.FOLDER.glob("*.md")} - {"index"}
    assert pages == set(ALGORITHMS) and set(json.loads(TABLE.read_text())) <= set(ALGORITHMS)
    assert {row.algo.name for row in ROWS.values()} == set(ALGORITHMS) >= {row.algo for row in results.ROWS}


def test_the_table_of_sockets_names_who_has_them():
    page = (index.FOLDER.parent / "rooms" / "learned.md").read_text()
    row = lambda socket: re.search(rf"\| `{socket}` \|[^|]*\|([^|]*)\|", page).group(1).strip()
    of = {socket: {name for name in ALGORITHMS if socket in ALGORITHMS[name].sockets} for socket in SOCKET_NAMES}
    named = {
        socket: set(row(socket).split(", "))
        for socket in SOCKET_NAMES
        if socket not in ("optimiser", *ENV_SOCKET_NAMES)
    }
    assert {socket: of[socket] for socket in named} == named
    others = set().union(*named.values()) - {"disco"}
    assert row("optimiser") == "all of these except disco; reinforce, v-mpo, alphazero, muzero" and of[
        "optimiser"
    ] == others | {
        "reinforce",
        "v-mpo",
        "alphazero",
        "muzero",
    }


def test_the_index_is_made_of_what_algorithms_say():
    """If not: python scripts/index.py."""
    page = (index.FOLDER / "index.md").read_text()
    assert index.written(page) == page


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(ALGORITHMS.modules, "new", "ppo")
    monkeypatch.setitem(globals(), "ROWS", {})
    row, result, page = missing("new")[:3]
    assert row == "a row in ROWS of tests/algos/test_conformance.py"
    assert result.endswith("then: python scripts/reproduce.py results --scale full --names new")
    assert page == "its page, docs/algorithms/new.md; then: python scripts/index.py"
