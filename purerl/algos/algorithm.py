"""What an algorithm is: a value that names its parts. Each file of this folder ends in one."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from purerl import loops, replay
from purerl.envs import agents
from purerl.errors import ConfigError
from purerl.types import Env, Key, Learner, Result, Trainer

NO_PRESETS: Mapping[str, dict[str, Any]] = {}


def rows(config: Any, env: Env) -> Env:
    """Each agent is a row, and sees its own observations (`agents.own`)."""
    return agents.own(env)


class Algorithm(NamedTuple):
    """An algorithm as a value. A variant is ``ppo._replace(...)``.

    ``Config`` is a frozen dataclass made by `purerl.config.config`; ``problems(config, env)`` lists why a config cannot
    train on an environment (None: not known), a line each. ``loop(config, env, learner)`` makes a `Trainer`, and
    ``parts`` are whatever else ``make_learner`` takes: a network, a loss, an optimiser. ``sockets`` names the places
    for a learned function (`purerl.learned.sockets`), and ``presets`` are fields of the config that belong together.
    ``view(config, env)`` is how the algorithm sees an environment of several agents: what it makes learns and is
    evaluated in this view. ``datasets`` names the parts that are datasets of play (`types.Dataset`) in this view: its
    trainings need them, and ``loop`` takes them beside the learner.
    """

    name: str
    Config: type
    problems: Callable[[Any, Env | None], list[str]]
    make_learner: Callable[..., Learner]  # (config, env, **parts)
    loop: Callable[..., Trainer]  # (config, env, learner, **datasets)
    sockets: tuple[str, ...] = ()
    presets: Mapping[str, dict[str, Any]] = NO_PRESETS
    view: Callable[[Any, Env], Env] = rows
    datasets: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.name, self.Config, self.make_learner))

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
        return self.loop(config, seen, self.make_learner(config, seen, **parts), **data)

    def make_train(self, config: Any, env: Env, **parts: Any) -> Callable[[Key], Result]:
        """The whole training, ``train(key) -> Result``, to jit and vmap. Raises as `make_trainer` does."""
        return loops.train(self.make_trainer(config, env, **parts), config.num_iterations)

    def preset(self, name: str) -> Any:
        """The config with the preset ``name``. Raises `ConfigError` if there is none."""
        if name not in self.presets:
            known = ", ".join(self.presets) or "none"
            raise ConfigError(f"preset = {name!r}: {self.name} has no such preset; it has {known}")
        return self.Config(**self.presets[name])
