"""Playing whole episodes in environments of the host."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from purerl import backend, trees
from purerl.hosts import opening
from purerl.hosts.bundle import HostEnv
from purerl.hosts.opening import How
from purerl.loops import hosting
from purerl.loops.evaluation import Evaluation, Player
from purerl.loops.hosting import Came, Choice, Lane
from purerl.population.collecting import Reader
from purerl.population.hosting import every, whole
from purerl.types import Env, Key, PyTree, Situation

HOW = How(double_buffering="off")
"""How environments are stepped: nobody is asked."""


def evaluate(
    keys: Key,
    given: PyTree,
    make: Callable[[PyTree], tuple[Env, Player]],
    host: HostEnv,
    num_episodes: int,
    max_steps: int,
    seeds: np.ndarray,
) -> Evaluation:
    """Plays ``num_episodes`` episodes of each member, whose environment and `Player` ``make(given)`` makes, each for at
    most ``max_steps`` steps: what `loops.evaluate` does, with the leading axis ``[P]``.

    The first episode of each environment counts. ``seeds`` int64 ``[P]`` are of the environments; consumes ``keys``
    ``[P]``.
    """
    size, rows = len(seeds), num_episodes
    deal = whole(size)
    like = make(trees.take(given, 0))[0]
    reader, agents = Reader(like, size), like.num_agents

    def choose(given: PyTree, lane: Lane, key: Key, time: Any) -> Choice:
        action, carry = make(given)[1].act(Situation(lane.obs, lane.carry), jax.random.fold_in(key, time))
        return Choice(action, carry, ())

    def begin(given: PyTree, first: PyTree, key: Key) -> tuple[Lane, Choice]:
        env, player = make(given)
        lane = hosting.arrive(env, player.init_carry, first)
        return lane, choose(given, lane, key, 0)

    def move(given: PyTree, lane: Lane, choice: Choice, came: Came, key: Key, time: Any):
        env, player = make(given)
        lane, row = hosting.go_on(env, player.remember, lane, choice, came)
        return lane, choose(given, lane, key, time), (row.reward, row.last)

    options = backend.compiler_options()
    start, go_on = (jax.jit(every(one, deal), compiler_options=options) for one in (begin, move))
    total, length = np.zeros((size, rows * agents), np.float32), np.zeros((size, rows * agents), np.int32)
    finished = np.zeros((size, rows * agents), bool)
    who = opening.decided(host, size * rows, rows, HOW)
    with opening.opened(host, size * rows, HOW, who, print) as (stepper,):
        lane, choice = start(given, reader.observed(stepper.reset(_spread(seeds, rows))), keys)
        for time in range(1, max_steps + 1):
            stepper.send(reader.actions(choice.action))
            came = reader.came(stepper.receive())
            lane, choice, step = go_on(given, lane, choice, came, keys, np.full(size, time, np.int32))
            reward, last = map(np.asarray, step)
            total += np.where(finished, 0.0, reward)
            length += ~finished
            finished |= last
            if finished.all():
                break
    found: Any = total, length, finished
    return Evaluation(*found)


def _spread(seeds: np.ndarray, rows: int) -> np.ndarray:
    """Seeds of ``rows`` environments of each member, ``[P * rows]``."""
    drawn = [np.random.SeedSequence(int(seed)).generate_state(rows) for seed in seeds]
    return np.concatenate(drawn).astype(np.int64) >> 1
