"""Parallelised Q-network (Gallici et al. 2024, arXiv 2407.04811): Q(lambda) without replay or target network."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl import counters, draw, networks, trees
from purerl.algos.algorithm import Algorithm
from purerl.counters import Count
from purerl.curricula import on_policy
from purerl.formulas import exploration, losses, returns, schedules
from purerl.learners.parts import checks, gradients, joint_actions, settings
from purerl.networks.given import given_or_own
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Scores, Situation, Transition, Updated


@cfg.config(
    num_envs=32,
    num_steps=64,
    num_minibatches=16,
    exploration_fraction=0.2,
    max_grad_norm=10.0,
    hidden_sizes=(128, 128),
    activation="relu",
    layer_norm=True,
)
class PQNConfig(settings.Minibatches, settings.Epsilon, settings.Torso, settings.Adam, settings.OnPolicy):
    """Settings of PQN."""

    learning_rate: cfg.Positive = 5e-4
    """RAdam's learning rate at the start."""
    trace_lambda: cfg.Fraction = 0.65
    """Trace parameter (lambda) of the return."""


class PQNState(NamedTuple):
    """The learner's state. ``iterations`` counts the batches that were learned from."""

    params: PyTree
    opt_state: PyTree
    iterations: Count


class PQNBehaviour(NamedTuple):
    """What acting needs: parameters, and the probability of a random action."""

    params: PyTree
    epsilon: Array


class Batch(NamedTuple):
    """Samples ``[N]`` to learn from."""

    obs: PyTree
    action: Array
    target: Array
    present: Array | tuple[()]


def problems(config: PQNConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete.
    """
    problems = checks.iteration_problems(config) + checks.minibatch_problems(config)
    problems += settings.torso_problems(config, env)
    return problems + checks.space_problems(env, (Discrete, MultiDiscrete)) + joint_actions.problems(env)


def make_network(config: PQNConfig, env: Env) -> nn.Module:
    """Makes a torso and a value for each action. Layer normalisation stands in for the target network."""
    return networks.Head(settings.make_torso(config, env), joint_actions.joint_actions(env).num, scale=0.01)


def make_optimiser(config: PQNConfig) -> gradients.Elementwise:
    """Makes RAdam with clipped gradients and a step size that falls linearly."""
    return gradients.make_optimiser(config, scale=optax.scale_by_radam())


def make_learner(
    config: PQNConfig,
    env: Env,
    *,
    network: nn.Module | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes PQN's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A Flax module ``obs [..., *obs] -> q [..., A]``; None: `make_network`.
        optimiser: An optax transformation; None: `make_optimiser`.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    actions = joint_actions.joint_actions(env)
    optimiser = optimiser or make_optimiser(config)
    annealing = config.exploration_fraction * jnp.float32(config.num_iterations)

    def epsilon(state: PQNState) -> Array:
        return schedules.anneal(
            config.epsilon_start, config.epsilon_end, schedules.progress(state.iterations, annealing)
        )

    def init(key: Key, obs: PyTree) -> PQNState:
        params = network.init(key, obs)
        return PQNState(params, gradients.init_optimiser(optimiser, params), counters.of())

    def values(params: PyTree, obs: PyTree) -> Array:
        q: Any = network.apply(params, obs)
        return exploration.masked(q, actions.legal(obs))

    def explore(behaviour: PQNBehaviour, here: Situation, noise: Array):
        q = values(behaviour.params, here.obs)
        number = exploration.epsilon_greedy(q, behaviour.epsilon, noise, actions.legal(here.obs))
        return actions.action(number), here.carry, ()

    def exploit(policy: PyTree, here: Situation, key: Key):
        return actions.action(jnp.argmax(values(policy, here.obs), axis=-1).astype(jnp.int32)), here.carry

    def estimate(state: PQNState, trajectory: Transition) -> Array:
        """Computes the lambda returns ``[T, B]`` of a trajectory (section 3.3), by the parameters that collected it."""
        next_value = jnp.max(values(state.params, trajectory.next_obs), axis=-1)
        discount = config.gamma * (1 - trajectory.terminated)
        return jax.vmap(returns.lambda_returns, in_axes=(1, 1, 1, 1, None), out_axes=1)(
            trajectory.reward, next_value, discount, trajectory.last, config.trace_lambda
        )

    def scores(state: PQNState, trajectory: Transition, target: Array) -> Scores:
        """Scores by the parameters before the update; the advantage is the return less the greedy action's value."""
        value = jnp.max(values(state.params, trajectory.obs), axis=-1)
        return Scores(value, target - value)

    def loss(params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        q = values(params, batch.obs)
        chosen = jnp.sum(q * jax.nn.one_hot(batch.action, q.shape[-1]), axis=-1)
        error = batch.target - chosen
        mean = lambda x: losses.mean(x, batch.present)
        metrics = {"value": mean(jnp.max(q, axis=-1)), "td_error": mean(jnp.abs(error))}
        return 0.5 * mean(jnp.square(error)), metrics

    def learn(state: PQNState, trajectory: Transition, key: Key) -> Updated:
        target = estimate(state, trajectory)
        number = actions.number(trajectory.action)
        batch = trees.merge(Batch(trajectory.obs, number, target, trajectory.present), 2)
        params, opt_state, metrics = gradients.minibatch_epochs(
            loss,
            optimiser,
            state.params,
            state.opt_state,
            batch,
            key,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        metrics["epsilon"] = epsilon(state)
        following = PQNState(params, opt_state, counters.increment(state.iterations))
        return Updated(following, metrics, scores(state, trajectory, target))

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=lambda key, shape: draw.uniform(key, (*shape, 2)),
        behaviour=lambda state: PQNBehaviour(state.params, epsilon(state)),
        explore=explore,
        policy=lambda state: state.params,
        exploit=exploit,
        update=learn,
    )


IMAGE = {
    "total_steps": 10_000_000,
    "num_envs": 128,
    "num_steps": 32,
    "num_epochs": 2,
    "num_minibatches": 32,
    "hidden_sizes": (128,),
    "exploration_fraction": 0.1,
}
"""Settings for images, tuned on Breakout of MinAtar."""


pqn = Algorithm(
    "pqn",
    PQNConfig,
    problems,
    make_learner,
    on_policy.make_trainer,
    presets={"image": IMAGE},
)
