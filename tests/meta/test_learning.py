"""Trainings as environments: what happens in them is what happens alone, and the meta-agent moves what it may."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import a2c, envs, loops, ppo, trees
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.meta import learning, shaping
from purerl.meta.shaping import where_needed
from purerl.population.devices import compiler_options
from purerl.spaces import Box

CONFIG = a2c.Config(num_envs=4, num_steps=4, total_steps=96, hidden_sizes=(8,), learning_rate=1e-2)
GAME = "probe/one-step"


DEADLY = 2.0
"""The action after which the inner training dies."""


def schooling(num_iterations=6):
    """The action multiplies the rewards of the inner training; the entropy of its policy is seen, and is paid."""

    def make_trainer(action):
        scale = jnp.where(action[0] < DEADLY, jnp.exp(action[0]), jnp.nan)
        return a2c.make_trainer(CONFIG, envs.make(GAME, reward_scale=scale))

    return learning(
        "Schooling",
        make_trainer,
        start=jnp.zeros(1),
        observe=lambda state, metrics: jnp.nan_to_num(jnp.stack([metrics["entropy"], metrics["value_loss"]])),
        reward=lambda state, metrics: jnp.nan_to_num(metrics["value_loss"]),
        num_iterations=num_iterations,
        observation_space=Box(0.0, jnp.inf, (2,), jnp.float32),
        action_space=Box(-1.0, 1.0, (1,), jnp.float32),
    )


def compiled(env):
    """``run(keys [B], actions [T, B, ...])``: what beginnings show, and Steps, and what is seen and the states after
    them, ``[T, B]``."""

    def run(keys, actions):
        rows, several = fleet(env, actions.shape[1]), env.num_agents > 1
        env_state, obs = jax.vmap(env.begin)(keys)

        def step(state, given):
            action = trees.merge(given[1], 2) if several else given[1]
            state, seen, made = rows.step(given[0], state, action)
            agents = lambda tree: trees.split(tree, (actions.shape[1], env.num_agents)) if several else tree
            return state, (agents(made), agents(seen), state)

        return obs, jax.lax.scan(step, env_state, (rows.noise(jax.random.key(7), actions.shape[:1]), actions))[1]

    program = jax.jit(run, compiler_options=compiler_options())
    return lambda keys, actions: jax.device_get(program(keys, actions))


@pytest.fixture(scope="module")
def live():
    return compiled(schooling())


@pytest.mark.weekly
def test_a_training_inside_is_a_plain_one(live):
    """To the bit, where the action changes nothing; and after its end another one begins."""
    keys = jax.random.split(jax.random.key(0), 2)
    obs, (made, seen, states) = live(keys, jnp.zeros((9, 2, 1)))
    plain = jax.vmap(loops.train(a2c.make_trainer(CONFIG, envs.make(GAME, reward_scale=1.0)), 5))
    expected = jax.device_get(jax.jit(plain, compiler_options=compiler_options())(keys))
    assert not obs.any()
    np.testing.assert_array_equal(made.reward[:5].T, expected.metrics["value_loss"])
    np.testing.assert_array_equal(made.next_obs[:5, :, 0].T, expected.metrics["entropy"])
    inside = jax.tree.map(lambda x: x[4], states.training)
    jax.tree.map(np.testing.assert_array_equal, *(jax.tree.leaves(x.learner) for x in (inside, expected.state)))
    np.testing.assert_array_equal(made.truncated, np.arange(9)[:, None].repeat(2, axis=1) == 5)
    assert not made.terminated.any()
    np.testing.assert_array_equal(states.t[:, 0], [1, 2, 3, 4, 5, 0, 1, 2, 3])
    np.testing.assert_array_equal(seen[5], np.zeros((2, 2)))
    np.testing.assert_array_equal(seen[:5], made.next_obs[:5])
    assert (made.reward[6:9] != made.reward[:3]).any()  # a new key


@pytest.mark.weekly
def test_an_action_changes_its_own_training(live):
    keys = jnp.stack([jax.random.key(0)] * 2)
    made = live(keys, jnp.zeros((9, 2, 1)).at[1, 1].set(1.5))[1][0]
    np.testing.assert_array_equal(made.reward[0, 0], made.reward[0, 1])
    assert (made.reward[1:6, 0] != made.reward[1:6, 1]).all()


@pytest.mark.rest
def test_a_training_that_dies_ends_its_episode(live):
    made, seen, _ = live(jax.random.split(jax.random.key(0), 2), jnp.zeros((9, 2, 1)).at[1, 0].set(DEADLY))[1]
    np.testing.assert_array_equal(made.terminated[:, 0], np.arange(9) == 1)
    np.testing.assert_array_equal(made.truncated, (np.arange(9)[:, None] == [7, 5]))
    assert not made.terminated[:, 1].any() and not seen[1, 0].any()


@pytest.mark.weekly
def test_contract_of_a_training():
    envs.check_env(schooling(4), num_steps=12, num_envs=4)


def test_what_is_needed_is_made():
    run = jax.jit(
        jax.vmap(lambda needed, x: where_needed(needed, lambda: (x + 1, jax.random.key(3)), (x, jax.random.key(2))))
    )
    result, keys = run(jnp.array([True, False, True]), jnp.arange(3))
    np.testing.assert_array_equal(result, [1, 1, 3])
    np.testing.assert_array_equal(jax.random.key_data(keys)[:, 1], [3, 2, 3])


INNER = ppo.Config(
    num_envs=3, num_steps=4, total_steps=36, hidden_sizes=(8,), num_epochs=2, num_minibatches=1, learning_rate=1e-2
)


@pytest.fixture(scope="module")
def shaped():
    """Six rounds of four steps, with an episode of three trainings."""
    env = shaping.shaping("Coins", envs.make("CoinGame-v0", max_steps=4), ppo, INNER, 3, see_mean=True)
    actions = jax.random.randint(jax.random.key(5), (24, 2, 3), 0, 4)
    return env, actions, *compiled(env)(jax.random.split(jax.random.key(0), 2), actions)


@pytest.mark.weekly
def test_a_learner_in_the_other_seat_learns_from_what_happened(shaped):
    """At the end of each round, from the rows of that round, as `Learner.update` does alone; and never between."""
    env, actions, _, (made, _, states) = shaped
    learner = ppo.make_learner(INNER, envs.make("CoinGame-v0", max_steps=4)._replace(num_agents=1))
    training = states.training
    flat = lambda t, b: np.concatenate([np.ravel(x[t, b]) for x in jax.tree.leaves(training.learner)])
    for t in range(1, 11):
        assert (flat(t, 0) == flat(t - 1, 0)).all() == (t % 4 != 3)
    before = jax.tree.map(lambda x: x[6, 1], training.learner)
    rows = jax.tree.map(lambda x: x[7, 1], training.replay)
    key = jax.random.split(training.key[6, 1], 3)[2]
    after, *_ = jax.jit(learner.update)(before, rows, key)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x[7, 1], y, rtol=1e-5, atol=1e-6), training.learner, after)
    np.testing.assert_array_equal(rows.reward[:, 0], made.next_obs["reward"][4:8, 1, 0, 1])


@pytest.mark.weekly
def test_the_meta_agent_has_the_first_seat(shaped):
    """Its actions, its side of the game, its rewards; and the end of its episode is that of the learner's training."""
    env, actions, obs, (made, seen, states) = shaped
    assert env.num_agents == 3 and made.reward.shape == (24, 2, 3)
    np.testing.assert_array_equal(made.reward, made.next_obs["reward"][..., 0])
    np.testing.assert_array_equal(made.truncated[..., 0], np.arange(24)[:, None].repeat(2, axis=1) % 12 == 11)
    np.testing.assert_array_equal(made.next_obs["last"][..., 0, 0], np.arange(24)[:, None].repeat(2, axis=1) % 4 == 3)
    assert not seen["reward"][11].any() and not seen["last"][11].any() and (states.t[11] == 0).all()
    assert not obs["reward"].any()
    means = made.next_obs["reward"].mean(axis=2, keepdims=True)
    np.testing.assert_allclose(made.next_obs["mean_reward"], np.broadcast_to(means, (24, 2, 3, 2)), atol=1e-6)
    row, column = np.divmod(seen["obs"][:, :, :, :9].argmax(axis=-1), 3)
    dr, dc = np.array([[-1, 1, 0, 0], [0, 0, -1, 1]])[:, np.asarray(actions)]
    for t in range(1, 24):
        if t % 4 != 3:
            np.testing.assert_array_equal(row[t], (row[t - 1] + dr[t]) % 3)
            np.testing.assert_array_equal(column[t], (column[t - 1] + dc[t]) % 3)


def test_shaping_is_for_two():
    with pytest.raises(ConfigError, match="has 1 agents; shaping needs 2"):
        shaping.shaping("x", envs.make("CartPole-v1"), ppo, INNER, 3)
    with pytest.raises(ConfigError, match="num_minibatches"):
        config = ppo.Config(num_envs=3, num_steps=5, num_minibatches=4)
        shaping.shaping("x", envs.make("CoinGame-v0"), ppo, config, 3)
    with pytest.raises(ConfigError, match="lanes = 0:"):
        shaping.coin_shaping(lanes=0)
    with pytest.raises(ConfigError, match="see_mean = 2:"):
        shaping.coin_shaping(see_mean=2)
