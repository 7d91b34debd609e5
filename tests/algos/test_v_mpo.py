"""V-MPO's own: its updates against numpy, the half of a batch that it learns from, its memory and its shards."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest
from flax import linen as nn

from purerl import check, envs, networks, shards, v_mpo
from purerl.algos.v_mpo import top_half
from purerl.formulas import divergences
from purerl.learners.families.actor_critic import Extras
from purerl.spaces import Box
from purerl.types import Transition

T, B, STEP_SIZE = 6, 2, 0.1
CARTPOLE = envs.make("CartPole-v1")
BOX = Box((-1.0, 2.0, -2.0), (1.0, 2.0, 2.0), (3,), jnp.float32)
"""Its second dimension is a constant."""
CONFIG = v_mpo.Config(
    total_steps=T * B * 10,
    num_envs=B,
    num_steps=T,
    num_epochs=10,
    num_minibatches=1,
    gamma=0.9,
    gae_lambda=0.7,
    value_coef=0.8,
    e_step_kl=0.3,
    m_step_kl=1e-3,
    m_step_kl_deviation=1e-5,
    initial_temperature=0.7,
    initial_multiplier=2.0,
    dual_learning_rate=0.1,
    learning_rate_decay=0.0,
)


def linear(env, config=CONFIG):
    """The learner of linear networks under plain gradient descent."""
    size = 6 if env.action_space is BOX else 2
    network = networks.actor_critic(nn.Dense(size), nn.Dense(1))
    return v_mpo.make_learner(config, env, network=network, optimiser=optax.sgd(STEP_SIZE))


def played(env, learner, state, seed=0):
    """Steps at random observations, by the policy itself; episodes end at two of them."""
    rng = np.random.default_rng(seed)
    obs, next_obs = np.float32(rng.normal(size=(2, T, B, 4)))
    kernel, bias = (np.asarray(state.params["actor"]["params"][name]) for name in ("kernel", "bias"))
    policy = obs @ kernel + bias
    if env.action_space is not BOX:
        action = jnp.asarray(rng.integers(0, 2, size=(T, B)), jnp.int32)
    else:
        mean, log_std = np.split(policy, 2, axis=-1)
        action = mean + np.exp(log_std) * rng.normal(size=mean.shape)
        action = jnp.float32(action * np.array([1.0, 0.0, 2.0]) + np.array([0.0, 2.0, 0.0]))
    ends = [jnp.zeros((T, B), bool).at[at].set(True) for at in ((1, 0), (3, 1))]
    reward = jnp.asarray(rng.normal(size=(T, B)), jnp.float32)
    return Transition(jnp.asarray(obs), action, reward, *ends, jnp.asarray(next_obs), Extras(jnp.asarray(policy), ()))


def by_hand(env, state, trajectory, config):
    """Ten steps in float64 on the whole batch: the parameters, the dual variables, and the divergences of each step."""
    array = lambda x: np.asarray(x, np.float64)
    w, b = (array(state.params["actor"]["params"][name]) for name in ("kernel", "bias"))
    v, c = (array(state.params["critic"]["params"][name])[..., 0] for name in ("kernel", "bias"))
    obs, action = (array(x).reshape(T * B, *x.shape[2:]) for x in (trajectory.obs, trajectory.action))
    value, next_value = array(trajectory.obs) @ v + c, array(trajectory.next_obs) @ v + c
    discount, last = 0.9 * (1 - array(trajectory.terminated)), np.asarray(trajectory.last)
    columns = array(trajectory.reward), value, next_value, discount, last
    advantage = np.stack([oracles.gae(*(x[:, i] for x in columns), 0.7) for i in range(B)], axis=1)
    target, advantage = (advantage + value).ravel(), advantage.ravel()
    best = np.argsort(-advantage)[: T * B // 2]
    prior = np.zeros(T * B)
    prior[best] = 1 / len(best)
    bounds = [config.m_step_kl] if env.action_space is not BOX else [config.m_step_kl, config.m_step_kl_deviation]
    duals = oracles.Duals(
        config.initial_temperature,
        [config.initial_multiplier] * len(bounds),
        config.e_step_kl,
        bounds,
        oracles.Adam(config.dual_learning_rate, 1e-5, config.max_grad_norm),
    )
    old, rows = obs @ w + b, []
    for _ in range(10):
        new, weight = obs @ w + b, duals.weights(advantage[None], prior[None])[0]
        multipliers = duals.values[1:]
        if env.action_space is not BOX:
            p, q = (np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True) for x in (old, new))
            one_hot = np.eye(2)[action.astype(int)]
            slope = -weight[:, None] * (one_hot - q) + multipliers[0] * (q - p) / (T * B)
            divergence = np.array([np.mean(np.sum(p * np.log(p / q), axis=-1))])
        else:
            moving = np.array([1.0, 0.0, 1.0])
            unit = (action - np.array([0.0, 2.0, 0.0])) / np.array([1.0, 1.0, 2.0])
            (m0, s0), (m, s) = ((x[:, :3], np.exp(x[:, 3:])) for x in (old, new))
            of_mean = -weight[:, None] * (unit - m) / s**2 + multipliers[0] * (m - m0) / s0**2 / (T * B)
            of_std = -weight[:, None] * (((unit - m) / s) ** 2 - 1) + multipliers[1] * (1 - (s0 / s) ** 2) / (T * B)
            slope = np.concatenate([of_mean * moving, of_std * moving], axis=-1)
            parts = ((m - m0) / s0) ** 2 / 2, ((s0 / s) ** 2 - 1) / 2 + np.log(s / s0)
            divergence = np.array([np.mean(np.sum(x * moving, axis=-1)) for x in parts])
        duals.step(advantage[None], prior[None], 1.0, divergence)
        w, b = w - STEP_SIZE * obs.T @ slope, b - STEP_SIZE * slope.sum(axis=0)
        error = config.value_coef * (obs @ v + c - target) / (T * B)
        v, c = v - STEP_SIZE * obs.T @ error, c - STEP_SIZE * error.sum()
        rows.append(divergence)
    return {"w": w, "b": b, "v": v[:, None], "c": c, "duals": duals.values, "divergence": np.mean(rows, axis=0)}


@pytest.mark.parametrize("kind", ["discrete", "gaussian"])
def test_ten_updates_against_numpy(kind, key):
    """Of linear networks: both parts of the loss, the duals by Adam, and a constant that has no share."""
    env = CARTPOLE if kind == "discrete" else CARTPOLE._replace(action_space=BOX)
    learner = linear(env)
    state = learner.init(key, jnp.zeros((B, 4)))
    trajectory = played(env, learner, state)
    learned, metrics, _ = jax.jit(learner.update)(state, trajectory, key)
    expected = by_hand(env, state, trajectory, CONFIG)
    actor, critic = (learned.params[name]["params"] for name in ("actor", "critic"))
    result = {"w": actor["kernel"], "b": actor["bias"], "v": critic["kernel"], "c": critic["bias"]}
    dual = learned.duals.values
    result["duals"] = np.array([dual.temperature, *dual.multipliers])
    names = ["m_step_kl", "m_step_kl_deviation"][: len(dual.multipliers)]
    result["divergence"] = np.array([metrics[name] for name in names])
    for name in expected:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert np.all(np.abs(result["duals"] / [0.7, *[2.0] * len(names)] - 1) > 0.05)


def test_the_better_half_is_learned_from():
    """Of those that count, the larger one of an odd number; of equal ones all; nothing breaks where none counts."""
    advantage = jnp.array([3.0, -1.0, 2.0, 7.0, 0.0])
    for counts, chosen in (
        ((), [0, 2, 3]),
        ([True, True, True, False, True], [0, 2]),
        ([False, True, False, False, False], [1]),
        ([False] * 5, [0, 1, 2, 3, 4]),
    ):
        given = counts if counts == () else jnp.array(counts)
        seen, log_prior = top_half(advantage, given)
        np.testing.assert_allclose(np.exp(log_prior)[chosen], 1 / len(chosen), rtol=1e-6)
        np.testing.assert_allclose(np.sum(np.exp(log_prior)), 1.0, rtol=1e-6)
        assert np.all(np.isfinite(divergences.e_step_weights(seen, log_prior, 1e-8)))
    np.testing.assert_allclose(np.exp(top_half(jnp.ones(4), ())[1]), 0.25)


def test_shards_choose_together():
    """The weights of four shards are those of the whole batch, and so is the policy's loss."""
    rng = np.random.default_rng(0)
    advantage, counts = jnp.asarray(rng.normal(size=12)), jnp.asarray(rng.random(12) > 0.3)

    def weights(advantage, counts):
        everyone = divergences.e_step_weights(*top_half(advantage, counts), 0.5)
        return shards.part(everyone)

    cut = jax.vmap(weights, axis_name=shards.AXIS)(advantage.reshape(4, 3), counts.reshape(4, 3))
    np.testing.assert_allclose(cut.ravel(), weights(advantage, counts), rtol=1e-6)


