"""What an algorithm is: a value that names its parts. Each file of this folder ends in one."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import loops, replay
from purerl.curricula.teacher import BUILDING
from purerl.envs import agents
from purerl.errors import ConfigError
from purerl.learners.parts import contract, teaching, warm_start
from purerl.learners.wrappers import TABLE, Wrapper, wrapper
from purerl.types import Env, Key, Learner, PyTree, Result, Trainer

NO_PRESETS: Mapping[str, dict[str, Any]] = {}


def rows(config: Any, env: Env) -> Env:
    """Each agent is a row, and sees its own observations (`agents.own`)."""
    return agents.own(env)


class Algorithm(NamedTuple):
    """An algorithm as a value. A variant is ``ppo._replace(...)``.

    What is its own are a class of configs, a frozen dataclass made by `purerl.config.config`; ``own_problems(config,
    env)``, why a config cannot train on an environment (None: not known), a line each; and ``own_learner(config, env,
    **parts)``, whose ``parts`` are a network, a loss, an optimiser. Around its learner are put those of ``wrappers``
    that a config asks for (`purerl.learners.wrappers`): `Config`, `problems` and `make_learner` are of all together.

    ``loop(config, env, learner)`` makes a `Trainer`, and also takes a ``teacher`` where a config asks for one.
    ``sockets`` names the places for a learned function (`purerl.learned.sockets`), and ``presets`` are fields of the
    config that belong together. ``view(config, env)`` is how the algorithm sees an environment of several agents: what
    it makes learns and is evaluated in this view.
    ``datasets`` names the parts that are datasets of play (`types.Dataset`) in this view: its trainings need them, and
    ``loop`` takes them beside the learner.
    """

    name: str
    own_config: type
    own_problems: Callable[[Any, Env | None], list[str]]
    own_learner: Callable[..., Learner]  # (config, env, **parts)
    loop: Callable[..., Trainer]  # (config, env, learner, **datasets)
    sockets: tuple[str, ...] = ()
    presets: Mapping[str, dict[str, Any]] = NO_PRESETS
    view: Callable[[Any, Env], Env] = rows
    datasets: tuple[str, ...] = ()
    wrappers: tuple[Wrapper, ...] = TABLE

    def __hash__(self) -> int:
        return hash((self.name, self.own_config, self.own_learner, self.wrappers))

    @property
    def Config(self) -> Any:
        """The class of its configs: its own settings, and those of the wrappers that fit around its learner."""
        return wrapper.composed(self.own_config, self.wrappers)

    def wrapped(self, *wrappers: Wrapper) -> "Algorithm":
        """The same with ``wrappers`` around all others."""
        return self._replace(wrappers=(*self.wrappers, *wrappers))

    def warm_start(self, policy: PyTree) -> "Algorithm":
        """The same, whose trainings begin with the parameters and moments of ``policy``, what `Learner.policy` gives,
        and are new in all else, a teacher of levels too. They raise `ConfigError` for the policy of another kind
        (`warm_start.warm`)."""
        own = self.own_learner

        def begun(config: Any, env: Env, **parts: Any) -> Learner:
            made = own(config, env, **parts)
            return made if env.name == BUILDING else warm_start.warm(made, policy)

        return self._replace(own_learner=begun)

    def problems(self, config: Any, env: Env | None) -> list[str]:
        """Why ``config`` cannot train on ``env`` (None: not known), a line each."""
        found: list[str] = self.own_problems(config, env)
        seen = env if found or env is None else self.view(config, env)
        if seen is not None and (of_teacher := teaching.teacher(config, seen)):
            found += [f"the teacher: {line}" for line in self.own_problems(*of_teacher)]
        return found + wrapper.problems(self.own_config, self.wrappers, config, seen)

    def make_learner(self, config: Any, env: Env, **parts: Any) -> Learner:
        """Its learner in ``env``, seen in its `view`, inside of the wrappers that ``config`` asks for."""
        seen = self.view(config, env)
        return wrapper.wrapped(self.wrappers, config, seen, self.own_learner(config, seen, **parts))

    def make_trainer(self, config: Any, env: Env, **parts: Any) -> Trainer:
        """One iteration as a `Trainer`.

        Raises `ConfigError`, a line for each problem, for what can be seen: traced fields are not looked at.
        """
        lacking = [name for name in self.datasets if name not in parts]
        lines = [f"{name}: {self.name} learns from a dataset of play; there is none" for name in lacking]
        if found := self.problems(config, env) or lines:
            raise ConfigError("\n".join(found))
        seen = self.view(config, env)
        data = {name: parts.pop(name) for name in self.datasets}
        spaces = seen.observation_space, seen.action_space
        if found := [f"{name}: {line}" for name in data for line in replay.dataset_problems(data[name], *spaces)]:
            raise ConfigError("\n".join(found))
        learner = contract.kept(self.name, self.make_learner(config, env, **parts))
        if of_teacher := teaching.teacher(config, seen):
            data["teacher"] = self.own_learner(*of_teacher)
        return self.loop(config, seen, learner, **data)

    def make_train(self, config: Any, env: Env, **parts: Any) -> Callable[[Key], Result]:
        """The whole training, ``train(key) -> Result``, to jit and vmap. Raises as `make_trainer` does, and
        `ConfigError` for a length that is no int: the result has a row of metrics for each iteration."""
        if isinstance(config.num_iterations, jax.Array | np.floating):
            raise ConfigError(
                f"total_steps = {config.total_steps}: must be a Python int, for a row of metrics an iteration"
            )
        return loops.train(self.make_trainer(config, env, **parts), config.num_iterations)

    def preset(self, name: str) -> Any:
        """The config with the preset ``name``. Raises `ConfigError` if there is none."""
        if name not in self.presets:
            known = ", ".join(self.presets) or "none"
            raise ConfigError(f"preset = {name!r}: {self.name} has no such preset; it has {known}")
        return self.Config(**self.presets[name])
