"""Ape-X's actors and learner agree; R2D2's sequences by hand; Rainbow's parts; short runs of scripts/value_based.py."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest
import value_based
from compiling import at_random, compiled
from scipy.stats import wasserstein_distance

from purerl import apex, dqn, envs, qr_dqn, r2d2, rainbow, replay
from purerl.algos.apex import initial_priority
from purerl.algos.dqn import make_network as make_dqn_network
from purerl.algos.r2d2 import make_network as make_r2d2_network
from purerl.envs.fleet import fleet
from purerl.learners.parts import from_replay
from purerl.loops.rollout import init_actors, rollout
from purerl.replay.views import Cut
from purerl.types import Outcome, Sample, Situation, Transition

SHORT = {"total_steps": 8 * 8 * 100, "num_envs": 8, "num_steps": 8, "capacity": 8 * 256, "hidden_sizes": (16,)}
APEX = apex.Config(
    **SHORT,
    n_step=3,
    warmup_steps=8 * 256,
    batch_size=256,
    importance_exponent=1.0,
    importance_exponent_end=1.0,
    store_next_obs=True,  # or what a transition is worth may change after it was given its priority
)
R2D2 = r2d2.Config(
    total_steps=10_000,
    num_envs=3,
    num_steps=8,
    period=2,
    burn_in=3,
    unroll=6,
    n_step=3,
    batch_size=16,
    capacity=3 * 48,
    memory="gru",
    memory_size=5,
    hidden_sizes=(6, 6),
    rescale_epsilon=0.05,
    max_grad_norm=1e6,
    epsilon_start=0.0,
    epsilon_end=0.0,
)
CARTPOLE = envs.make("CartPole-v1", max_steps=10)
FALLING = envs.make("CartPole-v1", max_steps=10, theta_threshold=0.1)


def disturbed(tree, scale=0.7):
    """Random numbers added to every leaf, so that no value is near zero."""
    rng = np.random.default_rng(5)
    return jax.tree.map(lambda x: x + scale * jnp.asarray(rng.normal(size=x.shape), jnp.float32), tree)


def with_values(network):
    """The same network, its initial values not near zero."""
    return network._replace(init=lambda key, obs: disturbed(network.init(key, obs)))


@pytest.fixture(scope="module")
def actors(key):
    """Ape-X before its first update, online and target network alike, its ring full: learner, ring, state, a sample."""
    network = with_values(make_dqn_network(APEX, CARTPOLE))
    view = replay.transitions(APEX.n_step, APEX.gamma)
    ring = from_replay.make_replay(APEX, CARTPOLE, view, initial=initial_priority)
    trainer = apex.make_trainer(APEX, CARTPOLE, network=network)
    state = jax.jit(trainer.init)(key)
    return trainer.learner, state, jax.jit(ring.sample)(state.replay, key)


def test_more_actors_learn_more_from_each_frame():
    """Ape-X has twice the environments of DQN by default, and takes four times the updates."""
    samples = lambda config: config.num_updates * config.batch_size / (config.num_envs * config.num_steps)
    assert samples(apex.Config()) == 2 * samples(dqn.Config())


@pytest.mark.rest
def test_actors_give_the_learners_priorities(actors, key):
    """The same parameters give the same errors, also where an episode ended within the three steps; but not of what
    followed a truncated step, which no actor saw."""
    learner, state, sample = actors
    priority = jax.jit(learner.update)(state.learner, sample, key).scores
    discount, rows = np.asarray(sample.items.discount), state.replay.ring.items
    steps = np.where(discount > 0, np.round(np.log(np.maximum(discount, 0.01)) / np.log(APEX.gamma)), 1).astype(int)
    cut = np.asarray(rows.truncated)[(sample.slot + steps - 1) % len(rows.reward), sample.env]
    assert discount.min() == 0 and cut.any() and sorted(set(steps[discount > 0])) == [1, 2, 3]
    np.testing.assert_allclose(initial_priority(sample.items)[~cut], priority[~cut], rtol=1e-6, atol=1e-6)
    assert np.std(priority) > 0.1


@pytest.mark.rest
def test_actors_priorities_reach_the_ring(actors):
    """With full correction the weight is inverse to the chance, which is proportional to a power of the priority."""
    _, _, sample = actors
    powered = np.float64(initial_priority(sample.items)) ** APEX.priority_exponent
    np.testing.assert_allclose(powered * sample.weight, np.min(powered) * np.max(sample.weight), rtol=1e-4)


@pytest.mark.rest
def test_each_actor_has_its_epsilon(actors):
    """Actor i acts at random just below its rung of the ladder, not just above; so it did when it filled the ring."""
    learner, state, _ = actors
    ladder = 0.4 ** np.linspace(1, 8, 8)

    def actions(chance):
        """By the two halves of the draw that picks a random action."""
        return [
            learner.explore(
                learner.behaviour(state.learner),
                Situation(state.actors.obs, ()),
                ((), jnp.stack([chance, jnp.full(8, half)], axis=1)),
            )
            for half in (0.25, 0.75)
        ]

    for factor, random in ((0.99, True), (1.01, False)):
        (low, *_), (high, *_) = actions(jnp.asarray(factor * ladder, jnp.float32))
        assert np.all((low != high) == random)
    seen = state.replay.ring.items.extras
    expected = ladder / 2 * len(seen.best)
    np.testing.assert_array_less(np.abs(np.sum(seen.taken < seen.best, axis=0) - expected), 4 * np.sqrt(expected) + 4)


@pytest.fixture(scope="module")
def acted(key):
    """R2D2's network and learner, its greedy trajectory ``[48, 3]`` from the first step on, and a sample of it."""
    network = compiled(with_values(make_r2d2_network(R2D2, FALLING)), "unroll", "step")
    learner = r2d2.make_learner(R2D2, FALLING, network=network, optimiser=optax.sgd(1.0))
    ring = from_replay.make_replay(R2D2, FALLING, replay.sequences(R2D2.sample_rows, R2D2.period))

    @jax.jit
    def run():
        actors = init_actors(key, fleet(FALLING, R2D2.num_envs), learner)
        state = learner.init(key, actors.obs)
        _, trajectory, _ = rollout(key, fleet(FALLING, R2D2.num_envs), learner, learner.behaviour(state), actors, 48)
        stored = ring.add(ring.init(jax.tree.map(lambda x: x[0, 0], trajectory)), trajectory)
        return state, trajectory, ring.sample(stored, key)

    state, trajectory, sample = run()
    assert np.any(trajectory.terminated) and np.any(trajectory.truncated)
    return network, learner, state, trajectory, sample


