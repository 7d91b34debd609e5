"""Checkpoints: what is read is what was written, or an error; never wrong values, never silently from scratch."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from purerl.errors import ConfigError
from purerl.runs.describing.run_directory import LOCK, lock
from purerl.store import checkpoint, log

PIECE = checkpoint.PIECE.format(0)
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
    plain = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    a, b = jax.tree.map(plain, a), jax.tree.map(plain, b)
    equal = jax.tree.map(lambda x, y: x.dtype == y.dtype and np.array_equal(x, y), a, b)
    return all(jax.tree.leaves(equal))


def restore(directory, like, **options):
    """The newest step that is sound, and its state."""
    step = checkpoint.newest(directory, **options)
    return step, checkpoint.read(step, like)


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
        step, result = restore(directory, like)
        assert same(result, state(12)) and step.number == 12 and step.versions["jax"] == jax.__version__
        assert step.about == checkpoint.peek(directory) == {**ABOUT, "step": 12}
        assert step.about["frames"] == 100_000_000_007


def test_other_libraries_read_the_arrays(directory):
    arrays = safetensors.numpy.load_file(directory / "12" / PIECE)
    np.testing.assert_array_equal(arrays["['mean']@0"], np.arange(5.0, dtype=np.float32) + 12)
    assert arrays["['key']@0"].dtype == np.uint32


@pytest.mark.parametrize("rows", [2, 8])
def test_rows_of_arrays_over_devices(rows, tmp_path):
    """The first rows of arrays that devices share, copied or not; replicas are written once."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("P",))
    spread, copied = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (("P",), ()))
    x = np.arange(24, dtype=np.int32).reshape(8, 3)
    tree = {"x": jax.device_put(x, spread), "y": jax.device_put(x[:, :0], spread), "z": jax.device_put(x, copied)}
    tree["key"] = jax.device_put(jax.random.split(jax.random.key(1), 8), spread)
    expected = jax.tree.map(lambda x: x[:rows], tree)
    checkpoint.save(tmp_path, 1, tree, {}, rows=rows)
    assert same(restore(tmp_path, expected)[1], expected)
    with checkpoint.saver() as saving:
        saving.save(tmp_path, 2, tree, {}, keep=2, logs=(), rows=rows)
    assert same(restore(tmp_path, expected)[1], expected)
    assert (tmp_path / "1" / PIECE).read_bytes() == (tmp_path / "2" / PIECE).read_bytes()


@pytest.mark.parametrize("axes", [(None, "P"), ("P", "Q"), (None, ("P", "Q")), ("P",)])
def test_arrays_split_on_any_axis(axes, tmp_path):
    """What lies on other devices lies in its place, whichever axes they share."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("P", "Q"))
    x = np.arange(48, dtype=np.int32).reshape(4, 4, 3)
    tree = {"x": jax.device_put(x, jax.NamedSharding(mesh, jax.P(*axes)))}
    checkpoint.save(tmp_path, 1, tree, {})
    np.testing.assert_array_equal(restore(tmp_path, tree)[1]["x"], x)
    checkpoint.save(tmp_path, 2, tree, {}, rows=3)
    np.testing.assert_array_equal(restore(tmp_path, {"x": x[:3]})[1]["x"], x[:3])


def test_sizes_come_before_digests(directory):
    """A file of another size than its card says is not read through: 1 TB of nothing is refused at once."""
    with open(directory / "12" / PIECE, "r+b") as file:
        file.truncate(2**40)
    start = time.perf_counter()
    with pytest.raises(checkpoint.Damaged, match=f"was changed after it was written .it has {2**40} bytes"):
        checkpoint.newest(directory, strict=True)
    assert time.perf_counter() - start < 5
    assert checkpoint.newest(directory).number == 3


def test_arrays_that_end_too_soon(directory):
    """Once they were verified."""
    step = checkpoint.newest(directory)
    with open(step.path / PIECE, "r+b") as file:
        file.truncate((step.path / PIECE).stat().st_size - 1)
    with pytest.raises(ConfigError, match=f"{PIECE}: not a safetensors file, or truncated"):
        checkpoint.read(step, state(12))


def test_a_log_that_was_removed(tmp_path):
    """Nobody writes for hours into a file that is gone, or is another's."""
    for change in (lambda path: path.unlink(), lambda path: path.rename(tmp_path / "moved"), None):
        path = tmp_path / "log.jsonl"
        with log.Log(path) as rows:
            rows.write(["1\n"])
            if change is None:
                path.unlink()
                path.write_text("another's")
            else:
                change(path)
            with pytest.raises(OSError, match="was removed or replaced"):
                rows.write(["2\n"])


