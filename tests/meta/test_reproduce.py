"""scripts/reproduce.py: what would run at full scale, without running it."""

import act
import mfos
import pytest
import reproduce

from purerl import cli, ppo
from purerl.cli import parsing
from purerl.meta import search
from purerl.runs.describing.options import TrainOptions


@pytest.mark.parametrize(("name", "least"), [("value-loss", 10**11), ("policy-drift", 6 * 10**9)])
def test_full_scale(name, least, monkeypatch, tmp_path):
    """The command line takes it, and it has the frames of the publication."""
    described = []
    monkeypatch.setattr(search, "search", lambda description, options: described.append(description) or 0)
    scales = reproduce.EXPERIMENTS[name]
    for scale in ("full", "ci"):
        assert cli.dispatch(["evolve", name, *scales[scale], "--out", str(tmp_path / "run")]) == 0
    full, small = (description.make_evolution() for description in described)
    assert full.frames * described[0].generations >= least
    assert small.frames * described[1].generations < 10**7
    for field in ("socket", "algo", "envs"):
        assert getattr(described[0], field) == getattr(described[1], field)
    assert described[0].strategy["name"] == described[1].strategy["name"]


PUBLISHED = {"cartpole": 1024 * 4 * 256 * 32, "pendulum": 768 * 16 * 256 * 128, "reacher": 128 * 32 * 128 * 256}


@pytest.mark.parametrize("name", act.NAMES[::4])
def test_cheap_talk(name, monkeypatch, tmp_path):
    """The command line takes both scales; a generation at full scale has the frames of the publication."""
    described = {}
    for scale in ("full", "ci"):
        monkeypatch.setattr(search, "search", lambda description, options, s=scale: described.update({s: description}))
        cli.dispatch(["evolve", *act.arguments(scale, name), "--out", str(tmp_path / "run")])
    place, role = name.split("-")
    seeds = 4 if role == "guide" else 1
    assert described["full"].make_evolution().frames == seeds * PUBLISHED[place]
    assert described["full"].config["num_minibatches"] == described["ci"].config["num_minibatches"] == 1
    assert all(each.settings["role"] == role for each in described.values())


@pytest.mark.rest
@pytest.mark.parametrize("scale", ["full", "ci"])
def test_opponent_shaping_is_described(scale):
    """The command line takes every training, and each is one of whole meta-episodes."""
    for part, arguments in mfos.TRAININGS[scale].items():
        given = parsing.training("train", "ppo", TrainOptions, [*arguments, "--num-seeds", "2"])
        assert given.config.num_steps == (256 if part == "coins" else mfos.STEPS), part
        assert given.config.num_iterations >= 100, part
        assert ppo.problems(given.config, None) == []
