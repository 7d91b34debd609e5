"""What a wrapper of learners is, and the rules for combining several."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from purerl import config as cfg
from purerl.errors import ConfigError
from purerl.learners.parts.nesting import inside
from purerl.learners.parts.settings import EVERY_DECISION
from purerl.loops.settings import Loop
from purerl.types import Env, Learner

__all__ = ["Wrapper", "Wrappers", "added", "composed", "inside", "offered", "problems", "wrapped"]


class Wrapper(NamedTuple):
    """A function around any learner, with settings of its own.

    - ``name``: The heading of ``Settings`` in the help of every algorithm that offers what the wrapper ``needs``.
    - ``setting``: The field of ``Settings``, no float, by which a config asks for the wrapper: with any of the values
      ``on`` or, if there are none, with any but ``off``.
    - ``wrap(config, env, learner)``: Makes the `Learner`.
    - ``problems(config, env)``: The reasons why it cannot be made (env None: not known), a line each.
    - ``needs``: What the learner inside must offer.
    - ``withholds``: What wrappers inside of this one cannot have.
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

    def value(self, config: Loop) -> Any:
        """Returns the wrapper's setting in ``config``, or ``off`` if ``config`` lacks it."""
        return getattr(config, self.setting, self.off)

    def enabled(self, config: Loop) -> bool:
        """Tells whether ``config`` asks for the wrapper."""
        value = self.value(config)
        return bool(value in self.on if self.on else value != self.off)


Wrappers = tuple[Wrapper, ...]
"""Wrappers in the order in which they are put around a learner: the first is the innermost."""


def offered(own: type) -> set[str]:
    """Returns what learners of configs of the class ``own`` offer: the ``offers`` of all classes that it extends."""
    return {EVERY_DECISION, *(name for base in own.__mro__ for name in vars(base).get("offers", ()))}


def added(own: type, wrappers: Wrappers) -> Wrappers:
    """Returns the wrappers that fit around learners of configs of the class ``own``.

    Those whose settings ``own`` extends already are left out.
    """
    fitting = [each for each in wrappers if offered(own).issuperset(each.needs)]
    return tuple(each for each in fitting if not issubclass(own, each.Settings))


@functools.cache
def composed(own: type, wrappers: Wrappers) -> type:
    """Makes the class of configs with the fields of ``own`` and those of the wrappers that are `added`.

    Raises:
        ConfigError: If a field of a wrapper exists already.
    """
    known = {field.name for field in dataclasses.fields(own)}
    bases: list[type] = [own]
    for each in added(own, wrappers):
        names = {field.name for field in dataclasses.fields(each.Settings)}
        if twice := ", ".join(sorted(names & known)):
            raise ConfigError(
                f"wrapper = {each.name!r}: its settings {twice} are also settings of the algorithm or another wrapper"
            )
        known |= names
        bases.insert(0, each.Settings)
    namespace = {"__doc__": own.__doc__, "__module__": own.__module__, "__qualname__": own.__qualname__}
    return cfg.config(type(own.__name__, tuple(bases), namespace)) if len(bases) > 1 else own


def problems(own: type, wrappers: Wrappers, config: Loop, env: Env | None) -> list[str]:
    """Returns the reasons why the wrappers that ``config`` asks for cannot be put around a learner, a line each.

    They are the problems of each wrapper, and what a wrapper needs and does not get.

    Args:
        own: Class of the algorithm's own configs.
        wrappers: All wrappers of the algorithm.
        config: Settings.
        env: The environment; None: not known.
    """
    enabled = [each for each in wrappers if each.enabled(config)]
    problems = []
    for i, each in enumerate(enabled):
        given = f"{each.setting} = {each.value(config)!r}"
        if lacking := [need for need in each.needs if need not in offered(own)]:
            problems.append(f"{given}: needs {' and '.join(lacking)}")
            continue
        for other in enabled[i + 1 :]:
            if withheld := [need for need in each.needs if need in other.withholds]:
                beside = f"{other.setting} = {other.value(config)!r}"
                problems.append(f"{given}: must be {each.off!r} with {beside}; it needs {' and '.join(withheld)}")
        problems += each.problems(config, env)
    return problems


def wrapped(wrappers: Sequence[Wrapper], config: Loop, env: Env, learner: Learner) -> Learner:
    """Puts those wrappers around ``learner`` that ``config`` asks for.

    Raises:
        ConfigError: One of them returns no `Learner`.
    """
    for each in wrappers:
        if each.enabled(config):
            learner = each.wrap(config, env, learner)
            if not isinstance(learner, Learner):
                kind = type(learner).__name__
                raise ConfigError(f"wrapper = {each.name!r}: wrap must return a purerl.types.Learner; returns {kind}")
    return learner
