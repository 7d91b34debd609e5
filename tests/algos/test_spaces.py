"""Trees of observations, several actions at once, and illegal actions: learned in closed form by every family."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import dqn, envs, evaluate, impala, ppo, pqn, r2d2
from purerl.algos.dqn import make_network as make_q_network
from purerl.algos.pqn import make_network as make_pqn_network
from purerl.algos.r2d2 import make_network as make_recurrent_network
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.formulas import exploration, td_errors
from purerl.learners.families import actor_critic
from purerl.learners.parts.joint_actions import joint_actions
from purerl.loops.rollout import init_actors, rollout
from purerl.spaces import Box, Discrete, MultiDiscrete

GAMMA = 0.9
SMALL = {"num_envs": 8, "num_steps": 16, "learning_rate": 1e-2, "gamma": GAMMA, "hidden_sizes": (16,)}
REPLAY = {
    **SMALL,
    "total_steps": 8 * 16 * 90,
    "num_updates": 8,
    "batch_size": 32,
    "capacity": 8 * 16 * 20,
    "warmup_steps": 8 * 16,
    "target_period": 5,
    "epsilon_start": 1.0,
    "epsilon_end": 0.2,
    "exploration_fraction": 0.5,
}
CONFIGS = {
    "ppo": (ppo, ppo.Config(**SMALL, total_steps=8 * 16 * 90, num_minibatches=2, normalize_obs=True)),
    "impala": (
        impala,
        impala.Config(**SMALL | {"num_steps": 4}, total_steps=8 * 4 * 900, max_grad_norm=0.5, normalize_reward=False),
    ),
    "pqn": (pqn, pqn.Config(**SMALL, total_steps=8 * 16 * 90, num_minibatches=2, epsilon_end=0.2)),
    "dqn": (dqn, dqn.Config(**REPLAY, huber_delta=1.0, max_grad_norm=1.0)),
    "r2d2": (
        r2d2,
        r2d2.Config(**REPLAY, memory="gru", memory_size=8, burn_in=2, unroll=6, period=4, max_grad_norm=1.0),
    ),
}
PROBES = {
    "dict-obs": (
        {"pos": np.float32([[1, 0], [-1, 0]]), "img": np.stack([np.ones((5, 5, 1), bool), np.zeros((5, 5, 1), bool)])},
        [1.5, 0.5],
    ),
    "multi-discrete": (np.float32([[1], [-1]]), [2.0, 2.0]),
    "illegal-actions": (
        {"time": np.float32([[0], [1]]), "legal": np.array([[False, True, True], [True, False, True]])},
        [1 + GAMMA, 1.0],
    ),
}
LEARNED = {"ppo": PROBES, "impala": PROBES, "dqn": PROBES, "r2d2": PROBES, "pqn": ("illegal-actions",)}


def value(name, config, env, state, obs):
    """V(obs) ``[N]`` by the critic, or by the largest value of a legal action."""
    if name in ("ppo", "impala"):
        parts = actor_critic.make_agent(config, env)
        return parts.network.value(state.params, parts.normalizer.apply(state.obs_moments, obs), ())
    if name == "r2d2":
        network = make_recurrent_network(config, env)
        rows = jax.tree.map(lambda x: x[:, None], obs)  # one after another: the second step remembers the first
        last = jnp.full((2, 1), env.name != "probe/illegal-actions")
        q, _, _ = network.unroll(state.params, rows, network.init_carry(1), last)
        q = td_errors.unrescale(q[:, 0], config.rescale_epsilon)
    elif name == "pqn":
        q = make_pqn_network(config, env).apply(state.params, obs)
    else:
        q = make_q_network(config, env).apply(state.params, obs, ())
    return jnp.max(exploration.masked(q, joint_actions(env).legal(obs)), axis=-1)


@pytest.mark.rest
@pytest.mark.weekly("r2d2", "impala", "pqn", "ppo", "dict-obs", "illegal")
@pytest.mark.parametrize(("algo", "probe"), [(algo, probe) for algo, probes in LEARNED.items() for probe in probes])
def test_values_and_policies(algo, probe):
    """A value that an illegal action's reward of 100 had reached, by action or by target, would be far off."""
    (algorithm, config), env = CONFIGS[algo], envs.make(f"probe/{probe}")
    obs, expected = PROBES[probe]

    def train(key):
        state = algorithm.make_train(config, env)(key).state.learner
        learner = algorithm.make_learner(config, env)
        played = evaluate(jax.random.key(1), env, learner, learner.policy(state), num_episodes=64)
        return value(algo, config, env, state, jax.tree.map(jnp.asarray, obs)), played.episode_return

    result, returns = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(3), 2))
    np.testing.assert_allclose(result, [expected] * 2, atol=0.1)
    best = {"dict-obs": (0.5, 1.5), "multi-discrete": (2.0,), "illegal-actions": (2.0,)}[probe]
    assert np.all(np.isclose(np.asarray(returns)[..., None], best, atol=1e-5).any(axis=-1))


