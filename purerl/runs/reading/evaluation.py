"""Evaluations of the policies of runs: episodes that they play, and what their results are."""

import contextlib
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import backend, population, spaces, trees
from purerl.display import words
from purerl.errors import ConfigError, own_code
from purerl.interrupts import breakable
from purerl.learners.parts import planning
from purerl.loops.evaluation import Evaluation, Player, chosen_by, play, player, random_player, seated, versus
from purerl.names import Trust
from purerl.population import layouts
from purerl.population.layouts import spread
from purerl.runs.describing import config_file
from purerl.runs.describing.description import Setup
from purerl.runs.describing.sweeps import env_part
from purerl.runs.reading import host_evaluation, seat_results
from purerl.runs.reading.choosing import Choice
from purerl.runs.reading.host_evaluation import Venue
from purerl.runs.reading.loading import Agent, Run, of_source
from purerl.store import guards
from purerl.types import Env, Key, Learner, PyTree, Situation, Trainer

MOST_ANEW = 10_000
"""The most episodes that a run directory, which is untrusted, can ask for."""
EPISODES, STEPS = 100, 10_000
"""The usual number of episodes of an evaluation, and the number of steps after which one is cut."""
EVALUATION_SALT, ANEW_SALT = 2**31, 2**31 + 4
"""Folded into a member's key for an evaluation, so that evaluating uses no key of the training; the second for one that
has other episodes than those by which the member was chosen."""


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

    They are those of ``against``, a run directory (`loading.load`), whose agents take turns if they are fewer; of
    ``RUN:AGENT`` that agent; or, for `RANDOM`, random moves. Policies take their most likely actions, or ``sample``;
    those that search do so with ``simulations`` (None: as in their training).

    Raises:
        ConfigError: The environment of ``run`` has one agent; or ``against`` cannot be read (`loading.load`); or
            its agents play another environment, or observe something else, or have no distribution to ``sample`` from.
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
        trust: As for `loading.load`.
        env_params: As for `loading.load`.
        eval_envs: The largest number of host environments that a member plays in (0: as many as it was trained in).
        sample: Whether actions are drawn from the policies' distributions, instead of the most likely ones.
        simulations: As for `loading.load`.
        simulations_against: Those of the players of the other agents; None: as many, if they search.

    Returns:
        The results of `Plays` and what identifies the run, which can be written as JSON.

    Raises:
        ConfigError: The run cannot be read (`loading.load`), or ``against`` is refused (`rivals`), or ``sample``
            (`chosen_by`).
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
        played = self.episodes(policy, first=first, seed=seed, seconds=seconds, salt=salt)
        result = told(played, self._env, against=self._others is not None)
        theirs_search = self._others.simulations if self._others else None
        of_theirs = {} if theirs_search is None else {"simulations_against": theirs_search}
        return result | manner(self._sample, planning.simulations(self._setup.config)) | of_theirs

    def episodes(
        self,
        policy: PyTree,
        *,
        first: int = 0,
        seed: int = 0,
        seconds: float = math.inf,
        salt: int = EVALUATION_SALT,
    ) -> Evaluation:
        """Plays as a call does, and returns the results of all episodes ``[P, E]``, a row for each agent of a game."""
        batch = slice(first, first + trees.length(policy))
        members = trees.take(self._setup.members, batch)
        theirs = trees.take(self._others.policies, batch) if self._others else ()
        return self._play(Batch(members.given, keys(members.keys, seed, salt), policy, theirs), seconds)

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
