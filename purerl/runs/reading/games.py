"""Games of a person against an agent of a run, move by move, for the terminal and for the page: ``purerl play``."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, trees
from purerl.errors import ConfigError
from purerl.formulas.outcomes import outcomes
from purerl.loops.evaluation import Player, chosen_by, playing, seated, watched
from purerl.runs.describing.reading_options import PlayOptions
from purerl.runs.reading import choosing, loading
from purerl.runs.reading.loading import Agent
from purerl.spaces import Discrete
from purerl.store import trusted_modules
from purerl.types import Array, Env, Key, PyTree, Situation

PLAYING_SALT = 2**31 + 7
"""Folded into the key of the seed of games with a person."""
SEATS = 2


class View(NamedTuple):
    """What a person sees before a step, as numpy: the own observation, which actions are legal, and whose turn it is.

    ``legal`` and ``acting`` are bool, ``[A]`` and ``[2]``.
    """

    obs: Any
    legal: Any
    acting: Any


class Answer(NamedTuple):
    """A move of the agent: its action, and what the search for it found (`Learner.search`), ``()`` without a search."""

    action: int
    found: Any


class Turn(NamedTuple):
    """A game where the person is asked for a move, or where it is over.

    - ``view``: what the person sees.
    - ``answers``: the agent's moves since the person's last one.
    - ``outcome``: 1 if the person has won, 0 for a draw, -1 if the agent has won; None: the game goes on.
    """

    view: View
    answers: list[Answer]
    outcome: int | None


class Table:
    """The compiled programs of games with the person in one seat and an agent in the other.

    ``begin(key) -> (situation, view)`` begins a game, which follows from ``key`` and the person's moves.
    ``move(key, situation, time, chosen) -> (situation, view, action [2], found, reward [2], over)`` takes a step, in
    which the person chooses an action if it is the person's turn.
    """

    def __init__(self, agent: Agent, seat: int, sample: bool):
        env = agent.env
        pair = [_person(), _in_turn(env, watched(agent.learner, agent.policy, sample=sample), 1 - seat)]
        whole = seated(pair[seat], pair[1 - seat], 1, SEATS)[0]  # the first sits in seat 0

        def begin(key: Key) -> tuple[Situation, View]:
            here = playing(key, env, whole, 1)[0]()
            return here, _view(env, here, seat)

        def move(key: Key, here: Situation, time: Array, chosen: Array) -> tuple[Any, ...]:
            carry = list(here.carry)
            carry[seat] = jnp.full(SEATS, chosen)
            after, action, step = playing(key, env, whole, 1)[1](here._replace(carry=tuple(carry)), time)
            carry = list(after.carry)
            own, found = carry[1 - seat]
            carry[1 - seat] = own, ()
            after = after._replace(carry=tuple(carry))
            return after, _view(env, after, seat), action, trees.take(found, 0), step.reward, jnp.all(step.game_over)

        # Ahead of time, where the precision of the command holds, which other threads do not know.
        key, how = jax.random.key(0), backend.compiler_options()
        self.begin = jax.jit(begin, compiler_options=how).lower(key).compile()
        given = key, jax.eval_shape(begin, key)[0], np.int32(0), np.int32(0)
        self.move = jax.jit(move, compiler_options=how).lower(*given).compile()


def _person() -> Player:
    """Makes the player of a person, whose actions ``[B]`` are put into the carry before each step."""
    return Player(
        lambda here, key: (here.carry, here.carry),
        lambda num_envs: jnp.zeros(num_envs, jnp.int32),
        lambda carry, step: carry,
    )


def _in_turn(env: Env, whole: Player, seat: int) -> Player:
    """Returns a player that computes nothing, such as a search, in the turns of others, unless it has a memory."""
    acting: Any = env.acting

    def act(here: Situation, key: Key) -> tuple[PyTree, PyTree]:
        chosen = lambda: whole.act(here, key)
        if jax.tree.leaves(here.carry):
            return chosen()
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(chosen))
        return jax.lax.cond(acting(here.obs)[seat], chosen, lambda: nothing)

    return whole._replace(act=act)


def _view(env: Env, here: Situation, seat: int) -> View:
    """Returns what the agent in ``seat`` of the only game sees."""
    acting: Any = env.acting
    space: Any = env.action_space
    obs: PyTree = trees.take(here.obs, seat)
    legal = env.legal(here.obs)[seat] if env.legal else jnp.ones(space.n, bool)
    return View(obs, legal, acting(here.obs))


class Games:
    """Games of a person against an agent, one after another, which follow from a seed and the person's moves.

    Args:
        agent: The agent, in an environment without a `problem`.
        seat: The person's seat, "0" or "1"; "random": drawn for each game.
        seed: The seed.
        sample: Whether the agent's actions are drawn from the distribution of its policy.
    """

    def __init__(self, agent: Agent, seat: str = "random", seed: int = 0, sample: bool = False):
        self.agent, self.seat, self.number = agent, 0, 0
        self._given, self._seed, self._sample = seat, seed, sample
        self._tables: dict[int, Table] = {}

    def begin(self) -> Turn:
        """Begins the next game, up to the person's first turn. What it needs is compiled."""
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self._seed), PLAYING_SALT), self.number)
        key_seat, self._key = jax.random.split(key)
        self.seat = int(jax.random.bernoulli(key_seat)) if self._given == "random" else int(self._given)
        self.number, self._time, self._returns, self._over = self.number + 1, 0, np.zeros(SEATS), False
        self._table = self._compiled(self.seat)
        self._here, view = self._table.begin(self._key)
        self._view = jax.device_get(view)
        return self._awaited([])

    def move(self, chosen: int) -> Turn:
        """Takes the person's legal action, and the agent's answers up to the person's next turn or the end."""
        return self._awaited(self._step(chosen))

    def compile(self) -> None:
        """Compiles all that games may need."""
        for seat in range(SEATS) if self._given == "random" else [int(self._given)]:
            self._compiled(seat)

    def _compiled(self, seat: int) -> Table:
        if seat not in self._tables:
            self._tables[seat] = Table(self.agent, seat, self._sample)
        return self._tables[seat]

    def _awaited(self, answers: list[Answer]) -> Turn:
        """Goes on to where the person is asked, or to the end; ``answers`` are those so far."""
        while not self._over and not self._view.acting[self.seat]:
            answers = answers + self._step(0)
        outcome = int(outcomes(self._returns)[self.seat]) if self._over else None
        return Turn(self._view, answers, outcome)

    def _step(self, chosen: int) -> list[Answer]:
        """Takes a step of the game; returns what the agent did, if it was its turn."""
        theirs = 1 - self.seat
        answers = bool(self._view.acting[theirs])
        self._here, *seen = self._table.move(self._key, self._here, np.int32(self._time), np.int32(chosen))
        self._view, action, found, reward, self._over = jax.device_get(seen)
        self._time, self._returns = self._time + 1, self._returns + reward
        return [Answer(int(action[theirs]), found)] if answers else []


def problem(env: Env) -> str:
    """Returns why a person cannot play in an environment; empty if one can."""
    if env.host:
        return "is an environment of the host"
    if env.num_agents != SEATS:
        return f"has {env.num_agents} agent{'s'[: env.num_agents != 1]}"
    if env.acting is None:
        return "has agents that act at the same time"
    return "" if isinstance(env.action_space, Discrete) else "has actions that are not one number"


def of_run(options: PlayOptions, env_params: dict[str, Any]) -> Games:
    """Makes the games that ``options`` ask for, with ``env_params`` in place of those of the run.

    Raises:
        ConfigError: The options are not possible, or the run's environment is no game of two who act in turn. Nothing
            is compiled.
    """
    trust = trusted_modules.memory(options.trust)
    how: dict[str, Any] = {"env_params": env_params, "playing": True, "simulations": options.simulations}
    agent = loading.agent(options.run, options.agent, trust=trust, **how)
    if reason := problem(agent.env):
        raise ConfigError(f"env = {agent.saved['env']!r}: {reason}; purerl play is for games of two that act in turn")
    chosen_by(agent.learner, options.sample)
    choosing.tell(agent.choice)
    return Games(agent, options.seat, options.seed, options.sample)
