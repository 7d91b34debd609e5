"""What was once accepted without a word, or cost minutes of silence: exit code 2, and a line for each problem."""

import json
import os
import sys
import time

import jax
import numpy as np
import pytest

from purerl import ppo
from purerl.cli import main, parsing, ranges
from purerl.errors import ConfigError
from purerl.runs.describing import config_file, description, directory
from purerl.runs.describing.description import Description, Setup, describe
from purerl.runs.describing.options import SweepOptions, TrainOptions

TRAIN, SWEEP = ["train", "ppo", "--env", "CartPole-v1"], ["sweep", "ppo", "--env", "CartPole-v1"]
DQN = ["train", "dqn", "--env", "CartPole-v1"]
EVOLVE = ["evolve", "value-loss", "--env", "CartPole-v1"]
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
        ([*TRAIN, "--learning-rate", "1e40"], ["learning_rate = 1e+40: is inf in float32"]),
        ([*TRAIN, "--learning-rate", "1e-50"], ["learning_rate = 1e-50: is 0.0 in float32"]),
        ([*SWEEP, "--learning-rate", "1e-3,1e40"], ["learning_rate = 1e+40: is inf in float32"]),
        ([*TRAIN, "--seed", "1.5"], ["Error parsing --seed: '1.5' is not a whole number; Argument help"]),
        ([*TRAIN, "--env-params", "gravity=nan"], ["env = 'CartPole-v1': gravity = nan: must be finite in float32"]),
        ([*TRAIN, "--env-params", "gravity=1e39"], ["env = 'CartPole-v1': gravity = 1e+39: must be finite"]),
        (
            [*TRAIN, "--env-params", "gravity=inf", "max_steps=0"],
            [
                "env = 'CartPole-v1': gravity = inf: must",
                "env = 'CartPole-v1': max_steps = 0: must be a whole number >= 1",
            ],
        ),
        ([*TRAIN, "--env-params", "max_steps=2.5"], ["env = 'CartPole-v1': max_steps = 2.5: must be a whole number"]),
        ([*TRAIN, "--resets", "pool"], ["env = 'CartPole-v1': resets = 'pool': must be every, pool:N, few or few:N"]),
        (
            [*SWEEP, "--env-params", "tau=0.1,0.2", "--resets", "few:0"],
            ["env = 'CartPole-v1': resets = 'few:0': must be"],
        ),
        ([*EVOLVE, "--resets", "pool:0"], ["env = 'CartPole-v1': resets = 'pool:0': must be every"]),
        (
            [*TRAIN, "--resets", "few", "--env-params", "resets=pool:4"],
            ["resets = 'few': env_params has resets=pool:4; give only one of them"],
        ),
        ([*TRAIN, "--env-params", "gravity=1", "gravity=2"], ["env_params = 'gravity=2': gravity is given twice"]),
        ([*TRAIN, "--env-params", "hide_velocity=3"], ["env = 'CartPole-v1': hide_velocity = 3: must be 0 or 1"]),
        ([*TRAIN, "--env-params", "frame_stack=0"], ["env = 'CartPole-v1': frame_stack = 0: must be a whole number"]),
        (
            [*TRAIN, "--env-params", "sticky_actions=2"],
            ["env = 'CartPole-v1': sticky_actions = 2: must be a number in"],
        ),
        (
            [*TRAIN, "--env-params", "randomise=tau"],
            ["env = 'CartPole-v1': randomise = 'tau': must be 1 to 8 different"],
        ),
        ([*TRAIN, "--env-params", "tau=1:2"], ["env = 'CartPole-v1': tau = '1:2': must be a number, such as 0.02"]),
        (
            [*SWEEP, "--env-params", "sticky_actions=0.5,1.5,2.5", "reward_scale=1,2"],
            ["env = 'CartPole-v1': sticky_actions = 1.5: must", "env = 'CartPole-v1': sticky_actions = 2.5: must be a"],
        ),
        (
            [*SWEEP, "--env-params", "action_repeat=2,4"],
            [f"env = 'CartPole-v1': action_repeat = {n}.0: must be a whole number >= 1" for n in (2, 4)],
        ),
        (
            [*SWEEP, "--env-params", "randomise=tau:1:2", "tau=1,2"],
            ["env = 'CartPole-v1': tau is given as a number and drawn by randomise"],
        ),
        (
            ["train", "ppo", "--env", "Breakout-MinAtar", "--env-params", "max_steps_in_episode=0"],
            ["env = 'Breakout-MinAtar': max_steps_in_episode = 0: must be a whole number >= 1"],
        ),
        ([*SWEEP, "--env-params", "max_steps=5,0"], ["env = 'CartPole-v1': max_steps = 0.0: must be a whole number"]),
        (
            [*SWEEP, "--env-params", "gravity=1,2", "gravity=3"],
            ["env_params: gravity is given as a number and as a ran"],
        ),
        (
            [*SWEEP, "--env-params", "gravity=1,2", "gravity=3,4"],
            ["env_params = 'gravity=3,4': gravity is given twice"],
        ),
        ([*SWEEP, "--env-params", "hide_velocity=0,1"], ["env = 'CartPole-v1': hide_velocity: cannot be swept"]),
        ([*TRAIN, "--sequence-length", "64"], ["sequence_length = 64: has no effect without a memory"]),
        ([*TRAIN, "--max-lag", "2"], ["max_lag = 2: has no effect without a lag"]),
        ([*EVOLVE, "--memory-size", "8"], ["memory_size = 8: has no effect without a memory"]),
        ([*SWEEP, "--gamma", "0.9,0.99", "--num-samples", "3"], ["num_samples = 3: has no effect without a range LOW"]),
        ([*DQN, "--capacity", "2"], ["capacity = 2: must hold 6 steps of each environment, 48"]),
        ([*DQN, "--capacity", "63"], ["capacity = 63: must hold a batch, batch_size = 64"]),
        ([*DQN, "--capacity", "3e9"], ["capacity = 3000000000: must lie in [1, 2147483648)"]),
        ([*TRAIN, "--num-seeds", "1e8"], ["num_seeds = 100000000: must lie in [1, 1048576]"]),
        ([*TRAIN, "--total-steps", "1e30"], ["total_steps = 1000000000000000019884624838656: must lie in [1, 9.223"]),
        ([*SWEEP, "--gamma", "0:1:lin", "--num-samples", "1e9"], ["num_samples = 1000000000: must lie in [1, 65536]"]),
        ([*SWEEP, "--gamma", "0:1:lin:1000000000"], ["gamma = '0:1:lin:1000000000': must be LOW:HIGH"]),
        (
            [*SWEEP, "--gamma", "0:1:lin:1000", "--gae-lambda", "0:1:lin:1000"],
            ["1000 (gamma) * 1000 (gae_lambda) configurations: must be at most 65536"],
        ),
        (
            [*SWEEP, "--gamma", "0.9,0.99", "--num-seeds", "1e6"],
            ["num_seeds = 1000000: 2000000 agents of 2 configurations; must be at most 1048576"],
        ),
        (
            [*EVOLVE, "--population", "1e6", "--num-seeds", "4"],
            ["population = 1000000: 4000000 trainings; must be at most 1048576"],
        ),
        (
            ["train", "ppo", "--env", "bad_own:whole_rewards"],
            ["env = 'bad_own:whole_rewards': reward: must be float32[]"],
        ),
        (
            ["train", "ppo", "--env", "bad_own:half_observations"],
            ["env = 'bad_own:half_observations': step's next_obs: must be float32[4], but is float16[4]"],
        ),
        ([*SWEEP, "--gamma", "0.9,0.95,0.9"], ["gamma = '0.9,0.95,0.9': contains a value twice"]),
        ([*SWEEP, "--gamma", "0.5:0.50000001:lin:3"], ["gamma = '0.5:0.50000001:lin:3': contains a value twice"]),
        (["record", "random", "--env", "CartPole-v1", "--agent", "3"], ["agent = 3: random is not a run"]),
        ([*TRAIN, "--value-loss", ""], ["--value-loss: must not be empty; omit --value-loss for the default"]),
        (["plan", "ppo", "--env", "CartPole-v1", "--target="], ["--target: must not be empty; omit --target"]),
        ([*TRAIN, "--seed", "\u0661\u0662"], ["'\u0661\u0662': write numbers with the digits 0 to 9"]),
        ([*SWEEP, "--gamma", "0.9,0.\uff19\uff15"], ["'0.9,0.\uff19\uff15': write numbers with the digits"]),
        ([*TRAIN, "--env-params", "gravity=\u0669"], ["'gravity=\u0669': write numbers with the digits"]),
        (["train", "--config"], ["--config: needs a value"]),
        (["train", "ppo", "--wrapper", "--env", "CartPole-v1"], ["--wrapper: needs a value"]),
        ([*TRAIN, "--opponents", "league"], ["opponents = 'league': CartPole-v1 has one agent"]),
        ([*TRAIN, "--opponents", "past", "--past-games", "3"], ["opponents = 'past': CartPole-v1 has one agent"]),
        *(
            (["train", algo, "--env", "CartPole-v1"], [f"algorithm = '{algo}': is for several agents; CartPole-v1 has"])
            for algo in ("ippo", "mappo", "iql", "vdn", "qmix", "masac")
        ),
        (["plan", "qmix", "--env", "TicTacToe-v0"], ["algorithm = 'qmix': learns the reward of a team, which is 0"]),
        (
            ["train", "vdn", "--env", "MatrixGame-v0", "--env-params", "game=matching-pennies"],
            ["algorithm = 'vdn': learns the reward of a team, which is 0 at every step of MatrixGame-v0"],
        ),
        ([*EVOLVE, "--algo", "ippo"], ["algorithm = 'ippo': is for several agents; CartPole-v1 has one agent"]),
        (
            [*TRAIN, "--learning-rate", "1e40", "--env-params", "max_steps=0", "--memory-size", "8"],
            ["env = 'CartPole-v1': max_steps = 0", "learning_rate = 1e+40", "memory_size = 8: has no effect"],
        ),
    ],
)
def test_is_refused_in_lines(args, lines, capsys, monkeypatch, tmp_path):
    (tmp_path / "bad_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_own", raising=False)
    before = list(tmp_path.iterdir())
    monkeypatch.setattr("purerl.runs.running.train.train", lambda *_: pytest.fail("begun"))
    monkeypatch.setattr("purerl.meta.search.search", lambda *_: pytest.fail("begun"))
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
    with pytest.raises(ConfigError, match="seeds must be whole numbers, at least one"):
        description.start(config_file.read(file))


