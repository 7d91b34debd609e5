"""MPO's own: its updates against numpy, which actions it takes, and what its sampled actions are worth."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest
from compiling import compiled
from flax import linen as nn

from purerl import check, counters, draw, envs, mpo
from purerl.algos.mpo import box_actions, make_network
from purerl.learners.parts.gradients import Descent
from purerl.learners.parts.network_resets import begun_anew
from purerl.networks.critics import ActorAndCritics
from purerl.spaces import Box, MultiDiscrete
from purerl.types import Outcome, Sample, Situation

N, OBS, STEP_SIZE, TAU = 6, 3, 0.05, 0.3
BOX = Box((-1.0, 2.0, -2.0), (1.0, 2.0, 2.0), (3,), jnp.float32)
"""Its second dimension is a constant."""
CENTRE, SCALE, MOVES = np.array([0.0, 2.0, 0.0]), np.array([1.0, 1.0, 2.0]), np.array([1.0, 0.0, 1.0])
PENDULUM = envs.make("Pendulum-v1", max_steps=10)
IN_BOX = PENDULUM._replace(action_space=BOX)
CHOOSING = PENDULUM._replace(action_space=MultiDiscrete((2, 2)))
CONFIG = mpo.Config(
    total_steps=64 * 4,
    num_envs=4,
    num_steps=4,
    warmup_steps=64,
    batch_size=N,
    capacity=256,
    action_samples=5,
    tau=TAU,
    e_step_kl=0.3,
    m_step_kl=1e-3,
    m_step_kl_deviation=1e-4,
    initial_temperature=0.7,
    initial_multiplier=2.0,
    dual_learning_rate=0.1,
)


class Critics(nn.Module):
    """Two linear ones, of actions in a box or of four."""

    size: int

    @nn.compact
    def __call__(self, obs, action=None):
        if action is None:
            return nn.Dense(2 * self.size)(obs).reshape(*obs.shape[:-1], 2, self.size)
        obs = jnp.broadcast_to(obs, (*action.shape[:-1], obs.shape[-1]))
        return nn.Dense(2)(jnp.concatenate([obs, action], axis=-1))


def linear(env):
    """The learner of linear networks under plain gradient descent."""
    network = ActorAndCritics(nn.Dense(6), Critics(0), 3)
    if env is CHOOSING:
        network = ActorAndCritics(nn.Dense(4), Critics(4))
    return mpo.make_learner(CONFIG, env, network=network, optimiser=optax.sgd(STEP_SIZE))


def drawn(env):
    """Random transitions, of which one has no weight."""
    rng = np.random.default_rng(0)
    obs, next_obs = jnp.asarray(rng.normal(size=(2, N, OBS)), jnp.float32)
    action = jnp.asarray(CENTRE + SCALE * MOVES * rng.uniform(-1, 1, size=(N, 3)), jnp.float32)
    if env is CHOOSING:
        action = jnp.asarray(rng.integers(0, 2, size=(N, 2)), jnp.int32)
    reward, slots = jnp.asarray(rng.normal(size=N), jnp.float32), jnp.zeros(N, jnp.int32)
    items = Outcome(obs, action, reward, jnp.full(N, 0.9), next_obs, (), ())
    return Sample(items, slots, slots, jnp.linspace(0.0, 1.0, N))


def array(x):
    return np.asarray(x, np.float64)


def dense(params, *path):
    """The kernel and the bias of a dense layer as one matrix, for inputs that end in 1."""
    for name in ("params", *path):
        params = params[name]
    return np.concatenate([array(params["kernel"]), array(params["bias"])[None]])


def with_one(x):
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)


class ByHand:
    """MPO in float64, an update at a time: ``actor`` and ``critic`` are matrices, the old ones those of targets."""

    def __init__(self, state, sample, discrete):
        self.discrete, self.items, self.weight = discrete, sample.items, array(sample.weight)
        path = ("Dense_0",)
        self.actor, self.critic = dense(state.params["actor"]), dense(state.params["critic"], *path)
        self.old_actor, self.old_critic = self.actor.copy(), self.critic.copy()
        bounds = [CONFIG.m_step_kl] if discrete else [CONFIG.m_step_kl, CONFIG.m_step_kl_deviation]
        adam = oracles.Adam(CONFIG.dual_learning_rate, 1e-8, CONFIG.max_grad_norm)
        self.duals = oracles.Duals(0.7, [2.0] * len(bounds), CONFIG.e_step_kl, bounds, adam)

    def gaussian(self, obs, actor):
        out = with_one(obs) @ actor
        return np.tanh(out[:, :3]), np.exp(np.minimum(out[:, 3:], 2.0))

    def candidates(self, obs, noise):
        """Actions of the old policy, their probabilities and the smaller of the old critics' values."""
        if self.discrete:
            logits = with_one(obs) @ self.old_actor
            prior = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
            return None, prior, (with_one(obs) @ self.old_critic).reshape(N, 2, 4).min(axis=1)
        mean, std = self.gaussian(obs, self.old_actor)
        action = (mean[:, None] + std[:, None] * noise) * MOVES
        both = np.concatenate([np.repeat(obs[:, None], 5, axis=1), np.clip(action, -1, 1)], axis=-1)
        return action, np.full((N, 5), 0.2), (with_one(both) @ self.old_critic).min(axis=-1)

    def update(self, noise_next, noise_obs):
        obs, next_obs, action = (array(x) for x in (self.items.obs, self.items.next_obs, self.items.action))
        share = self.weight[:, None] / N
        _, prior, value = self.candidates(next_obs, noise_next)
        target = array(self.items.reward) + 0.9 * np.sum(prior * value, axis=-1)
        sampled, prior, value = self.candidates(obs, noise_obs)
        chosen, multipliers = self.duals.weights(value, prior), self.duals.values[1:]
        if self.discrete:
            seen, number = with_one(obs), (2 * action[:, 0] + action[:, 1]).astype(int)
            error = target[:, None] - (seen @ self.critic).reshape(N, 2, 4)[np.arange(N), :, number]
            climb = (np.eye(4)[number][:, None] * error[..., None]).reshape(N, 8)
            slope, divergence = self.choose(obs, prior, chosen, multipliers)
        else:
            seen = with_one(np.concatenate([obs, (action - CENTRE) / SCALE], axis=-1))
            climb = target[:, None] - seen @ self.critic
            slope, divergence = self.move(obs, sampled, chosen, multipliers)
        self.duals.step(value, prior, self.weight, np.array([np.mean(self.weight * x) for x in divergence]))
        self.critic = self.critic + STEP_SIZE * seen.T @ (share * climb)
        self.actor = self.actor - STEP_SIZE * with_one(obs).T @ (share * slope)
        self.old_critic = self.old_critic + TAU * (self.critic - self.old_critic)
        self.old_actor = self.old_actor + TAU * (self.actor - self.old_actor)

    def choose(self, obs, prior, chosen, multipliers):
        logits = with_one(obs) @ self.actor
        policy = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        slope = policy - chosen + multipliers[0] * (policy - prior)
        return slope, [np.sum(prior * np.log(prior / policy), axis=-1)]

    def move(self, obs, sampled, chosen, multipliers):
        """The new means at the old deviations, and the new deviations at the old means."""
        (m, s), (m0, s0) = self.gaussian(obs, self.actor), self.gaussian(obs, self.old_actor)
        each = chosen[..., None]
        of_mean = np.sum(each * (sampled - m[:, None]), axis=1) / s0**2 - multipliers[0] * (m - m0) / s0**2
        of_std = np.sum(each * (((sampled - m0[:, None]) / s[:, None]) ** 2 - 1), axis=1)
        of_std = (of_std - multipliers[1] * (1 - (s0 / s) ** 2)) * (s < np.exp(2))  # the largest deviation
        slope = -np.concatenate([of_mean * (1 - m**2) * MOVES, of_std * MOVES], axis=-1)
        parts = ((m - m0) / s0) ** 2 / 2, ((s0 / s) ** 2 - 1) / 2 + np.log(s / s0)
        return slope, [np.sum(part * MOVES, axis=-1) for part in parts]


