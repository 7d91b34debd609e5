"""The sides of scripts/benchmark.py: purerl's are words after ``purerl train``, which say what a peer is told too."""

import argparse
import json
import os
import shlex
import sys

import pytest
from workloads import algorithms, dqn, hosts, named, ppo, sac, sides, turns

from purerl.cli import benchmark_worker


def read(words):
    return benchmark_worker.read(shlex.split(words))


def test_a_folder_of_packages_is_looked_into_first(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "already")
    plain, folder = sides.side("a", "python", {"x": 1}), sides.side("a", str(tmp_path), {"x": 1}, {"THREADS": "1"})
    assert plain.command == ["python", str(sides.SCRIPT), "worker"] and plain.environment == {}
    assert folder.command[0] == sys.executable
    assert folder.environment == {"THREADS": "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}already"}


def test_the_side_of_purerl_has_the_words():
    side = sides.ours("ppo --env 'a b'", {"workload": "x", "warmups": 2})
    expected = {"workload": "x", "warmups": 2, "side": "purerl", "options": ["ppo", "--env", "a b"]}
    assert side.name == "purerl" and json.loads(json.dumps(side.request)) == expected


def test_ppo_is_trained_as_purejaxrl_trains():
    for workload, setting in ppo.SETTINGS.items():
        given = read(ppo.words(workload, 3, 65_536, lanes=2, precision="bfloat16"))
        assert (given.config.num_envs, given.config.num_steps) == (setting.num_envs, setting.num_steps)
        assert (given.options.num_seeds, given.options.lanes, given.options.precision) == (3, 2, "bfloat16")
        assert given.config.total_steps == 65_536
    given = read(ppo.words("ppo-cartpole", 1, 512)).config
    theirs = ppo.PUREJAXRL
    assert (given.learning_rate, given.num_epochs, given.clip_epsilon) == (
        theirs["LR"],
        theirs["UPDATE_EPOCHS"],
        theirs["CLIP_EPS"],
    )


def test_dqn_is_trained_as_rejax_trains():
    """Ten environments of eight steps: the warm-up of 1000 frames is 1040, and 12 iterations follow up to 2000."""
    setting = dqn.SETTINGS["dqn-cartpole"]
    total = dqn.counts(setting, 2000, num_steps=8)
    assert (total.warmup, total.frames, total.updates) == (1040, 2000, 12 * 8 * 5)
    given = read(dqn.words(setting, total, 8, agents=4, lanes=2))
    config = given.config
    assert (given.options.num_seeds, given.options.lanes, given.options.env) == (4, 2, "CartPole-v1")
    assert (config.num_envs, config.num_steps, config.num_updates, config.warmup_steps) == (10, 8, 40, 1040)
    assert (config.total_steps, config.capacity, config.target_period) == (2000, 50_000, 100)
    assert (config.epsilon_start, config.epsilon_end, config.hidden_sizes) == (1.0, 0.05, (64, 64))
    assert (config.huber_delta, config.learning_rate_decay, config.activation) == (1e6, 0.0, "silu")


def test_sac_is_trained_as_rejax_trains():
    given = read(sac.words({"agents": 2, "total_steps": 1500, "num_steps": 5}, lanes=1))
    config = given.config
    assert (given.options.num_seeds, config.num_envs, config.num_steps, config.num_updates) == (2, 4, 5, 20)
    assert config.learning_rate == config.actor_learning_rate == 3e-4 and config.hidden_sizes == (64, 64)
    assert (config.total_steps, config.warmup_steps, config.tau, config.max_grad_norm) == (1500, 1000, 0.005, 40.0)


def test_options_of_an_algorithm_count_last():
    args = argparse.Namespace(env="CartPole-v1", total_steps=100, demos="file")
    given = read(algorithms.words("ppo --total-steps 50 --memory gru", 3, args))
    assert (given.config.total_steps, given.config.memory, given.options.num_seeds) == (50, "gru", 3)
    assert "--demos file" in algorithms.words("r2d3", 1, args)


def test_other_updates_than_a_peer_takes_fail():
    job = turns.Job(None, lambda *_: None, {"frames": 8}, lambda result: {"updates": result})
    assert dqn.took(job, 8, 3).tally(3) == {"updates": 3}
    for checked, updates in ((dqn.took(job, 8, 3), 4), (dqn.took(job, 9, 3), 3)):
        with pytest.raises(SystemExit, match=f"8 frames and {updates} updates"):
            checked.tally(updates)


def test_the_host_has_the_words_of_the_named_workload():
    assert hosts.OURS["host-cartpole"] == named.HOST_CARTPOLE


def test_an_interpreter_without_packages_serves_a_peer():
    """It has no purerl, and comes as far as the peer's own import."""
    request = {"workload": "host-cartpole", "side": "sb3-dummy", "total_steps": 100, "warmups": 2, "checkout": ""}
    side = turns.Side("sb3", [sys.executable, "-S", str(sides.SCRIPT), "worker"], request)
    with pytest.raises(turns.Failed, match="No module named 'stable_baselines3'"):
        turns.measure_once([side], 1, 0)
