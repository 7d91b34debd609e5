"""Learning from recorded play alone: ten updates by hand, what is bootstrapped, and the mistakes of others."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import bc, cql, draw, envs, implicit_q, rebrac, record, replay, td3_bc
from purerl.algos.td3_bc import make_network
from purerl.errors import ConfigError
from purerl.loops.evaluation import Player, random_player
from purerl.spaces import Box, Discrete
from purerl.types import Outcome, Sample

N, OBS, ACT, UPDATES = 16, 3, 2, 10
ENV = envs.make("probe/target-action")._replace(
    observation_space=Box(-np.inf, np.inf, (OBS,), jnp.float32), action_space=Box(-2.0, 2.0, (ACT,), jnp.float32)
)
LINEAR = {"hidden_sizes": (), "batch_size": N, "normalize_obs": False, "learning_rate": 1e-2}
CRITICS = {**LINEAR, "actor_learning_rate": 3e-2, "gamma": 0.9, "tau": 0.1}


def batches(action=None):
    """Transitions as a replay gives them: actions in the environment's units, some of which end an episode."""
    rng = np.random.default_rng(0)
    for _ in range(UPDATES):
        obs, next_obs = rng.normal(size=(2, N, OBS)).astype(np.float32)
        acted = rng.uniform(-2, 2, size=(N, ACT)).astype(np.float32) if action is None else action(rng)
        reward = rng.normal(size=N).astype(np.float32)
        discount = np.where(rng.uniform(size=N) < 0.2, 0.0, 0.9).astype(np.float32)
        yield Outcome(obs, acted, reward, discount, next_obs, (), ())


def taught(learner, state, items, keys):
    """The states after updates on the batches, one after another."""
    update = jax.jit(learner.update)
    for each, key in zip(items, keys, strict=True):
        nowhere = jnp.zeros(N, jnp.int32)
        state = update(state, Sample(jax.tree.map(jnp.asarray, each), nowhere, nowhere, jnp.ones(N)), key).state
    return state


KEYS = jax.random.split(jax.random.key(1), UPDATES)


class Adam:
    """Arrays in float64 that Adam moves."""

    def __init__(self, params, rate):
        self.params, self.rate, self.count = [np.asarray(x, np.float64) for x in params], rate, 0
        self.moments = [[np.zeros_like(x), np.zeros_like(x)] for x in self.params]

    def step(self, gradients):
        self.count += 1
        for i, g in enumerate(gradients):
            mean, square = self.moments[i]
            mean[...], square[...] = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
            size = np.sqrt(square / (1 - 0.999**self.count)) + 1e-8
            self.params[i] = self.params[i] - self.rate * mean / (1 - 0.9**self.count) / size

    def follow(self, other, tau):
        self.params = [(1 - tau) * a + tau * b for a, b in zip(self.params, other.params, strict=True)]

    def matches(self, params):
        for ours, hand in zip(jax.tree.leaves(params), self.params, strict=True):
            np.testing.assert_allclose(ours, hand, rtol=1e-4, atol=1e-5)


class Linear(Adam):
    """Linear layers ``[..., in] -> [..., out]``. ``K`` of them have a leading axis."""

    def __init__(self, params, rate):
        super().__init__(jax.tree.leaves(params), rate)  # bias and kernel

    def __call__(self, x):
        bias, kernel = self.params
        return x @ kernel + (bias if kernel.ndim == 2 else bias[:, None])


def gradients_of(x, out):
    """Gradients of a linear layer, by its inputs ``[N, in]`` and what flows into its outputs ``[..., N, out]``."""
    return [out.sum(axis=-2), np.swapaxes(x, -1, -2) @ out]


def q_values(critics, obs, unit):
    """``[K, N]``."""
    return critics(np.concatenate([obs, unit], axis=-1))[..., 0]


def learn_critics(critics, obs, unit, target):
    """A step down the sum over critics of the mean squared TD error."""
    x = np.concatenate([obs, unit], axis=-1)
    error = q_values(critics, obs, unit) - target
    critics.step(gradients_of(x, 2 * error[..., None] / N))


def test_behaviour_cloning_of_a_box():
    config = bc.Config(**LINEAR)
    learner = bc.make_learner(config, ENV)
    state = learner.init(jax.random.key(0), jnp.zeros((1, OBS)))
    actor = Linear(state.params, 1e-2)
    for items in batches():
        mean = np.tanh(actor(items.obs.astype(np.float64)))
        flows = 2 * (mean - items.action / 2) / ACT / N * (1 - mean**2)
        actor.step(gradients_of(items.obs, flows))
    actor.matches(taught(learner, state, batches(), KEYS).params)


