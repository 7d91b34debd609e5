"""Functions that somebody wrote: what is wrong with one is told in a line, before anything is trained."""

import jax.numpy as jnp
import optax
import pytest

from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.learned import sockets, written


def direction(change):
    return lambda config: optax.stateless(lambda grads, params: {name: change(x) for name, x in grads.items()})


GOOD = {
    "value-loss": lambda value, old_value, target, config: jnp.square(value - target),
    "policy-drift": lambda log_ratio, advantage, config: jnp.expm1(log_ratio) * advantage,
    "td-loss": lambda error, config: jnp.square(error),
    "vtrace-weight": lambda log_ratio, config: [jnp.minimum(jnp.exp(log_ratio), bar) for bar in (2.0, 1.0)],
    "optimiser": lambda config: optax.sgd(config.learning_rate),
}


def checked(socket, function):
    """Returns the part of the algorithm that a function becomes after its check."""
    config, result = ALGORITHMS[sockets.make(socket).algo].Config(), written.Written(socket, "m:f", function)
    written.check(result, config)
    ((option, part),) = result.parts(config).items()
    assert option == sockets.make(socket).option
    return part


@pytest.mark.parametrize("socket", GOOD)
def test_what_fits_is_let_pass(socket):
    part = checked(socket, GOOD[socket])
    assert isinstance(part, optax.GradientTransformation) if socket == "optimiser" else part is GOOD[socket]


@pytest.mark.parametrize(
    ("socket", "function", "line"),
    [
        (
            "value-loss",
            lambda value: value,
            "'m:f': must be a function .* takes 1 positional argument but 4",
        ),
        ("value-loss", lambda value, old, target, config: jnp.nope, "AttributeError: .*test_written.py:[0-9]+"),
        ("value-loss", lambda value, old, target, config: jnp.mean(value), r"it returns float32\[\]$"),
        ("value-loss", lambda value, old, target, config: None, "it returns NoneType$"),
        ("td-loss", lambda error, config: error > 0, r"it returns bool\[7\]$"),
        ("td-loss", lambda error, config: jnp.log(error), "td-loss = 'm:f': its value is nan at error = -3"),
        ("td-loss", lambda error, config: jnp.sqrt(jnp.square(error)), "its slope by error is nan at error = 0"),
        ("policy-drift", lambda log_ratio, advantage, config: advantage / log_ratio, "inf at log_ratio = 0, advantage"),
        ("vtrace-weight", lambda log_ratio, config: log_ratio, r"it returns float32\[7\]$"),
        ("vtrace-weight", lambda x, config: (x, jnp.log(x)), "its second value is nan at log_ratio = -3"),
        ("optimiser", lambda config: 3, "returns int, must return an optax.GradientTransformation"),
        ("optimiser", direction(jnp.sum), "its updates must have the shapes and types of the parameters"),
        ("optimiser", direction(lambda x: x / jnp.abs(x)), "its update by gradients of 0 is not finite"),
    ],
)
def test_what_does_not_fit_is_told(socket, function, line):
    with pytest.raises(ConfigError, match=line):
        checked(socket, function)


def test_what_is_no_function():
    with pytest.raises(ConfigError, match="socket = 'levels': does not take a function of your own"):
        written.load("levels", "math:sin")
    with pytest.raises(ConfigError, match="td-loss = 'math:pi': is float"):
        written.load("td-loss", "math:pi")
