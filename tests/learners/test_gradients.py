"""Minibatches, schedules and steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from purerl import a2c, counters, dqn, envs, pqn, sac, trees
from purerl.formulas import schedules
from purerl.learners.parts import gradients
from purerl.types import Outcome, Sample, Situation, Transition


def test_each_epoch_is_a_permutation(key):
    for size, minibatches in ((512, 4), (60, 3), (7, 1)):
        indices = gradients.minibatch_indices(key, size, 3, minibatches)
        assert indices.shape == (3 * minibatches, size // minibatches)
        epochs = np.sort(np.asarray(indices).reshape(3, size), axis=1)
        np.testing.assert_array_equal(epochs, np.broadcast_to(np.arange(size), (3, size)))


def test_permutations_are_uniform():
    """Every sample is as likely in every place; and epochs differ."""
    keys = jax.random.split(jax.random.key(3), 3000)
    indices = np.asarray(jax.vmap(lambda k: gradients.minibatch_indices(k, 5, 1, 1))(keys)).reshape(-1, 5)
    orders = np.unique(indices, axis=0, return_counts=True)[1]
    assert len(orders) == 120
    assert scipy.stats.chisquare(orders).pvalue > 1e-3


def test_epochs_against_a_loop(key):
    """Plain gradient descent on every minibatch in turn, in numpy; and the means of what it reports."""
    indices = gradients.minibatch_indices(key, 12, 3, 4)
    data = np.random.default_rng(0).normal(size=(12, 2))

    def loss(params, batch):
        return jnp.mean((batch["x"] - params["a"]) ** 2), {"size": jnp.float32(batch["x"].shape[0])}

    params = {"a": jnp.array([[3.0, -1.0]]), "b": jnp.zeros(3)}
    optimiser = optax.sgd(0.25)
    state = gradients.init_optimiser(optimiser, params)
    result, _, metrics = gradients.minibatch_epochs(
        loss, optimiser, params, state, {"x": jnp.asarray(data)}, key, num_epochs=3, num_minibatches=4
    )
    a, losses, norms = np.array([[3.0, -1.0]]), [], []
    for index in np.asarray(indices):
        error = a - data[index]
        losses.append(np.mean(error**2))
        gradient = error.sum(axis=0) / error.size * 2
        norms.append(np.linalg.norm(gradient))
        a = a - 0.25 * gradient
    np.testing.assert_allclose(result["a"], a, rtol=1e-5)
    np.testing.assert_array_equal(result["b"], np.zeros(3))
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(metrics["grad_norm"], np.mean(norms), rtol=1e-5)
    assert metrics["size"] == 3


def test_epochs_end_where_a_walk_does(key):
    """Steps in numpy up to the first minibatch that is over the limit, whose step is not taken either; the schedule of
    step sizes goes on. A limit is met by none, one in the middle and the first minibatch."""
    indices = gradients.minibatch_indices(key, 12, 3, 4)
    data = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    rate = lambda updates: 0.1 / (1 + counters.real(updates))
    optimiser = gradients.chain(gradients.descent(rate))

    def loss(params, batch):
        return jnp.mean((batch - params["a"]) ** 2), {"distance": jnp.sum(jnp.abs(params["a"]))}

    params = {"a": jnp.array([[3.0, -1.0]])}
    state = gradients.init_optimiser(optimiser, params)

    @jax.jit
    def run(limit):
        sizes = {"num_epochs": 3, "num_minibatches": 4, "stop": lambda metrics: metrics["distance"] < limit}
        return gradients.minibatch_epochs(loss, optimiser, params, state, jnp.asarray(data), key, **sizes)

    ends = []
    for limit in (-1.0, 3.2, 9.0):
        result, opt_state, metrics = run(limit)
        a, losses, taken = np.array([[3.0, -1.0]]), [], 0
        for i, index in enumerate(np.asarray(indices)):
            error = a - data[index]
            losses.append(np.mean(error**2))
            if np.abs(a).sum() < limit:
                break
            a, taken = a - 0.1 / (1 + i) * error.sum(axis=0) / error.size * 2, taken + 1
        np.testing.assert_allclose(result["a"], a, rtol=1e-5)
        np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-5)
        np.testing.assert_allclose(metrics["updates_taken"], taken / 12, rtol=1e-6)
        assert counters.number(opt_state[0].updates) == 12
        ends.append(taken)
    assert ends[0] == 12 and 0 < ends[1] < 12 and ends[2] == 0


def following(start, target, divergences):
    """Ten step sizes by the rule, in numpy."""
    sizes = []
    for divergence in divergences:
        if divergence > 2 * target:
            start = max(start / 1.5, 1e-5)
        elif 1e-10 < divergence < target / 2:
            start = min(start * 1.5, 1e-2)
        sizes.append(start)
    return np.array(sizes)


def test_a_step_size_follows_a_divergence_within_bounds():
    """Also at exactly twice and half the target, where nothing changes, at 0, at rounding's noise, and at nan."""
    divergences = [0.0, 0.05, 0.02, 0.005, 0.001, 3e-11, np.nan, 0.1, 0.0049, 0.02001]
    rule = jax.jit(lambda size, divergence: schedules.by_divergence(size, divergence, 0.01))
    for start in (1e-3, 9e-3, 1.1e-5, 0.05):
        size, sizes = jnp.float32(start), []
        for divergence in divergences:
            size = rule(size, jnp.float32(divergence))
            sizes.append(float(size))
        np.testing.assert_allclose(sizes, following(start, 0.01, divergences), rtol=1e-5)
    assert following(1.1e-5, 0.01, [1.0] * 9)[-1] == 1e-5 and following(9e-3, 0.01, [1e-3] * 9)[-1] == 1e-2


