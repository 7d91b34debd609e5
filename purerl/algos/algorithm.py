"""What an algorithm is: a value that names its parts. Each file of this folder ends in one."""

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Unpack

import jax
import numpy as np

from purerl import config as cfg
from purerl import loops
from purerl.curricula import settings as curricula
from purerl.curricula.teacher import BUILDING
from purerl.envs import agents
from purerl.errors import ConfigError
from purerl.learners.parts import given_parts, learner_checks, time_aware, warm_start
from purerl.learners.wrappers import TABLE, Wrapper, wrapper
from purerl.loops.settings import Loop
from purerl.replay.fixed import unchecked_problems
from purerl.types import Env, Key, Learner, PyTree, Result, Trainer

P = ParamSpec("P")
NO_PRESETS: Mapping[str, dict[str, Any]] = {}


def rows(config: Loop, env: Env) -> Env:
    """Returns ``env`` as algorithms see it by default: each agent is a row of its own observations (`agents.own`)."""
    return agents.own(env)


def rows_and_state(config: Loop, env: Env) -> Env:
    """Returns ``env`` as actor-critics see it: that of `rows`, unless the critic sees more than the policy.

    There (`agents.critic_sees_more`) observations are ``{"own": for the actor, "state": for the critic}``.
    """
    return agents.with_state(env) if agents.critic_sees_more(env) else rows(config, env)


NO_TEAM = rows, rows_and_state
"""The views of algorithms that train no team: each agent is a row, and one agent is enough."""


def part_names(make_learner: Callable[..., Learner]) -> list[str] | None:
    """Returns the names of the parts that a function ``(config, env, **parts)`` takes; None: it takes any name."""
    names: list[str] = []
    for parameter in list(inspect.signature(make_learner).parameters.values())[2:]:
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.append(parameter.name)
        elif typing.get_origin(parameter.annotation) is Unpack:
            names += typing.get_type_hints(typing.get_args(parameter.annotation)[0])
        else:
            return None
    return names


