"""Returns by seat and games won: beside a plain loop, and in games whose winner is known by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hand_games import GAMES, on_device, on_host

from purerl import exact, ppo, shards
from purerl.envs.fleet import fleet
from purerl.envs.hosted import from_host
from purerl.formulas.outcomes import outcomes
from purerl.loops import trainers
from purerl.loops.evaluation import Player, evaluate, play, random_player, versus
from purerl.loops.rollout import episode_metrics
from purerl.loops.seat_metrics import FEW, labels
from purerl.runs.reading import host_evaluation, seat_results
from purerl.runs.reading.host_evaluation import Playing, Venue
from purerl.store import metrics as logged
from purerl.types import Transition


def still(env):
    """A player that does nothing."""
    return Player(lambda here, key: (jnp.zeros(here.obs.shape[0], jnp.int32), here.carry), lambda rows: ())


def played(reward, over):
    """A trajectory of which these rewards and ends of games alone are of interest."""
    reward = jnp.asarray(reward, jnp.float32)
    over = jnp.asarray(over)
    return Transition((), (), reward, over, jnp.zeros_like(over), (), ())


@pytest.mark.parametrize("num_agents", [2, 3, FEW + 1])
def test_beside_a_plain_loop(num_agents):
    """Several games in a row, some over trajectories; in a draw and a tie of three nobody has won."""
    rng, copies = np.random.default_rng(num_agents), 3
    env = on_device("first")._replace(num_agents=num_agents)
    step = jax.jit(functools.partial(episode_metrics, env=env))
    before, length = exact.zeros(copies * num_agents), jnp.zeros(copies * num_agents, jnp.int32)
    total, chunks = np.zeros((copies, num_agents)), []
    for chance in (0.4, 0.0, 1.0, 0.1):
        reward = rng.integers(-1, 2, (8, copies, num_agents)).astype(float)
        over, ended = rng.random((8, copies)) < chance, []
        for t in range(8):
            total += reward[t]
            ended += list(total[over[t]].copy())
            total[over[t]] = 0
        rows = np.repeat(over, num_agents, axis=1)
        before, length, metrics = step(before, length, played(reward.reshape(8, -1), rows))
        chunks.append(ended)
        returns = np.array(ended or np.full((1, num_agents), np.nan))
        each = returns.mean(axis=0)
        alone = np.array([(game.max() == game).sum() == 1 for game in ended])
        won = [np.mean([game.argmax() == seat and lone for game, lone in zip(ended, alone, strict=True)] or np.nan)
               for seat in range(num_agents)]  # fmt: skip
        told = (lambda x: x) if num_agents <= FEW else (lambda x: [np.min(x), np.max(x)])
        for name, expected in (("episode_return", told(each)), ("won", told(won))):
            result = [metrics[f"{name}/{seat}"] for seat in labels(num_agents)]
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(metrics["drawn"], np.mean(~alone) if ended else np.nan, rtol=1e-6)
        assert metrics["episodes"] == len(ended) * num_agents
    assert len(chunks[1]) == 0 and len(chunks[2]) == 24
    assert sum(len(chunk) for chunk in chunks) > 30


@pytest.mark.rest
def test_draws_of_returns_that_rounding_could_part():
    """Both earn 0.3, one in three parts and one at once; and a game that begins with 2^24 ends in a draw."""
    env = on_device("first")
    reward = np.array([[0.1, 0.3], [0.1, 0.0], [0.1, 0.0], [2.0**24, 2.0**24 + 2], [1.0, 0.0], [1.0, 0.0]])
    over = np.zeros((6, 2), bool)
    over[[2, 5]] = True
    metrics = episode_metrics(exact.zeros(2), jnp.zeros(2, jnp.int32), played(reward, over), env)[2]
    assert metrics["drawn"] == 1 and metrics["won/0"] == metrics["won/1"] == 0


def test_one_agent_and_rows_of_nothing_have_no_seats():
    trajectory = played(np.ones((4, 2)), np.ones((4, 2), bool))
    given = exact.zeros(2), jnp.zeros(2, jnp.int32), trajectory
    for env in (None, on_device("first")._replace(num_agents=1)):
        assert set(episode_metrics(*given, env)[2]) == {"episode_return", "episode_length", "episodes"}
    team = episode_metrics(*given, on_device("team"))[2]
    assert not any(name.startswith(("won", "drawn")) for name in team) and team["episode_return/1"] == 1


@pytest.mark.rest
def test_halves_of_an_agent_tell_what_the_whole_does():
    """Of an agent in shards each has a part of the games."""
    rng, env = np.random.default_rng(0), on_device("first")
    reward, over = rng.integers(-1, 2, (9, 4, 2)), rng.random((9, 4)) < 0.4
    rows = played(reward.reshape(9, 8), np.repeat(over, 2, axis=1))
    told = lambda rows, size: episode_metrics(exact.zeros(size), jnp.zeros(size, jnp.int32), rows, env)[2]
    parts = jax.tree.map(lambda x: jnp.stack(jnp.split(x, 2, axis=1)), rows)
    halves = jax.vmap(lambda part: told(part, 4), axis_name=shards.AXIS)(parts)
    whole = told(rows, 8)
    assert 0 < whole["drawn"] < 1 and set(halves) == set(whole)
    for name, value in whole.items():
        np.testing.assert_allclose(halves[name], [value] * 2, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", GAMES)
def test_outcomes_by_hand(name):
    script = GAMES[name]
    given = np.array(script.returns, np.float32)
    for kind in (np.asarray, jnp.asarray):
        np.testing.assert_array_equal(outcomes(kind(given)), script.outcome)
    if script.zero_sum:
        assert sum(script.returns) == 0
    assert outcomes(np.array([np.nan, 1.0])).tolist() == [-1, -1]


@pytest.mark.parametrize("name", GAMES)
def test_evaluations_by_hand(name, key):
    """On the device and on the host, of five games; agents that left are paid no more."""
    script, env = GAMES[name], on_device(name)
    number = len(script.leave)
    host = from_host(on_host(name))
    assert host.zero_sum == env.zero_sum
    result = play(key, env, still(env), 5, 50)
    playing = Playing(lambda given: (host, still(host)), host_evaluation.ends)
    venue = Venue(2)
    hosted = host_evaluation.evaluate(playing, venue, key[None], (np.zeros(1),), 5, 50, 2)
    venue.close()
    for returns, outcome, length in (
        (result.episode_return, result.outcome, result.episode_length),
        (hosted.episode_return[0], hosted.outcome[0], hosted.episode_length[0]),
    ):
        np.testing.assert_array_equal(np.reshape(returns, (5, number)), [script.returns] * 5)
        np.testing.assert_array_equal(np.reshape(outcome, (5, number)), [script.outcome] * 5)
        np.testing.assert_array_equal(np.reshape(length, (5, number)), [script.leave] * 5)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["first", "one_of_three", "apart_at_odds", "team"])
def test_a_training_tells_them(name, key):
    """Whole trainings, of which every number is known by hand; and their means over iterations."""
    script = GAMES[name]
    config = ppo.Config(num_envs=4, num_steps=6, num_minibatches=1, hidden_sizes=(4,))
    made = trainers.train(ppo.make_trainer(config, on_device(name)), 2)
    metrics = {name: np.asarray(x)[:, None] for name, x in jax.jit(made)(key).metrics.items()}
    means = logged.means(metrics)
    for seat, (paid, outcome) in enumerate(zip(script.returns, script.outcome, strict=True)):
        assert means[f"episode_return/{seat}"] == paid
        if script.zero_sum:
            assert means[f"won/{seat}"] == (outcome == 1) and means["drawn"] == (0 in script.outcome)
    assert ("drawn" in metrics) == script.zero_sum
    length = max(script.leave)
    assert metrics["episodes"].sum() == len(script.leave) * 4 * (12 // length)


@pytest.mark.parametrize("name", ["first", "one_of_three"])
def test_one_seat_against_the_others(name, key):
    """Who plays the seat that wins has won, who plays another has lost: a half of two seats, a third of three."""
    script, env = GAMES[name], on_device(name)
    number = len(script.leave)
    result = versus(key, env, still(env), random_player(env), 4 * number, 50)
    np.testing.assert_array_equal(result.outcome, script.outcome * 4)
    known, whole = np.ones(1, bool), np.asarray(result.outcome)[None]
    told = seat_results.by_seat(np.asarray(result.episode_return)[None], whole, number, counted=True)
    assert told["seats"] == labels(number) and told["seat_return_per_seed"] == [script.returns]
    assert told["seat_won_per_seed"] == [[float(x == 1) for x in script.outcome]]
    assert told["seat_lost_per_seed"] == [[float(x == -1) for x in script.outcome]]
    shares = seat_results.shares(whole, known)
    assert shares["won_per_seed"] == [script.outcome.count(1) / number] and shares["drawn_per_seed"] == [0]
    low, high = shares["won_interval_per_seed"][0]
    assert 0 < low < 1 / number < high < 1
    assert np.isnan(seat_results.shares(whole, ~known)["won_per_seed"]).all()


def test_seats_without_a_game_and_many_seats():
    returns, outcome = np.array([[1.0]]), np.array([[1]])
    told = seat_results.by_seat(returns, outcome, 2, counted=True)
    assert told["seat_won_per_seed"][0][0] == 1 and np.isnan(told["seat_won_per_seed"][0][1])
    assert np.isnan(told["seat_return_per_seed"][0][1]) and np.isnan(told["seat_won_interval_per_seed"][0][1]).all()
    many = seat_results.by_seat(np.arange(20.0)[None], np.zeros((1, 20)), 10, counted=True)
    assert many == {"seats": ["least", "largest"], "seat_return_per_seed": [[5.0, 14.0]]}
    columns = seat_results.columns({"seats": ["0", "1"], "seat_return_per_seed": [[1.0, -1.0]],
                                    "seat_won_per_seed": [[0.5, 0.25]]})  # fmt: skip
    assert columns == {"return/0": [1], "return/1": [-1], "won/0": [0.5], "won/1": [0.25], "drawn": [0.25]}


@pytest.mark.rest
def test_several_agents_are_evaluated_with_outcomes(key):
    env = on_device("first")
    learner = ppo.make_learner(ppo.Config(hidden_sizes=(4,)), env)
    policy = learner.policy(learner.init(key, fleet(env, 1).reset(key)[1]))
    assert evaluate(key, env, learner, policy, 3).outcome.tolist() == [1, -1] * 3
