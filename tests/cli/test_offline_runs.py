"""Trainings from recorded play alone, from the command line to their results."""

import gc
import json

import jax
import numpy as np
import pytest
from commands import run

from purerl import envs, load_dataset, trees

pytestmark = pytest.mark.rest

PENDULUM = ["--env", "Pendulum-v1", "--env-params", "max_episode_steps=20"]
SMALL = ["--hidden-sizes", "8", "--num-updates", "10", "--batch-size", "8", "--eval-episodes", "2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two files of random play, and one of another environment."""
    directory = tmp_path_factory.mktemp("offline")
    for name, seed in (("a", "0"), ("b", "1")):
        out = directory / f"{name}.safetensors"
        run("record", "random", *PENDULUM, "--episodes", "8", "--seed", seed, "--out", out)
    run("record", "random", "--env", "Pendulum-v1", "--episodes", "1", "--out", directory / "other.safetensors")
    return directory


@pytest.fixture(scope="module")
def both(place):
    return ["--data", place / "a.safetensors", place / "b.safetensors"]


@pytest.fixture(scope="module")
def trained(place, both):
    """Two agents, in the environment of the dataset's card, evaluated every 20 updates."""
    run(
        "train",
        "bc",
        *both,
        *SMALL,
        "--total-steps",
        "40",
        "--num-seeds",
        "2",
        "--eval-every",
        "20",
        "--out",
        place / "run",
    )
    return place / "run"


def contents(directory, name):
    return json.loads((directory / name).read_text())


def rows(directory, name):
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


def line(capsys, *args):
    run(*args, expect=2)
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("purerl: error")]
    assert len(error) == 1
    return error[0]


def test_a_run_counts_updates(trained, place):
    summary, config = contents(trained, "summary.json"), contents(trained, "config.json")
    assert summary["status"] == "completed" and summary["updates"] == 40 and summary["all_updates"] == 80
    assert summary["env_steps"] == summary["all_env_steps"] == summary["steps_per_second"] == 0
    assert summary["updates_per_second"] > 0 and np.isfinite(summary["return_per_seed"]).all()
    assert config["env"] == "Pendulum-v1" and config["env_params"] == {"max_episode_steps": 20}
    paths = config["datasets"]["data"]["path"]
    assert paths == [str(place / "a.safetensors"), str(place / "b.safetensors")]
    assert len(set(config["datasets"]["data"]["sha256"])) == 2
    logged = rows(trained, "metrics.jsonl")
    assert [row["updates"] for row in logged[::2]] == [10, 20, 30, 40] and not any("env_steps" in row for row in logged)
    assert all(row["episodes"] == 0 and row["episode_return"] is None and row["loss"] > 0 for row in logged)
    evaluated = rows(trained, "evaluations.jsonl")
    assert [row["updates"] for row in evaluated] == [20, 20, 40, 40]
    assert [row["eval_return"] for row in evaluated[2:]] == summary["return_per_seed"]
    assert rows(trained, "times.jsonl")[-1]["updates_per_second"] > 0
    assert (trained / "curve.png").exists()


def test_files_are_joined_episode_by_episode(place):
    env = envs.make("Pendulum-v1", max_episode_steps=20)
    a, b = (load_dataset(place / f"{name}.safetensors", env) for name in "ab")
    whole = load_dataset([place / "a.safetensors", place / "b.safetensors"], env)
    np.testing.assert_array_equal(whole.obs, np.concatenate([a.obs, b.obs]))
    np.testing.assert_array_equal(whole.final_obs, np.concatenate([a.final_obs, b.final_obs]))
    assert whole.last.sum() == len(whole.final_obs) == 16


def test_a_longer_run_has_the_bits_of_one_that_was_resumed(trained, place, both, capsys):
    run("train", "bc", *both, *SMALL, "--total-steps", "60", "--num-seeds", "2", "--out", place / "whole")
    moved = place / "moved.safetensors"
    (place / "b.safetensors").rename(moved)
    try:
        resume = ["resume", trained, "--total-steps", "60"]
        assert "No such file or directory" in line(capsys, *resume)
        given = ["--data", place / "a.safetensors", moved]
        assert "data: has 1 files, the run has 2" in line(capsys, *resume, *given[:2])
        assert "sha256 differs" in line(capsys, *resume, "--data", moved, moved)
        run(*resume, *given)
    finally:
        moved.rename(place / "b.safetensors")
    assert (
        contents(trained, "summary.json")["return_per_seed"]
        == contents(place / "whole", "summary.json")["return_per_seed"]
    )
    assert (trained / "policy.safetensors").read_bytes() == (place / "whole" / "policy.safetensors").read_bytes()