@pytest.mark.parametrize("env", [CHOOSING, IN_BOX], ids=["discrete", "gaussian"])
def test_ten_updates_against_numpy(env):
    """Of linear networks: the critics by expected values, the E-step, the M-step, duals by Adam, slow targets."""
    learner, sample = compiled(linear(env), "update"), drawn(env)
    state = learner.init(jax.random.key(3), sample.items.obs)
    hand = ByHand(state, sample, env is CHOOSING)
    for i in range(10):
        key = jax.random.key(i)
        noise = [array(draw.normal(k, (N, 5, 3))) for k in jax.random.split(key)]
        state, metrics, _ = learner.update(state, sample, key)
        hand.update(*noise)
    np.testing.assert_allclose(dense(state.params["actor"]), hand.actor, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dense(state.params["critic"], "Dense_0"), hand.critic, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dense(state.target_params["actor"]), hand.old_actor, rtol=1e-4, atol=1e-5)
    dual = state.duals.values
    np.testing.assert_allclose([dual.temperature, *dual.multipliers], hand.duals.values, rtol=1e-4)
    begun = np.array([0.7, 2.0, 2.0])[: len(hand.duals.values)]
    assert metrics["m_step_kl"] > 1e-6 and np.all(np.abs(hand.duals.values / begun - 1) > 0.02)


