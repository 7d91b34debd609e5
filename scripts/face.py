"""The stable names of the package, which ``docs/stability.md`` describes, and where they are."""

import importlib
from types import ModuleType


def value(module: ModuleType, name: str) -> object:
    """What a name of a module's ``__all__`` stands for; a module is imported."""
    try:
        return getattr(module, name)
    except AttributeError:
        return importlib.import_module(f"{module.__name__}.{name}")


def modules(root: str = "purerl") -> dict[str, dict[str, object]]:
    """The names of ``__all__`` of the package and of the modules among these names, by module."""
    names = importlib.import_module(root)
    result = {root: {name: value(names, name) for name in names.__all__}}
    for each in result[root].values():
        if isinstance(each, ModuleType):
            result |= modules(each.__name__)
    return result
