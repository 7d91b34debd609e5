"""Sweeps that select among their configurations while they train: by the definition, at the told cost, in the same bits
however the clock cuts chunks and whatever interrupted them."""

import contextlib
import io
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from test_resume import break_down, outcome, run

from purerl import load, population
from purerl.display import plots, words
from purerl.errors import ConfigError
from purerl.population.selection import ancestry
from purerl.runs.describing import sweeps
from purerl.runs.describing.description import TrainingDescription
from purerl.runs.describing.run_directory import METRICS, SELECTION
from purerl.runs.reading import overview
from purerl.runs.running import device_program
from purerl.runs.running.selecting import Selection
from purerl.store import checkpoint
from purerl.types import TrainState

SMALL = ["--env", "CartPole-v1", "--num-envs", "2", "--num-steps", "16", "--hidden-sizes", "8", "--eval-episodes", "2"]
SMALL += ["--compile", "quick"]
PBT = ["sweep", "ppo", *SMALL, "--total-steps", "1280", "--select", "pbt", "--select-every", "256"]
PBT += ["--learning-rate", "1e-3,3e-3,1e-2,1e30,1e-12", "--gamma", "0.99"]
HALVING = [
    "sweep",
    "ppo",
    *SMALL,
    "--total-steps",
    "1280",
    "--select",
    "halving",
    "--learning-rate",
    "1e-3,1e-2,1e30,3e-3",
]
HALVING += ["--num-seeds", "2"]
COUNT = 5


def rows(directory, name=SELECTION):
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


def summary(directory):
    return json.loads((directory / "summary.json").read_text())


def by_interval(directory, key):
    """``[I, P]``: a column of the log of selections."""
    table = rows(directory)
    ends = sorted({row["iteration"] for row in table})
    return np.array([[row[key] for row in table if row["iteration"] == end] for end in ends], object)


def fitness(directory, agent, start, end):
    """The mean return of the episodes of an agent that ended after iteration ``start``, by its metrics."""
    own = [row for row in rows(directory, METRICS) if (row["config"], row["seed"]) == agent]
    own = [row for row in own if start < row["iteration"] <= end and row["episodes"]]
    total = sum(row["episodes"] * row["episode_return"] for row in own)
    return total / sum(row["episodes"] for row in own)


def begun(folder, command):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        run(*command, "--out", folder / "run")
    (folder / "said").write_text(said.getvalue())
    return folder / "run"


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    """A run of population-based training; ``said`` beside it has what it printed."""
    return begun(tmp_path_factory.mktemp("evolved"), PBT)


@pytest.fixture(scope="module")
def halved(tmp_path_factory):
    return begun(tmp_path_factory.mktemp("halved"), HALVING)


def test_the_worst_go_on_from_the_best(evolved):
    """Of five agents one is replaced in each interval: the worst by the best, of those that diverged first."""
    parents, scores = by_interval(evolved, "parent"), by_interval(evolved, "fitness")
    values = by_interval(evolved, "values.learning_rate").astype(float)
    assert parents.shape == (5, COUNT) and [row["iteration"] for row in rows(evolved)[::COUNT]] == [8, 16, 24, 32, 40]
    for i, (end, row) in enumerate(zip((8, 16, 24, 32, 40), scores, strict=True)):
        alive = {x["config"]: x["alive"] for x in rows(evolved, METRICS) if x["iteration"] == end}
        for agent in range(COUNT):
            expected = fitness(evolved, (agent, 0), end - 8, end) if alive[agent] else None
            assert row[agent] == (None if expected is None else pytest.approx(expected, rel=1e-6))
        told = np.array([-np.inf if x is None else x for x in row])
        moved = [agent for agent in range(COUNT) if parents[i, agent] != agent]
        assert moved == ([] if end == 40 else [int(np.argsort(told, kind="stable")[0])])
        assert all(parents[i, agent] == np.argsort(told, kind="stable")[-1] for agent in moved)
        if end < 40:
            still = [agent for agent in range(COUNT) if agent not in moved]
            assert (values[i + 1, still] == values[i, still]).all()
            for agent in moved:
                new, old = values[i + 1, agent], values[i, parents[i, agent]]
                assert 1e-12 <= new <= 1e30
                assert any(new == pytest.approx(old * factor, rel=1e-5) for factor in (0.8, 1.25)) or new != old
    assert parents[0, 3] != 3 and scores[0, 3] is None  # 1e30 diverged, and was replaced first
    assert ancestry(parents[:-1].astype(int), 3)[0] == parents[0, 3]


