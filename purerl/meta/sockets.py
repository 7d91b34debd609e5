"""Sockets: places in an algorithm for a learned function. Each has a small network that begins as the algorithm itself.

Hidden layers begin at random and the last layer at zero, so that what is learned is a change of what was there: added
to a loss, taken from an objective, a factor of a weight or of a loss. Networks see arrays, never parameters or other
networks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import action_values, losses, policy_gradients
from purerl.algos import a2c, apex, appo, dpo, dqn, impala, ppo, reinforce
from purerl.config import ConfigError
from purerl.meta import rules
from purerl.meta.networks import mlp
from purerl.types import Array, Key, PyTree

DEAD_ZONE = 1e-4
"""How far a learned drift must rise before it counts: it makes every drift flat at ratio 1."""


class Socket(NamedTuple):
    """A learned function of an algorithm.

    ``init(key)`` makes meta-parameters with which nothing changes; ``parts(meta_params, config)`` are the keyword
    arguments of the algorithm's ``make_trainer`` with the learned function in its place.
    """

    name: str
    init: Callable[[Key], PyTree]
    parts: Callable[[PyTree, Any], dict[str, Any]]


def value_loss(base: Callable = losses.clipped_value_loss, hidden_sizes: tuple[int, ...] = (64, 64)) -> Socket:
    """A distance of values from their targets: ``base * exp(4 tanh(a)) + sqrt(1 + x^2) * b``.

    ``x = value - target``, and ``a`` and ``b`` are a network's of ``arcsinh(x)``, a logarithm with both signs: errors
    of every size look alike to it, and what it adds grows as they do. The factor of ``base`` never vanishes, so far
    away a base that grows faster has the last word and no value runs off to infinity. Elementwise. PureJaxRL's
    (walkthrough, part 4) is a network of ``x`` alone in place of the base.
    """
    network = mlp(1, hidden_sizes, 2)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def loss(value: Array, old_value: Array, target: Array, config: Any) -> Array:
            error = value - target
            factor, more = network.apply(meta_params, jnp.arcsinh(error))
            factor = jnp.exp(4.0 * jnp.tanh(factor))
            return base(value, old_value, target, config) * factor + jnp.sqrt(1.0 + jnp.square(error)) * more

        return {"value_loss": loss}

    return Socket("value-loss", network.init, parts)


def drift_features(log_ratio: Array, advantage: Array) -> tuple[Array, ...]:
    """LPO's eight inputs, all 0 at ratio 1 (Lu et al. 2022, arXiv 2210.05639, section 4.2)."""
    away = -jnp.expm1(log_ratio)  # 1 - ratio
    alone = log_ratio, jnp.square(log_ratio), away, jnp.square(away)
    return *alone, *(x * advantage for x in alone)


def clip_drift(log_ratio: Array, advantage: Array, config: Any) -> Array:
    """PPO's drift, what its clipped objective lacks of ``ratio * advantage`` (arXiv 2210.05639, section 3)."""
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_epsilon, 1 + config.clip_epsilon)
    return jax.nn.relu((ratio - clipped) * advantage)


def soft_threshold(x: Array, width: float) -> Array:
    """``x`` moved towards 0 by ``width``, and 0 where it is nearer."""
    return jnp.sign(x) * jax.nn.relu(jnp.abs(x) - width)


def policy_drift(hidden_sizes: tuple[int, ...] = (128,)) -> Socket:
    """What an objective takes from ``ratio * advantage``: PPO's drift, changed by a network, as LPO's is.

    ``relu(drift of PPO + network)`` is never negative. The network has no biases and all its inputs are 0 at ratio 1,
    so there it is 0 and within the dead zone around it: the drift is flat at ratio 1. These are the conditions of
    mirror learning (arXiv 2210.05639, section 3), which hold whatever the meta-parameters are.
    """
    network = mlp(8, hidden_sizes, 1, bias=False)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def objective(log_ratio: Array, advantage: Array, config: Any) -> Array:
            (learned,) = network.apply(meta_params, *drift_features(log_ratio, advantage))
            before = clip_drift(log_ratio, advantage, config)
            change = jax.nn.relu(before + soft_threshold(learned, DEAD_ZONE)) - before
            return losses.clipped_surrogate(log_ratio, advantage, config) - change

        return {"objective": objective}

    return Socket("policy-drift", network.init, parts)


