"""Environments that are registered with Gymnasium, and single ones that a user's own function makes."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from purerl.catalogue import check_parameters
from purerl.errors import RAISED, ConfigError
from purerl.hosts import atari, cartpole
from purerl.hosts.libraries import is_there, needs, not_made, opened, quiet
from purerl.hosts.rows import Rows, Source
from purerl.hosts.singles import look, metadata, serial
from purerl.names import nearest

PLUGINS = "ale_py", "minigrid"
"""Packages that register environments when they are imported."""
_ALE = "ale_py.env:AtariEnv"


def registered(name: str, task: str, params: dict[str, Any]) -> Source:
    """Returns the environment that is registered as ``task``, whose parameters are those of ``gymnasium.make``.

    CartPole is stepped as one array (`purerl.hosts.cartpole`), and one by one with ``vector=0``. `purerl.hosts.atari`
    says what ``atari=1`` does.

    Raises:
        ConfigError: If a name or a parameter does not exist. The text names the nearest ones.
    """
    if task.startswith("ALE/"):
        needs(f"env = {name!r}", "atari", "ale_py")
    if task not in gymnasium.registry and task not in (known := tasks()):
        raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(task, known)}")
    as_array = task in cartpole.TASKS and bool(params.get("vector", 1))
    params = {each: value for each, value in params.items() if each != "vector" or task not in cartpole.TASKS}
    is_ale = gymnasium.spec(task).entry_point == _ALE
    options, wrap = atari.gymnasium_options(name, params) if is_ale else (params, None)
    _check(name, task, options)

    def make(**more: Any) -> Any:
        try:
            with quiet():
                env = gymnasium.make(task, disable_env_checker=True, **options, **more)
                return wrap(env) if wrap else env
        except RAISED as error:
            raise not_made(name, error) from error

    source = single(name, make)
    if not as_array:
        return source
    return source._replace(rows=lambda num_envs: cartpole.rows(num_envs, task, params))


def single(name: str, make: Callable[..., Any]) -> Source:
    """Returns the environment of which ``make()`` makes a copy.

    If it can draw, its rows are made by ``make(render_mode="rgb_array")``.
    """
    probe = make()
    try:
        draws = "rgb_array" in (metadata(probe).get("render_modes") or ())
        seen = look(name, probe)
    finally:
        probe.close()

    def rows(num_envs: int) -> Rows:
        more = {"render_mode": "rgb_array"} if draws else {}
        return serial([make(**more) for _ in range(num_envs)], seen)

    return Source(
        **seen.fields(name),
        rows=rows,
        fps=float(metadata(probe).get("render_fps") or 30),
    )


def tasks() -> list[str]:
    """Returns the names that are registered, those of the installed `PLUGINS` included."""
    for package in PLUGINS:
        module = opened(package) if is_there(package) else None
        if module and package == "ale_py":  # prints when each environment is created
            module.ALEInterface.setLoggerMode(module.LoggerMode.Error)
    return sorted(gymnasium.registry)


def latest() -> list[str]:
    """Returns the last version of each registered name, without those that lead to other interfaces."""
    versions: dict[str, tuple[int, str]] = {}
    for task in tasks():
        spec = gymnasium.spec(task)
        family = task.removesuffix(f"-v{spec.version}")
        if not family.startswith("GymV2"):
            versions[family] = max(versions.get(family, (-1, "")), (spec.version or 0, task))
    return [task for _, task in versions.values()]


def _check(name: str, task: str, given: Iterable[str]) -> None:
    """Raises `ConfigError` for parameters that the environment does not have, if its parameters can be inspected."""
    spec = gymnasium.spec(task)
    try:
        creator = spec.entry_point if callable(spec.entry_point) else load_env_creator(str(spec.entry_point))
        parameters = inspect.signature(creator).parameters
    except RAISED:  # the error is raised again when the environment is created
        return
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        check_parameters(name, given, {*parameters, *(("vector",) if task in cartpole.TASKS else ())} - {"render_mode"})
