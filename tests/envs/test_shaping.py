"""MatrixShaping-v0: its order of events, by a plain loop in numpy; its opponents; who meets whom."""

import jax.numpy as jnp
import numpy as np
import pytest
from fleets import play

from purerl import envs
from purerl.errors import ConfigError

SIGMOID = lambda x: 1 / (1 + np.exp(-np.asarray(x, np.float64)))
LOGIT = lambda p: np.log(p / (1 - p))
SWAP = [0, 1, 3, 2, 4]
DILEMMA = np.array([-1.0, -3.0, 0.0, -2.0])
PENNIES = np.array([1.0, -1.0, -1.0, 1.0])


def payoffs(one, other, reward, gamma=0.96):
    """Per round, of whoever has ``reward``: by a solve of the chain of probabilities ``[5]``."""
    p, q = one, other[SWAP]
    outcomes = np.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)])
    return (1 - gamma) * np.linalg.solve(np.eye(4) - gamma * outcomes[:, 1:], outcomes[:, 0]) @ reward


def naive(learner, other, reward):
    slope = [payoffs(SIGMOID(learner + d), SIGMOID(other), reward) for d in 1e-5 * np.eye(5)]
    slope = np.array(slope) - [payoffs(SIGMOID(learner - d), SIGMOID(other), reward) for d in 1e-5 * np.eye(5)]
    return learner + slope / 2e-5 / 0.04  # not per round, but of the sum


def played(env, actions, num_envs=1):
    """What is seen first ``[B, ...]``, then what is seen after and Steps ``[T, B, ...]`` of ``actions``."""
    obs, _, _, seen, made = play(env, num_envs, len(actions), actions=jnp.asarray(actions))
    return obs, seen, made


@pytest.mark.rest
@pytest.mark.parametrize(
    ("game", "mine", "theirs"), [("prisoners-dilemma", DILEMMA, DILEMMA), ("matching-pennies", PENNIES, -PENNIES)]
)
def test_the_order_of_events(game, mine, theirs):
    """The learner has learned once before the first game, and after each game from that game's policies; what is seen
    is what was played."""
    env = envs.make("MatrixShaping-v0", game=game, max_steps=5)
    actions = np.random.default_rng(1).normal(size=(10, 1, 5)).astype(np.float32)
    obs, seen, made = played(env, actions)
    shown = obs[0]
    for t in range(10):
        learner = naive(LOGIT(shown[5:].astype(np.float64)), LOGIT(shown[:5].astype(np.float64)), theirs)
        own = SIGMOID(actions[t, 0])
        np.testing.assert_allclose(made.next_obs[t, 0], [*own, *SIGMOID(learner)], atol=2e-3)
        exact = made.next_obs[t, 0, 5:].astype(np.float64)
        np.testing.assert_allclose(made.reward[t, 0], payoffs(own, exact, mine), atol=1e-4)
        assert made.truncated[t, 0] == (t % 5 == 4) and not made.terminated[t, 0]
        shown = seen[t, 0]
        assert (shown == made.next_obs[t, 0]).all() != made.truncated[t, 0]


@pytest.mark.weekly
def test_what_fixed_strategies_earn():
    """Tit-for-tat teaches a naive learner to cooperate, defection to defect: the published table within 0.03."""
    env = envs.make("MatrixShaping-v0")
    for logits, mine, theirs in (([1, 1, -1, 1, -1], -1.01, -1.02), ([-1] * 5, -1.98, -2.01)):
        actions = np.broadcast_to(20 * np.array(logits, np.float32), (100, 256, 5))
        made = played(env, actions, num_envs=256)[-1]
        assert abs(made.reward.mean() - mine) <= 0.03
        both = made.next_obs.astype(np.float64).reshape(-1, 10)[::17]
        other = np.mean([payoffs(row[5:], row[:5], DILEMMA) for row in both])
        assert abs(other - theirs) <= 0.04


