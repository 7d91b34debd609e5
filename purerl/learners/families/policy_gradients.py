"""Learning policies by their gradient: what PPO and its relatives share.

An iteration of the family: act, estimate advantages and returns, take steps towards the actions that did better than
the critic expected (Mnih et al. 2016, arXiv 1602.01783, Algorithm S3). An algorithm defines how it estimates and how it
steps. The parameters that act may be older than those that learn, as those of distributed actors are.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl import networks, spaces, trees
from purerl.envs import seats
from purerl.formulas import distributions, losses
from purerl.learners.parts import checks, gradients, lifetimes, normalize, reuse, settings, versions
from purerl.learners.parts.estimates import Estimate, Experience, estimates, evaluate, first, scores
from purerl.learners.parts.lifetimes import Age, Timed
from purerl.learners.parts.normalize import Normalizer, RewardScaler
from purerl.names import tell_once
from purerl.networks import ActorCritic, recurrent
from purerl.networks.given import Fitting, given_or_own
from purerl.networks.heads import PolicyAndValue
from purerl.spaces import Box, Discrete, MultiDiscrete
from purerl.types import (
    Array,
    Distribution,
    Env,
    Key,
    Learner,
    Metrics,
    PyTree,
    Scores,
    Situation,
    Transition,
    Updated,
)

IMAGE = {
    "total_steps": 10_000_000,
    "num_envs": 16,
    "num_steps": 16,
    "learning_rate": 2e-3,
    "entropy_coef": 0.05,
    "normalize_reward": False,
    "activation": "relu",
    "hidden_sizes": (128,),
}
MEMORY = {"num_envs": 16, "num_steps": 32, "memory": "gru"}
CONTINUOUS = {
    "total_steps": 1_000_000,
    "num_envs": 16,
    "num_steps": 16,
    "learning_rate": 1e-3,
    "entropy_coef": 0.0,
    "normalize_obs": True,
}
"""Presets of algorithms that take one step on what they collect. They were tuned on Breakout of MinAtar, where with
a smaller entropy bonus policies settle on few bricks, on MemoryChain, and on Pendulum. Each lacks its own trace
parameter."""


@cfg.config
class PolicyGradientConfig(reuse.ReuseSettings, settings.Recall, settings.Torso, settings.Adam, settings.OnPolicy):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    offers: ClassVar[tuple[str, ...]] = (settings.LOG_RATIOS,)
    adam_epsilon: ClassVar[float] = 1e-5
    value_coef: cfg.NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: cfg.NonNegative = 0.01
    """Weight of the entropy bonus."""
    lag: cfg.NonNegative = 0.0
    """Age in iterations of the parameters that act, relative to those that learn; a whole number, at most max_lag."""
    max_lag: Annotated[cfg.NonNegativeCount, settings.WITH_LAG] = 0
    """Upper bound of lag: the number of past parameter versions to keep."""
    normalize_obs: bool = False
    """Normalise observations by their running mean and standard deviation."""
    normalize_reward: bool = False
    """Scale rewards by the running standard deviation of the discounted return."""
    hidden_sizes: tuple[cfg.Count, ...] = (64, 64)
    """Widths of the dense layers of actor and critic. With a memory, the last layer follows it."""

    @property
    def total_updates(self) -> int:
        """Number of gradient steps of the whole training."""
        return self.num_iterations


class PolicyGradientState(NamedTuple):
    """The learner's state.

    ``stale`` are the parameters that act, and ``past`` the versions from which they are taken; both are ``()`` without
    a lag. An algorithm with a target network keeps ``target_params`` and ``target_age``, the iterations since its
    refresh (int32), itself. ``reused`` is the state of `reuse.Reuse`, ``age`` the number of iterations so far where a
    part reads it.
    """

    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: PyTree
    stale: PyTree
    past: versions.Past | tuple[()]
    target_params: PyTree = ()
    target_age: Array | tuple[()] = ()
    reused: PyTree = ()
    age: Age = ()


class PolicyGradientPolicy(NamedTuple):
    """What acting and the evaluated policy need: parameters, and the moments of observations."""

    params: PyTree
    obs_moments: PyTree


class Extras(NamedTuple):
    """What is recorded while acting: parameters of the distribution, and the carry with which the step began."""

    policy: Array
    carry: PyTree


ValueLoss = Callable[[Array, Array, Array, Any], Array]
"""A function ``(value, old_value, target, config)`` that the critic minimises, elementwise; ``old_value`` is the
critic's value before the update."""