def test_newest_steps_are_kept(directory):
    checkpoint.save(directory, 101, state(101), {})
    assert checkpoint.steps(directory) == [12, 101]
    with pytest.raises(FileExistsError, match="exists$"):
        checkpoint.save(directory, 101, state(5), {})
    assert same(restore(directory, state(0))[1], state(101))
    checkpoint.save(directory, 102, state(102), {}, keep=3)
    assert checkpoint.steps(directory) == [12, 101, 102]


def test_nothing_to_restore(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="has no checkpoint$"):
            checkpoint.newest(path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"mean": jnp.zeros(6)}, r"\['mean'\]\" is F32\[5\], expected F32\[6\]"),
        ({"mean": jnp.zeros(5, jnp.bfloat16)}, r"\['mean'\]\" is F32\[5\], expected BF16\[5\]"),
        ({"more": jnp.zeros(1)}, r"\['more'\]\" is missing, expected F32\[1\]"),
        ({"mean": None}, r"\['mean'\]\" is F32\[5\], expected nothing"),
    ],
)
def test_another_shape(directory, change, line):
    with pytest.raises(ConfigError, match=line):
        restore(directory, {**state(0), **change})


def test_another_format(directory, monkeypatch):
    """It is refused, not taken for damage: the step before is not read in its place."""
    monkeypatch.setattr(checkpoint, "FORMAT", 6)  # as a later version writes it
    with pytest.raises(ConfigError, match="12: format 5, expected 6; resume it by the version that saved it$"):
        checkpoint.newest(directory)


def test_a_renamed_step_is_not_believed(directory):
    os.rename(directory / "12", directory / "40")
    step = checkpoint.newest(directory)
    assert step.number == 3 and step.damaged == {40: f"{directory / '40'}: holds the step 12, not 40"}


def test_hostile_steps_allocate_nothing(directory):
    """Links, pipes, huge shapes and deep nesting: damaged, at once, and the step before is there."""
    card, arrays = directory / "12" / checkpoint.CARD, directory / "12" / PIECE
    keep = card.read_text(), arrays.read_bytes()

    def link():
        arrays.unlink()
        arrays.symlink_to(directory / "3" / PIECE)

    def pipe():
        card.unlink()
        os.mkfifo(card)

    def huge():
        text = keep[1].replace(b'"shape": [5]', b'"shape": [%d]' % 2**40)
        arrays.write_bytes(text)

    for harm in (link, pipe, huge, lambda: card.write_text("[" * 10**6), lambda: card.write_text("[]")):
        harm()
        step = checkpoint.newest(directory)
        assert step.number == 3 and list(step.damaged) == [12] and str(directory / "12") in step.damaged[12]
        card.unlink()
        card.write_text(keep[0])
        arrays.unlink()
        arrays.write_bytes(keep[1])
    assert checkpoint.newest(directory).number == 12


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damage_of_any_file(saved, tmp_path):
    """Every file of the newest step, cut, changed or gone: the same values, or the step before which is told; and with
    ``strict``, or when both are damaged so, an error."""
    files = sorted(path.relative_to(saved) for path in (saved / "12").rglob("*") if path.is_file())
    for file in files:
        for harm in (truncate, flip, os.remove):
            directory = shutil.copytree(saved, tmp_path / "run")
            harm(directory / file)
            step, result = restore(directory, state(0))
            assert same(result, state(3)) and step.about["step"] == step.number == 3 and list(step.damaged) == [12]
            assert step.damaged[12].startswith(str(directory / "12"))
            with pytest.raises(checkpoint.Damaged, match=f"^{directory / '12'}"):
                checkpoint.newest(directory, strict=True)
            shutil.rmtree(directory)
    assert len(files) == 2


def test_no_flipped_bit_is_read(directory):
    """Each byte of the newest step in turn."""
    for file in (directory / "12").iterdir():
        whole = bytearray(file.read_bytes())
        for place in range(len(whole)):
            whole[place] ^= 1 << place % 8
            file.write_bytes(whole)
            with pytest.raises(checkpoint.Damaged):
                checkpoint.newest(directory, strict=True)
            whole[place] ^= 1 << place % 8
        file.write_bytes(whole)
    assert same(restore(directory, state(0), strict=True)[1], state(12))


def test_all_steps_damaged(directory):
    for path in directory.rglob("*.safetensors"):
        flip(path)
    (directory / "20").mkdir()
    with pytest.raises(checkpoint.Damaged) as raised:
        checkpoint.newest(directory)
    lines = str(raised.value).splitlines()
    paths = directory / "20" / checkpoint.CARD, directory / "12" / PIECE, directory / "3" / PIECE
    assert [line.split(":")[0] for line in lines] == list(map(str, paths))


