"""Which agent of a run: its number, or the best and the worst by one told number."""

import json
from pathlib import Path

import numpy as np
import pytest

from purerl.errors import ConfigError
from purerl.runs.reading import choosing


def run(folder, returns, alive=None, **more):
    folder.mkdir(parents=True, exist_ok=True)
    alive = [True] * len(returns) if alive is None else alive
    (folder / "summary.json").write_text(
        json.dumps({"return_per_seed": returns, "alive_per_seed": alive, "seeds": [0], "swept": {}, **more})
    )
    return folder


def test_the_best_and_the_worst_are_alive_and_have_a_return(tmp_path):
    """A policy of an agent that diverged is the one from before, and may play well."""
    path = run(tmp_path, [3.0, 9.0, None, 1.5, 7.0, 0.5], [True, False, True, True, True, False])
    best, worst = (choosing.choose(path, name) for name in ("best", "worst"))
    assert (best.number, best.score, best.ties) == (4, 7.0, (4,))
    assert (worst.number, worst.score) == (3, 1.5)
    assert best.in_words() == f"agent 4 of {path}: best of 6 by the mean return of the final evaluation, 7.00"


def test_ties_are_not_the_best(tmp_path):
    """Solved environments give the same return to most agents."""
    choice = choosing.choose(run(tmp_path, [500.0, 20.0, 500.0, 500.0]), "best")
    assert (choice.number, choice.ties) == (0, (0, 2, 3))
    assert "the first of 3 (agents 0, 2, 3) that share the highest" in choice.in_words()
    assert choice.in_words().endswith("500.00; none of them is the best")
    many = choosing.choose(run(tmp_path, [1.0] * 12), "worst")
    assert "(agents 0, 1, 2, 3, 4, 5, 6, 7 and 4 more)" in many.in_words()


def test_agents_of_programs_are_numbered_program_after_program(tmp_path):
    programs = {"num_envs": [2, 4, 8]}
    run(tmp_path, [1.0, 2.0, 3.0, 9.0, 5.0, 6.0])
    (tmp_path / "config.json").write_text(json.dumps({"programs": programs}))
    for name in "012":
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.json").write_text('{"members": 2}')
    chosen = [choosing.choose(tmp_path, name) for name in (0, "3", "best", 5)]
    assert [(choice.directory.name, choice.number) for choice in chosen] == [("0", 0), ("1", 1), ("1", 1), ("2", 1)]
    assert chosen[2].of == (tmp_path, 3) and chosen[2].in_words().startswith(f"agent 3 of {tmp_path}: best of 6")
    with pytest.raises(ConfigError, match="has agents 0 to 5"):
        choosing.choose(tmp_path, 6)
    (tmp_path / "summary.json").unlink()  # interrupted in its last program
    (tmp_path / "2" / "policy.json").unlink()
    assert choosing.choose(tmp_path, 3).directory.name == "1"
    with pytest.raises(ConfigError, match=r"2 has no policies yet"):
        choosing.choose(tmp_path, 4)


def test_the_best_policies_of_a_training_are_ranked_by_their_own_number(tmp_path):
    (tmp_path / "policy.json").write_text(json.dumps({"best_return_per_seed": [1.0, None, 4.0]}))
    choice = choosing.choose(tmp_path, "best")
    assert choice.number == 2 and "between two checkpoints" in choice.by


@pytest.mark.parametrize(
    ("summary", "name", "line"),
    [
        ({}, "best", "has no final evaluation"),
        ({"return_per_seed": [None, None], "alive_per_seed": [True, True]}, "worst", "has a return; give its number"),
        ({"return_per_seed": [1.0], "alive_per_seed": []}, "best", "has no final evaluation"),
        ({}, "first", "must be best, worst or a number from 0"),
        ({}, "-1", "must be best, worst or a number from 0"),
        ({}, "²", "must be best, worst or a number from 0"),
    ],
)
def test_what_cannot_be_chosen(summary, name, line, tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(ConfigError, match=line) as raised:
        choosing.choose(tmp_path, name)
    assert len(str(raised.value).splitlines()) == 1


def test_names_of_agents_are_told_from_paths(tmp_path):
    odd = tmp_path / "run:3"
    odd.mkdir()
    assert choosing.parsed("runs/a:3") == (Path("runs/a"), "3")
    assert choosing.parsed("runs/a:best") == (Path("runs/a"), "best")
    assert choosing.parsed(odd) == (odd, "") and choosing.parsed(f"{odd}:worst") == (odd, "worst")
    assert choosing.parsed("runs/a:b") == (Path("runs/a:b"), "") and choosing.parsed("") == (Path(), "")
    assert choosing.parsed("x" * 5000 + ":0")[1] == "0"
    assert np.isnan(choosing.Choice(odd, 0, (odd, 0), "0").score)
