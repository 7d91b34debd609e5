"""Asterix of MinAtar: a player collects gold and evades enemies, which cross the board in eight rows."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.native.minatar.board import (
    INDEX,
    LANES,
    SIZE,
    ahead,
    countdown,
    game,
    lanes,
    moved,
    of_rows,
    side_by_side,
)
from purerl.types import Array, Env


class Physical(NamedTuple):
    """The state of the game.

    It has the player's cell; of the thing in each of the `LANES` ``[8]`` the column, as a bit, 0 if there is none, and
    whether it goes right and is gold (bool). ``spawn`` and ``move`` are the steps until the next thing comes and until
    all things move, ``spawn_speed`` and ``move_speed`` those between two times, ``ramp`` the steps until these fall,
    and ``ramps`` how often they did. All else is int32.
    """

    x: Array
    y: Array
    bit: Array
    right: Array
    gold: Array
    spawn: Array
    spawn_speed: Array
    move: Array
    move_speed: Array
    ramp: Array
    ramps: Array


class Noise(NamedTuple):
    """The thing that comes, if one does: whether it goes right and is gold, ``[]`` bool.

    ``order`` ``[8]``, of which no two are equal, is the order in which rows are tried.
    """

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
    """Makes Asterix-MinAtar, Young & Tian 2019.

    The reward is 1 for each gold; touching an enemy terminates.

    Actions 0 to 4 leave the player, move it left, up, right, down; it stays within the eight rows. What comes is gold
    with probability 1/3, else an enemy, from either side, in a row where nothing is. As in gymnax one row is left out
    by lot, and if things are in all the others, one of these vanishes. Channels: player, enemies, the cells behind
    things, gold.

    Args:
        ramping: Whether things come and move faster and faster.
        ramp_interval: Steps between two times that things get faster, less two.
        init_spawn_speed: Steps between two things that come, at first.
        init_move_interval: Steps between two moves of all things, at first.
        max_steps_in_episode: Steps after which an episode is truncated.
    """

    def noise(key, shape):
        words = draw.bits(key, (*shape, LANES.size + 1))
        number = jnp.broadcast_to(np.arange(LANES.size, dtype=np.uint32), (*shape, LANES.size))
        return Noise(words[..., 0] & 1 > 0, (words[..., 0] >> 1) % 3 == 0, words[..., 1:] & ~np.uint32(7) | number)

    def initial(level):
        return Physical(
            x=5,
            y=5,
            bit=jnp.zeros(LANES.shape, jnp.int32),
            right=jnp.zeros(LANES.shape, bool),
            gold=jnp.zeros(LANES.shape, bool),
            spawn=init_spawn_speed,
            spawn_speed=init_spawn_speed,
            move=init_move_interval,
            move_speed=init_move_interval,
            ramp=ramp_interval,
            ramps=0,
        )

    def dynamics(now, action, noise):
        order, last = noise.order, jnp.max(noise.order)
        tried = (now.bit == 0) & (order != jnp.min(order))
        comes = (now.spawn == 0) & (order == jnp.min(jnp.where(tried, order, last)))
        new = jnp.where(tried, jnp.where(noise.right, 1, 1 << SIZE - 1), 0)
        bit = jnp.where(comes, new, now.bit)
        right, gold = jnp.where(comes, noise.right, now.right), jnp.where(comes, noise.gold, now.gold)

        x = moved(now.x, action, 1, 3)
        y = moved(now.y, action, 2, 4, 1, SIZE - 2)
        here = jnp.where(y == LANES, jnp.left_shift(1, x), 0)
        met = bit & here > 0
        bit = jnp.where(met & gold, 0, bit)
        moves = now.move == 0
        bit = jnp.where(moves, ahead(bit, right), bit)
        met |= moves & (bit & here > 0)
        bit = jnp.where(met & gold, 0, bit)

        ramps = ramping & ((now.spawn_speed > 1) | (now.move_speed > 1))
        faster = ramps & (now.ramp < 0)
        following = Physical(
            x=x,
            y=y,
            bit=bit,
            right=right,
            gold=gold,
            spawn=countdown(now.spawn, now.spawn_speed),
            spawn_speed=now.spawn_speed - (faster & (now.spawn_speed > 1)),
            move=countdown(now.move, now.move_speed),
            move_speed=now.move_speed - (faster & (now.move_speed != 0) & (now.ramps % 2 == 1)),
            ramp=jnp.where(ramps & ~faster, now.ramp - 1, ramp_interval),
            ramps=now.ramps + faster,
        )
        return following, jnp.any(met & gold), jnp.any(met & ~gold)

    def observe(now):
        return of_rows(
            side_by_side(
                jnp.where(now.y == INDEX, jnp.left_shift(1, now.x), 0),
                lanes(jnp.where(now.gold, 0, now.bit)),
                lanes(ahead(now.bit, ~now.right)),
                lanes(jnp.where(now.gold, now.bit, 0)),
            )
        )

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
