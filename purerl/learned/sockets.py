"""Sockets: the places for a learned function, in an algorithm or on its environment's side.

The function of a socket is the algorithm's own formula changed by a small network: by a term that is added to a loss or
subtracted from an objective, or by a factor on a weight or a loss. The network's last layer is initialised to zero, so
that initially the algorithm is unchanged. `disco` and OPEN's form of `optimiser` are networks alone, which are
initialised at random (OPEN's: unless it changes Adam). A socket on the environment's side changes the environment in
place of the algorithm.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import names
from purerl.algos import ALGORITHMS, impala
from purerl.algos.algorithm import part_names
from purerl.errors import ConfigError
from purerl.formulas import losses, td_errors
from purerl.learned import ENV_SOCKET_NAMES, SOCKET_NAMES, generator, messages, open_optimiser, socket_settings
from purerl.learned import disco as disco_rules
from purerl.learned import lpg as lpg_rules
from purerl.learned.networks import mlp
from purerl.learners.families.actor_critic import Objective
from purerl.learners.parts import all_action_rules
from purerl.learners.parts.gradients import make_optimiser
from purerl.learners.parts.time_aware import Lifetime, Timed
from purerl.types import Array, Env, Key, PyTree

__all__ = [
    "Socket",
    "cheap_talk",
    "disco",
    "levels",
    "lpg",
    "make",
    "optimiser",
    "policy_drift",
    "td_loss",
    "value_loss",
    "vtrace_weight",
]

DEAD_ZONE = 1e-4
"""Outputs of a drift's network up to this magnitude are set to 0, so that every drift is flat at ratio 1."""


class Baseline(NamedTuple):
    """A hand-designed alternative that a learned function is compared with, and the float of it that is tuned.

    ``parts(value)`` are keyword arguments of ``make_trainer``. ``tuned`` names a field of the config or, if ``start``
    is given, a constant of the baseline with the default ``start``. A baseline with ``drawn`` is the socket's function
    with other meta-parameters, ``drawn(meta_params, key)``, where ``meta_params`` are the learned ones and each
    training has a key; nothing of it is tuned.
    """

    name: str
    parts: Callable[[Any], dict[str, Any]]
    tuned: str = ""
    start: float | None = None
    drawn: Callable[[PyTree, Key], PyTree] | None = None


def as_it_is(value: Any) -> dict[str, Any]:
    """Returns no keyword arguments: the ``parts`` of a `Baseline` that is the unchanged algorithm."""
    return {}


def no_parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
    """Returns no keyword arguments: the ``parts`` of a `Socket` that changes nothing in an algorithm."""
    return {}


def same_env(meta_params: PyTree, env: Env) -> Env:
    """Returns ``env`` unchanged, for a `Socket` that changes nothing in an environment."""
    return env


def no_problems(config: Any) -> list[str]:
    """Returns no problems, for a `Socket` that works with every config."""
    return []


