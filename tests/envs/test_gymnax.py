"""Environments against their originals: ours step by step against Gymnasium's, the adapter against gymnax."""

import gymnasium
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.catalogue import GYMNAX
from purerl.envs.adapters.gymnax import TERMINATING, from_gymnax
from purerl.envs.episodic import EpisodeState
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.learners.parts import normalize
from purerl.spaces import Box, Discrete, sample
from purerl.types import Step

PHYSICAL = {
    "CartPole-v1": ([-2.4, -3, -0.2, -3], [2.4, 3, 0.2, 3]),
    "Acrobot-v1": ([-np.pi, -np.pi, -12, -28], [np.pi, np.pi, 12, 28]),
    "MountainCar-v0": ([-1.2, -0.07], [0.6, 0.07]),
    "MountainCarContinuous-v0": ([-1.2, -0.07], [0.6, 0.07]),
    "Pendulum-v1": ([-20, -8], [20, 8]),
}
"""Where the physical states of the test start: everywhere, so that walls, limits and ends are met."""
NUM_ENVS, NUM_STEPS = 100, 15


@pytest.mark.parametrize("name", PHYSICAL)
def test_native_equals_gymnasium(name):
    env, theirs = envs.make(name), gymnasium.make(name)
    limit = theirs.spec.max_episode_steps

    @jax.jit
    def run(key):
        key_physical, key_t, key_noise, key_action = jax.random.split(key, 4)
        low, high = (jnp.array(bound, jnp.float32)[None] for bound in PHYSICAL[name])
        physical = low + (high - low) * jax.random.uniform(key_physical, (NUM_ENVS, low.shape[1]))
        start = EpisodeState(physical, jax.random.randint(key_t, (NUM_ENVS,), 0, limit))
        actions = sample(env.action_space, key_action, (NUM_STEPS, NUM_ENVS))
        if isinstance(env.action_space, Box):
            actions = 1.5 * actions  # some lie outside of the space

        rows = fleet(env, NUM_ENVS)

        def one(env_state, inputs):
            following, _, step = rows.step(inputs[0], env_state, inputs[1])
            return following, (env_state, inputs[1], step)

        return jax.lax.scan(one, start, (rows.noise(key_noise, (NUM_STEPS,)), actions))[1]

    before, action, step = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.device_get(run(jax.random.key(0))))
    unwrapped = theirs.unwrapped
    unwrapped.reset()
    theirs_step = []
    for i in range(NUM_ENVS * NUM_STEPS):
        unwrapped.state = np.array(before.physical[i], np.float64)
        unwrapped.steps_beyond_terminated = None
        theirs_step.append(unwrapped.step(action[i])[:3])
    obs, reward, terminated = (np.array(column) for column in zip(*theirs_step, strict=True))
    scale = np.maximum(1, np.abs(obs))
    np.testing.assert_allclose(step.next_obs / scale, obs / scale, atol=2e-5)
    np.testing.assert_allclose(step.reward, reward, rtol=1e-5, atol=2e-5)
    np.testing.assert_array_equal(step.terminated, terminated)
    np.testing.assert_array_equal(step.truncated, (before.t + 1 >= limit) & ~terminated)
    assert step.terminated.any() != (name == "Pendulum-v1")
    assert step.truncated.any()


@pytest.mark.parametrize("name", PHYSICAL)
def test_native_spaces_equal_gymnasiums(name):
    env, theirs = envs.make(name), gymnasium.make(name)
    np.testing.assert_array_equal(env.observation_space.low, theirs.observation_space.low)
    np.testing.assert_array_equal(env.observation_space.high, theirs.observation_space.high)
    if isinstance(env.action_space, Discrete):
        assert env.action_space.n == theirs.action_space.n
    else:
        assert env.action_space.shape == theirs.action_space.shape
        assert (env.action_space.low, env.action_space.high) == (theirs.action_space.low, theirs.action_space.high)


def test_names_are_those_of_gymnax():
    assert sorted(GYMNAX) == sorted(set(gymnax.registered_envs) - {"MNISTBandit-bsuite"})