def test_ignored_actions_have_no_share(key):
    """What is learned does not depend on the action of a step that does not count, nor on its reward by itself."""
    env = CARTPOLE._replace(acting=lambda obs: obs[..., 0] > 0)
    config = dataclasses.replace(CONFIG, gae_lambda=0.0, value_coef=0.0)
    learner = linear(env, config)
    state = learner.init(key, jnp.zeros((B, 4)))
    trajectory = played(env, learner, state)
    ignored = trajectory.obs[..., 0] <= 0
    assert 2 < np.sum(ignored) < T * B - 2
    other = trajectory._replace(
        action=jnp.where(ignored, 1 - trajectory.action, trajectory.action),
        reward=jnp.where(ignored, 100.0, trajectory.reward),
    )
    update = jax.jit(learner.update)
    one, two = (update(state, x, key).state for x in (trajectory, other))
    jax.tree.map(np.testing.assert_array_equal, (one.params["actor"], one.duals), (two.params["actor"], two.duals))
    moved = trajectory._replace(action=jnp.where(ignored, trajectory.action, 1 - trajectory.action))
    three = update(state, moved, key).state
    assert np.any(three.params["actor"]["params"]["kernel"] != one.params["actor"]["params"]["kernel"])


def test_dual_variables_stay_positive(key):
    """Of a huge step size and equal advantages, with which nothing is to be preferred: all stay finite and positive."""
    config = dataclasses.replace(CONFIG, dual_learning_rate=100.0, m_step_kl=10.0)
    learner = linear(CARTPOLE, config)
    state = learner.init(key, jnp.zeros((B, 4)))
    trajectory = played(CARTPOLE, learner, state)._replace(reward=jnp.zeros((T, B)))
    update = jax.jit(learner.update)
    for _ in range(3):
        state, metrics, _ = update(state, trajectory, key)
        assert all(np.isfinite(x) for x in metrics.values())
        assert all(np.all((x > 1e-9) & np.isfinite(x)) for x in jax.tree.leaves(state.duals.values))
    assert state.duals.values.multipliers[0] < 1e-7


