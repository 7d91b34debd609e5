"""Learning action values from replay: what DQN and its descendants share.

The loop is that of Mnih et al. 2015 (Nature 518, Algorithm 1): act epsilon-greedily, draw a batch, take one step
towards targets by a network of older parameters. An algorithm's file has what its network's outputs mean, its loss and
its update; `make_agent` makes the rest.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import counters, draw, replay, shards, trees
from purerl.counters import Count
from purerl.formulas import exploration, schedules
from purerl.learners.parts import checks, from_replay, gradients, joint_actions, settings, stale_actors, target_networks
from purerl.networks.value_networks import ValueNetwork
from purerl.replay.fixed import Stored
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import (
    Array,
    Dataset,
    Env,
    Key,
    Learner,
    Metrics,
    Outcome,
    PyTree,
    Sample,
    Situation,
    Trainer,
    Updated,
)


@cfg.config(num_updates=8, learning_rate=1e-3, max_grad_norm=10.0, activation="relu")
class ActionValueConfig(from_replay.ReplayConfig, settings.Epsilon, settings.Torso, settings.Adam):
    """Settings of learning action values from replay."""

    n_step: cfg.Count = 5
    """Number of rewards that a target sums before it bootstraps."""
    double: bool = True
    """Double Q-learning: choose the target's next action by the online network instead of the target network."""
    dueling: bool = False
    """Dueling network: compute action values as the sum of a state value and advantages."""
    target_period: cfg.Count = 125
    """Gradient steps between two updates of the target network."""
    lag: cfg.NonNegativeCount = 0
    """Age in updates of the parameters at which gradients are computed, relative to those that they change."""
    max_lag: Annotated[cfg.NonNegativeCount, settings.WITH_LAG] = 1_000
    """Upper bound of lag."""
    epsilon_ladder: Annotated[cfg.NonNegative, settings.WITH_EPSILON] = 0.0
    """Spreads the probability p of a random action over B environments: environment i uses p ** (1 + epsilon_ladder * i
    / (B - 1)). 0: the same for all."""
    hidden_sizes: tuple[cfg.Count, ...] = (128, 128)
    """Widths of the dense layers; the last one belongs to the head (with dueling, to each of its two streams)."""

    @property
    def sample_rows(self) -> int:
        """Number of consecutive rows that one sample spans."""
        return self.n_step + 1


class ActionValueState(NamedTuple):
    """The learner's state.

    ``updates`` counts all updates, and ``target_age`` those since the target's refresh (int32).
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    past: stale_actors.History | tuple[()]
    updates: Count
    target_age: Array


class ActionValueBehaviour(NamedTuple):
    """What acting needs: parameters, and the probability of a random action.

    With a ladder of epsilons it is the probability of the first actor.
    """

    params: PyTree
    epsilon: Array


class Batch(NamedTuple):
    """A sample ``[N]`` of transitions, with what is drawn and computed for it before the gradient.

    ``noise`` is that of the online network, ``chooser_noise`` that of choosing the next action, and ``target_noise``
    that of the target network at the observations. ``next_target_out`` are its outputs at the next ones.
    """

    items: Outcome
    weight: Array
    noise: PyTree
    chooser_noise: PyTree
    target_noise: PyTree
    target_params: PyTree
    next_target_out: PyTree


def problems(config: ActionValueConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete.
    """
    problems = settings.with_head_problems(config) + settings.torso_problems(config, env)
    return (
        problems
        + lag_problems(config)
        + from_replay.problems(config, env)
        + checks.space_problems(env, (Discrete, MultiDiscrete))
        + joint_actions.problems(env)
    )


def lag_problems(config: ActionValueConfig) -> list[str]:
    """Returns one line if no gradient would count."""
    if config.lag <= config.max_lag:
        return []
    return [f"lag = {config.lag}: no gradient would count, for max_lag = {config.max_lag}"]


def network_shape(config: ActionValueConfig, env: Env) -> dict[str, Any]:
    """Returns what the networks of `value_networks` have in common, as keyword arguments of their functions."""
    return {
        "space": env.observation_space,
        "num_actions": joint_actions.joint_actions(env).num,
        "hidden_sizes": config.hidden_sizes,
        "activation": config.activation,
        "dueling": config.dueling,
        "layer_norm": config.layer_norm,
        "convolutions": settings.convolutions(config),
    }


