"""Learning policies by their gradient: what PPO and its relatives share.

An iteration of the family: act, estimate advantages and returns, take steps towards the actions that did better than
the critic expected (Mnih et al. 2016, arXiv 1602.01783, Algorithm S3). An algorithm says how it estimates and how it
steps. The parameters that act may be older than those that learn, as those of distributed actors are.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import distributions, loops, losses, memory, networks, normalize, recurrent, returns, update
from purerl.networks import ActorCritic
from purerl.normalize import Normalizer, RewardScaler
from purerl.types import Array, Box, Discrete, Distribution, Env, Key, Learner, Metrics, PyTree, Trainer, Transition


@cfg.config
class Config:
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    total_steps: cfg.Frames = 500_000
    """Environment steps in all, of one agent. Rounded down to whole iterations."""
    num_envs: cfg.Count = 4
    """Environments that step side by side."""
    num_steps: cfg.Count = 128
    """Steps in each environment between two rounds of learning."""
    learning_rate: cfg.Positive = 2.5e-4
    """Adam's step size at the start."""
    learning_rate_decay: cfg.Fraction = 1.0
    """Part of the learning rate that linear annealing takes away by the end; 0 keeps it constant."""
    gamma: cfg.Fraction = 0.99
    """Discount of the return, a step."""
    value_coef: cfg.NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: cfg.NonNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: cfg.Positive = 0.5
    """Global norm that gradients are clipped to."""
    lag: cfg.NonNegative = 0.0
    """Iterations by which the parameters that act are older than those that learn; a whole number up to max_lag."""
    max_lag: cfg.NonNegativeCount = 0
    """Older versions of the parameters that are kept."""
    normalize_obs: bool = False
    """Normalise observations by their running mean and deviation."""
    normalize_reward: bool = False
    """Scale rewards by the running deviation of the discounted return."""
    torso: Literal["plain", "resnet"] = "plain"
    """Dense layers, behind a convolution for images; or, for images, the residual network of IMPALA before them."""
    memory: Literal["none", "gru", "lstm", "lru", "gtrxl"] = "none"
    """Layer that remembers the episode so far. With one, actor and critic share torso and memory."""
    memory_size: cfg.Count = 64
    """Its width."""
    memory_window: cfg.Count = 32
    """Steps back that gtrxl sees."""
    hidden_sizes: tuple[cfg.Count, ...] = (64, 64)
    """Widths of the dense layers of actor and critic; with a memory, the last one comes after it."""
    activation: Literal["tanh", "relu", "silu", "gelu", "elu"] = "tanh"
    """Activation of the dense layers."""

    @property
    def batch_size(self) -> int:
        """Environment steps of one iteration."""
        return self.num_envs * self.num_steps

    @property
    def num_iterations(self) -> int:
        """Iterations of the whole training."""
        return self.total_steps // self.batch_size

    @property
    def total_updates(self) -> int:
        """Gradient steps of the whole training."""
        return self.num_iterations


class State(NamedTuple):
    """``stale`` are the parameters that act, and ``past`` what they are taken from; both ``()`` without a lag."""

    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: PyTree
    stale: PyTree
    past: update.Past | tuple[()]


class Policy(NamedTuple):
    """What acting needs."""

    params: PyTree
    obs_moments: PyTree


class Extras(NamedTuple):
    """What is recorded while acting: parameters of the distribution, and the carry with which the step began."""

    policy: Array
    carry: PyTree


class Experience(NamedTuple):
    """A trajectory ``[T, B]`` as it is learned from: observations normalised, rewards scaled.

    ``log_prob`` is that of the action under the policy that took it, ``carry`` the one before each step.
    """

    obs: PyTree
    action: Array
    log_prob: Array
    carry: PyTree
    reward: Array
    discount: Array
    last: Array
    next_obs: PyTree


