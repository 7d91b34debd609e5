"""Policies that somebody wrote, to record.

purerl record scripts.players:expert --env CueCorridor-v0 --episodes 20 --out demos.safetensors
purerl record random=0.9 scripts.players:swing_up=0.1 --env Pendulum-v1 --episodes 100 --out mix.safetensors
"""

import jax
import jax.numpy as jnp

from purerl.envs.native.exploration.cue_corridor import onward
from purerl.loops.evaluation import Player
from purerl.types import Array, Env, Key, Situation


def expert(env: Env) -> Player:
    """Knows the way through `CueCorridor-v0`, and remembers the cue."""
    length = env.observation_space.shape[0] - 1
    way = jnp.asarray(onward(length))

    def act(here: Situation, key: Key) -> tuple[Array, Array]:
        cell, shown = jnp.argmax(here.obs[:, :-1], axis=-1), here.obs[:, -1].astype(jnp.int32)
        cue = jnp.where(shown == 0, here.carry, shown)
        return jnp.where(cell == length - 1, (cue + 1) // 2, way[cell]), cue

    return Player(act, lambda num_envs: jnp.zeros(num_envs, jnp.int32))


MISTAKES = 0.1
"""How often `hesitant` does something else."""


def hesitant(env: Env) -> Player:
    """`expert`, but for one action in ten."""
    right = expert(env)

    def act(here: Situation, key: Key) -> tuple[Array, Array]:
        action, carry = right.act(here, key)
        return jnp.where(jax.random.bernoulli(key, MISTAKES, action.shape), 1 - action, action), carry

    return Player(act, right.init_carry)


UPRIGHT = 5.0
"""The energy of `Pendulum-v1` where it stands still above: m g l / 2."""


def swing_up(env: Env) -> Player:
    """Swings `Pendulum-v1` up with the energy that it lacks, and holds it there by angle and speed."""

    def act(here: Situation, key: Key) -> tuple[Array, tuple[()]]:
        cosine, sine, speed = jnp.moveaxis(here.obs, -1, 0)
        lacking = UPRIGHT - (speed**2 / 6 + UPRIGHT * cosine)
        swing = 2 * lacking * jnp.where(speed == 0, 1, jnp.sign(speed))
        hold = -10 * jnp.arctan2(sine, cosine) - 2 * speed
        torque = jnp.where((cosine > 0.9) & (jnp.abs(speed) < 2.5), hold, swing)
        return jnp.clip(torque, env.action_space.low, env.action_space.high)[:, None], here.carry

    return Player(act, lambda num_envs: ())
