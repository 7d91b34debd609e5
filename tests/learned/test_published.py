"""Published files: each is known by its digest, and nothing but a checked vector is ever read."""

import hashlib
import io
import os
import random
import tracemalloc
import zipfile

import jax
import numpy as np
import pytest

from purerl import cli
from purerl.errors import ConfigError
from purerl.learned import artefacts, disco, published

NUMBERS = np.random.default_rng(0).normal(size=1211).astype(np.float32)


def npy(array, **more):
    stream = io.BytesIO()
    np.save(stream, array, **more)
    return stream.getvalue()


def test_a_vector_in_its_order(tmp_path):
    """And it is kept in an artefact, with whom to cite; a file that nobody published is told as such."""
    path = tmp_path / "mine.npy"
    path.write_bytes(npy(NUMBERS))
    result = artefacts.load(path)
    assert result.socket == "optimiser" and result.settings["optimiser_base"] == "none"
    np.testing.assert_array_equal(np.concatenate([x.ravel() for x in jax.tree.leaves(result.meta_params)]), NUMBERS)
    np.testing.assert_array_equal(result.meta_params["gru"]["hn"]["bias"], NUMBERS[:8])
    np.testing.assert_array_equal(result.meta_params["mlp"][-1]["dense"]["kernel"].ravel(), NUMBERS[-48:])
    assert result.card["licence"] == "Apache-2.0" and "NeurIPS 2024" in result.card["cite"]
    assert "no published file" in result.card["file"]
    again = artefacts.of_json(artefacts.to_json(result))
    jax.tree.map(np.testing.assert_array_equal, again.meta_params, result.meta_params)
    assert again.card == result.card and again.settings == result.settings


def test_known_digests(monkeypatch):
    raw = npy(NUMBERS)
    assert all(len(digest) == 64 for digest in published.KNOWN) and len(set(published.KNOWN.values())) == 8
    monkeypatch.setitem(published.KNOWN, hashlib.sha256(raw).hexdigest(), "some_OPEN.npy")
    assert published.READERS[".npy"](raw).card["file"] == "some_OPEN.npy"


def bomb():
    """A header that speaks of far more than there is."""
    return npy(NUMBERS).replace(b"(1211,), }   ", b"(9999999,), }")


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"", "is not a .npy file"),
        (b"PK\x03\x04" + bytes(64), "is not a .npy file"),
        (npy(NUMBERS.astype(np.float64)), "is not a .npy file of float32"),
        (npy(NUMBERS.astype(">f4")), "is not a .npy file of float32"),
        (npy(NUMBERS.reshape(7, 173)), "has 2 axes; must have 1"),
        (npy(np.array([{}] * 3), allow_pickle=True), "is not a .npy file of float32"),
        (npy(NUMBERS[:-1]), "has 1210 numbers; an optimiser of OPEN has 1211 or 3571"),
        (npy(NUMBERS)[:-2], "has 4970 bytes"),
        (npy(NUMBERS) + b"cos\nsystem\n", "bytes, which are not"),
        (bomb(), "not those of 9999999 numbers"),
        (npy(np.where(np.arange(1211) == 7, np.nan, NUMBERS).astype(np.float32)), "not finite"),
        (bytes(published.MOST_BYTES + 1), "larger|bytes|most"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(len(value)),
)
def test_hostile_files(tmp_path, raw, line):
    path = tmp_path / "bad.npy"
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=line) as raised:
        artefacts.load(path)
    assert len(str(raised.value).splitlines()) == 1 and str(path) in str(raised.value)


@pytest.mark.parametrize("shape", [b"(1211), } ", b"(01211,), }"])
def test_unusual_headers(shape):
    """Which numpy refuses: the numbers are those after the header."""
    raw = npy(NUMBERS).replace(b"(1211,), } "[: len(shape)], shape)
    result = published.READERS[".npy"](raw)
    np.testing.assert_array_equal(result.meta_params["gru"]["hn"]["bias"], NUMBERS[:8])


def npz(arrays, **more):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays, **more)
    return stream.getvalue()