def test_behaviour_cloning_of_discrete_actions():
    config, env = bc.Config(**LINEAR), ENV._replace(action_space=Discrete(4))
    learner = bc.make_learner(config, env)
    state = learner.init(jax.random.key(0), jnp.zeros((1, OBS)))
    actor = Linear(state.params, 1e-2)
    items_of = lambda: batches(lambda rng: rng.integers(4, size=N).astype(np.int32))
    for items in items_of():
        logits = actor(items.obs.astype(np.float64))
        shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        actor.step(gradients_of(items.obs, (shares - np.eye(4)[items.action]) / N))
    actor.matches(taught(learner, state, items_of(), KEYS).params)


@pytest.mark.parametrize("cloning", [0.0, 0.7])
def test_td3_bc(cloning):
    """With cloning and without. The mean size of the values, by which they are divided, lets no gradient through."""
    config = td3_bc.Config(**CRITICS, cloning=cloning)
    learner = td3_bc.make_learner(config, ENV)
    state = learner.init(jax.random.key(0), jnp.zeros((1, OBS)))
    made = lambda: (Linear(state.params["actor"], 3e-2), Linear(state.params["critic"], 1e-2))
    (actor, critics), (slow_actor, slow_critics) = made(), made()
    for i, (items, key) in enumerate(zip(batches(), KEYS, strict=True)):
        obs, following, unit = items.obs.astype(np.float64), items.next_obs, items.action / 2
        noise = np.clip(0.2 * np.asarray(draw.normal(key, (N, ACT))), -0.5, 0.5)
        action = np.clip(np.tanh(slow_actor(following)) + noise, -1, 1)
        target = items.reward + items.discount * q_values(slow_critics, following, action).min(axis=0)
        learn_critics(critics, obs, unit, target)
        if i % 2:  # the actor and all copies wait for every second update
            mean = np.tanh(actor(obs))
            size = np.abs(q_values(critics, obs, mean)[0]).mean()
            of_action = critics.params[1][0, OBS:, 0]
            flows = cloning * 2 * (mean - unit) / ACT - 2.5 / size * of_action
            actor.step(gradients_of(obs, flows / N * (1 - mean**2)))
            slow_actor.follow(actor, 0.1)
            slow_critics.follow(critics, 0.1)
    after = taught(learner, state, batches(), KEYS)
    for hand, name in ((actor, "actor"), (critics, "critic")):
        hand.matches(after.params[name])
    for hand, name in ((slow_actor, "actor"), (slow_critics, "critic")):
        hand.matches(after.target_params[name])


def test_implicit_q_learning():
    """Targets of V from the slow critics, those of Q from the V before its step, and an advantage that is stopped."""
    config = implicit_q.Config(**CRITICS, expectile=0.8, inverse_temperature=2.0, max_weight=3.0)
    learner = implicit_q.make_learner(config, ENV)
    state = learner.init(jax.random.key(0), jnp.zeros((1, OBS)))
    actor, value = (Linear(state.params[name], 3e-2) for name in ("actor", "value"))
    critics, slow = (Linear(state.params["critic"], 1e-2) for _ in range(2))
    clipped = 0
    for items in batches():
        obs, unit = items.obs.astype(np.float64), items.action / 2
        u = q_values(slow, obs, unit).min(axis=0) - value(obs)[:, 0]
        learn_critics(critics, obs, unit, items.reward + items.discount * value(items.next_obs)[:, 0])
        weight = np.minimum(np.exp(2.0 * u), 3.0)
        clipped += np.sum(weight == 3.0)
        out = actor(obs)
        mean, log_std = np.tanh(out[:, :ACT]), out[:, ACT:]
        scaled = (unit - mean) / np.exp(log_std)
        flows = -np.concatenate([scaled / np.exp(log_std) * (1 - mean**2), scaled**2 - 1], axis=-1)
        actor.step(gradients_of(obs, weight[:, None] * flows / N))
        value.step(gradients_of(obs, (-2 * np.where(u < 0, 0.2, 0.8) * u / N)[:, None]))
        slow.follow(critics, 0.1)
    assert 0 < clipped < N * UPDATES
    after = taught(learner, state, batches(), KEYS)
    for hand, name in ((actor, "actor"), (value, "value"), (critics, "critic")):
        hand.matches(after.params[name])
    slow.matches(after.target_params["critic"])


