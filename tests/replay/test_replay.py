"""The rings against a plain history of rows: what they hold, which samples they draw, and how often."""

import functools
from types import SimpleNamespace
from typing import NamedTuple

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from purerl import counters, envs, loops, replay, trees
from purerl.replay.priorities import MIN_PRIORITY
from purerl.replay.ring import RingState
from purerl.types import Replay, Sample, Transition

ROWS, ENVS, BATCH, GAMMA, ALPHA = 12, 2, 32, 0.9, 0.6
BETA, BETA_END, UPDATES = 0.4, 1.0, 4
VIEWS = {
    "one step": replay.transitions(1, GAMMA),
    "three steps": replay.transitions(3, GAMMA),
    "sequences": replay.sequences(4),
    "overlapping": replay.sequences(6, 2),
}
HORIZON = {"one step": 1, "three steps": 3}
GOES_ON, TERMINATES, TRUNCATES = 0, 1, 2


class Ring(NamedTuple):
    """A configuration, whose programs all tests share."""

    kind: str = "uniform"
    view: str = "one step"
    num_frames: int = 1
    num_steps: int = 4
    next_obs: int = 0


RINGS = [Ring(kind, view, frames) for kind in ("uniform", "prioritised") for view in VIEWS for frames in (1, 3)]
RINGS += [Ring("prioritised", "three steps", 3, num_steps) for num_steps in (2, 12)]
STORING = [
    Ring("prioritised", view, frames, next_obs=every)
    for view in ("three steps", "overlapping")
    for frames in (1, 3)
    for every in (1, 4)
]
STORING += [Ring("uniform", "three steps", 3, num_steps, next_obs=4) for num_steps in (2, 12)]
STORING += [Ring("uniform", "sequences", num_steps=2, next_obs=3)]


def make(ring: Ring, **changes) -> Replay:
    arguments = {
        "num_rows": ROWS,
        "num_envs": ENVS,
        "batch_size": BATCH,
        "view": VIEWS[ring.view],
        "num_frames": ring.num_frames,
        "next_obs": ring.next_obs,
    }
    if ring.kind == "uniform":
        return replay.uniform(**arguments | changes)
    priorities = {"alpha": ALPHA, "beta": BETA, "beta_end": BETA_END, "num_updates": UPDATES}
    return replay.prioritised(**arguments | priorities | changes)


@functools.cache
def programs(ring: Ring):
    """An empty ring, and what an addition, a sample and its update make of one."""
    buffer = make(ring)

    def step(state, trajectory, key, priority):
        added = buffer.add(state, trajectory)
        sample = buffer.sample(added, key)
        return added, sample, buffer.update(added, sample, priority)

    empty = buffer.init(at(history(ring.num_frames, np.zeros((1, ENVS), int)), 0, 0))
    return empty, jax.jit(step)


def filled(ring: Ring, rows: Transition):
    """The ring after all of ``rows``."""
    state, step = programs(ring)
    for first in range(0, len(rows.reward), ring.num_steps):
        trajectory = at(rows, slice(first, first + ring.num_steps))
        state = step(state, trajectory, jax.random.key(0), np.zeros(BATCH, np.float32))[0]
    return state


def at(tree, *index):
    return jax.tree.map(lambda x: x[index], tree)


def history(num_frames: int, ends, reward=None, seed: int = 0, next_obs: bool = False) -> Transition:
    """Rows ``[time, B]`` as environments give them; an observation knows its time, counted from 1, and environment.

    The last one of an episode, which only ``next_obs`` shows, knows the negative time. Without ``next_obs`` that is
    wrong on purpose: a ring may not look at it.
    """
    rng = np.random.default_rng(seed)
    shape = len(ends), ENVS
    time, env = np.meshgrid(*map(np.arange, shape), indexing="ij")
    begin = np.zeros(shape, int)
    for t in range(1, len(ends)):
        begin[t] = np.where(ends[t - 1] == GOES_ON, begin[t - 1], t)
    frames = {"code": np.stack([1 + time, env], axis=-1).astype(np.int16), "image": rng.random((*shape, 3, 5)) < 0.5}
    final = {"code": np.stack([-1 - time, env], axis=-1).astype(np.int16), "image": rng.random((*shape, 3, 5)) < 0.5}
    goes_on = (ends == GOES_ON) & (time < len(ends) - 1)
    following = {
        name: np.where(goes_on.reshape(*shape, *[1] * (x.ndim - 2)), np.roll(x, -1, axis=0), final[name])
        for name, x in frames.items()
    }
    if num_frames > 1:
        shown = [np.maximum(time - back, begin) for back in reversed(range(num_frames))]
        frames = {name: np.stack([x[t, env] for t in shown], axis=-1) for name, x in frames.items()}
        following = {
            name: np.concatenate([frames[name][..., 1:], x[..., None]], axis=-1) for name, x in following.items()
        }
    return Transition(
        obs=frames,
        action=rng.integers(0, 5, shape).astype(np.int32),
        reward=rng.normal(size=shape).astype(np.float32) if reward is None else reward,
        terminated=ends == TERMINATES,
        truncated=ends == TRUNCATES,
        next_obs=following if next_obs else jax.tree.map(lambda x: np.full_like(x, -1), frames),
        extras={"carry": rng.normal(size=(*shape, 2)).astype(np.float32), "known": rng.random((*shape, 3)) < 0.5},
    )


