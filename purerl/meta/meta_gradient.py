"""Meta-gradients: an alternative to evolution that differentiates through training (Xu et al. 2018, arXiv 1805.09801;
with many agents at once, Oh et al. 2020, arXiv 2007.08794).

In every generation each agent trains for a few iterations with the current learned function. The gradient of the
performance of its policy after them is backpropagated through those iterations to the meta-parameters. Agents continue
in the next generation, and are replaced by new ones at the end of a training.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import counters
from purerl.algos.algorithm import rows
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.formulas import schedules
from purerl.learned import ENV_SOCKET_NAMES
from purerl.learned.sockets import Socket
from purerl.learners.families import policy_gradients
from purerl.learners.parts import estimates, gradients
from purerl.loops.rollout import rollout
from purerl.meta.evolution import Evolution, Fitness, lifetime_return
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer, TrainState

NAME = "meta_gradient"
"""Name of this search among the strategies."""
EPSILON_ROOT = 1e-10
"""Added under Adam's square root, whose infinite slope at 0 would make the gradient through it nan."""
UNFIT = "optimiser", "rule", *ENV_SOCKET_NAMES
"""Sockets of which this search cannot find the function."""
UNREST = 0.01
"""Standard deviation of the noise that is added to the initial meta-parameters."""


class State(NamedTuple):
    """The whole state of the search. ``agents`` are training states ``[N]``, each in the course of its training."""

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
    """The search by meta-gradients as an `Evolution`: a generation is one Adam step on the meta-parameters.

    In a generation each agent trains for ``num_iterations`` iterations and then acts for one more rollout. The step
    ascends the mean over agents of ``advantage * log pi`` on that rollout; agents whose gradient is not finite are left
    out. Metrics are those of `evolution.evolution`, with the fitness of the iterations of this generation.

    - ``socket``: what is learned; "optimiser" and "rule", and those on the environment's side, are refused. (A2C stops
      the gradients of the values that it estimates from, so most of a rule would have no gradient.)
    - ``algo``: a policy gradient algorithm of `purerl.algos`.
    - ``config``: its Config, whose number of iterations is the length of an agent's training.
    - ``envs``: one environment.
    - ``num_agents``: agents that train in parallel.
    - ``num_iterations``: iterations to differentiate through. A value loss needs at least 2, because it affects the
      policy only through the advantages of later iterations.
    - ``learning_rate``: of Adam on the meta-parameters.
    - ``gae_lambda``: of the advantages on the last rollout, by the agent's own critic.
    - ``max_norm``: global norm that the meta-gradient is clipped to.
    - ``fitness``: of the metrics of a generation's iterations.

    Raises `ConfigError` for arguments that it does not support.
    """
    unfit = not isinstance(config, policy_gradients.Config) or socket.name in UNFIT
    several = algo.view is not rows or any(env.num_agents > 1 for env in envs)
    problems = []
    if unfit or several or len(envs) != 1:
        problems.append(
            f"strategy = {NAME!r}: needs a policy gradient of one agent, a socket in its loss that has a slope "
            "(value-loss, policy-drift or vtrace-weight), and one environment"
        )
    if getattr(config, "intrinsic", "none") != "none":
        problems.append(
            f"intrinsic = {config.intrinsic!r}: must be 'none' with strategy = {NAME!r}, which judges agents by the "
            "rewards of their environment"
        )
    if problems:
        raise ConfigError("\n".join(problems))
    [env] = envs
    optimiser = optax.chain(optax.clip_by_global_norm(max_norm), optax.adam(learning_rate))
    make_trainer = _smooth(socket, algo, config, env)
    live = lookahead(socket, algo, config, env, num_iterations, gae_lambda)

    def init(key: Key) -> State:
        key, key_meta, key_unrest, key_agents = jax.random.split(key, 4)
        meta_params = _unrest(key_unrest, socket.init(key_meta))
        agents = jax.vmap(make_trainer(meta_params).init)(jax.random.split(key_agents, num_agents))
        return State(meta_params, optimiser.init(meta_params), agents, jnp.zeros((), jnp.int32), key)

    def step(state: State) -> tuple[State, Metrics]:
        key, key_live, key_fresh = jax.random.split(state.key, 3)
        keys = jax.random.split(key_live, num_agents)

        gradient = jax.vmap(jax.grad(live, has_aux=True), in_axes=(None, 0, 0))
        each, (agents, metrics) = gradient(state.meta_params, state.agents, keys)
        sound = agents.alive & jnp.all(jnp.stack([_finite(x) for x in jax.tree.leaves(each)]), axis=0)
        count = jnp.maximum(jnp.sum(sound), 1)
        grads = jax.tree.map(lambda x: jnp.sum(jax.vmap(jnp.where)(sound, x, jnp.zeros_like(x)), axis=0) / count, each)
        changes, opt_state = optimiser.update(grads, state.opt_state, state.meta_params)
        meta_params = optax.apply_updates(state.meta_params, changes)
        fresh = jax.vmap(make_trainer(meta_params).init)(jax.random.split(key_fresh, num_agents))
        over = counters.reached(agents.iteration, config.num_iterations) | ~agents.alive
        agents = jax.tree.map(lambda new, old: jax.vmap(jnp.where)(over, new, old), fresh, agents)
        return State(meta_params, opt_state, agents, state.generation + 1, key), _summary(fitness, metrics)

    frames = num_agents * (num_iterations + 1) * config.batch_size
    return Evolution(init, step, lambda state: state.meta_params, frames)


