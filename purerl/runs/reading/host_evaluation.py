"""Playing whole episodes in environments of the host."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, trees
from purerl.formulas.outcomes import outcomes
from purerl.hosts import opening, pool
from purerl.hosts.bundle import HostEnv, Leaves, Stepper, Turn
from purerl.hosts.opening import How
from purerl.loops import hosting
from purerl.loops.evaluation import Evaluation, Player
from purerl.loops.hosting import Choice, Lane, StepResult
from purerl.loops.recording import joined
from purerl.population.collecting import Reader
from purerl.population.hosting import every, whole
from purerl.types import Dataset, Env, Key, PyTree, Situation, Transition

HOW = How(double_buffering="off")
"""How environments are stepped, because the user has no options for it here."""

Make = Callable[[PyTree], tuple[Env, Player]]
"""Makes a member's environment and the player in it, from the member's arguments."""


class Playing:
    """The players of members in environments of the host, which play step after step.

    ``make(given)`` makes each member's environment and player, and ``shown(row)`` chooses what `rows` yields of a step.
    The programs are compiled once for each number of members and episodes.
    """

    def __init__(self, make: Make, shown: Callable[[Transition], PyTree] = lambda row: row):
        def choose(given: PyTree, lane: Lane, key: Key, time: Any) -> Choice:
            action, carry = make(given)[1].act(Situation(lane.obs, lane.carry), jax.random.fold_in(key, time))
            return Choice(action, carry, ())

        def begin(given: PyTree, first: PyTree, key: Key) -> tuple[Lane, Choice]:
            env, player = make(given)
            lane = hosting.arrive(env, player.init_carry, first)
            return lane, choose(given, lane, key, 0)

        def move(given: PyTree, lane: Lane, choice: Choice, result: StepResult, key: Key, time: Any):
            env, player = make(given)
            lane, row = hosting.go_on(env, player.remember, lane, choice, result)
            return lane, choose(given, lane, key, time), shown(row)

        @functools.cache
        def programs(size: int) -> tuple[Callable[..., Any], ...]:
            deal, options = whole(size), backend.compiler_options()
            return tuple(jax.jit(every(one, deal), compiler_options=options) for one in (begin, move))

        self._make, self._programs = make, programs

    def env(self, given: PyTree) -> Env:
        """Returns the first member's environment."""
        return self._make(trees.take(given, 0))[0]

    def rows(self, stepper: Stepper, keys: Key, given: PyTree, num_episodes: int) -> Iterator[PyTree]:
        """Plays step after step without end, yielding what is shown of each step, ``[P, E]`` for all games.

        Consumes ``keys`` ``[P]``, from which the seeds of the environments follow, ``num_episodes`` for each member.
        """
        return self.rows_from(stepper.reset(_seeds(keys, num_episodes)), stepper, keys, given)

    def rows_from(
        self, first: Leaves, stepper: Stepper, keys: Key, given: PyTree, seen: Callable[[Turn], Turn] = lambda x: x
    ) -> Iterator[PyTree]:
        """Plays on from the ``first`` observations of episodes, as `rows` does; ``seen`` may change each turn."""
        size = len(keys)
        start, go_on = self._programs(size)
        reader = Reader(self.env(given), size)
        lane, choice = start(given, reader.observed(first), keys)
        time = 0
        while True:
            time += 1
            stepper.send(reader.actions(choice.action))
            result = reader.result(seen(stepper.receive()))
            lane, choice, shown = go_on(given, lane, choice, result, keys, np.full(size, time, np.int32))
            yield shown


def ends(row: Transition) -> tuple[PyTree, PyTree, PyTree]:
    """Returns the rewards of a row, who was in the game, and whether it ended: all that an evaluation needs."""
    present = jnp.ones_like(row.game_over) if isinstance(row.present, tuple) else row.present
    return row.reward, present, row.game_over