@pytest.mark.rest
@pytest.mark.weekly("r2d2", "impala", "pqn")
@pytest.mark.parametrize("algo", CONFIGS)
def test_no_illegal_action_in_a_million_steps(algo):
    """By a policy that explores as much as it can, of parameters as they begin."""
    (algorithm, config), env = CONFIGS[algo], envs.make("probe/illegal-actions")
    config = dataclasses.replace(config, num_envs=512)
    learner = algorithm.make_learner(config, env)

    def play(key):
        key_actors, key_learner, key_rollout = jax.random.split(key, 3)
        actors = init_actors(key_actors, fleet(env, 512), learner)
        state = learner.init(key_learner, actors.obs)
        trajectory = rollout(key_rollout, fleet(env, 512), learner, learner.behaviour(state), actors, 2048)[1]
        legal = jnp.take_along_axis(trajectory.obs["legal"], trajectory.action[..., None], axis=-1)
        counts = jnp.sum(jax.nn.one_hot(trajectory.action, 3, dtype=jnp.int32), axis=(0, 1))
        return jnp.sum(~legal), counts

    illegal, counts = jax.jit(play)(jax.random.key(5))
    assert illegal == 0 and counts.sum() == 512 * 2048 and np.all(counts > 512 * 2048 // 10)


def test_random_legal_actions_are_uniform():
    noise = jnp.stack([jnp.zeros(600), (jnp.arange(600) + 0.5) / 600], axis=-1)
    legal = jnp.broadcast_to(jnp.array([True, False, True, True]), (600, 4))
    action = exploration.epsilon_greedy(jnp.zeros((600, 4)), jnp.ones(()), noise, legal)
    assert np.bincount(action, minlength=4).tolist() == [200, 0, 200, 200]


def test_joint_actions_are_every_combination():
    env = envs.make("probe/multi-discrete")._replace(legal=lambda obs: jnp.array([True, True, False, True, True]))
    actions = joint_actions(env)
    table = np.asarray(actions.action(jnp.arange(6)))
    assert table.tolist() == [[i, j] for i in range(2) for j in range(3)]
    assert np.asarray(actions.number(jnp.asarray(table))).tolist() == list(range(6))
    assert np.asarray(actions.legal(None)).tolist() == [j != 0 for i in range(2) for j in range(3)]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"action_space": Discrete(0)}, r"action_space: Discrete\(n=0\): must have whole numbers of at least 1"),
        ({"action_space": Discrete(2.0)}, r"action_space: Discrete\(n=2.0\): must have whole numbers of at least 1"),
        (
            {"action_space": MultiDiscrete(3)},
            r"MultiDiscrete\(sizes=3\): sizes must be a tuple with at least one whole",
        ),
        ({"action_space": Discrete(2**31)}, r"action_space: Discrete\(n=2147483648\): .* below 2147483648"),
        ({"action_space": MultiDiscrete((2, 2**31))}, r"must have whole numbers of at least 1, below 2147483648"),
        ({"action_space": MultiDiscrete((2, 0))}, r"MultiDiscrete\(sizes=\(2, 0\)\): must have whole numbers"),
        (
            {"observation_space": {"a": "b"}},
            r"observation_space\['a'\]: is str of builtins; must be a purerl.spaces.Box",
        ),
        ({"observation_space": {}}, "observation_space: is {}, which has no leaves"),
        ({"observation_space": Box(1.0, 0.0, (1,), np.float32)}, "observation_space: low must not exceed high"),
    ],
)
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_spaces_that_cannot_be(algo, change, line):
    algorithm, config = CONFIGS[algo]
    env = envs.make("probe/one-step")._replace(**change)
    with pytest.raises(ConfigError, match="^env = 'probe/one-step': .*" + line.removeprefix("^")):
        algorithm.make_train(config, env)
    with pytest.raises(ConfigError, match=line):
        envs.check_env(env)


def test_a_mask_in_an_array_that_is_normalised_is_refused():
    env = envs.make("probe/one-step")._replace(legal=lambda obs: obs > 0)
    assert CONFIGS["ppo"][1].normalize_obs
    with pytest.raises(ConfigError, match="^normalize_obs = True:"):
        ppo.make_train(CONFIGS["ppo"][1], env)


def test_gymnasium_spaces_are_refused():
    import gymnasium

    env = envs.make("probe/one-step")._replace(action_space=gymnasium.spaces.Discrete(2))
    with pytest.raises(ConfigError, match="action_space: is Discrete of gymnasium; must be a purerl.spaces.Box"):
        ppo.make_train(CONFIGS["ppo"][1], env)
