"""A training as an environment: an agent in it decides how others learn, or shapes what they learn.

A step of the environment is an iteration of a `Trainer`, and its state is the `TrainState`. So a meta-agent is trained
by any algorithm, in any number of trainings at once, with the loops, searches and files of every other agent.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import spaces, trees
from purerl.envs.episodic import no_noise
from purerl.spaces import Space
from purerl.types import Array, Env, Key, Metrics, PyTree, Step, Trainer, TrainState


class LearningState(NamedTuple):
    """The state of a training that is under way, and the iterations of this episode (int32)."""

    training: TrainState
    t: Array


def learning(
    name: str,
    make_trainer: Callable[[Array], Trainer],
    *,
    start: PyTree,
    observe: Callable[[TrainState, Metrics], PyTree],
    reward: Callable[[TrainState, Metrics], Array],
    num_iterations: int,
    observation_space: Space,
    action_space: Space,
    num_agents: int = 1,
) -> Env:
    """Makes an `Env` whose episodes are trainings, and whose steps are their iterations.

    `Env.resets` is ``few``, so that a training begins only where an episode ended, however many environments step
    together: between ends only iterations are computed.

    Args:
        name: The name of the `Env`.
        make_trainer: ``make_trainer(action)`` makes the training of which a step is the next iteration. The action is
            traced: it may be a number of the config, a parameter of the environment, or an opponent's action. Shapes
            must not depend on it.
        start: The action whose `Trainer` begins a training; the level is the key of its ``init``.
        observe: ``observe(state, metrics) -> obs`` returns what the meta-agent may see after an iteration, cast to the
            dtypes of ``observation_space``. At the beginning the metrics are zeros. Observations must be finite, also
            where a metric is nan.
        reward: ``reward(state, metrics) -> reward`` returns the meta-agent's reward for an iteration; finite, cast to
            float32.
        num_iterations: Iterations after which an episode is truncated. A training that died (``alive`` is False)
            terminates its episode.
        observation_space: The observation space of the `Env`.
        action_space: The action space of the `Env`.
        num_agents: The agents of the `Env`. With several agents actions, observations and rewards lead with ``[N]``.
    """
    shape = () if num_agents == 1 else (num_agents,)

    def obs_of(state: TrainState, metrics: Metrics) -> PyTree:
        struct = spaces.struct(observation_space)
        return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), observe(state, metrics), struct)

    def begin(key: Key) -> tuple[LearningState, PyTree]:
        trainer = make_trainer(start)
        training = trainer.init(key)
        metrics = trees.zeros(jax.eval_shape(trainer.step, training)[1])
        return LearningState(training, jnp.zeros((), jnp.int32)), obs_of(training, jax.tree.map(jnp.asarray, metrics))

    def step(noise: tuple[()], env_state: LearningState, action: Array) -> tuple[LearningState, Step]:
        training, metrics = make_trainer(action).step(env_state.training)
        next_obs, t = obs_of(training, metrics), env_state.t + 1
        terminated = ~training.alive
        truncated = (t >= num_iterations) & ~terminated
        paid, *ends = (jnp.broadcast_to(x, shape) for x in (reward(training, metrics), terminated, truncated))
        return LearningState(training, t), Step(next_obs, paid.astype(jnp.float32), *ends)

    env = Env(name, jax.random.split, begin, no_noise, step, observation_space, action_space, num_agents=num_agents)
    return env._replace(resets="few", ends_together=True)