def starts(ring: Ring, newest: int) -> list[int]:
    """First rows of samples that lie, with the frames before them, in what a ring holds of ``newest`` rows."""
    oldest, view = max(newest - ROWS, 0), VIEWS[ring.view]
    return [
        row
        for row in range(oldest, newest)
        if row % view.stride == 0 and row - (ring.num_frames - 1) >= oldest and row + view.length <= newest
    ]


def holds(ring: Ring, rows: Transition, newest: int, t: int, env: int) -> bool:
    """Whether a ring of ``newest`` rows has the next observation of the truncated step ``t``: all are kept, or that of
    the step that was truncated last among those that were written to the same block of rows."""
    if ring.next_obs <= 1:
        return bool(ring.next_obs)
    block = lambda s: s % ROWS // ring.next_obs
    return not any(rows.truncated[s, env] for s in range(t + 1, newest) if block(s) == block(t))


def outcome(rows: Transition, row: int, env: int, n: int, has_next) -> tuple[float, float, int | None, bool]:
    """Reward, discount, the row of the next observation (None: no matter), walking forward; and whether it is that of
    the truncated step in this row, which the ring has if ``has_next(t, env)``."""
    total, discount = 0.0, 1.0
    for t in range(row, row + n):
        if rows.truncated[t, env] and has_next(t, env):
            return total + discount * float(rows.reward[t, env]), discount * GAMMA, t, True
        if rows.truncated[t, env]:
            return total, discount, t, False
        total += discount * float(rows.reward[t, env])
        if rows.terminated[t, env]:
            return total, 0.0, None, False
        discount *= GAMMA
    return total, discount, row + n, False


def same(result, expected):
    jax.tree.map(
        lambda x, y: (np.testing.assert_array_equal(x, y), np.testing.assert_equal(x.dtype, y.dtype)), result, expected
    )


