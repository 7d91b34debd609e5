"""Names that a user typed: the nearest known ones, and ``MODULE:ATTRIBUTE``."""

import difflib
import importlib
import os
import reprlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from purerl.errors import RAISED, ConfigError, one_line


def nearest(word: str, options: Iterable[str]) -> str:
    """Returns the three options most like ``word``, whatever its case, the best first, separated by commas."""
    by_lower = {option.lower(): option for option in options}
    return ", ".join(by_lower[match] for match in difflib.get_close_matches(word.lower(), by_lower, cutoff=0.0))


def choose(field: str, value: str, options: Any) -> str:
    """Returns ``value`` if it is one of ``options``.

    Raises:
        ConfigError: If it is not. The text names the nearest of them.
    """
    if value in options:
        return value
    raise ConfigError(
        f"{field} = {value!r}: unknown; nearest: {nearest(value, options)}; must be one of {', '.join(options)}"
    )


Trust = bool | Callable[[Path, str], str]
"""Whether code that files name is run: True all of it, False none.

Or it is ``refusal(where, name)``, which returns why a ``MODULE:ATTRIBUTE`` that a file at ``where`` names is not
trusted; empty: it is.
"""


def check_trusted(
    field: str, value: str, trust: Trust, where: Path = Path(), advice: str = "--trust imports it"
) -> None:
    """Checks that a name in a file is trusted if it is a ``MODULE:ATTRIBUTE``.

    Args:
        field: The field that holds the name, for the error.
        value: The name, as the file holds it.
        trust: Whether code that files name is run.
        where: The run or the artefact that the file belongs to.
        advice: What the error advises.

    Raises:
        ConfigError: If the name is a ``MODULE:ATTRIBUTE`` that is not trusted.
    """
    if ":" not in value or trust is True:
        return
    why = trust(where, value) if callable(trust) else ""
    if why or trust is False:
        reason = f"a file names this module, which would be imported and run{why and f', and {why}'}; {advice}"
        raise ConfigError(f"{field} = {reprlib.repr(value)}: {reason}")


def imported(field: str, name: str) -> Any:
    """Imports what ``MODULE:ATTRIBUTE`` names; modules of the working directory are found, too.

    Raises:
        ConfigError: If the name has another form, or cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute or module.startswith("."):
        raise ConfigError(f"{field} = {name!r}: must be MODULE:ATTRIBUTE")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        value = importlib.import_module(module)
        if hasattr(value, attribute):
            return getattr(value, attribute)
    except ImportError as error:
        raise ConfigError(f"{field} = {name!r}: cannot import {module} ({error})") from None
    except RAISED as error:
        raise ConfigError(f"{field} = {name!r}: cannot import {module}: {one_line(error)}") from error
    raise ConfigError(f"{field} = {name!r}: module {module} has no {attribute!r}")


def called(field: str, name: str, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Calls a user's own ``function``, which ``MODULE:ATTRIBUTE`` names, and returns what it returns.

    It raises `ConfigError`, with the error and its place, whatever the function raises, an exit included.
    """
    try:
        return function(*args, **params)
    except ConfigError:
        raise
    except RAISED as error:
        raise ConfigError(f"{field} = {name!r}: cannot be called: {one_line(error)}") from error
