"""The lines of a run: while it goes on, and the last one."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from purerl.cli import main
from purerl.display import progress
from purerl.display.tables import print_comparison, print_ranking, print_report, print_summary


@pytest.mark.parametrize(
    ("returns", "alive", "words"),
    [
        ([500.0, 300.0], [True, True], "return 500.0, 300.0"),
        ([500.0, 300.0, 7.0], [False, True, True], "return 300.0, 7.0, 1 of 3 agents died"),
        (
            [7.0, 7.0, 7.0, 7.0, 3.0, 9.0],
            [True] * 5 + [False],
            "return IQM 7.0 [4.3, 7.0] (worst: agent 4, 3.0), 1 of 6 agents died",
        ),
        ([500.0, 500.0], [False, False], "2 of 2 agents died"),
    ],
)
def test_the_dead_have_no_part_in_the_return(returns, alive, words, capsys):
    """Their policies are those from before, and may play well."""
    summary = {"status": "diverged", "steps_per_second": 2e6, "wall_seconds": 1.25, "return_mean": 500.0}
    summary |= {"return_per_seed": returns, "alive_per_seed": alive}
    print_summary(Console(stderr=True), Path("runs/x"), summary)
    assert capsys.readouterr().err == f"diverged: 2M frames/s, 1.2 s; {words}; runs/x\n"


@pytest.mark.parametrize(
    ("counts", "unit"),
    [
        ({"env_steps": 4000, "all_env_steps": 8000, "steps_per_second": 2e6}, "frames"),
        (
            {"env_steps": 0, "all_env_steps": 0, "steps_per_second": 0.0}
            | {"updates": 4000, "all_updates": 8000, "updates_per_second": 2e6},
            "updates",
        ),
    ],
)
def test_who_stopped_early_is_told_in_what_the_run_counts(counts, unit, capsys):
    summary = {"status": "completed", "wall_seconds": 1.25, "return_per_seed": [1.0, 2.0, 3.0], **counts}
    summary |= {"alive_per_seed": [True] * 3, "stopped_at_per_seed": [1000, None, 3000], "select": {"kind": "halving"}}
    print_summary(Console(stderr=True), Path("runs/x"), summary)
    line = capsys.readouterr().err
    assert f"2M {unit}/s" in line and f"2 of 3 agents stopped early, the last after 3,000 {unit}, " in line
    assert f"halving took 8,000 {unit} of all agents together; runs/x" in line


def test_a_game_is_told_by_who_won(capsys):
    """By the living agents; in a team, whose return is told, by seat."""
    summary = {"status": "completed", "steps_per_second": 2e6, "wall_seconds": 1.25}
    summary |= {"return_per_seed": [0.0, 0.0, 0.0], "alive_per_seed": [True, True, False], "seats": ["0", "1"]}
    summary["seat_return_per_seed"] = [[0.5, -0.5], [0.0, 0.0], [9.0, -9.0]]
    shares = {"seat_won_per_seed": [[0.5, 0.25], [0.25, 0.25], [1.0, 0.0]]}
    print_summary(Console(stderr=True), Path("runs/x"), summary | shares)
    line = "games won by seat 0 37.5 %, seat 1 25.0 %, drawn 37.5 %, 1 of 3 agents died"
    assert line in capsys.readouterr().err
    print_summary(Console(stderr=True), Path("runs/x"), summary)
    assert "return 0.0, 0.0, by seat 0 0.2, seat 1 -0.2, 1 of 3 agents died" in capsys.readouterr().err


def test_names_move_no_cursor(capsys):
    """Directories may have any."""
    name = "runs/\x1b[2J[red]x"
    between = {"value": 1.0, "low": 0.5, "high": 1.5}
    row = {
        "run": name,
        "algo": "ppo",
        "env_steps": 8,
        "agents": 1,
        "iqm": between,
        "first_is_better": between,
        "per_seed": [1.0],
    }
    print_comparison({"title": "return", "runs": [row], "importance": {}})
    progress.say(Console(), f"done: {name}")
    out = capsys.readouterr().out
    assert "\x1b" not in out and "done: runs/\\x1b[2J[red]x" in out
    with pytest.raises(SystemExit):
        main(["render", name])
    err = capsys.readouterr().err
    assert "\x1b" not in err and "\\x1b[2J[red]x" in err


def test_who_waits_is_told_the_stage_and_the_seconds(capsys, monkeypatch):
    monkeypatch.setattr(progress, "WAIT", 0.02)  # so that nothing waits long
    with progress.waiting(Console(stderr=True), "tracing", 42.0) as stage:
        stage("compiling")
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and set(lines) == {"compiling ... 0 s, 42 s the last time"}
    with pytest.raises(ZeroDivisionError), progress.waiting(Console(stderr=True), "tracing"):
        raise ZeroDivisionError
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == "" and not [t for t in threading.enumerate() if t.name.endswith("(tick)")]


def test_lines_come_when_it_starts_soon_after_and_for_each_tenth(capsys):
    now = [0.0]
    with progress.show(Console(stderr=True), 1000, lambda: now[0]) as report:
        for seconds, done in ((1, 1), (5, 2), (9, 3), (20, 100), (30, 150), (40, 350)):
            now[0] = float(seconds)
            report(done, np.array([7.0]), 1)
    shares = [line.split("%")[0].strip() for line in capsys.readouterr().err.splitlines()]
    assert shares == [
        "started; the first progress line follows soon, then one per tenth of the training",
        "0",
        "10",
        "35",
    ]


def test_reports_show_small_returns_with_three_digits(capsys):
    iqm, gap = {"value": 0.2049, "low": 0.2, "high": 0.21}, {"value": -0.0252, "low": -0.036, "high": -0.0143}
    row = {"env": "FourRooms-misc", "trained_on": True, "baseline": "DPO", "tuned": {}, "at_edge": False}
    row |= {"fitness_iqm": iqm, "baseline_iqm": iqm, "iqm_difference": gap, "without": 0, "baseline_without": 0}
    print_report({"rows": [row], "seeds": 8})
    shown = capsys.readouterr().out
    assert "0.205 [0.200, 0.210]" in shown and "-0.025 [-0.036, -0.014]" in shown


def test_tables_fit_80_columns(capsys):
    """Whatever names and numbers they have; the ends of a long name stay."""
    wide = {"value": -1234.56, "low": -13000.25, "high": -1100.5}
    run = {"run": "runs/" + 40 * "a-long-name-" + "7", "algo": "sac-discrete", "env_steps": 10**9, "agents": 1000}
    run |= {"iqm": wide, "first_is_better": wide, "per_seed": [-1234.5] * 1000}
    few = {**wide, "low": np.nan, "high": np.nan}
    print_comparison(
        {
            "title": "frames until return 475",
            "importance": {},
            "runs": [run, {**run, "agents": 4, "iqm": few, "per_seed": [-12345.6] * 4}],
        }
    )
    row = {"env": 9 * "environment/", "trained_on": False, "baseline": "clipped L2", "tuned": {"value_coef": 0.0078125}}
    row |= {"fitness_iqm": wide, "baseline_iqm": wide, "iqm_difference": wide, "without": 200, "baseline_without": 3}
    print_report({"rows": [{**row, "at_edge": True}], "seeds": 1_000_000})
    place = {"config": 0, "learning_rate": 1e-5, "gae_lambda": 0.95, **wide, "returns": [-12345.6] * 8}
    print_ranking({"swept": {"learning_rate": [], "gae_lambda": []}, "ranked": [place] * 3, "sampled": True})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert sum("runs/a-long" in line and "name-7" in line for line in lines) == 2
    assert any("sampled" in line for line in lines)


def test_what_goes_on_is_told_where_no_report_comes_and_ever_less_often(capsys, monkeypatch):
    monkeypatch.setattr(progress, "QUIET", 0.05)  # so that nothing waits long
    doing = ["warm-up: 1 of 2 steps"]
    with progress.show(Console(stderr=True), 1000, activity=lambda: (50, doing[0])):
        time.sleep(0.8)
        doing[0] = "iteration 1: 50 of 100 steps"
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()[1:]
    assert lines[0].startswith("  5 %  ") and lines[0].endswith("  return -  warm-up: 1 of 2 steps")
    assert 2 <= sum("warm-up" in line for line in lines) <= 5 and "iteration 1" in lines[-1]