@functools.cache
def memory_program():
    """One iteration of a network with a memory, on a state that remembers."""
    config = v_mpo.Config(
        total_steps=8 * 16 * 4,
        num_envs=8,
        num_steps=16,
        hidden_sizes=(8,),
        num_epochs=1,
        num_minibatches=1,
        memory="gru",
        memory_size=8,
        sequence_length=4,
    )
    trainer = v_mpo.make_trainer(config, envs.make("CartPole-v1", max_steps=10))

    @jax.jit
    def run(key):
        state = trainer.init(key)
        state, _ = trainer.step(state)  # so that carries are not zeros
        return trainer.step(state)[1]

    return run


@pytest.mark.rest
def test_sequences_begin_where_their_actor_was(key):
    """So before the first step the policy of an iteration is the one that acted, whose divergence from it is 0."""
    metrics = memory_program()(key)
    assert abs(metrics["m_step_kl"]) < 1e-6 and abs(metrics["approximate_kl"]) < 1e-6


def test_problems():
    check(v_mpo.Config(), *v_mpo.problems(v_mpo.Config(), CARTPOLE), *v_mpo.problems(v_mpo.Config(), None))
    bad = dataclasses.replace(v_mpo.Config(), m_step_kl=0.0, initial_temperature=-1.0, num_minibatches=3)
    lines = v_mpo.problems(bad, CARTPOLE)
    wrong = ["m_step_kl = 0.0", "initial_temperature = -1.0", "num_minibatches = 3"]
    assert [line.split(":")[0] for line in lines] == wrong