@pytest.mark.rest
def test_rebrac():
    """Both distances, and none to a next action where an episode was cut off; the actor climbs the lesser critic."""
    config = rebrac.Config(**CRITICS, cloning=0.3, critic_cloning=0.2)
    learner = rebrac.make_learner(config, ENV)
    state = learner.init(jax.random.key(0), jnp.zeros((1, OBS)))
    made = lambda: (Linear(state.params["actor"], 3e-2), Linear(state.params["critic"], 1e-2))
    (actor, critics), (slow_actor, slow_critics) = made(), made()

    def items_of():
        rng = np.random.default_rng(1)
        for items in batches():
            following = rng.uniform(-2, 2, size=(N, ACT)).astype(np.float32)
            extras = {"action": items.action, "cut": rng.uniform(size=N) < 0.3}
            yield items._replace(extras=extras, next_extras={"action": following, "cut": extras["cut"]})

    for i, (items, key) in enumerate(zip(items_of(), KEYS, strict=True)):
        obs, following, unit = items.obs.astype(np.float64), items.next_obs, items.action / 2
        noise = np.clip(0.2 * np.asarray(draw.normal(key, (N, ACT))), -0.5, 0.5)
        action = np.clip(np.tanh(slow_actor(following)) + noise, -1, 1)
        far = np.where(items.extras["cut"], 0, np.sum((action - items.next_extras["action"] / 2) ** 2, axis=-1))
        next_q = q_values(slow_critics, following, action).min(axis=0) - 0.2 * far
        learn_critics(critics, obs, unit, items.reward + items.discount * next_q)
        if i % 2:
            mean = np.tanh(actor(obs))
            q = q_values(critics, obs, mean)
            of_action = critics.params[1][q.argmin(axis=0), OBS:, 0]
            flows = 0.3 * 2 * (mean - unit) - of_action / np.abs(q.min(axis=0)).mean()
            actor.step(gradients_of(obs, flows / N * (1 - mean**2)))
            slow_actor.follow(actor, 0.1)
            slow_critics.follow(critics, 0.1)
    after = taught(learner, state, items_of(), KEYS)
    actor.matches(after.params["actor"])
    critics.matches(after.params["critic"])


def squashed(out, noise):
    """A squashed Gaussian's action, its log-density, and the deviation of what is squashed."""
    mean, log_std = out[..., :ACT], out[..., ACT:]
    u = mean + np.exp(log_std) * noise
    density = -(noise**2) / 2 - log_std - np.log(2 * np.pi) / 2 - np.log(1 - np.tanh(u) ** 2)
    return np.tanh(u), density.sum(axis=-1), np.exp(log_std)


@pytest.mark.rest
def test_cql_of_a_box():
    """The soft maximum over uniform actions and those of the policy, by their densities, less the recorded action."""
    config = cql.Config(**CRITICS, conservatism=0.5, action_samples=3, initial_temperature=0.2)
    learner = cql.make_learner(config, ENV)
    state = learner.init(jax.random.key(0), jnp.zeros((1, OBS)))
    actor = Linear(state.params["actor"], 3e-2)
    critics, slow = (Linear(state.params["critic"], 1e-2) for _ in range(2))
    price = Adam([state.params["log_temperature"]], 3e-2)
    for items, key in zip(batches(), KEYS, strict=True):
        obs, following, unit = items.obs.astype(np.float64), items.next_obs, items.action / 2
        key_next, key_actor, key_everywhere = jax.random.split(key, 3)
        key_uniform, key_policy = jax.random.split(key_everywhere)
        normal = lambda key, shape: np.asarray(draw.normal(key, shape), np.float64)
        temperature = np.exp(price.params[0])
        action, log_prob, _ = squashed(actor(following), normal(key_next, (N, ACT)))
        soft = q_values(slow, following, action).min(axis=0) - temperature * log_prob
        target = items.reward + items.discount * soft
        uniform = np.asarray(draw.uniform(key_uniform, (N, 3, ACT), -1.0, 1.0), np.float64)
        drawn, densities, _ = squashed(actor(obs)[:, None], normal(key_policy, (N, 3, ACT)))
        everywhere = np.concatenate([uniform, drawn], axis=1)  # [N, 6, D]
        log_density = np.concatenate([np.full((N, 3), ACT * np.log(0.5)), densities], axis=1)
        x = np.concatenate([np.repeat(obs[:, None], 6, axis=1), everywhere], axis=-1).reshape(N * 6, -1)
        share = np.exp(critics(x)[..., 0].reshape(-1, N, 6) - log_density)
        share /= share.sum(axis=-1, keepdims=True)
        error = q_values(critics, obs, unit) - target
        recorded = gradients_of(np.concatenate([obs, unit], axis=-1), ((2 * error - 0.5) / N)[..., None])
        unrecorded = gradients_of(x, (0.5 * share / N).reshape(-1, N * 6, 1))
        critics.step([a + b for a, b in zip(recorded, unrecorded, strict=True)])
        noise = normal(key_actor, (N, ACT))
        action, log_prob, deviation = squashed(actor(obs), noise)
        of_action = critics.params[1][q_values(critics, obs, action).argmin(axis=0), OBS:, 0]
        flows = temperature * 2 * action - of_action * (1 - action**2)
        flows = np.concatenate([flows, flows * deviation * noise - temperature], axis=-1)
        actor.step(gradients_of(obs, flows / N))
        price.step([temperature * np.mean(-log_prob + ACT)])
        slow.follow(critics, 0.1)
    after = taught(learner, state, batches(), KEYS)
    for hand, name in ((actor, "actor"), (critics, "critic"), (price, "log_temperature")):
        hand.matches(after.params[name])
    slow.matches(after.target_params["critic"])


