"""What a wrapper of learners is, and what follows from what each of them needs."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from purerl import config as cfg
from purerl.errors import ConfigError
from purerl.learners.parts.settings import EVERY_DECISION
from purerl.types import Env, Key, Learner, Metrics, Transition


class Wrapper(NamedTuple):
    """A function around any learner, with settings of its own.

    ``name`` is the heading of ``Settings`` in the help of every algorithm that offers what the wrapper ``needs``.
    ``setting``, which is no float, asks for it with any of the values ``on``, or if there are none with any but
    ``off``. ``wrap(config, env, learner)`` makes the `Learner`, and ``problems(config, env)`` says why it cannot (env
    None: not known), a line each. A wrapper ``withholds`` from those inside of it what they may need.
    """

    name: str
    Settings: type
    setting: str
    off: Any
    wrap: Callable[[Any, Env, Learner], Learner]
    on: tuple[Any, ...] = ()
    problems: Callable[[Any, Env | None], list[str]] = lambda config, env: []
    needs: tuple[str, ...] = ()
    withholds: tuple[str, ...] = ()

    def value(self, config: Any) -> Any:
        """Its setting in ``config``, or ``off`` if that has none."""
        return getattr(config, self.setting, self.off)

    def asked(self, config: Any) -> bool:
        """Whether ``config`` asks for it."""
        value = self.value(config)
        return bool(value in self.on if self.on else value != self.off)


Wrappers = tuple[Wrapper, ...]
"""In the order in which they are put around a learner: the first is the innermost."""


def offered(own: type) -> set[str]:
    """What learners of configs of the class ``own`` offer: the ``offers`` of all that it extends."""
    return {EVERY_DECISION, *(name for base in own.__mro__ for name in vars(base).get("offers", ()))}


def added(own: type, wrappers: Wrappers) -> Wrappers:
    """Those that can be put around learners of configs of the class ``own``, unless it extends their settings."""
    fitting = [each for each in wrappers if offered(own).issuperset(each.needs)]
    return tuple(each for each in fitting if not issubclass(own, each.Settings))


@functools.cache
def composed(own: type, wrappers: Wrappers) -> type:
    """The class of configs with the fields of ``own``, and after them those of the wrappers that are `added`.

    Raises `ConfigError` if a wrapper has a setting that there is already.
    """
    known = {field.name for field in dataclasses.fields(own)}
    bases: list[type] = [own]
    for each in added(own, wrappers):
        names = {field.name for field in dataclasses.fields(each.Settings)}
        if twice := ", ".join(sorted(names & known)):
            raise ConfigError(f"wrapper = {each.name!r}: its settings {twice} are settings of something else already")
        known |= names
        bases.insert(0, each.Settings)
    namespace = {"__doc__": own.__doc__, "__module__": own.__module__, "__qualname__": own.__qualname__}
    return cfg.config(type(own.__name__, tuple(bases), namespace)) if len(bases) > 1 else own


def problems(own: type, wrappers: Wrappers, config: Any, env: Env | None) -> list[str]:
    """Why the wrappers that ``config`` asks for cannot be put around a learner of the class ``own`` of configs, a line
    each: what each says itself, and what it needs and does not get."""
    asked = [each for each in wrappers if each.asked(config)]
    found = []
    for i, each in enumerate(asked):
        given = f"{each.setting} = {each.value(config)!r}"
        if lacking := [need for need in each.needs if need not in offered(own)]:
            found.append(f"{given}: needs {' and '.join(lacking)}")
            continue
        for other in asked[i + 1 :]:
            if withheld := [need for need in each.needs if need in other.withholds]:
                beside = f"{other.setting} = {other.value(config)!r}"
                found.append(f"{given}: must be {each.off!r} with {beside}; it needs {' and '.join(withheld)}")
        found += each.problems(config, env)
    return found


def inside(learner: Learner, **functions: Any) -> Learner:
    """A learner whose state has that of ``learner`` in its field ``learner``: the same, but for ``functions``."""

    def observe(state: Any, trajectory: Transition, key: Key) -> tuple[Any, Metrics]:
        observed, metrics = learner.observe(state.learner, trajectory, key)
        return state._replace(learner=observed), metrics

    same = {
        "behaviour": lambda state: learner.behaviour(state.learner),
        "policy": lambda state: learner.policy(state.learner),
        "observe": observe,
    }
    return learner._replace(**{**same, **functions})


def wrapped(wrappers: Sequence[Wrapper], config: Any, env: Env, learner: Learner) -> Learner:
    """``learner`` inside of those wrappers that ``config`` asks for."""
    for each in wrappers:
        if each.asked(config):
            learner = each.wrap(config, env, learner)
    return learner
