"""Population-based training and successive halving, on a problem whose optimum is planted."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import config as cfg
from purerl import loops, population
from purerl.loops.trainers import survive
from purerl.population import selection
from purerl.types import TrainState

SIZE, INTERVALS, ITERATIONS = 16, 20, 20


@cfg.config
class Config:
    step_size: cfg.Positive = 0.1


def noisy_quadratic(config):
    """A trainer that descends ``theta ** 2 / 2`` by gradients with unit noise.

    The best step is large while theta is far from 0 and small when it is near, so no fixed one is best throughout. A
    step beyond 2 diverges.
    """

    def init(key):
        theta = {"theta": jnp.float32(10.0)}
        return TrainState(theta, (), (), jnp.zeros((), jnp.int32), jnp.ones((), bool), key)

    def step(state):
        key, key_noise = jax.random.split(state.key)
        theta = state.learner["theta"]
        theta = theta - config.step_size * (theta + jax.random.normal(key_noise))
        alive, learned = survive(state, {"theta": theta}, theta)
        metrics = {"episode_return": -jnp.square(theta), "episodes": jnp.ones((), jnp.int32), "loss": theta}
        return TrainState(learned, (), (), state.iteration + 1, alive, key), metrics

    return types.SimpleNamespace(init=init, step=step, env_steps=1)


def members(seed, low=1e-3, high=1.0):
    key_step, key = jax.random.split(jax.random.key(seed))
    steps = jnp.exp(jax.random.uniform(key_step, (SIZE,), minval=np.log(low), maxval=np.log(high)))
    return population.members(Config(steps), jax.random.split(key, SIZE))


def pbt(**changes):
    options = {
        "num_intervals": INTERVALS,
        "num_iterations": ITERATIONS,
        "explore": selection.perturb(step_size=(1e-4, 1.0)),
        "devices": jax.devices()[:2],
    }
    return jax.jit(selection.population_based_training(noisy_quadratic, SIZE, **options | changes))


@pytest.fixture(scope="module")
def evolved():
    return pbt()(jax.random.key(1), members(0))


@pytest.mark.rest
def test_beats_random_search_at_equal_frames():
    """The best of 16 evolved members against the best of the same 16 with their first steps kept, over 20 seeds."""
    evolve, keep = pbt(), pbt(exploit=lambda key, scores: jnp.arange(SIZE))
    ours, random = [], []
    for seed in range(20):
        for run, scores in ((evolve, ours), (keep, random)):
            scores.append(float(run(jax.random.key(seed), members(seed)).fitness[-1].max()))
    assert sum(a > b for a, b in zip(ours, random, strict=True)) >= 18
    assert np.median(ours) > 0.2 * np.median(random)  # both are negative: at most a fifth of the distance


def test_only_those_that_copied_explore(evolved):
    steps, parent = np.asarray(evolved.given["config"].step_size), np.asarray(evolved.parent)
    stayed = parent == np.arange(SIZE)
    np.testing.assert_array_equal((~stayed).sum(axis=1), 3)
    np.testing.assert_array_equal(steps[1:][stayed[:-1]], steps[:-1][stayed[:-1]])
    assert np.all((steps >= 1e-4) & (steps <= 1.0 + 1e-6))
    copied = ~stayed[:-1]
    inherited = np.take_along_axis(steps[:-1], parent[:-1], axis=1)[copied]
    ratio = steps[1:][copied] / inherited
    by_factor = np.isclose(ratio, 0.8, rtol=1e-5) | np.isclose(ratio, 1.25, rtol=1e-5)
    assert 0.5 < by_factor.mean() < 0.95  # the others were drawn anew


@pytest.mark.rest
def test_copies_are_bitwise_but_for_the_key():
    """After one interval each member is its parent, as that would have been alone, with a key of its own."""
    everyone, options = members(3), {"num_intervals": 1}
    copied = pbt(**options)(jax.random.key(2), everyone)
    alone = pbt(exploit=lambda key, scores: jnp.arange(SIZE), **options)(jax.random.key(2), everyone)
    parent = np.asarray(copied.parent[0])
    assert np.any(parent != np.arange(SIZE))
    np.testing.assert_array_equal(copied.state.learner["theta"], alone.state.learner["theta"][parent])
    np.testing.assert_array_equal(jax.random.key_data(copied.state.key), jax.random.key_data(alone.state.key))


@pytest.mark.rest
def test_the_dead_are_replaced():
    """Steps of 1e30 kill half of the members in the first interval; in the end all live."""
    everyone = members(4)
    steps = everyone.given["config"].step_size.at[::2].set(1e30)
    result = pbt(exploit=selection.truncation(0.5))(
        jax.random.key(0), everyone._replace(given={"config": Config(steps)})
    )
    assert np.all(np.isneginf(result.fitness[0, ::2])) and np.all(np.isfinite(result.fitness[0, 1::2]))
    assert np.asarray(result.state.alive).all() and np.isfinite(result.fitness[-1]).all()


def test_a_selection_by_hand():
    """The worst of five takes state and arguments of the best, the latter changed; it keeps its key."""
    given = {"config": Config(jnp.arange(5.0))}
    keys = jax.random.split(jax.random.key(3), 5)
    state = TrainState(10.0 * jnp.arange(5), (), (), jnp.zeros(5, int), jnp.ones(5, bool), keys)
    explore = lambda key, given: {"config": Config(given["config"].step_size + 100)}
    scores = selection.counted(jnp.array([3.0, jnp.nan, 9.0, 4.0, 50.0]), jnp.array([True, True, True, True, False]))
    assert scores.tolist() == [3.0, -np.inf, 9.0, 4.0, -np.inf]
    for fraction, taken in ((0.2, [0, 2, 2, 3, 4]), (0.4, None)):
        after, went_on, parent = selection.exploited(
            jax.random.key(0), given, state, scores, exploit=selection.truncation(fraction), explore=explore
        )
        moved = np.array([False, True, False, False, fraction == 0.4])
        assert parent.tolist() == taken or (set(parent[moved].tolist()) <= {2, 3} and taken is None)
        assert went_on.learner.tolist() == [10.0 * p for p in parent]
        assert after["config"].step_size.tolist() == [p + 100.0 * m for p, m in zip(parent, moved, strict=True)]
        np.testing.assert_array_equal(jax.random.key_data(went_on.key), jax.random.key_data(keys))


def test_ranges_that_reach_zero_are_redrawn_uniformly():
    explore = jax.vmap(selection.perturb(step_size=(-1.0, 3.0), resample=1.0), in_axes=(0, None))
    drawn = np.asarray(explore(jax.random.split(jax.random.key(0), 1000), {"config": Config(0.0)})["config"].step_size)
    assert np.all((drawn >= -1) & (drawn <= 3)) and abs(drawn.mean() - 1) < 0.15
    stays = jax.vmap(selection.perturb(step_size=(0.0, 3.0), resample=0.0), in_axes=(0, None))
    assert not np.any(stays(jax.random.split(jax.random.key(0), 9), {"config": Config(0.0)})["config"].step_size)


def test_the_best_come_first_and_the_lower_index_of_equals():
    scores = np.array([1.0, 5.0, -np.inf, 5.0, 9.0])
    ran = np.array([True, True, True, True, False])
    assert selection.best_first(scores, ran).tolist() == [1, 3, 0, 2, 4]
    assert [selection.survivors(6, rung) for rung in range(4)] == [6, 3, 1, 1]


def test_ancestry_follows_parents():
    parent = np.array([[0, 0, 2], [1, 1, 2], [0, 2, 2]])
    assert selection.ancestry(parent, 0) == [0, 1, 0, 0]
    assert selection.ancestry(parent, 1) == [2, 2, 2, 1]


def test_truncation_takes_from_the_best():
    scores = jnp.array([3.0, -jnp.inf, 5.0, 4.0, 1.0])
    for seed in range(5):
        assert selection.truncation(0.2)(jax.random.key(seed), scores).tolist() == [0, 2, 2, 3, 4]
    parents = {tuple(selection.truncation(0.4)(jax.random.key(s), scores).tolist()) for s in range(40)}
    assert parents == {(0, a, 2, 3, b) for a in (2, 3) for b in (2, 3)}


@pytest.mark.rest
@pytest.mark.parametrize("devices", [1, 2, 8])
def test_halving_keeps_the_best_and_leaves_it_alone(devices):
    """16, 8, 4, 2, 1 members: ranks, rungs, and a survivor with the very bits that it has alone."""
    everyone = members(5)
    halve = selection.successive_halving(
        noisy_quadratic, SIZE, num_rungs=5, num_iterations=10, devices=jax.devices()[:devices]
    )
    result = jax.jit(halve)(everyone)
    assert result.rungs.tolist() == [5, 4, 3, 3, 2, 2, 2, 2] + [1] * 8
    assert sorted(result.member.tolist()) == list(range(SIZE))
    np.testing.assert_array_equal(result.given["config"].step_size, everyone.given["config"].step_size[result.member])
    for rung in (1, 2, 3):
        scores = np.asarray(result.fitness)[np.asarray(result.rungs) == rung]
        assert np.all(np.diff(scores) <= 0)
    best = int(result.member[0])
    train = jax.jit(lambda config, key: loops.train(noisy_quadratic(config), 160)(key))
    alone = train(jax.tree.map(lambda x: x[best], everyone.given["config"]), everyone.keys[best])
    assert result.state.iteration[0] == 160
    np.testing.assert_array_equal(result.state.learner["theta"][0], alone.state.learner["theta"])


def test_halving_drops_the_dead_first():
    everyone = members(6)
    steps = everyone.given["config"].step_size.at[:6].set(1e30)
    halve = selection.successive_halving(noisy_quadratic, SIZE, num_rungs=3, num_iterations=10)
    result = jax.jit(halve)(everyone._replace(given={"config": dataclasses.replace(Config(), step_size=steps)}))
    assert set(result.member[-6:].tolist()) == set(range(6)) and np.all(np.isneginf(result.fitness[-6:]))
