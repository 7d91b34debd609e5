"""Policies that are read back from a run directory, all of them or one agent's."""

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import trees
from purerl.catalogue import EXTRAS, HOSTS
from purerl.envs import spaces_only
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError, one_line, place
from purerl.learners.parts import planning
from purerl.names import Trust, check_trusted, here, is_there
from purerl.runs.describing import sweeps
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.describing.sweeps import env_part
from purerl.runs.reading import choosing, results
from purerl.runs.reading.choosing import Choice
from purerl.store import guards, policies
from purerl.types import Env, Key, Learner, PyTree


class Run(NamedTuple):
    """A trained run, read back. ``policy`` has a leading axis of agents ``[P]``, in the order of ``setup.labels``.

    ``missing`` says why the environment itself is missing and nothing can be played: ``env`` then has its spaces alone.
    Empty: it is there. ``which`` are the agents among those that ``directory`` holds.
    """

    saved: dict[str, Any]
    setup: Setup
    env: Env
    learner: Learner
    policy: PyTree
    missing: str = ""
    directory: Path = Path()
    which: slice = slice(None)

    def __repr__(self) -> str:
        agents = f"{self.setup.members.size} agent{'s'[: self.setup.members.size != 1]}"
        return f"Run({str(self.directory)!r}, {self.saved['algo']} on {self.saved['env']}, {agents})"

    @property
    def simulations(self) -> int | None:
        """The number of simulations of a search before each action; None: the algorithm does not search."""
        return planning.simulations(self.setup.config)

    def searching(self, simulations: int | None) -> "Run":
        """Returns the run with learners that search with this number of simulations.

        It is the run itself for None, and where the algorithm does not search.
        """
        if simulations is None or self.simulations is None:
            return self
        setup = self.setup.searching(simulations)
        return self._replace(setup=setup, learner=setup.make_learner(**trees.take(setup.members.given, 0)))

    @property
    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` has; empty if the run has none."""
        return guards.contents(self.directory, "summary.json")

    @property
    def critics(self) -> dict[str, PyTree]:
        """The critics that another training can begin with beside the policies (`Learner.critics`), each ``[P]``.

        They are empty if the run has saved none.

        Raises:
            ConfigError: Their files are damaged, or are not those of the policies.
        """
        like = _first(self.setup, _critics, guards.count(self.saved["members"]))
        critics: dict[str, PyTree] = trees.take(policies.load_critics(self.directory, like), self.which)
        return critics

    @property
    def settings(self) -> dict[str, np.ndarray]:
        """The label of each agent, ``config`` and ``seed``, and the values of what was swept; by name, each ``[P]``."""
        labels = {name: np.array([label[name] for label in self.setup.labels]) for name in self.setup.labels[0]}
        swept = {name: np.array(values)[labels["config"]] for name, values in self.setup.swept.items()}
        return labels | swept

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """The metrics of the training, as logged: by name, each ``[P, iterations]`` float64, nan where there is none.

        Raises:
            ConfigError: There is no log of a training, or it is too large.
        """
        return results.metrics(self.directory, self.setup.labels)

    def only(self, number: int) -> "Run":
        """Returns the run with one of its agents alone, whose environment and learner are then those of the run.

        Raises:
            ConfigError: It has no such agent.
        """
        size = self.setup.members.size
        if not 0 <= number < size:
            raise ConfigError(f"agent = {number}: {self.directory} has agents 0 to {size - 1}")
        which = slice(number, number + 1)
        return self._replace(
            setup=self.setup.part(which),
            env=self.setup.make_env(env_part(self.setup.swept, number // len(self.saved["seeds"]))),
            learner=self.setup.make_learner(**trees.take(self.setup.members.given, number)),
            policy=trees.take(self.policy, which),
            which=which,
        )

    def about(self, directory: Path, episodes: int) -> dict[str, Any]:
        """Returns the first entries of the results of an evaluation of the run in a directory."""
        saved = {name: self.saved[name] for name in ("algo", "env", "seeds", "swept")}
        return {"run": str(directory), **saved, "members": self.setup.labels, "episodes": episodes}


def load(
    directory: str | Path,
    *,
    trust: Trust = False,
    env_params: Mapping[str, Any] = MappingProxyType({}),
    playing: bool = False,
    simulations: int | None = None,
) -> Run:
    """Reads the policies of a run directory, which is untrusted.

    ``run.learner.exploit(jax.tree.map(lambda x: x[i], run.policy), Situation(obs, run.learner.init_carry(B)), key)``
    acts as agent ``i`` does in observations ``[B, ...]``. For that the environment itself need not be there, such as
    the module of a user's own: its spaces are saved.

    Args:
        directory: The run directory.
        trust: Whether an algorithm or an environment of the user's own, a ``MODULE:ATTRIBUTE``, may be imported; a run
            that names one is refused otherwise.
        env_params: Parameters of the environment in place of those of the run.
        playing: Whether the environment must be there.
        simulations: The number of simulations of a search before each action, 0 for the network alone; None: as in the
            training.

    Raises:
        ConfigError: There are no policies; or they are damaged; or the directory holds a sweep over several programs;
            or the run is refused; or the environment has other spaces with ``env_params``; or ``simulations`` are given
            for an algorithm that does not search, or are negative.
    """
    path = Path(directory) / policies.DESCRIPTION
    if parts := sweeps.parts(Path(directory)):
        named = f"name one of {parts[0]} to {parts[-1]}"
        raise ConfigError(f"{directory}: is a sweep of several programs; {named}, or one agent, as {directory}:best")
    written = policies.load_description(Path(directory))
    saved = _with_env_params(written, env_params, directory)
    description, stand_in, missing = _described(saved, path, trust, needed=playing or bool(env_params))
    saved = {**saved, **description.fields}
    members, size = saved.get("members"), description.size
    if type(members) is not int or not 1 <= members <= size:
        raise ConfigError(f"{path}: members = {reprlib.repr(members)}: must be a whole number in [1, {size}]")
    try:
        setup = Setup.of(description, env=stand_in).part(slice(members))
        if env_params:
            _check_spaces(saved, setup)
        policy = policies.load_policy(here(directory), written, shapes(description, members, stand_in))
        env = setup.make_env(env_part(setup.swept, 0))
        learner = setup.make_learner(config=setup.config, env_params=env_part(setup.swept, 0))
    except ConfigError as error:
        lines = (line if str(directory) in line else f"{path}: {line}" for line in str(error).splitlines())
        raise ConfigError("\n".join(lines)) from None
    except Exception as error:  # sizes that are too large raise errors of many types
        if place(error):
            raise ConfigError(f"{path}: your code raised {one_line(error)}") from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{path}: the run cannot be rebuilt ({reason[:200]})") from error
    run = Run(saved, setup, env, learner, policy, missing, here(directory))
    if simulations is not None and run.simulations is None:
        raise ConfigError(f"simulations = {simulations}: {saved['algo']} does not search; omit it")
    return run.searching(simulations)


def _described(
    saved: dict[str, Any], path: Path, trust: Trust, needed: bool
) -> tuple[TrainingDescription, Env | None, str]:
    """Makes the description of a run and, if its environment is missing but not ``needed``, a stand-in with the reason.

    Raises:
        ConfigError: ``saved`` is not valid, or is refused.
    """
    try:
        return TrainingDescription.of_json(saved, str(path), trust=trust), None, ""
    except ConfigError as error:
        if needed or not _is_missing(saved, trust, path.parent, str(error)):
            raise
        why = str(error).splitlines()[0]
    if ":" in saved["env"] and not is_there(saved["env"]):
        why = f"{path}: env = {saved['env']!r}: its module cannot be found"
    stand_in = spaces_only.stand_in(saved["env"], saved["spaces"], why)
    return TrainingDescription.of_json(saved, str(path), trust=trust, env=stand_in), stand_in, why


def _with_env_params(saved: dict[str, Any], env_params: Mapping[str, Any], directory: str | Path) -> dict[str, Any]:
    """Returns a saved description with parameters of the environment in place of its own."""
    swept = saved.get("swept")
    if not env_params or not isinstance(saved.get("env_params"), dict) or not isinstance(swept, dict):
        return dict(saved)
    if twice := ", ".join(name for name in env_params if name in env_part(swept)):
        raise ConfigError(f"env_params: {twice}: is swept in {directory}, whose agents have values of their own")
    return {**saved, "env_params": {**saved["env_params"], **env_params}}


def _is_missing(saved: dict[str, Any], trust: Trust, where: Path, error: str) -> bool:
    """Returns whether the module or the library of a run's environment is missing, and its spaces are saved.

    A module of the user's own that is there must be trusted, and its import must fail. ``error`` is what was raised.
    """
    name = saved.get("env")
    if not saved.get("spaces") or not isinstance(name, str):
        return False
    if ":" not in name:
        return name.partition("/")[0] in (*HOSTS, *EXTRAS)
    if not is_there(name):
        return True
    try:
        check_trusted("env", name, trust, where)
    except ConfigError:
        return False
    return "cannot import" in error


def _check_spaces(saved: dict[str, Any], setup: Setup) -> None:
    """Raises `ConfigError` if an environment has other spaces than it had in the training, as far as they are saved."""
    now, were = setup.spaces(), saved.get("spaces") or {}
    for part in spaces_only.differences(were, now)[:1]:
        raise ConfigError(
            f"env_params: with these {saved['env']} has {spaces_only.in_words(part, now[part])}, "
            f"but the policy was trained with {spaces_only.in_words(part, were[part])}"
        )


class Agent(NamedTuple):
    """An agent of a run.

    - ``saved``: the description that its run saved.
    - ``label``: its label in the run.
    - ``env_params``: all parameters of the environment that it was trained in.
    - ``env``: that environment.
    - ``learner``, ``policy``: the learner and the policy that it acts by.
    - ``missing``: as in a `Run`.
    - ``choice``: which one it is, and by what it was chosen.
    - ``simulations``, ``in_env``: as in a `Run`, and whether it searches in the environment, by its state.
    """

    saved: dict[str, Any]
    label: dict[str, int]
    env_params: dict[str, Any]
    env: Env
    learner: Learner
    policy: PyTree
    missing: str
    choice: Choice
    simulations: int | None = None
    in_env: bool = False


def agent(
    directory: str | Path,
    name: int | str,
    *,
    trust: Trust = False,
    env_params: Mapping[str, Any] = MappingProxyType({}),
    playing: bool = False,
    simulations: int | None = None,
) -> Agent:
    """Reads an agent of a run directory: that of a number, the best or the worst (`choosing.choose`).

    The other arguments are those of `load`.

    Raises:
        ConfigError: The run cannot be read (`load`), or it has no such agent.
    """
    choice = choosing.choose(directory, name)
    number = choice.number
    run = load(choice.directory, trust=trust, env_params=env_params, playing=playing, simulations=simulations)
    alone = run.only(number)
    params = env_part(run.setup.swept, number // len(run.saved["seeds"]))
    of_run = {**run.saved["env_params"], **params}
    policy = trees.take(alone.policy, 0)
    searched = run.simulations, run.simulations is not None and run.setup.config.in_env
    label = alone.setup.labels[0]
    return Agent(run.saved, label, of_run, alone.env, alone.learner, policy, run.missing, choice, *searched)


def of_source(
    source: str | Path,
    *,
    trust: Trust,
    env_params: Mapping[str, Any] = MappingProxyType({}),
    simulations: int | None = None,
) -> tuple[Run, Choice | None]:
    """Reads the run that is to play, of ``RUN:AGENT`` that agent alone, and how it was chosen (None: it is all)."""
    directory, name = choosing.parsed(source)
    given: dict[str, Any] = {"trust": trust, "env_params": env_params, "playing": True, "simulations": simulations}
    if not name:
        return load(directory, **given), None
    choice = choosing.choose(directory, name)
    return load(choice.directory, **given).only(choice.number), choice


def shapes(description: TrainingDescription, members: int, env: Env | None = None) -> PyTree:
    """Returns the shapes of the policies ``[members, ...]`` of a run.

    Nothing is allocated, whatever sizes the description names. ``env`` is as for `Setup.of`.
    """
    return _first(_alone(description, env), lambda learner, state: learner.policy(state), members)


def critic_shapes(description: TrainingDescription, members: int) -> dict[str, PyTree]:
    """Returns the shapes of the critics ``[members, ...]`` of a run by name (`Learner.critics`), as `shapes` does."""
    return _first(_alone(description), _critics, members)


def _critics(learner: Learner, state: PyTree) -> dict[str, PyTree]:
    return learner.critics(state) if learner.critics else {}


def _alone(description: TrainingDescription, env: Env | None = None) -> Setup:
    """Makes the first member of a run alone."""
    first = {name: column[:1] for name, column in description.swept.items()}
    return Setup.of(dataclasses.replace(description, seeds=description.seeds[:1], swept=first), env=env)


def _first(setup: Setup, read: Callable[[Learner, PyTree], PyTree], members: int) -> PyTree:
    """Returns the shapes ``[members, ...]`` of what ``read(learner, state)`` gives of the first states of members."""

    def fresh(key: Key) -> PyTree:
        learner = setup.make_learner(config=setup.config, env_params=env_part(setup.swept, 0))
        _, obs = fleet(setup.make_env(env_part(setup.swept, 0)), setup.config.num_envs).reset(key)
        return read(learner, learner.init(key, obs))

    like = jax.eval_shape(fresh, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), like)
