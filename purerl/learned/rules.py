"""Rules: what a critic predicts, and how policy and predictions are moved by a trajectory.

A2C is one. A learned one is like LPG (Oh et al. 2020, arXiv 2007.08794): it reads a trajectory backwards and says how
much more likely each action is to become, and where each prediction is to go.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from purerl.learners import estimates
from purerl.learners.estimates import Columns, Estimate
from purerl.types import Array, Key, PyTree


class Rule(NamedTuple):
    """``estimate(meta_params, config)`` is an `Estimate` for ``num_predictions``, which ``value_loss`` moves."""

    num_predictions: int
    init: Callable[[Key], PyTree]
    estimate: Callable[[PyTree, Any], Estimate]
    value_loss: Callable[[Array, Array, Array, Any], Array]


def squared(value: Array, old_value: Array, target: Array, config: Any) -> Array:
    """Half the squared distance from the target, summed over predictions. ``[..., K] -> [...]``."""
    return 0.5 * jnp.sum(jnp.square(value - target), axis=-1)


def actor_critic(num_predictions: int) -> Rule:
    """A2C as a rule: the first prediction is the value, learned as ever; the others stay where they are."""

    def estimate(meta_params: PyTree, config: Any) -> Estimate:
        by_gae = estimates.by_gae(config.gae_lambda)

        def rule(seen: Columns) -> tuple[Array, Array]:
            advantage, target = by_gae(seen._replace(value=seen.value[:, 0], next_value=seen.next_value[:, 0]))
            return advantage, seen.value.at[:, 0].set(target)

        return rule

    return Rule(num_predictions, lambda key: (), estimate, squared)


class Reader(nn.Module):
    """A gated recurrent unit over rows ``[T, F]``, from the last to the first, and a linear layer that begins as zero.

    ``[T, num_outputs]``. It forgets what lies behind a step whose ``last`` is true.
    """

    size: int
    num_outputs: int

    @nn.compact
    def __call__(self, rows: Array, last: Array) -> Array:
        def step(cell: nn.GRUCell, carry: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            x, ended = row
            return cell(jnp.where(ended, 0.0, carry), x)

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, reverse=True)
        _, hidden = scan(nn.GRUCell(self.size), jnp.zeros(self.size), (rows, last))
        return nn.Dense(self.num_outputs, kernel_init=nn.initializers.zeros)(hidden)


def learned(hidden_size: int, num_predictions: int = 8) -> Rule:
    """A2C changed by a network that reads the trajectory backwards; at first it changes nothing.

    It sees each step's reward, discount, end, probability of the action, predictions before and after, and what A2C
    would do. It adds to the advantage, and to the target of each prediction at most 1 in either direction. Predictions
    beyond the first mean what the rule makes them mean.
    """
    base, reader = actor_critic(num_predictions), Reader(hidden_size, 1 + num_predictions)

    def init(key: Key) -> PyTree:
        return reader.init(key, jnp.zeros((1, 5 + 2 * num_predictions)), jnp.zeros(1, bool))

    def estimate(meta_params: PyTree, config: Any) -> Estimate:
        def rule(seen: Columns) -> tuple[Array, Array]:
            advantage, target = base.estimate((), config)(seen)
            scalars = seen.reward, seen.discount, seen.last.astype(jnp.float32), jnp.exp(seen.log_prob), advantage
            rows = jnp.concatenate([jnp.stack(scalars, axis=1), seen.value, seen.next_value], axis=1)
            change = reader.apply(meta_params, rows, seen.last)
            return advantage + change[:, 0], target + jnp.tanh(change[:, 1:])

        return rule

    return Rule(num_predictions, init, estimate, squared)