def test_cql_of_discrete_actions():
    config = cql.Config(**CRITICS, conservatism=0.5, initial_temperature=0.2)
    env = ENV._replace(action_space=Discrete(4))
    learner = cql.make_learner(config, env)
    state = learner.init(jax.random.key(0), jnp.zeros((1, OBS)))
    actor = Linear(state.params["actor"], 3e-2)
    critics, slow = (Linear(state.params["critic"], 1e-2) for _ in range(2))
    price = Adam([state.params["log_temperature"]], 3e-2)
    items_of = lambda: batches(lambda rng: rng.integers(4, size=N).astype(np.int32))

    def policy(obs):
        shares = np.exp(actor(obs))
        return shares / shares.sum(axis=-1, keepdims=True)

    for items in items_of():
        obs, chosen = items.obs.astype(np.float64), np.eye(4)[items.action]
        temperature, following = np.exp(price.params[0]), policy(items.next_obs)
        soft = following * (slow(items.next_obs).min(axis=0) - temperature * np.log(following))
        target = items.reward + items.discount * soft.sum(axis=-1)
        q = critics(obs)  # [K, N, A]
        softmax = np.exp(q) / np.exp(q).sum(axis=-1, keepdims=True)
        error = np.sum(q * chosen, axis=-1) - target
        critics.step(gradients_of(obs, (2 * error[..., None] * chosen + 0.5 * (softmax - chosen)) / N))
        shares = policy(obs)
        worth = critics(obs).min(axis=0) - temperature * np.log(shares)
        actor.step(gradients_of(obs, -shares * (worth - np.sum(shares * worth, axis=-1, keepdims=True)) / N))
        entropy = -np.sum(shares * np.log(shares), axis=-1)
        price.step([temperature * np.mean(entropy + 1)])
        slow.follow(critics, 0.1)
    after = taught(learner, state, items_of(), KEYS)
    for hand, name in ((actor, "actor"), (critics, "critic"), (price, "log_temperature")):
        hand.matches(after.params[name])


SMALL = {"hidden_sizes": (16,), "batch_size": 32, "num_updates": 50}
CUT = envs.make("probe/constant-reward", max_steps=5)
SIGNED = CUT._replace(
    step=lambda noise, state, action: CUT.step(noise, state, (action[0] > 0).astype(jnp.int32)),
    action_space=Box(-1.0, 1.0, (1,), jnp.float32),
)


def mistaken(play):
    """The same play, its time limits taken for ends."""
    return play._replace(terminated=play.last, truncated=np.zeros_like(play.truncated))


@pytest.mark.rest
@pytest.mark.parametrize("algo", [td3_bc, implicit_q], ids=lambda algo: algo.name)
def test_time_limits_bootstrap(algo):
    """Reward 1 a step, cut every 5: worth 1 / (1 - gamma) = 10. Taken for an end, the same steps are worth far less."""
    play = record(jax.random.key(0), SIGNED, random_player(SIGNED), 32)
    rates = {"learning_rate": 1e-2, "actor_learning_rate": 1e-2, "normalize_obs": False}
    config = algo.Config(**SMALL, **rates, gamma=0.9, tau=0.2, total_steps=3000)
    network = make_network(config, SIGNED)

    def value(play):
        params = jax.jit(algo.make_train(config, SIGNED, data=play))(jax.random.key(0)).state.learner.params
        return jnp.mean(network.q_values(params["critic"], play.obs[:1], jnp.asarray(play.action[:1])))

    np.testing.assert_allclose(value(play), 10.0, rtol=0.03)
    assert value(mistaken(play)) < 5


