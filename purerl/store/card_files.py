"""Files of arrays with a card: one safetensors file each, with the card in its metadata. No pickle.

The card is JSON. It describes the arrays and their origin, has the numbers from which their shapes follow, and a
SHA-256 over all of it and the arrays, which also identifies the file.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from purerl.errors import ConfigError
from purerl.store import guards, tensors, writing
from purerl.store.writing import atomic

FORMAT = 1
"""Format version of the files, in their cards; other versions are refused."""
CARD = "card"
"""The name of the card in a file's metadata."""
MOST_BYTES = 2**30
"""The size of the largest file that is read, in bytes. What is read may become part of a compiled program."""


class Kind(NamedTuple):
    """A kind of files.

    ``name`` completes "no" in messages, ``counts`` are names of numbers in their cards, each at least 1, and ``less``
    advises what to do about a file that would be too large.
    """

    name: str
    counts: tuple[str, ...]
    less: str


DATASET = Kind("dataset of `purerl record`", ("steps", "episodes"), "fewer episodes are enough to learn from")
LEVELS = Kind("file of levels of a curriculum", ("agents", "capacity"), "give a smaller level_capacity")


class Stored(NamedTuple):
    """The contents of a file: its card, and its arrays by their names."""

    card: dict[str, Any]
    arrays: dict[str, np.ndarray]


def save(kind: Kind, path: Path, arrays: Mapping[str, np.ndarray], card: dict[str, Any]) -> dict[str, Any]:
    """Writes a file, atomically, and returns its card as it is written: with format and digest.

    Raises:
        ConfigError: The file would be larger than `MOST_BYTES`.
    """
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    document = json.loads(json.dumps(writing.finite({"format": FORMAT, **card})))
    document[tensors.SEAL] = tensors.digest(document, whole)
    content = safetensors.numpy.save(whole, {CARD: json.dumps(document)})
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path}: would be larger than {MOST_BYTES} bytes; {kind.less}")
    with atomic(path) as temporary:
        temporary.write_bytes(content)
    return document


def load(
    kind: Kind,
    path: Path,
    expected: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    *,
    mapped: bool = False,
) -> Stored:
    """Reads a file, which is untrusted.

    Args:
        kind: The kind of the file.
        path: The file.
        expected: ``expected(card)`` returns the shapes and dtypes of the file's arrays by their names. It is called
            before memory is allocated for any array, with a card whose counts are at least 1, and may raise
            `ConfigError` itself. None: any arrays.
        mapped: Whether the arrays are mapped to memory, read-only, instead of read into it (`tensors.maps`). The file
            must not be written to as long as they are used.

    Raises:
        ConfigError: The file is not of this kind, or was changed after it was written. One line, which names the path.
    """
    with tensors.opened(path, MOST_BYTES) as file:
        card = _card(kind, path, file.metadata() or {})
        arrays = tensors.read_all(path, file, expected(card) if expected else None, mapped=mapped)
    tensors.check_digest(path, card, arrays)
    return Stored(card, arrays)


def card(kind: Kind, path: Path) -> dict[str, Any]:
    """Reads the card of a file, which is untrusted, and none of its arrays. It is not compared with the digest.

    Raises:
        ConfigError: The file is not of this kind. One line, which names the path.
    """
    with tensors.opened(path, MOST_BYTES) as file:
        return _card(kind, path, file.metadata() or {})


def _card(kind: Kind, path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """Reads the card from a file's metadata. Raises `ConfigError`."""
    try:
        card = guards.parse_json(metadata.get(CARD, "").encode(errors="replace"))
    except ConfigError as error:
        raise ConfigError(f"{path}: no {kind.name} (its card: {error})") from None
    if not isinstance(card, dict) or set(metadata) != {CARD}:
        raise ConfigError(f"{path}: no {kind.name}")
    if type(card.get("format")) is not int or card["format"] != FORMAT:
        raise ConfigError(f"{path}: format {json.dumps(card.get('format'))[:40]}, expected {FORMAT}")
    counts = [card.get(name) for name in kind.counts]
    if any(type(count) is not int or not 1 <= count <= MOST_BYTES for count in counts) or tensors.SEAL not in card:
        raise ConfigError(f"{path}: its card has no digest or no numbers of {' and '.join(kind.counts)}")
    return card
