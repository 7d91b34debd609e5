"""Runs whose actions are integers of a Box, or trees: trained, evaluated, recorded, exported, acted with.

The environments assert that every action that they are given is of their space, and legal.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import own_module, run

import purerl
from purerl import envs
from purerl.exports import runner
from purerl.runs.describing.datasets import load_dataset

FIELD = Path(__file__).parent.parent / "field"
SIZES = "--num-envs 8 --num-steps 32 --num-minibatches 2 --hidden-sizes 16 --learning-rate 0.01 --total-steps 10240"
BEST = {
    "Ints": ([-2, 4], [2, 4]),
    "Both": ((0, [0.5, -0.5], [[1], [1]], 5), (1, [0.5, -0.5], [[1], [1]], 5)),
    "Aimed": ({"side": 2, "far": 1.0, "gear": [3]}, {"side": 1, "far": 2.0, "gear": [3]}),
}
"""The best actions in even and in odd steps."""


def observations(name):
    """Even, odd, even and odd steps."""
    seen, masks = np.float32([[0, 0], [1, 0]] * 2), np.int8([[1, 0, 1, 1, 0, 1], [1, 0, 1, 1, 1, 0]] * 2)
    return {"action_mask": masks, "obs": seen} if name == "Aimed" else seen


@pytest.mark.rest
@pytest.mark.parametrize(("name", "workers"), [("Ints", "none"), ("Both", "2"), ("Aimed", "none")])
def test_a_run_in_an_environment_of_gymnasium(name, workers, tmp_path, monkeypatch):
    for file in ("hybrid.py", "ten.py"):
        shutil.copy(FIELD / file, tmp_path / file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    env = f"./hybrid.py:{name}"
    run("check-env", env, "--steps", "50")
    run("train", "ppo", "--env", env, *SIZES.split(), "--env-params", "aim=1", "--workers", workers, "--out", "r")
    summary = json.loads(Path("r/summary.json").read_text())
    assert summary["return_mean"] > 9
    run("eval", "r", "--trust", "--episodes", "2")
    act, obs = purerl.acting("r", trust=True), observations(name)
    actions = act(obs)
    one = act(jax.tree.map(lambda x: x[1], obs))
    rows = [jax.tree.map(lambda x, i=i: x[i], actions) for i in range(4)]
    space = envs.make(env, aim=1).host.action_space
    assert jax.tree.structure(one) == jax.tree.structure(BEST[name][0], is_leaf=lambda x: isinstance(x, list))
    for row, best in zip(rows, BEST[name] * 2, strict=True):
        best = jax.tree.map(np.asarray, best, is_leaf=lambda x: isinstance(x, list))
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=0.35 if x.dtype.kind == "f" else 0), row, best)
    assert space.contains(jax.tree.map(np.asarray, one))

    run("export", "r", "--trust", "--to", "numpy", "--out", "n")
    it = runner.load("n")
    made, _ = it.act(jax.tree.leaves(obs), it.begin(4))
    made = made if "actions" in it.card else [made]
    for x, y in zip(made, jax.tree.leaves(actions), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, atol=2e-5)

    run("record", "r", "--trust", "--episodes", "3", "--out", "d.safetensors")
    run("record", "random", "--env", env, "--episodes", "3", "--out", "random.safetensors")
    data = load_dataset("d.safetensors", envs.make(env, aim=1))
    assert data.reward.shape == (30,) and jax.tree.structure(data.action) == jax.tree.structure(one)
    first = jax.tree.map(lambda x: x[:4], data.action)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5), first, actions)
    run("train", "dqn", "--env", env, "--out", "refused", expect=2)


@pytest.mark.rest
def test_onnx_names_the_parts_of_an_action(tmp_path, monkeypatch):
    """By which a program finds them, in whatever order the environment has its keys (Godot RL Agents, issue 159)."""
    onnx, reference = pytest.importorskip("onnx"), pytest.importorskip("onnx.reference")
    monkeypatch.chdir(tmp_path)
    small = "--num-envs 8 --num-steps 8 --num-minibatches 1 --hidden-sizes 8 --total-steps 640 --eval-episodes 1"
    run("train", "a2c", "--env", "probe/hybrid", *small.replace("--num-minibatches 1 ", "").split(), "--out", "r")
    run("export", "r", "--to", "onnx", "--out", "p.onnx")
    model = onnx.load("p.onnx")
    assert [x.name for x in model.graph.output] == ["action.far", "action.side"]
    obs = np.float32([[-1], [1], [1]])
    far, side = reference.ReferenceEvaluator(model).run(["action.far", "action.side"], {"obs": obs})
    expected = purerl.acting("r")(obs)
    np.testing.assert_allclose(far, expected["far"], atol=2e-5)
    np.testing.assert_array_equal(side, expected["side"])
    run("export", "r", "--out", "p.stablehlo")
    card = json.loads(Path("p.stablehlo.json").read_text())
    assert card["actions"] == ["action.far", "action.side"]
    run("record", "r", "--episodes", "4", "--out", "d.safetensors")
    data = load_dataset("d.safetensors", envs.make("probe/hybrid"))
    matches = (data.action["side"] > 0) == (data.obs[:, 0] > 0)
    missed = data.action["far"].clip(0, 4) - 2 - data.obs[:, 0]
    np.testing.assert_allclose(data.reward, matches - missed**2, rtol=1e-5, atol=1e-5)


PAINTED = """
import jax.numpy as jnp
from purerl.envs.episodic import episodic, one_level
from purerl.spaces import Box, Discrete


def make():
    def dynamics(now, action):
        return now.at[action["row"]].add(action["colour"][0]), 0.0, False

    return episodic(
        "painted",
        levels=one_level,
        initial=lambda level: jnp.zeros((4, 4, 3)),
        dynamics=dynamics,
        observe=lambda now: jnp.clip(now, 0.0, 1.0),
        time_limit=6,
        observation_space=Box(0.0, 1.0, (4, 4, 3), jnp.float32),
        action_space={"row": Discrete(4), "colour": Box(0.0, 1.0, (1,), jnp.float32)},
    )
"""


@pytest.mark.rest
def test_films_and_sweeps_of_trees_of_actions(tmp_path, monkeypatch):
    small = [
        "--num-envs",
        "4",
        "--num-steps",
        "8",
        "--hidden-sizes",
        "8",
        "--total-steps",
        "128",
        "--eval-episodes",
        "2",
    ]
    with own_module(tmp_path, monkeypatch, "painted", PAINTED):
        run("sweep", "a2c", "--env", "painted:make", *small, "--gamma", "0.9,0.99", "--out", "r")
        run("render", "r", "--trust", "--out", "r.gif")
        run("resume", "r", "--trust", "--total-steps", "256")
        run("eval", "r", "--trust")
    assert (tmp_path / "r.gif").stat().st_size > 0
