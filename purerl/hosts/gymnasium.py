"""Environments that are registered with Gymnasium, and single ones that a user's own function makes."""

import contextlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from purerl.catalogue import check_parameters
from purerl.errors import RAISED, ConfigError
from purerl.hosts import atari, cartpole, pettingzoo, teams
from purerl.hosts.copies import Copies, plan
from purerl.hosts.drawing import drawn
from purerl.hosts.libraries import is_there, needs, not_made, opened, quiet
from purerl.hosts.rows import Rows, Source
from purerl.hosts.singles import look, metadata, serial
from purerl.names import Given, module_of, nearest

PLUGINS = "ale_py", "minigrid"
"""Packages that register environments when they are imported."""
MAKE = [each for each in inspect.signature(gymnasium.make).parameters if each not in ("id", "kwargs")]
"""Parameters that ``gymnasium.make`` itself takes, such as ``max_episode_steps``."""
_ALE = "ale_py.env:AtariEnv"


def registered(name: str, task: str, params: dict[str, Any], steps: int = 0) -> Source:
    """Returns the environment that is registered as ``task``, whose parameters are those of ``gymnasium.make``.

    Its time limit, if it has one, is made at least ``steps``. CartPole is stepped as one array
    (`purerl.hosts.cartpole`), and one by one with ``vector=0``. `purerl.hosts.atari` says what ``atari=1`` does.

    Raises:
        ConfigError: If a name or a parameter does not exist. The text names the nearest ones.
    """
    module, _, task = task.rpartition(":")
    if module:
        module_of("env", name, module)
    if task.startswith("ALE/"):
        needs(f"env = {name!r}", "atari", "ale_py")
    spec = name.value if isinstance(name, Given) else None
    if spec is None and task not in gymnasium.registry and task not in (known := tasks()) and not _plugged(task):
        raise ConfigError(
            f"env = {name!r}: unknown environment; nearest: {nearest(task, known)}; if a package registers it that is"
            f" not installed or not imported, install it, and name it: gymnasium/PACKAGE:{task}"
        )
    spec = spec or gymnasium.spec(task)
    as_array = task in cartpole.TASKS and bool(params.get("vector", 1))
    params = {each: value for each, value in params.items() if each != "vector" or task not in cartpole.TASKS}
    if steps > (spec.max_episode_steps or steps):
        params["max_episode_steps"] = steps
    is_ale = spec.entry_point == _ALE
    options, wrap = atari.gymnasium_options(name, params) if is_ale else (params, None)
    _check(name, spec, options)

    if as_array:
        own = {each: value for each, value in options.items() if each not in MAKE or each == "max_episode_steps"}
        return cartpole.array(name, task, own)

    def make(**more: Any) -> Any:
        try:
            with quiet():
                env = gymnasium.make(spec, **{"disable_env_checker": True, **options, **more})
                return wrap(env) if wrap else env
        except RAISED as error:
            raise not_made(name, error) from error

    return single(name, make, _creator(spec))


def single(name: str, make: Callable[..., Any], creator: Any = None, made: Any = None) -> Source:
    """Returns the environment of which ``make`` makes a copy, by calling ``creator`` (`drawn`).

    ``made`` is the first copy, if it has been made already. If its spaces and rewards have a part for each of several
    agents (`teams.agents_of`), it is an environment of these.
    """
    first = drawn(make, creator)(plan().pictures) if made is None else made
    try:
        agents = teams.agents_of(first)
    except RAISED:
        agents = []  # told by `look`
    if agents:
        team = lambda **more: teams.Team(make(**more), agents)
        return pettingzoo.parallel(name, team, creator, teams.Team(first, agents))
    copies = Copies(name, drawn(make, creator))
    copies.look(plan().pictures, made=first)
    seen = look(name, first)

    def rows(num_envs: int, pictures: bool = False) -> Rows:
        opened: Rows = copies.rows(lambda envs: serial(envs, seen), num_envs, pictures)
        return opened

    return Source(
        **seen.fields(name),
        rows=rows,
        fps=float(metadata(first).get("render_fps") or 30),
        copies=copies,
        limit=_limit(first),
    )


def _limit(env: Any) -> int:
    """Returns the least number of steps at which a TimeLimit among the wrappers of ``env`` truncates; 0: there is none.

    It is not looked for within a vector environment.
    """
    steps = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            steps.append(env._max_episode_steps)
        env = env.env
    return min(steps, default=0)


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


def _plugged(task: str) -> bool:
    """Imports the packages whose entry points say that they register environments; returns whether ``task`` is one."""
    for point in importlib.metadata.entry_points(group="gymnasium.envs"):
        with contextlib.suppress(*RAISED), quiet():
            register = point.load()
            if callable(register):
                register()
        if task in gymnasium.registry:
            return True
    return False


def _creator(spec: Any) -> Any:
    """Returns the class or function that makes a registered environment; None if it cannot be imported."""
    try:
        return spec.entry_point if callable(spec.entry_point) else load_env_creator(str(spec.entry_point))
    except RAISED:  # the error is raised again when the environment is made
        return None


def _check(name: str, spec: Any, given: Iterable[str]) -> None:
    """Raises `ConfigError` for parameters that the environment does not have, if its parameters can be inspected."""
    try:
        parameters = inspect.signature(_creator(spec)).parameters
    except RAISED:  # the error is raised again when the environment is created
        return
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        own = {*parameters, *MAKE, *(("vector",) if spec.id in cartpole.TASKS else ())}
        check_parameters(name, given, own - {"render_mode"})
