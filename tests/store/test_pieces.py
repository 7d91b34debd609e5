"""Checkpoints of several processes: each writes what it holds, and what is read is the whole, or an error.

Four devices of this process stand for two processes with two devices each.
"""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.errors import ConfigError
from purerl.store import checkpoint, guards, tensors

LAYOUTS = {"population": ("P",), "shards": (None, "Q"), "both": ("P", "Q"), "one axis of two": (None, ("P", "Q"))}
ABOUT = {"seconds": 1.5}


def tree():
    """Arrays ``[4, 4, ...]`` in every layout, a key, a scalar that all devices have, and an empty array."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("P", "Q"))
    place = lambda x, *axes: jax.device_put(x, jax.NamedSharding(mesh, jax.P(*axes)))
    results = {
        name: place(np.arange(48.0).reshape(4, 4, 3) + i, *axes) for i, (name, axes) in enumerate(LAYOUTS.items())
    }
    results["keys"] = place(jax.random.split(jax.random.key(1), 4), "P")
    return results | {"scalar": place(np.int32(7)), "empty": place(np.zeros((4, 0, 2)), "P")}


def own(process, rows=None):
    """The parts of a process, of which replicated ones belong to the process of their first replica."""
    mine = lambda shard: shard.replica_id == 0 and jax.devices().index(shard.device) // 2 == process
    return tensors.own(tree(), rows, mine)


def save(directory, step=1, processes=(1, 0), rows=None, token="a1", **options):
    for process in processes:
        parts = own(process, rows)
        checkpoint.save_piece(directory, step, parts, ABOUT, process=process, count=2, token=token, **options)


def words(x):
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def restored(directory, like):
    step = checkpoint.newest(directory, strict=True)
    return step, checkpoint.read(step, like)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pieces")
    save(directory)
    return directory


def test_every_part_is_written_once():
    parts = [own(process) for process in (0, 1)]
    assert not parts[0].keys() & parts[1].keys()
    sizes = sum(np.size(part) for each in parts for part in each.values())
    assert sizes == sum(words(x).size for x in tree().values())


def test_the_whole_is_read_back(saved):
    step, result = restored(saved, tree())
    assert step.pieces == 2 and step.about == ABOUT
    for name, x in tree().items():
        np.testing.assert_array_equal(words(result[name]), words(x), name)
    assert sorted(path.name for path in (saved / "1").iterdir()) == [
        "card.json",
        "state-0.safetensors",
        "state-1.safetensors",
    ]


def test_rows(tmp_path):
    save(tmp_path, rows=3)
    rows = {name: x[:3] if x.ndim else x for name, x in tree().items()}
    result = restored(tmp_path, rows)[1]
    for name, x in rows.items():
        np.testing.assert_array_equal(words(result[name]), words(x), name)


def _card(folder, change):
    card = guards.read_json(folder / "card.json")
    change(card)
    (folder / "card.json").write_text(json.dumps(card))


def _flip(folder):
    data = bytearray((folder / "state-1.safetensors").read_bytes())
    data[-5] ^= 1
    (folder / "state-1.safetensors").write_bytes(data)


def _cut(folder):
    path = folder / "state-1.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _swap(folder):
    (folder / "state-0.safetensors").rename(folder / "x")
    (folder / "state-1.safetensors").rename(folder / "state-0.safetensors")
    (folder / "x").rename(folder / "state-1.safetensors")


DAMAGE = {
    "a bit": _flip,
    "cut off": _cut,
    "missing": lambda folder: (folder / "state-1.safetensors").unlink(),
    "exchanged": _swap,
    "twice": lambda folder: shutil.copy(folder / "state-0.safetensors", folder / "state-1.safetensors"),
    "a link": lambda folder: (
        [_swap(folder), (folder / "state-1.safetensors").unlink()]
        and (folder / "state-1.safetensors").symlink_to(folder / "state-0.safetensors")
    ),
    "card without one": lambda folder: _card(folder, lambda card: card["pieces"].pop()),
    "card without any": lambda folder: _card(folder, lambda card: card.update(pieces=[])),
    "another digest": lambda folder: _card(folder, lambda card: card["pieces"][1].update(sha256="0")),
    "no pieces": lambda folder: _card(folder, lambda card: card.update(pieces=3)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(damage, saved, tmp_path):
    directory = shutil.copytree(saved, tmp_path / "run")
    DAMAGE[damage](directory / "1")
    with pytest.raises(checkpoint.Damaged):
        checkpoint.newest(directory, strict=True)


def test_a_state_of_another_shape_is_refused(saved):
    step = checkpoint.newest(saved)
    for change in ({"scalar": jnp.zeros(2)}, {"population": jnp.zeros((4, 5, 3))}, {"more": jnp.zeros(1)}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            checkpoint.read(step, tree() | change)
    with pytest.raises(ConfigError, match="expected nothing"):
        checkpoint.read(step, {name: x for name, x in tree().items() if name != "both"})
    with pytest.raises(ConfigError, match="'scalar'"):
        checkpoint.read(step, tree() | {"scalar": jnp.float32(7)})


def test_nothing_of_a_run_that_was_killed_is_taken(tmp_path, monkeypatch):
    """The first process of a run that was killed had written; another run waits for its own pieces alone."""
    save(tmp_path, processes=(1,), token="dead")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="process 1 has not written its part"):
        patch.setattr(checkpoint, "WAIT_SECONDS", 0.2)
        save(tmp_path, processes=(0,), token="new")
    assert checkpoint.steps(tmp_path) == []
    save(tmp_path, token="new")
    assert checkpoint.steps(tmp_path) == [1]


def test_older_steps_are_removed(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert checkpoint.steps(tmp_path) == [2, 3]
    assert not list(tmp_path.glob("*.tmp"))


A, B = np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"['x']@0": A}, r"is F32\[4\], expected F32\[8\]"),
        ({"['x']@0": A, "['x']@4": B.astype(np.int32)}, r"is F32/I32\[8\], expected F32\[8\]"),
        ({"['x']@0": A, "['x']@3": B}, r"is F32\[7\], expected"),
        ({"['x']@0": A, "['x']@04": B, "['x']@4": B}, "is not whole, or has parts twice"),
        ({"['x']@1": A[:3], "['x']@4": B}, "is not whole"),
        ({"['x']@0": A, "['x']@2": A, "['x']@6": B[:2]}, "is not whole"),
        ({"['x']@0,0": A.reshape(4, 1), "['x']@7": B[:1]}, r"is F32\[8, 1\], expected"),
        ({"['x']@0": A, "['x']@4": B, "['y']@": A[0]}, r"'y'.* is F32\[\], expected nothing"),
        ({"['x']": A}, "is no part of an array"),
        ({"['x']@0,0": A}, "is no part of an array"),
        ({"['x']@-4": A}, "is no part of an array"),
        ({"['x']@" + "1" * 5000: A}, "is no part of an array"),
        ({"['x']@" + "1" * 5000 + ",": A}, "is no part of an array"),
    ],
)
def test_parts_that_make_up_no_array(parts, line, tmp_path):
    """Even if the digests are right: one line, and nothing that was not written is read."""
    checkpoint.save_piece(tmp_path, 1, parts, ABOUT, token="a1")
    with pytest.raises(ConfigError, match=line) as raised:
        restored(tmp_path, {"x": jnp.zeros(8)})
    assert str(raised.value).startswith(str(tmp_path / "1")) and len(str(raised.value)) < 400


def test_parts_may_be_those_of_any_grid(tmp_path):
    parts = {"['x']@0,0": A[:2].reshape(1, 2), "['x']@0,2": A[2:].reshape(1, 2), "['x']@1,0": B[:2].reshape(1, 2)}
    checkpoint.save_piece(tmp_path, 1, parts | {"['x']@1,2": B[2:].reshape(1, 2)}, ABOUT, token="a1")
    result = restored(tmp_path, {"x": jnp.zeros((2, 4))})[1]["x"]
    np.testing.assert_array_equal(result, np.arange(8).reshape(2, 4))
    checkpoint.save_piece(tmp_path, 2, parts, ABOUT, token="a1")
    with pytest.raises(ConfigError, match="is not whole"):
        restored(tmp_path, {"x": jnp.zeros((2, 4))})


def test_bools_are_true_or_false(tmp_path):
    checkpoint.save_piece(tmp_path, 1, {"['x']@0": np.uint8([0, 1, 2]).view(bool)}, ABOUT, token="a1")
    with pytest.raises(ConfigError, match="neither true nor false"):
        restored(tmp_path, {"x": jnp.zeros(3, bool)})


@pytest.mark.parametrize("dtype", sorted(tensors.DTYPES))
def test_every_dtype(dtype, tmp_path):
    x = {"matrix": np.arange(6).reshape(2, 3), "scalar": np.array(1), "nothing": np.zeros((2, 0))}
    x = {name: array.astype(jnp.dtype(dtype)) for name, array in x.items()}
    checkpoint.save(tmp_path, 1, {"['x']": x, "y": x}, ABOUT)
    with jax.enable_x64(True):
        result = checkpoint.read(checkpoint.newest(tmp_path), {"['x']": x, "y": x}, lambda array, leaf: array)
    for name, array in x.items():
        for read in (result["y"], result["['x']"]):
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)
