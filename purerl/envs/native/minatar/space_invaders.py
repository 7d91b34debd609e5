"""Space Invaders of MinAtar: a cannon shoots at a block of aliens that comes down and shoots back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.envs.native.minatar.board import FULL, INDEX, SIZE, cell, countdown, game, moved, of_columns, side_by_side
from purerl.types import Array, Env

ALIENS = np.where((INDEX >= 2) & (INDEX < 8), 0b1111, 0).astype(np.int32)
"""Columns of a new block of aliens."""


class Physical(NamedTuple):
    """The state of the game.

    It has the cannon's column; the columns ``[10]`` of aliens, bullets and enemy bullets, in whose elements bit ``y``
    is row ``y``; whether the aliens go right (bool). ``move`` and ``shot`` are the steps until the aliens move and
    shoot, ``interval`` the most steps between two moves, ``rest`` those until the cannon can fire. All else is int32.
    """

    cannon: Array
    aliens: Array
    bullets: Array
    enemy_bullets: Array
    right: Array
    move: Array
    shot: Array
    interval: Array
    rest: Array


def space_invaders(
    *,
    shot_cool_down: int = 5,
    enemy_move_interval: int = 12,
    enemy_shot_interval: int = 10,
    max_steps_in_episode: int = 1000,
) -> Env:
    """Makes SpaceInvaders-MinAtar, Young & Tian 2019.

    The reward is 1 for each alien shot; an alien or a bullet that meets the cannon terminates.

    Actions 0 to 3 leave the cannon, move it left, right, fire. At either side the aliens go a row down and turn, and
    terminate from the last row. The fewer aliens are left the faster they go; the next block is faster still. The alien
    that shoots is the lowest of the column that is nearest to the cannon, the left one of two. Nothing is random.
    Channels: cannon, aliens, aliens that go left, aliens that go right, bullets, enemy bullets.

    Args:
        shot_cool_down: Steps between two shots of the cannon.
        enemy_move_interval: The most steps between two moves of the first aliens; 6 is the least that it falls to.
        enemy_shot_interval: Steps between two shots of the aliens.
        max_steps_in_episode: Steps after which an episode is truncated.
    """

    def initial(level):
        nothing = jnp.zeros(SIZE, jnp.int32)
        return Physical(
            cannon=5,
            aliens=jnp.asarray(ALIENS),
            bullets=nothing,
            enemy_bullets=nothing,
            right=False,
            move=enemy_move_interval,
            shot=enemy_shot_interval,
            interval=enemy_move_interval,
            rest=0,
        )

    def dynamics(now, action):
        fires = (action == 3) & (now.rest == 0)
        bullets = (now.bullets | jnp.where(fires, cell(now.cannon, SIZE - 1), 0)) >> 1
        enemy_bullets = now.enemy_bullets << 1 & FULL
        cannon = moved(now.cannon, action, 1, 2)
        here = cell(cannon, SIZE - 1)

        moves = now.move == 0
        edge = jnp.where(now.right, now.aliens[-1], now.aliens[0]) != 0
        turns = moves & edge
        aside = jnp.where(now.right, jnp.roll(now.aliens, 1), jnp.roll(now.aliens, -1))
        down = now.aliens << 1 & FULL | now.aliens >> SIZE - 1
        aliens = jnp.where(moves, jnp.where(edge, down, aside), now.aliens)
        landed = turns & jnp.any(now.aliens >> SIZE - 1 > 0)
        met = jnp.any((here & (enemy_bullets | now.aliens | aliens)) > 0)

        distance = jnp.where(aliens > 0, 2 * jnp.abs(INDEX - cannon) + (cannon < INDEX), 2 * SIZE)
        shoots = (now.shot == 0) & (distance == jnp.min(distance))
        enemy_bullets |= jnp.where(shoots, _highest_bit(aliens), 0)

        shot = aliens & bullets
        left = aliens ^ shot
        cleared = jnp.all(left == 0)
        following = Physical(
            cannon=cannon,
            aliens=jnp.where(cleared, ALIENS, left),
            bullets=bullets ^ shot,
            enemy_bullets=enemy_bullets,
            right=now.right ^ turns,
            move=jnp.where(moves, jnp.minimum(_count(now.aliens), now.interval), now.move) - 1,
            shot=countdown(now.shot, enemy_shot_interval),
            interval=now.interval - (cleared & (now.interval > 6)),
            rest=jnp.maximum(jnp.where(fires, shot_cool_down, now.rest) - 1, 0),
        )
        return following, _count(shot), landed | met

    def observe(now):
        left, right = jnp.where(now.right, 0, now.aliens), jnp.where(now.right, now.aliens, 0)
        return of_columns(
            side_by_side(cell(now.cannon, SIZE - 1), now.aliens, left, right, now.bullets, now.enemy_bullets)
        )

    return game(
        "SpaceInvaders-MinAtar",
        num_actions=4,
        num_channels=6,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps_in_episode,
    )


def _count(columns):
    """Counts the cells that are set."""
    return jnp.sum(jax.lax.population_count(columns))


def _highest_bit(columns):
    """Returns the highest bit of each element, for that is the lowest row; there is one in each that counts."""
    return jnp.left_shift(1, 31 - jax.lax.clz(columns))
