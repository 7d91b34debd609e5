"""Names that a user typed or a file holds: the nearest known ones, settings, and ``MODULE:ATTRIBUTE``."""

import contextlib
import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from purerl.errors import RAISED, ConfigError, one_line, printable

MOST_NAMED = 3
"""The most unknown settings of a file that an error names."""
_begun: list[str] = []
"""The working directory in which a command began: at most one."""


@contextlib.contextmanager
def begun_here() -> Iterator[None]:
    """Has `here` mean, within the context, the working directory of its beginning."""
    _begun.append(os.getcwd())
    try:
        yield
    finally:
        _begun.pop()


def folder() -> str:
    """Returns the working directory in which the command began, whatever an environment has made of it since."""
    return _begun[-1] if _begun else os.getcwd()


def here(path: str | Path) -> Path:
    """Returns the absolute path that a user meant by ``path`` in the `folder`."""
    return Path(os.path.abspath(os.path.join(folder(), path)))


def shown(path: Path) -> str:
    """Returns a path of `here` as a user may write it: relative to the `folder` if it lies within."""
    return str(path.relative_to(folder()) if path.is_relative_to(folder()) and str(path) != folder() else path)


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


def existing(
    values: Mapping[str, Any], known: Iterable[str], where: str, former: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns those of the settings in a file that exist. One that the file lacks has its default.

    A ``former`` one is passed over if it has the default that it had: with a line on the standard error, once in a
    process.

    Args:
        values: The settings of the file by name, which is untrusted.
        known: The names of those that exist.
        where: The place of the settings, which begins each line.
        former: The settings that no longer exist, each with the default that it had (None: there are none).

    Raises:
        ConfigError: Any other name; with a line for each, for at most `MOST_NAMED`.
    """
    names, former, refused = list(known), former or {}, []
    for name in [name for name in values if name not in names]:
        if name not in former:
            refused.append(name)
        elif values[name] == former[name]:
            tell_once(f"{where}{name} = {former[name]!r}: no longer exists; passed over")
        else:
            value = reprlib.repr(values[name])
            raise ConfigError(
                f"{where}{name} = {value}: no longer exists; remove it from the file (only {former[name]!r} is passed"
                " over)"
            )
    if refused:
        texts = [name if str(name).isidentifier() else reprlib.repr(name) for name in refused[:MOST_NAMED]]
        lines = [f"{where}{text[:40]}: unknown; nearest: {nearest(text[:40], names)}" for text in texts]
        more = len(refused) - len(lines)
        raise ConfigError("\n".join(lines) + (f" (and {more} more)" if more else ""))
    return {name: value for name, value in values.items() if name in names}


@functools.cache
def tell_once(line: str) -> None:
    """Prints a line on the standard error, once in a process."""
    print(printable(line), file=sys.stderr, flush=True)


Trust = bool | Callable[[Path, str], str]
"""Whether code that files name is run: True all of it, False none.

Or it is ``refusal(where, name)``, which returns why a ``MODULE:ATTRIBUTE`` that a file at ``where`` names is not
trusted; empty: it is.
"""


def check_trusted(
    field: str, value: str, trust: Trust, where: Path = Path(), advice: str = "--trust imports it, in Python trust=True"
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


class Given(str):
    """The name of an object that a caller gave itself, ``value``; it is never looked up."""

    value: Any

    @classmethod
    def of(cls, name: str, value: Any) -> "Given":
        """Returns the name of ``value``."""
        given = cls(name)
        given.value = value
        return given


def is_there(name: str) -> bool:
    """Returns whether the module or file of a name, or the package that holds it, can be found; runs nothing.

    The name is ``MODULE:ATTRIBUTE`` or ``FILE.py:ATTRIBUTE``, also after ``gymnasium/``.
    """
    where = name.rpartition(":")[0].removeprefix("gymnasium/")
    if where.endswith(".py"):
        return here(where).is_file()
    top = where.partition(".")[0]
    return top in sys.modules or importlib.machinery.PathFinder.find_spec(top, [folder(), *sys.path]) is not None


def imported(field: str, name: str) -> Any:
    """Imports what ``MODULE:ATTRIBUTE`` or ``FILE.py:ATTRIBUTE`` names, or returns what is `Given`.

    Raises:
        ConfigError: If the name has another form, or cannot be imported.
    """
    if isinstance(name, Given):
        return name.value
    where, _, attribute = name.rpartition(":")
    if not where or not attribute or (where.startswith(".") and not where.endswith(".py")):
        raise ConfigError(f"{field} = {name!r}: must be MODULE:ATTRIBUTE or ./FILE.py:ATTRIBUTE")
    module = module_of(field, name, where)
    value = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            file = getattr(module, "__file__", None)
            raise ConfigError(
                f"{field} = {name!r}: module {where} has no {attribute!r}"
                + (f" ({file} was imported)" if file else " (it is one of Python's own)")
                + _hidden(where, file, attribute)
            )
        value = getattr(value, part)
    return value


def module_of(field: str, name: str, where: str) -> ModuleType:
    """Imports the module or the file ``where``, a part of ``name``. The working directory comes first.

    Raises:
        ConfigError: If it cannot be imported.
    """
    if where.endswith(".py") and not here(where).is_file():
        raise ConfigError(f"{field} = {name!r}: there is no file {where}; a module is named without .py")
    try:
        with _first(folder()):
            return _of_file(here(where).resolve()) if where.endswith(".py") else importlib.import_module(where)
    except ImportError as error:
        raise ConfigError(f"{field} = {name!r}: cannot import {where} ({error})") from None
    except RAISED as error:
        raise ConfigError(f"{field} = {name!r}: cannot import {where}: {one_line(error)}") from error


@contextlib.contextmanager
def _first(folder: str) -> Iterator[None]:
    """Has modules of a folder come first within the context, and last after it, where they cannot hide Python's own."""
    known = folder in sys.path or (folder == os.getcwd() and "" in sys.path)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        if not known:
            sys.path.append(folder)


def _of_file(path: Path) -> ModuleType:
    """Imports a file as the module of its name, or under another name if there is such a module already."""
    for name in (path.stem, f"{path.stem} of {path.parent}"):
        known = sys.modules.get(name)
        if known is not None and getattr(known, "__file__", None) == str(path):
            return known
        if known is None and name not in sys.stdlib_module_names:
            break
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _first(str(path.parent)):
            loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _hidden(where: str, file: str | None, attribute: str) -> str:
    """Returns advice if a module hides a file of the working directory; otherwise an empty text."""
    mine = Path(*where.split(".")).with_suffix(".py")
    if where.endswith(".py") or not here(mine).is_file() or (file and Path(file).resolve() == here(mine).resolve()):
        return ""
    return f"; it hides your {mine}: give ./{mine}:{attribute}, or rename the file"


def called(field: str, name: str, function: Callable[..., Any], /, *args: Any, **params: Any) -> Any:
    """Calls a user's own ``function``, which ``MODULE:ATTRIBUTE`` names, and returns what it returns.

    It raises `ConfigError`, with the error and its place, whatever the function raises, an exit included.
    """
    try:
        return function(*args, **params)
    except ConfigError:
        raise
    except RAISED as error:
        raise ConfigError(f"{field} = {name!r}: cannot be called: {one_line(error)}") from error