class QLearning(NamedTuple):
    """How action values are learned, and acted by: epsilon-greedily, by a target network, maybe with a lag."""

    config: ActionValueConfig
    env: Env
    optimiser: optax.GradientTransformation

    def init_state(self, params: PyTree) -> ActionValueState:
        """Makes the state before the first update."""
        opt_state = gradients.init_optimiser(self.optimiser, params)
        past = stale_actors.begin(params, self.config.lag) if self.config.lag else ()
        return ActionValueState(params, params, opt_state, past, counters.of(), jnp.zeros((), jnp.int32))

    def behaviour(self, params: PyTree, updates: Count) -> ActionValueBehaviour:
        """Returns how ``params`` act after so many updates."""
        config = self.config
        annealing = config.exploration_fraction * jnp.float32(config.total_updates)
        progress = schedules.progress(updates, annealing)
        return ActionValueBehaviour(params, schedules.anneal(config.epsilon_start, config.epsilon_end, progress))

    def epsilons(self, behaviour: ActionValueBehaviour, num_envs: int) -> Array:
        """Computes the probability ``[B]`` of a random action in each of ``B = num_envs`` environments."""
        total = num_envs * shards.count()
        ladder = exploration.epsilon_ladder(behaviour.epsilon, self.config.epsilon_ladder, total)
        return ladder if shards.count() == 1 else ladder[shards.numbers(num_envs)]

    def step(
        self,
        loss: Callable[[PyTree, PyTree], tuple[Array, tuple[Array, Metrics]]],
        state: ActionValueState,
        batch: PyTree,
    ) -> Updated:
        """Takes one gradient step, and updates the target network and the past with it.

        The gradient is taken at the parameters of ``lag`` updates ago, and zero if that is more than ``max_lag``, as
        the asynchronous learners of Nair et al. 2015 (arXiv 1507.04296, section 3) do: ``K`` of them that take turns
        have a lag of ``K - 1``.

        Args:
            loss: ``loss(params, batch) -> (loss, (priority [N], metrics))``.
            state: State before the update.
            batch: Argument of ``loss``.

        Returns:
            The new state, the metrics, and the priorities ``[N]``.
        """
        config = self.config

        def scaled(params: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
            value, aux = loss(params, batch)
            return value * (config.lag <= config.max_lag), aux

        stale, past = stale_actors.lagged(state.past, state.params, config.lag) if state.past else (state.params, ())
        params, opt_state, (priority, more), metrics = gradients.gradient_step(
            scaled, self.optimiser, state.params, state.opt_state, batch, at=stale
        )
        target_params, target_age = target_networks.periodic(
            params, state.target_params, state.target_age, config.target_period
        )
        acted = self.behaviour(state.params, state.updates)
        epsilon = jnp.mean(self.epsilons(acted, config.num_envs * self.env.num_agents))
        updates = counters.increment(state.updates)
        learned = ActionValueState(params, target_params, opt_state, past, updates, target_age)
        return Updated(learned, {**more, **metrics, "epsilon": epsilon}, priority)


def q_learning(config: ActionValueConfig, env: Env, optimiser: optax.GradientTransformation | None = None) -> QLearning:
    """Makes the `QLearning` of an algorithm.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    return QLearning(config, env, optimiser or gradients.make_optimiser(config))


def nothing(q: Array, action: Array) -> tuple[()]:
    """Records nothing while acting."""
    return ()


def identity(out: Array) -> Array:
    """Returns a network's outputs that are action values themselves."""
    return out


class QAgent(NamedTuple):
    """An agent that acts epsilon-greedily by the action values of a network, and learns them from replay.

    - ``values(out)``: action values ``[..., A]`` of the network's outputs.
    - ``record(q [B, A], action [B])``: what is kept in the replay, as ``extras``.
    """

    learning: QLearning
    network: ValueNetwork
    values: Callable[[PyTree], Array]
    actions: joint_actions.JointActions
    record: Callable[[Array, Array], PyTree]

    def choices(self, out: PyTree, obs: PyTree) -> Array:
        """Returns the action values ``[..., A]`` by which actions are chosen; illegal ones are masked."""
        return exploration.masked(self.values(out), self.actions.legal(obs))

    def batch(self, state: ActionValueState, sample: Sample, key: Key) -> Batch:
        """Prepares a sample for learning. Consumes ``key``."""
        network, shape = self.network, sample.slot.shape
        key_chooser, key_next, key_target, key_online = jax.random.split(key, 4)
        next_target_out = network.apply(state.target_params, sample.items.next_obs, network.noise(key_next, shape))
        return Batch(
            sample.items,
            sample.weight,
            noise=network.noise(key_online, shape),
            chooser_noise=network.acting_noise(key_chooser, shape),
            target_noise=network.noise(key_target, shape),
            target_params=state.target_params,
            next_target_out=next_target_out,
        )

    def selection_values(self, params: PyTree, batch: Batch) -> Array:
        """Computes the values ``[N, A]`` by which the next action is selected, apart from those that evaluate it.

        They are those of the online network, ``params``, for double Q-learning (van Hasselt et al. 2016), else those of
        the target network.
        """
        choosing = jax.lax.stop_gradient(params) if self.learning.config.double else batch.target_params
        return self.choices(
            self.network.apply(choosing, batch.items.next_obs, batch.chooser_noise), batch.items.next_obs
        )

    def weighted_mean(
        self, each: Array, error: Array, out: PyTree, batch: Batch
    ) -> tuple[Array, tuple[Array, Metrics]]:
        """Returns the mean of the losses of a batch by the weights of its samples, the priorities ``[N]``, and metrics.

        Args:
            each: The loss of each transition ``[N]``.
            error: Its error ``[N]``, whose size is its priority.
            out: The network's outputs at the observations, of which metrics are computed.
            batch: The batch.
        """
        priority = jnp.abs(error)
        q = self.choices(out, batch.items.obs)
        metrics = {"value": jnp.mean(jnp.max(q, axis=-1)), "td_error": jnp.mean(batch.weight * priority)}
        return jnp.mean(batch.weight * each), (priority, metrics)

    def step(
        self,
        loss: Callable[[PyTree, Batch], tuple[Array, tuple[Array, Metrics]]],
        state: ActionValueState,
        batch: Batch,
    ) -> Updated:
        """Takes a step on a batch (`QLearning.step`)."""
        return self.learning.step(loss, state, batch)

    def learner(self, update: Callable[[ActionValueState, Sample, Key], Updated]) -> Learner:
        """Makes the `Learner` of an algorithm with the update ``update(state, sample, key)``."""
        learning, network, actions = self.learning, self.network, self.actions

        def init(key: Key, obs: PyTree) -> ActionValueState:
            return learning.init_state(network.init(key, obs))

        def noise(key: Key, shape: tuple[int, ...]) -> PyTree:
            key_network, key_epsilon = jax.random.split(key)
            return network.acting_noise(key_network, shape), draw.uniform(key_epsilon, (*shape, 2))

        def explore(behaviour: ActionValueBehaviour, here: Situation, noise: PyTree):
            network_noise, epsilon_noise = noise
            q = self.choices(network.apply(behaviour.params, here.obs, network_noise), here.obs)
            epsilon = learning.epsilons(behaviour, q.shape[0])
            number = exploration.epsilon_greedy(q, epsilon, epsilon_noise, actions.legal(here.obs))
            return actions.action(number), here.carry, self.record(q, number)

        def exploit(policy: PyTree, here: Situation, key: Key):
            q = self.choices(network.apply(policy, here.obs, network.still((trees.length(here.obs),))), here.obs)
            return actions.action(jnp.argmax(q, axis=-1).astype(jnp.int32)), here.carry

        return Learner(
            init=init,
            init_carry=lambda num_envs: (),
            noise=noise,
            behaviour=lambda state: learning.behaviour(state.params, state.updates),
            explore=explore,
            policy=lambda state: state.params,
            exploit=exploit,
            update=update,
        )


def make_agent(
    config: ActionValueConfig,
    env: Env,
    network: ValueNetwork,
    optimiser: optax.GradientTransformation | None = None,
    values: Callable[[PyTree], Array] = identity,
    record: Callable[[Array, Array], PyTree] = nothing,
) -> QAgent:
    """Makes the agent of an algorithm.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: What gives the outputs that ``values`` reads.
        optimiser: An optax transformation; None: the one that ``config`` describes.
        values: Reads action values off the outputs.
        record: What ``record(q [B, A], action [B])`` returns is kept in the replay, as ``extras``.
    """
    learning = q_learning(config, env, optimiser)
    return QAgent(learning, network, values, joint_actions.joint_actions(env), record)


def make_trainer(
    config: ActionValueConfig, env: Env, learner: Learner, demos: Dataset | Stored | None = None, **ring: Any
) -> Trainer:
    """Makes one iteration as a `Trainer`, with transitions over ``n_step`` steps, also of ``demos`` (None: none).

    ``ring`` goes to `from_replay.make_ring`.
    """
    ring = {"view": replay.transitions(config.n_step, config.gamma), **ring}
    return from_replay.make_trainer(config, env, learner, demos=demos, **ring)
