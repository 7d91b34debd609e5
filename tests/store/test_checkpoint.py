"""Checkpoints: what is read is what was written, or an error; never wrong values, never silently from scratch."""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.errors import ConfigError
from purerl.store import checkpoint

ABOUT = {"frames": 10**11 + 7, "config": {"learning_rate": 2.5e-4, "sizes": [64, 64], "none": None}}


def state(number):
    """A tree of every kind of leaf, which ``number`` tells apart."""
    return {
        "mean": jnp.arange(5.0) + number,
        "words": jnp.full((3,), 4_000_000_000 + number, jnp.uint32),
        "count": (jnp.int32(number), jnp.asarray(number % 2 == 0)),
        "key": jax.random.key(number),
        "keys": jax.random.split(jax.random.key(number), 3),
        "nothing": jnp.zeros((0, 3)),
        "half": jnp.full((2,), number, jnp.bfloat16),
        "none": None,
    }


def same(a, b):
    plain = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    a, b = jax.tree.map(plain, a), jax.tree.map(plain, b)
    equal = jax.tree.map(lambda x, y: x.dtype == y.dtype and np.array_equal(x, y), a, b)
    return all(jax.tree.leaves(equal))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two steps, 3 and 12, which the tests copy."""
    directory = tmp_path_factory.mktemp("saved")
    for step in (3, 12):
        checkpoint.save(directory, step, state(step), {**ABOUT, "step": step})
    return directory


@pytest.fixture
def directory(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def test_round_trip(directory):
    for like in (state(0), jax.eval_shape(lambda: state(0))):
        restored = checkpoint.restore(directory, like)
        assert same(restored.state, state(12)) and restored.step == 12
        assert restored.about == {**ABOUT, "step": 12} and restored.about["frames"] == 100_000_000_007


def test_newest_two_are_kept(directory):
    checkpoint.save(directory, 101, state(101), {})
    assert checkpoint.steps(directory) == [12, 101]
    assert same(checkpoint.restore(directory, state(0)).state, state(101))
    with pytest.raises(FileExistsError, match="exists$"):
        checkpoint.save(directory, 101, state(5), {})
    assert same(checkpoint.restore(directory, state(0)).state, state(101))


def test_nothing_to_restore(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="holds no checkpoint$"):
            checkpoint.restore(path, state(0))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"mean": jnp.zeros(6)}, r"\['mean'\] is \(\(5,\), 'float32'\), expected \(\(6,\), 'float32'\)"),
        ({"mean": jnp.zeros(5, jnp.bfloat16)}, r"\['mean'\] is .*'float32'\), expected .*'bfloat16'\)"),
        ({"more": jnp.zeros(1)}, r"\['more'\] is missing, expected \(\(1,\), 'float32'\)"),
        ({"mean": None}, r"\['mean'\] is \(\(5,\), 'float32'\), expected nothing"),
    ],
)
def test_another_shape(directory, change, line):
    with pytest.raises(ConfigError, match=line):
        checkpoint.restore(directory, {**state(0), **change})


def test_another_format(directory, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(ConfigError, match="format 1, expected 2$"):
        checkpoint.restore(directory, state(0))


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damage_of_any_file(saved, tmp_path):
    """Every file of the newest step, cut, changed or gone: the same values, or the step before with a warning; and with
    ``strict``, or when both are damaged so, an error."""
    files = sorted(path.relative_to(saved) for path in (saved / "12").rglob("*") if path.is_file())
    outcomes = set()
    for file in files:
        for harm in (truncate, flip, os.remove):
            directory = shutil.copytree(saved, tmp_path / "run")
            harm(directory / file)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                restored = checkpoint.restore(directory, state(0))
            told = [str(warning.message) for warning in caught if issubclass(warning.category, RuntimeWarning)]
            assert same(restored.state, state(restored.step)) and restored.about["step"] == restored.step
            outcomes.add((restored.step, len(told)))
            assert restored.damaged == ((12,) if restored.step == 3 else ())
            if restored.step == 3:
                assert str(directory / "12") in told[0] and told[0].endswith("going on from step 3")
                with pytest.raises(checkpoint.Damaged, match=f"^{directory / '12'}: "):
                    checkpoint.restore(directory, state(0), strict=True)
            shutil.rmtree(directory)
    assert outcomes == {(12, 0), (3, 1)} and len(files) > 5


def test_all_steps_damaged(directory):
    for path in directory.rglob("d/*"):
        flip(path)
    (directory / "20").mkdir()
    with pytest.raises(checkpoint.Damaged) as raised:
        checkpoint.restore(directory, state(0))
    lines = str(raised.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [str(directory / name) for name in ("20", "12", "3")]


def test_damaged_steps_are_put_aside(directory):
    """So that the step can be saved again, and does not count as one to fall back to."""
    (directory / "12" / "_CHECKPOINT_METADATA").unlink()
    shutil.rmtree(directory / "12" / "state")
    with pytest.warns(RuntimeWarning, match="going on from step 3$"):
        restored = checkpoint.restore(directory, state(0))
    checkpoint.put_aside(directory, restored.damaged)
    assert checkpoint.steps(directory) == [3]
    for step in (8, 12):
        checkpoint.save(directory, step, state(step), {})
    assert checkpoint.steps(directory) == [8, 12] and same(checkpoint.restore(directory, state(0)).state, state(12))


def test_full_disk(directory, monkeypatch):
    """Orbax says it as a `ValueError`."""

    def fail(*args, **kwargs):
        raise ValueError("RESOURCE_EXHAUSTED: no space left\nand more")

    monkeypatch.setattr(checkpoint.ocp.Checkpointer, "save", fail)
    with pytest.raises(OSError, match=r"13: cannot be written \(RESOURCE_EXHAUSTED: no space left\)$"):
        checkpoint.save(directory, 13, state(13), {})
    assert checkpoint.steps(directory) == [3, 12]


def test_failed_save_leaves_earlier_steps(directory, monkeypatch):
    monkeypatch.setattr(checkpoint.ocp.args, "JsonSave", None)
    with pytest.raises(TypeError):
        checkpoint.save(directory, 13, state(13), {})
    assert checkpoint.restore(directory, state(0)).step == 12


def test_lock(tmp_path):
    hold = f"""
