"""Trainings whose data stay in the host's memory learn what those learn whose data lie on the device."""

import dataclasses
import functools
import sys
import tracemalloc

import jax
import numpy as np
import pytest

from purerl import bc, envs, loops, population, rebrac, record, replay, td3_bc, train_in_chunks
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.loops.evaluation import random_player
from purerl.population import planning
from purerl.replay.fixed import dataset_problems
from purerl.runs.describing import datasets, offline_options
from purerl.runs.describing.options import TrainOptions
from purerl.runs.running import streaming
from purerl.runs.running.device_program import compile_program
from purerl.spaces import Box
from purerl.store import card_files, tensors
from purerl.trees import named_leaves, nbytes, take
from purerl.types import Dataset

ENV = envs.make("Pendulum-v1", max_episode_steps=20)
SMALL = {"total_steps": 60, "num_updates": 5, "batch_size": 8, "hidden_sizes": (8,), "normalize_obs": False}
KEY = jax.random.key(1)


@functools.cache
def play():
    return record(jax.random.key(0), ENV, random_player(ENV), 8, 50)


def words(tree):
    """The leaves of a state, by their names, with keys as numbers."""
    return {name: np.asarray(tensors.plain(x)) for name, x in named_leaves(tree).items()}


def check_equal(a, b):
    a, b = words(a), words(b)
    assert a.keys() == b.keys()
    for name, x in a.items():
        np.testing.assert_array_equal(x, b[name], err_msg=name)


@pytest.mark.parametrize(
    "algorithm", [bc, pytest.param(td3_bc, marks=pytest.mark.rest), pytest.param(rebrac, marks=pytest.mark.rest)]
)
def test_the_bits_are_those_of_data_on_the_device(algorithm):
    config = algorithm.Config(**SMALL)
    device, host = (
        train_in_chunks(algorithm.make_trainer(config, ENV, data=data), KEY, 4)
        for data in (play(), replay.streamed(play()))
    )
    check_equal(device, host)


@pytest.mark.rest
def test_standardising_sees_all_of_the_data(monkeypatch):
    """The moments of pieces joined equal those of the whole up to rounding, and so does what is learned."""
    monkeypatch.setattr(sys.modules["purerl.replay.streamed"], "PIECE_BYTES", 1000)
    config = bc.Config(**{**SMALL, "normalize_obs": True})
    device, host = (
        train_in_chunks(bc.make_trainer(config, ENV, data=data), KEY, 2).state.learner
        for data in (play(), replay.streamed(play()))
    )
    moments, exact = host.obs_moments.moments, play().obs.astype(np.float64)
    assert moments.count == len(exact)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(moments.var, exact.var(axis=0), rtol=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), host, device)


@pytest.mark.rest
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_a_population_learns_what_its_members_learn_alone(normalize_obs):
    """Over two devices, and one of them with two members; of a member the iterations may end anywhere."""
    config = bc.Config(**{**SMALL, "normalize_obs": normalize_obs})
    trainer = bc.make_trainer(config, ENV, data=replay.streamed(play()))
    members = population.Members({}, jax.random.split(KEY, 3))
    program = compile_program(lambda: trainer, members, devices=jax.devices()[:2], stream=trainer.stream)
    half = list(program.chunks(members, program.begin(members), 0, 2))[-1].state
    last = list(program.chunks(members, half, 2, 4))[-1]
    for i, key in enumerate(members.keys):
        check_equal(take(last.state, i), train_in_chunks(trainer, key, 4).state)


def test_one_program_cannot_stream():
    config = bc.Config(**SMALL)
    with pytest.raises(ConfigError, match="train_in_chunks and the command line stream it"):
        jax.eval_shape(bc.make_train(config, ENV, data=replay.streamed(play())), KEY)
    trainer = bc.make_trainer(config, ENV, data=replay.streamed(play()))
    with pytest.raises(ConfigError, match="train_in_chunks and the command line stream it"):
        jax.eval_shape(lambda state: loops.chunk(trainer, 2)(state, 1), jax.eval_shape(trainer.init, KEY))


def test_several_processes_cannot_stream():
    options = parsing.with_learned(TrainOptions, "bc")(env="Pendulum-v1", processes="127.0.0.1:1234,2,0")
    known = lambda where: dataclasses.replace(options, data_on=where)
    told = ["data_on = 'host': is not supported with processes"]
    assert offline_options.problems(known("host"), bc.Config()) == told
    assert not offline_options.problems(options, bc.Config()) and options.data_on == "auto"

    def full(options):
        assert options.data_on == "device"
        raise planning.DoesNotFit("too large")

    with pytest.raises(planning.DoesNotFit, match="too large"):
        streaming.placed(options, full)


STACKED = ENV._replace(observation_space=Box(0, 255, (4, 4, 8), np.uint8, num_frames=8))


