"""What the actor-critics share: one torso for actor and critic, and critics that see more than the policy."""

import dataclasses
import re
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import at_random

from purerl import a2c, appo, dpo, dqn, envs, impala, mappo, ppo, reinforce, spaces, v_mpo
from purerl.envs import agents, check_env
from purerl.errors import ConfigError
from purerl.exports import exporting
from purerl.formulas import distributions
from purerl.learners.families import actor_critic
from purerl.learners.families.actor_critic import Extras
from purerl.types import Situation, Transition

ENV = envs.make("CartPole-v1")
SMALL = {"num_envs": 4, "num_steps": 8, "total_steps": 320, "hidden_sizes": (3,), "shared_torso": True}
RNG = np.random.default_rng(0)


def dense(params):
    """Kernel and bias of a layer, float64."""
    return np.asarray(params["kernel"], np.float64), np.asarray(params["bias"], np.float64)


def layers(params):
    """The layer of the torso, and those of both heads."""
    heads = params["params"]["heads"]
    return params["params"]["torso"]["Dense_0"], heads["Head_0"]["Dense_0"], heads["Head_1"]["Dense_0"]


def halves(params, obs, action, advantage, target, config):
    """The gradients of the policy's and the value's loss of a torso of one tanh layer, each by hand."""
    torso, logits, value = map(dense, layers(params))
    count = len(obs)
    hidden = np.tanh(obs @ torso[0] + torso[1])
    z = hidden @ logits[0] + logits[1]
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    p, chosen = np.exp(log_p), np.eye(z.shape[1])[action]
    entropy = -(p * log_p).sum(axis=1, keepdims=True)
    of_z = (-advantage[:, None] * (chosen - p) + config.entropy_coef * p * (log_p + entropy)) / count
    of_v = config.value_coef * ((hidden @ value[0] + value[1])[:, 0] - target)[:, None] / count

    def back(of_out, layer):
        of_hidden = of_out @ layer[0].T * (1 - hidden**2)
        return (obs.T @ of_hidden, of_hidden.sum(axis=0)), (hidden.T @ of_out, of_out.sum(axis=0))

    return back(of_z, logits), back(of_v, value)


def trajectory(steps, count):
    """Steps ``[T, B]`` whose advantages and targets are in the rewards, and no end of an episode."""
    obs = jnp.asarray(RNG.normal(size=(steps, count, 4)), jnp.float32)
    action = jnp.asarray(RNG.integers(0, 2, (steps, count)), jnp.int32)
    reward, never = jnp.asarray(RNG.normal(size=(steps, count)), jnp.float32), jnp.zeros((steps, count), bool)
    extras = Extras(jnp.zeros((steps, count, 2)), ())
    return Transition(obs, action, reward, never, never, obs, extras)