def test_damaged_steps_are_put_aside(directory):
    """So that the step can be saved again, and does not count as one to fall back to."""
    (directory / "12" / checkpoint.CARD).unlink()
    checkpoint.put_aside(checkpoint.newest(directory))
    assert checkpoint.steps(directory) == [3]
    for step in (8, 12):
        checkpoint.save(directory, step, state(step), {})
    assert checkpoint.steps(directory) == [8, 12] and same(restore(directory, state(0))[1], state(12))


@contextlib.contextmanager
def full(size):
    """A disk on which no file may be larger than ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk(directory):
    """Earlier steps stay, and nothing of the failed one."""
    with full(100), pytest.raises(OSError, match=r"13: cannot be written \(File too large\)$"):
        checkpoint.save(directory, 13, state(13), {})
    assert sorted(path.name for path in directory.iterdir()) == ["12", "3"]
    assert checkpoint.newest(directory).number == 12


def test_a_full_disk_leaves_no_half_line(tmp_path):
    path = tmp_path / "log.jsonl"
    with log.Log(path) as rows:
        rows.write(['{"a": 1}\n'])
        with full(20), pytest.raises(OSError, match=r"log.jsonl: cannot be written \(File too large\)$"):
            rows.write(['{"a": 2}\n'] * 3)
        assert path.read_text() == '{"a": 1}\n'
        rows.write(['{"a": 2}\n'])
    assert [row["a"] for row in log.rows(path)] == [1, 2]


def test_logs_are_cut_to_what_is_saved(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [json.dumps({"member": m, "iteration": i}) + "\n" for m in (0, 1) for i in (1, 2, 3)]
    text = "".join(lines)
    path.write_text(text + '{"half')
    log.cut(path, lambda row: True, 6)
    assert path.read_text() == text
    log.cut(path, lambda row: row["member"] == 0 or row["iteration"] < 3, 5)
    assert path.read_text() == "".join(lines[:5])
    log.cut(path, lambda row: row["iteration"] < 3, 4)  # what goes lies in the middle
    assert path.read_text() == "".join(lines[:2] + lines[3:5])
    for damage, line in (('{"member": 0}\n', "lacks 2 of the rows"), ("no row\n" + text, "line 1 is damaged")):
        path.write_text(damage)
        with pytest.raises(ConfigError, match=f"log.jsonl: {line}"):
            log.cut(path, lambda row: True, 3)
        assert path.read_text() == damage
    log.cut(path, lambda row: True, 0)
    assert path.read_text() == ""
    with pytest.raises(ConfigError, match="lacks 1"):
        log.cut(tmp_path / "none", lambda row: True, 1)


def test_saving_in_the_background(tmp_path, monkeypatch):
    """A state may be donated at once; large ones are written first; an error surfaces at the next call."""
    for most in (checkpoint.OVERLAP_BYTES, 0):
        monkeypatch.setattr(checkpoint, "OVERLAP_BYTES", most)
        directory = tmp_path / str(most)
        with checkpoint.saver() as saving:
            for step in (1, 1, 2):
                x = {"x": jnp.arange(8.0) * step}
                saving.save(directory, step, x, {}, keep=2, logs=(), rows=6)
                x["x"].delete()
            saving.wait()
            with full(10):
                if most:
                    saving.save(directory, 3, {"x": jnp.zeros(8)}, {}, keep=2, logs=())
                    while not all(task.done() for task in saving._pending):
                        time.sleep(0.001)
                with pytest.raises(OSError, match="3: cannot be written"):
                    saving.check() if most else saving.save(directory, 3, {"x": jnp.zeros(8)}, {}, keep=2, logs=())
        assert checkpoint.steps(directory) == [1, 2]
        np.testing.assert_array_equal(restore(directory, {"x": jnp.zeros(6)})[1]["x"], np.arange(6.0) * 2)


def test_lock(tmp_path):
    hold = f"""
import time
from pathlib import Path
from purerl.runs.describing.run_directory import lock
with lock(Path({str(tmp_path)!r})):
    print("held", flush=True)
    time.sleep(60)
"""
    other = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"in use by process {other.pid}$"), lock(tmp_path):
            pass
    finally:
        other.kill()
        other.wait()
    with lock(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"


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


@pytest.mark.rest
def test_killed_while_saving(tmp_path):
    """kill -9 at many moments: the last step that was reported, or one after it, is there and whole."""
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
        step, result = restore(directory, {"x": jnp.zeros((1000, 100), jnp.int32)})
        assert not step.damaged and step.number in (reported, reported + 1) and np.all(result["x"] == step.number)
        checkpoint.save(directory, step.number + 1, result, {})  # over what the interrupted one left
        assert not list(directory.glob("*.tmp"))
