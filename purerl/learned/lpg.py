"""LPG: an update rule that decides what an agent predicts and how it learns from that.

Source: Oh et al. 2020, "Discovering reinforcement learning algorithms", arXiv 2007.08794.

Beside its policy an agent predicts ``y``, a categorical distribution without a fixed meaning. A recurrent network reads
a trajectory backwards. Its outputs are ``pi_hat``, how much more likely each action is to become, and ``y_hat``, the
target of ``y`` (section 3.1). It may see how far the agent's training has progressed, as TA-LPG does (Jackson et al.
2024, arXiv 2402.05828, section 4.1).
"""

import dataclasses
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl.errors import ConfigError
from purerl.formulas import losses, returns
from purerl.formulas.returns import Columns, Estimate
from purerl.learned import socket_settings
from purerl.learned.socket_settings import MOST, Size
from purerl.learners.parts import time_aware
from purerl.learners.parts.time_aware import Lifetime
from purerl.types import Array, Env, Key, PyTree

EMBEDDING = 16
"""Units of the hidden layer that maps a prediction to one number."""


@dataclasses.dataclass(frozen=True)
class LPGSettings(socket_settings.TimeAware):
    """What updates an agent."""

    lpg_base: Literal["a2c", "none"] = "a2c"
    """What the rule changes. a2c: A2C's advantages and additional predictions; the critic still learns values. none: as
    published, the rule alone gives all targets."""
    lpg_size: Size = 32
    """Units of the recurrent network over a trajectory; 256 as published. The rule has about 3 * lpg_size ** 2
    meta-parameters; with more of them a search is noisier."""
    lpg_predictions: Annotated[int, cfg.Range(2, MOST, open_high=False)] = 8
    """Number of categories of the prediction: 30 as published, 8 in GROOVE. Each adds an output to the agent and to the
    rule."""


class Reader(nn.Module):
    """A GRU that reads a trajectory from its last row ``[F]`` to the first, reset where an episode ended.

    A rectifier and a linear layer follow; the latter is initialised to zero if ``still``.

    Attributes:
        size: Units of the GRU.
        num_predictions: ``K``, the categories of a prediction.
        still: Whether the last layer is initialised to zero.
    """

    size: int
    num_predictions: int
    still: bool

    @nn.compact
    def __call__(self, rows: Array, y: Array, next_y: Array, ended: Array, last: Array) -> Array:
        """Maps a trajectory to ``pi_hat`` and the numbers from which the caller makes ``y_hat``, ``[T, 1 + K]``.

        Args:
            rows: ``[T, F]``, other inputs of each step.
            y: ``[T, K]``, logits of the predictions.
            next_y: ``[T, K]``, logits of the predictions at the next observations; not seen where ``ended``.
            ended: ``[T]``, whether the process ended.
            last: ``[T]``, whether the episode ended.
        """
        hidden, number = nn.Dense(EMBEDDING, name="embedding"), nn.Dense(1, name="number")
        embed = lambda y: number(nn.relu(hidden(nn.softmax(y))))

        def step(cell: nn.GRUCell, carry: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            x, stops = row
            return cell(jnp.where(stops, 0.0, carry), x)

        rows = jnp.concatenate([rows, embed(y), jnp.where(ended[:, None], 0.0, embed(next_y))], axis=1)
        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, reverse=True)
        _, memory = scan(nn.GRUCell(self.size, name="gru"), jnp.zeros(self.size), (rows, last))
        kernel = nn.initializers.zeros if self.still else nn.linear.default_kernel_init
        return nn.Dense(1 + self.num_predictions, kernel_init=kernel, name="out")(nn.relu(memory))


def read(fields: dict[str, Any]) -> LPGSettings:
    """Reads settings from JSON. Raises `ConfigError`, a line for each that is not valid."""
    return socket_settings.read(LPGSettings, "lpg", "", fields)


def choose(options: Any, env: Env) -> dict[str, Any]:
    """Returns the settings among ``options`` as JSON."""
    return socket_settings.as_json(socket_settings.among(LPGSettings, options))


def problems(made: LPGSettings, config: Any) -> list[str]:
    """Lists why agents of ``config`` cannot be updated by the rule."""
    if made.lpg_base == "none" and config.scores_by_returns:
        return ["lpg_base = 'none': there are no values that level_score = 'max-mc' could compare returns with"]
    return []


