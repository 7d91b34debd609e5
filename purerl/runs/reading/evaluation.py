"""Policies that are read back from a run directory, and played."""

import contextlib
import dataclasses
import functools
import math
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import backend, population, spaces, trees
from purerl.catalogue import EXTRAS, HOSTS
from purerl.display import words
from purerl.envs import spaces_only
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError, one_line, own_code, place
from purerl.interrupts import breakable
from purerl.learners.parts import planning
from purerl.loops.evaluation import Evaluation, Player, chosen_by, play, player, random_player, seated, versus
from purerl.names import Trust, check_trusted, here, is_there
from purerl.population import layouts
from purerl.population.layouts import spread
from purerl.runs.describing import config_file, sweeps
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.describing.sweeps import env_part
from purerl.runs.reading import choosing, host_evaluation, results, seat_results
from purerl.runs.reading.choosing import Choice
from purerl.runs.reading.host_evaluation import Venue
from purerl.store import guards, policies
from purerl.types import Env, Key, Learner, PyTree, Situation, Trainer

MOST_ANEW = 10_000
"""The most episodes that a run directory, which is untrusted, can ask for."""
EPISODES, STEPS = 100, 10_000
"""The usual number of episodes of an evaluation, and the number of steps after which one is cut."""
EVALUATION_SALT, ANEW_SALT = 2**31, 2**31 + 4
"""Folded into a member's key for an evaluation, so that evaluating uses no key of the training; the second for one that
has other episodes than those by which the member was chosen."""


class Run(NamedTuple):
    """A trained run, read back. ``policy`` has a leading axis of agents ``[P]``, in the order of ``setup.labels``.

    ``missing`` says why the environment itself is missing and nothing can be played: ``env`` then has its spaces alone.
    Empty: it is there.
    """

    saved: dict[str, Any]
    setup: Setup
    env: Env
    learner: Learner
    policy: PyTree
    missing: str = ""
    directory: Path = Path()

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


class Anew(NamedTuple):
    """The mean return of an agent in episodes that it was not chosen by, and a line about it."""

    score: float
    words: str


def anew(agent: Agent, *, trust: Trust = False) -> Anew:
    """Plays other episodes with an agent than those that it was chosen by.

    They are as many as each agent of its run plays in an evaluation, and sampled if those are. Where it searches, it
    does so with its own number of simulations.
    """
    options = guards.mapping(guards.contents(agent.choice.directory, config_file.NAME).get("options"))
    episodes = min(guards.count(options.get("eval_episodes")) or EPISODES, MOST_ANEW)
    sample = options.get("sample") is True
    run, number = agent.choice.of
    how: dict[str, Any] = {"trust": trust, "sample": sample, "simulations": agent.simulations}
    result = evaluate_run(f"{run}:{agent.choice.name}", episodes, STEPS, 0, **how)
    score, sampled = result["return_mean"], " sampled" if sample else ""
    played = f"{episodes} other{sampled} episodes{words.simulations(result)}"
    return Anew(score, f"agent {number}: mean return {score:.2f} in {played}")


def shapes(description: TrainingDescription, members: int, env: Env | None = None) -> PyTree:
    """Returns the shapes of the policies ``[members, ...]`` of a run.

    Nothing is allocated, whatever sizes the description names. ``env`` is as for `Setup.of`.
    """
    first = {name: column[:1] for name, column in description.swept.items()}
    setup = Setup.of(dataclasses.replace(description, seeds=description.seeds[:1], swept=first), env=env)

    def fresh(key: Key) -> PyTree:
        learner = setup.make_learner(config=setup.config, env_params=env_part(setup.swept, 0))
        _, obs = fleet(setup.make_env(env_part(setup.swept, 0)), setup.config.num_envs).reset(key)
        return learner.policy(learner.init(key, obs))

    like = jax.eval_shape(fresh, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), like)


RANDOM = "random"


class Rivals(NamedTuple):
    """The players of the other agents.

    - ``player``: ``player(env, policy)`` makes the player.
    - ``policies``: the policies ``[P]``, one for each member.
    - ``choice``: which agent plays, if one was named.
    - ``simulations``: as in a `Run`.
    """

    player: Callable[[Env, PyTree], Player]
    policies: PyTree
    choice: Choice | None = None
    simulations: int | None = None