def _smooth(socket: Socket, algo: Any, config: Any, env: Env) -> Callable[[PyTree], Trainer]:
    """Returns ``make_trainer(meta_params)``: a `Trainer` with the learned function, and with an Adam that can be
    differentiated through (`EPSILON_ROOT`)."""
    schedule = schedules.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    adam = optax.scale_by_adam(eps=1e-5, eps_root=EPSILON_ROOT)
    optimiser = gradients.chain(gradients.clip_by_norm(config.max_grad_norm), adam, gradients.descent(schedule))
    return lambda meta_params: algo.make_trainer(config, env, optimiser=optimiser, **socket.parts(meta_params, config))


def lookahead(
    socket: Socket, algo: Any, config: Any, env: Env, num_iterations: int, gae_lambda: float = 0.95
) -> Callable[[PyTree, TrainState, Key], tuple[Array, tuple[TrainState, Metrics]]]:
    """Returns ``live(meta_params, agent, key) -> (loss, (agent, metrics))``, to be differentiated.

    It trains the agent for ``num_iterations`` iterations and returns the loss of its policy on a further rollout, the
    trained agent, and the metrics ``[num_iterations]``. It consumes ``key``.

    - ``socket, algo, config, num_iterations, gae_lambda``: as for `of`.
    - ``env``: the environment.
    """
    make_trainer = _smooth(socket, algo, config, env)

    def live(meta_params: PyTree, agent: TrainState, key: Key) -> tuple[Array, tuple[TrainState, Metrics]]:
        trainer = make_trainer(meta_params)
        agent, metrics = jax.lax.scan(lambda state, _: trainer.step(state), agent, None, num_iterations)
        return _loss(config, env, trainer, agent, gae_lambda, key), (agent, metrics)

    return live


def _unrest(key: Key, meta_params: PyTree) -> PyTree:
    """Adds noise to initial meta-parameters, at which a learned function may have no gradient. Consumes ``key``."""
    leaves, structure = jax.tree.flatten(meta_params)
    keys = jax.random.split(key, len(leaves))
    moved = [x + UNREST * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


def _finite(x: Array) -> Array:
    """Whether all elements of each agent are finite. ``[N, ...] -> [N]``."""
    return jnp.all(jnp.isfinite(x).reshape(x.shape[0], -1), axis=1)


def _loss(config: Any, env: Env, trainer: Trainer, agent: TrainState, gae_lambda: float, key: Key) -> Array:
    """The policy gradient loss ``-mean(advantage * log pi)`` on a rollout of the agent's latest policy, a scalar.

    Gradients flow through ``log pi`` only, into the parameters of the policy.

    - ``config``: of the algorithm.
    - ``env``: the environment.
    - ``trainer``: that of the agent.
    - ``agent``: its training state.
    - ``gae_lambda``: of the advantages.
    - ``key``: consumed by the rollout.
    """
    parts = policy_gradients.make_parts(config, env)
    learned = agent.learner
    latest = policy_gradients.Policy(learned.params, learned.obs_moments)
    _, trajectory, _ = rollout(
        key, fleet(env, config.num_envs), trainer.learner, latest, agent.actors, config.num_steps
    )
    _, trajectory = policy_gradients.scaled(config, parts, learned, trajectory)
    experience = policy_gradients.experience(config, parts, learned, trajectory)
    policy, value, next_value = estimates.evaluate(parts.network, learned.params, experience)
    log_prob = parts.distribution.log_prob(policy, experience.action)
    estimate = estimates.by_gae(gae_lambda)
    advantage, _ = estimates.estimates(
        estimate, log_prob, log_prob - experience.log_prob, experience, value, next_value
    )
    return -jnp.mean(jax.lax.stop_gradient(advantage) * log_prob)


def _summary(fitness: Fitness, metrics: Metrics) -> Metrics:
    """The metrics of a generation from its trainings' metrics ``[N, iterations]``."""
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
