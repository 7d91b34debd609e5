"""A run of more than a day is told before it begins, and at a terminal someone is asked."""

import io

import pytest
from commands import run
from rich.console import Console

from purerl.interrupts import Interrupted
from purerl.runs.running import run_loop

DAYS = 3.5 * 86400


@pytest.fixture
def asked(monkeypatch):
    """What was asked; the answer is no."""
    asked = []
    monkeypatch.setattr(run_loop.Confirm, "ask", lambda words, console: asked.append(words))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    return asked


def at(terminal, yes=False):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    return console, yes


def test_only_at_a_terminal_is_there_a_question(asked):
    with pytest.raises(Interrupted):
        run_loop.confirm(*at(terminal=True), DAYS)
    assert len(asked) == 1
    for run_ in (at(terminal=True, yes=True), at(terminal=False)):
        run_loop.confirm(*run_, DAYS)
        assert run_[0].file.getvalue().startswith("the run is expected to take about 3.5 days (an estimate)")
    short = at(terminal=True)
    run_loop.confirm(*short, 86399.0)
    assert len(asked) == 1 and not short[0].file.getvalue()


@pytest.mark.rest
def test_a_declined_run_leaves_nothing(asked, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run_loop, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(Console, "is_terminal", True)
    short = ["a2c", "CartPole-v1", "--num-envs", "2", "--total-steps", "64", "--hidden-sizes", "4"]
    run("train", *short, "--out", tmp_path / "run", expect=130)
    assert asked and "not begun; nothing was written" in capsys.readouterr().err and not list(tmp_path.iterdir())
