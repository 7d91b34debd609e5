"""What a training in a game tells of who won, wherever a person looks, beside what is known by hand."""

import json

import pytest
from commands import run
from hand_games import GAMES

from purerl import load
from purerl.runs.reading import overview, results

SIZES = ["--num-envs", "4", "--num-steps", "6", "--hidden-sizes", "4", "--num-minibatches", "1", "--torso", "plain",
         "--total-steps", "48", "--eval-every", "24", "--eval-episodes", "3", "--num-seeds", "2", "--yes"]  # fmt: skip


@pytest.fixture(scope="module", params=["first", "one_of_three_on_host", "apart"])
def game(request, tmp_path_factory):
    """A run of two agents in a game, on the device or on the host, and its script."""
    directory = tmp_path_factory.mktemp("games") / "run"
    more = ["--workers", "none"] if request.param.endswith("host") else []
    run("train", "ppo", "--env", f"hand_games:{request.param}", *SIZES, *more, "--log", "csv", "--out", directory)
    return directory, GAMES[request.param.removesuffix("_on_host")]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.rest
def test_logs_and_summary(game, capsys):
    directory, script = game
    metrics, evaluations = rows(directory / "metrics.jsonl"), rows(directory / "evaluations.jsonl")
    for seat, (paid, outcome) in enumerate(zip(script.returns, script.outcome, strict=True)):
        assert [row[f"episode_return/{seat}"] for row in metrics] == [paid] * 4
        assert [row[f"eval_return/{seat}"] for row in evaluations] == [paid] * 4
        if script.zero_sum:
            assert [row[f"won/{seat}"] for row in metrics] == [outcome == 1] * 4
            assert [row[f"eval_won/{seat}"] for row in evaluations] == [outcome == 1] * 4
    assert ("drawn" in metrics[0]) == ("eval_drawn" in evaluations[0]) == script.zero_sum
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["seat_return_per_seed"] == [script.returns] * 2
    if script.zero_sum:
        assert summary["seat_won_per_seed"] == [[x == 1 for x in script.outcome]] * 2
        assert summary["seat_lost_per_seed"] == [[x == -1 for x in script.outcome]] * 2
    result = load(directory, trust=True).metrics
    assert (result["episode_return/0"] == script.returns[0]).all()
    header = (directory / "log.csv").read_text().splitlines()[0].split(",")
    assert "episode_return/0" in header and ("eval_won/0" in header) == script.zero_sum


@pytest.mark.rest
def test_against_others(game, capsys):
    """In each seat by turns: of seven games of two seats four in the first one; also against itself."""
    directory, script = game
    number, games = len(script.leave), 7
    played = [script.outcome[episode % number] for episode in range(games)]
    for rival in ("random", directory):
        capsys.readouterr()
        run("eval", directory, "--episodes", games, "--against", rival, "--json")
        result = json.loads(capsys.readouterr().out)
        for name, outcome in (("won", 1), ("drawn", 0), ("lost", -1)):
            assert result[f"{name}_per_seed"] == [played.count(outcome) / games] * 2
            assert result[f"seat_{name}_per_seed"] == [[float(x == outcome) for x in script.outcome]] * 2
            low, high = result[f"{name}_interval_per_seed"][0]
            assert low <= played.count(outcome) / games <= high and 0.2 < high - low < 0.8
        assert result["seat_return_per_seed"] == [script.returns] * 2
    run("eval", directory, "--episodes", games, "--against", "random")
    out = capsys.readouterr().out
    assert f"{played.count(1) / games:.1%}" in out and "by seat, means over 2 agents" in out


@pytest.mark.rest
def test_tables_lines_and_the_page(game, capsys):
    directory, script = game
    capsys.readouterr()
    run("eval", directory, "--episodes", "2")
    out = capsys.readouterr().out
    shares = ", ".join(f"seat {i} {100 * (x == 1):.1f} %" for i, x in enumerate(script.outcome))
    assert (f"games won by {shares}, drawn 0.0 %" in out) == script.zero_sum
    assert ("return 0.0" in out) == 0 and ("won" in out) == script.zero_sum
    page = overview.answers(directory.parent)
    [listed], whole = page.runs()["runs"], page.run("run")
    assert [row["return"] for row in listed["seats"]] == script.returns
    won = [float(x == 1) if script.zero_sum else None for x in script.outcome]
    assert [row["won"] for row in listed["seats"]] == [row["won"] for row in whole["seats"]] == won
    assert listed["drawn"] == (0 if script.zero_sum else None)
    assert (directory / "curve.png").exists()
    drawn = [(line.name, line.values.tolist()) for line in results._shares_of_games(directory)]
    names = [*(f"games won, seat {i}" for i in range(len(won))), "games drawn"] if script.zero_sum else []
    assert drawn == [(name, [[share] * 2] * 2) for name, share in zip(names, [*won, 0.0], strict=False)]
    run("compare", directory, directory)
    hint = "all returns are 0, as in a zero-sum game" in capsys.readouterr().out
    assert hint == script.zero_sum
    if script.zero_sum:  # also before there is an evaluation
        assert listed["spark"] == [won[0]] * 2
        (directory / "summary.json").rename(directory / "before")
        [early] = overview.answers(directory.parent).runs()["runs"]
        (directory / "before").rename(directory / "summary.json")
        assert [row["won"] for row in early["seats"]] == won and early["drawn"] == 0


@pytest.mark.rest
def test_returns_are_told_under_a_film(game, capsys):
    directory, script = game
    capsys.readouterr()
    run("render", directory, "--episodes", "2", "--size", "64", "--agent", "1", "--overwrite")
    each = " : ".join(f"{x:.5g}" for x in script.returns)
    assert f"returns by seat {each}; {each}\n" in capsys.readouterr().out
    page = overview.answers(directory.parent)
    assert page.run("run")["filmed"] == {"film.gif": f"agent 1, returns by seat {each}; {each}"}
    run("render", directory, "--size", "64", "--out", directory.parent / "away.gif", "--overwrite")
    assert list(json.loads((directory / "films.json").read_text())) == ["film.gif"]
    (directory / "film.gif").write_bytes(b"GIF89a")  # another film, of which nothing is known
    assert page.run("run")["filmed"] == {}