@pytest.mark.weekly
def test_what_the_agent_sees_of_a_hidden_opponent():
    actions = np.random.default_rng(1).normal(size=(6, 2, 5)).astype(np.float32)
    (_, full_obs, full), (_, hidden_obs, hidden) = (
        played(envs.make("MatrixShaping-v0", max_steps=4, hide_opponent=hide), actions, num_envs=2) for hide in (0, 1)
    )
    np.testing.assert_array_equal(hidden.reward, full.reward)
    np.testing.assert_array_equal(hidden_obs, full_obs[..., :5])


@pytest.mark.rest
def test_two_shapers_meet_learners_and_each_other():
    """With probability 1 each meets the learner of its own seat, with 0 the other; and the fall between."""
    actions = np.random.default_rng(1).normal(size=(6, 3, 2, 5)).astype(np.float32)
    env = envs.make("MatrixShaping-v0", game="matching-pennies", opponent="self", naive=0.0, max_steps=3)
    made = played(env, actions, num_envs=3)[-1]
    probabilities = SIGMOID(actions)
    np.testing.assert_allclose(
        made.next_obs, np.concatenate([probabilities, probabilities[:, :, ::-1]], axis=-1), atol=1e-6
    )
    np.testing.assert_allclose(made.reward[..., 0], -made.reward[..., 1], atol=1e-6)
    expected = payoffs(probabilities[0, 0, 0], probabilities[0, 0, 1], PENNIES)
    np.testing.assert_allclose(made.reward[0, 0], [expected, -expected], atol=1e-5)

    env = envs.make("MatrixShaping-v0", game="matching-pennies", opponent="self", naive_decrease=0.25, max_steps=1)
    _, seen, made = played(env, np.tile(actions[:5, :1], (1, 400, 1, 1)), num_envs=400)
    each_other = (made.next_obs[..., 0, 5:] == made.next_obs[..., 1, :5]).all(axis=-1)
    np.testing.assert_allclose(each_other.mean(axis=1), [0, 0.25, 0.5, 0.75, 1], atol=0.1)
    for t in range(1, 5):  # what a learner plays has been learned from what was seen before
        shown = seen[t - 1].astype(np.float64)
        b = int(np.argmin(each_other[t]))
        if not each_other[t, b]:
            for seat, theirs in ((0, -PENNIES), (1, PENNIES)):
                learner = naive(LOGIT(shown[b, seat, 5:]), LOGIT(shown[b, seat, :5]), theirs)
                np.testing.assert_allclose(made.next_obs[t, b, seat, 5:], SIGMOID(learner), atol=2e-3)


@pytest.mark.weekly
def test_lola_is_an_opponent():
    """Against defection it defects, and it differs from the naive learner."""
    actions = np.full((100, 32, 5), -20, np.float32)
    lola, plain = (
        played(envs.make("MatrixShaping-v0", opponent=x), actions, num_envs=32)[-1] for x in ("lola", "naive")
    )
    assert lola.reward.mean() < -1.9 and np.isfinite(lola.next_obs).all()
    assert np.abs(lola.next_obs - plain.next_obs)[1].max() > 0.01


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"game": "climbing"}, "game = 'climbing': must be one of prisoners-dilemma"),
        ({"opponent": "none"}, "opponent = 'none':"),
        ({"discount": 1.0}, r"discount = 1.0:"),
        ({"hide_opponent": 2}, "hide_opponent = 2:"),
    ],
)
def test_what_cannot_be(params, message):
    with pytest.raises(ConfigError, match=message):
        envs.make("MatrixShaping-v0", **params)


@pytest.mark.weekly
@pytest.mark.parametrize("params", [{"opponent": "lola"}, {"opponent": "self"}])
def test_contract(params):
    envs.check_env(envs.make("MatrixShaping-v0", max_steps=8, **params), num_steps=24, num_envs=8)
