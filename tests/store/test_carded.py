"""Files of play from outside: what is read is what was written, or one line names the file."""

import json
import struct
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from purerl.errors import ConfigError
from purerl.store import card_files

ARRAYS = {
    "obs.a": np.arange(6.0, dtype=np.float32).reshape(3, 2),
    "terminated": np.array([False, True, True]),
    "final_obs.a": np.ones((2, 2), np.float32),
}
CARD = {"env": "CartPole-v1", "steps": 3, "episodes": 2, "return_mean": float("nan")}


def like(card):
    return {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in ARRAYS.items()}


@pytest.fixture
def path(tmp_path):
    card_files.save(card_files.DATASET, tmp_path / "x.safetensors", ARRAYS, CARD)
    return tmp_path / "x.safetensors"


def test_round_trip(path):
    card, arrays = card_files.load(card_files.DATASET, path, like)
    assert card["env"] == "CartPole-v1" and card["return_mean"] is None and card["format"] == card_files.FORMAT
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
    assert set(safetensors.numpy.load_file(path)) == set(ARRAYS)  # any reader of such files reads it


def refused(path, raw, line=""):
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=line) as raised:
        card_files.load(card_files.DATASET, path, like)
    assert str(raised.value).startswith(str(path)) and len(str(raised.value).splitlines()) == 1


def test_damage_anywhere_is_found(path):
    """Every byte: changed, and deleted; and the file cut off at every place. Spaces between the header's words are not
    values: what is read without an error is what was written."""
    raw, whole = path.read_bytes(), card_files.load(card_files.DATASET, path, like)
    read = 0
    for i in range(len(raw)):
        for damaged in (raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1 :], raw[:i] + raw[i + 1 :], raw[:i]):
            path.write_bytes(damaged)
            try:
                result = card_files.load(card_files.DATASET, path, like)
            except ConfigError as error:
                assert len(str(error).splitlines()) == 1
            else:
                read += 1
                assert result.card == whole.card
                assert all(np.array_equal(result.arrays[name], x) for name, x in whole.arrays.items())
    assert read <= 8


def with_card(card):
    text = card if isinstance(card, str) else json.dumps(card)
    return safetensors.numpy.save(ARRAYS, {"card": text})


def changed(raw, old, new):
    """A file with ``new`` instead of ``old`` in its header."""
    end = 8 + int.from_bytes(raw[:8], "little")
    header = raw[8:end].replace(old, new)
    return struct.pack("<Q", len(header)) + header + raw[end:]


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"", "not a safetensors file, or truncated"),
        (b"\x80\x04\x95" + bytes(200), "not a safetensors file"),
        (safetensors.numpy.save(ARRAYS), "no dataset of `purerl record`"),
        (with_card("[" * 10**5), "no dataset of `purerl record` .its card: nested too deeply"),
        (with_card([1]), "no dataset of `purerl record`"),
        (changed(with_card("?"), b'"?"', b'"\\ud800"'), "not a safetensors file"),
        (with_card({"format": 2}), "format 2, expected 1"),
        (with_card({"format": 1, "steps": 2**40, "episodes": 1, "sha256": ""}), "no numbers of steps and episodes"),
        (with_card({"format": 1, "steps": 3, "episodes": 2}), "its card has no digest"),
        (with_card({"format": 1, "steps": 3, "episodes": 2, "sha256": "0"}), "was changed after it was written"),
        (with_card({"format": 1, "steps": 3, "episodes": 2, "sha256": "0"})[:-3] + b"\0\2\1", "neither true nor false"),
        (struct.pack("<Q", 2**62) + bytes(100), "not a safetensors file, or truncated"),
    ],
)
def test_hostile_files(path, raw, line):
    refused(path, raw, line)


def test_other_arrays_and_numbers(path):
    card_files.save(card_files.DATASET, path, ARRAYS | {"reward": np.zeros(3)}, CARD)
    with pytest.raises(ConfigError, match=r"'reward' is F64\[3\], expected nothing$"):
        card_files.load(card_files.DATASET, path, like)
    card_files.save(card_files.DATASET, path, ARRAYS | {"final_obs.a": np.full((2, 2), np.inf, np.float32)}, CARD)
    with pytest.raises(ConfigError, match="final_obs.a has numbers that are not finite$"):
        card_files.load(card_files.DATASET, path, like)


def test_a_file_of_this_format_is_read_for_ever():
    written = Path(__file__).parent / "written" / f"dataset-{card_files.FORMAT}.safetensors"
    card, arrays = card_files.load(card_files.DATASET, written, like)
    assert card["env"] == "CartPole-v1" and np.sum(arrays["obs.a"]) == np.sum(ARRAYS["obs.a"])
    assert jnp.all(arrays["terminated"] == ARRAYS["terminated"])
