"""Opens a library that is an extra, without JAX. What it prints and warns of is not shown."""

import contextlib
import importlib
import importlib.util
import io
import warnings
from collections.abc import Iterator
from typing import Any

from purerl.errors import MOST_CHARACTERS, ConfigError, one_line, place

MODULES = {"gymnasium": "gymnasium", "envpool": "envpool", "pettingzoo": "pettingzoo"}
"""Families of environments of the host, each with the module that must be importable."""


def needs(field: str, extra: str, module: str | None = None) -> None:
    """Raises `ConfigError`, which begins with ``field``, if the library that ``extra`` installs is not there."""
    module = module or MODULES[extra]
    if not is_there(module):
        raise ConfigError(f"{field}: {module} is not installed; pip install 'purerl[{extra}]'")


def is_there(module: str) -> bool:
    """Returns whether the module, which has no dots, can be imported. It is not imported."""
    return importlib.util.find_spec(module) is not None


def opened(module: str) -> Any:
    """Imports the module of an installed library and returns it."""
    with quiet():
        return importlib.import_module(module)


def not_made(name: str, error: BaseException) -> ConfigError:
    """Returns the error to raise if a library cannot make an environment.

    Its text is a line with the kind and the text of the library's error.
    """
    reason = (
        one_line(error) if place(error) else f"{type(error).__name__}: {' '.join(str(error).split())[:MOST_CHARACTERS]}"
    )
    return ConfigError(f"env = {name!r}: cannot be made: {reason}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides what is printed to the standard output within the context, and all warnings."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
