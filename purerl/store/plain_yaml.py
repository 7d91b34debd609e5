"""Plain data as users write it: scalars, lists and mappings by the rules of YAML 1.2, without code, aliases and dates.

``true`` and ``false`` are flags; ``null``, ``~`` and nothing are None; whole numbers are written ``500000``,
``500_000``, ``0x1f`` or ``0o17``, others ``0.5``, ``.5`` or ``1e-3``. All else is text: ``no``, ``off``, ``8x8``,
``1:30`` and dates, which YAML 1.1 reads otherwise, and whatever stands in quotes.
"""

import json
import re
from typing import Any

import yaml

FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
NOTHING = "", "~", "null", "Null", "NULL"
WHOLE = re.compile(r"[-+]?([0-9]+|[0-9]{1,3}(_[0-9]{3})+)|0x[0-9a-fA-F]+|0o[0-7]+")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.?(inf|nan)")
MOST_DIGITS = 300
"""The most characters of a number; longer ones are text."""
_QUOTED = "[{\"'"
_PLAIN = "tag:yaml.org,2002:plain"


def scalar(text: str) -> bool | int | float | str | None:
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


def value(text: str) -> Any:
    """Reads a scalar, a list ``[1, a]``, a mapping ``{a: 1}`` or a text in quotes.

    Raises:
        yaml.YAMLError: A list, a mapping or a text in quotes is not closed, or is no plain data.
    """
    return document(text) if text[:1] and text[0] in _QUOTED else scalar(text)


def written(content: Any) -> str:
    """Writes what `value` reads: a text as it is where `value` returns the same text, all else as JSON."""
    plain = isinstance(content, str) and content[:1] not in tuple(_QUOTED) and scalar(content) == content
    return content if plain else json.dumps(content)


def document(text: str | bytes) -> Any:
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


_Loader.add_constructor(_PLAIN, lambda loader, node: scalar(node.value))
