"""Meta-gradients: an alternative to evolution that differentiates through training.

Xu et al. 2018, arXiv 1805.09801; with many agents at once, Oh et al. 2020, arXiv 2007.08794.

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
from purerl.algos import disco
from purerl.algos.algorithm import NO_TEAM
from purerl.errors import ConfigError
from purerl.learned import ENV_SOCKET_NAMES
from purerl.learned.sockets import Socket
from purerl.learners.families import actor_critic
from purerl.meta import judges
from purerl.meta.evolution import Evolution, lifetime_return
from purerl.meta.judges import Judge
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer, TrainState

NAME = "meta_gradient"
"""The name of this search among the strategies."""
UNFIT = "optimiser", "lpg", *ENV_SOCKET_NAMES
"""Sockets whose function this search cannot learn."""
JUDGING = 2**31 + 5
"""The number that is folded into the key of new agents for the states that the judge keeps of them."""
MAX_NORM = 1.0
"""The global norm that the meta-gradient is clipped to."""
INITIAL_NOISE = 0.01
"""The standard deviation of the noise that is added to the initial meta-parameters."""


class MetaGradientState(NamedTuple):
    """The whole state of the search.

    ``agents`` are training states ``[N]``, each in the course of its training, and ``judging`` are the states ``[N]``
    that the `Judge` keeps of them.
    """

    meta_params: PyTree
    opt_state: PyTree
    agents: TrainState
    generation: Array
    key: Key
    judging: PyTree = ()


def make_search(
    socket: Socket,
    algo: Any,
    config: Any,
    envs: Sequence[Env],
    *,
    num_agents: int,
    num_iterations: int = 4,
    learning_rate: float = 1e-3,
) -> Evolution:
    """Makes the search by meta-gradients as an `Evolution`: a generation is one Adam step on the meta-parameters.

    In a generation each agent trains for ``num_iterations`` iterations and then acts for one more rollout. The step
    descends the mean over agents of a `Judge`'s loss on that rollout; agents whose gradient is not finite are left out.
    Metrics are those of `evolution.evolution`, with the `lifetime_return` of the iterations of this generation.

    Args:
        socket: The socket. "optimiser" and "lpg", and the sockets on the environment's side, are refused. (A2C stops
            the gradients of the values that it estimates from, so most of a rule would have no gradient.)
        algo: A policy gradient algorithm of `purerl.algos`, or ``disco``.
        config: The Config of ``algo``, whose number of iterations is the length of an agent's training.
        envs: One environment.
        num_agents: Agents that train in parallel.
        num_iterations: Iterations to differentiate through. A value loss needs at least 2, because it affects the
            policy only through the advantages of later iterations.
        learning_rate: Adam's step size on the meta-parameters.

    Raises:
        ConfigError: The arguments are not supported.
    """
    if problems := _problems(socket, algo, config, envs):
        raise ConfigError("\n".join(problems))
    [env] = envs
    optimiser = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(learning_rate))
    of_disco = isinstance(config, disco.DiscoConfig)
    judge = judges.by_value_network(config, env) if of_disco else judges.by_own_critic(config, env)
    agents = Agents(trainers(socket, algo, config, env, judge), judge, num_agents, config.num_iterations)
    live = lookahead(agents.make_trainer, num_iterations, judge)

    def init(key: Key) -> MetaGradientState:
        key, key_meta, key_noise, key_agents = jax.random.split(key, 4)
        meta_params = _perturbed(key_noise, socket.init(key_meta))
        begun, judging = agents.begin(meta_params, key_agents)
        generation = jnp.zeros((), jnp.int32)
        return MetaGradientState(meta_params, optimiser.init(meta_params), begun, generation, key, judging)

    def step(state: MetaGradientState) -> tuple[MetaGradientState, Metrics]:
        key, key_live, key_fresh = jax.random.split(state.key, 3)
        grads, (trained, judging, metrics) = _gradient(live, state, jax.random.split(key_live, num_agents))
        changes, opt_state = optimiser.update(grads, state.opt_state, state.meta_params)
        meta_params = optax.apply_updates(state.meta_params, changes)
        next_agents, judging = agents.renewed(meta_params, trained, judging, key_fresh)
        after = MetaGradientState(meta_params, opt_state, next_agents, state.generation + 1, key, judging)
        return after, _summary(metrics)

    frames = num_agents * config.num_envs * (num_iterations * config.num_steps + judge.num_steps)
    return Evolution(init, step, lambda state: state.meta_params, frames)


class Agents(NamedTuple):
    """How the ``N`` agents of a search begin their trainings, each of ``num_iterations`` iterations."""

    make_trainer: Callable[[PyTree], Trainer]
    judge: Judge
    size: int
    num_iterations: int

    def begin(self, meta_params: PyTree, key: Key) -> tuple[TrainState, PyTree]:
        """Makes ``N`` new agents, and the states that the judge keeps of them. Consumes ``key``."""
        agents = jax.vmap(self.make_trainer(meta_params).init)(jax.random.split(key, self.size))
        keys = jax.random.split(jax.random.fold_in(key, JUDGING), self.size)
        return agents, jax.vmap(self.judge.init)(keys, agents.actors.obs)

    def renewed(self, meta_params: PyTree, agents: TrainState, judging: PyTree, key: Key) -> tuple[TrainState, PyTree]:
        """Puts new agents in the place of those that died or whose training is over. Consumes ``key``."""
        over = counters.reached(agents.iteration, self.num_iterations) | ~agents.alive
        renewed = lambda both: jax.tree.map(
            lambda new, old: jax.vmap(jnp.where)(over, new, old), self.begin(meta_params, key), both
        )
        result: tuple[TrainState, PyTree] = jax.lax.cond(jnp.any(over), renewed, lambda both: both, (agents, judging))
        return result


def _problems(socket: Socket, algo: Any, config: Any, envs: Sequence[Env]) -> list[str]:
    """Returns the reasons why a search by meta-gradients is impossible, a line each."""
    unfit = not isinstance(config, (actor_critic.ActorCriticConfig, disco.DiscoConfig)) or socket.name in UNFIT
    several = algo.view not in NO_TEAM or any(env.num_agents > 1 for env in envs)
    problems = []
    if unfit or several or len(envs) != 1:
        problems.append(
            f"strategy = {NAME!r}: needs a policy gradient of one agent, one environment, and a differentiable "
            "socket (value-loss, policy-drift, vtrace-weight or disco)"
        )
    if getattr(config, "intrinsic", "none") != "none":
        problems.append(
            f"intrinsic = {config.intrinsic!r}: must be 'none' with strategy = {NAME!r}, which trains on the "
            "rewards of the environment"
        )
    return problems


def trainers(socket: Socket, algo: Any, config: Any, env: Env, judge: Judge) -> Callable[[PyTree], Trainer]:
    """Returns ``make_trainer(meta_params)``, which makes a `Trainer` with the learned function.

    Agents train with the optimiser of their ``judge``, which can be differentiated through.
    """
    parts = lambda meta_params: socket.parts(meta_params, config)
    return lambda meta_params: algo.make_trainer(config, env, optimiser=judge.optimiser, **parts(meta_params))


def lookahead(
    make_trainer: Callable[[PyTree], Trainer], num_iterations: int, judge: Judge
) -> Callable[[PyTree, TrainState, PyTree, Key], tuple[Array, tuple[TrainState, PyTree, Metrics]]]:
    """Returns ``live(meta_params, agent, judging, key) -> (loss, (agent, judging, metrics))``, to be differentiated.

    ``live`` trains the agent for ``num_iterations`` iterations. It returns the ``judge``'s loss on a further rollout,
    the trained agent, the judge's next state, and the metrics ``[num_iterations]``. It consumes ``key``.
    """

    def live(meta_params: PyTree, agent: TrainState, judging: PyTree, key: Key) -> tuple[Array, Any]:
        trainer = make_trainer(meta_params)
        agent, metrics = jax.lax.scan(lambda state, _: trainer.step(state), agent, None, num_iterations)
        loss, judging = judge.loss(trainer, agent, metrics, judging, key)
        return loss, (agent, judging, metrics)

    return live


def _perturbed(key: Key, meta_params: PyTree) -> PyTree:
    """Adds noise to initial meta-parameters, at which a learned function may have no gradient. Consumes ``key``."""
    leaves, structure = jax.tree.flatten(meta_params)
    keys = jax.random.split(key, len(leaves))
    moved = [x + INITIAL_NOISE * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


def _gradient(live: Callable[..., Any], state: MetaGradientState, keys: Key) -> tuple[PyTree, Any]:
    """Computes the mean gradient of ``live`` (`lookahead`) over the agents whose own is finite and who are alive.

    Consumes ``keys`` ``[N]``. The second result is the auxiliary one of ``live``, ``[N]``.
    """
    of_all = jax.vmap(jax.grad(live, has_aux=True), in_axes=(None, 0, 0, 0))
    each, after = of_all(state.meta_params, state.agents, state.judging, keys)
    finite = lambda x: jnp.all(jnp.isfinite(x).reshape(x.shape[0], -1), axis=1)
    sound = after[0].alive & jnp.all(jnp.stack([finite(x) for x in jax.tree.leaves(each)]), axis=0)
    count = jnp.maximum(jnp.sum(sound), 1)
    return jax.tree.map(
        lambda x: jnp.sum(jax.vmap(jnp.where)(sound, x, jnp.zeros_like(x)), axis=0) / count, each
    ), after


def _summary(metrics: Metrics) -> Metrics:
    """Computes the metrics of a generation from its trainings' metrics ``[N, iterations]``."""
    each = jax.vmap(lifetime_return)(metrics)
    alive = metrics["alive"][:, -1]
    sound = alive & jnp.isfinite(each)
    total = jnp.sum(jnp.where(sound, each, 0.0))
    return {
        "fitness": total / jnp.sum(sound),
        "fitness_best": jnp.max(jnp.where(sound, each, -jnp.inf)),
        "fitness_worst": jnp.min(jnp.where(sound, each, jnp.inf)),
        "alive": jnp.mean(alive.astype(jnp.float32)),
    }
