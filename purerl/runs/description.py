"""What a run is to do: a description, and the members and trainers that it stands for."""

import dataclasses
import re
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl import envs, population, trees
from purerl.algos import ALGORITHMS, read_config
from purerl.errors import ConfigError
from purerl.learned import artefacts
from purerl.names import check_trusted, choose
from purerl.types import Env, Trainer


class Description(NamedTuple):
    """What a run is to do, as JSON holds it: everything that its results follow from.

    ``env_params`` are keyword arguments of the environment, ``config`` the fields of the algorithm's config, ``swept``
    maps names to one value for each configuration, and ``learned`` holds learned functions by the part that they take
    the place of (`artefacts.described`).
    """

    algo: str
    env: str
    env_params: dict[str, Any]
    seeds: list[int]
    config: dict[str, Any]
    swept: dict[str, list[float]]
    learned: dict[str, Any]

    @classmethod
    def of_json(cls, fields: Any, source: str, *, trust: bool = False) -> "Description":
        """Reads what a file holds, which is untrusted.

        Raises `ConfigError`, each line of which names ``source``, for anything but the description of a run that can
        be. An algorithm or an environment that is a ``MODULE:ATTRIBUTE`` is refused unless ``trust``, and not imported.
        """
        if problems := _problems(fields, trust):
            raise ConfigError("\n".join(f"{source}: {line[:MOST_CHARACTERS]}" for line in problems))
        return cls(**{"learned": {}, **{name: fields[name] for name in cls._fields if name in fields}})

    @property
    def name(self) -> str:
        """A short name for files: algorithm and environment."""
        return re.sub("[^A-Za-z0-9.]+", "-", f"{self.algo}-{self.env}")


KINDS = {"algo": str, "env": str, "env_params": dict, "seeds": list, "config": dict, "swept": dict, "learned": dict}
"""The type of each field of a `Description` in JSON."""
MOST_MEMBERS = 2**20
"""The most members of a run that is read from a file."""
MOST_OF_A_SIZE = 2**16
"""The most that a whole number among the parameters of an environment may be, if it does not count steps."""
MOST_CHARACTERS = 300
"""Of a line about what a file holds."""
LARGEST = float(np.finfo(np.float32).max)


def _problems(fields: Any, trust: bool) -> list[str]:
    """What is wrong with the description of a run that a file holds, a line each; in parts, since each needs the one
    before. Nothing is imported that a file names, unless ``trust``."""
    if not isinstance(fields, dict):
        return ["not the description of a run"]
    fields = {"learned": {}, **fields}
    wrong = [name for name, kind in KINDS.items() if not isinstance(fields.get(name), kind)]
    if wrong:
        return [f"not the description of a run: {', '.join(wrong)} missing or of another type"]
    algo, env, seeds, swept = fields["algo"], fields["env"], fields["seeds"], fields["swept"]
    try:
        for field in ("algo", "env"):
            check_trusted(field, fields[field], trust)
        choose("algo", algo, ALGORITHMS)
        config = read_config(algo, fields["config"])
    except ConfigError as error:
        return str(error).splitlines()
    missing = [name for name in vars(config) if name not in fields["config"]]
    problems = [f"config lacks {name}" for name in missing] + cfg.problems(config)
    problems += parameter_problems(fields["env_params"]) + _seed_problems(seeds) + _column_problems(swept)
    if not problems and len(seeds) * len(next(iter(swept.values()), [0])) > MOST_MEMBERS:
        problems.append(f"seeds and swept: more than {MOST_MEMBERS} agents")
    if problems:
        return problems
    env, problem = _environment(env, {**fields["env_params"], **env_part(swept, 0)})
    extremes = {name: [min(column), max(column)] for name, column in swept.items()}  # every range is an interval
    of_config = lambda config: ALGORITHMS[algo].problems(config, env)  # noqa: E731
    problems = problem + of_config(config) + cfg.sweep_problems(config, config_part(extremes), of_config)
    return problems + _learned_problems(algo, fields["learned"])


def _environment(name: str, params: dict[str, Any]) -> tuple[Env | None, list[str]]:
    """The environment that a file asks for, or None and why it cannot be."""
    try:
        return envs.make(name, **params), []
    except ConfigError as error:
        return None, str(error).splitlines()
    except Exception as error:  # other libraries' environments raise anything if a parameter makes no sense
        return None, [f"env = {reprlib.repr(name)}: cannot be made ({(str(error).splitlines() or [''])[0]})"]


def parameter_problems(params: dict[str, Any]) -> list[str]:
    """A line for each parameter of an environment, from a file, that has no name or no finite number, or is a size that
    would fill the memory."""
    problems = []
    for name, value in params.items():
        told = f"env_params: {reprlib.repr(name)} = {reprlib.repr(value)}"
        if not name.isidentifier() or name == "name" or not _is_number(value):
            problems.append(f"{told}: must be the name of a parameter and a finite number")
        elif type(value) is int and abs(value) > MOST_OF_A_SIZE and "steps" not in name:
            problems.append(f"{told}: a size must not exceed {MOST_OF_A_SIZE}")
    return problems


def _is_number(value: Any) -> bool:
    """Whether a value of JSON is a number that float32 or int32 can hold."""
    return type(value) in (int, float) and abs(value) <= (LARGEST if type(value) is float else 2**31 - 1)