def ends(items):
    return items.terminated | items.truncated


@pytest.mark.rest
def test_stored_carry_gives_the_acting_values(acted):
    """Unrolled from its stored carry, a sequence has the values of the unbroken trajectory, by which actions were
    chosen; from a carry of zeros it has not."""
    network, _, state, trajectory, sample = acted
    q, _, _ = network.unroll(state.params, trajectory.obs, network.init_carry(R2D2.num_envs), ends(trajectory))
    np.testing.assert_array_equal(np.argmax(q, axis=-1), trajectory.action)
    items = sample.items
    expected = np.asarray(q)[sample.slot[None] + np.arange(R2D2.sample_rows)[:, None], sample.env]
    result, _, _ = network.unroll(state.params, items.obs, items.extras, ends(items))
    np.testing.assert_allclose(result, expected, atol=1e-5)
    result, _, _ = network.unroll(state.params, items.obs, jnp.zeros_like(items.extras), ends(items))
    assert np.max(np.abs(result - expected)) > 0.01
    assert not np.all(np.any(ends(items)[:-1], axis=0)) and len(np.unique(sample.slot)) > 5


@pytest.mark.rest
def test_no_gradient_flows_through_the_burn_in(acted, key):
    """The update is that on the later steps alone, from a given carry; what came before matters through it only."""
    network, learner, state, _, sample = acted
    cut, items = R2D2.burn_in, sample.items
    early, late = (jax.tree.map(lambda x, part=part: x[part], items) for part in (slice(cut), slice(cut, None)))
    _, _, carry = network.unroll(state.params, early.obs, items.extras, ends(early))
    alone = r2d2.make_learner(dataclasses.replace(R2D2, burn_in=0), CARTPOLE, network=network, optimiser=optax.sgd(1.0))
    later_cut = items.next_obs._replace(step=items.next_obs.step - cut)
    by_carry = sample._replace(items=late._replace(extras=carry, next_obs=later_cut))
    other = sample._replace(items=items._replace(obs=items.obs.at[:cut].add(1.0)))
    results = [
        jax.jit(which.update)(state, given, key)
        for which, given in ((learner, sample), (alone, by_carry), (learner, other))
    ]
    params = [result[0].params for result in results]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *params[:2])
    np.testing.assert_allclose(results[0].scores, results[1].scores, rtol=1e-5)
    assert np.abs(results[0].metrics["loss"] - results[2].metrics["loss"]) > 1e-3