@pytest.mark.rest
def test_one_program_serves_several_trainings_of_one_dataset():
    """The data are an argument of it, which `jax.vmap` does not copy, and no part of a state."""
    play = record(jax.random.key(0), SIGNED, random_player(SIGNED), 32)
    stored = replay.held(play)
    train = lambda rate, data: bc.make_train(
        bc.Config(**SMALL, learning_rate=rate, total_steps=100), SIGNED, data=data
    )(jax.random.key(0))
    many = jax.jit(jax.vmap(train, in_axes=(0, None)))
    rates = jnp.array([1e-3, 1e-2])
    state = many(rates, stored).state
    assert max(x.size for x in jax.tree.leaves(state)) < len(play.reward)
    text = many.lower(rates, stored).as_text()
    assert f"tensor<2x{len(play.reward)}x" not in text
    alone = jax.jit(train)(rates[1], stored).state
    for ours, one in zip(jax.tree.leaves(state.learner.params), jax.tree.leaves(alone.learner.params), strict=True):
        np.testing.assert_allclose(ours[1], one, rtol=1e-4, atol=1e-6)


@pytest.mark.rest
def test_observations_are_standardised_by_the_dataset():
    """By the mean and the deviation of all of it, before the first update; the policy holds them."""
    env = envs.make("Pendulum-v1", max_episode_steps=20)
    play = record(jax.random.key(0), env, random_player(env), 8)
    config = bc.Config(**SMALL, total_steps=50)
    trainer = bc.make_trainer(config, env, data=play)
    state, _ = jax.jit(trainer.step)(jax.jit(trainer.init)(jax.random.key(0)))
    moments = trainer.learner.policy(state.learner).obs_moments
    assert moments.count == len(play.reward)
    np.testing.assert_allclose(moments.mean, play.obs.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moments.var, play.obs.var(axis=0), rtol=1e-4)


def test_a_policy_is_cloned():
    """A player that pushes with twice the cosine, in observations that are not standardised beforehand."""
    env = envs.make("Pendulum-v1", max_episode_steps=50)
    player = lambda env: Player(lambda here, key: (2 * here.obs[:, :1], here.carry), lambda rows: ())
    play = record(jax.random.key(0), env, player(env), 16)
    config = dataclasses.replace(bc.Config(**SMALL), learning_rate=1e-2, total_steps=500)
    trained = jax.jit(bc.make_train(config, env, data=play))(jax.random.key(0))
    assert trained.metrics["loss"][-1] < 0.01 < trained.metrics["loss"][0]
    assert np.isnan(trained.metrics["episode_return"]).all() and not trained.metrics["episodes"].any()


def test_what_is_refused():
    with pytest.raises(ConfigError, match="^data: bc learns from a dataset of play; there is none$"):
        bc.make_trainer(bc.Config(), ENV)
    with pytest.raises(ConfigError, match="^total_steps = 10: must be at least num_updates = 100$"):
        bc.make_trainer(bc.Config(total_steps=10), ENV, data=None)
    with pytest.raises(ConfigError, match="has Discrete actions; the algorithm needs Box"):
        td3_bc.make_trainer(td3_bc.Config(), CUT, data=None)
    play = record(jax.random.key(0), SIGNED, random_player(SIGNED), 1)
    reward = play.reward.copy()
    reward[0] = np.nan
    wrong, line = play._replace(reward=reward), "reward: has numbers that are not finite"
    narrow = play._replace(obs=play.obs.astype(np.float16))
    for data, told in (
        (wrong, line),
        (replay.streamed(wrong), line),
        (replay.streamed(play, wrong), f"part 1: {line}"),
        (replay.streamed(narrow), r"obs is float16.*, expected float32"),
        (replay.streamed(play._replace(terminated=play.reward)), "terminated is float32.*, expected bool"),
    ):
        with pytest.raises(ConfigError, match=f"^data: {told}"):
            bc.make_trainer(bc.Config(), SIGNED, data=data)
    with pytest.raises(ConfigError, match="^data: rewards and flags are not of one shape"):
        replay.streamed(play._replace(truncated=play.truncated[1:]))
