"""A learner that only counts, for tests of what is around learners: who acts in which row, and what is learned from."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from purerl.loops.trainers import observe
from purerl.types import Learner, Transition, Updated


class Counted(NamedTuple):
    """A learner that is a number, which grows by one an update, and remembers what it was last given to learn from."""

    params: Any
    given: Any


def counting(num_steps, num_rows, begin):
    """Acts by its number, its observation and its noise; its memory adds up numbers. It is ``begin(obs)`` at first."""

    def explore(params, here, noise):
        return 10_000 * params + 100 * here.obs + noise, here.carry + params, here.obs

    def update(state, trajectory, key):
        metrics = {"loss": state.params.astype(jnp.float32)}
        return Updated(Counted(state.params + 1, (trajectory.action, trajectory.extras)), metrics, trajectory.reward)

    nothing = jnp.zeros((num_steps, num_rows), jnp.int32)
    return Learner(
        init=lambda key, obs: Counted(begin(obs), (nothing, nothing)),
        init_carry=lambda num_rows: jnp.zeros(num_rows, jnp.int32),
        noise=lambda key, shape: jnp.zeros(shape, jnp.int32),
        behaviour=lambda state: state.params,
        explore=explore,
        policy=lambda state: ("policy", state.params),
        exploit=lambda policy, here, key: (here.obs, here.carry),
        update=update,
    )


def learn_from(learner):
    """``(state, trajectory [T, B], key) -> Updated``: one iteration's learning, as a loop on policy has it learn."""

    def learn(state, trajectory, key):
        state, own, metrics = observe(learner, state, trajectory, key)
        updated = learner.update(state, own, key)
        return updated._replace(metrics={**updated.metrics, **metrics})

    return learn


def trajectory(num_steps, num_rows, reward=None, last=None):
    """Steps that are numbers, each another one."""
    numbers = jnp.arange(num_steps * num_rows, dtype=jnp.int32).reshape(num_steps, num_rows)
    reward = jnp.zeros(numbers.shape) if reward is None else jnp.asarray(reward, jnp.float32)
    last = jnp.zeros(numbers.shape, bool) if last is None else jnp.asarray(last)
    return Transition(numbers, numbers, reward, last, jnp.zeros_like(last), numbers, 7 * numbers)