def test_a_sweep_shares_the_dataset(place, both, capsys):
    sizes = ["--total-steps", "20", "--learning-rate", "1e-4:1e-2:log:3", "--num-seeds", "2"]
    run("sweep", "bc", *both, *SMALL, *sizes, "--out", place / "sweep")
    assert len(contents(place / "sweep", "sweep.json")["ranked"]) == 3
    capsys.readouterr()
    plans = []
    for seeds in ("1", "4"):
        run("plan", "bc", *both, *SMALL, "--num-seeds", seeds, "--json")
        plans.append(json.loads(capsys.readouterr().out))
    floats, others = 3 + 1 + 1, 2  # an observation, an action and a reward; both flags
    each = 4 * floats + others + 4  # and where samples begin
    assert plans[0]["unit"] == "updates" and plans[1]["frames"] == 4 * plans[0]["frames"]
    for plan in plans:
        assert plan["dataset_bytes"] == pytest.approx(320 * each, rel=0.1)
    assert plans[0]["bytes_per_member"] < plans[0]["peak_bytes"]


@pytest.fixture(scope="module")
def streamed(place, both):
    """Two agents whose data stay in the host's memory, with what would be too early an end."""
    sizes = ["--total-steps", "20", "--num-seeds", "2", "--no-normalize-obs", "--data-on", "host"]
    run("train", "bc", *both, *SMALL, *sizes, "--out", place / "streamed")
    return place / "streamed"


def test_streamed_data_give_the_bits_of_data_on_the_device_also_after_a_resume(streamed, place, both):
    sizes = ["--total-steps", "40", "--num-seeds", "2", "--no-normalize-obs"]
    run("train", "bc", *both, *SMALL, *sizes, "--out", place / "held")
    run("train", "bc", *both, *SMALL, *sizes, "--data-on", "host", "--agents-at-once", "1", "--out", place / "batches")
    run("resume", streamed, "--total-steps", "40")
    for directory, where in ((streamed, "host"), (place / "held", "device"), (place / "batches", "host")):
        assert contents(directory, "config.json")["options"]["data_on"] == where
        assert (directory / "policy.safetensors").read_bytes() == (place / "held" / "policy.safetensors").read_bytes()
    assert (streamed / "metrics.jsonl").read_bytes() == (place / "held" / "metrics.jsonl").read_bytes()
    run("resume", streamed, "--total-steps", "60", "--data-on", "device")
    run("resume", place / "held", "--total-steps", "60", "--data-on", "host")
    assert (streamed / "policy.safetensors").read_bytes() == (place / "held" / "policy.safetensors").read_bytes()


def test_a_sweep_streams_its_data(place, both):
    """Each configuration with a discount of its own, which programs apply to what the host reads."""
    sizes = ["--total-steps", "20", "--gamma", "0.5,0.9", "--num-seeds", "2", "--data-on"]
    for where in ("device", "host"):
        run("sweep", "td3-bc", *both, *SMALL, "--no-normalize-obs", *sizes, where, "--out", place / f"sweep-{where}")
    results = [(place / f"sweep-{where}" / "policy.safetensors").read_bytes() for where in ("device", "host")]
    assert len(set(contents(place / "sweep-host", "config.json")["swept"]["gamma"])) == 2 and results[0] == results[1]


