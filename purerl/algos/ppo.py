"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import distributions, loops, losses, networks, normalize, returns, update
from purerl.types import Array, Box, Discrete, Distribution, Env, Key, Learner, Metrics, PyTree, Trainer, Transition


@cfg.config
class Config:
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    total_steps: cfg.Frames = 500_000
    """Environment steps in all, of one agent. Rounded down to whole iterations."""
    num_envs: cfg.Count = 4
    """Environments that step side by side."""
    num_steps: cfg.Count = 128
    """Steps in each environment between two updates."""
    num_epochs: cfg.Count = 4
    """Passes over each batch."""
    num_minibatches: cfg.Count = 4
    """Parts that a batch is cut into; must divide num_envs * num_steps."""
    learning_rate: cfg.Positive = 2.5e-4
    """Adam's step size at the start."""
    learning_rate_decay: cfg.Fraction = 1.0
    """Part of the learning rate that linear annealing takes away by the end; 0 keeps it constant."""
    gamma: cfg.Fraction = 0.99
    """Discount of the return, a step."""
    gae_lambda: cfg.Fraction = 0.95
    """Trace parameter of the advantage estimate."""
    clip_epsilon: cfg.Positive = 0.2
    """Bound on the probability ratio's distance from 1, and on the value's move."""
    value_coef: cfg.NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: cfg.NonNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: cfg.Positive = 0.5
    """Global norm that gradients are clipped to."""
    normalize_obs: bool = False
    """Normalise observations by their running mean and deviation."""
    normalize_reward: bool = False
    """Scale rewards by the running deviation of the discounted return."""
    hidden_sizes: tuple[cfg.Count, ...] = (64, 64)
    """Widths of the dense layers of actor and critic."""
    activation: Literal["tanh", "relu", "silu", "gelu", "elu"] = "tanh"
    """Activation of the dense layers."""

    @property
    def batch_size(self) -> int:
        """Environment steps of one iteration."""
        return self.num_envs * self.num_steps

    @property
    def num_iterations(self) -> int:
        return self.total_steps // self.batch_size

    @property
    def total_updates(self) -> int:
        """Gradient steps of the whole training."""
        return self.num_iterations * self.num_epochs * self.num_minibatches


class State(NamedTuple):
    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: PyTree


class Policy(NamedTuple):
    """What acting needs."""

    params: PyTree
    obs_moments: PyTree


class Batch(NamedTuple):
    """Samples ``[N]`` to learn from."""

    obs: PyTree
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


def problems(config: Config, env: Env | None) -> list[str]:
    """Why ``config`` cannot train on ``env`` (None: not known), a line each. Discrete and Box actions will do."""
    return cfg.problems(config) + cfg.batch_problems(config) + cfg.space_problems(env, (Discrete, Box))


def make_network(config: Config, env: Env, distribution: Distribution) -> networks.ActorCritic:
    """Actor and critic with a torso each; a Gaussian's deviations are parameters of their own."""
    torso = networks.torso(env.observation_space, config.hidden_sizes, config.activation)
    size, free = distribution.num_params - distribution.num_free, distribution.num_free
    actor = networks.Head(torso, size, scale=0.01, free=free)
    return networks.actor_critic(actor, networks.Head(torso, 1, scale=1.0))


def make_optimiser(config: Config) -> optax.GradientTransformation:
    schedule = update.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    return optax.chain(update.clip_by_norm(config.max_grad_norm), optax.adam(schedule, eps=1e-5))


