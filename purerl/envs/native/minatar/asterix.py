"""Asterix of MinAtar: a player collects gold and evades enemies, which cross the board in eight rows."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.native.minatar.board import INDEX, LANES, SIZE, game, lanes, rows
from purerl.types import Array, Env


class Physical(NamedTuple):
    """The player's cell; for each of the `LANES` ``[8]`` whether a thing is there, its column, whether it goes right,
    whether it is gold. ``spawn`` and ``move`` are the steps until the next thing comes and until all things move,
    ``spawn_speed`` and ``move_speed`` those between two times, ``ramp`` the steps until it gets faster, and ``ramps``
    how often it did. Integers are int32, others bool."""

    x: Array
    y: Array
    there: Array
    column: Array
    right: Array
    gold: Array
    spawn: Array
    spawn_speed: Array
    move: Array
    move_speed: Array
    ramp: Array
    ramps: Array


class Noise(NamedTuple):
    """The thing that comes, if one does: whether it goes right and is gold, ``[]`` bool. ``order`` ``[8]``, of which no
    two are equal, says in which order rows are tried."""

    right: Array
    gold: Array
    order: Array


def asterix(
    *,
    ramping: bool = True,
    ramp_interval: int = 100,
    init_spawn_speed: int = 10,
    init_move_interval: int = 5,
    max_steps_in_episode: int = 1000,
) -> Env:
    """Asterix-MinAtar, Young & Tian 2019. The reward is 1 for each gold; touching an enemy terminates.

    Actions 0 to 4 leave the player, move it left, up, right, down; it stays within the eight rows. What comes is gold
    with probability 1/3, else an enemy, from either side, in a row where nothing is. As in gymnax one row is left out
    by lot, and if things are in all the others, one of these vanishes. Channels: player, enemies, the cells behind
    things, gold.

    - ``ramping``: whether things come and move faster and faster.
    - ``ramp_interval``: steps between two times that they get faster, less two.
    - ``init_spawn_speed``: steps between two things that come, at first.
    - ``init_move_interval``: steps between two moves of all things, at first.
    - ``max_steps_in_episode``: steps after which an episode is truncated.
    """

    def noise(key, shape):
        words = draw.bits(key, (*shape, LANES.size + 1))
        order = (words[..., 1:] & ~np.uint32(7)) | np.arange(LANES.size, dtype=np.uint32)
        return Noise(words[..., 0] & 1 > 0, (words[..., 0] >> 1) % 3 == 0, order)

    def initial(noise):
        nothing = jnp.zeros(LANES.shape, bool)
        return Physical(
            x=5,
            y=5,
            there=nothing,
            column=jnp.zeros(LANES.shape, jnp.int32),
            right=nothing,
            gold=nothing,
            spawn=init_spawn_speed,
            spawn_speed=init_spawn_speed,
            move=init_move_interval,
            move_speed=init_move_interval,
            ramp=ramp_interval,
            ramps=0,
        )

    def dynamics(now, action, noise):
        order, last = noise.order, jnp.max(noise.order)
        tried = ~now.there & (order != jnp.min(order))
        comes = (now.spawn == 0) & (order == jnp.min(jnp.where(tried, order, last)))
        there = now.there ^ comes
        column = jnp.where(comes, jnp.where(noise.right, 0, SIZE - 1), now.column)
        right, gold = jnp.where(comes, noise.right, now.right), jnp.where(comes, noise.gold, now.gold)
        x = jnp.clip(now.x + (action == 3) - (action == 1), 0, SIZE - 1)
        y = jnp.clip(now.y + (action == 4) - (action == 2), 1, SIZE - 2)

        met = there & (y == LANES) & (x == column)
        there &= ~(met & gold)
        moves = now.move == 0
        column = column + jnp.where(moves, jnp.where(right, 1, -1), 0)
        met_moved = moves & there & (y == LANES) & (x == column)
        there &= ~(met_moved & gold) & (column >= 0) & (column < SIZE)

        ramps = ramping & ((now.spawn_speed > 1) | (now.move_speed > 1))
        faster = ramps & (now.ramp < 0)
        following = Physical(
            x=x,
            y=y,
            there=there,
            column=column,
            right=right,
            gold=gold,
            spawn=jnp.where(now.spawn == 0, now.spawn_speed, now.spawn) - 1,
            spawn_speed=now.spawn_speed - (faster & (now.spawn_speed > 1)),
            move=jnp.where(moves, now.move_speed, now.move) - 1,
            move_speed=now.move_speed - (faster & (now.move_speed != 0) & (now.ramps % 2 == 1)),
            ramp=jnp.where(ramps & ~faster, now.ramp - 1, ramp_interval),
            ramps=now.ramps + faster,
        )
        met_any = met | met_moved
        return following, jnp.any(met_any & gold), jnp.any(met_any & ~gold)

    def observe(now):
        behind = now.column - jnp.where(now.right, 1, -1)
        things = jnp.where(now.there, 4 * now.column + jnp.where(now.gold, 3, 1), -1)
        trails = jnp.where(now.there, 4 * behind + 2, -1)
        return rows(4, jnp.where(now.y == INDEX, 4 * now.x, -1), lanes(things), lanes(trails))

    return game(
        "Asterix-MinAtar",
        num_actions=5,
        num_channels=4,
        noise=noise,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps_in_episode,
    )