@pytest.mark.parametrize("limit", [None, 0.5, 0.0])
def test_an_adaptive_descent_against_adam_by_hand(key, limit):
    """Twelve steps of clipped Adam in float64, each of the step size that its own minibatch's divergence makes. Two
    agents begin with step sizes of their own. The minibatch that ends an iteration changes the step size, though not
    the parameters; those after it change neither."""
    indices, target, norm = np.asarray(gradients.minibatch_indices(key, 12, 3, 4)), 0.2, 2.0
    data = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    start, begun = np.array([3.0, -1.0]), np.array([1e-3, 8e-3])

    def loss(params, batch):
        away = jnp.sum(jnp.square(params["a"] - start.astype(np.float32)[None]))
        return jnp.mean((batch - params["a"]) ** 2), {"away": 3e3 * away}

    @jax.jit
    @jax.vmap
    def run(rate):
        config = a2c.Config(learning_rate=rate, max_grad_norm=norm)
        optimiser = gradients.make_optimiser(config, step=gradients.adaptive_descent(rate, target))
        params = {"a": jnp.asarray(start, jnp.float32)[None]}
        params, state, _ = gradients.minibatch_epochs(
            loss,
            optimiser,
            params,
            gradients.init_optimiser(optimiser, params),
            jnp.asarray(data),
            key,
            num_epochs=3,
            num_minibatches=4,
            stop=None if limit is None else lambda metrics: metrics["away"] > limit,
            divergence=lambda metrics: metrics["away"],
        )
        return params["a"][0], gradients.adapted_step_size(state)

    result, sizes = run(jnp.asarray(begun, jnp.float32))
    for i, size in enumerate(begun):
        a, mean, square, taken = start.copy(), np.zeros(2), np.zeros(2), 0
        for index in indices:
            gradient = (a - data[index]).sum(axis=0) / data[index].size * 2
            away = 3e3 * np.sum((a - start) ** 2)
            size = following(size, target, [away])[-1]
            if limit is not None and away > limit:
                break
            gradient *= norm / max(np.linalg.norm(gradient), norm)
            mean, square, taken = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2, taken + 1
            a -= size * mean / (1 - 0.9**taken) / (np.sqrt(square / (1 - 0.999**taken)) + 1e-5)
        np.testing.assert_allclose(result[i], a, rtol=1e-6)
        np.testing.assert_allclose(sizes[i], size, rtol=1e-5)
    assert limit is None or taken < 12


def matrices_alone(params):
    """Of each parameter: moved or kept, as `optax.multi_transform` wants it."""
    return jax.tree.map(lambda x: "moved" if x.ndim >= 2 else "kept", params)


def trajectory(learner, env, state, key):
    """Random steps ``[4, 2]``, with what ``learner`` records."""
    obs = jax.random.normal(key, (4, 2, *env.observation_space.shape))
    explored = lambda obs: learner.explore(learner.behaviour(state), Situation(obs, ()), learner.noise(key, (2,)))
    action, _, extras = jax.vmap(explored)(obs)
    return Transition(obs, action, obs[..., 0], jnp.zeros((4, 2), bool), jnp.zeros((4, 2), bool), obs, extras)


def sampled(learner, env, state, key):
    """The same as a sample of 8 transitions."""
    steps = trees.merge(trajectory(learner, env, state, key), 2)
    items = Outcome(steps.obs, steps.action, steps.reward, jnp.full(8, 0.9), steps.next_obs, (), ())
    return Sample(items, jnp.arange(8), jnp.zeros(8, jnp.int32), jnp.ones(8))


SHORT = {"num_envs": 2, "hidden_sizes": (4,), "total_steps": 800}
REPLAYED = {**SHORT, "num_steps": 2, "warmup_steps": 8, "batch_size": 8}


