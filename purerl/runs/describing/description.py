"""What a run is to do: a description, and the members and trainers that it stands for."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl import envs, population, trees
from purerl.algos import ALGORITHMS, read_config
from purerl.algos.algorithm import Algorithm
from purerl.envs import spaces_only
from purerl.errors import ConfigError, own_code
from purerl.hosts import copies
from purerl.learned import artefacts, own_parts
from purerl.learners.wrappers.diagnostics import diagnostics as looking
from purerl.loops.evaluation import chosen_by
from purerl.names import Trust
from purerl.replay.fixed import Held
from purerl.runs.describing import (
    config_file,
    datasets,
    file_checks,
    offline_options,
    select_options,
    sharding,
    stop_options,
)
from purerl.runs.describing.config_file import FRESH, ConfigFile, Start
from purerl.runs.describing.environments import checked, host_problems, team_problems
from purerl.runs.describing.sweeps import MOST_PROGRAMS, config_part, configurations, env_part
from purerl.store import guards
from purerl.types import Env, Key, Learner, PyTree, Trainer


@dataclasses.dataclass(frozen=True)
class Description:
    """What a run is to do, as JSON holds it: everything from which its results follow.

    - ``algo`` is the name of the algorithm, and ``config`` has the fields of its config.
    - ``env_params`` are keyword arguments of each environment.

    A training (`TrainingDescription`) and a search (`meta.description.SearchDescription`) add fields of their own.
    """

    algo: str
    env_params: dict[str, Any]
    config: dict[str, Any]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of the fields."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields by their names, as a config file has them."""
        return {name: getattr(self, name) for name in self.names()}

    @property
    def digest(self) -> str:
        """The digest that checkpoints have of it (`config_file.digest`)."""
        return config_file.digest(self.fields)

    @property
    def code(self) -> list[str]:
        """The names that may be those of a user's own code: of the algorithm, environments, parts and functions."""
        return list(config_file.code(self.fields).values())


@dataclasses.dataclass(frozen=True)
class TrainingDescription(Description):
    """What a training is to do; a sweep is one, too.

    - ``swept`` maps names to one value for each configuration.
    - ``learned`` holds learned functions by the part that they replace (`artefacts.described`).
    - ``datasets`` has the path and the digest of each dataset that is learned from (`datasets.described`).
    - ``stop`` says when agents stop early (`stop_options.described`); it is empty if they do not.
    - ``warm_start`` names the ``run`` whose policies the agents begin with, their digest ``sha256``, the ``agent`` if
      all begin with the policy of one, and the ``critics`` that they begin with, too; it is empty if they begin with
      new ones.
    - ``split`` has the number of ``shards`` into which each agent is cut, and whether their sums are ``exact``; it is
      empty if agents are not cut.
    - ``parts`` names the user's own parts of the algorithm (`own_parts.described`).
    - ``select`` says how configurations are selected during the training (`select_options.described`); it is empty if
      they are not. With population-based training ``swept`` has the values that they begin with in the description of a
      run, and the final ones in that of its policies.
    """

    env: str
    seeds: list[int]
    swept: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    learned: dict[str, Any] = dataclasses.field(default_factory=dict)
    datasets: dict[str, Any] = dataclasses.field(default_factory=dict)
    stop: dict[str, Any] = dataclasses.field(default_factory=dict)
    warm_start: dict[str, Any] = dataclasses.field(default_factory=dict)
    split: dict[str, Any] = dataclasses.field(default_factory=dict)
    parts: dict[str, str] = dataclasses.field(default_factory=dict)
    select: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_json(
        cls, fields: Any, source: str, *, trust: Trust = False, env: Env | None = None
    ) -> "TrainingDescription":
        """Reads the fields of a description from an untrusted file.

        Args:
            fields: What the file holds.
            source: The path of the file, which lies in the directory of the run. Each line of an error begins with it.
            trust: Whether an algorithm or an environment that is a ``MODULE:ATTRIBUTE`` may be imported. Without it
                both are refused, and not imported.
            env: A stand-in for the environment, which is then not made (None: there is none).

        Raises:
            ConfigError: If ``fields`` are not the description of a run that is possible.
        """
        if problems := file_checks.problems(fields, trust, Path(source).parent, env):
            raise ConfigError("\n".join(f"{source}: {line[: file_checks.MOST_CHARACTERS]}" for line in problems))
        fields = {**file_checks.EMPTY, **fields}
        config = dict(vars(read_config(fields["algo"], fields["config"])))
        return cls(**{name: fields[name] for name in cls.names()} | {"config": config})

    @property
    def size(self) -> int:
        """The number of agents."""
        return len(self.seeds) * configurations(self.swept)

    @property
    def name(self) -> str:
        """A short name for files, made of the algorithm and the environment."""
        return file_name(self.algo, self.env)