def test_new_values_are_trained_with(evolved):
    """A training with 1e-12 does not move its policy, and one with 1e-3 and more does, whatever it did before."""
    values = by_interval(evolved, "values.learning_rate").astype(float)
    for i in range(5):
        for agent in range(COUNT):
            own = [x for x in rows(evolved, METRICS) if x["config"] == agent and 8 * i < x["iteration"] <= 8 * (i + 1)]
            moves = max(abs(x["approximate_kl"] or 0) for x in own[:-1]) > 1e-7
            assert moves == (values[i, agent] > 1e-7) or values[i, agent] > 1e3
            left = 1 - np.array([x["iteration"] for x in own]) / 40
            assert np.allclose([x["learning_rate"] for x in own], values[i, agent] * left, rtol=1e-4)


def test_the_final_values_are_those_of_the_policies(evolved):
    last = by_interval(evolved, "values.learning_rate")[-1].tolist()
    policy, ranking = (json.loads((evolved / name).read_text()) for name in ("policy.json", "sweep.json"))
    config = json.loads((evolved / "config.json").read_text())
    assert policy["swept"]["learning_rate"] == ranking["swept"]["learning_rate"] == last
    assert summary(evolved)["swept"]["learning_rate"] == last
    assert config["swept"]["learning_rate"] == [1e-3, 3e-3, 1e-2, 1e30, 1e-12]
    assert config["select"] == policy["select"] == {"kind": "pbt", "every": 256}
    assert {row["config"]: row["learning_rate"] for row in ranking["ranked"]} == dict(enumerate(last))
    assert load(evolved).settings["learning_rate"].tolist() == last
    run("eval", evolved, "--episodes", "1")
    run("plot", evolved, "--y", "fitness", "--kind", "curves", "--out", evolved / "fitness.png")


