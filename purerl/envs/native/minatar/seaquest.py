"""Seaquest of MinAtar: a submarine shoots fish and enemy submarines, and takes divers to the surface."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.native.minatar.board import FULL, INDEX, SIZE, ahead, countdown, game, moved, of_rows, side_by_side
from purerl.types import Array, Env

ENEMIES, DIVERS = 32, 8
"""How many of the latest enemies and divers are kept: with the default parameters, never fewer than are alive."""


class Flying(NamedTuple):
    """Bullets: rows ``[10]`` int32, in whose elements bit ``x`` is column ``x``, of those that go left and right."""

    left: Array
    right: Array


class Swimming(NamedTuple):
    """Things that cross the board, the newest first ``[N]``.

    Bit ``x`` of ``bit`` is a thing's column, and 0 stands for one that is no longer there; then its row; whether it
    goes right (bool); the steps until it moves. All else is int32.
    """

    bit: Array
    row: Array
    right: Array
    wait: Array


class Physical(NamedTuple):
    """The state of the game.

    It has the submarine's cell, and whether it faces right; bullets of both sides; enemies and divers that swim. For
    each enemy ``armed`` (bool) distinguishes a submarine from a fish, and ``reload`` is the steps until it shoots.

    ``carried`` divers are on board, fewer than 0 after a full load was brought home. ``rest``, ``spawn`` and
    ``spawn_diver`` are the steps until the submarine can fire, an enemy and a diver come; ``spawn_speed`` and
    ``move_speed`` those between two enemies and between two of their moves, which fall every time (``ramps``) that the
    submarine comes up. Numbers are int32.
    """

    x: Array
    y: Array
    right: Array
    shots: Flying
    enemy_shots: Flying
    enemies: Swimming
    armed: Array
    reload: Array
    divers: Swimming
    oxygen: Array
    carried: Array
    rest: Array
    spawn: Array
    spawn_diver: Array
    spawn_speed: Array
    move_speed: Array
    ramps: Array


class Noise(NamedTuple):
    """The enemy and the diver that come, if they do, ``[]``.

    They are whether it goes right and is armed (bool), and its row, 1 to 8 (int32).
    """

    right: Array
    armed: Array
    row: Array
    diver_right: Array
    diver_row: Array


def seaquest(
    *,
    ramping: bool = True,
    init_spawn_speed: int = 20,
    init_move_interval: int = 5,
    max_oxygen: int = 200,
    diver_spawn_speed: int = 30,
    shot_cool_down: int = 5,
    enemy_shot_interval: int = 10,
    diver_move_interval: int = 5,
    max_steps_in_episode: int = 1000,
) -> Env:
    """Makes Seaquest-MinAtar, Young & Tian 2019.

    The reward is 1 for each enemy shot, and for six divers brought up one for each tenth of the oxygen that is left.
    Touching an enemy or its bullet terminates, as do surfacing without a diver and being without oxygen.

    Actions 0 to 5 leave the submarine, move it left, up, right, down, fire; it is at the surface in row 0. Coming up
    fills the oxygen, costs one diver (or all six), and lets enemies come and move faster. One enemy in three is armed
    and shoots; none comes in a row where one swims towards it. Channels: submarine, its back, bullets, the cells behind
    what swims, enemy bullets, fish, enemy submarines, oxygen, divers on board, divers.

    Args:
        ramping: Whether enemies get faster.
        init_spawn_speed: Steps between two enemies, at first.
        init_move_interval: Steps between two moves of enemies, at first.
        max_oxygen: Steps that a full load of oxygen lasts under water.
        diver_spawn_speed: Steps between two divers, less one.
        diver_move_interval: Steps between two moves of divers, less one.
        shot_cool_down: Steps between two shots of the submarine.
        enemy_shot_interval: Steps between two shots of an enemy, less one.
        max_steps_in_episode: Steps after which an episode is truncated.
    """

    def noise(key, shape):
        word = draw.bits(key, shape)
        number = lambda shift: jnp.asarray(word >> shift & 7, jnp.int32) + 1
        return Noise(word & 1 > 0, (word >> 8) % 3 == 0, number(1), word & 16 > 0, number(5))

    def initial(level):
        empty = jnp.zeros(SIZE, jnp.int32)
        return Physical(
            x=5,
            y=0,
            right=False,
            shots=Flying(empty, empty),
            enemy_shots=Flying(empty, empty),
            enemies=_nobody(ENEMIES),
            armed=jnp.zeros(ENEMIES, bool),
            reload=jnp.zeros(ENEMIES, jnp.int32),
            divers=_nobody(DIVERS),
            oxygen=max_oxygen,
            carried=0,
            rest=0,
            spawn=init_spawn_speed,
            spawn_diver=diver_spawn_speed,
            spawn_speed=init_spawn_speed,
            move_speed=init_move_interval,
            ramps=0,
        )

    def dynamics(now, action, noise):
        enemies, armed, reload, divers = now.enemies, now.armed, now.reload, now.divers
        opposed = (enemies.bit > 0) & (enemies.row == noise.row) & (enemies.right != noise.right)
        comes = (now.spawn == 0) & ~jnp.any(opposed)
        enemies = _come(comes, enemies, noise.right, noise.row, now.move_speed)
        armed, reload = _push(comes, armed, noise.armed), _push(comes, reload, enemy_shot_interval)
        divers = _come(now.spawn_diver == 0, divers, noise.diver_right, noise.diver_row, diver_move_interval)

        x = moved(now.x, action, 1, 3)
        y = moved(now.y, action, 2, 4, 0, SIZE - 2)
        right = (action == 3) | now.right & (action != 1)
        here = jnp.left_shift(1, x)
        row = jnp.where(y == INDEX, here, 0)
        fires = (action == 5) & (now.rest == 0)
        shots = _fly(
            Flying(
                now.shots.left | jnp.where(fires & ~right, row, 0), now.shots.right | jnp.where(fires & right, row, 0)
            )
        )

        shots, enemies, killed_fish = _shoot(shots, enemies, ~armed)
        shots, enemies, killed = _shoot(shots, enemies, armed)

        divers, carried = _pick_up(divers, now.carried, y, here)
        divers, carried = _pick_up(_swim(divers, True, diver_move_interval), carried, y, here)

        touched = _touches(enemies, y, here)
        enemies = _swim(enemies, armed, now.move_speed)
        touched_moved = _touches(enemies, y, here) & armed
        shots, enemies, killed_moved = _shoot(shots, enemies, armed)
        shoots = armed & (enemies.bit > 0) & (reload == 0)
        reload = jnp.where(shoots, enemy_shot_interval, jnp.maximum(reload - 1, 0))
        enemy_shots = Flying(
            now.enemy_shots.left | _rows(enemies, jnp.where(shoots & ~enemies.right, enemies.bit, 0)),
            now.enemy_shots.right | _rows(enemies, jnp.where(shoots & enemies.right, enemies.bit, 0)),
        )
        flown = _fly(enemy_shots)
        struck = jnp.any((enemy_shots.left | enemy_shots.right | flown.left | flown.right) & row > 0)

        enemies = _swim(enemies, ~armed, now.move_speed)
        touched_moved |= _touches(enemies, y, here) & ~armed
        shots, enemies, killed_fish_moved = _shoot(shots, enemies, ~armed)

        surfaces = (y == 0) & (now.y > 0)
        full = carried == 6
        ramp = ramping & surfaces & ((now.spawn_speed > 1) | (now.move_speed > 2))
        following = Physical(
            x=x,
            y=y,
            right=right,
            shots=shots,
            enemy_shots=flown,
            enemies=enemies,
            armed=armed,
            reload=reload,
            divers=divers,
            oxygen=jnp.where(surfaces, max_oxygen, now.oxygen - (y > 0)),
            carried=jnp.where(surfaces, jnp.where(full, -1, carried - 1), carried),
            rest=jnp.maximum(jnp.where(fires, shot_cool_down, now.rest) - 1, 0),
            spawn=jnp.maximum(countdown(now.spawn, now.spawn_speed), 0),
            spawn_diver=jnp.maximum(countdown(now.spawn_diver, diver_spawn_speed), 0),
            spawn_speed=now.spawn_speed - (ramp & (now.spawn_speed > 1)),
            move_speed=now.move_speed - (ramp & (now.move_speed > 2) & (now.ramps % 2 == 1)),
            ramps=now.ramps + ramp,
        )
        reward = killed_fish + killed + killed_moved + killed_fish_moved
        reward += jnp.where(surfaces & full, now.oxygen * SIZE // max_oxygen, 0)
        lost = struck | jnp.any(touched | touched_moved) | (now.oxygen <= 0) | (surfaces & (carried == 0))
        return following, reward, lost

    def observe(now):
        here = jnp.left_shift(1, now.x)
        at = lambda row, bits: jnp.where(row == INDEX, bits, 0)
        enemies, divers, carried = now.enemies, now.divers, jnp.maximum(now.carried, 0)
        gauge = jnp.left_shift(1, jnp.maximum(now.oxygen, 0) * SIZE // max_oxygen) - 1
        return of_rows(
            side_by_side(
                at(now.y, here),
                at(now.y, ahead(here, ~now.right)),
                now.shots.left | now.shots.right,
                _rows(enemies, ahead(enemies.bit, ~enemies.right)) | _rows(divers, ahead(divers.bit, ~divers.right)),
                now.enemy_shots.left | now.enemy_shots.right,
                _rows(enemies, jnp.where(now.armed, 0, enemies.bit)),
                _rows(enemies, jnp.where(now.armed, enemies.bit, 0)),
                at(SIZE - 1, gauge),
                at(SIZE - 1, jnp.left_shift(1, 9) - jnp.left_shift(1, 9 - carried)),
                _rows(divers, divers.bit),
            )
        )

    return game(
        "Seaquest-MinAtar",
        num_actions=6,
        num_channels=10,
        noise=noise,
        initial=initial,
        dynamics=dynamics,
        observe=observe,
        time_limit=max_steps_in_episode,
    )


def _nobody(number):
    zeros = jnp.zeros(number, jnp.int32)
    return Swimming(zeros, zeros, jnp.zeros(number, bool), zeros)


def _push(comes, values, value):
    """Puts ``value`` before ``values`` and drops the last, if one comes."""
    return jnp.where(comes, jnp.concatenate([jnp.asarray(value, values.dtype)[None], values[:-1]]), values)


def _come(comes, swimming, right, row, wait):
    new = Swimming(jnp.where(right, 1, 1 << SIZE - 1), row, right, wait)
    return jax.tree.map(lambda values, value: _push(comes, values, value), swimming, new)


def _fly(shots):
    return Flying(shots.left >> 1, shots.right << 1 & FULL)


def _swim(swimming, who, interval):
    """Moves the things ``who`` can move by a step; one that leaves the board is no longer there."""
    moves = who & (swimming.wait == 0)
    bit = jnp.where(moves, ahead(swimming.bit, swimming.right), swimming.bit)
    wait = jnp.where(moves, interval, jnp.where(who, jnp.maximum(swimming.wait - 1, 0), swimming.wait))
    return swimming._replace(bit=bit, wait=wait)


def _rows(swimming, bits):
    """Returns the rows ``[10]`` of ``bits``, which lie in the rows of the things that swim."""
    placed = jnp.where(INDEX[:, None] == swimming.row[None], bits[None], 0)
    return jax.lax.reduce(placed, 0, jax.lax.bitwise_or, (1,))


def _touches(swimming, y, here):
    """Returns which things are in the cell with row ``y`` and column bit ``here``."""
    return (swimming.row == y) & (swimming.bit == here)


def _shoot(shots, swimming, who):
    """Removes the oldest of the things ``who`` in the cell of each bullet; returns the rest and the number removed.

    Two bullets are never in one cell: all that go left are on the left of the submarine, none overtakes another.
    """
    facing = jnp.where(swimming.row[:, None] == INDEX[None], (shots.left | shots.right)[None], 0)
    target = jnp.where(who, swimming.bit & jnp.sum(facing, axis=1), 0)
    together = (swimming.row[:, None] == swimming.row[None]) & (target[:, None] & target[None] > 0)
    killed = (target > 0) & ~jnp.any(together & np.triu(np.ones(together.shape, bool), 1), axis=1)
    spent = ~_rows(swimming, jnp.where(killed, target, 0))
    swimming = swimming._replace(bit=jnp.where(killed, 0, swimming.bit))
    return Flying(shots.left & spent, shots.right & spent), swimming, jnp.sum(killed)


def _pick_up(divers, carried, y, here):
    """Returns the divers that are left in the sea, and the number on board.

    The oldest diver in this cell comes on board, as long as there is room.
    """
    met = _touches(divers, y, here)
    before = jnp.sum(met[None] & np.triu(np.ones((DIVERS, DIVERS), bool), 1), axis=1)
    taken = met & (before < 6 - carried)
    return divers._replace(bit=jnp.where(taken, 0, divers.bit)), carried + jnp.sum(taken)
