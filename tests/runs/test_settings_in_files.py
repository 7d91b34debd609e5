"""Settings in files: a default for what is left out; what no longer exists is passed over at its default alone."""

import json

import pytest

from purerl import ppo
from purerl.algos import read_config
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.names import existing
from purerl.runs.describing import config_file, description
from purerl.runs.describing.options import TrainOptions

KEPT = {name: value for name, value in vars(ppo.Config(num_envs=2)).items() if name != "gamma"}


def test_a_setting_that_exists_is_kept():
    assert existing({"kernels": "auto", "gamma": 0.9}, ["gamma", "kernels"], "") == {"kernels": "auto", "gamma": 0.9}


def test_a_former_setting_at_its_default_is_passed_over_with_one_line(capsys):
    for _ in range(2):
        assert existing({"kernels": "off", "gamma": 0.9}, ["gamma"], "a.json: ") == {"gamma": 0.9}
    assert capsys.readouterr().err == "a.json: kernels = 'off': no longer exists; passed over\n"


def test_every_other_name_is_refused():
    with pytest.raises(ConfigError) as raised:
        existing({"kernels": "auto", "gama": 0.9}, ["gamma"], "a.json: ")
    former, unknown = str(raised.value).splitlines()
    assert former.startswith("a.json: kernels = 'auto': no longer exists")
    assert unknown == "a.json: gama: unknown; nearest: gamma"


def test_a_description_in_a_file():
    """As policies have them, which eval, render, export and record read."""
    fields = {"algo": "ppo", "env": "CartPole-v1", "seeds": [0]}
    read = lambda **more: description.Description.of_json({**fields, "config": {**KEPT, **more}}, "policy.json")
    assert read(kernels="off").config == vars(ppo.Config(num_envs=2)) and read().swept == {}
    assert read_config("ppo", {}) == ppo.Config()
    with pytest.raises(ConfigError, match="^policy.json: config: kernels = 'auto': no longer exists"):
        read(kernels="auto")


def test_a_config_file(tmp_path):
    """As ``--config`` and resume read it, from which settings and options are missing."""
    path = tmp_path / config_file.NAME

    def read(**more):
        options = {"kernels": "off", "eval_episodes": 3}
        fields = {"algo": "ppo", "env": "CartPole-v1", "config": {**KEPT, **more}, "options": options}
        path.write_text(json.dumps({"format": 1, "command": "train", **fields}))
        return parsing.started(description.start(config_file.read(path)), TrainOptions, "ppo")

    given = read(kernels="off")
    assert given.config == ppo.Config(num_envs=2) and given.options == TrainOptions(env="CartPole-v1", eval_episodes=3)
    with pytest.raises(ConfigError, match="config.json: config: kernels = 'auto': no longer exists"):
        read(kernels="auto")