def rescaled(x):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + R2D2.rescale_epsilon * x


def unrescaled(y):
    """By halving an interval."""
    low, high = np.full(y.shape, -1e3), np.full(y.shape, 1e3)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = np.where(rescaled(middle) < y, middle, low), np.where(rescaled(middle) < y, high, middle)
    return low


@pytest.mark.rest
@pytest.mark.parametrize("double", [True, False])
def test_sequences_by_hand(acted, key, double):
    """Loss and priorities from both networks' values: rescaled targets over three steps, a termination and a truncation
    among the learned steps, and both in the burn-in. What followed the last truncated step is known, or nothing is."""
    network, _, state, _, sample = acted
    config = dataclasses.replace(R2D2, double=double)
    learner = r2d2.make_learner(config, CARTPOLE, network=network, optimiser=optax.sgd(1.0))
    length, cut, size = R2D2.sample_rows, R2D2.burn_in, 4
    rng = np.random.default_rng(1)
    terminated, truncated = np.zeros((2, length, size), bool)
    terminated[5, 0] = truncated[5, 1] = terminated[1, 2] = truncated[2, 3] = terminated[6, 3] = truncated[-1, 0] = True
    truncated[6, 2] = True  # not known
    known = np.array([length - 1, 5, -1, 2])
    obs, carry = rng.normal(size=(length, size, 4)), rng.normal(size=(size, R2D2.memory_size))
    action, reward = rng.integers(0, 2, size=(length, size)), 3 * rng.normal(size=(length, size))
    weight = np.array([1.0, 0.5, 0.25, 0.0])
    floats = lambda x: jnp.asarray(x, jnp.float32)
    items = Transition(
        floats(obs),
        jnp.asarray(action),
        floats(reward),
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        Cut(jnp.asarray(known), floats(rng.normal(size=(size, 4)))),
        floats(carry),
    )
    state = state._replace(target_params=disturbed(state.params, -2.0))
    slots = jnp.zeros(size, jnp.int32)
    _, metrics, priority = jax.jit(learner.update)(state, Sample(items, slots, slots, floats(weight)), key)

    q, next_q = {}, {}
    for name, params in (("online", state.params), ("target", state.target_params)):
        q[name], carries, _ = network.unroll(params, items.obs, items.extras, ends(items))
        carry = jax.tree.map(lambda x: x[known, np.arange(size)], carries)
        next_q[name] = network.step(params, items.next_obs.obs, carry)[0]

    def best(values):
        chosen = np.argmax(values["online" if double else "target"], axis=-1)
        return unrescaled(np.take_along_axis(np.float64(values["target"]), chosen[..., None], axis=-1)[..., 0])

    assert np.any(np.argmax(q["online"], axis=-1) != np.argmax(q["target"], axis=-1))
    value, after_cut, q = best(q)[cut:], best(next_q), np.float64(q["online"])[cut:]
    each = []
    for n in range(size):
        stop, discount, stopped = truncated[cut:, n], R2D2.gamma * ~terminated[cut:, n], value[:, n].copy()
        learned = [t for t in range(length - cut) if not stop[t] and t < length - cut - 1]
        if known[n] >= cut:
            stopped[known[n] - cut] = reward[known[n], n] + R2D2.gamma * after_cut[n]
            learned.append(known[n] - cut)
        target = oracles.stored_n_step(reward[cut:, n], value[:, n], discount, stop, stopped, 3)
        taken = q[np.arange(length - cut), n, action[cut:, n]]
        error = np.array([rescaled(target[t]) - taken[t] for t in learned])
        expected = 0.9 * np.max(np.abs(error)) + 0.1 * np.mean(np.abs(error))
        np.testing.assert_allclose(priority[n], expected, rtol=1e-4)
        each.append(weight[n] * 0.5 * np.sum(error**2) / (length - cut))
    np.testing.assert_allclose(metrics["loss"], np.mean(each), rtol=1e-4)


RAINBOW = rainbow.Config(
    **SHORT, warmup_steps=8 * 16, num_updates=4, batch_size=64, num_atoms=11, learning_rate=0.05, target_period=100
)


def rainbow_loss(config):
    """Mean loss of the first iteration."""
    trainer = rainbow.make_trainer(config, CARTPOLE)
    return jax.jit(lambda key: trainer.step(trainer.init(key))[1]["loss"])(jax.random.key(0))


@pytest.fixture(scope="module")
def whole():
    return rainbow_loss(RAINBOW)