@pytest.fixture(scope="module")
def stacked(tmp_path_factory):
    """What a description has of a dataset of stacks, of which every other step is cut off."""
    steps, path = 1024, tmp_path_factory.mktemp("stacked") / "stacked.safetensors"
    pictures = np.random.default_rng(0).integers(0, 256, (steps, 4, 4, 8), np.uint8)
    numbers, ends = np.zeros(steps, np.float32), np.arange(steps) % 2 == 1
    data = Dataset(pictures, numbers[:, None], numbers, np.zeros(steps, bool), ends, pictures[ends])
    card_files.save(card_files.DATASET, path, named_leaves(data), {"steps": steps, "episodes": steps // 2})
    return {"data": {"path": str(path), "sha256": datasets.read(path, STACKED)[1][datasets.DIGEST]}}


def test_data_that_do_not_fit_are_not_put_on_a_device(stacked, monkeypatch):
    """What counts is what is put there: one frame of each stack, and the next frame of a step that is cut off."""
    need = 1024 * (16 + 4 + 4 + 1 + 1 + 4) + 512 * (16 + 1)
    there = lambda: len([x for x in jax.live_arrays() if x.shape[:2] == (1024, 1)])
    before = there()
    monkeypatch.setattr(datasets.devices, "available_bytes", lambda devices: need - 1)
    with pytest.raises(planning.DoesNotFit, match="data-on host"):
        datasets.parts(stacked, STACKED)
    assert there() == before
    monkeypatch.setattr(datasets.devices, "available_bytes", lambda devices: need)
    assert nbytes(datasets.parts(stacked, STACKED)) == need


@pytest.mark.rest
def test_the_start_counts_where_it_shows_whole_stacks(stacked, monkeypatch):
    config, members = bc.Config(**{**SMALL, "normalize_obs": True}), population.Members({}, KEY[None])
    make = lambda data: bc.make_trainer(config, STACKED, **data)
    compiled = lambda: compile_program(make, members, devices=jax.devices()[:1], data=data)
    data = datasets.parts(stacked, STACKED)
    free = int(1.5 * compiled().chunk.peak_bytes)
    monkeypatch.setattr(planning.machine, "available_bytes", lambda devices, given=None: free)
    with pytest.raises(planning.DoesNotFit):
        compiled()


WIDE = ENV._replace(observation_space=Box(-np.inf, np.inf, (512,), np.float32))


def large(path, steps=8192):
    """A dataset of 16 MiB in one file."""
    rng, ends = np.random.default_rng(0), np.zeros(steps, bool)
    ends[-1] = True
    data = Dataset(
        rng.normal(size=(steps, 512)).astype(np.float32),
        np.zeros((steps, 1), np.float32),
        rng.normal(size=steps).astype(np.float32),
        ends,
        np.zeros(steps, bool),
        np.ones((1, 512), np.float32),
    )
    assert not dataset_problems(data, WIDE.observation_space, WIDE.action_space)
    card_files.save(card_files.DATASET, path, named_leaves(data), {"steps": steps, "episodes": 1})
    return data


def allocated(function):
    """The result of a function, and the most bytes that it had allocated at once."""
    tracemalloc.start()
    try:
        return function(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_mapped_file_is_not_loaded(tmp_path):
    """Reading and checking it takes a part of its size, of which nothing stays; and a sample takes its own size."""
    path = tmp_path / "large.safetensors"
    data, size = large(path), 16 * 2**20
    _, whole = allocated(lambda: datasets.read(path, WIDE))
    (mapped, _), most = allocated(lambda: datasets.read(path, WIDE, mapped=True))
    assert whole >= size and most < 0.6 * size
    stream = replay.streamed(mapped)
    slot = np.array([0, 8191, 4000], np.int32)
    drawn, most = allocated(lambda: stream.read(slot))
    assert most < 2**20
    np.testing.assert_array_equal(drawn.rows.obs[:, 0], data.obs[slot])
    assert not mapped.obs.flags.writeable


def test_damaged_files_are_not_mapped(tmp_path):
    path = tmp_path / "large.safetensors"
    large(path, 64)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
    with pytest.raises(ConfigError, match=r"large.safetensors: was changed after it was written \(sha256 differs\)"):
        datasets.read(path, WIDE, mapped=True)
    path.write_bytes(whole[:-100])
    with pytest.raises(ConfigError, match=r"large.safetensors: not a safetensors file, or truncated"):
        datasets.read(path, WIDE, mapped=True)
    found = {"reward": tensors.ArrayType((64,), "F32")}
    for content in (b"", whole[:-4000], b"\xff" * 64, whole.replace(b"data_offsets", b"data_offzets")):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"large.safetensors: was changed while it was read"):
            tensors.maps(path, found | {"final_obs": tensors.ArrayType((1, 512), "F32")})
