"""Freeway of MinAtar: a chicken crosses a road of eight lanes, with a car on each."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.native.minatar.board import FULL, INDEX, LANES, SIZE, game, lanes, of_rows
from purerl.types import Array, Env

COLUMN = 1 << 4
"""The chicken's column, as a bit."""
SLOWEST = 5
"""The most steps that a car waits between moves; the fewest are 1."""
CHANNELS = np.arange(2 + SLOWEST, dtype=np.int32)[None]
"""The numbers of the channels: chicken, cars, and one for each number of steps that cars wait."""


class Physical(NamedTuple):
    """The state of the game. All numbers are int32.

    It has the chicken's row, and the steps until it can move; of the cars ``[8]`` columns, as bits, velocities, and the
    steps until they move. A velocity of -3 is one cell to the left every four steps.
    """

    chicken: Array
    rest: Array
    cars: Array
    velocity: Array
    wait: Array


def freeway(*, player_speed: int = 3, max_steps_in_episode: int = 2500) -> Env:
    """Makes Freeway-MinAtar, Young & Tian 2019.

    The reward is 1 for each crossing; episodes never terminate.

    Actions 0, 1, 2 leave the chicken, move it up, down. A car that hits it, before or after it moved itself, sends it
    back to the bottom; so does a crossing, at which all cars get new velocities. A car leaves the board at one side and
    enters at the other. Channels: chicken, cars, and the cells behind cars that wait 1, 2, 3, 4, 5 steps between moves.

    Args:
        player_speed: Steps between moves of the chicken.
        max_steps_in_episode: Steps after which an episode is truncated.
    """

    def initial(velocities):
        return Physical(SIZE - 1, player_speed, jnp.ones_like(velocities), velocities, jnp.abs(velocities))

    def dynamics(now, action, velocities):
        moves = (action > 0) & (now.rest == 0)
        chicken = jnp.where(moves, jnp.minimum(now.chicken + jnp.where(action == 1, -1, 1), SIZE - 1), now.chicken)
        rest = jnp.where(moves, player_speed, now.rest)
        crossed = chicken == 0
        chicken = jnp.where(crossed, SIZE - 1, chicken)
        velocity = jnp.where(crossed, velocities, now.velocity)
        wait = jnp.where(crossed, jnp.abs(velocity), now.wait)
        drives = wait == 0
        cars = jnp.where(drives, _around(now.cars, velocity > 0), now.cars)
        hit = jnp.any((chicken == LANES) & ((now.cars == COLUMN) | (cars == COLUMN)))
        following = Physical(
            chicken=jnp.where(hit, SIZE - 1, chicken),
            rest=jnp.maximum(rest - 1, 0),
            cars=cars,
            velocity=velocity,
            wait=jnp.where(drives, jnp.abs(velocity), wait - 1),
        )
        return following, crossed, jnp.zeros((), bool)

    def observe(now):
        chicken, cars = jnp.where(now.chicken == INDEX, COLUMN, 0), lanes(now.cars)
        behind, trail = lanes(_around(now.cars, now.velocity < 0)), lanes(1 + jnp.abs(now.velocity))
        rows = jnp.where(CHANNELS == 0, chicken[:, None], jnp.where(CHANNELS == 1, cars[:, None], 0))
        return of_rows(rows | jnp.where(trail[:, None] == CHANNELS, behind[:, None], 0))

    return game(
        "Freeway-MinAtar",
        num_actions=3,
        num_channels=2 + SLOWEST,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps_in_episode,
        levels=_velocities,
        noise=_velocities,
    )


def _velocities(key, shape):
    """Draws velocities ``[*shape, 8]`` int32 of the cars, -5 to 5 without 0.

    Their chances differ by less than 1 in 6,000.
    """
    choice = jnp.asarray((draw.bits(key, (*shape, LANES.size)) & 0xFFFF) * 10 >> 16, jnp.int32)
    return jnp.where(choice < 5, choice - 5, choice - 4)


def _around(bit, right):
    """Returns the next column bit to the right, or to the left; beyond the board the one at its other side."""
    return jnp.where(right, bit << 1 & FULL | bit >> SIZE - 1, bit >> 1 | bit << SIZE - 1 & FULL)