@pytest.mark.weekly
@pytest.mark.parametrize("change", [{"n_step": 1}, {"prioritised": False}], ids=lambda change: next(iter(change)))
def test_what_rainbow_stores_matters(whole, change):
    assert abs(rainbow_loss(dataclasses.replace(RAINBOW, **change)) - whole) > 1e-4


def updated(config):
    """The loss of an update from random experience, at random parameters."""
    rng, learner = np.random.default_rng(2), rainbow.make_learner(config, CARTPOLE)
    obs, next_obs = jnp.asarray(rng.normal(size=(2, 8, 4)), jnp.float32)
    action, reward = jnp.asarray(rng.integers(2, size=8)), jnp.asarray(rng.normal(size=8), jnp.float32)
    slots = jnp.zeros(8, jnp.int32)
    sample = Sample(Outcome(obs, action, reward, jnp.full(8, 0.9), next_obs, (), ()), slots, slots, jnp.ones(8))
    state = at_random(learner.init, jax.random.key(0), obs)
    return jax.jit(learner.update)(state, sample, jax.random.key(1)).metrics["loss"]


@pytest.fixture(scope="module")
def of_rainbow():
    return updated(RAINBOW)


@pytest.mark.rest
@pytest.mark.parametrize(
    "change",
    [{"double": False}, {"dueling": False}, {"noisy": False, "epsilon_end": 0.1}, {"num_atoms": 21}],
    ids=lambda change: next(iter(change)),
)
def test_each_part_of_rainbow_matters(of_rainbow, change):
    assert abs(updated(dataclasses.replace(RAINBOW, **change)) - of_rainbow) > 1e-4


def test_distance_of_distributions():
    rng = np.random.default_rng(0)
    x, p, y = rng.normal(size=7), rng.dirichlet(np.ones(7)), rng.integers(0, 3, size=5)
    np.testing.assert_allclose(value_based.wasserstein(x, p, y), wasserstein_distance(x, y, p))


@pytest.mark.weekly
def test_recovers_a_distribution_of_returns():
    """QR-DQN in two gambles: the returns 6, 2 and -2."""
    config = qr_dqn.Config(**value_based.GAMBLE, total_steps=30_000, num_quantiles=16, kappa=0.05)
    env = value_based.gamble(2, lambda coin, z: 0.5, value_based.three_or_minus_one)
    values, probabilities, _ = value_based.learned_returns(qr_dqn, config, env, 1)
    assert value_based.distances(values, probabilities, value_based.coins(2)) <= 0.15


@pytest.mark.rest
def test_priorities_save_updates():
    """On a short blind cliff walk."""
    uniform, proportional = (np.median(value_based.updates_needed(8, prioritise, 3)) for prioritise in (False, True))
    assert proportional <= uniform / 3


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"period": 5, "unroll": 5}, ["period = 5:", "unroll = 5:"]),
        ({"learning_rate": -1.0, "unroll": 8}, ["learning_rate = -1.0", "unroll = 8:"]),
        ({"burn_in": None}, ["burn_in = None:"]),
        ({"warmup_steps": 512}, ["warmup_steps = 512: must hold 40 steps of each environment, 640"]),
        ({"capacity": 512}, ["capacity = 512: must hold 40 steps of each environment, 640"]),
    ],
)
def test_problems_of_sequences(change, lines):
    """Also what a ring of stacked frames needs beyond a sequence: whole periods before it."""
    base = {"burn_in": 8, "unroll": 18, "period": 8, "num_steps": 8, "warmup_steps": 640, "total_steps": 10_000}
    env = envs.make("CartPole-v1", frame_stack=4)
    problems = r2d2.problems(r2d2.Config(**base | change), env)
    assert len(problems) == len(lines) and all(a.startswith(b) for a, b in zip(problems, lines, strict=True)), problems


def test_sound_sequences_make_a_trainer():
    env = envs.make("CartPole-v1", frame_stack=4)
    sizes = {"burn_in": 8, "unroll": 18, "period": 8, "num_steps": 8, "total_steps": 10_000}
    config = r2d2.Config(**sizes, warmup_steps=640, capacity=640)
    assert r2d2.problems(config, env) == []
    jax.eval_shape(r2d2.make_trainer(config, env).init, jax.random.key(0))


def test_rainbow_must_explore():
    [problem] = rainbow.problems(rainbow.Config(noisy=False), None)
    assert problem.startswith("noisy = False:")
    assert rainbow.problems(rainbow.Config(noisy=False, epsilon_end=0.1), None) == []