class Socket(NamedTuple):
    """A part of an algorithm or an environment that a learned function can replace.

    Attributes:
        name: The name of the socket.
        init: ``init(key)`` makes initial meta-parameters, with which an algorithm that has a formula of its own there
            is unchanged. Consumes ``key``.
        parts: ``parts(meta_params, config)`` returns the keyword arguments of the algorithm's ``make_trainer`` that
            plug in the function.
        option: The command-line option for this part of the algorithm.
        algo: The algorithm that a search trains by default.
        baselines: Hand-designed alternatives, for reports.
        variables: The variables of a closed form; () if the socket takes none.
        closed: ``closed(function)`` returns the same as ``parts``, with a function of the variables in place of the
            network. None if the socket takes no closed form.
        problems: ``problems(config)`` returns reasons why nothing can be learned with a config, one line each.
        env: ``env(meta_params, env)`` returns the environment that agents are trained in, with the function plugged in.
        sign: 1 if the function's fitness is the return of the agents that it trains, -1 if it is minus their return.
        trial: ``trial(meta_params, env)`` returns the environment in which trained policies are played; the function's
            fitness is their mean return there, which may be another player's. None: its fitness is the return during
            their training, times ``sign``.
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
    env: Callable[[PyTree, Env], Env] = same_env
    sign: float = 1.0
    trial: Callable[[PyTree, Env], Env] | None = None


VALUE_LOSSES = {"clipped": losses.clipped_value_loss, "squared": losses.squared_value_loss}
"""The losses that a learned value loss can change."""


def value_loss(
    value_loss_base: socket_settings.ValueLossBase = "clipped", hidden_sizes: tuple[int, ...] = (64, 64)
) -> Socket:
    """Makes the socket of the critic's loss: ``base * exp(4 tanh(a)) + sqrt(1 + x^2) * b`` with ``x = value - target``.

    The loss is elementwise. ``a`` and ``b`` are outputs of a network of ``arcsinh(x)``, a signed logarithm, so that it
    resolves errors of every magnitude; the added term scales with the error. The factor on ``base`` is at least
    ``exp(-4)``, so a base that grows faster than linearly dominates for large errors, and values cannot diverge.
    PureJaxRL (walkthrough, part 4) instead replaces the whole loss by a network of ``x``.

    Args:
        value_loss_base: The name of ``base`` in `VALUE_LOSSES`.
        hidden_sizes: Widths of the network's hidden layers.
    """
    network, base = mlp(1, hidden_sizes, 2), VALUE_LOSSES[value_loss_base]

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def loss(value: Array, old_value: Array, target: Array, config: Any) -> Array:
            error = value - target
            factor, shift = network.apply(meta_params, jnp.arcsinh(error))
            factor = jnp.exp(4.0 * jnp.tanh(factor))
            return base(value, old_value, target, config) * factor + jnp.sqrt(1.0 + jnp.square(error)) * shift

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


def drift_features(log_ratio: Array, advantage: Array, *lifetime: Array) -> tuple[Array, ...]:
    """Computes the inputs of LPO's drift network, all 0 at ratio 1.

    They are the eight of Lu et al. 2022 (arXiv 2210.05639, section 4.2), followed by these times each number of the
    ``lifetime`` (Jackson et al. 2024, arXiv 2402.05828, equation 10).
    """
    away = -jnp.expm1(log_ratio)  # 1 - ratio
    alone = log_ratio, jnp.square(log_ratio), away, jnp.square(away)
    eight = *alone, *(x * advantage for x in alone)
    return *eight, *(x * number for number in lifetime for x in eight)


def clip_drift(log_ratio: Array, advantage: Array, config: Any) -> Array:
    """Computes PPO's drift: ``ratio * advantage`` minus the clipped objective, elementwise.

    Source: arXiv 2210.05639, section 3.
    """
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_epsilon, 1 + config.clip_epsilon)
    return jax.nn.relu((ratio - clipped) * advantage)


def soft_threshold(x: Array, width: float) -> Array:
    """Moves ``x`` towards 0 by ``width``; the result is 0 where ``|x| <= width``."""
    return jnp.sign(x) * jax.nn.relu(jnp.abs(x) - width)


def policy_drift(hidden_sizes: tuple[int, ...] = (128,), time_aware: bool = False) -> Socket:
    """Makes the socket of the drift that a policy objective subtracts: PPO's drift changed by a network.

    The drift ``relu(drift of PPO + soft_threshold(network))`` is subtracted from ``ratio * advantage`` and is never
    negative. The network has no biases, and its inputs (`drift_features`) are all 0 at ratio 1; so near ratio 1 its
    output lies within the dead zone, and the drift has value and slope 0. These are the conditions of mirror learning
    (arXiv 2210.05639, section 3). They hold for all meta-parameters and, if the drift is ``time_aware``, at every time
    of a training.
    """
    network = mlp(24 if time_aware else 8, hidden_sizes, 1, bias=False)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def at(lifetime: Lifetime | tuple[()]) -> Objective:
            def objective(log_ratio: Array, advantage: Array, config: Any) -> Array:
                (learned,) = network.apply(meta_params, *drift_features(log_ratio, advantage, *lifetime))
                before = clip_drift(log_ratio, advantage, config)
                change = jax.nn.relu(before + soft_threshold(learned, DEAD_ZONE)) - before
                return losses.clipped_surrogate(log_ratio, advantage, config) - change

            return objective

        return {"objective": Timed(at) if time_aware else at(())}

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
    """Returns DPO's objective with the constants ``a = scale`` and ``b = 0.3 * scale``, their published ratio."""
    constants = SimpleNamespace(drift_a=scale, drift_b=0.3 * scale)
    return {"objective": lambda log_ratio, advantage, config: losses.discovered_policy(log_ratio, advantage, constants)}


def td_loss(base: Callable[..., Any] = td_errors.huber_loss, hidden_sizes: tuple[int, ...] = (32, 32)) -> Socket:
    """Makes the socket of the loss of action values: ``base`` plus a network, both of the TD error, elementwise."""
    network = mlp(1, hidden_sizes, 1)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def loss(error: Array, config: Any) -> Array:
            (learned,) = network.apply(meta_params, error)
            return base(error, config) + learned

        return {"td_loss": loss}

    baselines = (Baseline("Huber", as_it_is, "huber_delta"),)
    return Socket("td-loss", network.init, parts, option="td_loss", algo="dqn", baselines=baselines)