def rivals(
    run: Run, against: str, *, trust: Trust = False, sample: bool = False, simulations: int | None = None
) -> Rivals:
    """Makes the players of the other agents in an evaluation of ``run``.

    They are those of ``against``, a run directory (`load`), whose agents take turns if they are fewer; of
    ``RUN:AGENT`` that agent; or, for `RANDOM`, random moves. Policies take their most likely actions, or ``sample``;
    those that search do so with ``simulations`` (None: as in their training).

    Raises:
        ConfigError: The environment of ``run`` has one agent; or ``against`` cannot be read (`load`); or its agents
            play another environment, or observe something else, or have no distribution to ``sample`` from.
    """
    env, size = run.env, run.setup.members.size
    if env.num_agents == 1:
        raise ConfigError(f"against = {against!r}: {run.saved['algo']} on {run.saved['env']} has one agent")
    if against == RANDOM:
        return Rivals(lambda env, policy: random_player(env), ())
    other, choice = of_source(against, trust=trust)
    about = lambda run: (run.saved["env"], spaces.struct(run.env.observation_space), run.env.num_agents)
    if about(other) != about(run):
        raise ConfigError(f"against = {against!r}: must be a run in the same environment, {run.saved['env']}")
    other = other.searching(simulations)
    chosen_by(other.learner, sample)
    which = np.arange(size) % other.setup.members.size
    theirs = trees.take(other.policy, which)
    made = lambda env, policy: player(other.learner, policy, sample=sample)
    return Rivals(made, theirs, choice, other.simulations)


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


def evaluate_run(
    source: str | Path,
    episodes: int,
    max_steps: int,
    seed: int,
    *,
    against: str = "",
    trust: Trust = False,
    env_params: Mapping[str, Any] = MappingProxyType({}),
    eval_envs: int = 0,
    sample: bool = False,
    simulations: int | None = None,
    simulations_against: int | None = None,
) -> dict[str, Any]:
    """Plays the policies of a run directory, which is only read, and returns each member's results.

    Args:
        source: The run directory, or ``RUN:AGENT`` for one agent (`choosing.choose`). One that was chosen by its final
            evaluation plays other episodes than there.
        episodes: The number of episodes of each member.
        max_steps: The number of steps after which an episode is cut off.
        seed: The episodes follow from it and the members' keys.
        against: The players of the other agents (`rivals`); empty: the policies play all agents.
        trust: As for `load`.
        env_params: As for `load`.
        eval_envs: The largest number of host environments that a member plays in (0: as many as it was trained in).
        sample: Whether actions are drawn from the policies' distributions, instead of the most likely ones.
        simulations: As for `load`.
        simulations_against: Those of the players of the other agents; None: as many, if they search.

    Returns:
        The results of `Plays` and what identifies the run, which can be written as JSON.

    Raises:
        ConfigError: The run cannot be read (`load`), or ``against`` is refused (`rivals`), or ``sample`` (`chosen_by`).
    """
    run, choice = of_source(source, trust=trust, env_params=env_params, simulations=simulations)
    chosen_by(run.learner, sample)
    theirs = simulations if simulations_against is None else simulations_against
    others = rivals(run, against, trust=trust, sample=sample, simulations=theirs) if against else None
    if simulations_against is not None and (others is None or others.simulations is None):
        raise ConfigError(
            f"simulations_against = {simulations_against}: against = {against!r} does not search; omit it"
        )
    copies, salt = eval_envs or run.setup.config.num_envs, ANEW_SALT if choice and choice.by else EVALUATION_SALT
    with own_code(run.saved["algo"]), contextlib.closing(Venue(copies)) as venue:
        plays = prepare(run.setup, episodes, max_steps, others=others, venue=venue, sample=sample)
        played = plays(run.policy, seed=seed, salt=salt)
    changed: dict[str, Any] = {"env_params": run.saved["env_params"]} if env_params else {}
    chosen = {"chosen": choice, "against": others and others.choice}
    changed |= {name: each.facts() for name, each in chosen.items() if each}
    return {**run.about(Path(source), episodes), **changed, **played}


class Batch(NamedTuple):
    """Members ``[B]`` that play: their arguments, keys and policies, and the policies of the others (`Rivals`)."""

    given: dict[str, Any]
    keys: Key
    policy: PyTree
    theirs: PyTree


def manner(sample: bool, simulations: int | None) -> dict[str, Any]:
    """Returns what results also have about how actions were chosen.

    ``sampled`` is True where they were drawn from the policy's distribution, and ``simulations`` the number of those of
    a search before each action; neither is there otherwise.
    """
    searched = {} if simulations is None else {"simulations": simulations}
    return {**({"sampled": True} if sample else {}), **searched}


def manner_of(result: dict[str, Any]) -> dict[str, Any]:
    """Returns the `manner` of the result of an evaluation, which may be of an untrusted file."""
    number = result.get("simulations")
    return manner(result.get("sampled") is True, number if type(number) is int else None)


Play = Callable[[Batch, float], Evaluation]
"""Plays the episodes of members ``[B]``, those of the host for some seconds, and returns their results ``[B, E]``."""


