"""Sockets of a user's own: searched, used, compared, trusted, and refused in one line before anything compiles."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import own_module, run

from purerl.learned import artefacts
from purerl.store import trusted_modules

OWN = """
import jax.numpy as jnp

from purerl.learned.sockets import Socket

LENGTH = 3


def socket(init=lambda key: {"width": jnp.zeros(())}, part="value_loss", option="value_loss", make=None):
    def parts(meta_params, config):
        def loss(value, old_value, target, config):
            error, width = value - target, jnp.exp(meta_params["width"])
            return width**2 * (jnp.sqrt(1 + jnp.square(error / width)) - 1)

        return {part: (make or loss)}

    return Socket("pseudo-huber", init, parts, option=option)


made = socket()
raising = lambda: 1 / 0
nothing = lambda: socket(option="")
failing = lambda: socket(init=lambda key: key + "a")
integers = lambda: socket(init=lambda key: jnp.zeros(2, int))
mean = lambda: socket(make=lambda value, old_value, target, config: jnp.mean(value))
elsewhere = lambda: socket(part="valueloss")
nowhere = lambda: socket(option="valueloss")
"""
SHORT = ["--total-steps", "256", "--num-envs", "2", "--num-steps", "16", "--hidden-sizes", "4"]
EVOLVE = ["--env", "CartPole-v1", "--population", "4", *SHORT]


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with own_module(tmp_path, monkeypatch, "own_sockets", OWN) as folder:
        yield folder


@pytest.mark.rest
def test_a_search_and_all_that_uses_it(own, capsys):
    run("evolve", "own_sockets:made", *EVOLVE, "--generations", 2, "--out", "whole")
    run("evolve", "own_sockets:made", *EVOLVE, "--generations", 1, "--out", "parts")
    run("resume", "parts", "--generations", 2)
    whole, parts = (artefacts.load(name, trust=True) for name in ("whole", "parts"))
    assert whole.socket == "own_sockets:made" and whole.option == "value_loss"
    assert whole.meta_params == parts.meta_params and whole.meta_params["width"].shape == ()

    error, width = np.linspace(-3, 3, 7), np.exp(float(whole.meta_params["width"]))
    ours = whole.parts(None)["value_loss"](error, error, 0 * error, None)
    np.testing.assert_allclose(ours, width**2 * (np.sqrt(1 + (error / width) ** 2) - 1), rtol=1e-5)

    run("train", "ppo", "CartPole-v1", *SHORT, "--value-loss", "whole", "--out", "trained")
    assert json.loads(Path("trained/config.json").read_text())["learned"]["value_loss"]["socket"] == "own_sockets:made"
    run("eval", "trained", "--episodes", 2)
    run("evolve", "report", "whole", "--seeds", 2, "--tuning-seeds", 2)
    [row] = json.loads(Path("whole/report.json").read_text())["rows"]
    assert row["baseline"] == "initial function"
    run("plot", "whole")

    capsys.readouterr()
    run("evolve", "distill", "whole", expect=2)
    assert "does not take a closed form" in capsys.readouterr().err
    run("train", "dqn", "CartPole-v1", "--td-loss", "whole", "--out", "other", expect=2)
    assert "is a function for the socket own_sockets:made, not for td-loss" in capsys.readouterr().err

    trusted_modules.location().unlink()  # as on another machine
    for command, advice in {
        ("eval", "trained"): "--trust imports it",
        ("resume", "whole", "--generations", 3): "--trust imports it",
        ("evolve", "report", "whole"): "--trust imports it",
        ("train", "ppo", "CartPole-v1", *SHORT, "--value-loss", "whole"): "`purerl evolve report --trust`",
        ("evolve", "own_sockets:made", *EVOLVE, "--initial", "whole"): "`purerl evolve report --trust`",
        ("train", "ppo", "CartPole-v1", *SHORT, "--warm-start", "trained"): "this run must name it as well",
        ("train", "--config", "trained/config.json"): "name it on the command line as well",
    }.items():
        run(*command, expect=2)
        text = capsys.readouterr().err
        assert "'own_sockets:made': a file names this module, which would be imported" in text and advice in text
    run("eval", "trained", "--episodes", 2, "--trust")
    run("eval", "trained", "--episodes", 2)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("LENGTH", "is int; must be a purerl.learned.sockets.Socket, or a function without arguments"),
        ("raising", "cannot be called: ZeroDivisionError: division by zero (own_sockets.py:"),
        ("nothing", "changes nothing; must have the option of a part, or an env"),
        ("failing", "cannot be called: TypeError"),
        ("integers", "init must return arrays of float32; some are int32"),
        ("nowhere", "has the option 'valueloss', which is a part of no algorithm"),
        ("absent", "module own_sockets has no 'absent'"),
    ],
)
def test_a_socket_that_is_none(name, line, own, capsys):
    run("evolve", f"own_sockets:{name}", *EVOLVE, expect=2)
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith(f"purerl: error: socket = 'own_sockets:{name}': {line}")


def test_a_function_that_does_not_fit(own, capsys):
    for name, line in {
        "mean": "value_loss: must be a function value_loss(value, old_value, target, config) -> [N]; with N = 7 it",
        "elsewhere": "valueloss: ppo has no such part; it has ",
    }.items():
        run("evolve", f"own_sockets:{name}", *EVOLVE, expect=2)
        assert capsys.readouterr().err.startswith(f"purerl: error: {line}")
    run("evolve", "own_sockets:made", "--algo", "dqn", *EVOLVE, expect=2)
    assert "algo = 'dqn': has no socket own_sockets:made; must be one of ppo, " in capsys.readouterr().err