def td_loss(base: Callable = dqn.huber_loss, hidden_sizes: tuple[int, ...] = (32, 32)) -> Socket:
    """What DQN and Ape-X minimise of a temporal-difference error: ``base`` plus a network of the error."""
    network = mlp(1, hidden_sizes, 1)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def loss(error: Array, config: Any) -> Array:
            (learned,) = network.apply(meta_params, error)
            return base(error, config) + learned

        return {"td_loss": loss}

    return Socket("td-loss", network.init, parts)


def vtrace_weight(hidden_sizes: tuple[int, ...] = (32,)) -> Socket:
    """IMPALA's weights: V-trace's ``rho`` times a factor within ``[1 / e, e]``, and its ``c`` times one within
    ``[1 / e, e]`` but never above ``c_bar``, so that errors which are passed on do not grow."""
    network = mlp(2, hidden_sizes, 2)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def weights(log_ratio: Array, config: Any) -> tuple[Array, Array]:
            rho, c = policy_gradients.vtrace_weights(log_ratio, config)
            change = network.apply(meta_params, log_ratio, jnp.expm1(jnp.clip(log_ratio, -5.0, 5.0)))
            factors = [jnp.exp(jnp.tanh(x)) for x in change]
            return rho * factors[0], jnp.minimum(config.c_bar, c * factors[1])

        return {"weights": weights}

    return Socket("vtrace-weight", network.init, parts)


def rule(made: rules.Rule | None = None) -> Socket:
    """What A2C's critic predicts and how a trajectory moves it and the policy: a `rules.Rule`, by default a learned
    one."""
    made = made or rules.learned(hidden_size=16)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        return {
            "estimate": made.estimate(meta_params, config),
            "value_loss": made.value_loss,
            "num_predictions": made.num_predictions,
        }

    return Socket("rule", made.init, parts)


def optimiser(hidden_sizes: tuple[int, ...] = (8,)) -> Socket:
    """Adam's direction, changed for each parameter by a network of it, of its running mean, and of their product.

    ``direction * exp(a) + b``, where ``a`` and ``b`` are tanh of the network's outputs. The mean forgets 1 % a step.
    """
    network = mlp(3, hidden_sizes, 2)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def change(direction: Array, mean: Array, params: Array | None = None) -> tuple[Array, Array]:
            mean = 0.99 * mean + 0.01 * direction
            factor, shift = network.apply(meta_params, direction, mean, direction * mean)
            return direction * jnp.exp(jnp.tanh(factor)) + jnp.tanh(shift), mean

        family = action_values if isinstance(config, action_values.Config) else policy_gradients
        return {"optimiser": family.make_optimiser(config, optax.GradientTransformation(jnp.zeros_like, change))}

    return Socket("optimiser", network.init, parts)


SOCKETS: dict[str, tuple[Callable[..., Socket], tuple[Any, ...]]] = {
    "value-loss": (value_loss, (ppo, dpo, appo)),
    "policy-drift": (policy_drift, (ppo, appo)),
    "td-loss": (td_loss, (dqn, apex)),
    "vtrace-weight": (vtrace_weight, (impala,)),
    "rule": (rule, (a2c,)),
    "optimiser": (optimiser, (ppo, dpo, appo, a2c, reinforce, impala, dqn, apex)),
}
"""Sockets by name, with the algorithms that have them."""
OPTIONS = {
    "value-loss": "value_loss",
    "policy-drift": "objective",
    "td-loss": "td_loss",
    "vtrace-weight": "weights",
    "rule": "rule",
    "optimiser": "optimiser",
}
"""What each takes the place of, as the command line names it."""


def make(name: str, **options: Any) -> Socket:
    """The socket called ``name``; ``options`` are those of its function above. Raises `ConfigError`."""
    if name not in SOCKETS:
        raise ConfigError(f"socket = {name!r}: unknown; must be one of {', '.join(SOCKETS)}")
    return SOCKETS[name][0](**options)
