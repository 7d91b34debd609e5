"""One file an algorithm, which ends in its `Algorithm`. A file is read, and JAX with it, when its name is looked up."""

import dataclasses
import importlib
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purerl import names
from purerl.errors import ConfigError

if TYPE_CHECKING:
    from purerl.algos.algorithm import Algorithm

NOT_ALGORITHMS = ("__init__", "algorithm")


class Table(Mapping):
    """Algorithms by name: the files of this folder. ``MODULE:ATTRIBUTE`` names anybody's own, wherever it lies."""

    def __init__(self) -> None:
        files = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_ALGORITHMS)
        self.modules = {stem.replace("_", "-"): stem for stem in files}

    def __getitem__(self, name: str) -> "Algorithm":
        if ":" in name:
            return _own(name)
        stem = self.modules[name]
        return getattr(importlib.import_module(f"purerl.algos.{stem}"), stem)

    def __contains__(self, name: object) -> bool:
        return name in self.modules or (isinstance(name, str) and ":" in name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)


ALGORITHMS = Table()


def _own(name: str) -> "Algorithm":
    from purerl.algos.algorithm import Algorithm

    found = names.imported("algorithm", name)
    if not isinstance(found, Algorithm):
        raise ConfigError(
            f"algorithm = {name!r}: is {type(found).__name__}, must be a purerl.algos.algorithm.Algorithm"
        )
    return found


def read_config(algo: str, fields: dict[str, Any]) -> Any:
    """The config of the algorithm called ``algo`` with fields as JSON has them, where tuples are lists.

    Raises `ConfigError`, a line for each field that the config does not have, with the nearest that it has. Values are
    not looked at.
    """
    Config = ALGORITHMS[algo].Config
    known = [field.name for field in dataclasses.fields(Config)]
    unknown = [name for name in fields if name not in known]
    if unknown:
        lines = [
            f"{reprlib.repr(name)}: {algo} has no such field; nearest: {names.nearest(name, known)}"
            for name in unknown[:3]
        ]
        raise ConfigError("\n".join(lines))
    return Config(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