def test_what_cannot_be_written_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    monkeypatch.setattr(directory.os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(ConfigError, match="film.gif': cannot be written"):
        directory.check_out(tmp_path / "film.gif", overwrite=False)


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.lock", "checkpoints/0"])
def test_a_run_directory_with_a_pipe_is_refused(name, tmp_path):
    """It once was after compiling, or as if another process held it."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    for how in ({"overwrite": True}, {"resume": True}):
        with (
            pytest.raises(ConfigError, match=f"{name}: is neither a file nor a directory"),
            directory.hold(tmp_path, ("metrics.jsonl", "checkpoints"), **how),
        ):
            pytest.fail("held")


def test_a_run_directory_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(directory.os, "access", lambda path, mode: False)
    with (
        pytest.raises(ConfigError, match="cannot be written \\(it is read-only\\)"),
        directory.hold(tmp_path, (), resume=True),
    ):
        pytest.fail("held")


def test_a_million_seeds_are_read_soon():
    """They took half a minute."""
    config, start = dict(vars(ppo.Config())), time.process_time()
    fields = {"algo": "ppo", "env": "CartPole-v1", "env_params": {}, "config": config, "swept": {}}
    result = Description.of_json({**fields, "seeds": list(range(10**6))}, "policy.json")
    assert Setup.of(result).members.size == 10**6 and time.process_time() - start < 4


def test_presets_and_integral_floats_are_not_refused():
    args = ["--env", "CartPole-v1", "--preset", "openai-five", "--total-steps", "1e11", "--seed", "4294967295"]
    given = parsing.training("train", "ppo", TrainOptions, args)
    described = describe("ppo", given.options, given.config, {})
    assert described.config["total_steps"] == 10**11 and described.seeds == [2**32 - 1]


def test_an_algorithm_is_named_by_a_flag_as_well():
    rest = ["--env", "CartPole-v1"]
    for args in (["ppo", *rest], ["--algo", "ppo", *rest], [*rest, "--algo=ppo"]):
        assert parsing.algorithm("train", args) == ("ppo", rest, None)
    with pytest.raises(ConfigError, match="algorithm = 'pqo': unknown; nearest: pqn, ppo"):
        parsing.algorithm("train", ["--algo", "pqo", *rest])


def test_the_last_of_two_flags_counts():
    fields = ["gamma"]
    assert ranges.extract(["--gamma", "0.9,0.99", "--gamma", "0.5"], fields, "env.") == (["--gamma", "0.5"], {})
    rest, result = ranges.extract(["--gamma", "0.5", "--gamma", "0.9,0.99"], fields, "env.")
    assert rest == ["--gamma", "0.5"] and result == {"gamma": "0.9,0.99"}


def test_nothing_is_built_of_a_sweep_that_is_too_large(monkeypatch):
    monkeypatch.setattr(np, "linspace", lambda *_: pytest.fail("built"))
    with pytest.raises(ConfigError, match="COUNT from 2 to 65536"):
        ranges.configurations({"gamma": "0:1:lin:99999999"}, 1, 0)
    with pytest.raises(
        ConfigError, match=r"^2 \(gamma\) \* 40000 \(num_samples\) configurations: must be at most 65536$"
    ):
        ranges.configurations({"gamma": "0.5,0.6", "x": "0:1:lin"}, 40_000, 0)
    assert ranges.unused({"gamma": "0:1:lin"}, SweepOptions(env="x", num_samples=3)) == []


def test_members_have_the_keys_of_their_seeds():
    seeds = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
    made = Setup.of(Description("ppo", "CartPole-v1", {}, seeds, dict(vars(ppo.Config())), {}, {})).members.keys
    alone = [jax.random.key_data(jax.random.key(seed)) for seed in seeds]
    assert json.dumps(jax.random.key_data(made).tolist()) == json.dumps([key.tolist() for key in alone])


def test_resets_are_a_parameter_of_the_environment(tmp_path):
    """Given as an option or among the parameters; and read back from a file as the option."""
    assert parsing.env_params(["gravity=9"], "few:2") == {"gravity": 9, "resets": "few:2"}
    assert parsing.env_params(["resets=few"], "few") == parsing.env_params(["resets=few"]) == {"resets": "few"}
    fields = {"algo": "ppo", "env": "CartPole-v1"}
    read = lambda **params: description.start(
        config_file.ConfigFile(tmp_path, "train", {**fields, "env_params": params}, {}, [])
    )
    assert read(resets="few", gravity=9).options == {"env": "CartPole-v1", "env_params": ["gravity=9"], "resets": "few"}
    assert "resets" not in read().options
