"""Episodes that never change, and two replays in one batch, against walks and sums in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import replay
from purerl.replay.fixed import beginnings, dataset_problems
from purerl.replay.priorities import MIN_PRIORITY
from purerl.spaces import Box, Discrete
from purerl.types import Dataset, Sample, Transition

STRIDE, LENGTH, BATCH = 3, 5, 64
LENGTHS = (4, 1, 7, 2, 6)
TRUNCATED = (False, True, True, False, True)
"""Episodes, and which of them were cut off."""
ALPHA, BETA = 0.7, 0.6


def observed(count, first):
    """Observations that tell which they are: eight bits, and a stack of two frames."""
    number = np.arange(first, first + count)
    bits = (number[:, None] >> np.arange(8)) & 1
    return {"bits": bits.astype(bool), "frames": np.repeat(number[:, None].astype(np.float32), 2, axis=1)}


def episodes():
    steps = sum(LENGTHS)
    last = np.zeros(steps, bool)
    ends = np.cumsum(LENGTHS) - 1
    last[ends] = True
    truncated = np.zeros(steps, bool)
    truncated[ends] = TRUNCATED
    obs = observed(steps, 0)
    begins = np.concatenate([[0], ends[:-1] + 1])
    for begin, end in zip(begins, ends, strict=True):  # the frame before; at the beginning itself
        obs["frames"][begin + 1 : end + 1, 0] = np.arange(begin, end)
    final = observed(len(LENGTHS), 100)
    final["frames"][:, 0] = ends
    number = np.arange(steps)
    return Dataset(obs, number.astype(np.int32) % 2, number.astype(np.float32), last & ~truncated, truncated, final)


DATA = episodes()
FRAMES = {"bits": 1, "frames": 2}
VIEW = replay.sequences(LENGTH, STRIDE)
DEMOS = replay.fixed(DATA, batch_size=BATCH, view=VIEW, alpha=ALPHA, beta=BETA, beta_end=BETA, num_frames=FRAMES)
STARTS = [b + k for b, n in zip(np.cumsum((0, *LENGTHS)), LENGTHS, strict=False) for k in range(0, n, STRIDE)]


def item(extras=()):
    one = jax.tree.map(lambda x: x[0], DATA)
    return Transition(*one[:5], one.final_obs, extras)


def test_sequences_are_those_of_a_walk():
    """From the first step of each episode on, and every third; into later episodes, and from the last to the first."""
    assert beginnings(DATA, STRIDE).tolist() == STARTS
    sample = jax.jit(DEMOS.sample)(DEMOS.init(item()), jax.random.key(0))
    assert set(sample.slot.tolist()) == set(STARTS) and not np.any(sample.env)
    rows = (np.asarray(sample.slot) + np.arange(LENGTH)[:, None]) % len(DATA.reward)
    for name in ("obs", "action", "reward", "terminated", "truncated"):
        expected = jax.tree.map(lambda x: x[rows], getattr(DATA, name))
        jax.tree.map(np.testing.assert_array_equal, getattr(sample.items, name), expected)
    cut = DATA.truncated[rows]
    step = np.where(cut.any(axis=0), LENGTH - 1 - cut[::-1].argmax(axis=0), -1)
    np.testing.assert_array_equal(sample.items.next_obs.step, step)
    episode = np.cumsum(DATA.last)[rows] - 1  # of a last step: its own number
    known = step >= 0
    which = episode[step, np.arange(BATCH)][known]
    for x, final in zip(jax.tree.leaves(sample.items.next_obs.obs), jax.tree.leaves(DATA.final_obs), strict=True):
        np.testing.assert_array_equal(x[known], final[which])
    assert known.any() and not known.all()


def chances(powers):
    return powers / powers.sum()


AGENT_ROWS, ENVS = 24, 2


@pytest.fixture(scope="module")
def both():
    """A ring of two environments, full, beside the demonstrations; its rewards are negative."""
    agent = replay.weighted(
        num_rows=AGENT_ROWS,
        num_envs=ENVS,
        batch_size=BATCH,
        view=VIEW,
        alpha=ALPHA,
        beta=BETA,
        beta_end=BETA,
        num_frames=FRAMES,
    )
    make = lambda ratio: replay.normalised(replay.mixed(agent, DEMOS, ratio, ENVS))

    @jax.jit
    def full():
        given, shape = item({"h": jnp.ones(4)}), (AGENT_ROWS, ENVS)
        played = jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, *jnp.shape(x))), given)
        no = jnp.zeros(shape, bool)
        played = played._replace(reward=-jnp.ones(shape), terminated=no, truncated=no)
        return make(0.5).add(make(0.5).init(given), played)

    draw = jax.jit(lambda ratio, state, key: make(ratio).sample(state, key))
    return draw, jax.jit(make(0.5).update), full()


@pytest.mark.rest
def test_each_element_comes_from_either(both):
    draw, _, state = both
    draws, keys = jax.jit(jax.vmap(draw, in_axes=(None, None, 0))), jax.random.split(jax.random.key(1), 50)
    for ratio in (0.0, 0.25, 1.0):
        samples = draws(ratio, state, keys)
        given = np.asarray(samples.env) >= ENVS
        total, mean = given.size, given.size * ratio
        assert abs(given.sum() - mean) <= 3 * np.sqrt(total * ratio * (1 - ratio))
        if 0 < ratio < 1:
            assert len(np.unique(given.sum(axis=1))) > 5  # of a batch as a whole there would be all or nothing
        np.testing.assert_array_equal(np.asarray(samples.items.reward)[:, 0] >= 0, given)
        np.testing.assert_array_equal(samples.items.extras["h"], np.where(given[..., None], 0.0, 1.0) * np.ones(4))


@pytest.mark.rest
def test_priorities_are_apart_and_weights_are_not(both):
    """Each replay has its own priorities and its own largest one; the batch has one largest weight."""
    draw, update, state = both
    given = np.ones(len(STARTS))
    own = {}
    largest = 1.0
    for i in range(4):
        sample = draw(0.5, state, jax.random.key(i))
        theirs = np.asarray(sample.env) >= ENVS
        at = np.searchsorted(STARTS, np.asarray(sample.slot))
        count = (AGENT_ROWS // STRIDE - 2) * ENVS  # a block for the frame before, one for the end of a sequence
        powers = (given + MIN_PRIORITY) ** ALPHA
        keys = list(zip(sample.slot.tolist(), sample.env.tolist(), strict=True))
        values = np.array([(own.get(key, 1.0) + MIN_PRIORITY) ** ALPHA for key in keys])
        everyone = sum((x + MIN_PRIORITY) ** ALPHA for x in own.values())
        everyone += (count - len(own)) * (1.0 + MIN_PRIORITY) ** ALPHA
        weight = (len(STARTS) * chances(powers)[np.where(theirs, at, 0)]) ** -BETA
        weight = np.where(theirs, weight, (count * values / everyone) ** -BETA)
        np.testing.assert_allclose(sample.weight, weight / weight.max(), rtol=2e-5)
        priority = np.random.default_rng(i).uniform(0, 9, BATCH)
        priority[theirs] *= 100
        fresh = {}
        for j in range(BATCH):
            name = ("demo", at[j]) if theirs[j] else keys[j]
            fresh[name] = max(fresh.get(name, 0.0), float(np.float32(priority[j])))
        for name, value in fresh.items():
            if name[0] == "demo":
                given[name[1]] = value
            else:
                own[name] = value
                largest = max(largest, value)
        state = update(state, sample, jnp.float32(priority))
        np.testing.assert_allclose(np.ravel(state.demos.sums[0])[: len(STARTS)], (given + MIN_PRIORITY) ** ALPHA, 1e-5)
        np.testing.assert_allclose(state.agent.largest, largest, rtol=1e-6)
        tree = state.agent.sums
        np.testing.assert_allclose(np.sum(tree[0]), np.sum(tree[-1]), rtol=1e-5)
    new = jax.tree.map(lambda x: jnp.broadcast_to(x, (STRIDE, ENVS, *jnp.shape(x))), item({"h": jnp.ones(4)}))
    after = replay.mixed(
        replay.weighted(
            num_rows=AGENT_ROWS, num_envs=ENVS, batch_size=BATCH, view=VIEW, alpha=ALPHA, num_frames=FRAMES
        ),
        DEMOS,
        0.5,
        ENVS,
    ).add(state, new)
    entered = np.setdiff1d(np.ravel(after.agent.sums[0]), np.ravel(state.agent.sums[0]))
    np.testing.assert_allclose(entered[entered > 0], (largest + MIN_PRIORITY) ** ALPHA, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, after.demos, state.demos)


def test_draws_of_another_replay_are_left_out(both):
    _, update, state = both
    sample = Sample((), jnp.zeros(BATCH, jnp.int32), jnp.full(BATCH, ENVS), jnp.ones(BATCH))
    after = update(state, sample, jnp.full(BATCH, 7.0))
    for a, b in zip(after.agent.sums, state.agent.sums, strict=True):
        np.testing.assert_array_equal(a, b)
    assert after.agent.largest == state.agent.largest and after.demos.sums[0][0, 0] != state.demos.sums[0][0, 0]


SPACE = {"bits": Box(False, True, (8,), jnp.dtype(bool)), "frames": Box(0.0, 200.0, (2,), jnp.float32, num_frames=2)}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, None),
        ({"reward": DATA.reward.astype(np.float64)}, "reward is float64[20], expected float32[20]"),
        ({"action": DATA.action + 1}, "action: has numbers that are not in its Discrete space"),
        ({"terminated": DATA.last}, "a step is both terminated and truncated"),
        ({"truncated": np.zeros(20, bool)}, "2 steps end an episode, expected 5"),
        ({"obs": DATA.reward}, "observations or actions are of another structure than the environment's"),
        ({"final_obs": jax.tree.map(lambda x: x[:2], DATA.final_obs)}, "5 steps end an episode, expected 2"),
    ],
)
def test_what_are_no_episodes(change, line):
    problems = dataset_problems(DATA._replace(**change), SPACE, Discrete(2))
    assert (problems[0] if problems else None) == line