def vtrace_weight(hidden_sizes: tuple[int, ...] = (32,)) -> Socket:
    """Makes the socket of IMPALA's weights: V-trace's ``rho`` and ``c``, each times a learned factor in ``[1 / e, e]``.

    The trace weight ``c`` stays clipped to ``c_bar``, so that errors do not grow as they propagate along the trace.
    """
    network = mlp(2, hidden_sizes, 2)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def weights(log_ratio: Array, config: Any) -> tuple[Array, Array]:
            rho, c = impala.vtrace_weights(log_ratio, config)
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


def lpg(**settings: Any) -> Socket:
    """Makes the socket of LPG's update rule, which replaces A2C's or is added to it.

    Args:
        settings: Fields of `lpg.LPGSettings`.

    Raises:
        ConfigError: A setting is not valid.
    """
    made = lpg_rules.read(settings)
    return Socket(
        "lpg",
        functools.partial(lpg_rules.init, made),
        lambda meta_params, config: lpg_rules.parts(meta_params, config, made),
        option="rule",
        algo="a2c",
        baselines=(Baseline("A2C", as_it_is, "value_coef"),),
        problems=functools.partial(lpg_rules.problems, made),
    )


def disco() -> Socket:
    """Makes the socket of the update rule of DiscoRL's agent, all of which is a network (`purerl.learned.disco`).

    It is initialised at random, since the agent has no rule of its own that the network could begin as.
    """

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        return {"rule": disco_rules.rule(meta_params)}

    def by_hand(bound: Any) -> dict[str, Any]:
        return {"rule": all_action_rules.clipped(bound)}

    baselines = (Baseline("clipped MPO", by_hand, "bound", start=1.0),)
    return Socket("disco", disco_rules.init, parts, option="rule", algo="disco", baselines=baselines)


def optimiser(**settings: Any) -> Socket:
    """Makes the socket of the optimiser: Adam's direction changed by a network, or OPEN's recurrent network.

    Args:
        settings: Fields of `open_optimiser.OpenSettings`. The form "adam" is `changed_direction`.

    Raises:
        ConfigError: A setting is not valid.
    """
    made = open_optimiser.read(settings)
    baselines = (Baseline("Adam", as_it_is, "learning_rate"),)
    if made.optimiser_form == "adam":
        init, parts = changed_direction()
        return Socket("optimiser", init, parts, option="optimiser", baselines=baselines)
    return Socket(
        "optimiser",
        functools.partial(open_optimiser.init, made),
        lambda meta_params, config: {"optimiser": open_optimiser.make(meta_params, config, made)},
        option="optimiser",
        baselines=baselines,
        problems=open_optimiser.problems,
    )


def changed_direction(
    hidden_sizes: tuple[int, ...] = (8,),
) -> tuple[Callable[[Key], PyTree], Callable[[PyTree, Any], dict[str, Any]]]:
    """Makes ``init`` and ``parts`` of Adam's update direction, changed elementwise to ``direction * exp(a) + b``.

    ``a`` and ``b`` are the tanh of a network's outputs. Its inputs are the direction, a running mean of it (with decay
    0.99 per step), and their product.
    """
    network = mlp(3, hidden_sizes, 2)

    def parts(meta_params: PyTree, config: Any) -> dict[str, Any]:
        def changed(direction: Array, mean: Array) -> Array:
            factor, shift = network.apply(meta_params, direction, mean, direction * mean)
            return direction * jnp.exp(jnp.tanh(factor)) + jnp.tanh(shift)

        def change(direction: PyTree, mean: PyTree, params: PyTree | None = None) -> tuple[PyTree, PyTree]:
            mean = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new, mean, direction)
            return jax.tree.map(changed, direction, mean), mean

        zeros = lambda params: jax.tree.map(jnp.zeros_like, params)
        return {"optimiser": make_optimiser(config, optax.GradientTransformation(zeros, change))}

    return network.init, parts


def cheap_talk(**settings: Any) -> Socket:
    """Makes the socket of messages that are appended to an agent's observations.

    Args:
        settings: Fields of `messages.Made`.

    Raises:
        ConfigError: A setting is not valid.
    """
    made = messages.read(settings)
    talk = messages.make(made)
    baselines = (
        Baseline("no messages", as_it_is, drawn=messages.silent),
        Baseline("random messages", as_it_is, drawn=messages.random),
    )
    sign = -1.0 if made.role == "adversary" else 1.0
    return Socket(
        "cheap-talk",
        talk.init,
        no_parts,
        option="message",
        baselines=baselines,
        env=talk.env,
        sign=sign,
        trial=talk.trial,
    )