def make_reader(made: LPGSettings) -> Reader:
    """Makes the network that reads trajectories."""
    return Reader(made.lpg_size, made.lpg_predictions, made.lpg_base == "a2c")


def init(made: LPGSettings, key: Key) -> PyTree:
    """Makes meta-parameters; with A2C as base the last layer is zero, so that A2C is unchanged. Consumes ``key``."""
    y, steps = jnp.zeros((1, made.lpg_predictions)), jnp.zeros(1, bool)
    return make_reader(made).init(key, jnp.zeros((1, 5 if made.time_aware else 3)), y, y, steps, steps)


def parts(meta_params: PyTree, config: Any, made: LPGSettings) -> dict[str, Any]:
    """Makes LPG's arguments of A2C's ``make_trainer``: an estimate, a value loss and the number of predictions.

    The config's ``value_coef`` weighs the value loss, so it is the paper's ``alpha_y``.

    Raises:
        ConfigError: `problems` lists some.
    """
    if lines := problems(made, config):
        raise ConfigError("\n".join(lines))
    reader = make_reader(made)

    def rule(columns: Columns, *lifetime: Array) -> tuple[Array, Array]:
        """Returns ``pi_hat`` ``[T]`` and outputs for ``y_hat`` ``[T, K]``, by columns whose values are predictions."""
        conditions = [jnp.full_like(columns.reward, x) for x in lifetime]
        rows = jnp.stack([columns.reward, columns.discount, jnp.exp(columns.log_prob), *conditions], axis=1)
        ended = columns.discount == 0
        out: Any = reader.apply(meta_params, rows, columns.value, columns.next_value, ended, columns.last)
        return out[:, 0], out[:, 1:]

    made_of, loss = (beside_a2c, value_and_divergence) if made.lpg_base == "a2c" else (alone, divergence)

    def at(lifetime: Lifetime | tuple[()]) -> Estimate:
        return made_of(lambda columns: rule(columns, *lifetime), config)

    return {
        "estimate": time_aware.Timed(at) if made.time_aware else at(()),
        "value_loss": loss,
        "num_predictions": made.lpg_predictions + (made.lpg_base == "a2c"),
    }


def alone(rule: Estimate, config: Any) -> Estimate:
    """Makes the estimate of LPG as published: the critic predicts ``y``."""
    return rule


def beside_a2c(rule: Estimate, config: Any) -> Estimate:
    """Makes an estimate for a critic that predicts A2C's value and, after it, ``y``.

    The rule's outputs are added to A2C's advantage and to the logits of ``y``; zeros change nothing.
    """
    by_gae = returns.by_gae(config.gae_lambda)

    def estimate(columns: Columns) -> tuple[Array, Array]:
        value, next_value = columns.value[:, 0], columns.next_value[:, 0]
        y, next_y = columns.value[:, 1:], columns.next_value[:, 1:]
        advantage, target = by_gae(columns._replace(value=value, next_value=next_value))
        more, change = rule(columns._replace(value=y, next_value=next_y))
        return advantage + more, jnp.concatenate([target[:, None], y + change], axis=1)

    return estimate


def divergence(y: Array, old_y: Array, target: Array, config: Any) -> Array:
    """Computes ``KL(y || y_hat)`` of distributions with the logits ``y`` and ``target``, ``[..., K] -> [...]`` (eq. 2).

    Its gradient by ``y`` is exactly 0 where both are equal: since probabilities add up to 1, only the difference of the
    logits contributes. ``old_y`` and ``config`` are not used.
    """
    away = jax.lax.stop_gradient(y - target)
    norms = jax.nn.logsumexp(target, axis=-1) - jax.nn.logsumexp(y, axis=-1)
    return jnp.sum(jax.nn.softmax(y) * away, axis=-1) + jax.lax.stop_gradient(norms)


def value_and_divergence(value: Array, old_value: Array, target: Array, config: Any) -> Array:
    """Adds A2C's loss of the first prediction and the `divergence` of the others, ``[..., 1 + K] -> [...]``."""
    first = losses.squared_value_loss(value[..., 0], old_value[..., 0], target[..., 0], config)
    return first + divergence(value[..., 1:], old_value[..., 1:], target[..., 1:], config)
