"""DiscoRL's update against an oracle in numpy float64, at random weights of the published shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from disco_oracle import Oracle

from purerl.algos import disco as algo
from purerl.learned import disco
from purerl.learners.parts import all_action_rules as rules
from purerl.networks.all_actions import Outputs

STEPS, COUNT, ACTIONS, BINS, GAMMA, TRACE = 5, 3, 3, 601, 0.997, 0.95
NAMES = "policy", "y", "z", "q", "following"


def random_update(seed):
    """An update in which sequence 0 has a termination, 1 a known truncation and 2 one of which nothing is known."""
    rng = np.random.default_rng(seed)
    rows, f = STEPS + 2, lambda *shape: rng.normal(size=shape)
    u = {"policy": f(rows, COUNT, ACTIONS), "y": f(rows, COUNT, 600), "z": f(rows, COUNT, ACTIONS, 600)}
    u |= {"q": f(rows, COUNT, ACTIONS, BINS), "following": f(rows, COUNT, ACTIONS, ACTIONS)}
    u |= {f"target_{name}": u[name] + 0.5 * f(*u[name].shape) for name in NAMES[:4]}
    u |= {"action": rng.integers(0, ACTIONS, (STEPS, COUNT), dtype=np.int32), "reward": 3 * f(STEPS, COUNT)}
    u |= {"behaviour": f(STEPS, COUNT, ACTIONS)}
    u["terminated"], truncated, u["cut"] = (np.zeros((STEPS, COUNT), bool) for _ in range(3))
    u["terminated"][1, 0] = truncated[2, 1] = u["cut"][2, 1] = truncated[3, 2] = True
    return u | {"last": u["terminated"] | truncated, "known": ~truncated | u["cut"]}


def as_program(u):
    """The steps and what both networks put out, as the program is given them."""
    cast = lambda x: jnp.asarray(x, jnp.float32 if x.dtype == np.float64 else x.dtype)
    steps = rules.Steps(*(cast(u[name]) for name in rules.Steps._fields))
    target = [cast(u[f"target_{name}"]) for name in NAMES[:4]]
    return steps, Outputs(*(cast(u[name]) for name in NAMES)), Outputs(*target, ())


@pytest.fixture(scope="module")
def arrays():
    drawn = disco.init(jax.random.key(3))
    keys = jax.random.split(jax.random.key(4), len(drawn))
    return {name: x + 0.1 * jax.random.normal(key, x.shape) for (name, x), key in zip(drawn.items(), keys, strict=True)}


@pytest.fixture(scope="module")
def both(arrays):
    """Two updates one after another, by the oracle and by the program."""
    oracle = Oracle(arrays)
    moments, life = (0.0, 0.0, 1.0), (np.zeros(128), np.zeros(128))
    ours, memory = rules.no_moments(), disco.Memory(*map(jnp.zeros, (128, 128)))

    @jax.jit
    def update(steps, online, target, moments, memory):
        values, moments = rules.evaluate(steps, online, target, moments, GAMMA, TRACE)
        return values, moments, *disco.rule(arrays).targets(rules.RuleInputs(steps, values, online, target), memory)

    results = []
    for seed in range(2):
        u = random_update(seed)
        steps, online, target = as_program(u)
        value, moments = oracle.values(u, moments, GAMMA, TRACE)
        targets, life = oracle.targets(u, value, *life)
        values, ours, made, memory = update(steps, online, target, ours, memory)
        results.append((u, (value, moments, targets, life), (values, ours, made, memory), online))
    return oracle, results


def assert_close(actual, expected):
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(actual, expected, atol=2e-4 * np.max(np.abs(expected)) + 2e-5, rtol=0)


@pytest.mark.rest
def test_values_and_their_moments(both):
    for _, (value, moments, *_), (values, ours, *_), _ in both[1]:
        for name, expected in value.items():
            assert_close(getattr(values, name), expected)
        jax.tree.map(assert_close, tuple(ours), moments)


@pytest.mark.rest
def test_targets_and_what_the_rule_keeps(both):
    for _, (*_, targets, life), (*_, made, memory), _ in both[1]:
        jax.tree.map(assert_close, tuple(made), targets)
        jax.tree.map(assert_close, tuple(memory), life)


@pytest.mark.rest
def test_terms_of_the_loss(both):
    oracle, result = both
    for u, (value, _, targets, _), (values, _, made, _), online in result:
        steps = as_program(u)[0]
        taken = [rules.of_action(x[:-2], steps.action) for x in (online.z, online.q, online.following)]
        out = Outputs(online.policy[:-2], online.y[:-2], *taken)
        after = rules.following(online.policy, steps)
        batch = algo.Batch(None, None, made, after, values.returns, steps.terminated, steps.known, None)
        terms = algo.terms(algo.DiscoConfig(value_coef=1.0), out, batch)
        for name, expected in oracle.losses(u, value, targets).items():
            assert_close(terms[f"{name}_loss"], expected)


@pytest.mark.rest
def test_nothing_flows_across_the_end_of_an_episode(arrays):
    """What a step is told depends on it and on later steps of its episode; moments of advantages are left out here.
    Of predictions it sees a row more, but where it is not known what followed a truncation."""
    steps, online, target = as_program(random_update(0))

    def targets_of(reward, shift):
        out = online._replace(y=online.y.at[..., 0].add(shift))
        values, _ = rules.evaluate(steps._replace(reward=reward), out, target, rules.no_moments(), GAMMA, TRACE)
        still = values._replace(scaled_advantage=values.advantage, scaled_advantages=values.advantages)
        seen = rules.RuleInputs(steps._replace(reward=reward), still, out, target)
        return jnp.mean(disco.rule(arrays).targets(seen, disco.Memory(*map(jnp.ones, (128, 128))))[0].y, axis=-1)

    slopes = jax.jit(jax.jacrev(targets_of, argnums=(0, 1)))(steps.reward, jnp.zeros((STEPS + 2, COUNT)))
    reached, rows = (np.asarray(x) != 0 for x in slopes)  # [T, N, T, N] and [T, N, R, N]
    assert not np.any(rows[:4, 2, 4:, 2]) and np.all(rows[4, 2, 4:6, 2]) and np.all(rows[:3, 1, -1, 1])
    for n in range(COUNT):
        episode = np.cumsum(np.concatenate([[0], np.asarray(steps.last)[:-1, n]]))
        later = (np.arange(STEPS)[:, None] <= np.arange(STEPS)) & (episode[:, None] == episode)
        np.testing.assert_array_equal(reached[:, n, :, n], later)
        assert not np.any(np.delete(reached[:, n], n, axis=2))


def test_published_shapes():
    shapes = disco.shapes()
    assert len(shapes) == 42 and sum(int(np.prod(shape)) for shape in shapes.values()) == 754_778
    drawn = disco.init(jax.random.key(0))
    assert {name: x.shape for name, x in drawn.items()} == shapes
    assert float(jnp.std(drawn["lstm/linear_2/w"])) == pytest.approx(0.88 / 16, rel=0.01)