class Algorithm(NamedTuple, Generic[P]):
    """An algorithm as a value. A variant is ``ppo._replace(...)``.

    - ``name``: What the command line and files of runs call it.
    - ``own_config``: The class of its own settings, a frozen dataclass made by `purerl.config.config`.
    - ``own_problems(config, env)``: The reasons why a config cannot train on an environment (None: not known), a line
      each.
    - ``own_learner(config, env, **parts)``: Makes its `Learner`; the ``parts`` are a network, a loss, an optimiser.
      Editors and type checkers read the parts off its signature.
    - ``loop(config, env, learner)``: Makes a `Trainer`. It also takes a ``teacher`` where a config asks for one, and
      the ``datasets``.
    - ``sockets``: The names of the places for a learned function (`purerl.learned.sockets`).
    - ``presets``: Fields of the config that belong together, by name.
    - ``view(config, env)``: The environment as the algorithm sees it, which matters if there are several agents. Its
      learner learns and is evaluated in this view.
    - ``datasets``: The names of the parts that are datasets of play (`types.Dataset`) in this view, which ``loop``
      takes. A training can do without those for which it has a default (`required`).
    - ``wrappers``: What a config may ask to have put around its learner (`purerl.learners.wrappers`).

    `Config`, `problems` and `make_learner` are those of the algorithm and its wrappers together.
    """

    name: str
    own_config: type
    own_problems: Callable[[Any, Env | None], list[str]]
    own_learner: Callable[Concatenate[Any, Env, P], Learner]  # (config, env, **parts)
    loop: Callable[..., Trainer]  # (config, env, learner, **datasets)
    sockets: tuple[str, ...] = ()
    presets: Mapping[str, dict[str, Any]] = NO_PRESETS
    view: Callable[[Any, Env], Env] = rows
    datasets: tuple[str, ...] = ()
    wrappers: tuple[Wrapper, ...] = TABLE

    def __repr__(self) -> str:
        return f"Algorithm({self.name!r})"

    def __hash__(self) -> int:
        return hash((self.name, self.own_config, self.own_learner, self.wrappers))

    @property
    def Config(self) -> Any:
        """The class of configs: the algorithm's own settings, and those of the wrappers that fit around its learner."""
        return wrapper.composed(self.own_config, self.wrappers)

    @property
    def required(self) -> tuple[str, ...]:
        """The ``datasets`` without which there is no training: those for which ``loop`` has no default."""
        taken = inspect.signature(self.loop).parameters
        optional = [name for name, parameter in taken.items() if parameter.default is not parameter.empty]
        return tuple(name for name in self.datasets if name not in optional)

    def wrapped(self, *wrappers: Wrapper) -> "Algorithm[P]":
        """Returns the algorithm with ``wrappers`` added outside of all others."""
        return self._replace(wrappers=(*self.wrappers, *wrappers))

    def warm_start(self, policy: PyTree, critics: dict[str, PyTree] | None = None) -> "Algorithm[P]":
        """Returns the algorithm with trainings that begin with the parameters and moments of a policy.

        All else is new, the teacher of a curriculum included. A training raises `ConfigError` if the policy or a critic
        is of another kind than its own (`warm_start.warm`).

        Args:
            policy: A policy as `Learner.policy` returns it.
            critics: Critics by name as `Learner.critics` returns them, or some of them; None: new ones.
        """
        own, begin = self.own_learner, warm_start.Beginning(policy, critics or {})

        @functools.wraps(own)
        def begun(config: Loop, env: Env, *args: P.args, **parts: P.kwargs) -> Learner:
            made = own(config, env, *args, **parts)
            return made if env.name == BUILDING else warm_start.warm(made, begin)

        changed: Any = begun
        return self._replace(own_learner=changed)

    def problems(self, config: Loop, env: Env | None) -> list[str]:
        """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

        They are those of single fields, and those of several together. For the latter a field that is wrong by itself
        has its default, and no line is about it. They are left out if a count is wrong, since others follow from it.
        """
        if mistaken := self._mistaken(config, env):
            return mistaken
        of_fields = cfg.problems(config)
        defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(config)}
        wrong = {name: defaults[name] for name in (line.partition(" = ")[0] for line in of_fields)}
        if any(type(default) is int or default is dataclasses.MISSING for default in wrong.values()):
            return of_fields
        together = self._problems_of_several(dataclasses.replace(config, **wrong), env)
        return of_fields + [line for line in together if wrong.keys().isdisjoint(re.findall(r"\w+", line))]

    def _problems_of_several(self, config: Loop, env: Env | None) -> list[str]:
        """Returns `problems` of a config whose fields are valid."""
        problems: list[str] = self.own_problems(config, env)
        view = env if problems or env is None else self.view(config, env)
        if isinstance(config, curricula.CurriculumSettings):
            problems += curricula.problems(config, view)
            if view is not None and (of_teacher := curricula.teacher(config, view)):
                lines = cfg.problems(of_teacher[0]) or self.own_problems(*of_teacher)
                problems += [f"the teacher: {line}" for line in lines]
        return problems + wrapper.problems(self.own_config, self.wrappers, config, view)

    def make_learner(self, config: Loop, env: Env, *args: P.args, **parts: P.kwargs) -> Learner:
        """Makes the learner for ``env`` in the algorithm's `view`, inside of the wrappers that ``config`` asks for.

        Raises:
            ConfigError: If ``config`` or ``env`` is something else, if ``parts`` has a name that is no part of the
                algorithm, or if a part does not fit.
        """
        known = part_names(self.own_learner)
        if known is not None and (unknown := [name for name in parts if name not in known]):
            listed = ", ".join(known) or "none"
            raise ConfigError("\n".join(f"{name}: {self.name} has no such part; it has {listed}" for name in unknown))
        if mistaken := self._mistaken(config, env):
            raise ConfigError("\n".join(mistaken))
        if self.own_learner.__module__.startswith("purerl."):  # others' parts may have other forms
            given_parts.check(config, parts)
        view = self.view(config, env)
        make: Any = functools.partial(self.own_learner, config, view, *args)
        timed = any(isinstance(part, time_aware.Timed) for part in parts.values())
        own: Any = time_aware.aging(config, make, dict(parts)) if timed else make(**parts)
        if not isinstance(own, Learner):
            kind = type(own).__name__
            raise ConfigError(f"{self.name}: own_learner: must return a purerl.types.Learner, but returns {kind}")
        return wrapper.wrapped(self.wrappers, config, view, own)

    def make_trainer(self, config: Loop, env: Env, *args: P.args, **parts: P.kwargs) -> Trainer:
        """Makes one iteration of a training as a `Trainer`.

        Args:
            config: Settings; traced fields are not checked.
            env: The environment itself; the algorithm's `view` is applied to it here.
            *args: Always empty; a `ParamSpec` needs it.
            **parts: Parts of the learner by name, and ``datasets``, at least those that are `required`: a
                `types.Dataset`, which becomes a constant of the program, or what `replay.held` makes of it, which may
                be an argument; for a training from recorded play alone also what `replay.streamed` makes of it, which
                `train_in_chunks` streams from the host.

        Raises:
            ConfigError: A line for each of the `problems`, for each dataset that is missing or does not fit, or for
                each name that is no part.
        """
        lacking = [name for name in self.required if parts.get(name) is None]
        lines = [f"{name}: {self.name} learns from a dataset of play; there is none" for name in lacking]
        if problems := self.problems(config, env) or lines:
            raise ConfigError("\n".join(problems))
        view = self.view(config, env)
        given: dict[str, Any] = {name: parts.pop(name, None) for name in self.datasets}
        data = {name: dataset for name, dataset in given.items() if dataset is not None}
        spaces = view.observation_space, view.action_space
        if problems := [f"{name}: {line}" for name, x in data.items() for line in unchecked_problems(x, *spaces)]:
            raise ConfigError("\n".join(problems))
        learner = learner_checks.checked(self.name, self.make_learner(config, env, *args, **parts))
        if isinstance(config, curricula.CurriculumSettings) and (of_teacher := curricula.teacher(config, view)):
            without_parts: Callable[..., Learner] = self.own_learner
            data["teacher"] = without_parts(*of_teacher)
        return self.loop(config, view, learner, **data)

    def make_train(self, config: Loop, env: Env, *args: P.args, **parts: P.kwargs) -> Callable[[Key], Result]:
        """Makes the whole training, a function ``train(key) -> Result`` that can be jitted and vmapped.

        Args:
            config: Settings, whose length must be a Python int, because the result has a row of metrics for each
                iteration.
            env: The environment itself.
            *args: Always empty; a `ParamSpec` needs it.
            **parts: Arguments of `make_trainer`.

        Raises:
            ConfigError: As `make_trainer` does, and for a length that is no int.
        """
        trainer = self.make_trainer(config, env, *args, **parts)
        if isinstance(config.num_iterations, jax.Array | np.floating):
            raise ConfigError(
                f"total_steps = {config.total_steps}: must be a Python int, which sets the number of rows of metrics"
            )
        return loops.train(trainer, config.num_iterations)

    def _mistaken(self, config: object, env: object) -> list[str]:
        """Returns a line for a config that is not this algorithm's, and one for an environment that is none."""
        if isinstance(config, Env) and isinstance(env, self.own_config):
            return ["config, env: are swapped; give (config, env)"]
        lines, must = [], f"must be a Config of {self.name}"
        if isinstance(config, type) and issubclass(config, self.own_config):
            lines.append(f"config: is the class {config.__name__}; {must}, as {config.__name__}() makes")
        elif not isinstance(config, self.own_config):
            lines.append(f"config: is {type(config).__name__}; {must}")
        if isinstance(env, str):
            lines.append(f"env: is the name {env!r}; must be an Env, as purerl.envs.make({env!r}) makes")
        elif env is not None and not isinstance(env, Env):
            how = "" if callable(env) else "; purerl.envs.make makes one of an environment of Gymnasium that has a name"
            lines.append(f"env: is {type(env).__name__}; must be an Env{how}")
        return lines

    def preset(self, name: str) -> Any:
        """Returns the config with the preset ``name``. Raises `ConfigError` if there is none."""
        if name not in self.presets:
            known = ", ".join(self.presets) or "none"
            raise ConfigError(f"preset = {name!r}: {self.name} has no such preset; it has {known}")
        return self.Config(**self.presets[name])
