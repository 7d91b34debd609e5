"""Reports on functions that somebody wrote, from the command line."""

import json
import os

import jax
import jax.numpy as jnp
import pytest
from commands import own_module

from purerl import cli
from purerl.learned import sockets, written
from purerl.meta import evolution

TINY = ["--total-steps", "256", "--num-envs", "4", "--num-steps", "16", "--hidden-sizes", "8"]
REPLAY = ["--capacity", "256", "--warmup-steps", "128", "--batch-size", "8"]
MORE = {"td-loss": REPLAY, "vtrace-weight": ["--lag", "1", "--max-lag", "1"]}
OWN = """
import jax.numpy as jnp
import optax


def value_loss(value, old_value, target, config):
    print("I am called")
    return jnp.square(value - target)


def policy_drift(log_ratio, advantage, config):
    return jnp.expm1(log_ratio) * advantage


def td_loss(error, config):
    return jnp.square(error)


def vtrace_weight(log_ratio, config):
    return jnp.exp(log_ratio), jnp.minimum(1.0, jnp.exp(log_ratio))


def optimiser(config):
    return optax.sgd(config.learning_rate)


def crashes(value, old_value, target, config):
    import ctypes

    ctypes.string_at(0)
"""


def run(*args):
    """The exit code of a report."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["evolve", "report", *map(str, args)])
    return stop.value.code


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A working directory with a module ``written_own``."""
    with own_module(tmp_path, monkeypatch, "written_own", OWN):
        yield tmp_path


@pytest.fixture
def fitness(monkeypatch):
    """Trainings are traced, and each has the fitness that stands here."""
    value = [1.0]

    def lifetimes(make_trainer, num_iterations, size, seeds, lanes=None):
        def live(given, keys):
            trainer = make_trainer(meta_params=jax.tree.map(lambda x: x[0], given))
            jax.eval_shape(lambda key: trainer.step(trainer.init(key)), keys[0])
            return jnp.full((size, seeds), value[0])

        return live

    monkeypatch.setattr(evolution, "lifetimes", lifetimes)
    monkeypatch.setattr(jax, "jit", lambda function, **options: function)
    return value


SIZES = "--seeds", "5", "--tuning-seeds", "2", "--limit-seconds", "0", "--limit-gigabytes", "0"


@pytest.mark.rest
@pytest.mark.weekly("policy-drift", "td-loss", "optimiser")
@pytest.mark.parametrize("socket", [*written.PLACES, written.OPTIMISER])
def test_it_is_that_of_an_artefact(socket, own, fitness, capsys):
    args = f"written_own:{socket.replace('-', '_')}", "--socket", socket, "--env", "CartPole-v1", *TINY
    args = *args, *SIZES, *MORE.get(socket, []), "--out", own / "out"
    assert run(*args, "--json") == 0
    result = json.loads(capsys.readouterr().out)  # whatever the function prints
    assert result == json.loads((own / "out/report.json").read_text())
    assert result["function"] == args[0] and result["config"]["total_steps"] == 256
    assert [row["baseline"] for row in result["rows"]] == [each.name for each in sockets.make(socket).baselines]
    pictures = {"function.png"} if socket in ("value-loss", "policy-drift", "td-loss") else set()
    assert {"report.json", *pictures} == set(os.listdir(own / "out")) - {"run.lock"}


@pytest.mark.rest
def test_one_without_any_fitness(own, fitness, capsys):
    fitness[0] = float("nan")
    args = "written_own:value_loss", "--socket", "value-loss", "--env", "CartPole-v1", *TINY, *SIZES, "--out", "out"
    assert run(*args) == 3
    assert "written" in capsys.readouterr().out
    assert run(*args) == 2 and "out = 'out':" in capsys.readouterr().err
    assert run(*args, "--overwrite") == 3


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (["written_own:value_loss"], ["run = 'written_own:value_loss': does not exist"]),
        (["runs/x", "--socket", "td-loss"], ["function = 'runs/x': must be MODULE:FUNCTION"]),
        (["a:b", "--socket", "levels"], ["socket = 'levels': does not take a function of your own"]),
        (["a:b", "--socket", "td-loss", "--algo", "ppo"], ["algo = 'ppo': has no socket td-loss"]),
        (["a:b", "--socket", "td-loss", "--lagg", "3"], ["--lagg: unknown option"]),
        (["a:b", "--socket", "td-loss", "--gamma", "3"], ["env = (): must be one or more", "gamma = 3"]),
        (
            ["nope:b", "--socket", "td-loss", "--env", "Catch-bsuite", *SIZES],
            ["td-loss = 'nope:b': cannot import nope"],
        ),
        (
            ["written_own:td_loss", "--socket", "td-loss", "--env", "Pendulum-v1", "CartPol-v1", *SIZES],
            ["env = 'CartPol-v1': unknown"],
        ),
        (
            ["written_own:vtrace_weight", "--socket", "vtrace-weight", "--env", "Catch-bsuite", *SIZES],
            ["vtrace-weight: there is nothing to correct"],
        ),
    ],
)
def test_bad_input(args, lines, own, capsys):
    assert run(*args) == 2
    err = capsys.readouterr().err
    assert all(line in err for line in lines), err
    assert not (own / "runs").exists()


@pytest.mark.weekly
def test_within_limits(own, capfd):
    """In a process of its own: a report, and a crash."""
    tiny = "--socket", "value-loss", "--env", "CartPole-v1", *TINY, "--seeds", "2", "--tuning-seeds", "2"
    assert run("written_own:value_loss", *tiny, "--out", "good", "--json") == 0
    assert json.loads(capfd.readouterr().out) == json.loads((own / "good/report.json").read_text())
    assert run("written_own:crashes", *tiny, "--out", "bad") == 1
    assert "written_own:crashes: its process was killed by signal 11 (SIGSEGV)" in capfd.readouterr().err
    assert not (own / "bad").exists()
