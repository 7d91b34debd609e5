"""Policies that are read back from a run directory, and played."""

import contextlib
import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from purerl import backend, population, spaces, trees
from purerl.display.progress import console, waiting
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError, one_line, own_code, place
from purerl.loops.evaluation import Evaluation, Player, evaluate, player, random_player, seated, versus
from purerl.names import Trust
from purerl.population import layouts
from purerl.population.layouts import spread
from purerl.runs.describing.description import Description, Setup
from purerl.runs.describing.interrupts import breakable
from purerl.runs.describing.swept import env_part
from purerl.runs.reading import host_evaluation, sweeps
from purerl.runs.reading.host_evaluation import Venue
from purerl.store import policies
from purerl.types import Env, Key, Learner, PyTree, Situation, Trainer

EVALUATION_SALT = 2**31
"""Folded into a member's key for an evaluation, so that evaluating uses no key of the training."""


class Run(NamedTuple):
    """A trained run, read back. ``policy`` has a leading axis of agents ``[P]``, in the order of ``setup.labels``."""

    saved: dict[str, Any]
    setup: Setup
    env: Env
    learner: Learner
    policy: PyTree


def load(directory: str | Path, *, trust: Trust = False) -> Run:
    """Reads the policies of a run directory, which is untrusted.

    ``run.learner.exploit(jax.tree.map(lambda x: x[i], run.policy), Situation(obs, run.learner.init_carry(B)), key)``
    acts as agent ``i`` does in observations ``[B, ...]``.

    Args:
        directory: The run directory.
        trust: Whether an algorithm or an environment of the user's own, a ``MODULE:ATTRIBUTE``, may be imported; a run
            that names one is refused otherwise.

    Raises:
        ConfigError: There are no policies; or they are damaged; or the directory holds a sweep over several programs;
            or the run is refused.
    """
    path = Path(directory) / policies.DESCRIPTION
    if parts := sweeps.parts(Path(directory)):
        raise ConfigError(f"{directory}: is a sweep of several programs; name one of {parts[0]} to {parts[-1]}")
    saved = policies.load_description(Path(directory))
    description = Description.of_json(saved, str(path), trust=trust)
    size = len(description.seeds) * len(next(iter(description.swept.values()), [0]))
    members = saved.get("members")
    if type(members) is not int or not 1 <= members <= size:
        raise ConfigError(f"{path}: members = {reprlib.repr(members)}: must be a whole number in [1, {size}]")
    try:
        policy = policies.load_policy(Path(directory), saved, shapes(description, members))
        setup = Setup.of(description).first(members)
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
    return Run(saved, setup, env, learner, policy)


class Agent(NamedTuple):
    """An agent of a run.

    - ``saved``: the description that its run saved.
    - ``label``: its label in the run.
    - ``env_params``: all parameters of the environment that it was trained in.
    - ``env``: that environment.
    - ``learner``, ``policy``: the learner and the policy that it acts by.
    """

    saved: dict[str, Any]
    label: dict[str, int]
    env_params: dict[str, Any]
    env: Env
    learner: Learner
    policy: PyTree