@pytest.mark.weekly("MinAtar", "bsuite", "misc")
@pytest.mark.parametrize("name", GYMNAX)
def test_adapter_keeps_the_contract(name):
    with jax.numpy_rank_promotion("raise"):
        envs.check_env(envs.make(f"gymnax/{name}"), num_steps=64)


def renewed(env, level, env_state, step):
    """The state and the observation from which play goes on after a step."""
    return jax.tree.map(lambda x, y: jnp.where(step.last, x, y), env.begin(level), (env_state, step.next_obs))


@pytest.mark.rest
@pytest.mark.parametrize(
    "name", ["gymnax/CartPole-v1", "gymnax/MountainCarContinuous-v0", "DeepSea-bsuite", *TERMINATING]
)
def test_adapter_gives_what_gymnax_gives(name):
    env = envs.make(name)
    theirs, params = gymnax.make(name.removeprefix("gymnax/"))
    key_reset, key_action, key_noise = jax.random.split(jax.random.key(0), 3)
    num_steps = 120
    noise = env.noise(key_noise, (num_steps,))
    actions = sample(env.action_space, key_action, (num_steps,))

    def both(states, inputs):
        """gymnax gives its step and its reset a half of the key each, and begins anew where an episode ends."""
        key, action = inputs
        key_step, key_level = jax.random.split(key)
        obs, original, reward, terminated, truncated, info = theirs.step(key, states[1], action, params)
        env_state, step = env.step(key_step, states[0], action)
        start = renewed(env, key_level, env_state, step)
        return (start[0], original), (
            (start[1], *step),
            (obs, info["final_observation"], reward, terminated, truncated),
        )

    env_state, obs = env.begin(key_reset)
    obs_original, state_original = theirs.reset(key_reset, params)
    np.testing.assert_array_equal(obs, obs_original)
    step, (*rest, terminated, truncated) = jax.jit(
        lambda: jax.lax.scan(both, (env_state, state_original), (noise, actions))[1]
    )()
    step, shown = Step(*step[1:]), step[:3]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), shown, tuple(rest))
    if name in TERMINATING:
        assert truncated.any()
        terminated = terminated | truncated
    np.testing.assert_array_equal(step.terminated, terminated)
    np.testing.assert_array_equal(step.truncated, truncated & ~terminated)
    if name == "DeepSea-bsuite":
        assert (terminated & truncated).any()


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["Breakout-MinAtar", "SpaceInvaders-MinAtar", "Catch-bsuite", "DeepSea-bsuite"])
def test_binary_observations_lose_nothing(name):
    """Bool observations equal gymnax's float ones, after the same key, state and action."""
    env = envs.make(f"gymnax/{name}")
    theirs, params = gymnax.make(name)
    num_envs, num_steps = 8, 300

    def both(env_state, inputs):
        key, action = inputs
        key_step, key_level = jax.random.split(key)
        float_obs, _, _, _, _, info = theirs.step(key, env_state, action, params)
        following, step = env.step(key_step, env_state, action)
        following, obs = renewed(env, key_level, following, step)
        return following, (obs, step, float_obs, info["final_observation"])

    @jax.jit
    def run(key):
        key_reset, key_noise, key_action = jax.random.split(key, 3)
        env_state, obs = jax.vmap(env.begin)(jax.random.split(key_reset, num_envs))
        float_obs, _ = jax.vmap(lambda key: theirs.reset(key, params))(jax.random.split(key_reset, num_envs))
        shape = (num_steps, num_envs)
        inputs = env.noise(key_noise, shape), sample(env.action_space, key_action, shape)
        return obs, float_obs, jax.lax.scan(jax.vmap(both), env_state, inputs)[1]

    with jax.numpy_rank_promotion("allow"):  # for gymnax
        first, float_first, (shown, step, float_obs, float_next_obs) = jax.device_get(run(jax.random.key(0)))
    assert env.observation_space == Box(False, True, first.shape[1:], jnp.dtype(bool))
    for ours, original in (first, float_first), (shown, float_obs), (step.next_obs, float_next_obs):
        assert ours.dtype == bool and original.dtype == np.float32
        np.testing.assert_array_equal(ours.astype(np.float32), original)
    assert 0 < step.next_obs.mean() < 1
    assert step.terminated.any() != (name == "Freeway-MinAtar")


