"""The algorithms: one file for each, which ends in its `Algorithm`.

A file is imported, and JAX with it, when the name of its algorithm is looked up.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purerl import names
from purerl.errors import ConfigError

if TYPE_CHECKING:
    from purerl.algos.algorithm import Algorithm
    from purerl.learners.wrappers import Wrapper

NOT_ALGORITHMS = ("__init__", "algorithm", "presets", "ppo_presets")


class Table(Mapping):
    """The algorithms by name.

    A name is one of three:

    - That of a file of this folder, with hyphens in place of underscores.
    - ``MODULE:ATTRIBUTE``: an `Algorithm` from outside of the package.
    - ``NAME+MODULE:ATTRIBUTE``: an algorithm inside of a wrapper from outside of the package. Of several wrappers the
      last is the outermost.
    """

    def __init__(self) -> None:
        files = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_ALGORITHMS)
        self.modules = {stem.replace("_", "-"): stem for stem in files}

    def __getitem__(self, name: str) -> "Algorithm":
        name, *wrappers = name.split("+")
        if wrappers:
            return self[name].wrapped(*map(_own_wrapper, wrappers))
        if ":" in name:
            return _own(name)
        stem = self.modules[name]
        return getattr(importlib.import_module(f"purerl.algos.{stem}"), stem)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        name, *wrappers = name.split("+")
        return (name in self.modules or ":" in name) and all(":" in wrapper for wrapper in wrappers)

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)


ALGORITHMS = Table()


def _own(name: str) -> "Algorithm":
    from purerl.algos.algorithm import Algorithm

    algorithm: Algorithm = _of_kind("algorithm", name, Algorithm)
    own: Any = algorithm.own_config
    if not isinstance(own, type):
        raise ConfigError(f"algorithm = {name!r}: own_config is {type(own).__name__}(...); must be a class, not called")
    if not dataclasses.is_dataclass(own) or "__dataclass_fields__" not in vars(own):
        raise ConfigError(f"algorithm = {name!r}: own_config = {own.__name__}: lacks @config of purerl.config above it")
    return algorithm


def _own_wrapper(name: str) -> "Wrapper":
    from purerl.learners.wrappers import Wrapper

    return _of_kind("wrapper", name, Wrapper)


def _of_kind(field: str, name: str, kind: type) -> Any:
    """Returns what ``MODULE:ATTRIBUTE`` names. Raises `ConfigError` if it is not of the type ``kind``."""
    value = names.imported(field, name)
    if isinstance(value, kind):
        return value
    raise ConfigError(f"{field} = {name!r}: is {type(value).__name__}, must be a {kind.__module__}.{kind.__name__}")


def read_config(algo: str, fields: dict[str, Any]) -> Any:
    """Makes a config of an algorithm from fields as JSON has them, where tuples are lists.

    Args:
        algo: Name of the algorithm in the table.
        fields: Values by name (`names.existing`). Their types and ranges are not checked.

    Raises:
        ConfigError: Names fields that the config does not have, a line each, at most three.
    """
    Config = ALGORITHMS[algo].Config
    values = names.existing(fields, [field.name for field in dataclasses.fields(Config)], "config: ")
    return Config(**values)
