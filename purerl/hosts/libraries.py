"""Opens a library that is an extra, without JAX. What it prints and warns of is not shown."""

import contextlib
import importlib
import importlib.util
import io
import warnings
from collections.abc import Iterator
from typing import Any

from purerl.errors import ConfigError

MODULES = {"gymnasium": "gymnasium", "envpool": "envpool", "pettingzoo": "pettingzoo"}
"""Families of environments of the host: the module that must be there."""


def needs(field: str, extra: str, module: str | None = None) -> None:
    """Raises `ConfigError`, which begins with ``field``, if the library that ``extra`` installs is not there."""
    module = module or MODULES[extra]
    if not is_there(module):
        raise ConfigError(f"{field}: {module} is not installed; pip install 'purerl[{extra}]'")


def is_there(module: str) -> bool:
    """Whether the module, which has no dots, can be imported. It is not imported."""
    return importlib.util.find_spec(module) is not None


def opened(module: str) -> Any:
    """The module of an installed library."""
    with quiet():
        return importlib.import_module(module)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it nothing is printed, and nobody is warned."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