@pytest.mark.rest
def test_halving_stops_the_worse_half(halved):
    """Of four configurations two go on after 320 frames, and one after 640; those that diverged stop first."""
    table, scores, left = rows(halved), {}, {0, 1, 2, 3}
    stopped = dict.fromkeys(range(4))
    for start, end in ((0, 10), (10, 20)):
        for config in left:
            own = [row for row in table if row["iteration"] == end and row["config"] == config]
            assert len(own) == 2 and [row["frames"] for row in own] == [320, 320]
            for row in own:
                expected = fitness(halved, (config, row["seed"]), start, end)
                assert row["fitness"] is None or row["fitness"] == pytest.approx(expected, rel=1e-6)
            scores[config] = np.mean([-np.inf if row["fitness"] is None else row["fitness"] for row in own])
        order = sorted(left, key=lambda config: -scores[config])
        for config in order[len(order) // 2 :]:
            stopped[config] = 32 * end
            assert all(row["parent"] is None for row in table if row["iteration"] == end and row["config"] == config)
        left = set(order[: len(order) // 2])
    assert 2 in stopped and stopped[2] == 320  # 1e30 diverged
    told = summary(halved)
    assert told["stopped_at_per_seed"] == [stopped[config] for config in range(4) for _ in range(2)]
    ranked = json.loads((halved / "sweep.json").read_text())["ranked"]
    assert [row["env_steps"] for row in ranked] == [1280, 640, 320, 320] and ranked[0]["config"] in left
    last = {}
    for row in rows(halved, METRICS):
        last[row["config"]] = row["env_steps"]
    assert last == {config: at or 1280 for config, at in stopped.items()}


@pytest.mark.rest
def test_what_is_left_trains_as_without_selection(halved, tmp_path):
    """Every logged row has the numbers of the same sweep without selection."""
    alone = [word for word in HALVING if word not in ("--select", "halving")]
    run(*alone, "--out", tmp_path / "run")
    at = lambda row: (row["iteration"], row["config"], row["seed"])
    plain = {at(row): row for row in rows(tmp_path / "run", METRICS)}
    kept = rows(halved, METRICS)
    assert 0 < len(kept) < len(plain)
    assert all({**row, "stopped": None} == {**plain[at(row)], "stopped": None} for row in kept)


@pytest.mark.parametrize(
    ("name", "total", "told"),
    [
        ("evolved", 5 * 1280, "6,400 frames"),
        ("halved", 2 * (4 * 320 + 2 * 320 + 640), "5,120 frames instead of 10,240"),
    ],
)
def test_the_cost_that_is_told_is_that_of_the_logs(name, total, told, request):
    directory = request.getfixturevalue(name)
    frames = {}
    for row in rows(directory):
        agent = row["config"], row["seed"]
        frames[agent] = frames.get(agent, 0) + row["frames"]
        assert frames[agent] == row["env_steps"]
    assert summary(directory)["all_env_steps"] == total == sum(frames.values())
    assert len(rows(directory, METRICS)) * 32 == total
    said = " ".join((directory.parent / "said").read_text().split())
    assert f"{told} in all" in said and f"took {total:,} frames of all agents together" in said


@pytest.mark.rest
def test_a_plan_tells_the_cost(capsys):
    run(*HALVING, "--dry-run")
    assert f"{'all agents take':<20}5,120 frames instead of 10,240\n" in capsys.readouterr().out


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "command", "after"),
    [
        pytest.param("evolved", PBT, 13, id="pbt"),
        pytest.param("evolved", PBT, 16, id="pbt-at-a-selection"),
        pytest.param("halved", HALVING, 13, id="halving"),
    ],
)
def test_a_resumed_run_selects_the_same(name, command, after, request, tmp_path, monkeypatch):
    whole = request.getfixturevalue(name)
    monkeypatch.setattr(device_program, "CHUNK_SECONDS", 1e-9)  # chunks of one iteration
    break_down(*command, "--out", tmp_path / "run", after=after)
    assert checkpoint.steps(tmp_path / "run" / "checkpoints" / "0")[-1] == after
    run("resume", tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(whole)
    for file in (SELECTION, "sweep.json"):
        assert (tmp_path / "run" / file).read_bytes() == (whole / file).read_bytes()


@pytest.mark.parametrize("name", ["evolved", "halved"])
@pytest.mark.rest
def test_a_run_with_a_selection_has_the_length_that_it_began_with(name, request, capsys):
    """Its selections follow from it: a longer run would have had another at what was the end."""
    directory = request.getfixturevalue(name)
    run("resume", directory, "--total-steps", 1600, expect=2)
    assert "total_steps = 1600: the run has 1280; it cannot be changed" in capsys.readouterr().err
    run("resume", directory, "--select", "none", expect=2)


@pytest.mark.rest
@pytest.mark.parametrize("command", [PBT, HALVING])
def test_agents_side_by_side(command, tmp_path):
    """Where agents that stopped are computed along with the others they count no frames, and keep their policy."""
    run(*command, "--lanes", 4, "--num-devices", 2, "--out", tmp_path / "run")
    total = sum(row["frames"] for row in rows(tmp_path / "run"))
    assert summary(tmp_path / "run")["all_env_steps"] == total == len(rows(tmp_path / "run", METRICS)) * 32


@pytest.fixture
def selecting(halved):
    """The selection of the run with halving, before it began, and a state of its eight agents."""
    setup = load(halved).setup
    shapes = jax.eval_shape(setup.trainer.init, jax.random.key(0)).stopping
    stopping = jax.tree.map(lambda x: np.zeros((8, *x.shape), x.dtype), shapes)
    state = TrainState((), (), (), np.zeros(8, int), np.ones(8, bool), (), stopping)
    layout = population.layout(8, jax.devices()[:1])
    return Selection(setup, SimpleNamespace(chunk=SimpleNamespace(layout=layout))), state


def ended(*returns):
    """Metrics of an iteration in which an episode with each of these returns ended, or none."""
    values = np.array([[np.nan if x is None else x for x in returns]], np.float32)
    return {"episodes": np.isfinite(values).astype(np.int32), "episode_return": values}


def test_long_episodes_keep_the_rank_of_before(selecting):
    """Without a new episode the fitness stays what it was; without any an agent ranks last, and so do its siblings."""
    selection, state = selecting
    selection.begin(None, state)
    assert selection.until(0) == 10 and selection.select(9, state, over=False) is None
    selection.watch(ended(5, 5, 9, 7, None, 100, 7, 8))
    first = selection.select(10, state, over=False)
    assert first.unknown == 1 and selection.running.tolist() == [2, 3, 6, 7] and selection.until(10) == 20
    selection.watch(ended(100, 100, None, None, 100, 100, 8, 7))
    second = selection.select(20, first.state, over=False)
    assert selection.running.tolist() == [2, 3] and second.unknown == 0
    told = [(row["agent"], row["fitness"], row["parent"]) for row in map(json.loads, second.lines)]
    assert told == [(2, 9.0, 2), (3, 7.0, 3), (6, 8.0, None), (7, 7.0, None)]


def test_those_that_diverged_rank_last(selecting):
    selection, state = selecting
    state = state._replace(alive=np.array([True] * 6 + [True, False]))
    selection.begin(None, state)
    selection.watch(ended(5, 5, 9, 7, 6, 6, 1000, 1000))
    first = selection.select(10, state, over=False)
    assert selection.running.tolist() == [2, 3, 4, 5] and first.unknown == 0
    assert [json.loads(line)["fitness"] for line in first.lines][-2:] == [1000.0, None]


SOUND = {
    "since": 8,
    "total": [1.0] * 8,
    "ended": [1] * 8,
    "fitness": [None] * 8,
    "values": {"learning_rate": [1e-3] * 8},
}


@pytest.mark.parametrize(
    "change",
    [
        {"since": "8"},
        {"total": [1.0] * 7},
        {"ended": None},
        {"fitness": ["x"] * 8},
        {"values": {}},
        {"values": {"gamma": [1e-3] * 8}},
        {"values": {"learning_rate": [1e31] * 8}},
        {"values": {"learning_rate": [True] * 8}},
    ],
)
def test_the_state_in_a_checkpoint_is_not_believed(change, selecting):
    selection, state = selecting
    step = SimpleNamespace(path="run/checkpoints/0/8", about={"select": SOUND})
    selection.begin(step, state)
    assert selection.about() == {"select": SOUND}
    for about in ({"select": {**SOUND, **change}}, {"select": 3}, {}):
        with pytest.raises(ConfigError, match="run/checkpoints/0/8: .*state of the selection"):
            selection.begin(SimpleNamespace(path="run/checkpoints/0/8", about=about), state)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--select-every 64", "select_every = 64: has no effect without select"),
        ("--select pbt --select-every 1280", "select_every = 1280: must be less than total_steps = 1280"),
        ("--select pbt --select-every 1270", "is too short for a selection"),
        ("--select pbt --num-seeds 2", "num_seeds = 2: pbt has an agent for each configuration"),
        ("--select pbt --keep-best", "keep_best = True: is not supported with pbt"),
        ("--select pbt --adapt-learning-rate 0.01", "learning_rate: cannot be swept with pbt, since adapt_learn"),
        ("--select pbt --stop-at 100", "stop_at = 100.0: cannot be combined with select"),
        ("--select pbt --shards 2", "shards = 2: select is not supported with shards"),
        ("--select halving --agents-at-once 1", "agents_at_once = 1: select needs all agents at once"),
        ("--select halving gravity=5,10", "gravity: cannot be swept with select"),
        ("--select halving --num-envs 2,4", "select = 'halving': is not supported for a sweep of several programs"),
        ("--select pbt --learning-rate 1e-3:1e-2:log --num-samples 1", "'pbt': needs at least 2 configurations"),
    ],
)
def test_one_line_for_what_cannot_be(options, line, tmp_path, capsys):
    command = ["sweep", "ppo", *SMALL, "--total-steps", "1280", "--learning-rate", "1e-3,1e-2", *options.split()]
    run(*command, "--out", tmp_path / "run", expect=2)
    error = capsys.readouterr().err
    assert line in error and len(error.splitlines()) == 1 and not (tmp_path / "run").exists()