class Plays:
    """Plays episodes with members' policies, each in its member's own environment, which `prepare` makes ready."""

    def __init__(self, setup: Setup, others: Rivals | None, play: Play, sample: bool):
        self._setup, self._others, self._play, self._sample = setup, others, play, sample

    def __call__(
        self,
        policy: PyTree,
        *,
        first: int = 0,
        seed: int = 0,
        seconds: float = math.inf,
        salt: int = EVALUATION_SALT,
    ) -> dict[str, Any]:
        """Plays with the policies ``[B]`` of the members from number ``first`` on.

        The episodes follow from the members' keys and ``seed``; those of seed 0 are the ones of the evaluation that
        ends a training, unless ``salt`` is another. In environments
        of the host all that have not ended are cut off after ``seconds``.

        Returns:
            The results. Lists have an entry for each member. The return of a member of whose episodes none ended is
            nan; episodes that were cut off otherwise count as they are.
        """
        batch = slice(first, first + trees.length(policy))
        members = trees.take(self._setup.members, batch)
        theirs = trees.take(self._others.policies, batch) if self._others else ()
        everyone = Batch(members.given, keys(members.keys, seed, salt), policy, theirs)
        result = told(self._play(everyone, seconds), self._env, against=self._others is not None)
        theirs_search = self._others.simulations if self._others else None
        of_theirs = {} if theirs_search is None else {"simulations_against": theirs_search}
        return result | manner(self._sample, planning.simulations(self._setup.config)) | of_theirs

    @functools.cached_property
    def _env(self) -> Env:
        return self._setup.make_env(env_part(self._setup.swept, 0))


def told(played: Any, env: Env, *, against: bool = False) -> dict[str, Any]:
    """Returns the results of the episodes of members ``[P, E]`` as `Plays` does.

    Args:
        played: The `Evaluation`.
        env: The environment of one of them.
        against: Whether others played the other agents.
    """
    episode_return, length, finished, info, outcome = played
    ended = finished.any(axis=1)
    known = lambda values: np.where(ended, values, np.nan)
    per_seed = known(episode_return.mean(axis=1, dtype=np.float64))
    result = {
        "return_mean": float(per_seed.mean()),
        "return_per_seed": per_seed.tolist(),
        "return_std_per_seed": known(episode_return.std(axis=1, dtype=np.float64)).tolist(),
        "length_per_seed": length.mean(axis=1).tolist(),
        "unfinished_per_seed": (~finished).sum(axis=1).tolist(),
        **cut_off(length, finished),
        **({"info_per_seed": {name: _known(x).tolist() for name, x in info.items()}} if info else {}),
        **(seat_results.shares(outcome, ended) if against else {}),
    }
    if isinstance(outcome, tuple):
        return result
    counted = env.zero_sum or against
    return result | seat_results.by_seat(known(episode_return.T).T, outcome, env.num_agents, counted=counted)


def columns(result: dict[str, Any]) -> dict[str, list[float]]:
    """Returns the numbers ``[P]`` of an evaluation during a training by the names of their metrics."""
    names = {"eval_return": "return", "eval_return_std": "return_std", "eval_length": "length"}
    of_all = {name: result[f"{key}_per_seed"] for name, key in names.items()}
    return of_all | {f"eval_{name}": column for name, column in seat_results.columns(result).items()}


def prepare(
    setup: Setup,
    episodes: int,
    max_steps: int,
    *,
    batch_size: int | None = None,
    others: Rivals | None = None,
    venue: Venue | None = None,
    sample: bool = False,
) -> Plays:
    """Makes a function that plays episodes with members' policies. It is compiled at its first call.

    Args:
        setup: The setup of the run.
        episodes: The number of episodes of each member.
        max_steps: The number of steps after which an episode is cut off.
        batch_size: The number of members that play at once, on the devices of this process alone; None: all.
        others: The players of the other agents. With them the results also hold the shares of the games that the
            policies won, drew and lost (`seat_results.shares`). None: the policies play all agents.
        venue: The host environments, which stay open; None: as many as train a member, closed after each call.
        sample: Whether the policies' actions are drawn from their distributions, instead of the most likely ones.
    """
    acts = functools.partial(player, sample=sample)
    if setup.host:
        return Plays(setup, others, _on_host(setup, acts, episodes, max_steps, others, venue), sample)
    whole = setup.members.size
    layout = population.layout(min(batch_size or whole, whole), jax.local_devices())
    return Plays(setup, others, _on_devices(setup, acts, episodes, max_steps, others, layout), sample)


Acts = Callable[[Learner, PyTree], Player]
"""Makes the player of a learner's policy."""