def file_name(*words: str) -> str:
    """Returns a name for files, made of words."""
    return re.sub("[^A-Za-z0-9.]+", "-", "-".join(words))


def start(file: ConfigFile) -> Start:
    """Returns what `describe` was given for the run of a config file.

    Raises:
        ConfigError: If the file holds anything but a description.
    """
    file.existing(file.fields, (*TrainingDescription.names(), "programs"))  # refuses the others
    options, seeds, swept = dict(file.options), file.take("seeds", list, []), file.take("swept", dict, {})
    if "seeds" in file.fields:
        if (
            not seeds
            or any(type(seed) is not int for seed in seeds)
            or seeds != list(range(seeds[0], seeds[0] + len(seeds)))
        ):
            raise ConfigError(
                f"{file.path}: seeds must be whole numbers, at least one, each one more than the one before"
            )
        options |= {"seed": seeds[0], "num_seeds": len(seeds)}
    options |= stop_options.options(file.take("stop", dict, {}), str(file.path))
    options |= sharding.options(file.take("split", dict, {}), str(file.path))
    options |= select_options.options(file.take("select", dict, {}), str(file.path))
    if begun := file.take("warm_start", dict, {}):
        if wrong := file_checks.warm_start_problems(begun):
            raise ConfigError("\n".join(f"{file.path}: {line}" for line in wrong))
        options["warm_start"] = begun["run"] if begun["agent"] is None else f"{begun['run']}:{begun['agent']}"
    if "env" in file.fields:
        options["env"] = file.take("env", str, "")
    options |= env_options(file)
    of_play = file.take("datasets", dict, {})
    if wrong := datasets.problems(of_play, tuple(of_play), (datasets.PATH,)):
        raise ConfigError("\n".join(f"{file.path}: {line}" for line in wrong))
    options |= {name: tuple(file.path for file in datasets.files(entry)) for name, entry in of_play.items()}
    parts = file.take("parts", dict, {})
    if any(name not in own_parts.SIGNATURES or not isinstance(value, str) for name, value in parts.items()):
        raise ConfigError(f"{file.path}: parts must hold names by {', '.join(own_parts.SIGNATURES)}")
    options |= parts
    columns = list(swept.values())
    numbers = all(isinstance(column, list) and all(map(guards.is_number, column)) for column in columns)
    if not numbers or len({len(column) for column in columns}) > 1 or [] in columns:
        raise ConfigError(f"{file.path}: swept must hold lists of numbers, all of one length")
    return Start(
        file, options, file.take("config", dict, {}), swept, file.take("learned", dict, {}), of_play, _programs(file)
    )


def _programs(file: ConfigFile) -> dict[str, list[Any]]:
    """Returns settings that shape programs, with a value for each program. Raises `ConfigError` for anything else."""
    columns = {}
    for name, column in file.take("programs", dict, {}).items():
        if not isinstance(column, list) or not 0 < len(column) <= MOST_PROGRAMS:
            raise ConfigError(f"{file.path}: programs must hold lists of 1 to {MOST_PROGRAMS} values")
        columns[name] = [tuple(value) if isinstance(value, list) else value for value in column]
    if len({len(column) for column in columns.values()}) > 1:
        raise ConfigError(f"{file.path}: programs must hold lists of one length")
    return columns


def env_options(file: ConfigFile) -> dict[str, Any]:
    """Returns a config file's parameters of environments, as the options of a command."""
    params = file.take("env_params", dict, {})
    pairs = [f"{name}={guards.yaml_text(value)}" for name, value in params.items() if name != "resets"]
    return {"env_params": pairs, **({"resets": params["resets"]} if "resets" in params else {})}


