"""Networks fitted to learned functions: artefacts of their own, which know their sizes."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import cli
from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.learned import artefacts, sockets
from purerl.meta import distill_network


def config(socket):
    return ALGORITHMS[sockets.make(socket).algo].Config()


def learned(socket, moved=0.3, **settings):
    """A function that differs from the algorithm's own by its last layer."""
    algo = sockets.make(socket).algo
    card = {"algo": algo, "config": dataclasses.asdict(config(socket)), "envs": ["Catch-bsuite"], "env_params": {}}
    *hidden, last = sockets.make(socket, **settings).init(jax.random.key(0))
    meta_params = [*hidden, jax.tree.map(lambda x: x + moved * jax.random.normal(jax.random.key(1), x.shape), last)]
    card |= {"evidence": "of another function", "generations": 3}
    return artefacts.of_socket(socket, meta_params, card, settings=settings)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(distill_network, "STEPS", 400)  # of 20,000


@pytest.mark.rest
@pytest.mark.weekly("value-loss", "policy-drift")
@pytest.mark.parametrize("socket", sockets.SIZED)
def test_a_smaller_network_does_the_same(socket, short, tmp_path):
    teacher = learned(socket)
    result = distill_network.artefact(teacher, (6,), seed=0)
    assert result.card["explained_change"] > 0.97 and result.card["explained"] > 0.97
    assert result.card["distilled_from"] == artefacts.to_json(teacher)["sha256"]
    assert result.card["generations"] == 3 and "evidence" not in result.card
    path = tmp_path / "network.json"
    artefacts.save(path, result)
    read = artefacts.load(path)
    assert path.stat().st_size < 8192 and [x["kernel"].shape[-1] for x in read.meta_params][:-1] == [6]
    option = sockets.make(socket).option
    [again] = artefacts.read({option: artefacts.to_json(read)})  # as a run's description keeps it
    inputs = [jnp.linspace(-0.7, 0.7, 9)] * {"value-loss": 3, "policy-drift": 2, "td-loss": 1}[socket]
    values = [each.parts(config(socket))[option](*inputs, config(socket)) for each in (result, again)]
    np.testing.assert_array_equal(*values)


@pytest.mark.rest
def test_what_learned_nothing_stays_the_algorithms_own(short):
    result = distill_network.artefact(learned("td-loss", moved=0.0), (3,), seed=0)
    assert not np.any(result.meta_params[-1]["kernel"]) and result.card["explained"] == 1


@pytest.mark.rest
def test_from_the_command_line(short, tmp_path, capsys):
    artefacts.save(tmp_path / artefacts.NAME, learned("td-loss"))

    def run(*args):
        with pytest.raises(SystemExit) as stop:
            cli.main(["evolve", "distill", str(tmp_path), *args])
        return stop.value.code

    assert run("--into", "network", "--hidden-sizes", "4", "3") == 0
    assert "of what was learned" in capsys.readouterr().out
    assert artefacts.load(tmp_path / "network.json").settings == {"hidden_sizes": [4, 3]}
    assert run("--hidden-sizes", "4") == 2
    assert "hidden_sizes: has no effect without --into network" in capsys.readouterr().err
    assert run("--into", "network", "--hidden-sizes", *["2"] * 9) == 2
    assert "hidden_sizes: must be at most 8" in capsys.readouterr().err


def test_sockets_of_which_none_is_fitted():
    with pytest.raises(ConfigError, match="socket = 'optimiser': no network is fitted to it"):
        distill_network.artefact(learned("optimiser"), (4,), seed=0)


@pytest.mark.parametrize("sizes", [[0], [5000], "16", 16, [1.5], [[4]], [2] * 9])
def test_hostile_sizes(sizes):
    value = artefacts.to_json(learned("td-loss", hidden_sizes=[2]))
    value["settings"] = {"hidden_sizes": sizes}
    value["sha256"] = artefacts._digest({name: value[name] for name in ARTEFACT})
    with pytest.raises(ConfigError, match="^artefact: [^\n]*hidden_sizes"):
        artefacts.of_json(json.loads(json.dumps(value)))


ARTEFACT = "socket", "expression", "meta_params", "settings", "card"
