"""Guards of untrusted input, which all readers of files call."""

import io
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from purerl.errors import ConfigError


def is_plain(path: Path) -> bool:
    """Returns whether ``path`` is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def opened(path: Path, most_bytes: float = math.inf) -> tuple[io.BufferedReader, int]:
    """Opens a regular file for reading; returns it and its size in bytes. The caller closes it.

    Opening a pipe does not wait for its writer.

    Raises:
        ConfigError: The file cannot be opened, is larger than ``most_bytes``, or is not regular but a directory, a pipe
            or a device; the message names the path.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # the path has a null character
        raise ConfigError(f"{str(path)!r}: {error}") from None
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise ConfigError(f"{path}: is not a regular file")
    if status.st_size > most_bytes:
        file.close()
        raise ConfigError(f"{path}: larger than {most_bytes} bytes")
    return file, status.st_size


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """Reads a regular file. Raises `ConfigError` as `opened` does."""
    file, size = opened(path, most_bytes)
    with file:
        try:
            return file.read(size)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None


LARGEST = 1e300
"""The largest number that is read for a table or a picture, so that sums of them are finite."""
MOST_MEMBERS = 1000
"""The most members of a run whose results are listed."""
MOST_CHARACTERS = 2000
"""The most characters of a text that are kept."""


def contents(directory: Path, name: str) -> dict[str, Any]:
    """Reads the object in a JSON file of a run; an empty one if the file is missing or damaged."""
    if not is_plain(directory / name):
        return {}
    try:
        document = read_json(directory / name)
    except ConfigError:
        return {}
    return document if isinstance(document, dict) else {}


def listed(fields: dict[str, Any], name: str) -> list[Any]:
    """Returns the list in a file's ``fields`` under a name; an empty one for anything else."""
    value = fields.get(name)
    return value if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    """Returns a mapping of a file; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def is_number(value: Any, largest: float = LARGEST) -> bool:
    """Returns whether a value is a number in [-``largest``, ``largest``]; true and false are none."""
    return type(value) in (int, float) and abs(value) <= largest


def number(value: Any) -> float | None:
    """Converts a value of a file to a number; None for anything else."""
    return float(value) if is_number(value) else None


def plotted(value: Any) -> float:
    """Converts a value of a file to a number, true and false to 1 and 0; nan for anything else."""
    return float(value) if type(value) is bool or is_number(value) else math.nan


def count(value: Any) -> int:
    """Converts a value of a file to a whole number; 0 for anything else."""
    return int(value) if is_number(value) and 0 <= value < 2**53 else 0


def text(value: Any) -> str:
    """Returns a text of a file, cut to 200 characters; an empty one for anything else."""
    return str(value)[:200] if isinstance(value, str) else ""


def plain(value: Any, depth: int = 4) -> Any:
    """Bounds the size of a value of JSON, for a table."""
    if isinstance(value, dict) and depth:
        return {str(key)[:80]: plain(item, depth - 1) for key, item in list(value.items())[:300]}
    if isinstance(value, list) and depth:
        return [plain(item, depth - 1) for item in value[:MOST_MEMBERS]]
    if isinstance(value, dict | list):
        return "..."
    return value[:MOST_CHARACTERS] if isinstance(value, str) else value


FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
NOTHING = "", "~", "null", "Null", "NULL"
WHOLE = re.compile(r"[-+]?([0-9]+|[0-9]{1,3}(_[0-9]{3})+)|0x[0-9a-fA-F]+|0o[0-7]+")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.?(inf|nan)")
MOST_DIGITS = 300
"""The most characters of a number; longer ones are text."""
_QUOTED = "[{\"'"
_PLAIN = "tag:yaml.org,2002:plain"


def yaml_scalar(text: str) -> bool | int | float | str | None:
    """Reads a scalar that does not stand in quotes."""
    if text in FLAGS:
        return FLAGS[text]
    if text in NOTHING:
        return None
    if len(text) <= MOST_DIGITS and WHOLE.fullmatch(text):
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        return int(text, base)
    if len(text) <= MOST_DIGITS and NUMBER.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return text


def yaml_value(text: str) -> Any:
    """Reads a scalar, a list ``[1, a]``, a mapping ``{a: 1}`` or a text in quotes.

    Raises:
        yaml.YAMLError: A list, a mapping or a text in quotes is not closed, or is no plain data.
    """
    return yaml_document(text) if text[:1] and text[0] in _QUOTED else yaml_scalar(text)


def yaml_text(content: Any) -> str:
    """Writes what `yaml_value` reads: a text as it is where `yaml_value` returns the same text, all else as JSON."""
    plain = isinstance(content, str) and content[:1] not in tuple(_QUOTED) and yaml_scalar(content) == content
    return content if plain else json.dumps(content)


def yaml_document(text: str | bytes) -> Any:
    """Reads a document.

    Raises:
        yaml.YAMLError: It is no YAML, or holds aliases, a name twice, or more than plain data.
    """
    try:
        return _Loader(text).get_single_data()
    except (RecursionError, ValueError) as error:
        raise yaml.YAMLError(str(error)) from None


class _Loader(yaml.SafeLoader):
    """A loader of plain data, which refuses aliases and names that occur twice.

    With aliases a small file could stand for a huge one.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        plain = kind is yaml.ScalarNode and implicit[0]
        return _PLAIN if plain else super().resolve(kind, value, implicit)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) != len(node.value):
            raise yaml.YAMLError("a name occurs twice")
        return made


_Loader.add_constructor(_PLAIN, lambda loader, node: yaml_scalar(node.value))


MOST_JSON_BYTES = 2**26
"""The size of the largest JSON file that is read, in bytes."""


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES, *, finite: bool = True) -> Any:
    """Reads a JSON file, which is untrusted.

    Raises:
        ConfigError: The file is not regular, larger than ``most_bytes``, or `parse_json` refuses it; one line
            that names the path.
    """
    raw = read_bytes(path, most_bytes)
    try:
        return parse_json(raw, finite=finite)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_json(raw: bytes, *, finite: bool = True) -> Any:
    """Parses JSON in UTF-8.

    Raises:
        ConfigError: It is anything else, has a name twice in an object, is nested too deeply, or, if it must be
            ``finite``, has nan or infinity.
    """
    strict: dict[str, Any] = {"parse_constant": _no_number, "parse_float": _finite_number} if finite else {}
    try:
        return json.loads(raw.decode(), object_pairs_hook=_without_duplicates, **strict)
    except RecursionError:
        raise ConfigError("nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"not a JSON file ({error})") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return unique


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number