class Problems(list[str]):
    """The problems of what was asked for, a line each, which are found one after another and raised together."""

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Adds the lines of a `ConfigError` that is raised in the context, and goes on after it."""
        try:
            yield
        except ConfigError as error:
            self.append(str(error))

    def of_settings(
        self,
        algorithm: Algorithm,
        config: Any,
        environments: Sequence[Env],
        usual: Any,
        swept: dict[str, Any],
        played: Sequence[str] = (),
    ) -> None:
        """Adds those of the settings of an algorithm.

        Args:
            algorithm: The algorithm.
            config: Its config.
            environments: The environments that it is trained in.
            usual: The config that the options change. None of its fields is refused for having no effect.
            swept: The swept values of fields of the config.
            played: The names of the datasets that are learned from.
        """
        known: Sequence[Env | None] = [*environments] or [None]
        for env in known:
            of_config = functools.partial(lambda env, config: algorithm.problems(config, env), env)
            lines = team_problems(algorithm, config, env) if env else []
            lines += of_config(config) + cfg.sweep_problems(config, swept, of_config)
            self.extend(line for line in lines if line not in self)
        self.extend(cfg.unused(cfg.rows(config, swept) or [config], usual, played))

    def of_agents(
        self,
        options: Any,
        algorithm: Algorithm,
        config: Any,
        env: Env,
        swept: dict[str, list[float]],
        played: Sequence[str],
    ) -> None:
        """Adds those of agents in several environments, of several shards, and with a selection among them.

        The settings must have none. ``played`` are the names of the datasets that are learned from.
        """
        of_config = lambda config: algorithm.problems(config, env)
        if played and env_part(swept):
            reason = f"cannot be swept; {algorithm.name} learns from a dataset of one environment"
            self.append(f"{', '.join(env_part(swept))}: {reason}")
        if offline := offline_options.problems(options, config):
            self.extend(offline)
            return
        self.extend(sharding.problems(options, algorithm, config, env))
        self.extend(select_options.problems_of_options(options, config, env, swept, of_config))

    def refuse(self) -> None:
        """Raises `ConfigError` with all lines, if there are any."""
        if self:
            raise ConfigError("\n".join(self))


def usual(algo: str, options: Any, start: Start = FRESH) -> Any:
    """Returns the config that options change: the algorithm's default, a preset, or that of a config file.

    Raises:
        ConfigError: The file has a field that the config does not have.
    """
    algorithm = ALGORITHMS[algo]
    preset = start.options.get("preset") or options.preset
    config = algorithm.preset(preset) if preset else algorithm.Config()
    known = [field.name for field in dataclasses.fields(config)]
    return dataclasses.replace(config, **start.file.existing(start.config, known, "config: "))


@own_code()
def describe(
    algo: str,
    options: Any,
    config: Any,
    start: Start = FRESH,
    swept: dict[str, list[float]] | None = None,
    changed: Any = None,
) -> TrainingDescription:
    """Describes the training that options ask for.

    Args:
        algo: The name of the algorithm.
        options: The options of the command. The learned functions that they name are added to those of ``start``.
        config: The config of the algorithm.
        start: What a config file begins with. A dataset at a path that it has must hold the same data.
        swept: The swept values, as in a `TrainingDescription` (None: those of ``start``).
        changed: The config that the options change; None: the `usual` one.

    Raises:
        ConfigError: With a line for each problem.
    """
    params, environments = options.params, list[Env]()
    algorithm = ALGORITHMS[algo].wrapped(looking) if options.diagnostics else ALGORITHMS[algo]
    swept = start.swept if swept is None else swept
    count = configurations(swept)
    problems = Problems(cfg.problems(options) or _size_problems(options, count))
    with problems.collected(), _planned_copies(options, config, count):
        environments = [checked(options.env, params, env_part(swept))]
    problems.extend(line for env in environments for line in host_problems(options, config, env))
    played = [name for name in algorithm.datasets if name in algorithm.required or bool(getattr(options, name, ""))]
    before = changed or usual(algo, options, start)
    problems.of_settings(algorithm, config, environments, before, config_part(swept), played)
    if not problems:
        problems.of_agents(options, algorithm, config, environments[0], swept, played)
    learned, parts = dict(start.learned), dict[str, str]()
    with problems.collected():
        learned |= artefacts.described(algo, options)
        parts = own_parts.described(options)
        functions = artefacts.read(learned)
        environments = [artefacts.environment(functions, env) for env in environments]
        if not problems:
            problems.extend(artefacts.problems(functions, config))
            _check_learner(algorithm, config, environments[0], parts, options.sample)
    problems.refuse()
    view, where = algorithm.view(config, environments[0]), {"env": options.env, "env_params": params}
    return TrainingDescription(
        algo,
        params,
        dict(vars(config)),
        options.env,
        seeds=list(range(options.seed, options.seed + options.num_seeds)),
        swept=swept,
        learned=learned,
        datasets=datasets.described(tuple(played), options, view, where, start.datasets),
        stop=stop_options.described(options),
        warm_start=start.file.fields.get("warm_start", {}),
        split=sharding.described(options),
        parts=parts,
        select=select_options.described(options, config, swept),
    )


def _check_learner(algorithm: Algorithm, config: Any, env: Env, parts: dict[str, str], sample: bool) -> None:
    """Checks the learner of a training whose evaluations may ``sample``, with the user's own parts, if there are any.

    Raises:
        ConfigError: The parts do not fit, or there is no distribution to ``sample`` from.
    """
    if parts or sample:
        chosen_by(
            algorithm.make_learner(config, env, **own_parts.made(parts, config, algorithm.view(config, env))), sample
        )


def _size_problems(options: Any, count: int) -> list[str]:
    """Returns the problems of early stopping and of how many agents ``count`` configurations have, a line each."""
    problems = stop_options.problems_of_options(options)
    if not problems and options.seed + options.num_seeds > 2**32:
        problems.append(f"num_seeds = {options.num_seeds}: seed + num_seeds must not exceed {2**32}")
    if not problems and count * options.num_seeds > cfg.MEMBERS:
        size = f"{count * options.num_seeds} agents of {count} configurations; must be at most {cfg.MEMBERS}"
        problems.append(f"num_seeds = {options.num_seeds}: {size}")
    return problems


def _planned_copies(options: Any, config: Any, count: int) -> contextlib.AbstractContextManager[None]:
    """Announces how many copies of an environment of the host ``count`` configurations step at once."""
    workers = int(options.workers) if getattr(options, "workers", "").isdecimal() else 0
    halves = getattr(options, "double_buffering", "") == "on"
    apart = getattr(options, "workers", "") == "none" and (halves or getattr(options, "ahead", 0) > 0)
    num_envs = getattr(config, "num_envs", 1) * count * options.num_seeds // (2 if apart and halves else 1)
    return copies.planned(num_envs, workers=workers, apart=apart)


def _keys(seeds: list[int], count: int, *, apart: bool) -> Key:
    """Makes the keys ``[count * seeds]`` of members, which all configurations share unless they are kept ``apart``."""
    keys = jnp.tile(jax.vmap(jax.random.key)(jnp.asarray(np.array(seeds, np.uint32))), count)
    return jax.vmap(jax.random.fold_in)(keys, np.repeat(np.arange(count), len(seeds))) if apart else keys


class Setup(NamedTuple):
    """What a description stands for: the members of a run, and the functions that make their trainers and environments.

    Environments are as the algorithm sees them. ``swept`` in a description maps names to one value for each
    configuration. Of ``S`` seeds, member ``i`` has configuration ``i // S`` and seed ``i % S``, so that all
    configurations share the keys of their seeds; with population-based training each has keys of its own, so that a
    member is not the twin of the one whose state it takes. ``labels`` give both, member by member. ``make_learner``
    needs no dataset. ``data`` reads the datasets, once: arrays that all members share, which are an argument of their
    programs, or which the host streams. ``make_trainer`` takes them there as ``data``, and by default reads them
    itself. ``spaces`` describes the environment for saved policies (`envs.spaces_only`). ``select`` is that of the
    description.
    """

    config: Any
    make_env: Callable[..., Env]
    make_learner: Callable[..., Learner]
    make_trainer: Callable[..., Trainer]
    data: Callable[[], dict[str, Held]]
    members: population.Members
    labels: list[dict[str, int]]
    swept: dict[str, list[float]]
    spaces: Callable[[], dict[str, Any]]
    select: dict[str, Any]

    @classmethod
    @own_code()
    def of(
        cls,
        description: TrainingDescription,
        diagnostics: bool = False,
        begun: PyTree = None,
        env: Env | None = None,
        data_on: str = datasets.DEVICE,
    ) -> "Setup":
        """Makes the members that ``description`` asks for.

        Args:
            description: The description.
            diagnostics: Whether the trainings also log `diagnostics`.
            begun: The `warm_start.Beginning` of the members, one for all ``[1, ...]`` or one for each ``[P, ...]``
                (None: new ones).
            env: A stand-in for the environment, which is then not made (None: there is none).
            data_on: Where the datasets are: `datasets.DEVICE` or `datasets.HOST`.

        Raises:
            ConfigError: If learned functions are damaged.
        """
        algo, seeds = ALGORITHMS[description.algo], description.seeds
        swept, select = description.swept, description.select
        learned = artefacts.read(description.learned)
        config = read_config(description.algo, description.config)
        trained = algo.wrapped(looking) if diagnostics else algo

        def raw_env(env_params: dict[str, Any] | None = None) -> Env:
            return env or envs.make(description.env, **{**description.env_params, **(env_params or {})})

        def plain_env(env_params: dict[str, Any] | None = None) -> Env:
            return artefacts.environment(learned, raw_env(env_params))

        def make_env(env_params: dict[str, Any] | None = None) -> Env:
            return algo.view(config, plain_env(env_params))

        def parts(config: Any, env: Env) -> dict[str, Any]:
            own = description.parts and own_parts.made(description.parts, config, algo.view(config, env))
            return {**artefacts.parts(learned, config), **own}

        def make_learner(config: Any, env_params: dict[str, Any] | None = None, meta_params: PyTree = None) -> Learner:
            env = plain_env(env_params)
            return algo.make_learner(config, env, **parts(config, env))

        @functools.cache
        def read_data() -> dict[str, Held]:
            stride = getattr(config, "sample_stride", 1)
            return datasets.parts(description.datasets, make_env(env_part(swept, 0)), stride, data_on)

        def make_trainer(
            config: Any,
            env_params: dict[str, Any] | None = None,
            meta_params: PyTree = None,
            data: dict[str, Held] | None = None,
        ) -> Trainer:
            algorithm = trained if meta_params is None else trained.warm_start(*meta_params)
            env = plain_env(env_params)
            known = read_data() if data is None else data
            trainer = algorithm.make_trainer(config, env, **parts(config, env), **known)
            trainer = stop_options.stopping_trainer(trainer, description.stop)
            return select_options.selected_trainer(trainer, select)

        count = configurations(swept)
        repeated = {name: np.repeat(np.asarray(values, np.float32), len(seeds)) for name, values in swept.items()}
        members = population.members(
            dataclasses.replace(cfg.with_lengths(config), **config_part(repeated)),
            _keys(seeds, count, apart=select.get("kind") == select_options.PBT),
            env_params=env_part(repeated) or None,
            meta_params=jax.tree.map(lambda x: np.broadcast_to(x, (description.size, *x.shape[1:])), begun),
        )
        labels = [{**({"config": c} if swept else {}), "seed": seed} for c in range(count) for seed in seeds]
        known = functools.cache(lambda: spaces_only.described(raw_env(env_part(swept, 0))))
        return cls(config, make_env, make_learner, make_trainer, read_data, members, labels, swept, known, select)

    @property
    def host(self) -> Any:
        """What steps the environments if the host does (`types.Env.host`), None otherwise."""
        return self.make_env(env_part(self.swept, 0)).host

    @property
    def on_host(self) -> bool:
        """Whether the host steps the environments of the training; those of evaluations it may step anyway (`host`)."""
        return self.trainer.host is not None

    @property
    def trainer(self) -> Trainer:
        """The trainer of the first member."""
        return self.make_trainer(**trees.take(self.members.given, 0))

    @property
    def intervals(self) -> list[select_options.Interval]:
        """The intervals of the training between selections; one without them.

        Raises:
            ConfigError: The training is too short for a selection.
        """
        count = configurations(self.swept)
        return select_options.intervals(self.select, count, self.trainer.counts, self.config.num_iterations)

    def iterations(self, until: int) -> int:
        """Returns the iterations that all members take together until each has taken ``until``, or was stopped.

        Errors are those of `intervals`.
        """
        seeds = self.members.size // configurations(self.swept)
        return select_options.iterations(self.intervals, until) * seeds

    @property
    def frames(self) -> int:
        """The frames that all members take in the whole training together. Errors are those of `intervals`."""
        taken = self.iterations(self.config.num_iterations) * self.trainer.counts
        return self.members.size * self.trainer.warmup_steps + taken

    def searching(self, simulations: int) -> "Setup":
        """Returns the set-up of an algorithm that searches, with this number of simulations of a search."""
        changed: Any = lambda config: dataclasses.replace(config, simulations=simulations)
        cfg.check(changed(self.config))
        given = self.members.given
        members = self.members._replace(given={**given, "config": changed(given["config"])})
        return self._replace(config=changed(self.config), members=members)

    def part(self, which: slice) -> "Setup":
        """Returns the set-up of some of the members alone."""
        return self._replace(members=trees.take(self.members, which), labels=self.labels[which])