def test_the_gradient_of_a_shared_torso_is_the_sum_of_two():
    """One step down A2C's loss by plain descent moves the torso by the sum of what either half would, and each linear
    layer by its own alone, as computed by hand in float64; for two agents side by side."""
    config = a2c.Config(**SMALL, normalize_reward=False, max_grad_norm=1e6)
    estimate = lambda columns: (columns.reward, 3 * columns.reward)
    learner = a2c.make_learner(config, ENV, optimiser=optax.sgd(1.0), estimate=estimate)
    two = [at_random(learner.init, jax.random.key(0), jnp.zeros((4, 4)), seed=i) for i in range(2)]
    begun, steps = jax.tree.map(lambda *x: jnp.stack(x), *two), trajectory(8, 4)
    after = jax.jit(jax.vmap(lambda state: learner.update(state, steps, jax.random.key(0)).state))(begun)
    obs, action, reward = (np.asarray(x).reshape(32, *x.shape[2:]) for x in (steps.obs, steps.action, steps.reward))
    for i in range(2):
        old, new = (jax.tree.map(lambda x, i=i: np.asarray(x[i], np.float64), x.params) for x in (begun, after))
        policy, value = halves(old, obs.astype(np.float64), action, reward, 3 * reward, config)
        results = layers(jax.tree.map(lambda x, y: x - y, old, new))
        both = tuple(x + y for x, y in zip(policy[0], value[0], strict=True))
        assert min(np.abs(x).max() for x in (*policy[0], *value[0])) > 1e-3
        for result, (kernel, bias) in zip(results, (both, policy[1], value[1]), strict=True):
            np.testing.assert_allclose(result["kernel"], kernel, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(result["bias"], bias, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Breakout-MinAtar"])
def test_a_shared_torso_halves_the_parameters_below_the_heads(env):
    """Without it the trees are what they were: ``actor`` and ``critic``. With it one export has the actor's half."""
    made, kept = envs.make(env), None
    for shared in (False, True):
        config = ppo.Config(hidden_sizes=(8,), shared_torso=shared)
        learner = ppo.make_learner(config, made)
        obs = jax.tree.map(lambda x: jnp.zeros((2, *x.shape), x.dtype), spaces.struct(made.observation_space))
        params = jax.eval_shape(learner.init, jax.random.key(0), obs).params
        count = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
        if not shared:
            assert set(params) == {"actor", "critic"}
            kept = count(params) - count(params["critic"]) + 8 + 1
        else:
            assert set(params["params"]) == {"torso", "heads"} and count(params) == kept


def test_an_export_of_a_shared_torso_has_the_actors_half(tmp_path):
    """Neither the value's kernel nor its bias is in the file, and actions are those of the learner."""
    config = ppo.Config(hidden_sizes=(8,), shared_torso=True)
    learner = ppo.make_learner(config, ENV)
    state = learner.init(jax.random.key(0), jnp.zeros((2, 4)))
    made = exporting.acting(learner, learner.policy(state), ENV.observation_space, {})
    exporting.write_numpy(tmp_path / "policy", made)
    folder = exporting.runner.load(tmp_path / "policy")
    arrays = exporting.safetensors.numpy.load_file(next((tmp_path / "policy").glob("*.safetensors")))
    assert sum(x.size for x in arrays.values()) == 4 * 8 + 8 + 8 * 2 + 2
    obs = RNG.normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(folder.act(obs, folder.begin(50))[0], made.act(obs)[0])


def test_a_shared_torso_is_refused_where_there_is_none():
    """By teams whose critics see something else; with a memory, which shares it already, by the command line alone."""
    config = mappo.Config(shared_torso=True)
    [line] = mappo.problems(config, envs.make("Landmarks-v0"))
    assert line.startswith("shared_torso = True: must be False")
    with pytest.raises(ConfigError, match="shared_torso"):
        mappo.make_train(config, envs.make("Landmarks-v0"))
    for memory in ("gru", "none"):
        config = ppo.Config(shared_torso=True, memory=memory)
        assert actor_critic.shares_torso(config) is (memory == "none") and not ppo.problems(config, ENV)


@pytest.mark.rest
@pytest.mark.parametrize("algo", [impala, dpo])
def test_every_family_member_trains_with_a_shared_torso(algo, key):
    config = algo.Config(**SMALL, entropy_coef=0.0)
    result = jax.jit(jax.vmap(algo.make_train(config, ENV)))(jax.random.split(key))
    [kernel] = {x.shape for x in jax.tree.leaves(result.state.learner.params["params"]["torso"]) if x.ndim == 3}
    assert kernel == (2, 4, 3) and np.all(np.isfinite(result.metrics["loss"]))
    assert dataclasses.replace(config, shared_torso=False) == algo.Config(
        **{**SMALL, "shared_torso": False}, entropy_coef=0.0
    )


@pytest.fixture(scope="module")
def windy():
    """The environment of the page on one's own, whose wind the policy does not see."""
    page = (Path(__file__).parents[2] / "docs" / "your-environment.md").read_text()
    names = {}
    exec(re.search(r"whole of `windy\.py`.*?^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1], names)
    return names["windy"]()


@pytest.mark.parametrize("algo", [ppo, a2c, impala, reinforce, appo, dpo, v_mpo])
def test_the_actor_reads_its_own_and_the_critic_the_state(windy, algo):
    """A change of either part changes the results of one half alone. Both parts are normalised."""
    config = algo.Config(hidden_sizes=(4,), normalize_obs=True)
    env = algo.view(config, windy)
    agent = actor_critic.make_agent(config, env)
    obs = {"own": jnp.array([[0.0], [1.0]]), "state": jnp.array([[0.0, 0.0], [0.0, 1.0]])}
    params = at_random(agent.network.init, jax.random.key(0), obs)
    policy, value, _ = agent.network.unroll(params, obs, (), jnp.zeros(2, bool))
    assert policy.shape == (2, 2) and value.shape == (2,)
    assert np.any(policy[0] != policy[1]) and value[0] != value[1]
    for part, of_policy, of_value in (("own", True, False), ("state", False, True)):
        other = agent.network.unroll(params, {**obs, part: obs[part] + 1}, (), jnp.zeros(2, bool))
        assert np.any(other[0] != policy) == of_policy and np.any(other[1] != value) == of_value
    moments = agent.normalizer.init({name: x[0] for name, x in obs.items()})
    assert {name: x.moments.mean.shape for name, x in moments.items()} == {"own": (1,), "state": (2,)}


def test_memories_of_actor_and_critic_are_apart(windy):
    """What the critic remembers of the wind never comes to the policy, over steps."""
    config = ppo.Config(hidden_sizes=(4, 4), memory="gru", memory_size=3)
    network = actor_critic.make_network(config, ppo.view(config, windy), distributions.for_space(windy.action_space))
    rng = np.random.default_rng(1)
    obs = {part: jnp.asarray(rng.normal(size=(6, 2, size)), jnp.float32) for part, size in (("own", 1), ("state", 2))}
    params, last = (
        at_random(network.init, jax.random.key(0), jax.tree.map(lambda x: x[0], obs)),
        jnp.zeros((6, 2), bool),
    )
    unroll = jax.jit(lambda obs: network.unroll(params, obs, network.init_carry(2), last))
    policy, value, carries = unroll(obs)
    first = {**obs, "state": obs["state"].at[0].add(1.0)}
    other, moved, followed = unroll(first)
    np.testing.assert_array_equal(other, policy)
    assert np.all(moved != value) and np.any(followed[1] != carries[1]) and np.all(followed[0] == carries[0])
    following = network.value(params, jax.tree.map(lambda x: x[1], obs), jax.tree.map(lambda x: x[0], carries))
    np.testing.assert_allclose(following, value[1], rtol=1e-6)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_whoever_plays_gives_what_the_policy_sees(windy, memory):
    """An export's input is the policy's part, and its actions are those in the whole observation."""
    config = ppo.Config(hidden_sizes=(4, 4), memory=memory, memory_size=3, normalize_obs=True)
    learner, env = ppo.make_learner(config, windy), ppo.view(config, windy)
    obs = {"own": jnp.linspace(-3, 3, 20)[:, None], "state": jnp.ones((20, 2))}
    loud = at_random(learner.init, jax.random.key(0), obs, seed=5).params
    policy = learner.policy(learner.init(jax.random.key(0), obs)._replace(params=loud))
    made = exporting.acting(learner, policy, env.observation_space, {})
    assert {name: x.shape for name, x in made.obs.items()} == {"obs": (1,)}
    expected = jax.jit(learner.exploit)(policy, Situation(obs, learner.init_carry(20)), jax.random.key(0))[0]
    np.testing.assert_array_equal(made.act(obs["own"], *jax.tree.leaves(learner.init_carry(20)))[0], expected)
    assert len(np.unique(expected)) == 2


class Everything(nn.Module):
    """A network whose policy reads what is for critics."""

    @nn.compact
    def __call__(self, obs):
        x = jnp.concatenate([obs["own"], obs["state"]], axis=-1)
        return nn.Dense(2)(x), nn.Dense(1)(x)[..., 0]


def test_a_given_network_is_exported_with_all_that_it_reads(windy):
    """Nothing is filled up with zeros, which would change the actions."""
    config = ppo.Config()
    learner, env = ppo.make_learner(config, windy, network=Everything()), ppo.view(config, windy)
    rng = np.random.default_rng(0)
    obs = {part: jnp.asarray(rng.normal(size=(20, size)), jnp.float32) for part, size in (("own", 1), ("state", 2))}
    policy = learner.policy(learner.init(jax.random.key(0), obs))
    made = exporting.acting(learner, policy, env.observation_space, {})
    expected = jax.jit(learner.exploit)(policy, Situation(obs, ()), jax.random.key(0))[0]
    assert len(made.obs) == 2 and len(np.unique(expected)) == 2
    np.testing.assert_array_equal(made.act(obs["own"], obs["state"])[0], expected)


def test_others_learn_from_what_the_policy_sees(windy):
    """And so do actor-critics where nothing is for critics, or several agents are rows."""
    assert dqn.view(dqn.Config(), windy).observation_space == windy.observation_space["seen"]
    assert ppo.view(ppo.Config(), windy._replace(state=None)).observation_space == windy.observation_space["seen"]
    assert ppo.view(ppo.Config(), windy._replace(own=None)).observation_space == windy.observation_space
    team = envs.make("Landmarks-v0")
    assert ppo.view(ppo.Config(), team).observation_space == team.observation_space["own"]
    check_env(windy)


def test_an_environment_of_what_the_policy_sees(windy):
    """Its observations are that part, and the mask of legal actions reads it."""
    masked = windy._replace(legal=lambda seen: jnp.concatenate([seen > 0, seen <= 0], axis=-1))
    env, fill = agents.only(ppo.view(ppo.Config(), masked), agents.OWN)
    obs = env.begin(jnp.ones(2))[1]
    assert obs.shape == env.observation_space.shape == (1,) and fill(obs)["state"].shape == (2,)
    np.testing.assert_array_equal(env.legal(jnp.array([[1.0], [0.0]])), [[True, False], [False, True]])


def test_a_torso_cannot_be_shared_where_the_critic_sees_more(windy):
    [line] = ppo.problems(ppo.Config(shared_torso=True), windy)
    assert line == "shared_torso = True: must be False; in Windy-v0 the critic sees more than the policy"


@pytest.mark.rest
def test_a_critic_that_sees_the_wind_explains_it(windy, key):
    """Of three agents each: with the state about half of the variance, since lengths are chance; without it nothing."""
    config = ppo.Config(total_steps=10_000, num_envs=16, num_steps=25, hidden_sizes=(16,), learning_rate=1e-2)
    explained, lost = [], []
    for env in (windy, windy._replace(state=None)):
        metrics = jax.jit(jax.vmap(ppo.make_train(config, env)))(jax.random.split(key, 3)).metrics
        explained.append(np.asarray(metrics["explained_variance"])[:, -8:].mean(axis=1))
        lost.append(np.asarray(metrics["value_loss"])[:, -8:].mean(axis=1))
    assert np.all(explained[0] > 0.3) and np.all(np.abs(explained[1]) < 0.05)
    assert np.all(lost[0] < 0.9 * lost[1])
