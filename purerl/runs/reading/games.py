"""Games of a person against an agent of a run, at the terminal: ``purerl play``."""

import itertools
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, trees
from purerl.display import output, text_boards, words
from purerl.errors import ConfigError
from purerl.formulas.outcomes import outcomes
from purerl.loops.evaluation import Player, chosen_by, player, playing, seated
from purerl.runs.describing.options import PlayOptions
from purerl.runs.reading import choosing, evaluation
from purerl.runs.reading.evaluation import Agent
from purerl.spaces import Discrete
from purerl.store import trusted_modules
from purerl.types import Array, Env, Key, PyTree, Situation

PLAYING_SALT = 2**31 + 7
"""Folded into the key of the seed of games with a person."""
QUIT = "q"
"""What a person answers who wants to end."""
SEATS = 2
RESULTS = {1: "you win", 0: "a draw", -1: "{} wins"}


class View(NamedTuple):
    """What a person sees before a step, as numpy: the own observation, which actions are legal, and whose turn it is.

    ``legal`` and ``acting`` are bool, ``[A]`` and ``[2]``.
    """

    obs: Any
    legal: Any
    acting: Any


class Table:
    """A game of a person in a seat against an agent in the other, which is compiled at its first step.

    ``seats`` are of the person and the agent.
    """

    def __init__(self, agent: Agent, seat: int, sample: bool):
        env, self.seats = agent.env, (seat, 1 - seat)
        pair = [_person(), _in_turn(env, player(agent.learner, agent.policy, sample=sample), 1 - seat)]
        whole = seated(pair[seat], pair[1 - seat], 1, SEATS)[0]  # the first sits in seat 0

        def begin(key: Key) -> tuple[Situation, View]:
            here = playing(key, env, whole, 1)[0]()
            return here, _view(env, here, seat)

        def move(key: Key, here: Situation, time: Array, chosen: Array) -> tuple[Any, ...]:
            carry = (*here.carry[:seat], jnp.full(SEATS, chosen), *here.carry[seat + 1 :])
            after, action, step = playing(key, env, whole, 1)[1](here._replace(carry=carry), time)
            return after, _view(env, after, seat), action, step.reward, jnp.all(step.game_over)

        how = backend.compiler_options()
        self._begin, self._move = (jax.jit(function, compiler_options=how) for function in (begin, move))

    def begin(self, key: Key) -> View:
        """Begins a game, which follows from ``key`` and the person's moves."""
        self._key, self._time, self.returns, self.over = key, 0, np.zeros(SEATS), False
        self._here, view = self._begin(key)
        return jax.device_get(view)

    def move(self, chosen: int) -> tuple[View, int]:
        """Takes a step, in which the person chooses an action; returns what comes next and the agent's action."""
        self._here, *seen = self._move(self._key, self._here, self._time, np.int32(chosen))
        view, action, reward, self.over = jax.device_get(seen)
        self._time, self.returns = self._time + 1, self.returns + reward
        return view, int(action[self.seats[1]])


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
    obs: PyTree = trees.take(here.obs, seat)
    legal = env.legal(here.obs)[seat] if env.legal else jnp.ones(env.action_space.num, bool)
    return View(obs, legal, acting(here.obs))


def problem(env: Env) -> str:
    """Returns why a person cannot play in an environment; empty if one can."""
    if env.host:
        return "is an environment of the host"
    if env.num_agents != SEATS:
        return f"has {env.num_agents} agent{'s'[: env.num_agents != 1]}"
    if env.acting is None:
        return "has agents that act at the same time"
    return "" if isinstance(env.action_space, Discrete) else "has actions that are not one number"


def play(options: PlayOptions, env_params: dict[str, Any]) -> None:
    """Plays games with the person at the terminal, until the person or the input ends.

    Raises:
        ConfigError: The options are not possible, or the run's environment is no game of two who act in turn. Nothing
            is compiled.
    """
    trust = trusted_modules.memory(options.trust)
    how: dict[str, Any] = {"env_params": env_params, "playing": True, "simulations": options.simulations}
    agent = evaluation.agent(options.run, options.agent, trust=trust, **how)
    name = agent.saved["env"]
    if reason := problem(agent.env):
        raise ConfigError(f"env = {name!r}: {reason}; purerl play is for games of two that act in turn")
    chosen_by(agent.learner, options.sample)
    choosing.tell(agent.choice)
    tables: dict[int, Table] = {}
    for number in itertools.count():
        key_seat, key_game = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(jax.random.key(options.seed), PLAYING_SALT), number)
        )
        seat = int(jax.random.bernoulli(key_seat)) if options.seat == "random" else int(options.seat)
        table = tables.setdefault(seat, Table(agent, seat, options.sample))
        about = words.simulations({"simulations": agent.simulations})
        output.show(f"{name}: you are seat {seat}, {agent.saved['algo']} is seat {1 - seat}{about}; {QUIT} ends")
        if not _game(table, key_game, agent):
            return
        if _answer("again? (y, n) ") not in ("y", "yes"):
            return


def _game(table: Table, key: Key, agent: Agent) -> bool:
    """Plays a game; returns whether it came to its end."""
    view, (mine, theirs) = table.begin(key), table.seats
    shown = lambda: text_boards.board(agent.saved["env"], agent.env.observation_space, view.obs, view.legal)
    while not table.over:
        chosen = 0
        acts = view.acting
        if acts[mine]:
            output.show(shown())
            asked = _ask(view.legal)
            if asked is None:
                return False
            chosen = asked
        view, answer = table.move(chosen)
        if acts[theirs]:
            output.show(f"{agent.saved['algo']} plays {answer}")
    output.show(shown())
    output.show(RESULTS[int(outcomes(table.returns)[mine])].format(agent.saved["algo"]))
    return True


def _ask(legal: np.ndarray) -> int | None:
    """Asks for a legal action until there is one; None: the person or the input ends."""
    listed = text_boards.numbers(legal)
    while (answer := _answer(f"your move ({listed}): ")) not in (QUIT, ""):
        if not (answer.isascii() and answer.isdecimal() and len(answer) < 10 and int(answer) < len(legal)):
            output.show(f"{answer[:40]!r}: is no move; give one of {listed}, or {QUIT} to end")
        elif not legal[int(answer)]:
            output.show(f"{answer}: is not legal; give one of {listed}, or {QUIT} to end")
        else:
            return int(answer)
    return None


def _answer(question: str) -> str:
    """Prints a question and reads a line, without spaces around it; empty at the end of the input."""
    while True:
        print(question, end="", file=output.results(), flush=True)
        line = sys.stdin.readline()
        if not line:
            output.show("")
        if not line or line.strip():
            return line.strip().lower()
