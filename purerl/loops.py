"""The training loops: each makes a `Trainer` of an environment and a learner; `train` and `chunk` run one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from purerl.rollout import init_actors, rollout
from purerl.types import Array, Env, Key, Learner, Metrics, Result, Trainer, TrainState


def on_policy(env: Env, learner: Learner, *, num_envs: int, num_steps: int) -> Trainer:
    """An iteration collects ``[T = num_steps, B = num_envs]`` under the current policy and learns from it at once."""

    def init(key: Key) -> TrainState:
        key, key_actors, key_learner = jax.random.split(key, 3)
        actors = init_actors(key_actors, env, learner, num_envs)
        return TrainState(learner.init(key_learner, actors.obs), actors, (), jnp.zeros((), jnp.int32), key)

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        actors, trajectory, episodes = rollout(
            key_rollout,
            env,
            lambda obs, carry, noise: learner.explore(state.learner, obs, carry, noise),
            learner.noise,
            state.actors,
            num_steps,
        )
        learned, metrics = learner.update(state.learner, trajectory, key_update)
        return TrainState(learned, actors, (), state.iteration + 1, key), {**episodes, **metrics}

    return Trainer(init, step, learner, num_envs * num_steps)


def train(trainer: Trainer, num_iterations: int) -> Callable[[Key], Result]:
    """The whole training as one function ``train(key) -> Result(state, metrics [num_iterations])``, to jit and vmap."""

    def run(key: Key) -> Result:
        state, metrics = jax.lax.scan(lambda s, _: trainer.step(s), trainer.init(key), None, num_iterations)
        return Result(state, metrics)

    return run


def chunk(trainer: Trainer, capacity: int) -> Callable[[TrainState, Array], tuple[TrainState, Metrics]]:
    """``chunk(state, length) -> (state, metrics [capacity])``: ``length <= capacity`` iterations of a training.

    One compiled program serves every length; metrics beyond it are zeros.
    """

    def run(state: TrainState, length: Array) -> tuple[TrainState, Metrics]:
        shapes = jax.eval_shape(trainer.step, state)[1]
        rows = jax.tree.map(lambda m: jnp.zeros((capacity, *m.shape), m.dtype), shapes)

        def one(i, carry):
            state, rows = carry
            state, metrics = trainer.step(state)
            return state, jax.tree.map(lambda r, m: r.at[i].set(m), rows, metrics)

        return jax.lax.fori_loop(0, length, one, (state, rows))

    return run
