"""Types of an environment of the host: functions over numpy batches, without JAX.

``B`` environments step together. Observations are flat: the leaves of the library's observations, a dictionary's in the
order of its sorted keys, each ``[B, ...]``, or ``[B, N, ...]`` with ``N`` agents.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Leaves = tuple[np.ndarray, ...]
"""The observations of a batch."""


def packed(parts: Sequence[np.ndarray], lead: tuple[int, ...]) -> np.ndarray:
    """Joins the leaves ``[*lead, ...]`` of actions in a tree of spaces, as they travel to the environments.

    Returns:
        One array ``[*lead, D]`` of float64, which holds all numbers of 32 bits.
    """
    return np.concatenate([x.reshape(*lead, -1) for x in parts], axis=-1, dtype=np.float64)


class Turn(NamedTuple):
    """The result of one step of ``B`` environments. With ``N`` agents ``[B, N]`` leads where ``[B]`` is written.

    ``next_obs`` is what the actions led to, the last observation of an episode that ended; ``obs`` is what is acted
    upon next: the first of a new episode where one ended, otherwise the same. They may be the same arrays where none
    ended. ``reward`` is float32 ``[B]``; ``terminated`` and ``truncated`` are bool ``[B]``, and never both True. Of
    several agents each is flagged where it ends, and all of them are where the game is over.
    ``cut`` counts the episodes that were truncated because the worker that stepped them had failed. ``told`` are the
    numbers by name that environments told in the last steps of episodes, each with the number of the environment.
    """

    next_obs: Leaves
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    obs: Leaves
    cut: int = 0
    told: tuple[tuple[int, dict[str, float]], ...] = ()

    @property
    def last(self) -> np.ndarray:
        """Whether the episode ended here, either way. ``[B]`` bool."""
        return self.terminated | self.truncated


class Batch(NamedTuple):
    """``B`` environments that step together. Its functions own their state and never overwrite what they returned.

    ``reset(seeds)`` begins an episode everywhere, from seeds int64 ``[B]`` in [0, 2^31), the same each time, and
    returns the observations. ``step(action)`` takes actions ``[B, ...]``, or ``[B, N, ...]``, those in a tree of spaces
    `packed`, and begins the next episode where one ended. ``frame(i)`` is a picture ``[height, width, 3]`` uint8 of
    environment ``i``; None: there are no pictures.

    ``play(seeds, limit)`` also begins an episode everywhere, but of seeds ``[B, K]`` each environment plays its own one
    after another, leaving out those that are negative. Each is left after ``limit`` steps, which no flag tells. Then
    the environment is not stepped any more: its observation stays, its reward is 0. None: that is not possible.
    """

    reset: Callable[[np.ndarray], Leaves]
    step: Callable[[np.ndarray], Turn]
    close: Callable[[], None]
    frame: Callable[[int], np.ndarray] | None = None
    play: Callable[[np.ndarray, int], Leaves] | None = None


class Recipe(NamedTuple):
    """What an environment of the host is made from, in this process or in another: its name and its parameters."""

    name: str
    params: dict[str, Any]


class HostEnv(NamedTuple):
    """An environment of the host, with the function that makes batches of it.

    The spaces are plain ones of Gymnasium's (`purerl.hosts.leaves`), of one environment, or of one of its
    ``num_agents`` agents. ``batch(num_envs)`` makes a `Batch`. ``legal`` is the key, in a dictionary of observations,
    of the mask of the actions that may be taken; None: all may. ``threaded``: a batch steps in threads of its own, so
    that workers would gain nothing. ``partly_observed``: what an observation leaves out matters. ``fps`` is the speed
    at which films play. ``recipe`` holds the arguments that `purerl.hosts.making.make` made it from.
    ``pictured(num_envs)`` makes a `Batch` that is drawn; None: ``batch`` does. ``copies`` are the single environments
    of which batches are made (`purerl.hosts.copies`); None: there are none. ``here``: why workers cannot make it;
    empty: they can. ``paced``: its batches have ``play``. ``apart``: each environment can be stepped without the
    others. ``notes`` are lines that a user should read once, about what is read otherwise than it is given.
    ``seats``: observations have a last leaf beside those of the space, bool ``[B, N]``, which of the agents act next;
    without it all do, until their own end. ``limit``: the steps after which its own time limit truncates an episode; 0:
    none is known. ``zero_sum``: the rewards of all agents add up to 0 at every step.
    """

    name: str
    observation_space: Any
    action_space: Any
    batch: Callable[[int], Batch]
    num_agents: int = 1
    legal: str | None = None
    threaded: bool = False
    partly_observed: bool = False
    fps: float = 30.0
    recipe: Recipe = Recipe("", {})
    pictured: Callable[[int], Batch] | None = None
    copies: Any = None
    here: str = ""
    paced: bool = False
    apart: bool = True
    notes: tuple[str, ...] = ()
    seats: bool = False
    limit: int = 0
    zero_sum: bool = False


class Stepper(NamedTuple):
    """``B`` environments that are stepped elsewhere while this thread goes on: ``send(action)``, then ``receive()``.

    ``reset``, ``close`` and ``play`` are as in a `Batch`. Each ``send`` is followed by one ``receive``. The caller of
    ``play`` makes the seed of each episode that has begun negative, in the array that it gave, so that a worker that is
    restarted goes on with the others.
    """

    reset: Callable[[np.ndarray], Leaves]
    send: Callable[[np.ndarray], None]
    receive: Callable[[], Turn]
    close: Callable[[], None]
    play: Callable[[np.ndarray, int], Leaves] | None = None
