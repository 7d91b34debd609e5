"""Epochs of minibatches up a surrogate objective: what PPO and its relatives do in place of one step."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import trees
from purerl.formulas import losses
from purerl.learners.families import policy_gradients
from purerl.learners.families.policy_gradients import PolicyGradientParts
from purerl.learners.parts import checks, gradients, lifetimes, settings
from purerl.learners.parts.estimates import Experience, scores
from purerl.learners.parts.lifetimes import Timed
from purerl.networks import ActorCritic
from purerl.types import Array, Env, Key, Metrics, PyTree, Updated

Objective = Callable[[Array, Array, Any], Array]
"""A function ``(log_ratio, advantage, config)`` that is maximised, elementwise."""


IMAGE = {
    "total_steps": 10_000_000,
    "num_envs": 64,
    "num_minibatches": 8,
    "learning_rate": 1e-3,
    "entropy_coef": 0.05,
    "normalize_reward": False,
    "activation": "relu",
    "hidden_sizes": (128,),
}
MEMORY = {"num_envs": 16, "learning_rate": 1e-3, "memory": "gru", "sequence_length": 32}
CONTINUOUS = {
    "total_steps": 1_000_000,
    "num_envs": 16,
    "num_epochs": 10,
    "num_minibatches": 32,
    "learning_rate": 1e-3,
    "entropy_coef": 0.0,
    "normalize_obs": True,
    "normalize_reward": True,
}
PRESETS: dict[str, dict[str, Any]] = {"image": IMAGE, "memory": MEMORY, "continuous": CONTINUOUS}
"""Presets chosen by PPO on Breakout of MinAtar, MemoryChain, and Pendulum. On Breakout seeds differ more than
settings do."""


@cfg.config
class SurrogateConfig(policy_gradients.PolicyGradientConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    num_epochs: cfg.Count = 4
    """Number of passes over each batch."""
    num_minibatches: cfg.Count = 4
    """Number of minibatches of a batch. Must divide num_envs * num_steps or, with a memory, the number of sequences."""
    sequence_length: Annotated[cfg.NonNegativeCount, settings.WITH_MEMORY] = 16
    """Number of steps that gradients flow back through, with a memory. Must divide num_steps. 0: num_steps."""
    clip_epsilon: cfg.Positive = 0.2
    """Clip range of the probability ratio around 1, and of a value around its old value."""

    target_kl: cfg.Limit = 0
    """Upper bound of a minibatch's approximate KL divergence from the policy that acted. Above it an iteration skips
    that minibatch's gradient step and all later ones. 0: no bound."""

    @property
    def sequence_steps(self) -> int:
        """Number of steps of a sequence."""
        return self.sequence_length or self.num_steps

    @property
    def total_updates(self) -> int:
        """Number of gradient steps of the whole training."""
        return self.num_iterations * self.num_epochs * self.num_minibatches


class Batch(NamedTuple):
    """Samples ``[N, ...]`` to learn from, or sequences ``[N, L, ...]`` with the ``carry`` ``[N]`` that they begin with.

    Ratios of probabilities refer to ``log_prob``; ``value`` is the critic's before the update; ``acting`` and
    ``present`` are those of `Experience`.
    """

    obs: PyTree
    action: Array
    last: Array
    carry: PyTree
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    acting: Array | tuple[()]
    present: Array | tuple[()]