def test_agents_that_are_selected_cannot_grow(halved, tmp_path, capsys):
    run("grow", halved, "--hidden-sizes", 16, "--out", tmp_path / "grown", expect=2)
    assert "agents that are selected cannot grow" in capsys.readouterr().err


def test_a_description_of_a_file_is_checked(evolved, tmp_path, capsys):
    fields = json.loads((evolved / "policy.json").read_text())
    for wrong in ({"kind": "best", "every": 8}, {"kind": "pbt"}, {"kind": "pbt", "every": 0}, {"kind": [], "every": 8}):
        with pytest.raises(ConfigError, match="select: must have the kind pbt or halving"):
            TrainingDescription.of_json({**fields, "select": wrong}, "policy.json")
    del fields["select"]  # runs of before
    assert TrainingDescription.of_json(fields, "policy.json").select == {}


def test_the_page_tells_what_was_selected(evolved, halved):
    """Curves of fitness and values, the final values as legend, and the frames that were taken."""
    page = overview.answers(evolved.parent)
    shown = page.run("run")
    final = summary(evolved)["swept"]["learning_rate"]
    assert shown["swept"]["learning_rate"] == ", ".join(dict.fromkeys(map(words.value, final)))
    assert {"fitness", "values.learning_rate"} <= set(shown["metrics"]) and "parent" not in shown["metrics"]
    assert shown["titles"]["values.learning_rate"] == "value of learning rate"
    found = page.curve(["run"], "values.learning_rate", "")["lines"]
    values = by_interval(evolved, "values.learning_rate").astype(float)
    assert all(line["x"] == [256.0, 512.0, 768.0, 1024.0, 1280.0] for line in found)
    assert sorted(line["mid"] for line in found) == sorted(values.T.tolist())
    shown = overview.answers(halved.parent).run("run")
    assert shown["done"] == shown["total"] == summary(halved)["all_env_steps"]
    assert [row["stopped_at"] for row in shown["results"]] == summary(halved)["stopped_at_per_seed"]
    assert [row["env_steps"] for row in shown["sweep"]] == [1280, 640, 320, 320]


def test_more_frames_rank_before_less():
    ranked = sweeps.rank({"gamma": [0.1, 0.2, 0.3]}, np.array([9.0, 1.0, 5.0]), frames=[10, 20, 20])["ranked"]
    assert [(row["gamma"], row["env_steps"]) for row in ranked] == [(0.3, 20), (0.2, 20), (0.1, 10)]
    panel = plots.sweep_figure({"gamma": [0.1, 0.2, 0.3]}, [[9.0], [1.0], [5.0]], frames=[10, 20, 20]).axes[0]
    dead = plots.sweep_figure({"gamma": [0.1, 0.2]}, [[np.nan], [5.0]], frames=[20, 10]).axes[0]
    assert [text.get_text() for text in dead.texts][-2:] == ["0.2", "0.1"]  # as in the table
    died = sweeps.rank({"gamma": [0.1, 0.2]}, np.array([np.nan, 5.0]), frames=[20, 10])["ranked"]
    assert [row["gamma"] for row in died] == [0.2, 0.1]
    beside = [text.get_text() for text in panel.texts]
    assert beside == ["frames", "20", "20", "10", "gamma", "0.3", "0.2", "0.1"]
