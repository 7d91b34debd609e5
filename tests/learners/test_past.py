"""Past selves: who plays which row, what is learned from, what is kept of them, and the record against them."""

import dataclasses
import functools

import counting_learner
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import a2c, envs, ppo, trees
from purerl.learners.wrappers.past import against_past, num_games, problems, seats
from purerl.types import Situation, Transition

T, GAMES, MET, KEPT = 3, 4, 2, 3
SETTINGS = {
    "num_envs": 6,
    "num_steps": T,
    "opponents": "past",
    "past_selves": KEPT,
    "past_met": MET,
    "past_games": GAMES,
    "snapshot_period": 11,
}
CONFIG = ppo.Config(**SETTINGS)
KEY = jax.random.key(0)
trajectory = functools.partial(counting_learner.trajectory, T)


def against(config, num_agents, learner=None):
    """A learner that counts its updates, and meets its past selves."""
    num_rows = seats(config, config.num_envs, num_agents).learned.size
    count = counting_learner.counting(T, num_rows, lambda obs: jnp.zeros((), jnp.int32))
    return against_past(config, config.num_envs, num_agents, learner or count)


@pytest.fixture(scope="module")
def pair():
    """Two agents: the learner, its state after `init`, and its update, jitted."""
    learner = against(CONFIG, 2)
    return learner, learner.init(KEY, jnp.zeros(12, jnp.int32)), jax.jit(counting_learner.learn_from(learner))


def roles(num_agents):
    """Of each row: the place in ``met`` of who plays it, None for the learner."""
    return [
        None if env >= GAMES or agent == env % num_agents else env // (GAMES // MET)
        for env in range(CONFIG.num_envs)
        for agent in range(num_agents)
    ]


