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
from purerl.store import checkpoint, checkpoint_pieces, guards

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
    return checkpoint_pieces.own(tree(), rows, mine)


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
    sizes = sum(part.size for each in parts for part in each.values())
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


def test_nothing_of_a_run_that_was_killed_is_taken(tmp_path):
    """The first process of a run that was killed had written; another run waits for its own pieces alone."""
    save(tmp_path, processes=(1,), token="dead")
    with pytest.raises(OSError, match="process 1 has not written its part"):
        _wait_shortly(tmp_path)
    assert checkpoint.steps(tmp_path) == []
    save(tmp_path, token="new")
    assert checkpoint.steps(tmp_path) == [1]


def _wait_shortly(directory):
    before = checkpoint_pieces.gather.__defaults__
    checkpoint_pieces.gather.__defaults__ = (0.2,)
    try:
        save(directory, processes=(0,), token="new")
    finally:
        checkpoint_pieces.gather.__defaults__ = before


def test_older_steps_are_removed(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert checkpoint.steps(tmp_path) == [2, 3]
    assert not list(tmp_path.glob("*.tmp"))
