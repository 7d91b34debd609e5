"""Exported policies act as the originals do, in processes that have not what made them."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import run

from purerl import envs
from purerl.algos import ALGORITHMS
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.exports import exporting, programs, runner
from purerl.runs.describing.description import Setup, describe
from purerl.runs.describing.options import TrainOptions
from purerl.runs.reading import loading
from purerl.store.policies import save_policy
from purerl.types import Situation

ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "flax", "purerl", "safetensors", "onnx"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import numpy as np
import policy

it = policy.load(sys.argv[1])
obs = np.fromfile(sys.argv[2], np.float32).reshape(-1, 4)
action, carry = it.act(obs, it.begin(len(obs)))
action.tofile(sys.argv[3])
assert not {"jax", "flax", "purerl"} & set(sys.modules)
"""


def saved(directory, algo, env, **fields):
    """A run directory with policies of two agents that were not trained."""
    config = ALGORITHMS[algo].Config(**fields)
    description = describe(algo, TrainOptions(env=env, num_seeds=2), config)
    setup = Setup.of(description)
    learner, made = setup.make_learner(config=config), setup.make_env()

    @jax.vmap
    def fresh(key):
        return learner.policy(learner.init(key, fleet(made, config.num_envs).reset(key)[1]))

    directory.mkdir()
    save_policy(directory, fresh(setup.members.keys), {**description.fields, "members": 2})
    return directory


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("exports") / "run", "ppo", "CartPole-v1", hidden_sizes=(16,))


@pytest.fixture(scope="module")
def observations():
    return np.random.default_rng(0).normal(size=(10_000, 4)).astype(np.float32) * [1, 1, 0.2, 1]


@pytest.fixture(scope="module")
def actions(cartpole, observations):
    """What agent 1 of the run itself does."""
    result = loading.load(cartpole)
    one = jax.tree.map(lambda x: x[1], result.policy)
    seen = observations.astype(np.float32)
    return np.asarray(
        result.learner.exploit(one, Situation(seen, result.learner.init_carry(len(seen))), jax.random.key(0))[0]
    )


