"""Playing whole episodes in environments of the host."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from purerl import backend, trees
from purerl.hosts import opening, pool
from purerl.hosts.bundle import Stepper
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

        Args:
            stepper: The environments, ``num_episodes`` for each member.
            keys: Consumed. ``[P]``; the seeds of the environments follow from them.
            given: The arguments of the members, ``[P]``.
            num_episodes: The number of games of each member.
        """
        size = len(keys)
        start, go_on = self._programs(size)
        reader = Reader(self.env(given), size)
        lane, choice = start(given, reader.observed(stepper.reset(_seeds(keys, num_episodes))), keys)
        time = 0
        while True:
            time += 1
            stepper.send(reader.actions(choice.action))
            result = reader.result(stepper.receive())
            lane, choice, shown = go_on(given, lane, choice, result, keys, np.full(size, time, np.int32))
            yield shown


def ends(row: Transition) -> tuple[PyTree, PyTree]:
    """Returns the rewards and the ends of a row, which are all that an evaluation needs."""
    return row.reward, row.last


def evaluate(playing: Playing, keys: Key, given: PyTree, num_episodes: int, max_steps: int) -> Evaluation:
    """Plays episodes of each member as `evaluation.evaluate` does, with the leading axis ``[P]``.

    The first episode of each environment counts.

    Args:
        playing: The players, which show the `ends` of rows.
        keys: Consumed. ``[P]``.
        given: The arguments of the members, ``[P]``.
        num_episodes: The number of episodes of each member.
        max_steps: The number of steps after which an episode is cut off.

    Returns:
        The results, ``[P, num_episodes * N]`` for ``N`` agents in an environment.
    """
    env, size = playing.env(given), len(keys)
    shape = size, num_episodes * env.num_agents
    total, length, finished = np.zeros(shape, np.float32), np.zeros(shape, np.int32), np.zeros(shape, bool)
    who = opening.decided(env.host, size * num_episodes, num_episodes, HOW)
    with opening.opened(env.host, size * num_episodes, HOW, who, pool.to_stderr) as (stepper,):
        rows = playing.rows(stepper, keys, given, num_episodes)
        for _, row in zip(range(max_steps), rows, strict=False):
            reward, last = map(np.asarray, row)
            total += np.where(finished, 0.0, reward)
            length += ~finished
            finished |= last
            if finished.all():
                break
    result: Any = total, length, finished
    return Evaluation(*result)


def record(key: Key, env: Env, whole: Player, num_episodes: int, max_steps: int) -> Dataset:
    """Records episodes as `recording.record` does, in an environment of the host.

    Args:
        key: Consumed.
        env: The environment.
        whole: The player of all agents.
        num_episodes: The number of episodes.
        max_steps: The largest number of steps of an episode.
    """
    playing = Playing(lambda given: (env, whole))
    who = opening.decided(env.host, num_episodes, num_episodes, HOW)

    def segments() -> Iterator[tuple[Dataset, np.ndarray]]:
        finished = np.zeros(num_episodes * env.num_agents, bool)
        with opening.opened(env.host, num_episodes, HOW, who, pool.to_stderr) as (stepper,):
            rows = playing.rows(stepper, key[None], (np.zeros(1),), num_episodes)
            for time, row in zip(range(max_steps), rows, strict=False):
                made = Dataset(*jax.device_get(row._replace(extras=()))[:6])
                made = made._replace(truncated=made.truncated | ((time + 1 >= max_steps) & ~made.terminated))
                yield made, ~finished[None]
                finished |= made.last[0]
                if finished.all():
                    return

    return joined(segments())


def _seeds(keys: Key, num_episodes: int) -> np.ndarray:
    """Draws the seeds of the environments of each member, int64 ``[P * num_episodes]``."""
    drawn = np.asarray(jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys))
    spread = [np.random.SeedSequence(int(seed)).generate_state(num_episodes) for seed in drawn]
    return np.concatenate(spread).astype(np.int64) >> 1
