"""Run directories from elsewhere: whatever their files say, a line names what is wrong, and nothing is imported."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest

import purerl
from purerl import cli, ppo
from purerl.config import MEMBERS
from purerl.errors import ConfigError
from purerl.learned import artefacts
from purerl.runs.describing import machine
from purerl.runs.describing.description import TrainingDescription, describe
from purerl.runs.describing.options import TrainOptions
from purerl.runs.reading import comparison, evaluation, loading
from purerl.store import policies

CONFIG = ppo.Config(total_steps=64, num_envs=2, num_steps=8, num_minibatches=2, hidden_sizes=(4,))
RUN = describe("ppo", TrainOptions(env="CartPole-v1", num_seeds=3), CONFIG).fields
LEARNED = artefacts.to_json(artefacts.of_expression("value-loss", ["square", "error"], {}))


def config(**fields):
    return {"config": {**RUN["config"], **fields}}


def test_what_a_run_writes_is_read():
    fields = json.loads(json.dumps({**RUN, "swept": {"gamma": [0.9, 1.0], "env.gravity": [9, 9.8]}}))
    assert TrainingDescription.of_json({**fields, "seeds": [4, 4], "learned": {"value_loss": LEARNED}}, "x").seeds == [
        4,
        4,
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ([], "not the description of a run"),
        ({"algo": None}, "algo missing or of another type"),
        ({"learned": []}, "learned missing or of another type"),
        ({"algo": "os"}, "algo = 'os': unknown; nearest: "),
        ({"algo": "pppo"}, "nearest: ppo"),
        ({"env": "Cartpole-v1"}, "unknown environment; nearest: CartPole-v1"),
        ({"algo": "this:s"}, "algo = 'this:s': a file names this module.*--trust imports it"),
        ({"env": "this:s"}, "env = 'this:s': a file names this module.*--trust imports it"),
        ({"env_params": {"gravty": 3}}, "unknown parameter gravty; nearest: gravity"),
        ({"env_params": {"gravity": "9"}}, "gravity = '9':"),
        ({"env_params": {"gravity": float("nan")}}, "'gravity' = nan: must be"),
        ({"env_params": {"gravity": True}}, "gravity = True:"),
        ({"env_params": {"name": 1}}, "unknown parameter name"),
        (
            {"env_params": {"randomise": [0] * 2000}},
            "must be the name of a parameter and a value of at most 1000 parts",
        ),
        ({"env_params": {"randomise": 1}}, "env = 'CartPole-v1': randomise = 1:"),
        ({"env_params": {"randomise": "length:1:2,"}}, "randomise = 'length:1:2,':"),
        ({"env_params": {"observation_mask": "1," * 6000}}, "'observation_mask' = '1,1,"),
        ({"env_params": {"frame_stack": 10**9}}, "a size must not exceed"),
        ({"env": "DeepSea-bsuite", "env_params": {"size": 10**6}}, "a size must not exceed"),
        (config(gama=0.9), "config: gama: unknown; nearest: gamma"),
        (config(hidden_sizes=[4, "x"]), "hidden_sizes = .*every element must be int"),
        (config(hidden_sizes=7), "hidden_sizes = 7:"),
        (config(num_envs="8"), "num_envs = '8':"),
        (config(num_envs=0), r"num_envs = 0:"),
        (config(num_minibatches=7), "num_minibatches = 7"),
        (config(learning_rate=None), "learning_rate = None:"),
        (config(activation={"x": 1}), "activation = .*must be one of"),
        ({"seeds": []}, "seeds: must be 1 to"),
        ({"seeds": [0] * (MEMBERS + 1)}, "seeds: must be 1 to"),
        ({"seeds": [1, -1]}, "seeds: -1 is no whole number in"),
        ({"seeds": [2**32]}, "seeds: 4294967296 is no"),
        ({"seeds": [True]}, "seeds: True is no"),
        ({"seeds": [1.0]}, "seeds: 1.0 is no"),
        ({"swept": {"gamma": [0.5, 1.5]}}, "gamma = 1.5:"),
        ({"swept": {"gamma": [0.5], "gae_lambda": [0.5, 0.6]}}, "the lists must have one length"),
        ({"swept": {"gamma": 0.5}}, "'gamma' must have a list of finite numbers"),
        ({"swept": {"gamma": [float("inf")]}}, "'gamma' must have a list of finite numbers"),
        ({"swept": {"num_envs": [2, 4]}}, "num_envs: cannot be swept"),
        ({"swept": {"gamma": [0.5] * 1000}, "seeds": [0] * 2000}, "more than 1048576 agents"),
        ({"swept": {"env.gravty": [1.0]}}, "unknown parameter gravty"),
        ({"swept": {"env.": [1.0]}}, "'env.' is not the name of a parameter"),
        ({"learned": {"value_loss": {}}}, "learned: 'value_loss': artefact: format"),
        ({"learned": {"objective": LEARNED}}, "learned: 'objective': ppo takes no value-loss there"),
        ({"learned": {"value_loss": LEARNED | {"card": {"frames": 1}}}}, "sha256 differs"),
    ],
)
def test_hostile_descriptions(change, line):
    fields = {**RUN, **change} if isinstance(change, dict) else change
    with pytest.raises(ConfigError, match=line) as raised:
        TrainingDescription.of_json(fields, "policy.json")
    assert all(text.startswith("policy.json: ") and len(text) < 400 for text in str(raised.value).splitlines())
    assert "this" not in sys.modules


def test_somebodys_own_is_imported_if_trusted():
    with pytest.raises(ConfigError, match="algorithm = 'nowhere_to_be_found:x': cannot import"):
        TrainingDescription.of_json({**RUN, "algo": "nowhere_to_be_found:x"}, "x", trust=True)


@pytest.fixture
def saved(tmp_path):
    """A function that saves untrained policies with a description that is changed by its arguments."""
    policy = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), loading.shapes(TrainingDescription(**RUN), 3))

    def save(scale=1.0, **change):
        policies.save_policy(tmp_path, jax.tree.map(lambda x: x * scale, policy), {**RUN, "members": 3, **change})
        return tmp_path

    return save


def test_a_run_is_read_back(saved):
    result = purerl.load(saved(seeds=[7, 8, 8]))
    assert [label["seed"] for label in result.setup.labels] == [7, 8, 8] and dataclasses.asdict(
        result.setup.config
    ) == dataclasses.asdict(CONFIG)


@pytest.mark.parametrize("members", [0, 4, 10**9, -1, True, 2.0, "3", None, [3]])
def test_members(members, saved):
    """Refused before anything is built."""
    with pytest.raises(ConfigError, match=r"policy.json: members = .*must be a whole number in \[1, 3\]$"):
        purerl.load(saved(members=members))


def test_sizes_that_no_machine_holds(saved):
    """The network is never made: shapes are compared first, and what cannot even be traced is one line."""
    for sizes in ([2**30, 2**30], [2**31 - 1] * 3):
        with pytest.raises(ConfigError, match="policy.* expected F32|the run cannot be rebuilt") as raised:
            purerl.load(saved(**config(hidden_sizes=sizes)))
        assert len(str(raised.value).splitlines()) == 1


def test_nan_weights_are_bad_input(saved, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["eval", str(saved(scale=float("nan"))), "--compilation-cache", "off"])
    assert stop.value.code == 2 and "numbers that are not finite" in capsys.readouterr().err


SUMMARY = {"algo": "ppo", "env": "CartPole-v1", "env_params": {}, "env_steps": 512, "swept": {}}
SUMMARY |= {"return_per_seed": [10.0, None], "alive_per_seed": [True, False]}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"return_per_seed": None}, "lacks return_per_seed, or has them of another type"),
        ({"env_steps": True}, "lacks env_steps"),
        ({"return_per_seed": [1.0]}, "has 1 returns of 2 agents"),
        ({"return_per_seed": [], "alive_per_seed": []}, "has 0 returns of 0 agents"),
        ({"return_per_seed": ["1", 2]}, "return_per_seed must hold numbers"),
        ({"return_per_seed": [10**400, 2]}, "return_per_seed must hold numbers"),
        ({"alive_per_seed": [1, 0]}, "alive_per_seed must hold true and false"),
        ({"algo": "[/red]"}, "not the summary of a run"),
        ({"env": "\x1b[2J"}, "not the summary of a run"),
    ],
)
def test_hostile_summaries(change, line, tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY))
    assert comparison.compare([tmp_path, tmp_path])["runs"][0]["agents"] == 2
    path.write_text(json.dumps({**SUMMARY, **change}))
    with pytest.raises(ConfigError, match=line) as raised:
        comparison.compare([tmp_path, tmp_path])
    assert str(raised.value).startswith(f"{path}: ") and len(str(raised.value).splitlines()) == 1


def test_lines_of_results_are_compared(tmp_path):
    """As the runs they are of: the newest line of a row, in which an agent that diverged is null."""
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY))
    env, path = SUMMARY["env"], tmp_path / "all.jsonl"
    line = {"row": f"ppo {env} 8", "algo": "ppo", "env": env, "env_params": SUMMARY["env_params"], "frames": 8}
    lines = [{**line, "returns": [0.0]}, {**line, "returns": [1.0, None, 3.0]}, {**line, "row": "ppo old", "mean": 1.0}]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    ours, theirs = comparison.compare([tmp_path, f"{path}:ppo {env} 8"])["runs"]
    np.testing.assert_array_equal(theirs["per_seed"], [1.0, np.nan, 3.0])
    assert (theirs["algo"], theirs["env_steps"], theirs["agents"]) == ("ppo", 8, 3) and ours["agents"] == 2
    for row, text in ("ppo", f"has no row 'ppo'; nearest: ppo old, ppo {env} 8"), ("ppo old", "lacks return_per_seed"):
        with pytest.raises(ConfigError, match=text):
            comparison.compare([tmp_path, f"{path}:{row}"])


def test_only_known_variables_are_recorded(monkeypatch):
    """And of these nothing that may be part of a path."""
    for name in ("WANDB_API_KEY", "JAX_COMPILATION_CACHE_DIR", "XLA_SECRET", "JAX_CANARY", "HOME"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=true --xla_dump_to=/home/canary/x '/home/canary' --xla_b=~canary --xla_c")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu,cuda")
    recorded = machine.machine_facts()
    assert "canary" not in json.dumps(recorded)
    assert recorded["flags"]["XLA_FLAGS"] == "--xla_a=true --xla_dump_to=... ... --xla_b=... --xla_c"
    assert recorded["flags"]["JAX_PLATFORMS"] == "cpu,cuda"


def test_evaluate_run_names_trust(saved):
    with pytest.raises(ConfigError, match="env = 'this:s'.*--trust"):
        evaluation.evaluate_run(saved(env="this:s"), 1, 1, 0)