def _seed_problems(seeds: list[Any]) -> list[str]:
    """What is wrong with the seeds that a file holds."""
    if not 0 < len(seeds) <= MOST_MEMBERS:
        return [f"seeds: must be 1 to {MOST_MEMBERS} whole numbers, got {len(seeds)}"]
    wrong = [seed for seed in seeds if type(seed) is not int or not 0 <= seed < 2**32]
    return [f"seeds: {reprlib.repr(wrong[0])} is no whole number in [0, {2**32})"] if wrong else []


def _column_problems(swept: dict[str, Any]) -> list[str]:
    """What is wrong with the swept values that a file holds, before any is tried."""
    problems = []
    for name, column in swept.items():
        if not isinstance(column, list) or not column or not all(_is_number(value) for value in column):
            problems.append(f"swept: {reprlib.repr(name)} must have a list of finite numbers")
        if name.startswith(ENV_PREFIX) and not name.removeprefix(ENV_PREFIX).isidentifier():
            problems.append(f"swept: {reprlib.repr(name)} is no name of a parameter")
    if not problems and len({len(column) for column in swept.values()}) > 1:
        problems.append("swept: the lists must have one length")
    return problems


def _learned_problems(algo: str, learned: dict[str, Any]) -> list[str]:
    """What is wrong with the learned functions that a file holds."""
    places, problems = artefacts.options(algo), []
    for option, document in learned.items():
        try:
            socket = artefacts.of_json(document).socket
        except ConfigError as error:
            problems.append(f"learned: {reprlib.repr(option)}: {error}")
            continue
        if places.get(option) != socket:
            problems.append(f"learned: {reprlib.repr(option)}: {algo} takes no {socket} there")
    return problems


def describe(
    algo: str, options: Any, config: Any, env_params: dict[str, Any], swept: dict[str, list[float]] | None = None
) -> Description:
    """The description of the run that options ask for. Raises `ConfigError`, with all problems at once."""
    swept = swept or {}
    problems = cfg.problems(options)
    if not problems and options.seed + options.num_seeds > 2**32:
        problems.append(f"num_seeds = {options.num_seeds}: seed + num_seeds must not exceed {2**32}")
    env, learned = None, {}
    try:
        env = envs.make(options.env, **env_params, **env_part(swept, 0))
    except ConfigError as error:
        problems.append(str(error))
    of_config = lambda config: ALGORITHMS[algo].problems(config, env)  # noqa: E731
    problems += of_config(config) + cfg.sweep_problems(config, config_part(swept), of_config)
    try:
        learned = artefacts.described(algo, options)
    except ConfigError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    seeds = list(range(options.seed, options.seed + options.num_seeds))
    return Description(algo, options.env, env_params, seeds, dict(vars(config)), swept, learned)


ENV_PREFIX = "env."
"""Of the swept names that are parameters of the environment, not of the algorithm's config."""


class Setup(NamedTuple):
    """What a description stands for: the members of a run, and how to make their environments and trainers.

    ``swept`` in a description maps names to one value for each configuration. Member ``i`` has configuration ``i // S``
    and seed ``i % S``, so that all configurations share their seeds' keys; ``labels`` say so, member by member.
    """

    config: Any
    make_env: Callable[..., Env]
    make_trainer: Callable[..., Trainer]
    members: population.Members
    labels: list[dict[str, int]]
    swept: dict[str, list[float]]

    @classmethod
    def of(cls, description: Description) -> "Setup":
        """The members that ``description`` asks for. Raises `ConfigError` for learned functions that are damaged."""
        algo, seeds, swept = ALGORITHMS[description.algo], description.seeds, description.swept
        learned = artefacts.read(description.learned)
        config = read_config(description.algo, description.config)

        def make_env(env_params: dict[str, Any] | None = None) -> Env:
            return envs.make(description.env, **{**description.env_params, **(env_params or {})})

        def make_trainer(config: Any, env_params: dict[str, Any] | None = None) -> Trainer:
            return algo.make_trainer(config, make_env(env_params), **artefacts.parts(learned, config))

        count = len(next(iter(swept.values()), [0]))
        repeated = {name: np.repeat(np.asarray(values, np.float32), len(seeds)) for name, values in swept.items()}
        members = population.members(
            dataclasses.replace(config, **config_part(repeated)),
            jnp.tile(jnp.stack([jax.random.key(seed) for seed in seeds]), count),
            env_params=env_part(repeated) or None,
        )
        which = [{"config": c} if swept else {} for c in range(count)]
        labels = [{**label, "seed": seed} for label in which for seed in seeds]
        return cls(config, make_env, make_trainer, members, labels, swept)

    @property
    def trainer(self) -> Trainer:
        """The first member's."""
        return self.make_trainer(**trees.take(self.members.given, 0))

    def first(self, count: int) -> "Setup":
        """The first ``count`` members alone, for a run that was interrupted between batches."""
        return self._replace(members=trees.take(self.members, slice(0, count)), labels=self.labels[:count])


def config_part(swept: dict[str, Any]) -> dict[str, Any]:
    """Those of the swept values that belong to the algorithm's config."""
    return {name: values for name, values in swept.items() if not name.startswith(ENV_PREFIX)}


def env_part(swept: dict[str, Any], index: int | None = None) -> dict[str, Any]:
    """Those that belong to the environment, without their prefix; of all configurations or of one."""
    part = {name.removeprefix(ENV_PREFIX): v for name, v in swept.items() if name.startswith(ENV_PREFIX)}
    return part if index is None else {name: values[index] for name, values in part.items()}