def agent(directory: str | Path, number: int, *, trust: Trust = False) -> Agent:
    """Reads an agent of a run directory.

    Args:
        directory: The run directory.
        number: The number of the agent.
        trust: As for `load`.

    Raises:
        ConfigError: The run cannot be read (`load`), or it has no such agent.
    """
    run = load(directory, trust=trust)
    size = run.setup.members.size
    if number >= size:
        raise ConfigError(f"agent = {number}: {directory} has agents 0 to {size - 1}")
    params = env_part(run.setup.swept, number // len(run.saved["seeds"]))
    return Agent(
        run.saved,
        run.setup.labels[number],
        {**run.saved["env_params"], **params},
        run.setup.make_env(params),
        run.setup.make_learner(**trees.take(run.setup.members.given, number)),
        trees.take(run.policy, number),
    )


def shapes(description: Description, members: int) -> PyTree:
    """Returns the shapes of the policies ``[members, ...]`` of a run.

    Nothing is allocated, whatever sizes the description names.
    """
    first = {name: column[:1] for name, column in description.swept.items()}
    setup = Setup.of(description._replace(seeds=description.seeds[:1], swept=first))

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
    """

    player: Callable[[Env, PyTree], Player]
    policies: PyTree


def rivals(run: Run, against: str, *, trust: Trust = False) -> Rivals:
    """Makes the players of the other agents in an evaluation.

    Args:
        run: The run that is evaluated.
        against: A run directory, whose agents take turns if they are fewer; or `RANDOM` for random moves.
        trust: As for `load`.

    Raises:
        ConfigError: The environment of ``run`` has one agent; or ``against`` cannot be read (`load`); or its agents
            play another environment, or observe something else.
    """
    env, size = run.env, run.setup.members.size
    if env.num_agents == 1:
        raise ConfigError(f"against = {against!r}: {run.saved['algo']} on {run.saved['env']} has one agent")
    if against == RANDOM:
        return Rivals(lambda env, policy: random_player(env), ())
    other = load(against, trust=trust)
    same = other.saved["env"] == run.saved["env"] and spaces.struct(other.env.observation_space) == spaces.struct(
        env.observation_space
    )
    if not same or other.env.num_agents != env.num_agents:
        raise ConfigError(f"against = {against!r}: must be a run in the same environment, {run.saved['env']}")
    which = np.arange(size) % other.setup.members.size
    return Rivals(lambda env, policy: player(other.learner, policy), trees.take(other.policy, which))


def evaluate_run(
    directory: Path,
    episodes: int,
    max_steps: int,
    seed: int,
    *,
    against: str = "",
    trust: Trust = False,
    eval_envs: int = 0,
) -> dict[str, Any]:
    """Plays the policies of a run directory, which is only read, and returns each member's results.

    Args:
        directory: The run directory.
        episodes: The number of episodes of each member.
        max_steps: The number of steps after which an episode is cut off.
        seed: The episodes follow from it and the members' keys.
        against: The players of the other agents (`rivals`); empty: the policies play all agents.
        trust: As for `load`.
        eval_envs: The largest number of host environments that a member plays in (0: as many as it was trained in).

    Returns:
        The results of `Plays` and what identifies the run, which can be written as JSON.

    Raises:
        ConfigError: The run cannot be read (`load`), or ``against`` is refused (`rivals`).
    """
    run = load(directory, trust=trust)
    others = rivals(run, against, trust=trust) if against else None
    with (
        own_code(run.saved["algo"]),
        waiting(console(), "evaluating"),
        contextlib.closing(Venue(eval_envs or run.setup.config.num_envs)) as venue,
    ):
        played = prepare(run.setup, episodes, max_steps, others=others, venue=venue)(run.policy, seed=seed)
    return {
        "run": str(directory),
        **{name: run.saved[name] for name in ("algo", "env", "seeds", "swept")},
        "members": run.setup.labels,
        "episodes": episodes,
        **played,
    }


class Plays(Protocol):
    """A function that plays episodes with the policies ``[B]`` of the members from number ``first`` on.

    The episodes follow from the members' keys and ``seed``. In environments of the host all that have not ended are cut
    off after ``seconds``.
    """

    def __call__(self, policy: PyTree, *, first: int = 0, seed: int = 0, seconds: float = math.inf) -> dict[str, Any]:
        """Returns the results of the episodes; lists have an entry for each member."""
        ...


def prepare(
    setup: Setup,
    episodes: int,
    max_steps: int,
    *,
    batch_size: int | None = None,
    others: Rivals | None = None,
    venue: Venue | None = None,
) -> Plays:
    """Makes a function that plays episodes with members' policies, each in its member's own environment.

    It is compiled at its first call. The episodes follow from the member's key and ``seed``; those of seed 0 are the
    ones of the evaluation that ends a training.

    Args:
        setup: The setup of the run.
        episodes: The number of episodes of each member.
        max_steps: The number of steps after which an episode is cut off.
        batch_size: The number of members that play at once, on the devices of this process alone; None: all.
        others: The players of the other agents. With them the results also hold the fractions of the episodes whose
            return was above, at and below 0. None: the policies play all agents.
        venue: The host environments, which stay open; None: as many as train a member, closed after each call.

    Returns:
        The function. Lists in the results that it returns have an entry for each member. The return of a member of
        whose episodes none ended is nan; episodes that were cut off otherwise count as they are.
    """
    whole = setup.members.size
    layout = population.layout(min(batch_size or whole, whole), jax.local_devices())

    def one(member: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        given, key, policy, theirs = member
        env, learner = setup.make_env(given.get("env_params")), setup.make_learner(**given)
        if others is None:
            return state, evaluate(key, env, learner, policy, episodes, max_steps)
        mine, rival = player(learner, policy), others.player(env, theirs)
        return state, versus(key, env, mine, rival, episodes, max_steps)

    program = jax.jit(spread(one, layout), compiler_options=backend.compiler_options())

    def seats(given: dict[str, Any], policy: PyTree, theirs: PyTree) -> tuple[Env, Player, np.ndarray]:
        env, mine = setup.make_env(given.get("env_params")), player(setup.make_learner(**given), policy)
        if others is None:
            return env, mine, np.arange(episodes * env.num_agents)
        rival = others.player(env, theirs)
        games = places.size(episodes, env.num_agents)
        return env, seated(mine, rival, games, env.num_agents)[0], seated(mine, rival, episodes, env.num_agents)[1]

    places = venue or Venue(setup.config.num_envs)
    hosted = host_evaluation.Playing(lambda mine: seats(*mine)[:2], host_evaluation.ends)

    def on_host(everyone: Any, seconds: float) -> Evaluation:
        given, keys, policy, theirs = everyone
        mine = given, policy, theirs
        env, _, rows = seats(*trees.take(mine, 0))
        each = places.size(episodes, 1 if others is None else env.num_agents)
        with contextlib.nullcontext() if venue else contextlib.closing(places), breakable:
            results = host_evaluation.evaluate(hosted, places, keys, mine, episodes, max_steps, each, seconds)
        return Evaluation(*(x[:, rows] for x in results))

    def plays(policy: PyTree, *, first: int = 0, seed: int = 0, seconds: float = math.inf) -> dict[str, Any]:
        size, batches = trees.length(policy), []
        members = trees.take(setup.members, slice(first, first + size))
        fold = lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION_SALT), seed)
        theirs = trees.take(others.policies, slice(first, first + size)) if others else ()
        everyone = members.given, jax.vmap(fold)(members.keys), policy, theirs
        if setup.host:
            batches.append(on_host(everyone, seconds))
        for start in range(0, 0 if setup.host else size, layout.size):
            batch = trees.take(everyone, slice(start, start + layout.size))
            batches.append(jax.device_get(program(layouts.place(batch, layout), ())[1]))
        episode_return, length, finished = (np.concatenate(x)[:size] for x in zip(*batches, strict=True))
        known = lambda values: np.where(finished.any(axis=1), values, np.nan)
        per_seed = known(episode_return.mean(axis=1, dtype=np.float64))
        return {
            "return_mean": float(per_seed.mean()),
            "return_per_seed": per_seed.tolist(),
            "return_std_per_seed": known(episode_return.std(axis=1, dtype=np.float64)).tolist(),
            "length_per_seed": length.mean(axis=1).tolist(),
            "unfinished_per_seed": (~finished).sum(axis=1).tolist(),
            **cut_off(length, finished),
            **(results(episode_return) if others else {}),
        }

    return plays


def cut_off(length: np.ndarray, finished: np.ndarray) -> dict[str, Any]:
    """Returns how many episodes ``[P, E]`` were cut off, of how many, and after how many steps; empty if all ended."""
    count = int((~finished).sum())
    about = {"episodes": count, "of": finished.size, "after_steps": int(length[~finished].max(initial=0))}
    return {"cut_off": about} if count else {}


def trace(setup: Setup, trainer: Trainer, episodes: int, max_steps: int) -> None:
    """Traces how the first member's policy plays, so that errors show before the training. Computes nothing.

    In environments of the host only the choice of an action is traced.
    """

    def played(key: Key) -> PyTree:
        env, learner, state = setup.make_env(env_part(setup.swept, 0)), trainer.learner, trainer.init(key)
        policy = learner.policy(state.learner)
        if env.host:
            return learner.exploit(policy, Situation(state.actors.obs, state.actors.carry), key)
        return evaluate(key, env, learner, policy, episodes, max_steps)

    jax.eval_shape(played, setup.members.keys[0])


def results(episode_return: np.ndarray) -> dict[str, list[float]]:
    """Computes the fractions of the episodes that were won, drawn and lost: with a return above, at and below 0.

    Args:
        episode_return: ``[P, E]``.
    """
    outcomes = {"won": episode_return > 0, "drawn": episode_return == 0, "lost": episode_return < 0}
    return {f"{name}_per_seed": x.mean(axis=1).tolist() for name, x in outcomes.items()}
