"""What was once accepted without a word, or cost minutes of silence: exit code 2, and a line for each problem."""

import json
import os
import sys
import time

import jax
import numpy as np
import pytest
from commands import run

from purerl import ppo
from purerl.cli import main, parsing, ranges
from purerl.errors import ConfigError
from purerl.runs.describing import config_file, description, run_directory
from purerl.runs.describing.description import Setup, TrainingDescription, describe
from purerl.runs.describing.options import SweepOptions, TrainOptions, env_params

TRAIN, SWEEP = ["train", "ppo", "--env", "CartPole-v1"], ["sweep", "ppo", "--env", "CartPole-v1"]
DQN = ["train", "dqn", "--env", "CartPole-v1"]
EVOLVE = ["evolve", "value-loss", "--env", "CartPole-v1"]
CARTPOLE = "env = 'CartPole-v1': "
OWN = """
import jax.numpy as jnp
from purerl import envs


def of(**changes):
    env = envs.make("CartPole-v1")

    def step(noise, state, action):
        state, step = env.step(noise, state, action)
        return state, step._replace(**{name: change(getattr(step, name)) for name, change in changes.items()})

    return env._replace(step=step)


def whole_rewards():
    return of(reward=lambda x: x.astype(jnp.int32))


def half_observations():
    return of(next_obs=lambda x: x.astype(jnp.float16))
"""


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ([*TRAIN, "--learning-rate", "1e40"], ["learning_rate = 1e+40:"]),
        ([*TRAIN, "--learning-rate", "1e-50"], ["learning_rate = 1e-50:"]),
        ([*SWEEP, "--learning-rate", "1e-3,1e40"], ["learning_rate = 1e+40:"]),
        ([*TRAIN, "--seed", "1.5"], ["Error parsing --seed: '1.5'"]),
        ([*TRAIN, "--env-params", "gravity=nan"], [f"{CARTPOLE}gravity = nan:"]),
        ([*TRAIN, "--env-params", "gravity=1e39"], [f"{CARTPOLE}gravity = 1e+39:"]),
        (
            [*TRAIN, "--env-params", "gravity=inf", "max_steps=0"],
            [f"{CARTPOLE}gravity = inf:", f"{CARTPOLE}max_steps = 0:"],
        ),
        ([*TRAIN, "--env-params", "max_steps=2.5"], [f"{CARTPOLE}max_steps = 2.5:"]),
        ([*TRAIN, "--resets", "pool"], [f"{CARTPOLE}resets = 'pool':"]),
        ([*SWEEP, "--env-params", "tau=0.1,0.2", "--resets", "few:0"], [f"{CARTPOLE}resets = 'few:0':"]),
        ([*EVOLVE, "--resets", "pool:0"], [f"{CARTPOLE}resets = 'pool:0':"]),
        ([*TRAIN, "--resets", "few", "--env-params", "resets=pool:4"], ["resets = 'few':"]),
        ([*TRAIN, "--env-params", "gravity=1", "gravity=2"], ["env_params = 'gravity=2':"]),
        ([*TRAIN, "--env-params", "hide_velocity=3"], [f"{CARTPOLE}hide_velocity = 3:"]),
        ([*TRAIN, "--env-params", "frame_stack=0"], [f"{CARTPOLE}frame_stack = 0:"]),
        ([*TRAIN, "--env-params", "sticky_actions=2"], [f"{CARTPOLE}sticky_actions = 2:"]),
        ([*TRAIN, "--env-params", "randomise=tau"], [f"{CARTPOLE}randomise = 'tau':"]),
        ([*TRAIN, "--env-params", "tau=1:2"], [f"{CARTPOLE}tau = '1:2':"]),
        (
            [*SWEEP, "--env-params", "sticky_actions=0.5,1.5,2.5", "reward_scale=1,2"],
            [f"{CARTPOLE}sticky_actions = 1.5:", f"{CARTPOLE}sticky_actions = 2.5:"],
        ),
        ([*SWEEP, "--env-params", "action_repeat=2,4"], [f"{CARTPOLE}action_repeat = {n}.0:" for n in (2, 4)]),
        ([*SWEEP, "--env-params", "randomise=tau:1:2", "tau=1,2"], [f"{CARTPOLE}tau "]),
        (
            ["train", "ppo", "--env", "Breakout-MinAtar", "--env-params", "max_steps_in_episode=0"],
            ["env = 'Breakout-MinAtar': max_steps_in_episode = 0:"],
        ),
        ([*SWEEP, "--env-params", "max_steps=5,0"], [f"{CARTPOLE}max_steps = 0.0:"]),
        ([*SWEEP, "--env-params", "gravity=1,2", "gravity=3"], ["env_params: gravity "]),
        ([*SWEEP, "--env-params", "gravity=1,2", "gravity=3,4"], ["env_params = 'gravity=3,4':"]),
        ([*SWEEP, "--env-params", "hide_velocity=0,1"], [f"{CARTPOLE}hide_velocity:"]),
        ([*TRAIN, "--sequence-length", "64"], ["sequence_length = 64:"]),
        ([*TRAIN, "--max-lag", "2"], ["max_lag = 2:"]),
        ([*EVOLVE, "--memory-size", "8"], ["memory_size = 8:"]),
        ([*SWEEP, "--gamma", "0.9,0.99", "--num-samples", "3"], ["num_samples = 3:"]),
        ([*DQN, "--capacity", "2"], ["capacity = 2:"]),
        ([*DQN, "--capacity", "63"], ["capacity = 63:"]),
        ([*DQN, "--capacity", "3e9"], ["capacity = 3000000000:"]),
        ([*TRAIN, "--num-seeds", "1e8"], ["num_seeds = 100000000:"]),
        ([*TRAIN, "--total-steps", "1e30"], ["total_steps = 1000000000000000019884624838656:"]),
        ([*SWEEP, "--gamma", "0:1:lin", "--num-samples", "1e9"], ["num_samples = 1000000000:"]),
        ([*SWEEP, "--gamma", "0:1:lin:1000000000"], ["gamma = '0:1:lin:1000000000':"]),
        (
            [*SWEEP, "--gamma", "0:1:lin:1000", "--gae-lambda", "0:1:lin:1000"],
            ["1000 (gamma) * 1000 (gae_lambda) configurations:"],
        ),
        ([*SWEEP, "--gamma", "0.9,0.99", "--num-seeds", "1e6"], ["num_seeds = 1000000:"]),
        ([*EVOLVE, "--population", "1e6", "--num-seeds", "4"], ["population = 1000000:"]),
        (["train", "ppo", "--env", "bad_own:whole_rewards"], ["env = 'bad_own:whole_rewards': reward:"]),
        (
            ["train", "ppo", "--env", "bad_own:half_observations"],
            ["env = 'bad_own:half_observations': step's next_obs:"],
        ),
        ([*SWEEP, "--gamma", "0.9,0.95,0.9"], ["gamma = '0.9,0.95,0.9':"]),
        ([*SWEEP, "--gamma", "0.5:0.50000001:lin:3"], ["gamma = '0.5:0.50000001:lin:3':"]),
        (["record", "random", "--env", "CartPole-v1", "--agent", "3"], ["agent = 3:"]),
        ([*TRAIN, "--value-loss", ""], ["--value-loss:"]),
        (["plan", "ppo", "--env", "CartPole-v1", "--target="], ["--target:"]),
        ([*TRAIN, "--seed", "\u0661\u0662"], ["'\u0661\u0662':"]),
        ([*SWEEP, "--gamma", "0.9,0.\uff19\uff15"], ["'0.9,0.\uff19\uff15':"]),
        ([*TRAIN, "--env-params", "gravity=\u0669"], ["'gravity=\u0669':"]),
        (["train", "--config"], ["--config:"]),
        (["train", "ppo", "--wrapper", "--env", "CartPole-v1"], ["--wrapper:"]),
        ([*TRAIN, "--opponents", "league"], ["opponents = 'league':"]),
        ([*TRAIN, "--opponents", "past", "--past-games", "3"], ["opponents = 'past':"]),
        *(
            (["train", algo, "--env", "CartPole-v1"], [f"algorithm = '{algo}':"])
            for algo in ("ippo", "mappo", "iql", "vdn", "qmix", "masac")
        ),
        (["plan", "qmix", "--env", "TicTacToe-v0"], ["algorithm = 'qmix':"]),
        (["train", "vdn", "--env", "MatrixGame-v0", "--env-params", "game=matching-pennies"], ["algorithm = 'vdn':"]),
        ([*EVOLVE, "--algo", "ippo"], ["algorithm = 'ippo':"]),
        (
            [*TRAIN, "--learning-rate", "1e40", "--env-params", "max_steps=0", "--memory-size", "8"],
            [f"{CARTPOLE}max_steps = 0:", "learning_rate = 1e+40:", "memory_size = 8:"],
        ),
    ],
)
def test_each_bad_value_is_refused_in_a_line(args, lines, capsys, monkeypatch, tmp_path):
    """And in no other, such as "compiling ..."."""
    (tmp_path / "bad_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_own", raising=False)
    before = list(tmp_path.iterdir())
    with pytest.raises(SystemExit) as stop:
        main(args)
    out, err = capsys.readouterr()
    assert stop.value.code == 2 and out == ""
    for line, start in zip(err.splitlines(), lines, strict=True):
        assert line.startswith(f"purerl: error: {start}"), err
    assert [path for path in tmp_path.iterdir() if path.name != "__pycache__"] == before