@pytest.mark.rest
def test_numpy_alone_acts_as_the_original(cartpole, observations, actions, tmp_path):
    run("export", str(cartpole), "--to", "numpy", "--agent", "1")
    observations.astype(np.float32).tofile(tmp_path / "obs")
    command = [
        sys.executable,
        "-c",
        ALONE,
        str(cartpole / "policy-numpy"),
        str(tmp_path / "obs"),
        str(tmp_path / "out"),
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert set(actions.tolist()) == {0, 1}
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out", np.int32), actions)
    card = json.loads((cartpole / "policy-numpy" / "policy.json").read_text())
    assert (card["algo"], card["env"], card["seed"]) == ("ppo", "CartPole-v1", 1)


@pytest.mark.rest
def test_stablehlo_acts_as_the_original_for_any_batch(cartpole, observations, actions, tmp_path):
    pytest.importorskip("flatbuffers")
    run("export", str(cartpole), "--agent", "1", "--out", str(tmp_path / "p.stablehlo"))
    program = jax.export.deserialize(bytearray((tmp_path / "p.stablehlo").read_bytes()))
    assert program.platforms == ("cpu", "cuda", "tpu")
    for size in (10_000, 3):
        [result] = program.call(observations[:size].astype(np.float32))
        np.testing.assert_array_equal(result, actions[:size])
    assert json.loads((tmp_path / "p.stablehlo.json").read_text())["inputs"][0]["shape"] == [4]


@pytest.mark.rest
def test_onnx_acts_as_the_original_for_any_batch(cartpole, observations, actions, tmp_path):
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    run("export", str(cartpole), "--to", "onnx", "--agent", "1", "--out", str(tmp_path / "p.onnx"))
    model = reference.ReferenceEvaluator(onnx.load(tmp_path / "p.onnx"))
    for size in (10_000, 3):
        [result] = model.run(["action"], {"obs": observations[:size].astype(np.float32)})
        np.testing.assert_array_equal(result, actions[:size])


def given(structs, seed=0, rows=50):
    """Random arrays of these shapes."""
    rng = np.random.default_rng(seed)
    draw = lambda x: rng.normal(size=(rows, *x.shape)) if x.dtype.kind == "f" else rng.integers(0, 2, (rows, *x.shape))
    return [draw(np.zeros(x.shape, x.dtype)).astype(x.dtype) for x in structs.values()]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("algo", "env", "fields"),
    [
        ("ppo", "Breakout-MinAtar", {"hidden_sizes": (8,)}),
        ("ppo", "CartPole-v1", {"memory": "gru", "hidden_sizes": (8, 8), "memory_size": 8, "layer_norm": True}),
        ("sac", "Pendulum-v1", {"normalize_obs": True, "hidden_sizes": (8,)}),
        ("crossq", "Pendulum-v1", {"hidden_sizes": (8,), "critic_hidden_sizes": (8,)}),
        ("rainbow", "probe/illegal-actions", {"hidden_sizes": (8,)}),
        ("dqn", "probe/multi-discrete", {"hidden_sizes": (8,)}),
    ],
)
def test_programs_compute_what_jax_does(algo, env, fields, tmp_path):
    config = ALGORITHMS[algo].Config(**fields)
    made = ALGORITHMS[algo].view(config, envs.make(env))
    learner = ALGORITHMS[algo].make_learner(config, envs.make(env))
    fresh = lambda key: learner.policy(learner.init(key, fleet(made, config.num_envs).reset(key)[1]))
    result = exporting.acting(learner, jax.jit(fresh)(jax.random.key(0)), made.observation_space, {})
    exporting.write_numpy(tmp_path / "p", result)
    policy = runner.load(tmp_path / "p")
    obs, carry = given(result.obs), given(result.carry, seed=1)
    action, *after = jax.jit(result.act)(*obs, *carry)
    for batch in (slice(None), slice(0, 1)):
        ours, remembered = policy.act([x[batch] for x in obs], [x[batch] for x in carry])
        assert ours.dtype == action.dtype
        np.testing.assert_allclose(ours, action[batch], atol=2e-5)
        for mine, theirs in zip(remembered, after, strict=True):
            np.testing.assert_allclose(mine, theirs[batch], atol=2e-5)
    assert [x.shape for x in policy.begin(3)] == [(3, *x.shape[1:]) for x in carry]


def test_half_an_export_is_none(tmp_path, monkeypatch):
    """As on a full disk: what was there stays, and nothing of the new one."""
    config = ALGORITHMS["ppo"].Config(hidden_sizes=(4,))
    env = envs.make("CartPole-v1")
    learner = ALGORITHMS["ppo"].make_learner(config, env)
    policy = jax.jit(lambda key: learner.policy(learner.init(key, fleet(env, 1).reset(key)[1])))(jax.random.key(0))
    result = exporting.acting(learner, policy, env.observation_space, {})
    exporting.write_numpy(tmp_path / "p", result)
    before = {path.name: path.read_bytes() for path in (tmp_path / "p").iterdir()}

    def full(path, content):
        path.write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exporting.writing, "write_json", full)
    for write, name in ((exporting.write_numpy, "p"), (exporting.write_numpy, "q"), (exporting.write_stablehlo, "r")):
        with pytest.raises(OSError, match="No space"):
            write(tmp_path / name, result)
    assert {path.name: path.read_bytes() for path in (tmp_path / "p").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} <= {"p", "r.json"}


def traced(function, *shapes):
    leaves = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return programs.trace(lambda *x: [function(*x)], [f"x{i}" for i in range(len(shapes))], leaves)


