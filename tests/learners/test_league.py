"""A league: who plays which row, whom everybody meets, what is kept of whom; the record, against a league by hand."""

import dataclasses
import functools

import counting_learner
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl import a2c, envs, ppo
from purerl.formulas.opponents import Payoff
from purerl.learners.families import actor_critic
from purerl.learners.wrappers import league_players
from purerl.learners.wrappers.league import leagued
from purerl.types import Situation

T, MATCHES, KEPT, ENVS = 4, 2, 4, 12
PLAYERS = ["main", "main exploiter", "league exploiter"]
CONFIG = ppo.Config(
    num_envs=ENVS,
    num_steps=T,
    opponents="league",
    past_selves=KEPT,
    past_met=MATCHES,
    snapshot_period=4,
    match_period=2,
)
KEY = jax.random.key(0)
trajectory = functools.partial(counting_learner.trajectory, T)
TOTAL = len(PLAYERS) + KEPT


def in_league(config, num_agents, learner=None):
    """A league of learners that count, each from its first row on."""
    count = counting_learner.counting(T, config.num_envs // len(PLAYERS), lambda obs: 1000 * obs[0])
    return leagued(config, config, config.num_envs, num_agents, learner or count)


@pytest.fixture(scope="module")
def pair():
    """Two agents: the league, its state after `init`, and its update, jitted."""
    learner = in_league(CONFIG, 2)
    state = learner.init(KEY, jnp.arange(2 * ENVS, dtype=jnp.int32))
    return learner, state, jax.jit(counting_learner.learn_from(learner))


def roles(num_agents):
    """Of each row: who owns it, the match, and whether it is the owner's own."""
    size, result = ENVS // len(PLAYERS) // MATCHES, []
    for env in range(ENVS):
        match = env // size
        seat = env % (size * MATCHES) % num_agents
        result += [(match // MATCHES, match % MATCHES, agent == seat) for agent in range(num_agents)]
    return result


@pytest.mark.rest
@pytest.mark.parametrize("num_agents", [2, 3])
def test_who_plays_which_row(num_agents):
    """Everybody acts on their own rows' observations, noise and memories; opponents are players by number."""
    rows, result = np.arange(ENVS * num_agents, dtype=np.int32), roles(num_agents)
    learner = in_league(CONFIG, num_agents)
    state = learner.init(KEY, jnp.asarray(rows))
    own = [[row for row, role in enumerate(result) if role[0] == i and role[2]] for i in range(len(PLAYERS))]
    np.testing.assert_array_equal(state.learner.params, [1000 * x[0] for x in own])
    np.testing.assert_array_equal(state.past, [0] * KEPT)
    assert np.all(np.isin(state.met[:2], [0, len(PLAYERS)])) and np.all(state.met[2] == len(PLAYERS))
    met = np.array([[0, 3], [0, 6], [5, 4]], np.int32)
    state = state._replace(
        learner=state.learner._replace(params=jnp.array([5, 6, 7], jnp.int32)),
        past=jnp.array([10, 20, 30, 40], jnp.int32),
        met=jnp.asarray(met),
    )
    behaviour, here = learner.behaviour(state), Situation(rows, 1000 * rows)
    action, carry, extras = jax.jit(learner.explore)(behaviour, here, rows)
    everyone = [5, 6, 7, 10, 20, 30, 40]
    version = np.array([everyone[i] if mine else everyone[met[i, j]] for i, j, mine in result])
    np.testing.assert_array_equal(action, 10_000 * version + 101 * rows)
    np.testing.assert_array_equal(carry, 1000 * rows + version)
    np.testing.assert_array_equal(extras, rows)
    assert learner.policy(state) == ("policy", 5)


@pytest.mark.rest
def test_everybody_learns_from_their_own_rows(pair):
    _, state, update = pair
    data = trajectory(2 * ENVS)
    after, metrics, _ = update(state, data, KEY)
    action, extras = after.learner.given
    for i in range(len(PLAYERS)):
        own = [row for row, role in enumerate(roles(2)) if role[0] == i and role[2]]
        np.testing.assert_array_equal(action[i], data.action[:, own])
        np.testing.assert_array_equal(extras[i], data.extras[:, own])
    np.testing.assert_array_equal(after.learner.params, state.learner.params + 1)
    assert metrics["loss"] == state.learner.params[0]


@pytest.mark.rest
def test_a_scripted_league(pair):
    """60 iterations of random games against a league kept in lists: records, versions, and who begins anew."""
    _, state, update = pair
    rng, players = np.random.default_rng(3), len(PLAYERS)
    numbers = np.asarray(state.learner.params).tolist()
    initial, since, resets = list(numbers), [0] * players, [[] for _ in PLAYERS]
    past, parent, kept = [0] * KEPT, [0, -1, -1, -1], 1
    games, whole = {}, np.ones((players, MATCHES, 2), bool)
    for age in range(1, 61):
        wins = 0.8 if age // 20 % 2 == 0 else 0.3
        reward = rng.choice([-1.0, 0.0, 1.0], size=(T, 2 * ENVS), p=[0.9 - wins, 0.1, wins])
        last = np.repeat(rng.random((T, ENVS)) < 0.9, 2, axis=1)
        before, met = state, np.asarray(state.met)
        state, metrics, _ = update(state, trajectory(2 * ENVS, reward, last), jax.random.key(age))
        numbers, since = [x + 1 for x in numbers], [x + 1 for x in since]
        against_past = []
        for row, (i, j, mine) in enumerate(roles(2)):
            if not mine:
                continue
            env = row // 2
            for t in np.flatnonzero(last[:, row]):
                if whole[i, j, env % 2] or last[:t, row].any():
                    points = (reward[t, row] + 1) / 2
                    games.setdefault((i, int(met[i, j])), []).append((age, j, t, env, points))
                    against_past += [points] if i == 0 and met[i, j] >= players else []
            whole[i, j, env % 2] |= last[:, row].any()
        np.testing.assert_allclose(metrics["score_against_past"], np.mean(against_past) if against_past else np.nan)
        if age % CONFIG.match_period:
            np.testing.assert_array_equal(state.met, met)
        else:
            whole = last[-1, ::2].reshape(whole.shape)
            rate, count = decayed(games.get((1, 0), []))
            ready = [since[0] >= 4, since[1] >= 8 or (rate > 0.7 and count >= 30), since[2] >= 4]
            start = [bool(ready[i] and state.learner.params[i] == initial[i]) for i in range(players)]
            assert metrics["exploiters_reset"] == sum(start)
            for i in np.flatnonzero(ready):
                slot = kept % KEPT
                past[slot], parent[slot], kept = numbers[i], i, kept + 1
                resets[i].append((since[i], start[i]))
                numbers[i], since[i] = initial[i] if start[i] else numbers[i], 0
                gone = {players + slot} | ({i} if start[i] else set())
                games = {pair: each for pair, each in games.items() if not gone & set(pair)}
        np.testing.assert_array_equal(state.learner.params, numbers)
        np.testing.assert_array_equal(state.past, past)
        np.testing.assert_array_equal(state.parent, parent)
        np.testing.assert_array_equal(state.kept_ago, since)
        np.testing.assert_array_equal(state.whole, whole)
        expected = np.zeros((2, TOTAL, TOTAL))
        for (i, j), each in games.items():
            if i != j:
                rate, count = decayed(each)
                expected[:, i, j] += rate * count, count
                expected[:, j, i] += (1 - rate) * count, count
        np.testing.assert_allclose(np.asarray(state.payoff), expected, atol=1e-3)
        assert jax.tree.structure(before) == jax.tree.structure(state)
        assert [x.aval for x in jax.tree.leaves(before)] == [x.aval for x in jax.tree.leaves(state)]
    assert resets[0] == [(4, False)] * 15
    assert {began for _, began in resets[1]} == {True} and {after for after, _ in resets[1]} == {4, 8}
    assert {began for _, began in resets[2]} == {True, False}


def decayed(games):
    """The win rate and the number of games, the last of weight 1, the one before 0.99, and so on."""
    points = [game[-1] for game in sorted(games, key=lambda game: game[:4])]
    weight = 0.99 ** np.arange(len(points))[::-1]
    return weight @ points / max(weight.sum(), 1), weight.sum()


@pytest.mark.rest
def test_who_is_met(pair):
    """After a match period, by the chances of the record as it then is; frequencies by chi-square."""
    _, state, update = pair
    rng = np.random.default_rng(5)
    rates = rng.uniform(0.05, 0.95, (TOTAL, TOTAL)).astype(np.float32)
    rates[0, [4, 5]], rates[1, 0], rates[2] = 0.2, 0.1, 0.6
    state = state._replace(
        payoff=Payoff(jnp.asarray(10 * rates), jnp.full((TOTAL, TOTAL), 10.0)),
        parent=jnp.array([0, 0, 1, 2], jnp.int32),
        age=jnp.int32(1),
    )
    many = jax.jit(jax.vmap(update, in_axes=(None, None, 0)))(state, trajectory(2 * ENVS), jax.random.split(KEY, 2000))[
        0
    ]
    np.testing.assert_array_equal(many.payoff.games[0], state.payoff.games)
    assert not many.whole.any()
    hard, variance = (1 - rates[0]) ** 2, rates[1] * (1 - rates[1])
    kept, missed = np.arange(TOTAL) >= 3, np.isin(np.arange(TOTAL), [4, 5])
    share = lambda x: x.astype(np.float64) / x.astype(np.float64).sum()
    forgot = missed | ((np.arange(TOTAL) == 3) & (rates[0] < 0.5))
    expected = [
        0.5 * share(hard * kept) + 0.15 * share(hard * forgot) + 0.35 * (np.arange(TOTAL) == 0),
        0.5 * (np.arange(TOTAL) == 0) + 0.5 * share(variance * np.isin(np.arange(TOTAL), [3, 4])),
        share(1.0 * kept),
    ]
    for i, chance in enumerate(expected):
        result = np.bincount(np.asarray(many.met[:, i]).reshape(-1), minlength=TOTAL)
        assert np.all(result[chance == 0] == 0)
        assert scipy.stats.chisquare(result[chance > 0], result.sum() * share(chance[chance > 0])).pvalue > 1e-3


@pytest.mark.weekly
def test_a_real_league():
    """A2C on Kuhn poker: versions are copies, of which no bit changes, and the policy is the main agent's."""
    env = envs.make("KuhnPoker-v0")
    config = a2c.Config(
        total_steps=12 * 3 * 22,
        num_envs=12,
        num_steps=3,
        opponents="league",
        past_selves=4,
        past_met=2,
        snapshot_period=10,
        match_period=5,
        hidden_sizes=(4,),
    )
    assert a2c.problems(config, env) == []
    trainer = a2c.make_trainer(config, env)
    _, states = jax.jit(lambda key: jax.lax.scan(lambda s, _: (trainer.step(s)[0],) * 2, trainer.init(key), None, 19))(
        KEY
    )
    learned, alive = states.learner, states.alive
    assert np.all(alive)
    np.testing.assert_array_equal(learned.parent[np.array([8, 9, 18])], [[0, -1, -1, -1], [0, 0, 2, -1], [0, 0, 2, -1]])
    for live, past in zip(jax.tree.leaves(learned.learner.params), jax.tree.leaves(learned.past.params), strict=True):
        np.testing.assert_array_equal(past[9:, 1], np.broadcast_to(live[9, 0], past[9:, 1].shape))
        np.testing.assert_array_equal(past[:, 0], np.broadcast_to(past[0, 0], past[:, 0].shape))
        assert np.all(live[18] != live[17])
    at_end = jax.tree.map(lambda x: x[-1], learned)
    policy = trainer.learner.policy(at_end)
    assert isinstance(policy, actor_critic.PolicyGradientPolicy)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[0]), policy.params, at_end.learner.params)
    assert at_end.payoff.games[1, 0] > 10 and np.all(at_end.payoff.score <= at_end.payoff.games)


@pytest.mark.parametrize(
    ("change", "name", "line"),
    [
        ({}, "KuhnPoker-v0", None),
        ({"past_selves": 2}, "KuhnPoker-v0", "past_selves = 2:"),
        ({"league_exploiters": 2}, "KuhnPoker-v0", "num_envs = 12:"),
        ({}, "CartPole-v1", "opponents = 'league': CartPole-v1 has one agent"),
        ({"num_minibatches": 5}, "KuhnPoker-v0", "num_minibatches = 5: must divide the 16 steps"),
    ],
)
def test_problems(change, name, line):
    config = dataclasses.replace(CONFIG, **change)
    problems = league_players.problems(config, envs.make(name))
    assert [problem.startswith(line) for problem in problems] == ([True] if line else [])