ValueLoss = Callable[[Array, Array, Array, Any], Array]
"""``(value, old_value, target, config) ->`` what the critic minimises, elementwise; ``old_value`` is what it gave
before the update."""


class Parts(NamedTuple):
    """What an algorithm of the family is made of."""

    network: ActorCritic
    distribution: Distribution
    optimiser: optax.GradientTransformation
    normalizer: Normalizer
    scaler: RewardScaler
    value_loss: ValueLoss


class Columns(NamedTuple):
    """What an estimate sees of one environment, all ``[T]``.

    ``log_prob`` is that of the action under the policy that learns, ``log_ratio`` what that has over the one under the
    policy that acted. ``value`` and ``next_value`` are the critic's, ``[T, K]`` if it predicts K things.
    """

    log_prob: Array
    log_ratio: Array
    reward: Array
    value: Array
    next_value: Array
    discount: Array
    last: Array


Estimate = Callable[[Columns], tuple[Array, Array]]
"""``columns -> (advantage [T], target [T])`` of one environment; targets ``[T, K]`` for K predictions."""


def problems(config: Config, env: Env | None) -> list[str]:
    """Why ``config`` cannot train on ``env`` (None: not known), a line each. Discrete and Box actions will do."""
    found = cfg.problems(config)
    if cfg.sound(config, "lag", "max_lag") and (config.lag > config.max_lag or config.lag % 1):
        found.append(f"lag = {config.lag!r}: must be a whole number, at most max_lag = {config.max_lag}")
    if config.memory != "none" and config.hidden_sizes == ():
        found.append("hidden_sizes = (): must have the width of the layer after the memory")
    if env is not None and config.torso == "resnet" and len(env.observation_space.shape) != 3:
        shape = env.observation_space.shape
        found.append(f"torso = 'resnet': needs observations of three axes; {env.name} has the shape {shape}")
    return found + cfg.iteration_problems(config) + cfg.space_problems(env, (Discrete, Box))


def make_network(config: Config, env: Env, distribution: Distribution, num_predictions: int = 1) -> ActorCritic:
    """Actor and critic with a torso each, or with a torso and a memory for both; a Gaussian's deviations are parameters
    of their own. With several ``num_predictions`` K the critic gives that many values."""
    space, activation = env.observation_space, config.activation
    size, free = distribution.num_params - distribution.num_free, distribution.num_free
    if config.memory == "none":
        torso = networks.torso(space, config.hidden_sizes, activation, kind=config.torso)
        return networks.actor_critic(
            networks.Head(torso, size, scale=0.01, free=free), networks.Head(torso, num_predictions, scale=1.0)
        )
    *torso_sizes, width = config.hidden_sizes
    torso = networks.torso(space, tuple(torso_sizes), activation, kind=config.torso)
    head = networks.PolicyAndValue(width, size, free, networks.ACTIVATIONS[activation], num_predictions)
    layer = memory.make(config.memory, config.memory_size, config.memory_window)
    return recurrent.actor_critic(recurrent.recurrent(torso, layer, head))


def make_optimiser(config: Config, *change: optax.GradientTransformation) -> optax.GradientTransformation:
    """Adam behind clipping, its step size falling linearly. ``change`` is done to Adam's direction, before its size."""
    schedule = update.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    adam = optax.scale_by_adam(eps=1e-5), *change, optax.scale_by_learning_rate(schedule)
    return optax.chain(update.clip_by_norm(config.max_grad_norm), *adam)


def make_parts(
    config: Config,
    env: Env,
    network: ActorCritic | None = None,
    optimiser: optax.GradientTransformation | None = None,
    scaler: RewardScaler | None = None,
    value_loss: ValueLoss = losses.squared_value_loss,
    num_predictions: int = 1,
) -> Parts:
    """``network``, ``optimiser`` and the ``scaler`` of rewards, or what ``config`` says for None; ``value_loss``; and
    what comes with them. More than one of ``num_predictions`` asks for an estimate and a loss that know of them."""
    distribution = distributions.for_space(env.action_space)
    return Parts(
        network or make_network(config, env, distribution, num_predictions),
        distribution,
        optimiser or make_optimiser(config),
        normalize.running() if config.normalize_obs else normalize.identity(),
        scaler or (normalize.running_reward() if config.normalize_reward else normalize.identity_reward()),
        value_loss,
    )