class PolicyGradientParts(NamedTuple):
    """The parts of an algorithm of the family; agents that are ``apart`` may end before the others."""

    network: ActorCritic
    distribution: Distribution
    optimiser: optax.GradientTransformation
    normalizer: Normalizer
    scaler: RewardScaler
    value_loss: ValueLoss
    acting: Callable[[PyTree], Array] | None
    apart: bool = False


class ActorCriticParts(TypedDict, total=False):
    """Parts that every algorithm of the family takes: arguments of `make_parts`."""

    network: ActorCritic | nn.Module | Fitting | None
    optimiser: optax.GradientTransformation | None
    scaler: RewardScaler | None
    num_predictions: int


def problems(config: PolicyGradientConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete, MultiDiscrete or Box.
    """
    problems = cfg.problems(config)
    if cfg.sound(config, "lag", "max_lag") and (config.lag > config.max_lag or config.lag % 1):
        problems.append(f"lag = {config.lag!r}: must be a whole number, at most max_lag = {config.max_lag}")
    if config.memory != "none" and config.hidden_sizes == ():
        problems.append(
            "hidden_sizes = (): must not be empty with a memory; the last width is that of the layer after it"
        )
    problems += settings.torso_problems(config, env)
    if config.normalize_obs and env is not None and env.legal and spaces.is_leaf(env.observation_space):
        problems.append(
            f"normalize_obs = True: the observation array of {env.name} contains its mask of legal actions, which "
            "cannot be normalised; put the mask in a separate leaf"
        )
    problems += checks.iteration_problems(config)
    return problems + checks.space_problems(env, (Discrete, MultiDiscrete, Box))


def make_network(
    config: PolicyGradientConfig, env: Env, distribution: Distribution, num_predictions: int = 1
) -> ActorCritic:
    """Makes actor and critic with a torso each, or with a torso and a memory for both.

    A Gaussian's standard deviations are free parameters.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        distribution: That of actions.
        num_predictions: How many values the critic gives, K. The first of several is equal in all bits to the value of
            a critic of one.
    """
    size, free = distribution.num_params - distribution.num_free, distribution.num_free
    widths = config.hidden_sizes if config.memory == "none" else config.hidden_sizes[:-1]
    torso, memory = settings.make_torso(config, env, widths), settings.make_memory(config)
    if config.memory == "none":
        return networks.actor_critic(
            networks.Head(torso, size, scale=0.01, free=free),
            networks.Head(torso, 1, scale=1.0, beside=num_predictions - 1),
        )
    head = PolicyAndValue(config.hidden_sizes[-1], size, free, networks.ACTIVATIONS[config.activation], num_predictions)
    return recurrent.actor_critic(recurrent.recurrent(torso, memory, head))


def make_parts(
    config: PolicyGradientConfig,
    env: Env,
    network: ActorCritic | nn.Module | Fitting | None = None,
    optimiser: optax.GradientTransformation | None = None,
    scaler: RewardScaler | None = None,
    value_loss: ValueLoss = losses.squared_value_loss,
    num_predictions: int = 1,
) -> PolicyGradientParts:
    """Collects the parts of an algorithm, and makes those that are not given.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: Actor and critic, or one Flax Linen module of both (`heads.as_actor_critic`); None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
        scaler: Scales rewards; None: as ``config`` says.
        value_loss: What the critic minimises.
        num_predictions: How many values the critic of `make_network` gives. More than one requires an estimate and a
            loss that are written for several.
    """
    distribution = distributions.for_space(env.action_space)
    own = make_network(config, env, distribution, num_predictions)
    made = given_or_own(network, own, env.observation_space)
    if isinstance(network, nn.Module) and config.normalize_reward is False:
        tell_once(
            "hint: network: policy and value share it; where returns are large, normalize_reward = True keeps the "
            "gradient of the value's loss from outweighing the policy's"
        )
    return PolicyGradientParts(
        networks.legal_only(made, env.legal) if env.legal else made,
        distribution,
        optimiser or settings.make_optimiser(config),
        normalize.running() if config.normalize_obs else normalize.identity(),
        scaler or (normalize.running_reward() if config.normalize_reward else normalize.identity_reward()),
        value_loss,
        env.acting,
        seats.apart(env),
    )


def acting(state: Any) -> PyTree:
    """Returns the parameters that act."""
    return state.stale if state.past else state.params


def scaled(
    config: PolicyGradientConfig, parts: PolicyGradientParts, state: Any, trajectory: Transition
) -> tuple[PyTree, Transition]:
    """Returns the new state of the reward's scale, and the trajectory ``[T, B]`` with scaled rewards."""
    given = trajectory.reward, trajectory.last, config.gamma, trajectory.present
    scale, reward = parts.scaler.scale(state.reward_scale, *given)
    return scale, trajectory._replace(reward=reward)


def experience(
    config: PolicyGradientConfig,
    parts: PolicyGradientParts,
    state: Any,
    trajectory: Transition,
    present: Array | tuple[()] = (),
) -> Experience:
    """Prepares a `scaled` trajectory for learning.

    Args:
        config: Settings of the algorithm.
        parts: Parts of the algorithm.
        state: The learner's state.
        trajectory: The trajectory ``[T, B]``.
        present: Where there is something to learn from (`reuse.Reuse`), bool ``[T, B]``; ``()``: everywhere that an
            agent was in the game.
    """
    policy, carry = trajectory.extras
    present = losses.both(present, trajectory.present)
    acting = losses.both(present, parts.acting(trajectory.obs) if parts.acting else ())
    return Experience(
        obs=parts.normalizer.apply(state.obs_moments, trajectory.obs),
        action=trajectory.action,
        log_prob=parts.distribution.log_prob(policy, trajectory.action),
        carry=carry,
        reward=trajectory.reward,
        discount=config.gamma * (1 - trajectory.terminated),
        last=trajectory.last,
        next_obs=parts.normalizer.apply(state.obs_moments, trajectory.next_obs),
        acting=acting,
        present=present,
    )


def make_learner(
    config: PolicyGradientConfig,
    parts: PolicyGradientParts,
    learn: Callable[[PolicyGradientState, Experience, Key], Updated],
    *timed: Any,
) -> Learner:
    """Makes a `Learner` from the update of an algorithm. Experience that is older than ``max_lag`` changes nothing.

    Args:
        config: Settings of the algorithm.
        parts: Parts of the algorithm.
        learn: ``learn(state, experience, key)`` updates the parameters.
        *timed: The parts of ``learn`` that may be `lifetimes.Timed`.
    """
    network, distribution, normalizer = parts.network, parts.distribution, parts.normalizer
    reusing = reuse.make(config, config.num_steps)

    def init(key: Key, obs: PyTree) -> PolicyGradientState:
        params = network.init(key, obs)
        state = PolicyGradientState(
            params,
            gradients.init_optimiser(parts.optimiser, params),
            normalizer.init(trees.take(obs, 0)),
            parts.scaler.init(trees.length(obs)),
            stale=params if config.max_lag else (),
            past=versions.past(params, config.max_lag),
            age=lifetimes.begin(*timed),
        )

        def step() -> Transition:
            num_envs = trees.length(obs)
            here, noise = Situation(obs, network.init_carry(num_envs)), distribution.noise(key, (num_envs,))
            action, _, extras = explore(behaviour(state), here, noise)
            reward, ended = jnp.zeros(num_envs), jnp.zeros(num_envs, bool)
            seat = (ended, ended) if parts.apart else ()
            return Transition(obs, action, reward, ended, ended, obs, extras, *seat)

        return state._replace(reused=reusing.init(step))

    def behaviour(state: Any) -> PolicyGradientPolicy:
        return PolicyGradientPolicy(acting(state), state.obs_moments)

    def act(policy: PolicyGradientPolicy, here: Situation) -> tuple[Array, PyTree]:
        return network.act(policy.params, normalizer.apply(policy.obs_moments, here.obs), here.carry)

    def explore(policy: PolicyGradientPolicy, here: Situation, noise: PyTree):
        chosen, following = act(policy, here)
        return distribution.sample(chosen, noise), following, Extras(chosen, here.carry)

    def exploit(policy: PolicyGradientPolicy, here: Situation, key: Key):
        chosen, carry = act(policy, here)
        return distribution.mode(chosen), carry

    def learn_and_age(state: Any, trajectory: Transition, key: Key) -> Updated:
        reward_scale, fresh = scaled(config, parts, state, trajectory)
        reused, given, present = reusing.exchange(state.reused, fresh, key)
        learned, metrics, scores = learn(state, experience(config, parts, state, given, present), key)
        if config.max_lag:
            learned = jax.tree.map(lambda new, old: jnp.where(config.lag <= config.max_lag, new, old), learned, state)
            metrics["lag"] = jnp.asarray(config.lag, jnp.float32)
            stale, past = versions.delay(state.past, learned.params, config.lag)
            learned = learned._replace(stale=stale, past=past)
        obs_moments = normalizer.update(state.obs_moments, trajectory.obs, trajectory.present)
        learned = learned._replace(
            obs_moments=obs_moments, reward_scale=reward_scale, reused=reused, age=lifetimes.older(state.age)
        )
        return Updated(learned, metrics, jax.tree.map(lambda x: x[:, : trajectory.reward.shape[1]], scores))

    return Learner(
        init=init,
        init_carry=network.init_carry,
        noise=distribution.noise,
        behaviour=behaviour,
        explore=explore,
        policy=lambda state: PolicyGradientPolicy(state.params, normalize.settled(state.obs_moments)),
        exploit=exploit,
        update=learn_and_age,
        log_ratio=functools.partial(log_ratio, parts),
    )


def log_ratio(parts: PolicyGradientParts, trajectory: Transition, policy: PolicyGradientPolicy) -> Array:
    """Computes `Learner.log_ratio` ``[T, B]``.

    With a memory ``policy`` begins the trajectory with the carry of the policy that acted.
    """
    acted, carry = trajectory.extras
    obs, start = parts.normalizer.apply(policy.obs_moments, trajectory.obs), jax.tree.map(lambda x: x[0], carry)
    other, _, _ = parts.network.unroll(policy.params, obs, start, trajectory.last)
    ratio = parts.distribution.log_prob(acted, trajectory.action) - parts.distribution.log_prob(
        other, trajectory.action
    )
    counts = losses.both(trajectory.present, parts.acting(trajectory.obs) if parts.acting else ())
    return ratio if isinstance(counts, tuple) else jnp.where(counts, ratio, 0.0)


def descend(
    config: PolicyGradientConfig,
    parts: PolicyGradientParts,
    estimate: Estimate | Timed,
    state: Any,
    experience: Experience,
    at: PyTree | None = None,
) -> Updated:
    """Takes one gradient step of the actor-critic on a whole trajectory.

    It descends ``-mean(advantage * log pi) + value_coef * mean(value loss) - entropy_coef * mean(entropy)``.

    Args:
        config: Settings of the algorithm.
        parts: Parts of the algorithm.
        estimate: Gives advantages and targets.
        state: The learner's state.
        experience: The trajectory ``[T, B]``.
        at: Parameters at which the gradient is taken; None: the newest.
    """
    current: Estimate = lifetimes.now(estimate, config, state.age)

    def loss(params: PyTree, experience: Experience) -> tuple[Array, tuple[Metrics, Scores]]:
        policy, value, next_value = evaluate(parts.network, params, experience)
        merged = policy, value, experience.action, experience.log_prob, experience.acting, experience.present
        policy, value, action, acted, acting, present = trees.merge(merged, 2)
        log_prob = parts.distribution.log_prob(policy, action)
        log_ratio = log_prob - acted
        columns = trees.split((log_prob, log_ratio, value), experience.last.shape)
        columns, next_value = jax.lax.stop_gradient((columns, next_value))
        estimated = estimates(current, columns[0], columns[1], experience, columns[2], next_value)
        advantage, target = trees.merge(estimated, 2)
        policy_loss = -losses.mean(advantage * log_prob, acting)
        value_loss = losses.mean(parts.value_loss(value, jax.lax.stop_gradient(value), target, config), present)
        entropy = losses.mean(parts.distribution.entropy(policy), acting)
        total, metrics = losses.three_terms(config, policy_loss, value_loss, entropy, log_ratio, acting)
        metrics["explained_variance"] = losses.explained_variance(
            first(value, advantage), first(target, advantage), present
        )
        return total, (metrics, scores(columns[2], estimated[0]))

    params, opt_state, (more, thought), metrics = gradients.gradient_step(
        loss, parts.optimiser, state.params, state.opt_state, experience, at=at
    )
    return Updated(state._replace(params=params, opt_state=opt_state), {**more, **metrics}, thought)