def _on_devices(
    setup: Setup, acts: Acts, episodes: int, max_steps: int, others: Rivals | None, layout: population.Layout
) -> Play:
    """Plays in compiled environments, with as many members at once as ``layout`` holds."""

    def one(member: Batch, state: PyTree) -> tuple[PyTree, PyTree]:
        given, key, policy, theirs = member
        env, learner = setup.make_env(given.get("env_params")), setup.make_learner(**given)
        mine = acts(learner, policy)
        if others is None:
            return state, play(key, env, mine, episodes, max_steps)
        return state, versus(key, env, mine, others.player(env, theirs), episodes, max_steps)

    program = jax.jit(spread(one, layout), compiler_options=backend.compiler_options())

    def batchwise(everyone: Batch, seconds: float) -> Evaluation:
        size, batches = trees.length(everyone.policy), []
        for start in range(0, size, layout.size):
            batch = trees.take(everyone, slice(start, start + layout.size))
            batches.append(jax.device_get(program(layouts.place(batch, layout), ())[1]))
        joined: Evaluation = jax.tree.map(lambda *x: np.concatenate(x)[:size], *batches)
        return joined

    return batchwise


def _on_host(
    setup: Setup, acts: Acts, episodes: int, max_steps: int, others: Rivals | None, venue: Venue | None
) -> Play:
    """Plays in environments of the host, in ``venue`` or, for None, in one that is closed after each call."""
    places = venue or Venue(setup.config.num_envs)

    def seats(given: dict[str, Any], policy: PyTree, theirs: PyTree) -> tuple[Env, Player, np.ndarray]:
        env, mine = setup.make_env(given.get("env_params")), acts(setup.make_learner(**given), policy)
        if others is None:
            return env, mine, np.arange(episodes * env.num_agents)
        rival = others.player(env, theirs)
        games = places.size(episodes, env.num_agents)
        return env, seated(mine, rival, games, env.num_agents)[0], seated(mine, rival, episodes, env.num_agents)[1]

    hosted = host_evaluation.Playing(lambda mine: seats(*mine)[:2], host_evaluation.ends)

    def play(everyone: Batch, seconds: float) -> Evaluation:
        mine = everyone.given, everyone.policy, everyone.theirs
        env, _, rows = seats(*trees.take(mine, 0))
        each = places.size(episodes, 1 if others is None else env.num_agents)
        with contextlib.nullcontext() if venue else contextlib.closing(places), breakable:
            played = host_evaluation.evaluate(hosted, places, everyone.keys, mine, episodes, max_steps, each, seconds)
        own: Evaluation = jax.tree.map(lambda x: x[:, rows], played._replace(info=()))
        return own._replace(info=played.info)

    return play


def keys(of_members: Key, seed: int, salt: int = EVALUATION_SALT) -> Key:
    """Makes the keys ``[P]`` of an evaluation with a seed, which no training uses, from the members' own ``[P]``."""
    return jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, salt), seed))(of_members)


def _known(info: np.ndarray) -> np.ndarray:
    """Returns the means ``[P]`` of what episodes ``[P, E]`` told; nan where none told anything."""
    told = np.isfinite(info)
    counts = told.sum(axis=1)
    return np.where(counts, np.where(told, info, 0.0).sum(axis=1) / np.maximum(counts, 1), np.nan)


def open_venue(setup: Setup, venue: Venue, episodes: int, max_steps: int, members: int) -> None:
    """Opens the environments of the host in which ``members`` play so many episodes; does nothing without a host.

    Raises:
        ConfigError: If they cannot be made.
    """
    if setup.host:
        host = setup.make_env(env_part(setup.swept, 0)).host
        with breakable:
            venue.stepper(host, members, venue.size(episodes), episodes, max_steps)


def cut_off(length: np.ndarray, finished: np.ndarray) -> dict[str, Any]:
    """Returns how many episodes ``[P, E]`` were cut off, of how many, and after how many steps; empty if all ended."""
    count = int((~finished).sum())
    about = {"episodes": count, "of": finished.size, "after_steps": int(length[~finished].max(initial=0))}
    return {"cut_off": about} if count else {}


def trace(setup: Setup, trainer: Trainer, episodes: int, max_steps: int, sample: bool) -> None:
    """Traces how the first member's policy plays, so that errors show before the training. Computes nothing.

    In environments of the host only the choice of an action is traced.
    """

    def played(key: Key) -> PyTree:
        env, learner, state = setup.make_env(env_part(setup.swept, 0)), trainer.learner, trainer.init(key)
        whole = player(learner, learner.policy(state.learner), sample=sample)
        if env.host:
            return whole.act(Situation(state.actors.obs, state.actors.carry), key)
        return play(key, env, whole, episodes, max_steps)

    jax.eval_shape(played, setup.members.keys[0])
