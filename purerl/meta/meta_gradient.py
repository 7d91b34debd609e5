"""Meta-gradients: the alternative to evolution that differentiates through learning itself (Xu et al. 2018, arXiv
1805.09801; with many agents at once, Oh et al. 2020, arXiv 2007.08794).

Agents learn for a few iterations with the function as it is; the gradient of how their policies then do flows back
through those iterations into the meta-parameters. Agents go on where they were, and begin anew at the end of a
lifetime.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import policy_gradients, update
from purerl.config import ConfigError
from purerl.meta.evolution import Evolution, Fitness, lifetime_return
from purerl.meta.sockets import Socket
from purerl.rollout import rollout
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer, TrainState

NAME = "meta_gradient"
EPSILON_ROOT = 1e-10
"""Added under Adam's root: its slope at 0 is infinite, and would make the gradient through it nan."""


class State(NamedTuple):
    """Everything that the search needs to go on: ``agents`` are training states ``[N]`` in mid-life."""

    meta_params: PyTree
    opt_state: PyTree
    agents: TrainState
    generation: Array
    key: Key


def of(
    socket: Socket,
    algo: Any,
    config: Any,
    envs: Sequence[Env],
    *,
    num_agents: int,
    num_iterations: int = 4,
    learning_rate: float = 1e-3,
    gae_lambda: float = 0.95,
    max_norm: float = 1.0,
    fitness: Fitness = lifetime_return,
) -> Evolution:
    """The search by meta-gradients as an `Evolution`: a generation is one step of Adam on the meta-parameters.

    In a generation each of ``num_agents`` agents learns for ``num_iterations`` iterations, then acts for one more
    rollout; the step goes up the mean over agents of ``advantage * log pi`` there, by the agent's own critic. An
    agent's life has the iterations of ``config``. ``algo`` is a policy gradient, and there is one environment. Metrics
    are those of evolution, with the ``fitness`` of the iterations of this generation. Raises `ConfigError`.
    """
    if not isinstance(config, policy_gradients.Config) or socket.name == "optimiser" or len(envs) != 1:
        raise ConfigError(f"strategy = {NAME!r}: needs a policy gradient, a socket in its loss, and one environment")
    [env] = envs
    optimiser = optax.chain(optax.clip_by_global_norm(max_norm), optax.adam(learning_rate))
    schedule = update.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    smooth = optax.chain(
        update.clip_by_norm(config.max_grad_norm), optax.adam(schedule, eps=1e-5, eps_root=EPSILON_ROOT)
    )

    def make_trainer(meta_params: PyTree) -> Trainer:
        return algo.make_trainer(config, env, optimiser=smooth, **socket.parts(meta_params, config))

    def init(key: Key) -> State:
        key, key_meta, key_agents = jax.random.split(key, 3)
        meta_params = socket.init(key_meta)
        agents = jax.vmap(make_trainer(meta_params).init)(jax.random.split(key_agents, num_agents))
        return State(meta_params, optimiser.init(meta_params), agents, jnp.zeros((), jnp.int32), key)

    def live(meta_params: PyTree, agent: TrainState, key: Key) -> tuple[Array, tuple[TrainState, Metrics]]:
        """What the policy loses after a few iterations of one agent, and the agent after them."""
        trainer = make_trainer(meta_params)
        agent, metrics = jax.lax.scan(lambda state, _: trainer.step(state), agent, None, num_iterations)
        num_predictions = socket.parts(meta_params, config).get("num_predictions", 1)
        return _loss(config, env, trainer, num_predictions, agent, gae_lambda, key), (agent, metrics)

    def step(state: State) -> tuple[State, Metrics]:
        key, key_live, key_fresh = jax.random.split(state.key, 3)
        keys = jax.random.split(key_live, num_agents)

        def loss(meta_params: PyTree) -> tuple[Array, tuple[TrainState, Metrics]]:
            each, out = jax.vmap(live, in_axes=(None, 0, 0))(meta_params, state.agents, keys)
            return jnp.mean(jnp.where(out[0].alive, each, 0.0)), out

        grads, (agents, metrics) = jax.grad(loss, has_aux=True)(state.meta_params)
        sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(grads)]))
        changes, opt_state = optimiser.update(grads, state.opt_state, state.meta_params)
        moved = optax.apply_updates(state.meta_params, changes), opt_state
        meta_params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(sound, new, old), moved, (state.meta_params, state.opt_state)
        )
        fresh = jax.vmap(make_trainer(meta_params).init)(jax.random.split(key_fresh, num_agents))
        over = (agents.iteration >= config.num_iterations) | ~agents.alive
        agents = jax.tree.map(lambda new, old: jax.vmap(jnp.where)(over, new, old), fresh, agents)
        return State(meta_params, opt_state, agents, state.generation + 1, key), _summary(fitness, metrics)

    frames = num_agents * (num_iterations + 1) * config.batch_size
    return Evolution(init, step, lambda state: state.meta_params, frames)


def _loss(
    config: Any, env: Env, trainer: Trainer, num_predictions: int, agent: TrainState, gae_lambda: float, key: Key
) -> Array:
    """``-mean(advantage * log pi)`` over a rollout of the agent's policy; gradients flow into its parameters alone."""
    parts = policy_gradients.make_parts(config, env, num_predictions=num_predictions)
    learned = agent.learner
    _, trajectory, _ = rollout(
        key, env, trainer.learner, jax.lax.stop_gradient(learned), agent.actors, config.num_steps
    )
    scaled = parts.normalizer.apply(learned.obs_moments, trajectory.obs)
    following = parts.normalizer.apply(learned.obs_moments, trajectory.next_obs)
    seen = policy_gradients.Experience(
        obs=scaled,
        action=trajectory.action,
        log_prob=parts.distribution.log_prob(trajectory.extras.policy, trajectory.action),
        carry=trajectory.extras.carry,
        reward=trajectory.reward,
        discount=config.gamma * (1 - trajectory.terminated),
        last=trajectory.last,
        next_obs=following,
    )
    policy, *values = policy_gradients.evaluate(parts.network, learned.params, seen)
    value, next_value = (x[..., 0] if x.ndim > 2 else x for x in values)
    log_prob = parts.distribution.log_prob(policy, seen.action)
    estimate = policy_gradients.by_gae(gae_lambda)
    advantage, _ = policy_gradients.estimates(estimate, log_prob, log_prob - seen.log_prob, seen, value, next_value)
    return -jnp.mean(advantage * log_prob)


def _summary(fitness: Fitness, metrics: Metrics) -> Metrics:
    """Of metrics ``[N, iterations]``."""
    each = jax.vmap(fitness)(metrics)
    alive = metrics["alive"][:, -1]
    sound = alive & jnp.isfinite(each)
    total = jnp.sum(jnp.where(sound, each, 0.0))
    return {
        "fitness": total / jnp.sum(sound),
        "fitness_best": jnp.max(jnp.where(sound, each, -jnp.inf)),
        "fitness_worst": jnp.min(jnp.where(sound, each, jnp.inf)),
        "alive": jnp.mean(alive.astype(jnp.float32)),
    }