def test_a_file_without_seeds_is_refused(tmp_path):
    """It once trained seed 0."""
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"algo": "ppo", "env": "CartPole-v1", "seeds": []}))
    with pytest.raises(ConfigError, match="seeds "):
        description.start(config_file.read(file))


def test_what_cannot_be_written_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory.os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(ConfigError, match="film.gif': "):
        run_directory.check_out(tmp_path / "film.gif", overwrite=False)


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.lock", "checkpoints/0"])
def test_a_run_directory_with_a_pipe_is_refused(name, tmp_path):
    """It once was after compiling, or as if another process held it."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    for how in ({"overwrite": True}, {"resume": True}):
        with (
            pytest.raises(ConfigError, match=f"{name}: "),
            run_directory.hold(tmp_path, ("metrics.jsonl", "checkpoints"), **how),
        ):
            pytest.fail("held")


def test_a_run_directory_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory.os, "access", lambda path, mode: False)
    with (
        pytest.raises(ConfigError, match="read-only"),
        run_directory.hold(tmp_path, (), resume=True),
    ):
        pytest.fail("held")


def test_a_million_seeds_are_read_soon():
    """They took half a minute."""
    config, start = dict(vars(ppo.Config())), time.process_time()
    fields = {"algo": "ppo", "env": "CartPole-v1", "env_params": {}, "config": config, "swept": {}}
    result = TrainingDescription.of_json({**fields, "seeds": list(range(10**6))}, "policy.json")
    assert Setup.of(result).members.size == 10**6 and time.process_time() - start < 4


def test_presets_and_integral_floats_are_not_refused():
    args = ["--env", "CartPole-v1", "--preset", "openai-five", "--total-steps", "1e11", "--seed", "4294967295"]
    given = parsing.training("train", "ppo", TrainOptions, args)
    described = describe("ppo", given.options, given.config)
    assert described.config["total_steps"] == 10**11 and described.seeds == [2**32 - 1]


def test_an_algorithm_is_named_by_a_flag_as_well():
    rest = ["--env", "CartPole-v1"]
    for args in (["ppo", *rest], ["--algo", "ppo", *rest], [*rest, "--algo=ppo"]):
        assert parsing.algorithm("train", args) == ("ppo", rest, None)
    with pytest.raises(ConfigError, match="^algorithm = 'pqo': .*pqn"):
        parsing.algorithm("train", ["--algo", "pqo", *rest])


def test_the_last_of_two_flags_counts():
    fields = ["gamma"]
    assert ranges.extract(["--gamma", "0.9,0.99", "--gamma", "0.5"], fields, "env.") == (["--gamma", "0.5"], {})
    rest, result = ranges.extract(["--gamma", "0.5", "--gamma", "0.9,0.99"], fields, "env.")
    assert rest == ["--gamma", "0.5"] and result == {"gamma": "0.9,0.99"}


def test_nothing_is_built_of_a_sweep_that_is_too_large(monkeypatch):
    monkeypatch.setattr(np, "linspace", lambda *_: pytest.fail("built"))
    with pytest.raises(ConfigError, match="^gamma = .*65536"):
        ranges.configurations({"gamma": "0:1:lin:99999999"}, 1, 0)
    with pytest.raises(ConfigError, match=r"^2 \(gamma\) \* 40000 \(num_samples\) .*65536$"):
        ranges.configurations({"gamma": "0.5,0.6", "x": "0:1:lin"}, 40_000, 0)
    assert ranges.unused({"gamma": "0:1:lin"}, SweepOptions(env="x", num_samples=3)) == []


def test_members_have_the_keys_of_their_seeds():
    seeds = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
    made = Setup.of(TrainingDescription("ppo", {}, dict(vars(ppo.Config())), "CartPole-v1", seeds)).members.keys
    alone = [jax.random.key_data(jax.random.key(seed)) for seed in seeds]
    assert json.dumps(jax.random.key_data(made).tolist()) == json.dumps([key.tolist() for key in alone])


def test_resets_are_a_parameter_of_the_environment(tmp_path):
    """Given as an option or among the parameters; and read back from a file as the option."""
    assert env_params(["gravity=9"], "few:2") == {"gravity": 9, "resets": "few:2"}
    assert env_params(["resets=few"], "few") == env_params(["resets=few"]) == {"resets": "few"}
    fields = {"algo": "ppo", "env": "CartPole-v1"}
    read = lambda **params: description.start(
        config_file.ConfigFile(tmp_path, "train", {**fields, "env_params": params}, {}, [])
    )
    assert read(resets="few", gravity=9).options == {"env": "CartPole-v1", "env_params": ["gravity=9"], "resets": "few"}
    assert "resets" not in read().options


OF_PATHS = [
    "eval",
    "render",
    "play",
    "export",
    "record",
    "dashboard",
    "evolve report",
    "train a2c CartPole-v1 --optimiser",
]


@pytest.mark.parametrize(
    "command", [OF_PATHS[0], *(pytest.param(each, marks=pytest.mark.rest) for each in OF_PATHS[1:])]
)
def test_a_path_that_is_too_long(command, capsys):
    run(*command.split(), "1" * 400, expect=2)
    error = capsys.readouterr().err
    assert error.startswith("purerl: error: ") and error.endswith("File name too long\n") and len(error) < 200
