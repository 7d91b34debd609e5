"""Generations: every candidate lives whole lives under the same luck; what fails, fails alone."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import shipped_environment

from purerl import envs, loops, ppo
from purerl.learned import sockets
from purerl.meta import evolution, evolve, strategies

CONFIG = ppo.Config(
    total_steps=4 * 32 * 4,
    num_envs=4,
    num_steps=32,
    num_minibatches=2,
    num_epochs=2,
    hidden_sizes=(8,),
    learning_rate=0.03,
)
SOCKET = sockets.value_loss(hidden_sizes=(4,))
ENV = envs.make("CartPole-v1", max_steps=20)


def make_trainer(meta_params):
    return ppo.make_trainer(CONFIG, ENV, **SOCKET.parts(meta_params, CONFIG))


def test_lifetime_return():
    """Iterations without an end count as the one before them; those before the first end do not count."""
    metrics = {"episodes": jnp.array([0, 2, 0, 1, 0]), "episode_return": jnp.array([jnp.nan, 10, jnp.nan, 40, jnp.nan])}
    assert evolution.lifetime_return(metrics) == (10 + 10 + 40 + 40) / 4
    assert jnp.isnan(evolution.lifetime_return({**metrics, "episodes": jnp.zeros(5, jnp.int32)}))


def candidates(count):
    start = SOCKET.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), count)
    return jax.vmap(lambda key: jax.tree.map(lambda x: x + 3 * jax.random.normal(key, x.shape), start))(keys)


@pytest.mark.weekly
@pytest.mark.parametrize("devices", [1, 2])
def test_lives_are_lone_trainings(devices):
    """Each candidate with each key, on one device or two: the fitness of a training alone, bit for bit."""
    population, keys = candidates(3), jax.random.split(jax.random.key(2), 2)
    live = evolution.lifetimes(make_trainer, 4, 3, 2, devices=jax.devices()[:devices])
    result = jax.jit(live)(population, keys)
    assert result.shape == (3, 2) and len(np.unique(result)) > 2  # returns are few, and a loss changes them little

    @jax.jit
    def alone(meta_params, key):
        return evolution.lifetime_return(loops.train(make_trainer(meta_params), 4)(key).metrics)

    for p in range(3):
        for s in range(2):
            np.testing.assert_array_equal(result[p, s], alone(jax.tree.map(lambda x, p=p: x[p], population), keys[s]))


def test_scores_over_tasks():
    """The mean rank; a task that nobody has a fitness in does not count, and who lacks one ranks last."""
    fitness = jnp.array([[1.0, 300.0], [2.0, 100.0], [3.0, 200.0]])
    np.testing.assert_allclose(evolution.scores(fitness), [0.0, -0.25, 0.25])
    np.testing.assert_allclose(evolution.scores(fitness.at[:, 1].set(-jnp.inf)), [-0.5, 0.0, 0.5])
    np.testing.assert_allclose(evolution.scores(fitness.at[2, 1].set(jnp.nan)), [0.0, 0.0, 0.0], atol=1e-7)
    assert np.all(np.isneginf(evolution.scores(jnp.full((3, 2), jnp.nan))))
    np.testing.assert_array_equal(evolution.scores(fitness[:, :1]), fitness[:, 0])


SEEDS = 3


def planted(best):
    """Lives without agents: ``[P, tasks, S]``, the largest where the candidate is ``best`` in every task."""

    def live(population, key):
        away = jnp.sum(jnp.square(population - best[None]), axis=1)
        luck = jax.random.normal(key, (SEEDS,))
        return -away[:, None, None] * jnp.array([1.0, 1000.0])[None, :, None] + luck[None, None]

    return live


def run(live, generations, size=16, dims=3):
    strategy = strategies.make("Open_ES", size, jnp.zeros(dims), sigma=0.2, learning_rate=0.05, momentum=0.9)
    search = evolution.evolution(strategy, lambda key: jnp.zeros(dims), evolution.Tasks(live, evolution.scores))
    state = jax.jit(search.init)(jax.random.key(0))
    state, metrics = jax.jit(lambda s: jax.lax.scan(lambda s, _: search.step(s), s, None, generations))(state)
    return search.mean(state), metrics, state


def test_finds_what_was_planted():
    best = jnp.array([0.7, -0.4, 0.2])
    mean, metrics, state = run(planted(best), 200)
    np.testing.assert_allclose(mean, best, atol=0.1)
    assert state.generation == 200 and metrics["fitness"].shape == (200,)
    assert np.all(metrics["fitness_worst"] <= metrics["fitness"]) and np.all(
        metrics["fitness"] <= metrics["fitness_best"]
    )
    assert np.mean(metrics["fitness"][-20:]) > np.mean(metrics["fitness"][:20])


def test_same_key_same_search():
    best = jnp.array([0.7, -0.4, 0.2])
    first, second = (run(planted(best), 10) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])


@pytest.mark.rest
def test_pairs_in_tasks_of_their_own(monkeypatch):
    """Mirror images share a task and their keys, pairs do not; and what was planted is found, whatever the tasks'
    magnitudes."""
    best, calls, sizes = jnp.array([0.7, -0.4, 0.2]), [], []

    def lifetimes(make_trainer, num_iterations, size, num_seeds, **judged):
        scale = 1000.0 ** len(sizes)
        sizes.append((size, num_iterations))

        def live(candidates, keys):
            calls.append((candidates, jax.random.key_data(keys)))
            away = jnp.sum(jnp.square(candidates - best[None]), axis=1)
            return scale * (0.01 * jax.vmap(jax.vmap(jax.random.normal))(keys) - away[:, None])

        return live

    monkeypatch.setattr(evolution, "lifetimes", lifetimes)
    planted = sockets.Socket("planted", lambda key: jnp.zeros(3), lambda meta_params, config: {})
    tasks = [
        evolution.Task(ENV, CONFIG, "long"),
        evolution.Task(ENV, dataclasses.replace(CONFIG, total_steps=128), "short"),
    ]
    strategy = strategies.make("Open_ES", 10, jnp.zeros(3), sigma=0.2, learning_rate=0.05, momentum=0.9)
    search = evolution.make_search(planted, ppo, tasks, strategy, num_seeds=2, paired=True)
    assert sizes == [(6, 4), (4, 1)] and search.frames == 2 * (6 * 512 + 4 * 128)
    state = search.init(jax.random.key(0))
    _, metrics = search.step(state)
    assert {"fitness/long", "fitness/short"} <= set(metrics)
    everything = np.concatenate([keys for _, keys in calls])
    for candidates, keys in calls:
        first, second = jnp.split(candidates, 2)
        np.testing.assert_allclose(first, -second, rtol=1e-6)
        np.testing.assert_array_equal(*np.split(keys, 2))
    assert len(np.unique(everything.reshape(20, -1), axis=0)) == 10
    state, _ = jax.jit(lambda s: jax.lax.scan(lambda s, _: search.step(s), s, None, 200))(state)
    np.testing.assert_allclose(search.mean(state), best, atol=0.1)


def test_scores_of_pairs():
    fitness = jnp.array([1.0, jnp.nan, 2.0, -jnp.inf, 0.0, 3.0, 2.0, jnp.nan])[:, None]
    np.testing.assert_array_equal(evolution.pair_scores(fitness), [1, -1, 0, 0, -1, 1, 0, 0])


@pytest.mark.parametrize("count", [1, 8, 16])
def test_failed_candidates(count):
    """One, half or all of the candidates have no fitness: the search stays finite, and says so."""

    def live(population, key):
        result = planted(jnp.ones(3))(population, key)
        return result.at[:count].set(jnp.where(jnp.arange(3) % 2, jnp.nan, -jnp.inf)[None, None])

    mean, metrics, state = run(live, 5)
    assert np.all(np.isfinite(mean)) and all(np.all(np.isfinite(x)) for x in jax.tree.leaves(state.strategy.mean))
    np.testing.assert_allclose(metrics["alive"], 1 - count / 16)
    if count == 16:
        np.testing.assert_array_equal(mean, np.zeros(3))
        assert np.all(np.isnan(metrics["fitness"])) and state.generation == 5
    else:
        assert np.all(np.isfinite(metrics["fitness"])) and np.any(mean != 0)


@pytest.mark.rest
def test_a_loss_that_yields_nan_fails_alone():
    """A learned loss of nan kills its own trainings; the others have the bits that they have without it."""
    population, keys = candidates(4), jax.random.split(jax.random.key(2), 2)
    live = jax.jit(evolution.lifetimes(make_trainer, 4, 4, 2))
    poisoned = jax.tree.map(lambda x: x.at[1].set(jnp.nan), population)
    sound, result = live(population, keys), live(poisoned, keys)
    assert np.all(np.isneginf(result[1])) and np.all(np.isfinite(sound))
    others = np.array([0, 2, 3])
    np.testing.assert_array_equal(result[others], sound[others])


@pytest.mark.weekly
def test_a_search_in_one_call():
    """In two environments: a function of a key, of which the meta-parameters go into any later training."""
    longer = envs.make("CartPole-v1", max_steps=40)
    options = {"strategy": "SNES", "population": 4, "strategy_options": {"sigma": 1.0}, "num_seeds": 2}
    result = jax.jit(evolve(SOCKET, ppo, CONFIG, [ENV, longer], generations=3, **options))(jax.random.key(0))
    assert result.metrics["fitness"].shape == (3,) and result.state.generation == 3
    assert np.all(result.metrics["alive"] == 1) and np.all(np.isfinite(result.metrics["fitness"]))
    start = SOCKET.init(jax.random.key(0))
    assert jax.tree.map(jnp.shape, result.meta_params) == jax.tree.map(jnp.shape, start)
    assert evolution.lifetime(make_trainer, 2)({"meta_params": result.meta_params}, jax.random.key(1)) > 5


DECOMPOSES = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
from purerl import envs, ppo
from purerl.learned import sockets
from purerl.meta import evolve
config = ppo.Config(total_steps=256, num_envs=4, num_steps=32)
options = {"strategy": "CMA_ES", "population": 16, "generations": 3}
search = evolve(sockets.value_loss(hidden_sizes=(16, 16)), ppo, config, [envs.make("CartPole-v1")], **options)
print(jax.block_until_ready(jax.jit(search)(jax.random.key(0))).metrics["alive"].min())
"""


@pytest.mark.weekly
def test_a_strategy_that_decomposes_does_not_hang():
    """CMA-ES' eigenvectors and orthogonal kernels in one program on eight devices, killed if it outlasts ten times what
    it should take."""
    done = subprocess.run(
        [sys.executable, "-c", DECOMPOSES],
        env=shipped_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == ["1.0"]


@pytest.mark.rest
def test_chunks_are_one_scan():
    """Generations in chunks of any length end in the same bits: a search can be interrupted and resumed."""
    strategy = strategies.make("Open_ES", 16, jnp.zeros(3))
    search = evolution.evolution(
        strategy, lambda key: jnp.zeros(3), evolution.Tasks(planted(jnp.ones(3)), evolution.scores)
    )
    start = jax.jit(search.init)(jax.random.key(0))
    chunk = jax.jit(loops.chunk(search, 8))
    state = start
    for length in (1, 5, 2):
        state, _ = chunk(state, length)
    whole, _ = jax.jit(lambda s: jax.lax.scan(lambda s, _: search.step(s), s, None, 8))(start)
    np.testing.assert_array_equal(search.mean(state), search.mean(whole))
    np.testing.assert_array_equal(state.strategy.opt_state[0].nu, whole.strategy.opt_state[0].nu)