def make_learner(
    config: Config, env: Env, *, network=None, objective=losses.clipped_surrogate, optimiser=None
) -> Learner:
    """PPO as a `Learner`.

    ``network`` is a `networks.ActorCritic`, ``objective(log_ratio, advantage, config)`` is maximised and acts
    elementwise, ``optimiser`` is any optax transformation.
    """
    distribution = distributions.for_space(env.action_space)
    network = network or make_network(config, env, distribution)
    optimiser = optimiser or make_optimiser(config)
    normalizer = normalize.running() if config.normalize_obs else normalize.identity()
    scaler = normalize.running_reward() if config.normalize_reward else normalize.identity_reward()

    def init(key: Key, obs: PyTree) -> State:
        params = network.init(key, obs)
        return State(
            params, update.init_optimiser(optimiser, params), normalizer.init(obs[0]), scaler.init(obs.shape[0])
        )

    def explore(state: State, obs: PyTree, carry: PyTree, noise: PyTree):
        params = network.policy(state.params, normalizer.apply(state.obs_moments, obs))
        return distribution.sample(params, noise), carry, params

    def exploit(policy: Policy, obs: PyTree, carry: PyTree, key: Key):
        params = network.policy(policy.params, normalizer.apply(policy.obs_moments, obs))
        return distribution.mode(params), carry

    def estimate(state: State, trajectory: Transition) -> tuple[Batch, PyTree]:
        """Advantages and targets of a trajectory, flattened to ``[N = T * B]``; and the new reward scale."""
        obs = normalizer.apply(state.obs_moments, trajectory.obs)
        next_obs = normalizer.apply(state.obs_moments, trajectory.next_obs)
        value, next_value = network.value(state.params, obs), network.value(state.params, next_obs)
        reward_scale, reward = scaler.scale(state.reward_scale, trajectory.reward, trajectory.last, config.gamma)
        discount = config.gamma * (1 - trajectory.terminated)
        advantage = jax.vmap(returns.gae, in_axes=(1, 1, 1, 1, 1, None), out_axes=1)(
            reward, value, next_value, discount, trajectory.last, config.gae_lambda
        )
        log_prob = distribution.log_prob(trajectory.extras, trajectory.action)
        batch = Batch(obs, trajectory.action, log_prob, value, advantage, advantage + value)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch), reward_scale

    def loss(params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        policy, value = network.policy(params, batch.obs), network.value(params, batch.obs)
        log_ratio = distribution.log_prob(policy, batch.action) - batch.log_prob
        policy_loss = -jnp.mean(objective(log_ratio, losses.standardise(batch.advantage), config))
        value_loss = jnp.mean(losses.clipped_value_loss(value, batch.value, batch.target, config.clip_epsilon))
        entropy = jnp.mean(distribution.entropy(policy))
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approximate_kl": jnp.mean(losses.approximate_kl(log_ratio)),
            "clip_fraction": jnp.mean(jnp.abs(jnp.expm1(log_ratio)) > config.clip_epsilon),
        }
        return policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy, metrics

    def learn(state: State, trajectory: Transition, key: Key) -> tuple[State, Metrics]:
        batch, reward_scale = estimate(state, trajectory)
        indices = update.minibatch_indices(key, config.batch_size, config.num_epochs, config.num_minibatches)
        params, opt_state, metrics = update.epochs(loss, optimiser, state.params, state.opt_state, batch, indices)
        metrics["explained_variance"] = losses.explained_variance(batch.value, batch.target)
        obs_moments = normalizer.update(state.obs_moments, trajectory.obs)
        return State(params, opt_state, obs_moments, reward_scale), metrics

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=distribution.noise,
        explore=explore,
        policy=lambda state: Policy(state.params, state.obs_moments),
        exploit=exploit,
        update=learn,
    )


def make_trainer(config: Config, env: Env, **parts: Any) -> Trainer:
    """One iteration of PPO as a `Trainer`; ``parts`` are those of `make_learner`."""
    return loops.on_policy(
        env, make_learner(config, env, **parts), num_envs=config.num_envs, num_steps=config.num_steps
    )


def make_train(config: Config, env: Env, **parts: Any):
    """The whole training, ``train(key) -> Result``; ``parts`` are those of `make_learner`."""
    return loops.train(make_trainer(config, env, **parts), config.num_iterations)
