"""The version of this package, and those of the packages beside it."""

import importlib.metadata
from collections.abc import Iterable

__version__ = "0.1.0"


def versions(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of packages, for a record: one that is not known, as of a copied folder, is left out."""
    result = {}
    for name in names:
        try:
            result[name] = __version__ if name == "purerl" else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result