def test_elements_are_cut_taken_and_unstacked_as_numpy_does(tmp_path):
    onnx, reference = pytest.importorskip("onnx"), pytest.importorskip("onnx.reference")
    x = np.random.default_rng(0).normal(size=(3, 6, 6, 2)).astype(np.float32)
    table = jax.numpy.arange(8.0)
    best = lambda x: jax.numpy.argmax(x[:, 0, :, 0], axis=-1)
    apart = lambda x: [*jax.numpy.unstack(x, axis=2), *jax.numpy.unstack(x, axis=-1)]
    cut = lambda x: [x[..., ::2, 1::3, :], x[:, 1:4, :, 0], x[:, -1], table[best(x)], *apart(x)]
    row = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    acting = exporting.Acting(cut, {"obs": row}, {}, {})
    exporting.write_numpy(tmp_path / "p", acting)
    exporting.write_onnx(tmp_path / "p.onnx", acting)
    first, rest = runner.load(tmp_path / "p").act(x)
    by_onnx = reference.ReferenceEvaluator(onnx.load(tmp_path / "p.onnx")).run(None, {"obs": x})
    for ours, other, theirs in zip([first, *rest], by_onnx, cut(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(other, theirs)


def test_what_numpy_has_not_is_refused_with_a_line():
    with pytest.raises(ConfigError, match="needs erf, which the numpy export does not support"):
        traced(jax.lax.erf, (3,))
    with pytest.raises(ConfigError, match="indexes arrays by observations"):
        traced(jax.vmap(lambda row: row[jax.numpy.argmax(row)]), (3,))
    with pytest.raises(ConfigError, match="computes in bfloat16, which numpy does not have"):
        traced(lambda x: x.astype(jax.numpy.bfloat16).astype(np.float32), (3,))
    with pytest.raises(ConfigError, match="needs dim_as_value"):
        traced(lambda x: x / x.shape[0], (3,))


def test_what_an_output_does_not_follow_from_is_left_out():
    program = traced(lambda x, y: (y @ np.ones((3, 3), np.float32), x + np.float32(2))[1], (3,), (3,))
    assert [step.op for step in program.steps] == ["add"]
    assert list(program.constants.values()) == [2]


def test_policies_that_draw_or_remember_in_their_own_way_are_refused():
    env, config = envs.make("CartPole-v1"), ALGORITHMS["ngu"].Config(hidden_sizes=(8,))
    with pytest.raises(ConfigError, match="its own memory of rewards"):
        exporting.acting(ALGORITHMS["ngu"].make_learner(config, env), None, env.observation_space, {})
    learner = ALGORITHMS["ppo"].make_learner(ALGORITHMS["ppo"].Config(hidden_sizes=(8,)), env)
    at_random = lambda policy, here, key: (jax.random.randint(key, here.obs.shape[:1], 0, 2), here.carry)
    with pytest.raises(ConfigError, match="samples its actions"):
        exporting.acting(learner._replace(exploit=at_random), None, env.observation_space, {})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--agent", "2"], "agent = 2"),
        (["--out", "no/such/place"], "must be a file in an existing directory"),
        (["--out", "."], "already exists"),
        (["--to", "torch"], "torch"),
    ],
)
def test_bad_input(args, words, cartpole, capsys):
    run("export", str(cartpole), *args, expect=2)
    assert words in capsys.readouterr().err


def test_a_card_takes_no_place_of_another_file(cartpole, capsys):
    pytest.importorskip("flatbuffers")
    before = (cartpole / "policy.json").read_bytes()
    run("export", str(cartpole), "--out", str(cartpole / "policy"), expect=2)
    assert "policy.json': already exists" in capsys.readouterr().err
    assert (cartpole / "policy.json").read_bytes() == before and not (cartpole / "policy").exists()


def test_only_an_export_is_replaced(cartpole, tmp_path, capsys):
    run("export", str(cartpole), "--to", "numpy", "--out", str(tmp_path / "ours"))
    (tmp_path / "ours" / "__pycache__").mkdir()  # it was imported
    run("export", str(cartpole), "--to", "numpy", "--out", str(tmp_path / "ours"), "--overwrite")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    run("export", str(cartpole), "--to", "numpy", "--out", str(tmp_path / "mine"), "--overwrite", expect=2)
    assert "is not an export" in capsys.readouterr().err
    assert Path(tmp_path / "mine" / "thesis.txt").exists()