def test_auto_streams_what_does_not_fit(place, both, capsys, monkeypatch):
    """The free memory is pretended: of one device, enough for an agent, but not for the data beside it."""
    plan = ["plan", "bc", *both, *SMALL, "--num-devices", "1", "--json"]

    def cost(where, expect=0):
        run(*plan, "--data-on", where, expect=expect)
        return json.loads(capsys.readouterr().out)

    device, host = cost("device"), cost("host")
    steps = 10 * 8 * (4 + 2 * (4 * (3 + 1 + 1) + 2))  # a slot, and of two steps an observation, an action, a reward
    assert host["data_on"] == "host" and host["sample_bytes"] == steps and device["sample_bytes"] == 0
    assert host["dataset_bytes"] == 320 * (4 * (3 + 1 + 1) + 2) + 16 * 3 * 4
    assert host["bytes_per_member"] == host["peak_bytes"] > steps
    whole = device["peak_bytes"] + 1000  # enough for one device, and none for each of several that are not used
    only_one = lambda devices, given=None: whole if len(devices) == 1 else 0
    with monkeypatch.context() as pretended:
        pretended.setattr("purerl.population.devices.available_bytes", only_one)
        assert cost("auto")["data_on"] == "device"
    data_of_device = lambda: [x for x in jax.live_arrays() if x.shape[:2] == (320, 1)]
    with monkeypatch.context() as pretended:  # data that lie there are not free, and part of what the program needs
        left = lambda: whole - trees.nbytes(data_of_device())
        pretended.setattr("purerl.hosts.container.free_bytes", left)
        assert cost("auto")["data_on"] == "device"
    assert device["peak_bytes"] - device["bytes_per_member"] == device["dataset_bytes"]
    assert host["peak_bytes"] < device["peak_bytes"]
    assert cost("auto")["data_on"] == "device"
    run(*plan[:-1], "--data-on", "host")
    assert "datasets, on host" in capsys.readouterr().out
    free = (host["peak_bytes"] + device["peak_bytes"]) // 2
    monkeypatch.setattr("purerl.population.devices.available_bytes", lambda devices, given=None: free)
    gc.collect()
    before = len(data_of_device())
    gc.disable()
    try:
        assert cost("auto")["data_on"] == "host"
        assert len(data_of_device()) == before  # those that did not fit are gone
    finally:
        gc.enable()
    run(*plan, "--data-on", "device", expect=4)
    train = ["train", "bc", *both, *SMALL, "--num-devices", "1", "--total-steps", "10", "--out", place / "auto"]
    run(*train)
    assert contents(place / "auto", "config.json")["options"]["data_on"] == "host"
    assert "the data stay in the host's memory: on a device the training does not fit" in capsys.readouterr().err
    monkeypatch.setattr("purerl.population.devices.available_bytes", lambda devices, given=None: 1000)
    capsys.readouterr()
    run(*plan, "--data-on", "device", expect=4)
    assert "--data-on host streams it" in capsys.readouterr().err
    run(*plan, "--data-on", "auto", expect=4)


def test_without_a_cpu_beside_the_device_nothing_is_streamed(place, both, capsys, monkeypatch):
    """As with JAX_PLATFORMS=cuda."""
    devices = jax.local_devices

    def of_accelerators(*args, backend=None, **more):
        if backend == "cpu":
            raise RuntimeError("Unknown backend cpu")
        return devices(*args, backend=backend, **more)

    monkeypatch.setattr(jax, "local_devices", of_accelerators)
    for command in (["plan"], ["train", "--out", place / "never"]):
        told = line(capsys, command[0], "bc", *both, *SMALL, "--data-on", "host", *command[1:])
        assert "JAX_PLATFORMS: leaves out the CPU, which draws the samples of data on the host; add cpu" in told
    assert not (place / "never").exists()


def test_what_is_refused(place, both, capsys):
    train = ["train", "bc", *both, *SMALL]
    whole = (place / "a.safetensors").read_bytes()
    (place / "damaged.safetensors").write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    told = line(capsys, "train", "iql", *both)
    assert "iql (Independent Q-learning of a team) learns by playing" in told
    assert "implicit-q (Implicit Q-learning" in told
    for given, text in (
        (["train", "bc", *SMALL], "data: is missing; give --data FILE, a file of `purerl record`"),
        (["train", "bc", *SMALL, "--env", "Pendulum-v1"], "data: is missing"),
        ([*train, "--keep-best"], "keep_best = True: no episodes are played in a training from recorded play"),
        ([*train, "--stop-at", "-100"], "give eval_every"),
        ([*train, "--shards", "2"], "shards = 2: is not supported with recorded play"),
        ([*train, "--total-steps", "9"], "total_steps = 9: must be at least num_updates = 10"),
        ([*train, "--data-on", "disk"], "data-on"),
        (["train", "bc", "--data", place / "damaged.safetensors", "--data-on", "host", *SMALL], "sha256 differs"),
        (["train", "ppo", "--env", "CartPole-v1", "--data-on", "host"], "--data-on: unknown option"),
        (["train", "bc", *both[:2], *SMALL, "--env", "CartPole-v1"], "was played with env = 'Pendulum-v1'"),
        (["train", "bc", "--data", place / "a.safetensors", place / "other.safetensors"], "was played with env_params"),
    ):
        assert text in line(capsys, *given, "--out", place / "never")
    assert not (place / "never").exists()
