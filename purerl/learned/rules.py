"""Update rules: what a critic predicts, and how the policy and the predictions are updated from a trajectory.

A2C is one. A learned rule is similar to LPG (Oh et al. 2020, arXiv 2007.08794): a recurrent network reads a trajectory
backwards and outputs the advantage of each action and the target of each prediction.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from purerl.learners.parts import estimates
from purerl.learners.parts.estimates import Columns, Estimate
from purerl.types import Array, Key, PyTree


class Rule(NamedTuple):
    """An update rule for a critic with ``K = num_predictions`` outputs.

    ``init(key)`` makes meta-parameters and consumes its key; ``estimate(meta_params, config)`` is an `Estimate` of
    advantages ``[T]`` and targets ``[T, K]``; ``value_loss(value, old_value, target, config)`` moves predictions
    ``[..., K]`` towards targets.
    """

    num_predictions: int
    init: Callable[[Key], PyTree]
    estimate: Callable[[PyTree, Any], Estimate]
    value_loss: Callable[[Array, Array, Array, Any], Array]


def squared(value: Array, old_value: Array, target: Array, config: Any) -> Array:
    """Half the squared distance between ``value`` and ``target``, summed over predictions. ``[..., K] -> [...]``.

    ``old_value`` and ``config`` are not used.
    """
    return 0.5 * jnp.sum(jnp.square(value - target), axis=-1)


def actor_critic(num_predictions: int) -> Rule:
    """A2C as a rule: the first prediction is the value, with A2C's target; every other prediction is its own target."""

    def estimate(meta_params: PyTree, config: Any) -> Estimate:
        by_gae = estimates.by_gae(config.gae_lambda)

        def rule(columns: Columns) -> tuple[Array, Array]:
            advantage, target = by_gae(columns._replace(value=columns.value[:, 0], next_value=columns.next_value[:, 0]))
            return advantage, columns.value.at[:, 0].set(target)

        return rule

    return Rule(num_predictions, lambda key: (), estimate, squared)


class Reader(nn.Module):
    """A GRU of ``size`` units over rows ``[T, F]``, from the last to the first, and a zero-initialised linear layer.

    Returns ``[T, num_outputs]``. The GRU's state is reset at every step whose ``last`` ``[T]`` is true, so that nothing
    flows back from a later episode.
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
    """A2C with learned changes by a network that reads the trajectory backwards. Initially it equals A2C.

    The inputs of a step are reward, discount, ``last``, the probability of the action, A2C's advantage, and the
    predictions for its observation and its next observation. The outputs are added to A2C's advantage and, through a
    tanh, to its targets. Predictions other than the first have no fixed meaning: the rule determines it.
    """
    base, reader = actor_critic(num_predictions), Reader(hidden_size, 1 + num_predictions)

    def init(key: Key) -> PyTree:
        return reader.init(key, jnp.zeros((1, 5 + 2 * num_predictions)), jnp.zeros(1, bool))

    def estimate(meta_params: PyTree, config: Any) -> Estimate:
        def rule(columns: Columns) -> tuple[Array, Array]:
            advantage, target = base.estimate((), config)(columns)
            scalars = (
                columns.reward,
                columns.discount,
                columns.last.astype(jnp.float32),
                jnp.exp(columns.log_prob),
                advantage,
            )
            rows = jnp.concatenate([jnp.stack(scalars, axis=1), columns.value, columns.next_value], axis=1)
            change: Any = reader.apply(meta_params, rows, columns.last)
            return advantage + change[:, 0], target + jnp.tanh(change[:, 1:])

        return rule

    return Rule(num_predictions, init, estimate, squared)
