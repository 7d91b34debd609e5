"""Reports: what stands for a training that died, whose seeds are whose, and that every baseline is one that trains."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.learned import ENV_SOCKET_NAMES, artefacts, sockets
from purerl.meta import evolution, report

TINY = {"total_steps": 256, "num_envs": 4, "num_steps": 16, "hidden_sizes": (8,)}
REPLAY = {"capacity": 256, "warmup_steps": 128, "batch_size": 8}


def saved(socket, directory, **settings):
    """A run directory with what a search for ``socket`` begins with."""
    algo = sockets.make(socket).algo
    config = ALGORITHMS[algo].Config(**TINY, **(REPLAY if algo in ("dqn", "disco") else {}))
    card = {"algo": algo, "config": dataclasses.asdict(config), "envs": ["CartPole-v1"], "env_params": {}}
    meta_params = sockets.make(socket, **settings).init(jax.random.key(0))
    meta_params = jax.tree.map(lambda x: x + 2.0, meta_params) if settings else meta_params
    artefacts.save(directory / artefacts.NAME, artefacts.of_socket(socket, meta_params, card, settings=settings))
    return directory


def test_a_training_that_died_counts_as_the_worst_of_all():
    baseline = sockets.value_loss().baselines[0]
    ours, theirs = np.array([10.0, -np.inf, 30.0, 40.0]), np.array([5.0, 20.0, np.nan, 10.0])
    row = report._row("CartPole-v1", True, baseline, 0.5, ours, theirs)
    assert row["fitness"] == (10 + 5 + 30 + 40) / 4 and row["baseline_fitness"] == (5 + 20 + 5 + 10) / 4
    assert row["difference"]["value"] == pytest.approx((5 - 15 + 25 + 30) / 4)
    assert row["fitness_iqm"]["value"] == 20 and row["baseline_iqm"]["value"] == 7.5
    assert row["iqm_difference"]["value"] == 15 and math.isnan(row["iqm_difference"]["low"])  # of four seeds
    assert row["without"] == row["baseline_without"] == 1 and row["tuned"] == {"value_coef": 0.5}
    none = report._row("CartPole-v1", True, baseline, 0.5, np.full(3, -np.inf), np.full(3, np.nan))
    assert math.isnan(none["difference"]["value"]) and none["without"] == 3


@pytest.mark.rest
@pytest.mark.weekly("policy-drift", "td-loss", "disco")
@pytest.mark.parametrize("socket", [name for name in sockets.SOCKETS if name not in ENV_SOCKET_NAMES])
def test_what_is_trained_and_with_which_keys(socket, tmp_path, monkeypatch):
    """Every baseline trains with its tuned value; the best in tuning is the one that is compared, on other keys."""
    calls = []

    def lifetimes(make_trainer, num_iterations, size, seeds, lanes=None):
        def live(given, keys):
            one = jax.tree.map(lambda x: x[0], given)
            trainer = make_trainer(meta_params=one)
            jax.eval_shape(lambda key: trainer.step(trainer.init(key)), keys[0])
            calls.append((size, {name: np.asarray(x) for name, x in given.items()}, jax.random.key_data(keys)))
            worth = -jnp.square(jnp.arange(size) - 2.0) if size > 1 else jnp.ones(1)
            return jnp.broadcast_to(worth[:, None], (size, seeds))

        return live

    monkeypatch.setattr(evolution, "lifetimes", lifetimes)
    monkeypatch.setattr(jax, "jit", lambda function, **options: function)
    result = report.report(saved(socket, tmp_path), seeds=5, tuning_seeds=3, seed=11)
    baselines = sockets.make(socket).baselines
    assert [row["baseline"] for row in result["rows"]] == [baseline.name for baseline in baselines]
    assert len(calls) == 1 + 2 * len(baselines) and not any(row["at_edge"] for row in result["rows"])
    held_out = calls[0][2]
    for baseline, tuning, compared in zip(baselines, calls[1::2], calls[2::2], strict=True):
        np.testing.assert_allclose(compared[1][baseline.tuned], tuning[1][baseline.tuned][2:3])
        assert tuning[0] == len(report.FACTORS) and len(tuning[2]) == 3
        np.testing.assert_array_equal(compared[2], held_out)
        assert not set(map(tuple, tuning[2].tolist())) & set(map(tuple, held_out.tolist()))
    report.report(tmp_path, seeds=5, tuning_seeds=3, seed=12)
    assert not set(map(tuple, calls[-1][2].tolist())) & set(map(tuple, held_out.tolist()))


@pytest.mark.rest
def test_messages_are_compared_with_silent_and_random_ones(tmp_path, monkeypatch):
    """On the same keys; each training of the random ones has its own, and what trains is told what it hears."""
    calls, results = [], iter((jnp.arange(5.0), jnp.zeros(5), jnp.full(5, 3.0)))

    def lives(make_trainer, num_iterations, size, fitness, lanes):
        def live(given, keys):
            trainer = make_trainer(**jax.tree.map(lambda x: x[0], given))
            seen = jax.eval_shape(lambda key: trainer.step(trainer.init(key)), keys[0])[0].actors.obs
            assert seen.shape == (4, 4 + 3) and size == 5
            assert fitness({"episodes": jnp.ones(1), "episode_return": jnp.full(1, 7.0)}) == -7
            calls.append((given["meta_params"]["learning"][0]["kernel"], jax.random.key_data(keys)))
            return next(results)

        return live

    monkeypatch.setattr(evolution, "lives", lives)
    monkeypatch.setattr(jax, "jit", lambda function, **options: function)
    result = report.report(saved("cheap-talk", tmp_path, inputs=4, messages=3), seeds=5, tuning_seeds=3, seed=11)
    assert [row["baseline"] for row in result["rows"]] == ["no messages", "random messages"]
    assert [row["difference"]["value"] for row in result["rows"]] == [2.0, -1.0]
    assert all(row["tuned"] == {} and not row["at_edge"] for row in result["rows"])
    (learned, keys), (silent, silent_keys), (random, random_keys) = calls
    np.testing.assert_array_equal(learned, jnp.full((5, 4, 3), 2.0))
    assert not np.any(silent) and len(np.unique(random)) == 5 * 4 * 3
    for others in (silent_keys, random_keys):
        np.testing.assert_array_equal(others, keys)


def test_a_closed_form_has_a_report_of_its_own(tmp_path, monkeypatch, capsys):
    """Beside its file, and on its card; that of the network it was fitted to stays. Each part is told as it begins."""
    lifetimes = lambda *args, lanes: lambda given, keys: jnp.ones((args[2], len(keys)))
    monkeypatch.setattr(evolution, "lifetimes", lifetimes)
    card = artefacts.load(saved("value-loss", tmp_path)).card
    path = tmp_path / "closed.json"
    artefacts.save(path, artefacts.of_expression("value-loss", ["square", "error"], card))
    result = report.report(path, seeds=5, tuning_seeds=2)
    error = capsys.readouterr().err.splitlines()
    assert error[0] == "value-loss on CartPole-v1: 5 trainings ..." and len(error) == 1 + len(result["rows"])
    assert error[1] == "L2 on CartPole-v1: 10 values of value_coef x 2 trainings, then 5 of the best ..."
    assert artefacts.load(path).card["evidence"]["rows"] == result["rows"]
    assert {"closed-report.json", "closed.json", artefacts.NAME} == {path.name for path in tmp_path.iterdir()}


def test_published_constants_are_among_those_tuned():
    """DPO with a = 2 has b = 0.6."""
    [dpo] = [baseline for baseline in sockets.policy_drift().baselines if baseline.name == "DPO"]
    objective = dpo.parts(dpo.start)["objective"]
    from purerl.formulas import losses

    config = ALGORITHMS["dpo"].Config()
    log_ratio, advantage = jnp.array([0.7, -0.7, 0.7, -0.7]), jnp.array([1.0, 1.0, -1.0, -1.0])
    np.testing.assert_allclose(
        objective(log_ratio, advantage, None), losses.discovered_policy(log_ratio, advantage, config), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("card", "line"),
    [
        ({"envs": [["CartPole-v1"]]}, "names no environments"),
        ({"env_params": None}, "has no parameters of environments"),
        ({"env_params": {"gravity": "x"}}, "env = 'CartPole-v1': gravity = 'x':"),
        ({"envs": ["this:s"]}, "artefact: env = 'this:s': a file names this module.*--trust imports it"),
        ({"algo": ["ppo"]}, "must name the algorithm and the config"),
        ({"algo": "dqn"}, "has dqn, which has no socket value-loss"),
        ({"config": {"learning_rate": 10**400}}, "learning_rate = 1000.*:"),
    ],
)
def test_hostile_cards(card, line, tmp_path):
    artefact = artefacts.load(saved("value-loss", tmp_path))
    artefacts.save(tmp_path / artefacts.NAME, artefact._replace(card=artefact.card | card))
    with pytest.raises(ConfigError, match=line):
        report.report(tmp_path, seeds=2, tuning_seeds=2)
