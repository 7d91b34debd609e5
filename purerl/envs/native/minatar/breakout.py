"""Breakout of MinAtar: a paddle keeps a ball in play that clears three rows of bricks."""

from typing import NamedTuple

import jax.numpy as jnp

from purerl import draw
from purerl.envs.native.minatar.board import INDEX, SIZE, cell, game, moved, of_columns, side_by_side
from purerl.types import Array, Env

WALL = 2 ** (3 * SIZE) - 1
"""The bits of all bricks."""


class Physical(NamedTuple):
    """Where things are; all are int32 ``[]`` but ``struck``.

    The ball is at ``(x, y)``, was at ``(last_x, last_y)``, and moves by ``(velocity_x, velocity_y)``, each -1 or 1.
    Bit ``3 * x + y - 1`` of ``bricks`` is the brick in column ``x`` and row ``y``, 1 to 3. ``struck`` (bool): the ball
    is among bricks since the step before, so that it breaks none.
    """

    paddle: Array
    x: Array
    y: Array
    last_x: Array
    last_y: Array
    velocity_x: Array
    velocity_y: Array
    bricks: Array
    struck: Array


def breakout(*, max_steps_in_episode: int = 1000) -> Env:
    """Makes Breakout-MinAtar, Young & Tian 2019.

    The reward is 1 for each brick; a ball that gets past the paddle terminates.

    Actions 0, 1, 2 leave the paddle, move it left, right. The ball moves along diagonals and is reflected by walls,
    bricks and paddle; where the paddle meets it only after both moved, the ball goes back to where it came from. The
    ball starts at either side, which is the level ``[]`` bool. New bricks come when the ball is at the bottom and none
    are left. Channels: paddle, ball, where the ball was, bricks.

    Args:
        max_steps_in_episode: Steps after which an episode is truncated.
    """

    def initial(right):
        x = jnp.where(right, SIZE - 1, 0)
        return Physical(4, x, 3, x, 3, jnp.where(right, -1, 1), 1, WALL, False)

    def dynamics(now, action):
        paddle = moved(now.paddle, action, 1, 2)
        x, y = now.x + now.velocity_x, now.y + now.velocity_y
        side, ceiling = (x < 0) | (x >= SIZE), y < 0
        x, y = jnp.clip(x, 0, SIZE - 1), jnp.maximum(y, 0)
        place = 3 * x + jnp.clip(y, 1, 3) - 1
        struck = (y >= 1) & (y <= 3) & ((now.bricks >> place) & 1 > 0)
        broken = struck & ~now.struck
        bricks = now.bricks - jnp.where(broken, jnp.left_shift(1, place), 0)
        bottom = y == SIZE - 1
        bricks = jnp.where(bottom & (bricks == 0), WALL, bricks)
        met_before = bottom & (now.x == paddle)
        met_after = bottom & ~met_before & (x == paddle)
        back = broken | met_before | met_after
        following = Physical(
            paddle=paddle,
            x=x,
            y=jnp.where(back, now.y, y),
            last_x=now.x,
            last_y=now.y,
            velocity_x=jnp.where(side ^ met_after, -now.velocity_x, now.velocity_x),
            velocity_y=jnp.where(ceiling | back, -now.velocity_y, now.velocity_y),
            bricks=bricks,
            struck=struck,
        )
        return following, broken, bottom & ~back

    def observe(now):
        return of_columns(
            side_by_side(
                cell(now.paddle, SIZE - 1),
                cell(now.x, now.y),
                cell(now.last_x, now.last_y),
                ((now.bricks >> 3 * INDEX) & 7) << 1,
            )
        )

    return game(
        "Breakout-MinAtar",
        num_actions=3,
        num_channels=4,
        levels=lambda key, shape: draw.bits(key, shape) & 1 > 0,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps_in_episode,
    )