def levels(**settings: Any) -> Socket:
    """Makes the socket of the levels that agents learn in, which a generator builds.

    A generator's fitness is the return of the agents that it trains in the environment's own levels.

    Args:
        settings: Fields of `generator.Made`.

    Raises:
        ConfigError: A setting is not valid.
    """
    made = generator.make(generator.read(settings))
    baselines = (
        Baseline("uniform choices", as_it_is, drawn=messages.silent),
        Baseline("a random generator", as_it_is, drawn=messages.random),
    )
    own = lambda meta_params, env: env
    return Socket("levels", made.init, no_parts, option="generator", baselines=baselines, env=made.env, trial=own)


SOCKETS: dict[str, Callable[..., Socket]] = dict(
    zip(
        SOCKET_NAMES,
        (value_loss, policy_drift, td_loss, vtrace_weight, lpg, disco, optimiser, cheap_talk, levels),
        strict=True,
    )
)
"""The function that makes each socket, by name. An algorithm declares which sockets it has (`Algorithm.sockets`),
except for those on the environment's side."""
SETTINGS: dict[str, type] = {
    "value-loss": socket_settings.ValueLossSettings,
    "policy-drift": socket_settings.TimeAware,
    "lpg": lpg_rules.LPGSettings,
    "optimiser": open_optimiser.OpenSettings,
    "cheap-talk": messages.MessageSettings,
    "levels": generator.GeneratorSettings,
}
"""The class of a socket's settings that a user can choose, by the socket's name."""
SIZED = {
    "value-loss": socket_settings.SizedValueLossSettings,
    "policy-drift": socket_settings.AwareLayers,
    "td-loss": socket_settings.Layers,
}
"""Sockets whose artefacts may have ``hidden_sizes`` as settings, for a network of other widths than the default."""


def settings(name: str, options: Any, env: Env) -> dict[str, Any]:
    """Returns the arguments of `make` for the socket ``name``, as JSON.

    They are the socket's settings among ``options`` and what it must know of ``env``.

    Raises:
        ConfigError: A setting is not valid, or does not fit ``env``.
    """
    of_name = {
        "lpg": lpg_rules.choose,
        "optimiser": open_optimiser.choose,
        "cheap-talk": messages.settings,
        "levels": generator.settings,
    }
    if name in of_name:
        return of_name[name](options, env)
    return socket_settings.changed(SETTINGS[name], options) if name in SETTINGS else {}


def places(algo: str) -> tuple[str, ...]:
    """Returns the names of the sockets that an algorithm has, its own and those on its environment's side."""
    return *ALGORITHMS[algo].sockets, *ENV_SOCKET_NAMES


def fits(name: str, algo: str) -> bool:
    """Returns whether an algorithm has the socket ``name``; one of a user's own if it has the socket's part."""
    if ":" not in name:
        return name in places(algo)
    option, parts = make(name).option, part_names(ALGORITHMS[algo].own_learner)
    return not option or parts is None or option in parts


def algorithms(name: str) -> list[str]:
    """Returns the names of the algorithms that have the socket ``name``, the default of a search first.

    Raises:
        ConfigError: None has.
    """
    socket = make(name)
    fitting = [algo for algo in dict.fromkeys([socket.algo, *ALGORITHMS]) if fits(name, algo)]
    if not fitting:
        raise ConfigError(f"socket = {name!r}: has the option {socket.option!r}, which is a part of no algorithm")
    return fitting


def make(name: str, **options: Any) -> Socket:
    """Makes the socket ``name``; ``options`` are arguments of its function.

    A socket of a user's own is MODULE:NAME: a `Socket`, or a function without arguments that returns one. If it has no
    baselines, its function is compared with that at which it begins.

    Raises:
        ConfigError: It is unknown, or cannot be made.
    """
    if ":" in name:
        return _own(name)
    if name not in SOCKETS:
        raise ConfigError(f"socket = {name!r}: unknown; must be one of {', '.join(SOCKETS)}")
    return SOCKETS[name](**options)


def _own(name: str) -> Socket:
    """Imports the socket that ``name`` names, and checks what it has."""
    value = names.imported("socket", name)
    made = value if isinstance(value, Socket) or not callable(value) else names.called("socket", name, value)
    if not isinstance(made, Socket):
        must = "must be a purerl.learned.sockets.Socket, or a function without arguments that returns one"
        raise ConfigError(f"socket = {name!r}: is {type(made).__name__}; {must}")
    if not made.option and made.env is same_env:
        raise ConfigError(f"socket = {name!r}: changes nothing; must have the option of a part, or an env")
    like = names.called("socket", name, jax.eval_shape, made.init, jax.random.key(0))
    if wrong := sorted({str(x.dtype) for x in jax.tree.leaves(like) if x.dtype != jnp.float32}):
        raise ConfigError(f"socket = {name!r}: init must return arrays of float32; some are {', '.join(wrong)}")
    start = Baseline("initial function", as_it_is, drawn=lambda meta_params, key: made.init(key))
    return made._replace(name=name, baselines=made.baselines or (start,))
