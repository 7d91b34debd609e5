"""`purerl data`: what is in a file, and datasets of Minari read in a process of their own."""

import json

import minari_files
import numpy as np
import pytest
from commands import run
from minari_files import episode

from purerl import envs, load_dataset, spaces
from purerl.cli import limited
from purerl.runs.reading import contents
from purerl.types import Dataset

h5py = pytest.importorskip("h5py")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A dataset of Minari, among others of this machine."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    episodes = [episode(3, truncated=[2]), episode(2, last=False, terminated=[1])]
    minari_files.write(tmp_path / "tests/pendulum-v0", episodes)
    return tmp_path


def shown(capsys, *args):
    run("data", *args)
    return capsys.readouterr().out


def line(capsys, *args, expect=2):
    run("data", *args, expect=expect)
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("purerl: error")]
    return error.removeprefix("purerl: error: ")


def test_a_dataset_of_minari_becomes_a_file(place, capsys):
    out = place / "x.safetensors"
    source = "minari:tests/pendulum-v0"
    found = json.loads(shown(capsys, source, "--trust", "--json"))
    assert found["steps"] == 5 and found["return_max"] == 3 and found["missing_last"] == 1 and "sha256" not in found
    assert found["actions_at_bounds"] == 4 / 5 and found["env"] == "gymnasium/Pendulum-v1"
    assert not out.exists()
    written = json.loads(shown(capsys, source, "--trust", "--json", "--out", out))
    assert {**written, **found} == written and found["players"][0]["words"] == "tests/pendulum-v0 of Minari"
    data = load_dataset(out, envs.make("gymnasium/Pendulum-v1"))
    np.testing.assert_array_equal(data.obs[:, 0], [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(data.final_obs[:, 0], [3, 1])
    assert "already exists" in line(capsys, source, "--trust", "--out", out)
    given = "--overwrite", "--env", "Pendulum-v1", "--env-params", "gravity=9", "--episodes", "1"
    other = json.loads(shown(capsys, source, "--trust", "--json", "--out", out, *given))
    assert other["env"] == "Pendulum-v1" and other["env_params"] == {"gravity": 9} and other["episodes"] == 1
    text = shown(capsys, out)
    assert ": Pendulum-v1 with gravity=9\n" in text and "1 episodes, 3 steps" in text
    assert "without a last observation: 0 episodes" in text and "played by tests/pendulum-v0 of Minari" in text
    assert "has no effect" in line(capsys, out, "--episodes", "1")


def test_files_are_refused_by_a_line(place, capsys):
    broken = place / "tests/pendulum-v0/data/main_data.hdf5"
    broken.write_bytes(broken.read_bytes()[:-1])
    out = place / "x.safetensors"
    assert "is damaged" in line(capsys, "minari:tests/pendulum-v0", "--trust", "--out", out)
    before = sorted(place.rglob("*"))
    assert "No such file" in line(capsys, place / "none")
    assert "not a safetensors file" in line(capsys, broken)
    assert "is no dataset of Minari" in line(capsys, place, "--trust")
    assert sorted(place.rglob("*")) == before and not out.exists()


def test_another_process_reads_minari_s(place, capsys, monkeypatch):
    """Whose crash is bad input: files can bring down the library that reads them (h5py, issue 1183)."""
    commands = []
    monkeypatch.setattr(limited, "run", lambda *args, **more: commands.append((args, more)) or 2)
    run("data", place / "tests/pendulum-v0", "--json", "--limit-seconds", "5", expect=2)
    ((args, what, seconds, gigabytes), more) = commands[0]
    assert args[-1] == "--trust" and seconds == 5 and gigabytes == 8 and more == {"crashed": 2}
    assert what == str(place / "tests/pendulum-v0")
    run("data", place / "tests/pendulum-v0", "--trust")
    assert len(commands) == 1


@pytest.mark.rest
def test_in_another_process(place, capfd):
    run("data", "minari:tests/pendulum-v0", "--json", "--out", place / "x.safetensors")
    assert json.loads(capfd.readouterr().out)["steps"] == 5
    (place / "tests/pendulum-v0/data/main_data.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    run("data", "minari:tests/pendulum-v0", "--out", place / "y.safetensors", expect=2)
    error = capfd.readouterr().err
    assert "main_data.hdf5: is damaged" in error and len(error.splitlines()) == 1
    run("data", "minari:tests/pendulum-v0", "--limit-seconds", "0.01", expect=6)
    assert not (place / "y.safetensors").exists()


def test_several_players_are_listed(tmp_path, capsys):
    flags = np.array([False, True])
    zeros = np.zeros((2, 1), np.float32)
    data = Dataset(zeros, np.int32([0, 1]), zeros[:, 0], flags, np.zeros(2, bool), zeros[:1])
    players = [
        {"function": "random", "share": 0.75, "episodes": 3, "steps": 9},
        {"run": "x", "algo": "dqn", "share": 0.25},
    ]
    path = tmp_path / "x.safetensors"
    contents.save(path, data, spaces.Discrete(2), "E-v0", {}, {"players": players}, {})
    text = " ".join(shown(capsys, path).split())
    assert "played by random: share 0.75, 3 episodes, 9 steps" in text
    assert "played by agent 0 of x (dqn): share 0.25" in text and "at a bound: not known" in text


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore")
def test_a_file_fits_the_environment_that_was_played(tmp_path, monkeypatch):
    """Of trees and of choices, by Minari's own collector: as an agent in that environment sees them."""
    library = pytest.importorskip("minari")
    import gymnasium

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with library.DataCollector(gymnasium.make("Blackjack-v1", sab=True)) as env:
        for seed in range(5):
            env.reset(seed=seed)
            ended = False
            while not ended:
                ended = env.step(seed % 2)[2]
        made = env.create_dataset("tests/blackjack-v0")
    run("data", "minari:tests/blackjack-v0", "--trust", "--out", tmp_path / "x.safetensors")
    data = load_dataset(tmp_path / "x.safetensors", envs.make("gymnasium/Blackjack-v1", sab=True))
    episodes = list(made.iterate_episodes())
    for leaf, final, number in zip(data.obs, data.final_obs, range(3), strict=True):
        np.testing.assert_array_equal(leaf, np.concatenate([each.observations[number][:-1] for each in episodes]))
        np.testing.assert_array_equal(final, [each.observations[number][-1] for each in episodes])
    np.testing.assert_array_equal(data.action, np.concatenate([each.actions for each in episodes]))
    assert data.terminated.sum() == 5
    assert contents.described(tmp_path / "x.safetensors")["env_params"]["sab"] is True


@pytest.mark.weekly
def test_what_was_read_is_learned_from(tmp_path):
    """In the environment that the metadata name, where it is evaluated."""
    episodes = [episode(20, truncated=[19], obs=np.eye(3)[np.arange(21) % 3]) for _ in range(3)]
    minari_files.write(tmp_path / "play", episodes, spec={"id": "Pendulum-v1"})
    run("data", tmp_path / "play", "--trust", "--out", tmp_path / "x.safetensors")
    small = "--total-steps", "200", "--hidden-sizes", "8", "--eval-episodes", "1"
    run("train", "bc", "--data", tmp_path / "x.safetensors", *small, "--out", tmp_path / "run")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["env"] == "gymnasium/Pendulum-v1" and -2000 < summary["return_mean"] < 0
