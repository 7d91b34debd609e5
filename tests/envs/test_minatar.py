"""The native games of MinAtar against gymnax's, step by step, with the random numbers that gymnax draws."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import compiling
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fleets import alone

from purerl import envs
from purerl.catalogue import NATIVE
from purerl.envs.native.minatar import asterix, seaquest
from purerl.envs.native.minatar.board import SIZE
from purerl.names import imported
from purerl.spaces import sample

NUM_ENVS, NUM_STEPS = 100, 1001
INDEX = jnp.arange(SIZE)


class Game(NamedTuple):
    """How one game is compared.

    ``noise(key_step)`` and ``level(key_reset)`` are ours, of the numbers that gymnax draws. ``state(ours)`` gives
    fields of gymnax's state by name, from our physical state; ``theirs(state)`` brings gymnax's into a form that can be
    compared. The environments have the default parameters by turns with the ``other`` ones, by which rare things happen
    often. Half of all have a player that gets further than random ones do, whose action ``skilled(state)`` depends on
    gymnax's state.
    """

    state: Callable[[Any], dict[str, Any]]
    other: tuple[dict[str, int], ...]
    skilled: Callable[[Any], Any]
    theirs: Callable[[Any], Any] = lambda state: state
    noise: Callable[[Any], Any] = lambda key_step: ()
    level: Callable[[Any], Any] = lambda key_reset: jnp.zeros(())


def column(bit):
    """The columns of bits ``[N]``; -1 for none."""
    return jnp.sum(bit[:, None] >> INDEX[None, :] > 0, axis=1) - 1


def breakout_state(ours):
    bricks = (ours.bricks >> (3 * INDEX[None, :] + jnp.arange(3)[:, None])) & 1
    return {
        "pos": ours.paddle,
        "ball_x": ours.x,
        "ball_y": ours.y,
        "last_x": ours.last_x,
        "last_y": ours.last_y,
        "ball_dir": jnp.where(ours.velocity_y < 0, ours.velocity_x > 0, 2 + (ours.velocity_x < 0)),
        "brick_map": jnp.zeros((SIZE, SIZE)).at[1:4].set(bricks),
        "strike": ours.struck,
    }


def freeway_velocities(key):
    key_speed, key_direction = jax.random.split(key)
    speeds = jax.random.randint(key_speed, (8,), 1, 6)
    return speeds * jax.random.choice(key_direction, jnp.array([-1, 1]), (8,))


def freeway_state(ours):
    return {
        "pos": ours.chicken,
        "move_timer": ours.rest,
        "cars": jnp.stack([column(ours.cars), 1 + jnp.arange(8), ours.wait, ours.velocity], axis=-1),
    }


def asterix_noise(key_step):
    key_side, key_gold, key_slot = jax.random.split(key_step, 3)
    gold = jax.random.choice(key_gold, jnp.array([1, 0]), p=jnp.array([1 / 3, 2 / 3])) == 1
    order = jnp.argsort(jax.random.permutation(key_slot, jnp.arange(8)))
    return asterix.Noise(jax.random.choice(key_side, jnp.array([1, 0])) == 1, gold, order)


def asterix_state(ours):
    there = ours.bit > 0
    things = jnp.stack([column(ours.bit), 1 + jnp.arange(8), ours.right, ours.gold, there], axis=-1)
    return {
        "player_x": ours.x,
        "player_y": ours.y,
        "spawn_speed": ours.spawn_speed,
        "spawn_timer": ours.spawn,
        "move_speed": ours.move_speed,
        "move_timer": ours.move,
        "ramp_timer": ours.ramp,
        "ramp_index": ours.ramps,
        "entities": jnp.where(there[:, None], things, 0),
    }


def space_invaders_state(ours):
    board = lambda columns: (columns[None, :] >> INDEX[:, None]) & 1
    return {
        "pos": ours.cannon,
        "f_bullet_map": board(ours.bullets),
        "e_bullet_map": board(ours.enemy_bullets),
        "alien_map": board(ours.aliens),
        "alien_dir": 2 * ours.right - 1,
        "enemy_move_interval": ours.interval,
        "alien_move_timer": ours.move,
        "alien_shot_timer": ours.shot,
        "shot_timer": ours.rest,
    }


def seaquest_noise(key_step):
    key_enemy, key_diver = jax.random.split(key_step)
    (key_kind, key_row), (key_side, key_diver_row) = jax.random.split(key_enemy), jax.random.split(key_diver)
    right, armed = jax.random.uniform(key_kind, (2,)) < jnp.array([0.5, 1 / 3])
    row, diver_row = (jax.random.randint(key, (), 1, 9) for key in (key_row, key_diver_row))
    return seaquest.Noise(right, armed, row, jax.random.bernoulli(key_side), diver_row)


def seaquest_state(ours):
    def listed(swimming, who, *more):
        """Those ``who`` swim as gymnax lists them: the oldest first, without gaps, and zeros behind."""
        who = (who & (swimming.bit > 0))[::-1]
        fields = jnp.stack([column(swimming.bit), swimming.row, swimming.right, swimming.wait, *more], axis=-1)[::-1]
        order = jnp.argsort(~who, stable=True)
        return jnp.pad(jnp.where(who[order][:, None], fields[order], 0), ((0, 100 - who.size), (0, 0)))

    def board(shots):
        return (jnp.stack(shots)[..., None] >> INDEX) & 1

    return {
        "sub_x": ours.x,
        "sub_y": ours.y,
        "sub_or": ours.right,
        "f_bullets": board(ours.shots),
        "e_bullets": board(ours.enemy_shots) > 0,
        "e_fish": listed(ours.enemies, ~ours.armed),
        "e_subs": listed(ours.enemies, ours.armed, ours.reload),
        "divers": listed(ours.divers, True),
        "oxygen": ours.oxygen,
        "diver_count": ours.carried,
        "shot_timer": ours.rest,
        "e_spawn_timer": ours.spawn,
        "d_spawn_timer": ours.spawn_diver,
        "e_spawn_speed": ours.spawn_speed,
        "move_speed": ours.move_speed,
        "ramp_index": ours.ramps,
    }


def seaquest_original(state):
    active = lambda count: jnp.arange(100) < count

    def board(bullets, count):
        """How many bullets are in each cell, those that go left and those that go right."""
        x, y, right = bullets.T
        return jnp.zeros((2, SIZE, SIZE), jnp.int32).at[right, y, x].add(active(count))

    listed = lambda entities, count: jnp.where(active(count)[:, None], entities, 0)
    return state.replace(
        f_bullets=board(state.f_bullets, state.f_bullet_count),
        e_bullets=board(state.e_bullets, state.e_bullet_count) > 0,
        e_fish=listed(state.e_fish, state.e_fish_count),
        e_subs=listed(state.e_subs, state.e_subs_count),
        divers=listed(state.divers, state.divers_count),
    )


def seaquest_skilled(state):
    """Goes to the row of the oldest diver, fires, and comes up with six divers or when little oxygen is left."""
    up = (state.diver_count == 6) | ((state.oxygen < 20) & (state.diver_count > 0))
    row = jnp.where(state.divers_count > 0, state.divers[0, 1], 4)
    return jnp.select([up | (row < state.sub_y), row > state.sub_y, state.shot_timer == 0], [2, 4, 5], 1)


GAMES = {
    "Breakout-MinAtar": Game(
        level=lambda key_reset: jax.random.choice(key_reset, jnp.array([0, 1])) == 1,
        state=breakout_state,
        other=({"max_steps_in_episode": 100},),
        skilled=lambda state: jnp.select([state.ball_x < state.pos, state.ball_x > state.pos], [1, 2]),
    ),
    "Freeway-MinAtar": Game(
        noise=freeway_velocities,
        level=freeway_velocities,
        state=freeway_state,
        other=({"player_speed": 1, "max_steps_in_episode": 300},),
        skilled=lambda state: 1,
    ),
    "Asterix-MinAtar": Game(
        noise=asterix_noise,
        state=asterix_state,
        theirs=lambda state: state.replace(entities=state.entities * state.entities[:, 4:]),
        other=({"ramp_interval": 5, "init_spawn_speed": 1, "max_steps_in_episode": 20},),
        skilled=lambda state: 0,
    ),
    "SpaceInvaders-MinAtar": Game(
        state=space_invaders_state,
        other=(
            {"shot_cool_down": 2, "enemy_move_interval": 8, "enemy_shot_interval": 30, "max_steps_in_episode": 200},
        ),
        skilled=lambda state: jnp.where(
            state.shot_timer > 0, jnp.where(state.e_bullet_map[:, state.pos].any(), 1 + (state.pos < 5), 0), 3
        ),
    ),
    "Seaquest-MinAtar": Game(
        noise=seaquest_noise,
        state=seaquest_state,
        theirs=seaquest_original,
        other=(
            {"diver_spawn_speed": 3, "diver_move_interval": 1, "init_spawn_speed": 40},
            {"init_spawn_speed": 1, "init_move_interval": 2, "enemy_shot_interval": 3, "shot_cool_down": 1}
            | {"max_steps_in_episode": 30},
        ),
        skilled=seaquest_skilled,
    ),
}


@pytest.mark.rest
@pytest.mark.weekly("Seaquest-MinAtar", "Freeway-MinAtar", "Asterix-MinAtar", "SpaceInvaders-MinAtar")
@pytest.mark.parametrize("name", GAMES)
def test_equals_gymnax(name):
    """Whatever a step gives and the states are the same for 100,000 steps, in which episodes end in both ways."""
    game = GAMES[name]
    theirs, default = gymnax.make(name)
    parameters = inspect.signature(imported("env", NATIVE[name])).parameters

    def step(params, skill, state, key):
        ours, original = state
        env = envs.make(name, **{field: getattr(params, field) for field in parameters})
        key_action, key_skill, key = jax.random.split(key, 3)
        action = sample(env.action_space, key_action, ())
        action = jnp.where(jax.random.uniform(key_skill) < skill, game.skilled(original), action)
        key_step, key_reset = jax.random.split(key)
        ours, seen, made = alone(env)((game.noise(key_step), game.level(key_reset)), ours, action)
        obs, original, reward, terminated, truncated, info = theirs.step(key, original, action, params)
        expected = made._replace(
            next_obs=info["final_observation"] > 0,
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
        )
        plain = game.theirs(original)
        pairs = {
            "obs": (seen, obs > 0),
            **{field: (getattr(made, field), getattr(expected, field)) for field in made._fields[:4]},
            **{field: (value, getattr(plain, field)) for field, value in game.state(ours.physical).items()},
            "time": (ours.t, original.time),
        }
        differs = {field: jnp.any(jnp.asarray(x) != y) for field, (x, y) in pairs.items()}
        return (ours, original), (differs, made._replace(next_obs=()))

    @functools.partial(jax.jit, compiler_options=compiling.AS_SHIPPED)  # for gymnax's steps take far longer than that
    def run(key):
        """The first step ends an episode in both, so that they are the same after it."""
        key_reset, key_steps = jax.random.split(key)
        sets = [default, *(default.replace(**other) for other in game.other)]
        params = jax.tree.map(lambda *values: jnp.array(values)[jnp.arange(NUM_ENVS) % len(sets)], *sets)
        skill = jnp.where(jnp.arange(NUM_ENVS) < NUM_ENVS // 2, 0.98, 0.0)
        ours, _ = jax.vmap(envs.make(name).reset)(jax.random.split(key_reset, NUM_ENVS))
        _, original = jax.vmap(theirs.reset)(jax.random.split(key_reset, NUM_ENVS), params)
        ours = ours._replace(t=params.max_steps_in_episode - 1)
        original = original.replace(time=params.max_steps_in_episode - 1)
        return jax.lax.scan(
            lambda state, keys: jax.vmap(step)(params, skill, state, keys),
            (ours, original),
            jax.random.split(key_steps, (NUM_STEPS, NUM_ENVS)),
        )[1]

    with jax.numpy_rank_promotion("allow"):  # for gymnax
        differs, made = jax.tree.map(lambda x: x[1:], jax.device_get(run(jax.random.key(0))))
    assert {field: int(values.sum()) for field, values in differs.items() if values.any()} == {}
    assert made.truncated.any() and made.terminated.any() != (name == "Freeway-MinAtar")
    assert np.unique(made.reward).size > 1


def test_draws_have_the_chances_of_the_rules():
    number = 40_000

    def drawn(name, what="noise"):
        return jax.device_get(getattr(envs.make(name), what)(jax.random.key(0), (number,)))

    def assert_chances(values, chances):
        """``chances`` by value, within five standard deviations."""
        assert set(np.unique(values)) == set(chances)
        for value, chance in chances.items():
            assert abs((values == value).mean() - chance) < 5 * np.sqrt(chance * (1 - chance) / values.size), value

    fair, third = {False: 1 / 2, True: 1 / 2}, {False: 2 / 3, True: 1 / 3}
    rows = dict.fromkeys(range(1, 9), 1 / 8)
    assert_chances(drawn("Breakout-MinAtar", "levels"), fair)
    for what in ("noise", "levels"):
        cars = drawn("Freeway-MinAtar", what)
        for velocity in cars.T:
            assert_chances(velocity, {v: 1 / 10 for v in range(-5, 6) if v})
        assert abs(np.corrcoef(cars.T) - np.eye(8)).max() < 5 / np.sqrt(number)
    thing = drawn("Asterix-MinAtar")
    assert_chances(thing.right, fair)
    assert_chances(thing.gold, third)
    for place in np.argsort(thing.order, axis=-1).T:
        assert_chances(place, dict.fromkeys(range(8), 1 / 8))
    comer = drawn("Seaquest-MinAtar")
    assert_chances(comer.right, fair)
    assert_chances(comer.diver_right, fair)
    assert_chances(comer.armed, third)
    assert_chances(comer.row, rows)
    assert_chances(comer.diver_row, rows)
    assert abs(np.corrcoef(comer) - np.eye(5)).max() < 5 / np.sqrt(number)