@pytest.mark.rest
def test_binary_observations_can_be_normalised():
    """Means of what is 0 or 1 are frequencies, and variances ``mean * (1 - mean)``."""
    _, obs = jax.vmap(envs.make("Catch-bsuite").reset)(jax.random.split(jax.random.key(0), 64))
    normalizer = normalize.running()
    state = normalizer.update(normalizer.init(obs[0]), obs)
    moments = state.moments
    frequency = np.array(obs).sum(axis=0) / 64
    np.testing.assert_allclose(moments.mean, frequency, rtol=1e-6)
    np.testing.assert_allclose(moments.var, frequency * (1 - frequency), atol=1e-6)
    varied = (frequency > 0) & (frequency < 1)
    assert varied.sum() == 5  # where the ball may start
    expected = (np.array(obs, np.float64) - frequency) / np.sqrt(frequency * (1 - frequency) + 1e-8)
    np.testing.assert_allclose(normalizer.apply(state, obs)[:, varied], expected[:, varied], rtol=1e-4)


def test_adapter_clips_actions():
    def next_obs(name, actions):
        env = envs.make(name)
        env_state, _ = env.reset(jax.random.key(0))
        return jax.jit(jax.vmap(lambda a: env.step(jax.random.key(1), env_state, a)[1].next_obs))(actions)

    outside, inside = jnp.array([-3, 7]), jnp.array([0, 1])
    np.testing.assert_array_equal(next_obs("gymnax/CartPole-v1", outside), next_obs("gymnax/CartPole-v1", inside))
    outside, inside = jnp.array([[-3.0, 3.0]]), jnp.array([[-0.1, 0.1]])
    np.testing.assert_array_equal(next_obs("PointRobot-misc", outside), next_obs("PointRobot-misc", inside))


def test_parameters_reach_gymnax():
    def next_obs(gravity):
        env = envs.make("gymnax/CartPole-v1", gravity=gravity)
        env_state, _ = env.reset(jax.random.key(0))
        return env.step(jax.random.key(1), env_state, jnp.int32(1))[1].next_obs

    low, high = jax.jit(jax.vmap(next_obs))(jnp.array([1.0, 20.0]))
    assert np.abs(low - high).max() > 1e-5
    assert envs.make("DeepSea-bsuite", size=5, unscaled_move_cost=0.5).observation_space.shape == (5, 5)
    assert envs.make("FrozenLake-misc", map_name="8x8").observation_space == Box(0.0, 1.0, (64,), jnp.float32)


def test_what_episodes_draw_and_never_show_is_hidden():
    hidden = {"SimpleBandit-bsuite": {}, "PointRobot-misc": {}, "DeepSea-bsuite": {"sample_action_map": True}}
    assert all(envs.make(name, **params).hidden for name, params in hidden.items())
    assert not envs.make("DeepSea-bsuite").hidden and not envs.make("Catch-bsuite").hidden


def test_adapter_explains_itself():
    with pytest.raises(ConfigError, match="env = 'CartPole-v1': unknown parameter gravty; nearest: gravity"):
        envs.make("gymnax/CartPole-v1", gravty=1.0)
    with pytest.raises(ConfigError, match="env = 'DeepSea-bsuite': unknown parameter sizes; nearest: size"):
        envs.make("DeepSea-bsuite", sizes=5)
    with pytest.raises(ConfigError, match="env = 'cartpole': gymnax has no such environment; nearest: CartPole-v1"):
        envs.make("gymnax/cartpole")
    with pytest.raises(ConfigError, match="needs a download"):
        envs.make("gymnax/MNISTBandit-bsuite")

    class DictSpace(type(gymnax.make("CartPole-v1")[0])):
        def observation_space(self, params):
            return gymnax.environments.spaces.Dict({})

    with pytest.raises(ConfigError, match="^env = 'mine': observation space Dict is not supported"):
        from_gymnax("mine", DictSpace(), DictSpace().default_params)