def problems(config: SurrogateConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete, MultiDiscrete or Box.
    """
    problems = policy_gradients.problems(config, env)
    if config.memory == "none" or not cfg.sound(config, "num_steps", "sequence_length"):
        return problems + checks.minibatch_problems(config)
    if config.num_steps % config.sequence_steps:
        return [*problems, f"sequence_length = {config.sequence_length}: must divide num_steps = {config.num_steps}"]
    return problems + checks.minibatch_problems(config, config.sequence_steps)


def descend(
    config: SurrogateConfig,
    parts: PolicyGradientParts,
    objective: Objective | Timed,
    state: Any,
    experience: Experience,
    key: Key,
    *,
    log_prob: Array,
    value: Array,
    advantage: Array,
    target: Array,
) -> Updated:
    """Takes epochs of gradient steps on minibatches, each advantage standardised within its minibatch.

    They descend ``-mean(objective) + value_coef * mean(value loss) - entropy_coef * mean(entropy)``. With a
    ``target_kl`` the steps end where the approximate KL divergence exceeds it.

    Args:
        config: Settings of the algorithm.
        parts: Parts of the algorithm.
        objective: What is maximised.
        state: The learner's state.
        experience: The trajectory ``[T, B]``.
        key: Consumed.
        log_prob: What ratios refer to ``[T, B]``.
        value: The critic's values before the update ``[T, B]``.
        advantage: Advantages ``[T, B]``.
        target: What values learn ``[T, B]``.
    """
    network, distribution = parts.network, parts.distribution
    current: Objective = lifetimes.now(objective, config, state.age)
    recurrent = bool(jax.tree.leaves(experience.carry))
    length = config.sequence_steps if recurrent else 1

    def loss(params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        if recurrent:
            policy, new_value, batch = _unroll(network, params, batch)
        else:
            policy, new_value, _ = network.unroll(params, batch.obs, batch.carry, batch.last)
        log_ratio = distribution.log_prob(policy, batch.action) - batch.log_prob
        advantage = losses.standardise(batch.advantage, batch.acting)
        policy_loss = -losses.mean(current(log_ratio, advantage, config), batch.acting)
        value_loss = losses.mean(parts.value_loss(new_value, batch.value, batch.target, config), batch.present)
        entropy = losses.mean(distribution.entropy(policy), batch.acting)
        total, metrics = losses.three_terms(config, policy_loss, value_loss, entropy, log_ratio, batch.acting)
        clipped = jnp.abs(jnp.expm1(log_ratio)) > config.clip_epsilon
        return total, {**metrics, "clip_fraction": losses.mean(clipped, batch.acting)}

    def cut(x: Array) -> Array:
        """Reshapes ``[T, B, ...]`` to samples ``[N, ...]``, or to sequences ``[N, L, ...]``."""
        if not recurrent:
            return x.reshape(-1, *x.shape[2:])
        x = x.reshape(-1, length, *x.shape[1:])  # [T / L, L, B, ...]
        return jnp.swapaxes(x, 1, 2).reshape(-1, length, *x.shape[3:])

    obs, action, last, acting, present = jax.tree.map(
        cut, (experience.obs, experience.action, experience.last, experience.acting, experience.present)
    )
    carry = jax.tree.map(lambda x: x[::length].reshape(-1, *x.shape[2:]), experience.carry)
    batch = Batch(obs, action, last, carry, cut(log_prob), cut(value), cut(advantage), cut(target), acting, present)
    indices = gradients.minibatch_indices(key, value.size // length, config.num_epochs, config.num_minibatches)
    over = (lambda metrics: metrics["approximate_kl"] > config.target_kl) if config.target_kl else None
    params, opt_state, metrics = gradients.epochs(
        loss, parts.optimiser, state.params, state.opt_state, batch, indices, over=over
    )
    metrics["explained_variance"] = losses.explained_variance(value, target, experience.present)
    return Updated(state._replace(params=params, opt_state=opt_state), metrics, scores(value, advantage))


def _unroll(network: ActorCritic, params: PyTree, batch: Batch) -> tuple[Array, Array, Batch]:
    """Returns policies and values of a minibatch of sequences, and the minibatch, with one axis of ``L * N`` steps."""
    carry, rest = batch.carry, batch._replace(carry=())
    steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rest)
    policy, value, _ = network.unroll(params, steps.obs, carry, steps.last)
    return trees.merge((policy, value, steps), 2)
