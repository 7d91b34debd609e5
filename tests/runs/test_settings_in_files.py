"""Settings in files: a default for what is left out; what no longer exists is passed over at its default alone."""

import json

import pytest

from purerl import ppo
from purerl.algos import read_config
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.names import existing
from purerl.runs.describing import config_file, description
from purerl.runs.describing.options import FORMER, TrainOptions

KEPT = {name: value for name, value in vars(ppo.Config(num_envs=2)).items() if name != "gamma"}


def test_a_setting_that_exists_is_kept():
    assert existing({"kernels": "auto", "gamma": 0.9}, ["gamma", "kernels"], "") == {"kernels": "auto", "gamma": 0.9}


def test_a_former_setting_at_its_default_is_passed_over_with_one_line(capsys):
    for _ in range(2):
        assert existing({"kernels": "off", "gamma": 0.9}, ["gamma"], "a.json: ", FORMER) == {"gamma": 0.9}
    assert capsys.readouterr().err == "a.json: kernels = 'off': no longer exists; passed over\n"


@pytest.mark.parametrize(
    "values, lines",
    [
        ({"kernels": "auto"}, ["a.json: kernels = 'auto': no longer exists; remove it"]),
        ({"gama": 0.9}, ["a.json: gama: unknown; nearest: gamma"]),
        ({"a\x1b[31m\nb": 0}, [r"a.json: 'a\x1b[31m\nb': unknown;"]),
        ({f"name{i}": 0 for i in range(2000)}, ["a.json: name0: ", "a.json: name1: ", "a.json: name2: "]),
    ],
    ids=["former", "unknown", "hostile", "many"],
)
def test_every_other_name_is_refused(values, lines):
    with pytest.raises(ConfigError) as raised:
        existing(values, ["gamma"], "a.json: ", FORMER)
    told = str(raised.value).splitlines()
    assert len(told) == len(lines) and all(map(str.startswith, told, lines))
    assert ("(and 1997 more)" in told[-1]) == (len(values) == 2000)


def test_a_description_in_a_file():
    """As policies have them, which eval, render, export and record read."""
    fields = {"algo": "ppo", "env": "CartPole-v1", "seeds": [0]}
    read = lambda **more: description.TrainingDescription.of_json({**fields, "config": {**KEPT, **more}}, "policy.json")
    assert read().config == vars(ppo.Config(num_envs=2)) and read().swept == {}
    assert read_config("ppo", {}) == ppo.Config()
    with pytest.raises(ConfigError, match="^policy.json: config: kernels: unknown"):
        read(kernels="off")


def test_a_config_file(tmp_path):
    """As ``--config`` and resume read it, from which settings and options are missing."""
    path = tmp_path / config_file.NAME

    def read(kernels):
        options = {"kernels": kernels, "eval_episodes": 3}
        fields = {"algo": "ppo", "env": "CartPole-v1", "config": KEPT, "options": options}
        path.write_text(json.dumps({"format": 1, "command": "train", **fields}))
        return parsing.started(description.start(config_file.read(path)), TrainOptions, "ppo")

    given = read("off")
    assert given.config == ppo.Config(num_envs=2) and given.options == TrainOptions(env="CartPole-v1", eval_episodes=3)
    with pytest.raises(ConfigError, match="config.json: options: kernels = 'auto': no longer exists"):
        read("auto")