def init_state(config: Config, parts: Parts, params: PyTree, obs: PyTree) -> State:
    """The state before the first iteration."""
    return State(
        params,
        update.init_optimiser(parts.optimiser, params),
        parts.normalizer.init(obs[0]),
        parts.scaler.init(obs.shape[0]),
        params if config.max_lag else (),
        update.past(params, config.max_lag),
    )


def acting(state: Any) -> PyTree:
    """The parameters that act."""
    return state.stale if state.past else state.params


def make_learner(
    config: Config,
    parts: Parts,
    learn: Callable[[Any, Experience, Key], tuple[Any, Metrics]],
    init_state: Callable[[Config, Parts, PyTree, PyTree], Any] = init_state,
) -> Learner:
    """A `Learner` whose parameters ``learn(state, experience, key) -> (state, metrics)`` moves.

    ``init_state`` makes a state with at least the fields of `State`. Experience that is older than ``max_lag`` moves
    nothing.
    """
    network, distribution, normalizer = parts.network, parts.distribution, parts.normalizer

    def init(key: Key, obs: PyTree) -> Any:
        return init_state(config, parts, network.init(key, obs), obs)

    def explore(state: Any, obs: PyTree, carry: PyTree, noise: PyTree):
        policy, following = network.act(acting(state), normalizer.apply(state.obs_moments, obs), carry)
        return distribution.sample(policy, noise), following, Extras(policy, carry)

    def exploit(policy: Policy, obs: PyTree, carry: PyTree, key: Key):
        chosen, carry = network.act(policy.params, normalizer.apply(policy.obs_moments, obs), carry)
        return distribution.mode(chosen), carry

    def experience(state: Any, trajectory: Transition) -> tuple[Experience, PyTree]:
        """What was experienced, and the new reward scale."""
        scale, reward = parts.scaler.scale(state.reward_scale, trajectory.reward, trajectory.last, config.gamma)
        policy, carry = trajectory.extras
        seen = Experience(
            obs=normalizer.apply(state.obs_moments, trajectory.obs),
            action=trajectory.action,
            log_prob=distribution.log_prob(policy, trajectory.action),
            carry=carry,
            reward=reward,
            discount=config.gamma * (1 - trajectory.terminated),
            last=trajectory.last,
            next_obs=normalizer.apply(state.obs_moments, trajectory.next_obs),
        )
        return seen, scale

    def learn_and_age(state: Any, trajectory: Transition, key: Key) -> tuple[Any, Metrics]:
        seen, reward_scale = experience(state, trajectory)
        learned, metrics = learn(state, seen, key)
        if config.max_lag:
            learned = jax.tree.map(lambda new, old: jnp.where(config.lag <= config.max_lag, new, old), learned, state)
            metrics["lag"] = jnp.asarray(config.lag, jnp.float32)
            stale, past = update.delay(state.past, learned.params, config.lag)
            learned = learned._replace(stale=stale, past=past)
        obs_moments = normalizer.update(state.obs_moments, trajectory.obs)
        return learned._replace(obs_moments=obs_moments, reward_scale=reward_scale), metrics

    return Learner(
        init=init,
        init_carry=network.init_carry,
        noise=distribution.noise,
        explore=explore,
        policy=lambda state: Policy(state.params, state.obs_moments),
        exploit=exploit,
        update=learn_and_age,
    )


