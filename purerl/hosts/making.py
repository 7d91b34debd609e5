"""Environments of the host by name: Gymnasium's, EnvPool's, PettingZoo's, and a user's own as ``MODULE:FUNCTION``."""

import json
import re
import reprlib
import sys
from collections.abc import Callable
from typing import Any

from purerl.errors import ConfigError
from purerl.hosts import copies
from purerl.hosts.bundle import HostEnv, Recipe
from purerl.hosts.libraries import MODULES, needs, opened
from purerl.hosts.own import arguments, is_environment, no_environment, own, parameters
from purerl.hosts.rows import Source, host_env
from purerl.hosts.transforms import TRANSFORMS, chosen, steps_within
from purerl.names import Given, imported

__all__ = ["TRANSFORMS", "arguments", "is_environment", "is_host", "listed", "make"]


_ID = re.compile(r".+:([\w.-]+/)?[\w.-]+-v\d+")
"""Gymnasium's own form of a name, ``MODULE:ID``: the module is imported, and registers the ID."""


def is_host(name: str) -> bool:
    """Returns whether ``name`` is of a family of environments of the host."""
    family, _, task = name.partition("/")
    return (bool(task) and family in MODULES) or bool(_ID.fullmatch(name))


def make(name: str, params: dict[str, Any]) -> HostEnv:
    """Makes the environment of the host called ``name``, with its own parameters changed to ``params``.

    ``gymnasium/TASK``, ``MODULE:TASK`` and ``gymnasium/MODULE:TASK`` are registered with Gymnasium, the last two once
    the module is imported; ``envpool/TASK`` and ``pettingzoo/GROUP.MODULE`` are of these libraries, and
    ``MODULE:FUNCTION`` is what the function returns (`purerl.hosts.own`). Each also has as parameters the `TRANSFORMS`,
    unless the function has a parameter of that name itself.

    Within a `copies.session` an environment is looked at once, whatever transforms are put around it.

    Raises:
        ConfigError: If something does not exist, with the nearest names, or is not installed.
    """
    made = found(name, params)
    if isinstance(made, HostEnv):
        return made
    raise ConfigError(
        f"env = {name!r}: returns {type(made).__name__}, must return a Gymnasium environment, a PettingZoo parallel"
        f" environment or a HostEnv{no_environment(made)}"
    )


def found(name: str, params: dict[str, Any]) -> Any:
    """Returns what `make` returns, or what else a user's own function returned, of which nothing is remembered."""
    host = is_host(name)
    what = getattr(name, "value", None) if host else imported("env", name)
    declared: tuple[str, ...] = () if host else parameters(what)
    transforms = {each: value for each, value in params.items() if each in TRANSFORMS and each not in declared}
    rest = {each: value for each, value in params.items() if each not in transforms}
    told = str(name), id(what), json.dumps(rest, sort_keys=True, default=id), steps_within(transforms)
    known, key = copies.remembered(), told
    if key in known:
        source = known[key][0]
    else:
        here = lambda: _source(name, rest, transforms) if host else own(name, rest)
        source = _seen_by_a_worker(name, rest, here) or _seen_apart(here)
        if not isinstance(source, HostEnv | Source):
            return source
        known[key] = source, what
    more: dict[str, Any] = {"recipe": Recipe(str(name), params), "here": _here(name, params)}
    if not isinstance(source, HostEnv):
        return host_env(source, chosen(source, transforms))._replace(**more)
    given = [each for each, value in transforms.items() if value is not None]
    if given:
        raise ConfigError(f"env = {name!r}: returns a HostEnv; {given[0]} must be a parameter of the function")
    return source._replace(**more)


def _seen_by_a_worker(name: str, params: dict[str, Any], here: Callable[[], Any]) -> Source | None:
    """Returns the environment as the worker sees it that is to step it; None if workers are not asked for.

    Its rows, which are those of this process, are of the environment that ``here()`` makes.
    """
    num_envs, _, workers, _ = copies.plan()
    seen = ("worker", str(name))
    if not workers or _here(name, params) or seen in copies.remembered():
        return None
    from purerl.hosts import scouts

    fields = scouts.look(name, params, max(1, num_envs // workers))
    if fields is None:
        copies.remembered()[seen] = None, None
        return None
    made: list[Any] = []

    def rows(num_envs: int, pictures: bool = False) -> Any:
        made.extend([] if made else [here()])
        return made[0].rows(num_envs, pictures)

    return Source(**fields, rows=rows)


def _seen_apart(look: Callable[[], Any]) -> Any:
    """Returns ``look()``, called in the thread that is to step the environment, if one of its own is to."""
    if not copies.plan().apart:
        return look()
    from purerl.hosts import local  # imports numpy

    thread, waiting = local.Apart(), None
    thread.send(look)
    try:
        source = thread.receive()
        waiting = getattr(source, "copies", None)
    finally:
        if waiting is None:
            thread.close()
    if waiting is not None:
        waiting.apart = thread
        copies.at_end.append(lambda: thread.close(waiting.close_spare) if waiting.apart is thread else None)
    return source


def named(value: Any) -> Given:
    """Returns the name of a class, a function or a specification of Gymnasium's that makes an environment.

    Raises:
        ConfigError: If it is nothing of the kind.
    """
    if type(value).__name__ == "EnvSpec" and hasattr(value, "entry_point"):
        return Given.of(f"gymnasium/{value.id}", value)
    if not callable(value):
        raise ConfigError(
            f"env = {reprlib.repr(value)}: must be a name, a class, a function or a specification of Gymnasium"
        )
    where = getattr(value, "__module__", None) or "?"
    return Given.of(f"{where}:{getattr(value, '__qualname__', type(value).__name__)}", value)


def _here(name: str, params: dict[str, Any]) -> str:
    """Returns why workers, which look the name up, would not make the same environment; empty if they would."""
    if name.startswith("__main__:"):
        return "it is of the script itself, which workers cannot import; put it into a file of its own"
    if isinstance(name, Given):
        module, _, path = name.partition(":")
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if is_host(name):
            found = sys.modules["gymnasium"].registry.get(name.value.id)
        if found is not name.value:
            return f"workers cannot import it as {str(name)!r}; put it into a module, and give that name"
    try:
        json.dumps(params)
    except TypeError:
        return "its parameters are objects, which workers cannot be sent"
    return ""


def is_known(function: Any) -> bool:
    """Returns whether a user's ``function`` is remembered as one that makes an environment of the host."""
    return any(what is function for _, what in copies.remembered().values())


def listed(family: str) -> list[str]:
    """Returns the names of a family's environments. Raises `ConfigError` if its library is not installed."""
    needs(f"family = {family!r}", family)
    if family == "gymnasium":
        from purerl.hosts import gymnasium

        tasks = gymnasium.latest()
    elif family == "envpool":
        tasks = sorted(opened("envpool").list_all_envs())
    else:
        from purerl.hosts import pettingzoo

        tasks = list(pettingzoo.tasks())
    return [f"{family}/{task}" for task in tasks]


def _source(name: str, params: dict[str, Any], transforms: dict[str, Any]) -> Source:
    family, _, task = name.partition("/")
    if family not in MODULES:
        family, task = "gymnasium", name
    needs(f"env = {name!r}", family)
    if family == "gymnasium":
        from purerl.hosts import gymnasium

        return gymnasium.registered(name, task, params, steps_within(transforms))
    if family == "envpool":
        from purerl.hosts import envpool

        return envpool.named(name, task, params)
    from purerl.hosts import pettingzoo

    return pettingzoo.named(name, task, params)