@pytest.fixture(scope="module")
def rule():
    """The arrays of a rule of DiscoRL, few of whose numbers differ, so that files of them are small."""
    return {name: np.full(shape, i, np.float32) for i, (name, shape) in enumerate(disco.shapes().items())}


def test_a_rule_by_its_names(rule, tmp_path):
    path = tmp_path / "mine.npz"
    path.write_bytes(npz(rule))
    result = artefacts.load(path)
    assert result.socket == "disco" and "no published file" in result.card["file"] and "Nature" in result.card["cite"]
    jax.tree.map(np.testing.assert_array_equal, result.meta_params, rule)
    again = artefacts.of_json(artefacts.to_json(result))
    jax.tree.map(np.testing.assert_array_equal, again.meta_params, rule)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"lstm/linear/w": np.zeros((256, 128), np.float32)}, "lstm/linear/w must have the shape"),
        ({"lstm/linear/b": np.zeros((10**6,), np.float32)}, "lstm/linear/b must have the shape"),
        ({"lstm/linear/b": np.zeros(256)}, "is not a .npy file of float32|must have the shape"),
        ({"lstm/linear/b": np.full(256, np.inf, np.float32)}, "not finite"),
        ({"lstm/linear/b": np.array([{}] * 8)}, "is not a .npy file of float32"),
        ({"lstm/more": np.zeros(3, np.float32)}, "does not hold the 42 arrays"),
    ],
)
def test_hostile_archives(rule, change, line):
    with pytest.raises(ConfigError, match=line) as raised:
        published.READERS[".npz"](npz(rule | change))
    assert "\n" not in str(raised.value)


@pytest.mark.rest
@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_that_lie(rule, kind):
    """A hundred megabytes that call themselves four bytes, in whatever way they are packed: they are not unpacked."""
    stream, lie = io.BytesIO(), "lstm/linear/b.npy"
    with zipfile.ZipFile(stream, "w", kind) as files:
        for name in rule:
            files.writestr(f"{name}.npy", bytes(10**8) if f"{name}.npy" == lie else b"0000")
    raw = stream.getvalue().replace((10**8).to_bytes(4, "little"), (4).to_bytes(4, "little"))
    tracemalloc.start()
    with pytest.raises(ConfigError):
        published.READERS[".npz"](raw)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**24


def test_damaged_archives(rule):
    raw, rng, refused = npz(rule), random.Random(0), 0
    assert raw.count(b"PK") and len(raw) < 50_000
    for _ in range(60):
        at = rng.randrange(len(raw))
        damaged = raw[:at] + bytes(rng.randrange(256) for _ in range(3)) + raw[at + rng.randrange(5) :]
        try:
            published.READERS[".npz"](damaged)
        except ConfigError as error:
            refused += "\n" not in str(error)
    assert refused > 40


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    for path in (tmp_path / "pipe.npy", tmp_path / "none.npy"):
        with pytest.raises(ConfigError) as raised:
            artefacts.load(path)
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.rest
def test_mutations():
    """Damaged copies are refused, or hold as many finite numbers."""
    raw, rng = npy(NUMBERS), random.Random(0)
    for _ in range(2000):
        at = rng.randrange(160)
        damaged = raw[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(3))) + raw[at + rng.randrange(3) :]
        try:
            result = published.READERS[".npy"](damaged)
        except ConfigError as error:
            assert "\n" not in str(error)
        else:
            assert sum(x.size for x in jax.tree.leaves(result.meta_params)) == 1211


@pytest.mark.parametrize(
    ("algo", "option", "line"),
    [
        ("dqn", "--optimiser", "OPEN's form moves an actor and its critic at once"),
        ("a2c", "--rule", "is a function for the socket optimiser, not for lpg"),
        ("ppo", "--value-loss", "is a function for the socket optimiser, not for value-loss"),
    ],
)
def test_refused_before_anything_is_compiled(algo, option, line, tmp_path, capsys):
    path = tmp_path / "mine.npy"
    path.write_bytes(npy(NUMBERS))
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", algo, "--env", "CartPole-v1", option, str(path), "--out", str(tmp_path / "run")])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and line in error and "compiling" not in error and not (tmp_path / "run").exists()