@pytest.mark.parametrize("num_agents", [2, 3])
def test_seats(num_agents):
    """Every row is learned from or is a past self's; the learner has one seat in each game, which takes turns."""
    where, result = seats(CONFIG, CONFIG.num_envs, num_agents), roles(num_agents)
    assert sorted([*where.learned, *where.theirs.reshape(-1)]) == list(range(CONFIG.num_envs * num_agents))
    assert where.learned.tolist() == [row for row, role in enumerate(result) if role is None]
    for i in range(MET):
        assert where.theirs[i].tolist() == [row for row, role in enumerate(result) if role == i]
        games = range(i * GAMES // MET, (i + 1) * GAMES // MET)
        assert where.ours[i].tolist() == [game * num_agents + game % num_agents for game in games]


def test_a_fifth_of_the_games_by_default():
    for num_envs, met, expected in ((40, 4, 8), (64, 4, 12), (8, 4, 4), (10, 1, 2)):
        config = ppo.Config(**SETTINGS | {"num_envs": num_envs, "past_met": met, "past_games": 0})
        assert num_games(config, num_envs) == expected


@pytest.mark.parametrize("num_agents", [2, 3])
def test_who_plays_which_row(num_agents):
    """Past selves act on their own rows' observations, noise and memories; those of the learner are as without them."""
    size, result = CONFIG.num_envs * num_agents, roles(num_agents)
    learner, rows = against(CONFIG, num_agents), np.arange(size, dtype=np.int32)
    state = learner.init(KEY, jnp.asarray(rows))
    state = state._replace(
        learner=state.learner._replace(params=jnp.int32(5)),
        past=jnp.array([10, 20, 30], jnp.int32),
        met=jnp.array([2, 0], jnp.int32),
    )
    behaviour, here = learner.behaviour(state), Situation(rows, 1000 * rows)
    action, carry, extras = jax.jit(learner.explore)(behaviour, here, rows)
    version = np.array([5 if role is None else [30, 10][role] for role in result])
    np.testing.assert_array_equal(action, 10_000 * version + 101 * rows)
    np.testing.assert_array_equal(carry, 1000 * rows + version)
    np.testing.assert_array_equal(extras, rows)
    assert learner.policy(state) == ("policy", 5)


def test_only_its_own_rows_are_learned_from(pair):
    _, state, update = pair
    data, rows = trajectory(12), seats(CONFIG, CONFIG.num_envs, 2).learned
    action, extras = update(state, data, KEY)[0].learner.given
    np.testing.assert_array_equal(action, data.action[:, rows])
    np.testing.assert_array_equal(extras, data.extras[:, rows])


def test_snapshots(pair):
    """Nothing but the oldest past self changes, and only when a new one takes its place."""
    _, state, update = pair
    past = np.zeros(KEPT, int)
    for age in range(1, 45):
        before = state
        state, metrics, _ = update(state, trajectory(12), jax.random.key(age))
        if age % 11 == 0:
            past[age // 11 % KEPT] = age - 1
        np.testing.assert_array_equal(state.past, past)
        np.testing.assert_array_equal(state.present, np.arange(KEPT) <= age // 11)
        assert metrics["past_selves"] == min(1 + age // 11, KEPT)
        assert np.all(np.asarray(state.met) <= age // 11)
        assert jax.tree.structure(before) == jax.tree.structure(state)
        assert [x.aval for x in jax.tree.leaves(before)] == [x.aval for x in jax.tree.leaves(state)]
    assert state.age == 44 and past.tolist() == [32, 43, 21]


def test_record(pair):
    """Sums over the games that ended, of the learner's own row in each, by hand; a new past self has none."""
    learner, state, update = pair
    rng = np.random.default_rng(4)
    reward = rng.choice([-2.0, 0.0, 0.5], size=(T, 12)).astype(np.float32)
    last = np.repeat(rng.random((T, 6)) < 0.8, 2, axis=1)
    state = state._replace(
        present=jnp.array([True, True, False]),
        quality=jnp.array([0.3, -0.4, 9.0]),
        score=jnp.array([3.0, 4.0, 0.0]),
        games=jnp.array([6.0, 5.0, 0.0]),
    )
    chance = np.exp([0.3, -0.4]) / np.sum(np.exp([0.3, -0.4]))
    for met in ([1, 0], [1, 1]):
        score, games, quality = np.array([3.0, 4, 0]), np.array([6.0, 5, 0]), np.array([0.3, -0.4, 9])
        for i in set(met):
            score[i], games[i] = 0.99 * score[i], 0.99 * games[i]
        won = []
        for game in range(GAMES):
            row, opponent = 2 * game + game % 2, met[game // 2]
            for t in np.flatnonzero(last[:, row]):
                won.append({-2.0: 0.0, 0.0: 0.5, 0.5: 1.0}[float(reward[t, row])])
                score[opponent] += won[-1]
                games[opponent] += 1
                quality[opponent] -= 0.01 * (won[-1] == 1) / (2 * chance[opponent])
        assert {0.0, 0.5, 1.0} == set(won)
        result, metrics, _ = update(state._replace(met=jnp.array(met, jnp.int32)), trajectory(12, reward, last), KEY)
        np.testing.assert_allclose(result.score, score, rtol=1e-6)
        np.testing.assert_allclose(result.games, games, rtol=1e-6)
        np.testing.assert_allclose(result.quality, quality, rtol=1e-6)
        np.testing.assert_allclose(metrics["score_against_past"], np.mean(won), rtol=1e-6)
    entered, *_ = update(state._replace(age=jnp.int32(10), score=state.score + 5), trajectory(12), KEY)
    np.testing.assert_allclose(entered.quality, [0.3, 0.3, 9.0], rtol=1e-6)
    np.testing.assert_array_equal(entered.games, np.float32([6 * 0.99, 0, 0]))
    np.testing.assert_array_equal(np.asarray(entered.score) > 0, [True, False, True])
    assert np.isnan(update(state, trajectory(12), KEY)[1]["score_against_past"])


def met_after(config, **change):
    """Who is met in 40 iterations, after a state with these changes."""
    learner = against(config, 2)
    state = learner.init(KEY, jnp.zeros(12, jnp.int32))._replace(**change)
    update = jax.jit(jax.vmap(counting_learner.learn_from(learner), in_axes=(None, None, 0)))
    return np.asarray(update(state, trajectory(12), jax.random.split(KEY, 40))[0].met).reshape(-1)


def test_who_is_met():
    """By quality, or by how rarely the learner wins; never one that there is not."""
    there = jnp.array([True, True, False])
    past = met_after(CONFIG, present=there, quality=jnp.array([0.0, np.log(3.0), 9.0]))
    assert set(past) == {0, 1} and 0.6 < np.mean(past == 1) < 0.9
    hardest = dataclasses.replace(CONFIG, opponents="prioritised")
    record = {"score": jnp.array([10.0, 0.0, 0.0]), "games": jnp.array([10.0, 10.0, 0.0])}
    assert set(met_after(hardest, present=there, quality=jnp.array([9.0, 0.0, 0.0]), **record)) == {1}
    unmet = met_after(hardest, present=~there | there, **{**record, "score": jnp.array([10.0, 9.0, 0.0])})
    assert set(unmet) <= {1, 2} and np.mean(unmet == 2) > 0.8  # an unmet one counts as one half


@pytest.fixture(scope="module")
def real():
    """PPO with a memory and everything that it normalises: alone and against past selves, and random experience."""
    env = envs.make("KuhnPoker-v0")
    alone = ppo.Config(
        **SETTINGS | {"opponents": "latest"},
        total_steps=60,
        memory="gru",
        memory_size=4,
        sequence_length=T,
        hidden_sizes=(5,),
        num_epochs=1,
        num_minibatches=2,
        normalize_obs=True,
        normalize_reward=True,
    )
    config = dataclasses.replace(alone, opponents="past", snapshot_period=1)
    assert ppo.problems(config, env) == []
    plain, learner = (ppo.make_learner(x, env) for x in (alone, config))
    obs = jnp.zeros((12, 9), bool)
    state = jax.jit(learner.init)(KEY, obs)
    rng = np.random.default_rng(0)

    def random(x, lead):
        if x.dtype == bool:
            return jnp.asarray(rng.random((*lead, *x.shape)) < 0.5)
        if x.dtype == jnp.int32:
            return jnp.asarray(rng.integers(2, size=(*lead, *x.shape)), jnp.int32)
        return jnp.asarray(rng.normal(size=(*lead, *x.shape)), jnp.float32)

    def experience():
        carry = jax.eval_shape(lambda: learner.init_carry(1))
        here = Situation(obs, learner.init_carry(12))
        shapes = jax.eval_shape(learner.explore, learner.behaviour(state), here, learner.noise(KEY, (12,)))
        extras = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes[2])
        assert jax.tree.structure(extras.carry) == jax.tree.structure(carry)
        one = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype)
        flag, seen = one((), bool), one((9,), bool)
        like = Transition(seen, one((), jnp.int32), one((), jnp.float32), flag, flag, seen, extras)
        made = jax.tree.map(lambda x: random(x, (T, 12)), like)
        return made._replace(truncated=made.truncated & ~made.terminated)

    past = jax.tree.map(lambda x: random(x, ()) if x.dtype == jnp.float32 else x, state.past)
    return plain, learner, state, past, experience


@pytest.mark.rest
def test_what_past_selves_did_is_not_learned_from(real):
    """Nothing of their rows moves anything: parameters, normalisers, or the record."""
    _, learner, state, _, experience = real
    one, other = experience(), experience()
    theirs = np.isin(np.arange(12), seats(CONFIG, CONFIG.num_envs, 2).theirs)
    mixed = jax.tree.map(lambda x, y: jnp.where(theirs.reshape(1, -1, *[1] * (x.ndim - 2)), y, x), one, other)
    update = jax.jit(counting_learner.learn_from(learner))
    result, again, moved = (update(state, x, KEY) for x in (one, mixed, other))
    jax.tree.map(np.testing.assert_array_equal, result, again)
    differs = jax.tree.map(lambda x, y: np.any(x != y), result[0].learner, moved[0].learner)
    assert all(jax.tree.leaves(differs.params)) and differs.reward_scale.moments.mean
    entered = jax.tree.map(lambda x, y: np.array_equal(x[1], y), result[0].past.params, state.learner.params)
    assert all(jax.tree.leaves(entered))


@pytest.mark.rest
def test_past_selves_act_and_remember_as_they_did(real):
    """Their rows, also what these remember, are those of a learner with their parameters and normalisers."""
    plain, learner, state, past, experience = real
    data = experience()
    obs, carry = data.obs[0], jax.tree.map(lambda x: x[0], data.extras.carry)
    noise = learner.noise(KEY, (12,))
    state = state._replace(past=past, met=jnp.array([2, 1], jnp.int32))
    action, following, _ = jax.jit(learner.explore)(learner.behaviour(state), Situation(obs, carry), noise)
    where, explore = seats(CONFIG, CONFIG.num_envs, 2), jax.jit(plain.explore)
    for rows, version in ((where.learned, None), (where.theirs[0], 2), (where.theirs[1], 1)):
        acting = plain.behaviour(state.learner) if version is None else trees.take(past, version)
        expected = explore(acting, Situation(obs, carry), noise)
        np.testing.assert_array_equal(action[rows], expected[0][rows])
        jax.tree.map(
            lambda x, y, rows=rows: np.testing.assert_allclose(x[rows], y[rows], atol=1e-5), following, expected[1]
        )


def test_latest_is_the_algorithm_itself(real):
    plain, _, state, *_ = real
    shapes = jax.eval_shape(plain.init, KEY, jnp.zeros((12, 9), bool))
    assert jax.tree.structure(shapes) == jax.tree.structure(state.learner)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"past_games": 3}, "past_games = 3:"),
        ({"past_games": 8}, "past_games = 8:"),
        ({"num_envs": 1, "past_games": 0}, "past_games = 2:"),
        ({"num_minibatches": 9}, "num_minibatches = 9: must divide the 24 steps"),
        ({"num_minibatches": 6, "memory": "gru", "sequence_length": 3}, "num_minibatches = 6:"),
        ({"num_minibatches": 4, "memory": "gru", "sequence_length": 0}, None),
        ({}, None),
    ],
)
def test_problems(change, line):
    config = dataclasses.replace(CONFIG, **{"num_minibatches": 4, **change})
    lines = problems(config, envs.make("KuhnPoker-v0"))
    assert [each.startswith(line) for each in lines] == ([True] if line else [])


def test_problems_of_one_agent():
    assert problems(CONFIG, envs.make("CartPole-v1")) == ["opponents = 'past': CartPole-v1 has one agent"]
    assert (
        ppo.problems(dataclasses.replace(CONFIG, opponents="latest", num_minibatches=2), envs.make("CartPole-v1")) == []
    )
    assert problems(a2c.Config(**SETTINGS, memory="gru"), envs.make("KuhnPoker-v0")) == []
    lines = ppo.problems(dataclasses.replace(CONFIG, num_minibatches=0), envs.make("KuhnPoker-v0"))
    assert [line.partition(":")[0] for line in lines] == ["num_minibatches = 0"]
