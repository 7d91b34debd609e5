"""How `reset` and `step` of Gymnasium's environments are read where they do not follow its present interface.

It is decided by the first reset and the first step. What follows the interface is then called as it is.
"""

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.utils import seeding

from purerl.hosts.sound import InvalidData

_BOTH = frozenset(("seed", "options"))


class Reader(gymnasium.Wrapper):
    """A wrapper that calls the layer within as it wants to be called, and returns what Gymnasium's interface says.

    ``reset`` need not take a seed or options, nor return an info; ``step`` may return four values, whose ``done`` is a
    termination unless ``info["TimeLimit.truncated"]``. ``notes`` say what a user should know of it, and
    ``is_plain`` whether the layer has followed the interface so far.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        self.takes, self.needs = parameters(env.reset)
        self.is_plain, self.notes = self.takes == _BOTH, []
        if "seed" not in self.takes:
            self.notes.append(
                f"{where(env, 'reset')} takes no seed: its np_random is seeded instead, and what is drawn from"
                " elsewhere is not determined by seeds"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode. Raises `InvalidData` if the layer returns something else."""
        if self.needs:
            raise InvalidData(
                f"{where(self.env, 'reset')} must be callable with seed and options alone; needs {self.needs}"
            )
        if seed is not None and "seed" not in self.takes:
            seeded(self.env, seed)
        given: Any = {name: value for name, value in (("seed", seed), ("options", options)) if name in self.takes}
        result = self.env.reset(**given)
        if self._is_observation(result):
            self.is_plain = False
            return result, {}
        if not begun(result):
            raise not_a_reset(self.env, result)
        return result[0], self._info(result[1])

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the layer. Raises `InvalidData` if it returns something else."""
        result = self.env.step(action)
        if isinstance(result, tuple | list) and len(result) == 5:
            return (*result[:4], self._info(result[4]))
        if isinstance(result, tuple | list) and len(result) == 4:
            obs, reward, done, info = result
            self.is_plain, info = False, self._info(info)
            cut = bool(done) and bool(info.get("TimeLimit.truncated", False))
            return obs, reward, bool(done) and not cut, cut, info
        raise not_a_step(self.env, result)

    def _info(self, info: Any) -> dict[str, Any]:
        self.is_plain = self.is_plain and isinstance(info, dict)
        return {} if info is None else info

    def _is_observation(self, result: Any) -> bool:
        """Returns whether ``result`` is an observation without an info."""
        space = getattr(self.env, "observation_space", None)
        if isinstance(space, spaces.Tuple):
            return bool(space.contains(result))
        return result is not None and not isinstance(result, tuple)


def begun(result: Any) -> bool:
    """Returns whether ``result`` may be an observation and an info."""
    if not isinstance(result, tuple) or len(result) != 2:
        return False
    return type(result[1]) is dict or result[1] is None or isinstance(result[1], Mapping)


def not_a_reset(env: Any, result: Any) -> InvalidData:
    """Returns the error of a ``reset`` that returned ``result``."""
    return InvalidData(f"{where(env, 'reset')} returns {_kind(result)}, must return (observation, info)")


def not_a_step(env: Any, result: Any, row: int | None = None) -> InvalidData:
    """Returns the error of a ``step`` of environment ``row`` that returned ``result``."""
    wanted = "(observation, reward, terminated, truncated, info)"
    return InvalidData(f"{where(env, 'step')} returns {_kind(result)}, must return {wanted}", row)


def read(env: Any) -> Any:
    """Returns ``env`` with a `Reader` around each of its layers that is not Gymnasium's own."""
    outer: Any = None
    layer: Any = env
    while isinstance(layer, gymnasium.Env):
        is_read = isinstance(layer, Reader) or isinstance(outer, Reader)
        if not is_read and not all(_is_gymnasiums(getattr(type(layer), name)) for name in ("reset", "step")):
            reader = Reader(layer)
            if outer is None:
                env = reader
            else:
                with contextlib.suppress(AttributeError):  # what it wraps cannot be replaced
                    outer.env = reader
        outer, layer = layer, layer.env if isinstance(layer, gymnasium.Wrapper) else None
    return env


def _is_gymnasiums(method: Any) -> bool:
    return bool(method.__module__.startswith("gymnasium."))


def settled(env: Any) -> Any:
    """Returns ``env`` without the readers whose layers follow the interface."""
    outer, layer = None, env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, Reader) and layer.is_plain:
            layer = layer.env
            if outer is None:
                env = layer
            else:
                outer.env = layer
        else:
            outer, layer = layer, layer.env
    return env


def readers(env: Any) -> list[Reader]:
    """Returns the readers around the layers of a single environment."""
    found = []
    while isinstance(env, gymnasium.Wrapper):
        found += [env] if isinstance(env, Reader) else []
        env = env.env
    return found


def layers(env: Any) -> Iterator[Any]:
    """Returns ``env``, single or a vector, and what it wraps, without readers; of a vector the first environment's."""
    seen: list[Any] = []
    while env is not None and not any(env is each for each in seen):
        seen.append(env)
        if not isinstance(env, Reader):
            yield env
        inside = vars(env).get("env") if hasattr(env, "__dict__") else None
        copies = vars(env).get("envs") if hasattr(env, "__dict__") else None
        env = inside if inside is not None else copies[0] if isinstance(copies, list | tuple) and copies else None


def parameters(reset: Any) -> tuple[frozenset[str], list[str]]:
    """Returns which of seed and options a function ``reset`` takes, and the names of others that it needs."""
    try:
        each = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):
        return _BOTH, []
    named = [one for one in each if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needs = [
        one.name for one in each if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    if any(one.kind is one.VAR_KEYWORD for one in each):
        return _BOTH, [name for name in needs if name not in _BOTH]
    return _BOTH & {one.name for one in named}, [name for name in needs if name not in _BOTH]


def seeded(env: Any, seed: int) -> None:
    """Makes an environment whose ``reset`` takes no seed begin from one, by its method ``seed`` and ``np_random``."""
    base = env.unwrapped
    if callable(getattr(base, "seed", None)):
        base.seed(seed)
    base.np_random = seeding.np_random(seed)[0]


def where(env: Any, method: str) -> str:
    """Returns the class, the method, and the file and line that it stands in."""
    code = getattr(inspect.unwrap(getattr(type(env), method)), "__code__", None)
    place = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
    return f"{type(env).__name__}.{method}{place}"


def _kind(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
