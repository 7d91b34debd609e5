"""Learning against past selves: some games of a rollout are played against older versions of the learner.

By default the newest version has all seats of every game, and learns from all of them. With past selves, in some of the
environments the learner has one seat and an older version has the others, of whose play nothing is learned (Berner et
al. 2019, arXiv 1912.06680, appendix N; Vinyals et al. 2019, Nature 575, prioritised fictitious self-play).

``K`` past selves are kept, ``G`` of them met in one iteration. Rows are those of `envs.fleet`: environment ``i``, agent
``j`` is row ``i * N + j``.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl import trees
from purerl.curricula.settings import CurriculumSettings
from purerl.formulas import opponents
from purerl.learners.parts import settings
from purerl.learners.wrappers.wrapper import Wrapper, inside
from purerl.loops.settings import Loop
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Situation, Transition, Updated

AGAINST_PAST = "past", "prioritised"
WITH_PAST = cfg.Needs("past opponents", lambda config: config.opponents != "latest")
WITH_PAST_GAMES = cfg.Needs("opponents = 'past' or 'prioritised'", lambda config: config.opponents in AGAINST_PAST)
DECAY = 0.99
"""Factor of the record of wins, applied once in each iteration in which a past self was met."""


@cfg.config
class PastSettings:
    """Who the opponents are, in environments of several agents."""

    opponents: Literal["latest", "past", "prioritised", "league"] = "latest"
    """Opponents in training. latest: the learner itself. past: in some games older versions of it, chosen by OpenAI
    Five's quality scores. prioritised: older versions, chosen the more often the less often it beats them. league:
    AlphaStar's league of a main agent and exploiters, which learn together."""
    past_selves: Annotated[cfg.Count, WITH_PAST] = 8
    """Number of older versions to keep, the newest ones. In a league: of all its players together."""
    snapshot_period: Annotated[cfg.Count, WITH_PAST] = 10
    """Iterations between two kept versions of the learner or of a league's main agent. In a league also the longest
    time until a league exploiter is kept; a main exploiter has twice that."""
    past_met: Annotated[cfg.Count, WITH_PAST] = 4
    """Number of older versions that the learner plays in one iteration. In a league: number of simultaneous matches of
    each player."""
    past_games: Annotated[cfg.NonNegativeCount, WITH_PAST_GAMES] = 0
    """Number of environments in which older versions play: a multiple of past_met, at most num_envs. 0: about a fifth
    of num_envs."""


class PastState(NamedTuple):
    """The state of a learner that meets past selves.

    ``past`` are behaviours ``[K, ...]``, and ``present`` ``[K]`` says which of the places are filled; ``quality``,
    ``score`` and ``games`` ``[K]`` are the record against them. ``met`` ``[G]`` are the present opponents. ``age``
    counts iterations.
    """

    learner: PyTree
    past: PyTree
    present: Array
    quality: Array
    score: Array
    games: Array
    met: Array
    age: Array


class Seats(NamedTuple):
    """Rows of a fleet.

    ``learned`` are all that the learner learns from; ``ours`` and ``theirs`` ``[G, ...]`` are those of the learner and
    of each past self in their games.
    """

    learned: np.ndarray
    ours: np.ndarray
    theirs: np.ndarray


