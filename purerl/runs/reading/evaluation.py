"""Policies read back from a run directory, and played."""

import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from purerl import backend, population, spaces, trees
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError, own_code, place, told
from purerl.loops.evaluation import Evaluation, Player, evaluate, player, random_player, seated, versus
from purerl.names import Trust
from purerl.runs.describing.description import Description, Setup
from purerl.runs.describing.swept import env_part
from purerl.runs.reading import host_evaluation, sweeps
from purerl.store import policies
from purerl.types import Env, Key, Learner, PyTree, Situation, Trainer

EVALUATION_SALT = 2**31
"""Folded into a seed's key before it is evaluated, so that evaluating touches no key of the training."""


class Run(NamedTuple):
    """A trained run, read back: ``policy`` has a leading axis of agents ``[P]``, in the order of ``setup.labels``."""

    saved: dict[str, Any]
    setup: Setup
    env: Env
    learner: Learner
    policy: PyTree


def load(directory: str | Path, *, trust: Trust = False) -> Run:
    """Reads the policies of a run directory, which is untrusted. Raises `ConfigError` for none, or damaged ones.

    A run with an algorithm or an environment of anybody's own, a ``MODULE:ATTRIBUTE``, is refused unless ``trust``:
    its module is imported.

    ``run.learner.exploit(jax.tree.map(lambda x: x[i], run.policy), Situation(obs, run.learner.init_carry(B)), key)``
    acts as agent ``i`` does in observations ``[B, ...]``.
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
    except Exception as error:  # sizes that no machine can hold raise errors of any type, of several libraries
        if place(error):
            raise ConfigError(f"{path}: code of your own raised {told(error)}") from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{path}: not a run that can be built ({reason[:200]})") from error
    return Run(saved, setup, env, learner, policy)


class Agent(NamedTuple):
    """One agent of a run: what its run ``saved``, its ``label`` there, the environment that it was trained in with all
    its parameters, and the learner and the policy that it acts by."""

    saved: dict[str, Any]
    label: dict[str, int]
    env_params: dict[str, Any]
    env: Env
    learner: Learner
    policy: PyTree


def agent(directory: str | Path, number: int, *, trust: Trust = False) -> Agent:
    """The agent ``number`` of a run directory. Raises `ConfigError` as `load` does, and if there is no such agent."""
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
    """The shapes of ``members`` policies. Nothing is allocated, whatever sizes the description names."""
    first = {name: column[:1] for name, column in description.swept.items()}
    setup = Setup.of(description._replace(seeds=description.seeds[:1], swept=first))

    def fresh(key):
        learner = setup.make_learner(config=setup.config, env_params=env_part(setup.swept, 0))
        _, obs = fleet(setup.make_env(env_part(setup.swept, 0)), setup.config.num_envs).reset(key)
        return learner.policy(learner.init(key, obs))

    like = jax.eval_shape(fresh, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), like)


RANDOM = "random"


class Rivals(NamedTuple):
    """Who plays the other agents: ``player(env, policy)`` of the policies ``[P]``, one for each member."""

    player: Callable[[Env, PyTree], Player]
    policies: PyTree


def rivals(run: Run, against: str, *, trust: Trust = False) -> Rivals:
    """The agents of the run directory ``against``, by turns if they are fewer, or `RANDOM` moves.

    Raises `ConfigError` as `load` does, and if the environment of ``run`` has one agent or what the rivals see is
    something else.
    """
    env, size = run.env, run.setup.members.size
    if env.num_agents == 1:
        raise ConfigError(f"against = {against!r}: {run.saved['algo']} on {run.saved['env']} is one agent")
    if against == RANDOM:
        return Rivals(lambda env, policy: random_player(env), ())
    other = load(against, trust=trust)
    same = other.saved["env"] == run.saved["env"] and spaces.struct(other.env.observation_space) == spaces.struct(
        env.observation_space
    )
    if not same or other.env.num_agents != env.num_agents:
        raise ConfigError(f"against = {against!r}: its agents do not play {run.saved['env']} as those of the run do")
    which = np.arange(size) % other.setup.members.size
    return Rivals(lambda env, policy: player(other.learner, policy), trees.take(other.policy, which))


def evaluate_run(
    directory: Path, episodes: int, max_steps: int, seed: int, *, against: str = "", trust: Trust = False
) -> dict[str, Any]:
    """Plays the policies of a run directory, which is only read; ``against`` others if named (`rivals`). Raises
    `ConfigError` as `load` does, which ``trust`` is for."""
    run = load(directory, trust=trust)
    others = rivals(run, against, trust=trust) if against else None
    with own_code(run.saved["algo"]):
        played = play(run.setup, run.policy, episodes, max_steps, seed=seed, others=others)
    return {
        "run": str(directory),
        **{name: run.saved[name] for name in ("algo", "env", "seeds", "swept")},
        "members": run.setup.labels,
        "episodes": episodes,
        **played,
    }


def play(
    setup: Setup,
    policy: PyTree,
    episodes: int,
    max_steps: int,
    *,
    seed: int = 0,
    batch_size: int | None = None,
    others: Rivals | None = None,
) -> dict[str, Any]:
    """Plays ``episodes`` with each member's policy, in its own environment; lists have an entry for each member.

    Arguments are as for `prepare` and for what it returns.
    """
    return prepare(setup, episodes, max_steps, batch_size=batch_size, others=others)(policy, seed=seed)


class Plays(Protocol):
    """Plays with the policies ``[B]`` of the members from number ``first`` on."""

    def __call__(self, policy: PyTree, *, first: int = 0, seed: int = 0) -> dict[str, Any]: ...


def prepare(
    setup: Setup, episodes: int, max_steps: int, *, batch_size: int | None = None, others: Rivals | None = None
) -> Plays:
    """A program that plays ``episodes`` with policies of members, each in its member's own environment; lists in what
    it returns have an entry for each. It is compiled at its first call.

    The episodes follow from the member's key and ``seed``; those of seed 0 end a training. ``batch_size`` members play
    at once (default: all), on the devices of this process alone. With ``others`` in the other seats there are also the
    parts of the episodes whose return was above, at and below 0.
    """
    whole = setup.members.size
    layout = population.layout(min(batch_size or whole, whole), jax.local_devices())

    def one(member, state):
        given, key, policy, theirs = member
        env, learner = setup.make_env(given.get("env_params")), setup.make_learner(**given)
        if others is None:
            return state, evaluate(key, env, learner, policy, episodes, max_steps)
        mine, rival = player(learner, policy), others.player(env, theirs)
        return state, versus(key, env, mine, rival, episodes, max_steps)

    program = jax.jit(population.spread(one, layout), compiler_options=backend.compiler_options())

    def seats(given: dict[str, Any], policy: PyTree, theirs: PyTree) -> tuple[Env, Player, np.ndarray]:
        env, mine = setup.make_env(given.get("env_params")), player(setup.make_learner(**given), policy)
        if others is None:
            return env, mine, np.arange(episodes * env.num_agents)
        return env, *seated(mine, others.player(env, theirs), episodes, env.num_agents)

    hosted = host_evaluation.Playing(lambda mine: seats(*mine)[:2], host_evaluation.ends)

    def on_host(everyone: Any) -> Evaluation:
        given, keys, policy, theirs = everyone
        mine = given, policy, theirs
        found = host_evaluation.evaluate(hosted, keys, mine, episodes, max_steps)
        rows = seats(*trees.take(mine, 0))[2]
        return Evaluation(*(x[:, rows] for x in found))

    def plays(policy: PyTree, *, first: int = 0, seed: int = 0) -> dict[str, Any]:
        size, found = trees.length(policy), []
        members = trees.take(setup.members, slice(first, first + size))
        fold = lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION_SALT), seed)
        theirs = trees.take(others.policies, slice(first, first + size)) if others else ()
        everyone = members.given, jax.vmap(fold)(members.keys), policy, theirs
        if setup.host:
            found.append(on_host(everyone))
        for start in range(0, 0 if setup.host else size, layout.size):
            batch = trees.take(everyone, slice(start, start + layout.size))
            found.append(jax.device_get(program(population.place(batch, layout), ())[1]))
        episode_return, length, finished = (np.concatenate(x)[:size] for x in zip(*found, strict=True))
        per_seed = episode_return.mean(axis=1, dtype=np.float64)
        return {
            "return_mean": float(per_seed.mean()),
            "return_per_seed": per_seed.tolist(),
            "return_std_per_seed": episode_return.std(axis=1, dtype=np.float64).tolist(),
            "length_per_seed": length.mean(axis=1).tolist(),
            "unfinished_per_seed": (~finished).sum(axis=1).tolist(),
            **(results(episode_return) if others else {}),
        }

    return plays


def trace(setup: Setup, trainer: Trainer, episodes: int, max_steps: int) -> None:
    """Traces how the first member's policy plays, so that what raises is met before it is trained. Computes nothing."""

    def played(key: Key) -> PyTree:
        env, learner, state = setup.make_env(env_part(setup.swept, 0)), trainer.learner, trainer.init(key)
        policy = learner.policy(state.learner)
        if env.host:
            return learner.exploit(policy, Situation(state.actors.obs, state.actors.carry), key)
        return evaluate(key, env, learner, policy, episodes, max_steps)

    jax.eval_shape(played, setup.members.keys[0])


def results(episode_return: np.ndarray) -> dict[str, list[float]]:
    """The parts of the episodes ``[P, E]`` that were won, drawn and lost: whose return was above, at and below 0."""
    found = {"won": episode_return > 0, "drawn": episode_return == 0, "lost": episode_return < 0}
    return {f"{name}_per_seed": x.mean(axis=1).tolist() for name, x in found.items()}