@pytest.mark.rest
@pytest.mark.weekly("algo3", "algo1")
@pytest.mark.parametrize(
    ("algo", "name", "config", "given"),
    [
        (a2c, "CartPole-v1", {**SHORT, "num_steps": 4}, trajectory),
        (pqn, "CartPole-v1", {**SHORT, "num_steps": 4, "num_minibatches": 2}, trajectory),
        (dqn, "CartPole-v1", REPLAYED, sampled),
        (sac, "Pendulum-v1", REPLAYED, sampled),
    ],
)
def test_a_users_optimiser_sees_the_tree(algo, name, config, given, key):
    """One that moves matrices alone leaves every bias as it is, on every loop."""
    env, config = envs.make(name), algo.Config(**config)
    optimiser = optax.multi_transform({"moved": optax.sgd(0.1), "kept": optax.set_to_zero()}, matrices_alone)
    learner = algo.make_learner(config, env, optimiser=optimiser)
    state = learner.init(key, jnp.ones((2, *env.observation_space.shape)))
    biased = jax.tree.map(lambda x: x + 0.5 if x.ndim < 2 else x, state.params)
    state = state._replace(params=biased)
    after = learner.update(state, given(learner, env, state, key), key)[0]
    for old, new in zip(jax.tree.leaves(state.params), jax.tree.leaves(after.params), strict=True):
        assert np.any(new != old) if old.ndim >= 2 else np.array_equal(new, old)


def test_our_own_optimisers_see_one_vector(key):
    """On a CPU, where that is faster; their state is a vector for each moment."""
    params = {"a": jnp.ones((2, 3)), "b": jnp.zeros(3)}
    moments = jax.tree.leaves(gradients.init_optimiser(gradients.make_optimiser(a2c.Config()), params))
    assert [x.shape for x in moments if x.ndim] == [(9,), (9,)]


def test_clip_by_norm():
    gradient = jnp.array([3.0, 0.0, -4.0])
    for bound, expected in ((10.0, 5.0), (5.0, 5.0), (0.5, 0.5)):
        clipped, _ = gradients.clip_by_norm(bound).update(gradient, optax.EmptyState())
        reference, _ = optax.clip_by_global_norm(bound).update(gradient, optax.EmptyState())
        np.testing.assert_allclose(clipped, reference, rtol=1e-6)
        np.testing.assert_allclose(gradients.norm(clipped), expected, rtol=1e-6)
    assert not np.any(gradients.clip_by_norm(1.0).update(jnp.zeros(3), optax.EmptyState())[0])


def test_linear_decay_clamps():
    for decay, end in ((1.0, 0.0), (0.0, 0.1), (0.75, 0.025)):
        schedule = schedules.linear_decay(0.1, decay, 100)
        at = lambda *numbers: [schedule(counters.of(n)) for n in numbers]  # noqa: B023, E731
        np.testing.assert_allclose(at(0, 50, 100), [0.1, (0.1 + end) / 2, end], atol=1e-8)
        np.testing.assert_allclose(at(101, 200, 2**31, 2**33), end, atol=1e-8)


def test_gradient_step_is_an_epoch_of_one(key):
    """One step by Adam moves each parameter as optax does on the tree itself."""
    params = {"a": jnp.array([[3.0, -1.0]]), "b": jnp.arange(3.0)}
    loss = lambda p, batch: (jnp.sum(p["a"] * batch) + jnp.sum(p["b"] ** 2), {"twice": 2 * jnp.sum(batch)})
    batch, optimiser = jnp.array([[0.5, 4.0]]), optax.adam(0.1)
    result, _, aux, metrics = gradients.gradient_step(
        loss, optimiser, params, gradients.init_optimiser(optimiser, params), batch
    )
    grads = {"a": np.array([[0.5, 4.0]]), "b": 2 * np.arange(3.0)}
    moves, _ = optimiser.update(grads, optimiser.init(params), params)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), result, optax.apply_updates(params, moves))
    assert aux == {"twice": 9.0} and metrics == {"loss": 2.5, "grad_norm": metrics["grad_norm"]}
    np.testing.assert_allclose(metrics["grad_norm"], np.sqrt(0.25 + 16 + 4 + 16), rtol=1e-6)


def test_scan_means():
    step = lambda total, x: (total + x, {"x": x, "total": total})
    total, metrics = trees.scan_means(step, jnp.float32(0), jnp.arange(5.0))
    assert total == 10 and metrics == {"x": 2.0, "total": (0 + 0 + 1 + 3 + 6) / 5}


def test_anneal_clamps():
    result = schedules.anneal(1.0, 0.2, jnp.array([-1.0, 0.0, 0.25, 0.5, 1.0, 7.0]))
    np.testing.assert_allclose(result, [1.0, 1.0, 0.8, 0.6, 0.2, 0.2], rtol=1e-6)
