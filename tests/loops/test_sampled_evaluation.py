"""Actions that an evaluation draws from a policy's distribution, beside what follows from its probabilities by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bandits import bandit, softmax_learner
from compiling import at_random

from purerl import (
    ConfigError,
    a2c,
    appo,
    disco,
    dqn,
    envs,
    evaluate,
    impala,
    ippo,
    mappo,
    masac,
    ppo,
    qmix,
    sac,
    sac_discrete,
    td3,
)
from purerl.algos import sac as sac_file
from purerl.algos import sac_discrete as sac_discrete_file
from purerl.loops.evaluation import chosen_by, versus
from purerl.loops.evaluation import player as player_of
from purerl.types import Situation

ROWS = 4096
PAYOFFS = np.array([1.0, 5.0, -2.0])
LOGITS = np.array([0.3, -0.4, 0.8])
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum()
CARTPOLE, PENDULUM = envs.make("CartPole-v1"), envs.make("Pendulum-v1")
SMALL = {"hidden_sizes": (8,), "num_envs": 2, "num_steps": 8}


def within(mean, expected, deviation, count=ROWS):
    """Whether a mean over so many draws lies within 4 standard errors of what is expected."""
    return np.all(np.abs(mean - expected) <= 4 * deviation / np.sqrt(count))


def policy_of(learner, env, key):
    _, obs = jax.eval_shape(jax.vmap(env.reset), jax.random.split(key, 2))
    obs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), obs)
    return at_random(lambda key: learner.policy(learner.init(key, obs)), key)


def drawn(learner, policy, obs, key):
    """Actions of ``ROWS`` rows with the same observation."""
    here = Situation(jax.tree.map(lambda x: jnp.broadcast_to(x, (ROWS, *x.shape)), obs), learner.init_carry(ROWS))
    return np.asarray(jax.jit(learner.sample)(policy, here, key)[0])


@pytest.mark.parametrize(
    ("algo", "config"),
    [
        (a2c, a2c.Config(**SMALL)),
        (sac_discrete, sac_discrete.Config(hidden_sizes=(8,))),
        (disco, disco.preset("catch")),
    ],
    ids=["a2c", "sac-discrete", "disco"],
)
def test_frequencies_are_the_softmax(algo, config, key):
    learner = algo.make_learner(config, CARTPOLE)
    policy, obs = policy_of(learner, CARTPOLE, key), jnp.array([0.5, -1.0, 2.0, 0.3])
    policy = jax.tree.map(lambda x: x / 8, policy) if algo is disco else policy  # whose layers are many
    if algo is sac_discrete:  # whose actor gives the logits
        logits = sac_discrete_file.make_network(config, CARTPOLE).act(policy.params, obs[None])
    else:
        logits = learner.explore(policy, Situation(obs[None], ()), learner.noise(key, (1,)))[2]
        logits = logits.policy if algo is a2c else logits.every
    logits = np.asarray(logits, np.float64)[0]
    p = np.exp(logits) / np.exp(logits).sum()
    share = np.bincount(drawn(learner, policy, obs, key), minlength=2) / ROWS
    assert p.min() > 0.05 and within(share, p, np.sqrt(p * (1 - p)))


def test_a_squashed_gaussian_is_drawn_whole(key):
    """Of Pendulum's torque in [-2, 2]: before its tanh it has the network's mean and standard deviation."""
    learner = sac.make_learner(config := sac.Config(hidden_sizes=(8,)), PENDULUM)
    policy, obs = policy_of(learner, PENDULUM, key), jnp.array([0.6, 0.8, 0.5])
    policy = policy._replace(params=jax.tree.map(lambda x: 0.3 * x, policy.params))
    outputs = np.asarray(sac_file.make_network(config, PENDULUM).act(policy.params, obs[None])[0], np.float64)
    mean, deviation = outputs[0], np.exp(outputs[1])
    before = np.arctanh(drawn(learner, policy, obs, key)[:, 0].astype(np.float64) / 2)
    assert within(before.mean(), mean, deviation) and abs(before.std() / deviation - 1) <= 4 / np.sqrt(2 * ROWS)


def pulls():
    env = bandit("three arms", lambda level, action, chance: jnp.asarray(PAYOFFS, jnp.float32)[action], lambda *_: 0)
    return env, softmax_learner()._replace(
        sample=lambda logits, here, key: (jax.random.categorical(key, logits, shape=(here.obs.shape[0],)), ())
    )


def test_returns_are_those_of_the_distribution(key):
    """Greedy play pulls the arm that pays -2; sampled play is paid the mean over the softmax. A key decides it."""
    env, learner = pulls()
    env = env._replace(levels=lambda key, shape: jnp.zeros(shape, jnp.int32))
    play = jax.jit(
        lambda key, sample: evaluate(key, env, learner, jnp.asarray(LOGITS), ROWS, 10, sample=sample).episode_return,
        static_argnums=1,
    )
    mean, deviation = SOFTMAX @ PAYOFFS, np.sqrt(SOFTMAX @ PAYOFFS**2 - (SOFTMAX @ PAYOFFS) ** 2)
    sampled = np.asarray(play(key, True))
    assert np.all(np.asarray(play(key, False)) == -2.0) and within(sampled.mean(), mean, deviation)
    np.testing.assert_array_equal(play(key, True), sampled)
    assert np.any(np.asarray(play(jax.random.key(1), True)) != sampled)


def test_draws_of_a_step_say_nothing_of_the_next(key):
    """Evaluations that reuse a key in every step draw the same actions along an episode."""
    env = envs.make("CartPole-v1", max_steps=8)
    learner = a2c.make_learner(a2c.Config(**SMALL), env)
    policy = jax.tree.map(jnp.zeros_like, policy_of(learner, env, key))  # both actions are as likely
    seen = []

    def watched(policy, here, key):
        action, carry = learner.sample(policy, here, key)
        jax.debug.callback(lambda x: seen.append(np.asarray(x)), action)
        return action, carry

    evaluate(key, env, learner._replace(sample=watched), policy, 1024, 8, sample=True)
    jax.effects_barrier()
    first, second = (2.0 * x - 1 for x in seen[:2])
    assert abs(np.mean(first * second)) <= 4 / np.sqrt(1024) and np.any(first != second)


@pytest.mark.rest
def test_illegal_actions_are_never_drawn(key):
    env = envs.make("TicTacToe-v0")
    learner = ppo.make_learner(ppo.Config(**SMALL), env)
    policy = policy_of(learner, env, key)
    state, obs = jax.vmap(env.reset)(jax.random.split(key, 1))
    obs = jax.tree.map(lambda x: x[0, 0], obs)
    legal = np.asarray(env.legal(jax.tree.map(lambda x: x[None], obs)))[0]
    assert legal[drawn(learner, policy, obs, key)].all()
    mine = player_of(learner, policy, sample=True)
    played = versus(key, env, mine, mine, 8, 9)
    assert np.all(played.finished)


WITH = {
    "past opponents": (ppo, "TicTacToe-v0", {"opponents": "past"}),
    "league": (ppo, "TicTacToe-v0", {"opponents": "league", "num_envs": 12}),
    "curriculum": (ppo, "Maze-v0", {"curriculum": "plr", "level_capacity": 8}),
    "novelty": (ppo, "CartPole-v1", {"intrinsic": "rnd"}),
    "reuse": (ppo, "CartPole-v1", {"max_uses": 2}),
    "lag": (impala, "CartPole-v1", {"max_lag": 2}),
    "appo": (appo, "CartPole-v1", {}),
    "teams": (ippo, "Permutation-v0", {}),
    "central critic": (mappo, "Permutation-v0", {}),
    "joint": (masac, "Landmarks-v0", {}),
    "continuous": (sac, "Pendulum-v1", {}),
}


@pytest.mark.parametrize("name", WITH)
def test_policies_with_a_distribution(name):
    """Wrappers and presets keep it."""
    algo, env, changed = WITH[name]
    config = dataclasses.replace(algo.Config(), **changed)
    assert algo.make_learner(config, envs.make(env)).sample is not None


@pytest.mark.parametrize(
    ("algo", "env"), [(dqn, CARTPOLE), (td3, PENDULUM), (qmix, envs.make("TwoStep-v0"))], ids=["dqn", "td3", "qmix"]
)
def test_policies_without_one_are_refused(algo, env, key):
    """Their exploration is epsilon or added noise, which is not the policy's."""
    learner = algo.make_learner(algo.Config(), env)
    with pytest.raises(ConfigError, match="sample = True: the algorithm's policy has no distribution"):
        chosen_by(learner, True)
    assert chosen_by(learner, False) is learner.exploit
