"""Opens a library that is an extra. Names are checked first, and what it prints and warns of is not shown."""

import contextlib
import io
import warnings
from collections.abc import Iterator

import jax

from purerl.catalogue import EXTRAS, families, is_installed
from purerl.errors import ConfigError
from purerl.names import nearest


@contextlib.contextmanager
def library(family: str, task: str) -> Iterator[None]:
    """Imports the library behind ``family`` and makes the environment ``FAMILY/TASK`` within the context.

    The constants that the library makes are arrays, also within a caller's jit.

    Raises:
        ConfigError: If the catalogue does not have the task, with the nearest ones, or if the library is not installed.
    """
    name, known = f"{family}/{task}", families()[family]
    if name not in known:
        raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(name, known)}")
    if not is_installed(family):
        raise ConfigError(f"env = {name!r}: {EXTRAS[family]} is not installed; pip install 'purerl[{family}]'")
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), jax.ensure_compile_time_eval():
        warnings.simplefilter("ignore")
        yield
