"""Opens a library that is an extra, without JAX. What it prints and warns of is not shown."""

import contextlib
import importlib.util
import io
import warnings
from collections.abc import Iterator

from purerl.errors import ConfigError

MODULES = {"gymnasium": "gymnasium", "envpool": "envpool", "pettingzoo": "pettingzoo"}
"""Families of environments of the host: the module that must be there."""


def needs(name: str, family: str) -> None:
    """Raises `ConfigError` if the library behind ``family`` is not installed."""
    if importlib.util.find_spec(MODULES[family]) is None:
        raise ConfigError(f"env = {name!r}: {MODULES[family]} is not installed; pip install 'purerl[{family}]'")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it nothing is printed, and nobody is warned."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
