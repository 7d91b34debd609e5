"""Descriptions of searches, and the evolutions that they stand for."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from purerl import config as cfg
from purerl import envs, trees
from purerl.algos import ALGORITHMS, read_config
from purerl.envs.hosted import on_device
from purerl.envs.union import union
from purerl.errors import ConfigError, own_code
from purerl.learned import ENV_SOCKET_NAMES, artefacts, sockets
from purerl.meta import evolution, meta_gradient, strategies
from purerl.runs.describing.config_file import FRESH, ConfigFile, Start
from purerl.runs.describing.description import Description, Problems, env_options, file_name, usual
from purerl.runs.describing.environments import checked
from purerl.store import trusted_modules
from purerl.types import Env


@dataclasses.dataclass(frozen=True)
class SearchDescription(Description):
    """What a search is to do.

    ``strategy`` has the arguments of `strategies.make` with the strategy's name, and ``settings`` those of the socket
    (`sockets.settings`). A task is an environment and a lifetime, as a fraction of the config's ``total_steps``.
    ``initial`` is the artefact at which the search begins, as `artefacts.to_json` writes it; empty: as the socket does.
    """

    socket: str
    envs: list[str]
    strategy: dict[str, Any]
    population: int
    num_seeds: int
    generations: int
    seed: int
    lanes: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    tasks: str = "shared"
    lifetimes: Sequence[float] = (1.0,)
    initial: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """A short name for files, made of the socket and the algorithm."""
        return file_name(self.socket, self.algo)

    @property
    def made_config(self) -> Any:
        """The config of the algorithm."""
        return read_config(self.algo, self.config)

    @property
    def made(self) -> sockets.Socket:
        """The socket, whose function is initially that of ``initial``."""
        if not self.initial:
            return sockets.make(self.socket, **self.settings)
        [artefact] = artefacts.read({"initial": self.initial})
        return artefact.made._replace(init=lambda key: artefact.meta_params)

    def lives(self, env: str) -> list[tuple[Any, str]]:
        """Returns the config of an agent of each lifetime, and the name of its task in the environment ``env``."""
        config, several = self.made_config, len(self.lifetimes) > 1
        steps = lambda part: max(1, round(part * config.total_steps))
        named = lambda part: f"{env}/{part:g}" if several else env
        return [(dataclasses.replace(config, total_steps=steps(part)), named(part)) for part in self.lifetimes]

    @own_code()
    def make_evolution(self, devices: Sequence[jax.Device] | None = None) -> evolution.Evolution:
        """Makes the search, on ``devices`` (default: all)."""
        algo, socket, options = ALGORITHMS[self.algo], self.made, dict(self.strategy)
        environments = [envs.make(name, **self.env_params) for name in self.envs]
        if options["name"] == meta_gradient.NAME:
            rate = options["learning_rate"]
            return meta_gradient.make_search(
                socket, algo, self.made_config, environments, num_agents=self.population, learning_rate=rate
            )
        like = trees.zeros(jax.eval_shape(socket.init, jax.random.key(0)))
        strategy = strategies.make(size=self.population, like=like, **options)
        tasks = [evolution.Task(env, *rest) for env in environments for rest in self.lives(env.name)]
        return evolution.make_search(
            socket,
            algo,
            tasks,
            strategy,
            num_seeds=self.num_seeds,
            paired=self.tasks == "paired",
            lanes=self.lanes or None,
            devices=devices,
        )


OF_STRATEGY = "name", "sigma", "sigma_decay", "sigma_limit", "learning_rate", "momentum"
"""What the description of a strategy has."""
STRATEGY = {"name": "strategy", "learning_rate": "meta_learning_rate"}
"""The names of the options where they differ."""
SHARED = "population", "num_seeds", "generations", "seed", "lanes", "tasks", "lifetimes"
"""The options that a description has by the same names."""


def start(file: ConfigFile) -> Start:
    """Returns the arguments of `describe` that led to the search in a config file.

    Raises:
        ConfigError: The file holds no description.
    """
    file.existing(file.fields, SearchDescription.names())  # refuses the others
    options, strategy = dict(file.options), file.take("strategy", dict, {})
    options |= {name: file.fields[name] for name in SHARED if name in file.fields}
    options |= {STRATEGY.get(name, name): value for name, value in strategy.items()}
    chosen = sockets.SETTINGS.get(file.take("socket", str, ""))
    named = [field.name for field in dataclasses.fields(chosen)] if chosen else []
    options |= {name: value for name, value in file.take("settings", dict, {}).items() if name in named}
    options["env"] = file.take("envs", list, [])
    options |= env_options(file)
    return Start(file, options, file.take("config", dict, {}), {}, file.take("initial", dict, {}))


IN_ONE_PROGRAM = "candidates are trained in one"
"""The reason why there is no search in environments of the host, for the message of `on_device`."""


@own_code()
def describe(socket: str, algo: str, options: Any, config: Any, start: Start = FRESH) -> SearchDescription:
    """Describes the search that options ask for.

    Args:
        socket: The name of the socket.
        algo: The name of the algorithm.
        options: The options of the search.
        config: The config of the algorithm.
        start: What a config file begins with. It has the function at which the search begins, if the options name none.

    Raises:
        ConfigError: The search is not valid; the message has all problems at once.
    """
    params, algorithm = options.params, ALGORITHMS[algo]
    problems = Problems(cfg.problems(options))
    if not options.lifetimes:
        problems.append("lifetimes = (): must be one or more numbers")
    environments = _environments(socket, options.env, params, problems)
    initial, settings = start.learned, dict[str, Any]()
    if environments and not problems:
        with problems.collected():
            settings = sockets.settings(socket, options, environments[-1])
            initial, settings = _begun(socket, options.initial, initial, settings)
            for place in environments:  # each one is checked alone: a report trains in one at a time
                sockets.make(socket, **settings).env((), place)
    problems.of_settings(algorithm, config, environments, usual(algo, options, start), {})
    problems += [*_population_problems(options), *sockets.make(socket, **settings).problems(config), *_unused(options)]
    description = SearchDescription(
        algo,
        params,
        dict(vars(config)),
        socket,
        envs=list(options.env),
        strategy={name: getattr(options, STRATEGY.get(name, name)) for name in OF_STRATEGY},
        settings=settings,
        initial=initial,
        **{name: getattr(options, name) for name in SHARED},
    )
    if not problems:
        with problems.collected():
            description.make_evolution()
    problems.refuse()
    return description


def _environments(socket: str, names: Sequence[str], env_params: dict[str, Any], problems: Problems) -> list[Env]:
    """Makes the environments of a search and, for a socket on their side, the union of several; adds problems."""
    if not names:
        problems.append("env = (): must be one or more environments")
    environments = []
    for name in names:
        with problems.collected():
            environments.append(checked(name, env_params))
            on_device(environments[-1], IN_ONE_PROGRAM)
    if len(environments) > 1 and socket in ENV_SOCKET_NAMES:
        with problems.collected():
            environments.append(union(environments)(0))
    return environments


def _population_problems(options: Any) -> list[str]:
    """Returns the reasons why a population cannot be cut into trainings of the tasks, a line each."""
    problems = []
    tasks, paired = len(options.env) * len(options.lifetimes), options.tasks == "paired"
    trainings = options.population * options.num_seeds * (1 if paired else tasks)
    if paired and options.strategy not in strategies.ANTITHETIC:
        problems.append(
            f"tasks = 'paired': {options.strategy} has no antithetic pairs; use {' or '.join(strategies.ANTITHETIC)}"
        )
    if paired and options.population < 2 * tasks:
        problems.append(
            f"population = {options.population}: must be at least {2 * tasks}, a pair for each of {tasks} tasks"
        )
    if trainings > cfg.MEMBERS:
        problems.append(f"population = {options.population}: {trainings} trainings; must be at most {cfg.MEMBERS}")
    return problems


def _begun(
    socket: str, path: str, initial: dict[str, Any], settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the function at which a search begins, as JSON, and the settings of its socket.

    Args:
        socket: The name of the socket.
        path: The function, as `artefacts.load` takes it; empty: that of ``initial``.
        initial: The function as JSON, or empty.
        settings: The settings of the socket; empty: those of the function.

    Raises:
        ConfigError: The function is not valid, or not one of the socket with these settings.
    """
    if not path and not initial:
        return {}, settings
    artefact = (
        artefacts.load(path, trusted_modules.memory(False), artefacts.REPORT_IMPORTS)
        if path
        else artefacts.read({"initial": initial})[0]
    )
    name = f"initial = {path!r}"
    if artefact.socket != socket:
        raise ConfigError(f"{name}: is a function for the socket {artefact.socket}, not for {socket}")
    if artefact.expression is not None:
        raise ConfigError(f"{name}: is a closed form; only a network can be evolved")
    if settings not in ({}, artefact.settings):
        other = [f"{key} = {value!r}" for key, value in artefact.settings.items() if settings.get(key) != value]
        raise ConfigError(f"{name}: has other settings than the options: {', '.join(other)}")
    return artefacts.to_json(artefact._replace(measured={})), artefact.settings


ONLY_OPEN_ES = "sigma_decay", "sigma_limit", "momentum"
NOT_META_GRADIENT = "sigma", "num_seeds", "lanes", "tasks", "lifetimes"


def _unused(options: Any) -> list[str]:
    """Returns a line for each option that differs from its default and that the strategy does not use."""
    unused: tuple[str, ...] = ()
    if options.strategy != "Open_ES":
        unused += ONLY_OPEN_ES
    if options.strategy == meta_gradient.NAME:
        unused += NOT_META_GRADIENT
    elif options.strategy != "Open_ES":
        unused += ("meta_learning_rate",)
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    given = {name: getattr(options, name) for name in unused}
    return [
        f"{name} = {value}: {options.strategy} does not use it"
        for name, value in given.items()
        if value != defaults[name]
    ]
