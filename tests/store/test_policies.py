"""Files from outside: what is read is what was written, or a line names the file; nothing hangs or fills memory."""

import json
import os
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from purerl.errors import ConfigError
from purerl.store import guards, policies

POLICY = {"torso": jnp.arange(6.0).reshape(2, 3), "count": jnp.array([1, 2**31 - 1]), "empty": jnp.zeros((2, 0))}
LIKE = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), POLICY)


@pytest.fixture
def saved(tmp_path):
    policies.save_policy(tmp_path, POLICY, {"algo": "ppo", "rate": 0.1, "sizes": (4, 4), "worst": float("nan")})
    return tmp_path


def load(directory):
    return policies.load_policy(directory, policies.load_description(directory), LIKE)


def test_metadata_are_refused(saved):
    """The digest does not cover them."""
    path = saved / policies.ARRAYS
    path.write_bytes(safetensors.numpy.save(safetensors.numpy.load(path.read_bytes()), {"x": "changed"}))
    with pytest.raises(ConfigError, match="must not have metadata"):
        load(saved)


def test_round_trip(saved):
    jax.tree.map(np.testing.assert_array_equal, load(saved), POLICY)
    assert policies.load_description(saved)["sizes"] == [4, 4]
    assert set(safetensors.numpy.load_file(saved / "policy.safetensors")) == set(POLICY)


def test_every_bit_is_under_the_digest(saved):
    """Any bit of the arrays' data, and any value of the description."""
    raw = (saved / "policy.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    assert len(raw) - begin == 4 * 8
    for bit in range(8 * begin, 8 * len(raw), 3):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        (saved / "policy.safetensors").write_bytes(flipped)
        with pytest.raises(ConfigError, match="policy.safetensors: it or policy.json was changed after it was written"):
            load(saved)
    (saved / "policy.safetensors").write_bytes(raw)
    document = json.loads((saved / "policy.json").read_text())
    for changed in ({"rate": 0.2}, {"more": 1}, {"sha256": None}, {"sha256": "0" * 64}):
        (saved / "policy.json").write_text(json.dumps(document | changed))
        with pytest.raises(ConfigError, match="sha256 differs"):
            load(saved)


def test_numbers_that_are_not_finite(tmp_path):
    policies.save_policy(tmp_path, POLICY | {"torso": POLICY["torso"].at[1, 2].set(jnp.nan)}, {})
    with pytest.raises(ConfigError, match="policy.safetensors: torso has numbers that are not finite$"):
        load(tmp_path)


def header(**entries):
    """A safetensors file of a header alone."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def entry(shape, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def twice(place, other, size):
    """A file with one name twice."""
    one = b'"torso": {"dtype": "F32", "shape": [2, 3], "data_offsets": '
    text = b"{" + one + place + b"}, " + one + other + b"}}"
    return struct.pack("<Q", len(text)) + text + bytes(size)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"", "not a safetensors file, or truncated"),
        (b"PK\3\4" + bytes(200), "not a safetensors file"),
        (b"\x80\x04\x95" + bytes(200), "not a safetensors file"),
        (struct.pack("<Q", 2**62) + bytes(100), "not a safetensors file, or truncated"),
        (struct.pack("<Q", 2**5) + b"[" * 2**5, "not a safetensors file, or truncated .invalid JSON"),
        (struct.pack("<Q", 10**5) + b'{"a":' * 20_000, "recursion limit"),
        (struct.pack("<Q", 2**25) + b" " * 2**25, "truncated .a header of 33554432 bytes"),
        (twice(b"[0, 24]", b"[24, 48]", 48), "invalid offset for tensor `torso`"),
        (twice(b"[0, 24]", b"[0, 24]", 24), r"'count' is missing, expected I32\[2\]"),
        (header(torso=entry([2**40], 2**42)), "file not fully covered"),
        (header(torso=entry([2**62, 2**62], 24)), "overflow"),
        (header(torso=entry([1] * 10**4, 4)), "file not fully covered"),
        (header(torso=entry([0] * 10**4, 0)), r"'count' is missing"),
        (header(torso=entry([-1], -4)), "invalid value: integer `-1`"),
        (header(torso=entry([0], 0, "EVIL")), "unknown variant `EVIL`"),
        (header(count=entry([0], 0, "F4"), torso=entry([0], 0, "F8_E5M2")), r"'count' is F4\[0\], expected I32"),
        (header(torso=entry([0], 0)), r"'count' is missing, expected I32\[2\]"),
        (header(**{"../../x": entry([0], 0)}), r"'../../x' is F32\[0\], expected nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # those of bytes would be the bytes, of megabytes
)
def test_hostile_headers(saved, raw, line):
    (saved / "policy.safetensors").write_bytes(raw)
    with pytest.raises(ConfigError, match=line) as raised:
        load(saved)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("version", [None, 2, 4, True, "3", [3]])
def test_other_formats(saved, version):
    document = json.loads((saved / "policy.json").read_text())
    (saved / "policy.json").write_text(json.dumps(document | {"format": version}))
    with pytest.raises(ConfigError, match="policy.json: format .*, expected 3; this version of purerl reads no other$"):
        load(saved)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "not a JSON file"),
        ("[" * 10**5, "nested too deeply"),
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("[1e999]", "1e999 is too large"),
        ("9" * 5000, "not a JSON file"),
        ('{"a": 1, "a": 2}', "a name appears twice"),
        ("\xff", "not a JSON file"),
        ("cos\nsystem\n(S'touch x'\ntR.", "not a JSON file"),
        (" " * 101, "larger than 100 bytes"),
    ],
)
def test_hostile_json(tmp_path, text, line):
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=line) as raised:
        guards.read_json(path, 100 if line.startswith("larger") else guards.MOST_JSON_BYTES)
    assert len(str(raised.value).splitlines()) == 1 and str(path) in str(raised.value)


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors"])
@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink(path, path)]
)
def test_no_regular_files(saved, name, make):
    """Neither waited for nor read."""
    (saved / name).unlink()
    make(saved / name)
    with pytest.raises(ConfigError, match=f"{name}: (is not a regular file|Is a directory|Too many levels)"):
        load(saved)