import time
from pathlib import Path
from purerl.store import checkpoint
with checkpoint.lock(Path({str(tmp_path)!r})):
    print("held", flush=True)
    time.sleep(60)
"""
    other = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"in use by process {other.pid}$"), checkpoint.lock(tmp_path):
            pass
    finally:
        other.kill()
        other.wait()
    with checkpoint.lock(tmp_path):
        assert (tmp_path / checkpoint.LOCK).read_text() == f"{os.getpid()}\n"


SAVE_FOR_EVER = """
import sys
from pathlib import Path
import jax.numpy as jnp
from purerl.store import checkpoint
step = 0
while True:
    step += 1
    checkpoint.save(Path(sys.argv[1]), step, {"x": jnp.full((1000, 100), step)}, {"step": step})
    print(step, flush=True)
"""


def test_killed_while_saving(tmp_path):
    """kill -9 at many moments: the last step that was reported, or one after it, is there and whole."""
    left = 0
    for attempt in range(6):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, directory], stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            process.stdout.readline()
        time.sleep(0.011 * attempt)
        process.send_signal(signal.SIGKILL)
        reported = int(([3] + [int(line) for line in process.stdout])[-1])
        process.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            restored = checkpoint.restore(directory, {"x": jnp.zeros((1000, 100), jnp.int32)})
        assert restored.step in (reported, reported + 1) and np.all(restored.state["x"] == restored.step)
        left += len(list(directory.glob("*tmp*")))
        checkpoint.clear(directory)
        assert not list(directory.glob("*tmp*"))
    assert left > 0
