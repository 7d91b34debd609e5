"""Sockets: places in an algorithm for a learned function. Each has a small network that begins as the algorithm itself.

Hidden layers begin at random and the last layer at zero, so that what is learned is a change of what was there: added
to a loss, taken from an objective, a factor of a weight or of a loss. Networks see arrays, never parameters or other
networks.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.algos import ALGORITHMS
from purerl.algos.dqn import huber_loss
from purerl.errors import ConfigError
from purerl.formulas import losses
from purerl.learned import rules
from purerl.learned.networks import mlp
from purerl.learners import estimates
from purerl.learners.settings import make_optimiser
from purerl.types import Array, Key, PyTree

DEAD_ZONE = 1e-4
"""How far a learned drift must rise before it counts: it makes every drift flat at ratio 1."""


class Baseline(NamedTuple):
    """What a learned function replaces: ``parts(value)`` for ``make_trainer``, and the float that is tuned, a field of
    the config, or a constant of its own that begins at ``start``."""

    name: str
    parts: Callable[[Any], dict[str, Any]]
    tuned: str
    start: float | None = None


def as_it_is(value: Any) -> dict[str, Any]:
    """The parts of a `Baseline` that is the algorithm itself."""
    return {}


def no_problems(config: Any) -> list[str]:
    """Nothing in a config speaks against learning."""
    return []


class Socket(NamedTuple):
    """A learned function of an algorithm.

    ``init(key)`` makes meta-parameters with which nothing changes; ``parts(meta_params, config)`` are the keyword
    arguments of the algorithm's ``make_trainer`` with the learned function in its place. ``option`` names that place on
    the command line, ``algo`` the algorithm that a search trains unless told otherwise. ``variables`` are those of a
    closed form, ``closed(function)`` the parts with a function of them in place of the network; () and None where there
    is none. ``problems(config)`` says why nothing could be learned with a config, a line each.
    """

    name: str
    init: Callable[[Key], PyTree]
    parts: Callable[[PyTree, Any], dict[str, Any]]
    option: str = ""
    algo: str = "ppo"
    baselines: tuple[Baseline, ...] = ()
    variables: tuple[str, ...] = ()
    closed: Callable[[Callable[..., Array]], dict[str, Any]] | None = None
    problems: Callable[[Any], list[str]] = no_problems


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

    def closed(function: Callable[..., Array]) -> dict[str, Any]:
        return {"value_loss": lambda value, old_value, target, config: function(error=value - target)}

    return Socket(
        "value-loss",
        network.init,
        parts,
        option="value_loss",
        baselines=(
            Baseline("L2", lambda value: {"value_loss": losses.squared_value_loss}, "value_coef"),
            Baseline("clipped L2", as_it_is, "value_coef"),
        ),
        variables=("error",),
        closed=closed,
    )


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

    def closed(function: Callable[..., Array]) -> dict[str, Any]:
        def objective(log_ratio: Array, advantage: Array, config: Any) -> Array:
            return jnp.exp(log_ratio) * advantage - function(log_ratio=log_ratio, advantage=advantage)

        return {"objective": objective}

    return Socket(
        "policy-drift",
        network.init,
        parts,
        option="objective",
        baselines=(Baseline("PPO's clip", as_it_is, "clip_epsilon"), Baseline("DPO", _dpo, "drift_a", start=2.0)),
        variables=("log_ratio", "advantage"),
        closed=closed,
    )


def _dpo(scale: Any) -> dict[str, Any]:
    """DPO with both constants in their published proportion, ``scale`` being a."""
    constants = SimpleNamespace(drift_a=scale, drift_b=0.3 * scale)
    return {"objective": lambda log_ratio, advantage, config: losses.discovered_policy(log_ratio, advantage, constants)}


def td_loss(base: Callable = huber_loss, hidden_sizes: tuple[int, ...] = (32, 32)) -> Socket:
    """What DQN and Ape-X minimise of a temporal-difference error: ``base`` plus a network of the error."""
    network = mlp(1, hidden_sizes, 1)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def loss(error: Array, config: Any) -> Array:
            (learned,) = network.apply(meta_params, error)
            return base(error, config) + learned

        return {"td_loss": loss}

    baselines = (Baseline("Huber", as_it_is, "huber_delta"),)
    return Socket("td-loss", network.init, parts, option="td_loss", algo="dqn", baselines=baselines)


def vtrace_weight(hidden_sizes: tuple[int, ...] = (32,)) -> Socket:
    """IMPALA's weights: V-trace's ``rho`` times a factor within ``[1 / e, e]``, and its ``c`` times one within
    ``[1 / e, e]`` but never above ``c_bar``, so that errors which are passed on do not grow."""
    network = mlp(2, hidden_sizes, 2)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def weights(log_ratio: Array, config: Any) -> tuple[Array, Array]:
            rho, c = estimates.vtrace_weights(log_ratio, config)
            change = network.apply(meta_params, log_ratio, jnp.expm1(jnp.clip(log_ratio, -5.0, 5.0)))
            factors = [jnp.exp(jnp.tanh(x)) for x in change]
            return rho * factors[0], jnp.minimum(config.c_bar, c * factors[1])

        return {"weights": weights}

    def problems(config: Any) -> list[str]:
        if config.lag and config.corrected:
            return []
        return ["vtrace-weight: there is nothing to correct; give --lag and --max-lag, and leave --corrected on"]

    return Socket(
        "vtrace-weight",
        network.init,
        parts,
        option="weights",
        algo="impala",
        baselines=(Baseline("V-trace", as_it_is, "rho_bar"),),
        problems=problems,
    )


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

    baselines = (Baseline("A2C", as_it_is, "value_coef"),)
    return Socket("rule", made.init, parts, option="rule", algo="a2c", baselines=baselines)


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

        return {"optimiser": make_optimiser(config, optax.GradientTransformation(jnp.zeros_like, change))}

    baselines = (Baseline("Adam", as_it_is, "learning_rate"),)
    return Socket("optimiser", network.init, parts, option="optimiser", baselines=baselines)


SOCKETS: dict[str, Callable[..., Socket]] = {
    "value-loss": value_loss,
    "policy-drift": policy_drift,
    "td-loss": td_loss,
    "vtrace-weight": vtrace_weight,
    "rule": rule,
    "optimiser": optimiser,
}
"""What makes each socket, by name. An algorithm declares which of them it has (`Algorithm.sockets`)."""


def algorithms(name: str) -> list[str]:
    """The algorithms that have the socket ``name``, the one that a search trains by default first."""
    default = make(name).algo
    return [default, *(algo for algo in ALGORITHMS if algo != default and name in ALGORITHMS[algo].sockets)]


def make(name: str, **options: Any) -> Socket:
    """The socket called ``name``; ``options`` are those of its function above. Raises `ConfigError`."""
    if name not in SOCKETS:
        raise ConfigError(f"socket = {name!r}: unknown; must be one of {', '.join(SOCKETS)}")
    return SOCKETS[name](**options)