def evaluate(network: ActorCritic, params: PyTree, seen: Experience) -> tuple[Array, Array, Array]:
    """Policies and values of the steps of a trajectory, and values of what followed each. ``[T, B]`` leading.

    What followed a step that was cut is seen with the memory that the step left.
    """
    carry = jax.tree.map(lambda x: x[0], seen.carry)
    policy, value, carries = network.unroll(params, seen.obs, carry, seen.last)
    return policy, value, network.value(params, seen.next_obs, carries)


def by_gae(gae_lambda: Array) -> Estimate:
    """Generalised advantages and the returns that they add up to; whoever acted (`returns.gae`)."""

    def estimate(seen: Columns) -> tuple[Array, Array]:
        advantage = returns.gae(seen.reward, seen.value, seen.next_value, seen.discount, seen.last, gae_lambda)
        return advantage, advantage + seen.value

    return estimate


def vtrace_weights(log_ratio: Array, config: Any) -> tuple[Array, Array]:
    """V-trace's weights, by ``trace_lambda``, ``rho_bar`` and ``c_bar`` of the config (`returns.vtrace_weights`)."""
    return returns.vtrace_weights(log_ratio, config.trace_lambda, config.rho_bar, config.c_bar)


def by_weights(weights: Callable[[Array, Any], tuple[Array, Array]], config: Any) -> Estimate:
    """Advantages and targets that make up for another policy having acted, by ``weights(log_ratio, config)``, which
    gives ``rho`` and ``c`` (`returns.weighted_returns`)."""

    def estimate(seen: Columns) -> tuple[Array, Array]:
        rho, c = weights(seen.log_ratio, config)
        return returns.weighted_returns(rho, c, seen.reward, seen.value, seen.next_value, seen.discount, seen.last)

    return estimate


def estimates(
    estimate: Estimate, log_prob: Array, log_ratio: Array, seen: Experience, value: Array, next_value: Array
) -> tuple[Array, Array]:
    """``estimate`` for each environment: advantages and targets ``[T, B]``."""
    columns = Columns(log_prob, log_ratio, seen.reward, value, next_value, seen.discount, seen.last)
    return jax.vmap(estimate, in_axes=1, out_axes=1)(columns)


def descend(
    config: Config, parts: Parts, estimate: Estimate, state: Any, seen: Experience, at: PyTree | None = None
) -> tuple[Any, Metrics]:
    """One gradient step of the actor-critic on a whole trajectory; the gradient is taken at ``at`` (None: the newest
    parameters).

    Down ``-mean(advantage * log pi) + value_coef * mean(value loss) - entropy_coef * mean(entropy)``.
    """

    def loss(params: PyTree, seen: Experience) -> tuple[Array, Metrics]:
        policy, value, next_value = evaluate(parts.network, params, seen)
        policy, value, action, acted = networks.merge((policy, value, seen.action, seen.log_prob), 2)
        log_prob = parts.distribution.log_prob(policy, action)
        log_ratio = log_prob - acted
        columns = networks.split((log_prob, log_ratio, value), seen.last.shape)
        columns, next_value = jax.lax.stop_gradient((columns, next_value))
        estimated = estimates(estimate, *columns[:2], seen, columns[2], next_value)
        advantage, target = networks.merge(estimated, 2)
        policy_loss = -jnp.mean(advantage * log_prob)
        value_loss = jnp.mean(parts.value_loss(value, jax.lax.stop_gradient(value), target, config))
        entropy = jnp.mean(parts.distribution.entropy(policy))
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approximate_kl": jnp.mean(losses.approximate_kl(log_ratio)),
            "explained_variance": losses.explained_variance(value, target),
        }
        return policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy, metrics

    params, opt_state, metrics = update.gradient_step(loss, parts.optimiser, state.params, state.opt_state, seen, at=at)
    return state._replace(params=params, opt_state=opt_state), metrics


def make_trainer(config: Config, env: Env, learner: Learner) -> Trainer:
    """One iteration as a `Trainer`."""
    return loops.on_policy(env, learner, num_envs=config.num_envs, num_steps=config.num_steps)
