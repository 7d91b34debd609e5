"""Strategies: each solves a planted quadratic; only ranks count, equals count equally, what fails does not spread."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.errors import ConfigError
from purerl.meta import strategies

LIKE = {"a": jnp.zeros((2, 2)), "b": jnp.zeros(2)}
BEST = {"a": jnp.array([[0.5, -0.3], [0.2, 0.4]]), "b": jnp.array([-0.4, 0.1])}


def fitness(candidates):
    """``[P]`` of candidates ``[P]``, largest at `BEST`."""
    away = jax.tree.map(
        lambda x, best: jnp.sum(jnp.square(x - best[None]).reshape(x.shape[0], -1), axis=1), candidates, BEST
    )
    return -sum(jax.tree.leaves(away))


def search(strategy, generations, score=fitness, seed=0):
    """The means after ``generations``, all in one program."""

    def generation(state, key):
        key_ask, key_tell = jax.random.split(key)
        candidates, state = strategy.ask(key_ask, state)
        return strategy.tell(key_tell, candidates, score(candidates), state), None

    key_init, key = jax.random.split(jax.random.key(seed))
    state = strategy.init(key_init, LIKE)
    state, _ = jax.jit(lambda s: jax.lax.scan(generation, s, jax.random.split(key, generations)))(state)
    return state


@pytest.mark.rest("SNES", "PGPE", "Sep_CMA_ES", "LES")
@pytest.mark.parametrize("name", strategies.NAMES)
def test_planted_quadratic(name):
    strategy = strategies.make(name, 32, LIKE, sigma=0.2, sigma_decay=0.99, learning_rate=0.02, momentum=0.9)
    before = float(fitness(jax.tree.map(lambda x: x[None], LIKE))[0])
    state = search(strategy, 300)
    mean = strategy.mean(state)
    assert jax.tree.map(jnp.shape, mean) == jax.tree.map(jnp.shape, LIKE)
    assert float(fitness(jax.tree.map(lambda x: x[None], mean))[0]) > 0.02 * before > -0.02


def test_ranks():
    np.testing.assert_allclose(strategies.ranks(jnp.array([3.0, 1.0, 2.0])), [0.5, -0.5, 0.0])
    np.testing.assert_allclose(strategies.ranks(jnp.array([1.0, 1.0, 5.0, 0.0])), [0.0, 0.0, 0.5, -0.5], atol=1e-7)
    odd = strategies.ranks(jnp.array([jnp.nan, 2.0, jnp.inf, -jnp.inf, 1.0]))
    np.testing.assert_allclose(odd, [-0.25, 0.5, -0.25, -0.25, 0.25])
    np.testing.assert_allclose(strategies.ranks(jnp.full(4, jnp.nan)), np.zeros(4))


@pytest.mark.rest("SNES", "PGPE", "Sep_CMA_ES", "LES")
@pytest.mark.parametrize("name", strategies.NAMES)
def test_only_ranks_count(name):
    """Any increasing function of the fitness gives the same search, bit for bit."""
    strategy = strategies.make(name, 8, LIKE)
    plain, bent = (search(strategy, 5, score) for score in (fitness, lambda c: 1e6 * jnp.exp(fitness(c)) - 7.0))
    jax.tree.map(np.testing.assert_array_equal, strategy.mean(plain), strategy.mean(bent))


@pytest.mark.weekly("Sep_CMA_ES", "PGPE", "SNES", "LES")
@pytest.mark.parametrize("name", strategies.NAMES)
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_failed_candidates(name, bad):
    """One or half of the candidates fail: the state stays finite. All of them: it stays what it was."""
    strategy = strategies.make(name, 8, LIKE)
    start = strategy.init(jax.random.key(0), LIKE)
    candidates, state = jax.jit(strategy.ask)(jax.random.key(1), start)
    tell = jax.jit(strategy.tell)
    for count in (1, 4):
        score = fitness(candidates).at[:count].set(bad)
        updated = tell(jax.random.key(2), candidates, score, state)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(strategy.mean(updated)))
        assert not np.array_equal(strategy.mean(updated)["a"], strategy.mean(state)["a"])
    none = tell(jax.random.key(2), candidates, jnp.full(8, bad), state)
    jax.tree.map(np.testing.assert_array_equal, none, state)


@pytest.mark.rest
def test_equal_candidates_count_equally():
    """Who comes first among equals makes no difference: the mean of the rest follows the better half either way."""
    for name in ("Open_ES", "SNES", "CMA_ES", "Sep_CMA_ES", "LES"):
        strategy = strategies.make(name, 8, LIKE)
        start = strategy.init(jax.random.key(0), LIKE)
        candidates, state = strategy.ask(jax.random.key(1), start)
        score = jnp.arange(8.0) // 4
        order = np.array([3, 1, 0, 2, 6, 4, 7, 5])
        shuffled = jax.tree.map(lambda x, order=order: x[order], candidates)
        means = [strategy.mean(strategy.tell(jax.random.key(2), c, score, state)) for c in (candidates, shuffled)]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *means)


@pytest.mark.parametrize("name", strategies.NAMES)
def test_constant_fitness_moves_nothing(name):
    """Neither the mean nor the step size nor any other part of the state, however long it lasts."""
    strategy = strategies.make(name, 8, LIKE, sigma=0.2)
    state = search(strategy, 200, lambda candidates: jnp.full(8, 3.0))
    start = strategy.init(jax.random.split(jax.random.key(0))[0], LIKE)
    jax.tree.map(np.testing.assert_array_equal, strategy.mean(state), LIKE)
    np.testing.assert_allclose(state.std, start.std, rtol=1e-6)


def test_pairs():
    strategy = strategies.make("Open_ES", 8, LIKE, sigma=0.5)
    mean = jax.tree.map(lambda x: x + 1.0, LIKE)
    candidates, _ = strategy.ask(jax.random.key(1), strategy.init(jax.random.key(0), mean))
    away = jax.tree.map(lambda c, m: c - m[None], candidates, mean)
    jax.tree.map(lambda x: np.testing.assert_allclose(x[:4], -x[4:], atol=1e-6), away)
    spread = np.concatenate([np.asarray(x).reshape(-1) for x in jax.tree.leaves(away)])
    assert 0.3 < spread.std() < 0.7


def test_state_keeps_its_types():
    """Otherwise each chunk of generations would compile anew."""
    for name in strategies.NAMES:
        strategy = strategies.make(name, 8, LIKE)
        start = jax.eval_shape(lambda strategy=strategy: strategy.init(jax.random.key(0), LIKE))

        def generation(state, strategy=strategy):
            candidates, state = strategy.ask(jax.random.key(1), state)
            return strategy.tell(jax.random.key(2), candidates, fitness(candidates), state)

        types = lambda tree: [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(tree)]
        assert types(start) == types(jax.eval_shape(generation, start))
        assert not any(x.weak_type for x in jax.tree.leaves(start))


@pytest.mark.parametrize(
    ("name", "size", "dimensions", "line"),
    [
        ("OpenES", 8, 4, r"^strategy = 'OpenES': unknown"),
        ("Open_ES", 7, 4, r"^population = 7:"),
        ("SNES", 1, 4, r"^population = 1:"),
        ("CMA_ES", 8, 4353, r"^strategy = 'CMA_ES': 4353 meta-parameters, at most 2000; take Sep_CMA_ES$"),
    ],
)
def test_problems(name, size, dimensions, line):
    with pytest.raises(ConfigError, match=line):
        strategies.make(name, size, jnp.zeros(dimensions))