def test_illegal_actions_are_neither_taken_nor_made_likely():
    """After updates in which the critics would prefer them."""
    env = envs.make("probe/illegal-actions")
    learner = compiled(mpo.make_learner(CONFIG, env), "init", "explore", "update")
    obs = jax.vmap(lambda key: env.reset(key)[1])(jax.random.split(jax.random.key(0), N))
    state = learner.init(jax.random.key(1), obs)
    slots, legal = jnp.zeros(N, jnp.int32), np.asarray(env.legal(obs))
    items = Outcome(obs, jnp.argmax(legal, axis=-1), jnp.full(N, -9.0), jnp.full(N, 0.9), obs, (), ())
    for i in range(3):
        state, metrics, _ = learner.update(state, Sample(items, slots, slots, jnp.ones(N)), jax.random.key(i))
        assert all(np.isfinite(x) for x in metrics.values())
    many = jax.tree.map(lambda x: jnp.repeat(x, 50, axis=0), obs)
    noise = learner.noise(jax.random.key(2), (50 * N,))
    action, _, _ = learner.explore(learner.behaviour(state), Situation(many, ()), noise)
    assert np.all(np.take_along_axis(np.repeat(legal, 50, axis=0), np.asarray(action)[:, None], axis=1))


@pytest.mark.rest
def test_actions_stay_in_the_box_and_samples_may_not():
    """What is executed and valued is clipped, while the M-step sees the samples as they were drawn."""
    network = make_network(CONFIG, IN_BOX)
    valued = []
    seen = network._replace(critics=Recorder(valued))
    params = network.init(jax.random.key(0), jnp.zeros((N, OBS)))
    given = box_actions(CONFIG, IN_BOX, seen).candidates(params, jnp.zeros((N, OBS)), jax.random.key(1))
    assert np.max(np.abs(given.action)) > 1 and np.max(np.abs(valued[0])) <= 1 and np.all(given.action[..., 1] == 0)
    np.testing.assert_allclose(given.mean_value, np.mean(given.value, axis=-1), rtol=1e-5)
    learner = mpo.make_learner(CONFIG, IN_BOX)
    obs = jnp.zeros((256, OBS))
    behaviour = learner.behaviour(learner.init(jax.random.key(0), obs))
    action, _, _ = learner.explore(behaviour, Situation(obs, ()), learner.noise(jax.random.key(1), (256,)))
    np.testing.assert_allclose(np.min(action, axis=0), CENTRE - SCALE * MOVES, atol=1e-6)
    np.testing.assert_allclose(np.max(action, axis=0), CENTRE + SCALE * MOVES, atol=1e-6)


class Recorder:
    """Critics that keep what they are asked."""

    def __init__(self, valued):
        self.valued = valued

    def apply(self, params, obs, action):
        jax.debug.callback(lambda x: self.valued.append(np.asarray(x)), action)
        return jnp.sum(action, axis=-1, keepdims=True)


def test_critics_of_discrete_actions_have_widths_of_their_own():
    config = dataclasses.replace(CONFIG, hidden_sizes=(4,), critic_hidden_sizes=(6, 5))
    params = jax.eval_shape(make_network(config, CHOOSING).init, jax.random.key(0), jnp.zeros((N, OBS)))
    assert params["critic"]["params"]["torso"]["Dense_1"]["kernel"].shape == (2, 6, 5)
    assert params["actor"]["params"]["torso"]["Dense_0"]["kernel"].shape == (OBS, 4)


def test_duals_begin_anew_while_all_step_sizes_go_on():
    """Those of the duals, too: a schedule that began anew would end above its last step size."""
    learner = mpo.make_learner(dataclasses.replace(CONFIG, reset_every=4, learning_rate_decay=1.0), IN_BOX)
    fresh = jax.jit(learner.init)(jax.random.key(0), jnp.zeros((N, OBS)))
    counts = lambda x: isinstance(x, Descent)
    later = jax.tree.map(
        lambda x: Descent(counters.of(7)) if counts(x) else x + 1, fresh._replace(resets=()), is_leaf=counts
    )
    begun = begun_anew(later._replace(resets=fresh.resets), fresh)
    np.testing.assert_array_equal(begun.duals.params.multipliers, fresh.duals.params.multipliers)
    descents = filter(counts, jax.tree.leaves(begun, is_leaf=counts))
    assert [counters.number(x.updates) for x in descents] == [7, 7, 7]


def test_problems():
    check(mpo.Config(), *mpo.problems(mpo.Config(), PENDULUM), *mpo.problems(mpo.Config(), envs.make("CartPole-v1")))
    endless = PENDULUM._replace(action_space=Box(-np.inf, 1.0, (1,), jnp.float32))
    assert "needs a bounded Box" in mpo.problems(mpo.Config(), endless)[0]
    wrong = dataclasses.replace(mpo.Config(), action_samples=0, e_step_kl=0.0)
    assert [line.split(":")[0] for line in mpo.problems(wrong, PENDULUM)] == ["e_step_kl = 0.0", "action_samples = 0"]
