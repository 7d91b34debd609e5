"""Files of arrays with a card: one safetensors file each, with the card in its metadata. No pickle.

The card is JSON: what the arrays are and where they come from, the numbers by which their shapes are known, and a
SHA-256 over all of it and the arrays, which also tells two files apart.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from purerl.errors import ConfigError
from purerl.store import json_files, regular_files, tensors
from purerl.store.atomic import atomic

FORMAT = 1
"""Format version of the files, in their cards; other versions are refused."""
CARD = "card"
"""Name of the card in a file's metadata."""
MOST_BYTES = 2**30
"""Size of the largest file that is read, in bytes. What is read may become part of a compiled program."""


class Kind(NamedTuple):
    """What files are: ``name`` completes "no", ``counts`` are numbers of their cards, each at least 1, and ``less``
    says what to do with a file that would be too large."""

    name: str
    counts: tuple[str, ...]
    less: str


DATASET = Kind("dataset of `purerl record`", ("steps", "episodes"), "fewer episodes are enough to learn from")
LEVELS = Kind("file of levels of a curriculum", ("agents", "capacity"), "give a smaller level_capacity")


class Stored(NamedTuple):
    """What a file holds: its card, and its arrays by their names."""

    card: dict[str, Any]
    arrays: dict[str, np.ndarray]


def save(kind: Kind, path: Path, arrays: Mapping[str, np.ndarray], card: dict[str, Any]) -> dict[str, Any]:
    """Writes a file, atomically, and returns its card as it is written: with format and digest."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    document = json.loads(json.dumps(json_files.finite({"format": FORMAT, **card})))
    document["sha256"] = tensors.digest(document, whole)
    content = safetensors.numpy.save(whole, {CARD: json.dumps(document)})
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path}: would be larger than {MOST_BYTES} bytes; {kind.less}")
    with atomic(path) as temporary:
        temporary.write_bytes(content)
    return document


def load(kind: Kind, path: Path, expected: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Stored:
    """Reads a file, which is untrusted. ``expected(card)`` gives the shapes and dtypes of its arrays by their names.

    It is asked before memory is taken for any array, of a card whose counts are at least 1, and may raise `ConfigError`
    itself. Raises `ConfigError`, with one line that names the path, for what is no such file
    and for anything in it that is not what was written.
    """
    file, size = regular_files.opened(path)
    with file:
        if size > MOST_BYTES:
            raise ConfigError(f"{path}: larger than {MOST_BYTES} bytes")
        found = tensors.header(file, size, path)
        card = _card(kind, path, found.metadata)
        arrays = tensors.read(file, path, found.places, expected(card))
    if tensors.digest({name: x for name, x in card.items() if name != "sha256"}, arrays) != card["sha256"]:
        raise ConfigError(f"{path}: is not what was written (sha256 differs)")
    tensors.check_finite(path, arrays)
    return Stored(card, arrays)


def _card(kind: Kind, path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The card in a file's metadata."""
    try:
        card = json_files.parse(metadata.get(CARD, "").encode(errors="replace"))
    except ConfigError as error:
        raise ConfigError(f"{path}: no {kind.name} (its card: {error})") from None
    if not isinstance(card, dict) or set(metadata) != {CARD}:
        raise ConfigError(f"{path}: no {kind.name}")
    if type(card.get("format")) is not int or card["format"] != FORMAT:
        raise ConfigError(f"{path}: format {json.dumps(card.get('format'))[:40]}, expected {FORMAT}")
    counts = [card.get(name) for name in kind.counts]
    if any(type(count) is not int or not 1 <= count <= MOST_BYTES for count in counts) or "sha256" not in card:
        raise ConfigError(f"{path}: its card has no digest or no numbers of {' and '.join(kind.counts)}")
    return card
