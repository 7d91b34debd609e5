"""Programs of populations, whose states are arrays that nobody here would have made."""

import jax
import jax.numpy as jnp

from purerl import a2c, envs, population
from purerl.runs.running import device_program


def test_a_state_may_have_empty_arrays():
    """As those of MuJoCo have, on several devices: XLA gives each the whole of an array in which there is nothing."""
    env = envs.make("CartPole-v1")

    def begin(level):
        state, obs = env.begin(level)
        return (state, jnp.zeros((0, 3))), obs

    def step(noise, state, action):
        after, made = env.step(noise, state[0], action)
        return (after, state[1]), made

    trainer = a2c.make_trainer(
        a2c.Config(num_envs=2, num_steps=2, hidden_sizes=(4,)), env._replace(begin=begin, step=step)
    )
    members = population.Members({}, jax.random.split(jax.random.key(0), 2))
    program = device_program.compile_program(lambda: trainer, members, devices=jax.devices()[:2])
    state = program.begin(members)
    for end in (1, 2):
        (chunk,) = program.chunks(members, state, end - 1, end)
        state = chunk.state
    assert state.actors.env_state[1].shape == (2, 2, 0, 3) and chunk.done == 2