def drawn(ring: Ring, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """First rows and environments, by what the observations say."""
    code = np.asarray(sample.items.obs["code"])
    code = code[..., -1] if ring.num_frames > 1 else code
    code = code if ring.view in HORIZON else code[0]
    return code[:, 0].astype(int) - 1, code[:, 1].astype(int)


def check_items(ring: Ring, rows: Transition, newest: int, sample: Sample):
    """Every draw is in the history, whole and bit for bit; what the steps led to is as the definition says."""
    row, env = drawn(ring, sample)
    assert set(row) <= set(starts(ring, newest))
    np.testing.assert_array_equal(sample.env, env)
    np.testing.assert_array_equal(sample.slot, row % ROWS)
    items, has_next = sample.items, functools.partial(holds, ring, rows, newest)
    if ring.view not in HORIZON:
        t = row + np.arange(VIEWS[ring.view].length)[:, None]
        for name in ("obs", "action", "reward", "terminated", "truncated"):
            same(getattr(items, name), at(getattr(rows, name), t, env))
        if ring.next_obs:
            check_cuts(items.next_obs, rows, t, env, has_next)
        else:
            assert items.next_obs == ()
        same(items.extras, at(rows.extras, row, env))
        return
    same((items.obs, items.action, items.extras), at((rows.obs, rows.action, rows.extras), row, env))
    results = [outcome(rows, *start, HORIZON[ring.view], has_next) for start in zip(row, env, strict=True)]
    usable = np.array([is_usable(ring, rows, newest, *start) for start in zip(row, env, strict=True)])
    reward, discount, after, cut = (np.array(x) for x in zip(*results, strict=True))
    np.testing.assert_allclose(items.reward[usable], reward[usable], rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(items.discount[usable], discount[usable], rtol=1e-6)
    for some, shown in ((~cut, rows.obs), (cut, rows.next_obs)):
        some = usable & (discount > 0) & some
        place = after[some].astype(int), env[some]
        same(at(items.next_obs, some), at(shown, *place))
        same(at(items.next_extras, some), at(rows.extras, *place))


def check_cuts(result, rows: Transition, t: np.ndarray, env: np.ndarray, has_next):
    """The last truncated step of each sequence in rows ``t`` ``[L, N]`` whose next observation is there."""
    there = np.array([[rows.truncated[s, e] and has_next(s, e) for s, e in zip(row, env, strict=True)] for row in t])
    step = np.where(there.any(axis=0), len(t) - 1 - np.argmax(there[::-1], axis=0), -1)
    np.testing.assert_array_equal(result.step, step)
    some = step >= 0
    same(at(result.obs, some), at(rows.next_obs, t[step, np.arange(len(env))][some], env[some]))


def is_usable(ring: Ring, rows: Transition, newest: int, row: int, env: int) -> bool:
    return ring.view not in HORIZON or not rows.truncated[row, env] or holds(ring, rows, newest, row, env)


class Priorities:
    """What the definition says of ``p^alpha``, by first row and environment, recomputed without a ring."""

    def __init__(self, ring: Ring, rows: Transition):
        self.ring, self.rows, self.powered, self.largest, self.updates = ring, rows, {}, 1.0, 0

    def add(self, newest: int):
        every = [(row, env) for row in starts(self.ring, newest) for env in range(ENVS)]
        there = {start for start in every if is_usable(self.ring, self.rows, newest, *start)}
        new = (self.largest + MIN_PRIORITY) ** ALPHA
        self.powered = {start: self.powered.get(start, new) for start in there}

    def update(self, sample: Sample, priority: np.ndarray):
        self.updates += 1
        size = np.where(np.isfinite(priority), np.abs(priority.astype(float)), 0.0)
        given = {}
        for start, p, weight in zip(zip(*drawn(self.ring, sample), strict=True), size, sample.weight, strict=True):
            if weight > 0:
                given[start] = max(given.get(start, 0.0), (p + MIN_PRIORITY) ** ALPHA)
                self.largest = max(self.largest, p)
        self.powered |= given

    def check(self, sums):
        leaves = np.asarray(sums[0]).reshape(-1)
        np.testing.assert_allclose(np.sort(leaves[leaves > 0]), np.sort(list(self.powered.values())), rtol=2e-6)
        np.testing.assert_allclose(np.sum(sums[-1]), sum(self.powered.values()), rtol=1e-5)

    def check_weights(self, sample: Sample):
        if not self.powered:
            np.testing.assert_array_equal(sample.weight, 0.0)
            return
        beta = BETA + (BETA_END - BETA) * min(self.updates / UPDATES, 1.0)
        chance = np.array([self.powered[start] for start in zip(*drawn(self.ring, sample), strict=True)])
        np.testing.assert_allclose(sample.weight, (chance / chance.min()) ** -beta, rtol=1e-4)


@st.composite
def worlds(draw, num_steps: int):
    """``(ends, reward, priority, seed)``: enough to fill the ring once to three times, and a priority for each draw."""
    adds, seed = draw(st.integers(ROWS // num_steps, 3 * ROWS // num_steps)), draw(st.integers(0, 2**32 - 1))
    rng, shape = np.random.default_rng(seed), (adds, BATCH)
    kinds = st.sampled_from([GOES_ON] * draw(st.sampled_from([4, 1, 16])) + [TERMINATES, TRUNCATES])
    ends = draw(hnp.arrays(np.int8, (adds * num_steps, ENVS), elements=kinds, fill=st.nothing()))
    reward = draw(st.sampled_from([1.0, 100.0])) * rng.normal(size=ends.shape)
    priority = rng.choice([-1.0, 1.0], shape) * 10 ** rng.uniform(-8, 4, shape)
    strange = rng.random(shape) < draw(st.sampled_from([0.2, 0.0, 1.0]))
    priority = np.where(strange, rng.choice([np.nan, np.inf, -np.inf, 0.0], shape), priority)
    return ends, reward.astype(np.float32), priority.astype(np.float32), seed


@pytest.mark.weekly("-3-", "-4-1")
@pytest.mark.parametrize("ring", RINGS + STORING, ids=lambda ring: "-".join(map(str, ring)))
def test_against_a_history(ring):
    """After every addition, be the ring partly full, exactly full, or written over: items, weights and priorities."""
    empty, step = programs(ring)

    @settings(max_examples=15, deadline=None, derandomize=True, database=None)
    @given(worlds(ring.num_steps))
    def check(world):
        ends, reward, priority, seed = world
        rows = history(ring.num_frames, ends, reward, seed, bool(ring.next_obs))
        state, known = empty, Priorities(ring, rows)
        for i, key in enumerate(jax.random.split(jax.random.key(seed), len(priority))):
            newest = (i + 1) * ring.num_steps
            trajectory = at(rows, slice(newest - ring.num_steps, newest))
            added, sample, state = jax.tree.map(np.asarray, step(state, trajectory, key, priority[i]))
            stored = added if ring.kind == "uniform" else added.ring
            assert (stored.position, stored.filled) == (newest % ROWS, min(newest, ROWS))
            if not starts(ring, newest):
                np.testing.assert_array_equal(sample.weight, 0.0)
            elif ring.kind == "uniform":
                check_items(ring, rows, newest, sample)
                usable = [is_usable(ring, rows, newest, *start) for start in zip(*drawn(ring, sample), strict=True)]
                np.testing.assert_array_equal(sample.weight, np.where(usable, 1.0, 0.0))
            if ring.kind == "prioritised":
                known.add(newest)
                known.check(added.sums)
                known.check_weights(sample)
                if known.powered:
                    check_items(ring, rows, newest, sample)
                known.update(sample, priority[i])
                known.check(state.sums)
                np.testing.assert_allclose(state.largest, known.largest, rtol=1e-6)
                assert counters.number(state.updates) == i + 1

    check()


@pytest.mark.parametrize("adds", [2, 3, 5])
@pytest.mark.parametrize("ring", [Ring(), Ring(view="overlapping", num_frames=3)], ids=lambda ring: ring.view)
def test_all_samples_are_equally_likely(ring, adds):
    """Before the ring is full, when it just is, and after it was written over."""
    newest = adds * ring.num_steps
    rows = history(ring.num_frames, np.zeros((newest, ENVS), int))
    state = filled(ring, rows)
    sample = jax.jit(make(ring, batch_size=4096).sample)(state, jax.random.key(adds))
    counts = np.unique(np.stack(drawn(ring, sample)), axis=1, return_counts=True)[1]
    assert len(counts) == len(starts(ring, newest)) * ENVS
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_chances_follow_the_priorities():
    """Also of many exponents at once; each batch is stratified, and what is not usable has no chance."""
    ring, batch, exponents = Ring("prioritised"), 64, np.array([0.0, 0.6, 1.5])
    rng = np.random.default_rng(0)
    ends, priority = np.zeros((16, ENVS), int), rng.uniform(0.1, 4, (16, ENVS)).astype(np.float32)
    ends[[6, 9], [0, 1]], ends[7, 1], priority[5] = TRUNCATES, TERMINATES, [np.nan, np.inf]
    rows = history(1, ends, priority)

    def batches(alpha):
        buffer = make(ring, alpha=alpha, batch_size=batch, initial=lambda items: items.reward)
        state = buffer.init(at(rows, 0, 0))
        for i in range(4):
            state = buffer.add(state, at(rows, slice(4 * i, 4 * i + 4)))
        return jax.vmap(lambda key: buffer.sample(state, key))(jax.random.split(jax.random.key(1), 100))

    samples = jax.jit(jax.vmap(batches))(exponents)
    for i, alpha in enumerate(exponents):
        stored = np.where(np.isfinite(priority), priority, 0.0)[4:15].astype(float) + MIN_PRIORITY
        chance = np.where(ends[4:15] == TRUNCATES, 0.0, stored**alpha)
        chance = (chance / chance.sum()).reshape(-1)
        place = ((np.asarray(samples.slot[i]) - 4) % ROWS) * ENVS + np.asarray(samples.env[i])
        counts = np.stack([np.bincount(x, minlength=chance.size) for x in place])
        assert np.all(np.abs(counts - batch * chance) < 2)
        np.testing.assert_allclose(counts.sum(0) / counts.sum(), chance, atol=0.005)
        assert np.all(counts[:, chance == 0] == 0)
        assert scipy.stats.chisquare(counts.sum(0)[chance > 0], counts.sum() * chance[chance > 0]).pvalue > 1e-3


def test_importance_weights():
    """``(P / min P)^-beta``, beta moving in a straight line; with beta 1 the weighted mean is that of uniform draws."""
    ring = Ring("prioritised")
    rows = history(
        1, np.zeros((ROWS, ENVS), int), np.random.default_rng(1).uniform(1, 4, (ROWS, ENVS)).astype(np.float32)
    )
    buffer = make(ring, batch_size=512, initial=lambda items: items.reward)
    state, add = buffer.init(at(rows, 0, 0)), jax.jit(buffer.add)
    for i in range(3):
        state = add(state, at(rows, slice(4 * i, 4 * i + 4)))
    chance = (rows.reward[:-1].astype(float) + MIN_PRIORITY) ** ALPHA
    chance /= chance.sum()
    sampled = jax.jit(buffer.sample)
    for updates, beta in [(0, 0.4), (1, 0.55), (2, 0.7), (4, 1.0), (9, 1.0)]:
        sample = sampled(state._replace(updates=counters.of(updates)), jax.random.key(updates))
        assert len(np.unique(np.stack(drawn(ring, sample)), axis=1)[0]) == chance.size
        result = np.zeros(chance.shape)
        result[drawn(ring, sample)] = sample.weight
        np.testing.assert_allclose(result, (chance / chance.min()) ** -beta, rtol=1e-4)
    delta = np.random.default_rng(2).normal(size=chance.shape)
    largest = 1 / (chance.size * chance.min())
    np.testing.assert_allclose(np.sum(chance * largest * result * delta), delta.mean(), rtol=1e-4)


def test_a_sample_knows_when_there_is_too_little():
    """``rows`` is how many rows it takes; with one block less every weight is 0."""
    for ring in RINGS[:8]:
        buffer = make(ring)
        empty, enough = programs(ring)[0], buffer.rows
        weight = jax.jit(lambda state, key, buffer=buffer: buffer.sample(state, key).weight)
        for rows, expected in [(0, 0.0), (enough - VIEWS[ring.view].stride, 0.0), (enough, 1.0)]:
            state = empty._replace(position=jnp.int32(rows % ROWS), filled=jnp.int32(rows))
            np.testing.assert_array_equal(weight(state, jax.random.key(rows)), expected)
        assert starts(ring, enough) and not starts(ring, enough - 1)


@pytest.mark.parametrize("ring", RINGS[:8], ids=lambda ring: f"{ring.view}-{ring.num_frames}")
def test_the_loop_refuses_a_warm_up_without_a_sample(ring):
    buffer = make(ring)
    fleet = SimpleNamespace(size=ENVS, env_steps=ENVS)
    loop = functools.partial(loops.off_policy, fleet, SimpleNamespace(), buffer, num_steps=1, num_updates=1)
    loop(warmup=buffer.rows)
    with pytest.raises(ValueError, match=f"a sample's {buffer.rows}$"):
        loop(warmup=buffer.rows - 1)


def test_an_empty_ring_gives_and_takes_nothing():
    """Neither a nan nor, afterwards, a priority that nothing has."""
    buffer = make(Ring("prioritised"))
    state = programs(Ring("prioritised"))[0]
    sample = jax.jit(buffer.sample)(state, jax.random.key(0))
    np.testing.assert_array_equal(sample.weight, 0.0)
    for x in jax.tree.leaves(sample.items):
        assert np.all(np.isfinite(x))
    updated = jax.jit(buffer.update)(state, sample, jnp.full(BATCH, 5.0))
    jax.tree.map(np.testing.assert_array_equal, updated, state._replace(updates=counters.of(1)))


def test_many_rows_are_sampled_to_the_end():
    """The index of a sample needs all of its 31 bits: nothing wraps near the largest ring."""
    num_rows = 2**30
    buffer = make(Ring(), num_rows=num_rows, num_envs=1, batch_size=2000)
    blank = Transition(*(jnp.zeros((1, 1)) for _ in range(3)), *(jnp.zeros((1, 1), bool) for _ in range(2)), (), ())
    position = num_rows - 2
    state = RingState(blank, jnp.int32(position), jnp.int32(num_rows))
    slot = np.asarray(jax.jit(buffer.sample)(state, jax.random.key(0)).slot, np.int64)
    age = (slot - position) % num_rows
    assert slot.min() >= 0 and age.max() <= num_rows - 2
    assert scipy.stats.kstest(age, scipy.stats.uniform(0, num_rows).cdf).pvalue > 1e-3


def scanned(buffer: Replay):
    """``(state, trajectories [n, T, B], keys [n]) -> (state, samples)``, with an update after each sample."""

    def run(state, trajectories, keys):
        def one(state, x):
            trajectory, key = x
            state = buffer.add(state, trajectory)
            sample = buffer.sample(state, key)
            return buffer.update(state, sample, sample.env + 2.0 * sample.weight), sample

        return jax.lax.scan(one, state, (trajectories, keys))

    return run


BUFFERS = {
    "uniform": make(Ring(num_frames=3)),
    "prioritised": make(Ring("prioritised", "three steps", 3)),
    "queue": replay.queue(num_slots=3, num_steps=4, num_envs=ENVS, batch_size=2, max_uses=2),
}


@pytest.mark.weekly("prioritised", "queue")
@pytest.mark.parametrize("name", BUFFERS)
def test_on_host_is_the_same(name):
    """Bit for bit, with its state in the host's memory before and after, and its samples in the device's."""
    ends = np.random.default_rng(0).choice([GOES_ON, GOES_ON, TERMINATES, TRUNCATES], (20, ENVS))
    rows = history(3, ends)
    trajectories = jax.tree.map(lambda x: x.reshape(5, 4, *x.shape[1:]), rows)
    keys = jax.random.split(jax.random.key(0), 5)

    def run(buffer):
        empty = buffer.init(at(rows, 0, 0))
        return empty, *scanned(buffer)(empty, trajectories, keys)

    expected = jax.jit(lambda: run(BUFFERS[name]))()
    empty, state, samples = jax.jit(lambda: run(replay.on_host(BUFFERS[name])))()
    jax.tree.map(np.testing.assert_array_equal, (empty, state, samples), expected)
    assert {x.sharding.memory_kind for x in jax.tree.leaves((empty, state))} == {"pinned_host"}
    assert {x.sharding.memory_kind for x in jax.tree.leaves(samples)} == {"device"}


def test_on_host_needs_such_a_memory(monkeypatch):
    device = SimpleNamespace(addressable_memories=lambda: [SimpleNamespace(kind="device")])
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    with pytest.raises(ValueError, match="no memory kind pinned_host, only device"):
        replay.on_host(BUFFERS["uniform"])


def test_bytes_of_observations():
    """Booleans take a bit, 64 times less than observations and next observations in float32; of stacks one frame."""
    num_envs, num_rows = 16, 6256
    obs = jax.eval_shape(envs.make("Breakout-MinAtar").reset, jax.random.key(0))[1]
    assert obs.shape == (10, 10, 4)
    naive = num_rows * num_envs * 2 * 4 * obs.size
    assert naive == 64 * obs_bytes(obs, num_rows, num_envs)
    stack = jax.ShapeDtypeStruct((84, 84, 4), np.uint8)
    assert obs_bytes(stack, num_rows, num_envs, num_frames=4) == num_rows * num_envs * 84 * 84


def obs_bytes(obs, num_rows: int, num_envs: int, num_frames: int = 1) -> int:
    buffer = make(Ring(), num_rows=num_rows, num_envs=num_envs, num_frames=num_frames)
    flag = jax.ShapeDtypeStruct((), bool)
    scalar = jax.ShapeDtypeStruct((), np.float32)
    return trees.nbytes(jax.eval_shape(buffer.init, Transition(obs, flag, scalar, flag, flag, obs, ())).items.obs)


@pytest.mark.rest
def test_vmap():
    """Four buffers at once are four buffers."""
    ring = Ring("prioritised", "three steps", 3)
    empty, step = programs(ring)
    rng = np.random.default_rng(0)
    rows = [history(3, rng.choice(3, (16, ENVS)), seed=seed) for seed in range(4)]
    states, apart = jax.tree.map(lambda x: jnp.stack([x] * 4), empty), [empty] * 4
    together = jax.jit(jax.vmap(step))
    for i, keys in enumerate(jax.random.split(jax.random.key(0), (4, 4))):
        parts = [at(x, slice(4 * i, 4 * i + 4)) for x in rows]
        priority = rng.random((4, BATCH)).astype(np.float32)
        _, samples, states = together(states, jax.tree.map(lambda *x: np.stack(x), *parts), keys, priority)
        results = [step(*x) for x in zip(apart, parts, keys, priority, strict=True)]
        apart = [x[2] for x in results]
        jax.tree.map(lambda x, *y: np.testing.assert_array_equal(x, np.stack(y)), samples, *(x[1] for x in results))
        jax.tree.map(lambda x, *y: np.testing.assert_array_equal(x, np.stack(y)), states, *apart)


@pytest.mark.weekly("uniform", "three steps")
@pytest.mark.parametrize("view", ["three steps", "overlapping"])
@pytest.mark.parametrize("kind", ["uniform", "prioritised"])
def test_a_donated_ring_is_written_in_place(kind, view):
    """By one addition, and by a loop of additions, samples and updates; observations are small, so all else counts."""
    num_rows, num_envs = 2**14, 4
    buffer = make(Ring(kind, view), num_rows=num_rows, num_envs=num_envs)
    trajectory = Transition(
        *(np.zeros((8, num_envs, *shape), np.float32) for shape in [(4,), (), (), (), (), (4,)]), ()
    )
    trajectory = trajectory._replace(terminated=np.zeros((8, num_envs), bool), truncated=np.zeros((8, num_envs), bool))
    state = jax.eval_shape(buffer.init, at(trajectory, 0, 0))
    trajectories = jax.tree.map(lambda x: np.stack([x] * 3), trajectory)
    keys = jax.random.split(jax.random.key(0), 3)
    size = trees.nbytes(state)
    for run, arguments in [(buffer.add, (trajectory,)), (scanned(buffer), (trajectories, keys))]:
        memory = jax.jit(run, donate_argnums=0).lower(state, *arguments).compile().memory_analysis()
        assert memory.alias_size_in_bytes >= size
        assert memory.temp_size_in_bytes < 0.05 * size


def test_what_cannot_be():
    with pytest.raises(ValueError, match="num_rows = 1:"):
        make(Ring(), num_rows=1)
    with pytest.raises(ValueError, match="num_rows = 6:"):
        make(Ring("prioritised", "overlapping", 3), num_rows=6)
    with pytest.raises(ValueError, match="num_rows = 13:"):
        make(Ring(view="overlapping"), num_rows=13)
    with pytest.raises(ValueError, match="below 2\\^31"):
        make(Ring(), num_rows=2**20, num_envs=2**11)
    rows = history(1, np.zeros((5, ENVS), int))
    for ring, num_steps in [(Ring(), 5), (Ring("prioritised", "overlapping"), 3)]:
        with pytest.raises(ValueError, match=f"a trajectory of {num_steps} steps: must divide num_rows = 12"):
            make(ring).add(programs(ring)[0], at(rows, slice(num_steps)))


def test_a_termination_does_not_end_the_count_of_steps():
    """Three steps from row 0, whose second terminates: worth two rewards, discount 0, and an observation of row 3; cut
    in row 3, the transition from row 1 looks no further than there."""
    flags = {"terminated": jnp.arange(5) == 1, "truncated": jnp.arange(5) == 3}
    column = {name: flag[:, None] for name, flag in flags.items()}
    obs, reward = jnp.arange(10.0, 15.0)[:, None], 2.0 ** jnp.arange(5)[:, None]
    items = Transition(obs=obs, action=reward, reward=reward, next_obs=(), extras=-obs, **column)
    result, usable = replay.transitions(3, 0.5).read(items, jnp.array([0, 1, 2, 3]), jnp.zeros(4, int), 1)
    assert usable.tolist() == [True, True, True, False]
    assert result.reward.tolist()[:3] == [1 + 0.5 * 2, 2, 4] and result.discount.tolist()[:3] == [0, 0, 0.5]
    assert result.next_obs.tolist()[:3] == [13, 13, 13] and result.next_extras.tolist()[:3] == [-13, -13, -13]