def num_games(config: PastSettings, num_envs: int) -> int:
    """Returns the number of environments in which past selves are met, of ``num_envs``."""
    return config.past_games or max(num_envs // 5 // config.past_met, 1) * config.past_met


def common_problems(config: Loop, opponents: str, env: Env | None) -> list[str]:
    """Returns a line if an environment has no opponents, and one if a curriculum chooses its levels."""
    problems = []
    if env is not None and env.num_agents == 1:
        problems.append(f"opponents = {opponents!r}: {env.name} has one agent")
    if isinstance(config, CurriculumSettings) and config.curriculum != "none":
        given = f"curriculum = {config.curriculum!r}"
        problems.append(f"{given}: must be 'none' with opponents = {opponents!r}; it needs {settings.EVERY_DECISION}")
    return problems


def problems(config: PastSettings, env: Env | None) -> list[str]:
    """Returns the reasons why past selves cannot be met, a line each."""
    if TYPE_CHECKING:
        assert isinstance(config, Loop)
    if problems := common_problems(config, config.opponents, env):
        return problems
    games = num_games(config, config.num_envs)
    if games % config.past_met or games > config.num_envs:
        problems.append(
            f"past_games = {games}: must be a multiple of past_met = {config.past_met}, at most num_envs = "
            f"{config.num_envs}"
        )
    if env is None or problems:
        return problems
    return minibatch_problems(config, seats(config, config.num_envs, env.num_agents).learned.size)


def minibatch_problems(config: Loop, num_rows: int) -> list[str]:
    """Returns a line if ``num_rows`` rows cannot be cut into the minibatches of ``config``, if it has any."""
    if not isinstance(config, settings.Minibatches):
        return []
    samples, what = num_rows * config.num_steps, "steps"
    remembers = isinstance(config, settings.Recall) and config.memory != "none"
    if remembers and isinstance(config, settings.SequenceMinibatches):
        samples, what = samples // config.sequence_steps, "sequences"
    if samples % config.num_minibatches:
        return [f"num_minibatches = {config.num_minibatches}: must divide the {samples} {what} that are learned from"]
    return []


def seats(config: PastSettings, num_envs: int, num_agents: int) -> Seats:
    """Assigns the rows to players. The learner's seat changes from one environment to the next."""
    envs = np.arange(num_games(config, num_envs))
    rows = envs[:, None] * num_agents + np.arange(num_agents)
    own = np.arange(num_agents) == (envs % num_agents)[:, None]
    theirs = rows[~own]
    everyone = np.arange(num_envs * num_agents)
    return Seats(
        np.setdiff1d(everyone, theirs),
        rows[own].reshape(config.past_met, -1),
        theirs.reshape(config.past_met, -1),
    )


class PastBehaviour(NamedTuple):
    """What acting needs: the learner's behaviour, and those of the past selves that are met ``[G, ...]``."""

    learner: PyTree
    facing: PyTree


def at_rows(here: Situation, rows: np.ndarray, num_agents: int) -> Situation:
    """Returns the situation of these rows, with the states of their environments."""
    env_state = trees.take(here.env_state, rows // num_agents)
    return Situation(trees.take(here.obs, rows), trees.take(here.carry, rows), env_state, rows % num_agents)


def against_past(config: PastSettings, num_envs: int, num_agents: int, learner: Learner) -> Learner:
    """Returns ``learner`` so that it meets its past selves, with a `PastState` around its own.

    A game counts for the past self that plays at its end, and as won if the learner's last reward is above 0. Rows of
    past selves are not among its `Learner.rows`. A version that is kept is how the learner acted in the last rollout.
    """
    where = seats(config, num_envs, num_agents)
    ours = np.searchsorted(where.learned, where.ours)

    def init(key: Key, obs: PyTree) -> PastState:
        learned = learner.init(key, trees.take(obs, where.learned))
        count, first = config.past_selves, jnp.zeros(config.past_selves)
        past = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), learner.behaviour(learned))
        met = jnp.zeros(config.past_met, jnp.int32)
        present = jnp.arange(count) == 0
        return PastState(learned, past, present, first, first, first, met, jnp.zeros((), jnp.int32))

    def behaviour(state: PastState) -> PastBehaviour:
        return PastBehaviour(learner.behaviour(state.learner), trees.take(state.past, state.met))

    def explore(behaviour: PastBehaviour, here: Situation, noise: PyTree) -> tuple[Array, PyTree, PyTree]:
        *mine, extras = learner.explore(behaviour.learner, here, noise)
        given = at_rows(here, where.theirs, num_agents), trees.take(noise, where.theirs)
        *theirs, _ = jax.vmap(learner.explore)(behaviour.facing, *given)
        return *jax.tree.map(lambda x, new: x.at[where.theirs].set(new), mine, theirs), extras

    def observe(state: PastState, trajectory: Transition, key: Key) -> tuple[PastState, Metrics]:
        key_learner, key_choose = jax.random.split(key)
        inner, more = learner.observe(state.learner, trajectory, key_learner)
        state = state._replace(learner=inner)
        points, last = opponents.points(trajectory.reward[:, ours]), trajectory.ended[:, ours]  # [T, G, games]
        of_each = lambda x: jnp.sum(jnp.where(last, x, 0.0), axis=(0, 2))
        score = of_each(points)
        games = of_each(1.0)
        wins = of_each(points == 1)
        state = _recorded(state, score, games, wins)._replace(age=state.age + 1)
        state = _enter(config, state, learner.behaviour(state.learner))
        chance = opponents.by_quality(state.quality, state.present)
        if config.opponents == "prioritised":
            rates = opponents.win_rates(opponents.Payoff(state.score, state.games))
            chance = opponents.shares(opponents.hard(rates), state.present)
        met = jax.vmap(opponents.choose, in_axes=(None, 0))(chance, jax.random.uniform(key_choose, (config.past_met,)))
        of_past = {
            "past_selves": jnp.sum(state.present, dtype=jnp.float32),
            "score_against_past": jnp.sum(score) / jnp.sum(games),
        }
        return state._replace(met=met), {**more, **of_past}

    def update(state: PastState, given: Any, key: Key) -> Updated:
        updated = learner.update(state.learner, given, key)
        return updated._replace(state=state._replace(learner=updated.state))

    functions = {"init": init, "behaviour": behaviour, "explore": explore, "observe": observe, "update": update}
    return inside(learner, **functions, rows=where.learned)


def _recorded(state: PastState, score: Array, games: Array, wins: Array) -> PastState:
    """Adds games against each of the past selves that were met, ``[G]``, to the record."""
    met = state.met
    forget = jnp.ones_like(state.score).at[met].set(DECAY)
    return state._replace(
        quality=opponents.beaten(state.quality, state.present, met, wins),
        score=(state.score * forget).at[met].add(score),
        games=(state.games * forget).at[met].add(games),
    )


def _enter(config: PastSettings, state: PastState, policy: PyTree) -> PastState:
    """Puts a new past self in the oldest one's place, if it is time."""
    due, slot = state.age % config.snapshot_period == 0, state.age // config.snapshot_period % config.past_selves
    quality, present = opponents.enter(state.quality, state.present, slot)
    entered = state._replace(
        past=jax.tree.map(lambda x, new: x.at[slot].set(new), state.past, policy),
        present=present,
        quality=quality,
        score=state.score.at[slot].set(0.0),
        games=state.games.at[slot].set(0.0),
    )
    chosen: PastState = jax.tree.map(lambda new, old: jnp.where(due, new, old), entered, state)
    return chosen


past = Wrapper(
    "opponents",
    PastSettings,
    "opponents",
    "latest",
    wrap=lambda config, env, learner: against_past(config, config.num_envs, env.num_agents, learner),
    on=AGAINST_PAST,
    problems=problems,
    withholds=(settings.EVERY_DECISION,),
)