class Venue:
    """The environments in which evaluations play: opened by the first that needs them, and kept until they are closed.

    Args:
        copies: The largest number of environments of each member (0: as many as it has episodes).
        how: How they are stepped.
    """

    def __init__(self, copies: int = 0, how: How = HOW):
        self._copies, self._how = copies, how._replace(double_buffering="off")
        self._open = contextlib.ExitStack()
        self._opened: tuple[int, ...] = ()
        self._stepper: Stepper | None = None

    def size(self, num_episodes: int, seats: int = 1) -> int:
        """Returns the number of environments in which a member plays so many episodes.

        It is all of them, or divisible by ``seats``, so that an environment always has the same of them.
        """
        copies = self._copies or num_episodes
        return min(max(copies // seats, 1) * seats, num_episodes)

    def stepper(self, host: HostEnv, members: int, each: int, num_episodes: int, max_steps: int) -> Stepper:
        """Returns ``each`` environments for each of ``members`` that play so many episodes."""
        games = (-(-num_episodes // each), max_steps) if host.paced else (0, 0)
        if self._stepper is None or self._opened != (members, each, num_episodes, max_steps):
            self.close()
            who = opening.decided(host, members * each, each, self._how)
            opened = opening.opened(host, members * each, self._how, who, pool.to_stderr, games)
            (self._stepper,) = self._open.enter_context(opened)
            self._opened = members, each, num_episodes, max_steps
        return self._stepper

    def close(self) -> None:
        """Closes the environments; the next evaluation opens others."""
        self._stepper = None
        self._open.close()


class Step(NamedTuple):
    """A step of the environments ``[P, E]`` in which members play.

    - ``shown``: what is shown of it, ``[P, E * N]``.
    - ``episode``: the number of the episode that each environment plays; -1: none.
    - ``cut``: whether the episode was left after this step because it was too long.
    - ``told``: what the environments told, numbered member after member (`Turn.told`).
    """

    shown: PyTree
    episode: np.ndarray
    cut: np.ndarray
    told: Any


def steps(
    playing: Playing, venue: Venue, keys: Key, given: PyTree, num_episodes: int, max_steps: int, each: int
) -> Iterator[Step]:
    """Plays ``num_episodes`` of each member in ``each`` environments, yielding each step until all have ended.

    Consumes ``keys`` ``[P]``. Episode ``k`` is played in environment ``k % each``, after the others of that one, and
    begins from a seed of its own. An environment that has no episode left is not stepped; one that cannot be begun
    without the others waits for those.
    """
    size = len(keys)
    stepper = venue.stepper(playing.env(given).host, size, each, num_episodes, max_steps)
    several = -(-num_episodes // each)
    seeds = np.full((size, several * each), -1)
    seeds[:, :num_episodes] = _seeds(keys, num_episodes).reshape(size, num_episodes)
    left = np.ascontiguousarray(seeds.reshape(size, several, each).swapaxes(1, 2).reshape(size * each, several))
    numbers = np.tile(np.arange(several * each).reshape(several, each).T, (size, 1))  # [P * E, K]
    at, time = np.zeros(size * each, np.int64), np.zeros(size * each, np.int64)
    cut, playing_now = np.zeros(size * each, bool), left[:, 0] >= 0
    now = np.where(playing_now, numbers[:, 0], -1)
    told: Any = ()

    def seen(turn: Turn) -> Turn:
        nonlocal cut, now, told
        told = turn.told
        now = np.where(playing_now, numbers[np.arange(len(at)), at], -1)
        ended = turn.last.reshape(len(at), -1).all(axis=1)
        time[:] += playing_now
        over = playing_now & (ended | (time >= max_steps))
        cut = over & ~ended
        if cut.any():
            left_here = cut.reshape(-1, *[1] * (turn.truncated.ndim - 1))
            turn = turn._replace(truncated=turn.truncated | left_here & ~turn.terminated)
        playing_now[over] = False
        return turn

    def following() -> None:
        """Goes on with the next episodes of the environments that are not playing."""
        which = np.flatnonzero(~playing_now & (at + 1 < several))
        at[which] += 1
        time[which] = 0
        playing_now[which] = left[which, at[which]] >= 0
        left[which, at[which]] = -1

    paced = stepper.play is not None
    first = stepper.play(left, max_steps) if stepper.play else stepper.reset(np.maximum(left[:, 0], 0))
    left[:, 0] = -1
    while True:
        for shown in playing.rows_from(first, stepper, keys, given, seen):
            yield Step(shown, now.reshape(size, each), cut.reshape(size, each), told)
            if paced:
                following()
            if not playing_now.any():
                break
        if paced or at[0] + 1 >= several:
            return
        keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
        first = stepper.reset(np.maximum(left[:, at[0] + 1], 0))
        following()


def evaluate(
    playing: Playing,
    venue: Venue,
    keys: Key,
    given: PyTree,
    num_episodes: int,
    max_steps: int,
    each: int,
    seconds: float = np.inf,
) -> Evaluation:
    """Plays `steps` and evaluates episodes as `evaluation.evaluate` does, with the leading axis ``[P]``.

    The players show the `ends` of rows. All episodes are cut off after ``seconds``.

    Returns:
        The results, ``[P, num_episodes * N]`` for ``N`` agents in an environment, and ``info`` ``[P, num_episodes]``.
    """
    env, size = playing.env(given), len(keys)
    shape, start = (size, num_episodes, env.num_agents), time.monotonic()
    info: dict[str, np.ndarray] = {}
    total, length, finished = np.zeros(shape), np.zeros(shape, np.int32), np.zeros(shape, bool)
    for step in steps(playing, venue, keys, given, num_episodes, max_steps, each):
        member, copy = np.nonzero(step.episode >= 0)
        at, lead = (member, step.episode[member, copy]), (size, -1, env.num_agents)
        reward, present, over = (np.asarray(x).reshape(lead)[member, copy] for x in step.shown)
        total[at] += np.where(finished[at], 0.0, reward)
        length[at] += present & ~finished[at]
        finished[at] |= over & ~step.cut[member, copy, None]
        for row, numbers in step.told:
            mine, here = divmod(row, each)
            for name, number in numbers.items() if step.episode[mine, here] >= 0 else ():
                info.setdefault(name, np.full(shape[:2], np.nan))[mine, step.episode[mine, here]] = number
        if time.monotonic() - start >= seconds:
            break
    several = env.num_agents > 1
    outcome = outcomes(total.astype(np.float32)).reshape(size, -1) if several else ()
    result: Any = (x.reshape(size, -1) for x in (total, length, finished))
    return Evaluation(*result)._replace(info=info, outcome=outcome)


def record(key: Key, env: Env, whole: Player, num_episodes: int, max_steps: int, copies: int = 0) -> Dataset:
    """Records episodes as `recording.record` does, in at most so many ``copies`` of an environment of the host.

    Consumes ``key``. With 0 there are as many copies as episodes.
    """
    playing, agents = Playing(lambda given: (env, whole)), np.arange(env.num_agents)
    over = np.zeros((num_episodes, env.num_agents), bool)

    def segments() -> Iterator[tuple[Dataset, np.ndarray, np.ndarray]]:
        for step in steps(playing, venue, key[None], (np.zeros(1),), num_episodes, max_steps, venue.size(num_episodes)):
            made = Dataset(*jax.device_get(step.shown._replace(extras=()))[:6])
            number = step.episode[0]
            live = (number >= 0)[:, None] & ~over[number]
            ended, present = np.asarray(step.shown.game_over).reshape(live.shape), step.shown.present
            there = live if isinstance(present, tuple) else live & np.asarray(present).reshape(live.shape)
            yield made, there.reshape(1, -1), (number[:, None] * env.num_agents + agents).ravel()
            plays = number >= 0
            over[number[plays]] |= ended[plays]

    with contextlib.closing(Venue(copies)) as venue:
        return joined(segments())


def _seeds(keys: Key, num_episodes: int) -> np.ndarray:
    """Draws the seeds of the environments of each member, int64 ``[P * num_episodes]``."""
    drawn = np.asarray(jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys))
    spread = [np.random.SeedSequence(int(seed)).generate_state(num_episodes) for seed in drawn]
    return np.concatenate(spread).astype(np.int64) >> 1
