"""Adapters of libraries that are extras: what they share, on tiny games, and each environment that is installed."""

import importlib.util
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from purerl import envs, ppo
from purerl.catalogue import EXTRAS, families, is_installed
from purerl.envs import agents, check_env
from purerl.envs.adapters import playground
from purerl.envs.adapters.stepping import Consequence, episodes, into
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, MultiDiscrete, sample
from purerl.trees import strong

OPTIONAL = [name for family in EXTRAS if family != "brax" for name in families()[family]]
END = 2.0


def walk(**params):
    """A walk from [0, 1] by the action, and by chance if asked for. It pays the action and terminates from END on."""

    def reset(key):
        place = jax.random.uniform(key, (1,))
        return {"place": place, "weak": 0}, place

    def step(state, action, noise):
        drift = 0.0 if isinstance(noise, tuple) else jax.random.uniform(noise)
        place = state["place"] + action + drift
        return Consequence({"place": place, "weak": 1.0}, place, 1 * action[0], place[0] >= END, False)

    space = Box(-np.inf, np.inf, (1,), jnp.float32)
    return episodes("walk", reset, step, space, Box(-1.0, 1.0, (1,), jnp.float32), **params)


def play(env, actions, seed=0):
    """The first observation, the Steps and what is seen after them ``[T, ...]``, of the one row of a fleet."""
    row = envs.fleet(env, 1)

    @jax.jit
    def run(key):
        key_reset, key_noise = jax.random.split(key)
        state, obs = row.reset(key_reset)

        def step(state, inputs):
            state, following, made = row.step(inputs[0], state, inputs[1][None])
            return state, jax.tree.map(lambda x: x[0], (made, following))

        made, following = jax.lax.scan(step, state, (row.noise(key_noise, (len(actions),)), actions))[1]
        return jax.tree.map(lambda x: x[0], obs), made, following

    return jax.device_get(run(jax.random.key(seed)))


def test_truncation_and_fresh_beginnings():
    first, step, obs = play(walk(max_steps=2), jnp.array([[0.25], [-3.0]] * 3))
    np.testing.assert_array_equal(step.reward, [0.25, -1.0] * 3)
    np.testing.assert_array_equal(step.truncated, [False, True] * 3)
    assert not step.terminated.any()
    np.testing.assert_allclose(step.next_obs[:2, 0], first + [0.25, -0.75], rtol=1e-6)
    start = obs[1::2, 0]
    assert len({first[0], *start}) == 4 and (start >= 0).all() and (start <= 1).all()
    np.testing.assert_allclose(step.next_obs[2::2, 0], start[:-1] + 0.25, rtol=1e-6)


def test_a_termination_wins():
    _, step, _ = play(walk(max_steps=2), jnp.ones((8, 1)))
    assert step.terminated.any() and not (step.terminated & step.truncated).any()
    np.testing.assert_array_equal(step.terminated, step.next_obs[:, 0] >= END)


def test_chance_is_a_part_of_the_noise():
    """Steps differ by their noise, of which there is none without chance."""
    env = walk(chance=jax.random.split, max_steps=5)
    envs.check_env(env)
    first, step, _ = play(env, jnp.zeros((2, 1)))
    drift = np.diff([first[0], *step.next_obs[:, 0]])
    assert (drift > 0).all() and drift[0] != drift[1]
    assert walk().noise(jax.random.key(0), (3,)) == ()
    envs.check_env(walk(max_steps=5))


def test_pool_is_the_same_in_every_run():
    env = walk(max_steps=1)._replace(resets="pool:3")
    start = [set(play(env, jnp.zeros((40, 1)), seed)[2][:, 0]) for seed in (1, 2)]
    assert start[0] == start[1] and len(start[0]) == 3


@pytest.mark.parametrize("params", [{"max_steps": 0}, {"max_steps": 2.0}])
def test_counts_too_small(params):
    with pytest.raises(ConfigError, match=f"env = 'walk': {next(iter(params))} = .*: must be a whole number >= "):
        walk(**params)


def test_actions_are_clipped():
    assert into(Discrete(3), jnp.array(7)) == 2
    np.testing.assert_array_equal(into(MultiDiscrete((2, 5)), jnp.array([-1, 9])), [0, 4])
    np.testing.assert_array_equal(into(Box(-1.0, 1.0, (2,), jnp.float32), jnp.array([-3.0, 0.5])), [-1.0, 0.5])


@struct.dataclass
class Game:
    """A state of pgx: a counter that grows by an action up to 3; the action 0 is legal at even counts alone."""

    observation: jax.Array
    rewards: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    legal_action_mask: jax.Array


class Counter:
    num_players, id = 1, "counter"

    def init(self, key):
        return self.at(jax.random.randint(key, (1,), 0, 2), jnp.zeros(1))

    def step(self, state, action, key):
        return self.at(state.observation + action, jnp.ones(1) * action)

    def at(self, count, rewards):
        legal = jnp.stack([count[0] % 2 == 0, True])
        return Game(count, rewards, count[0] >= 3, jnp.zeros((), bool), legal)


def test_pgx():
    env = envs.from_pgx("counter", Counter(), max_steps=6)
    envs.check_env(env)
    assert env.action_space == Discrete(2)
    first, step, obs = play(env, jnp.ones(40, jnp.int32))
    np.testing.assert_array_equal(step.terminated, step.next_obs["obs"][:, 0] >= 3)
    np.testing.assert_array_equal(env.legal(obs), np.stack([obs["obs"][:, 0] % 2 == 0, [True] * 40], 1))
    plain = types.SimpleNamespace(num_players=1, id="minatar-x", init=Counter().init, step=Counter().step)
    assert envs.from_pgx("x", plain).legal is None


class Spec:
    """One array, as a spec of Jumanji describes it."""

    def __init__(self, shape, dtype, **bounds):
        self.shape, self.dtype = shape, np.dtype(dtype)
        vars(self).update(bounds)


class Parts(types.SimpleNamespace):
    """A spec of parts: an observation's."""


class View(NamedTuple):
    cell: jax.Array
    count: jax.Array
    action_mask: jax.Array


@struct.dataclass
class TimeStep:
    observation: View
    reward: jax.Array
    discount: jax.Array
    end: jax.Array

    def last(self):
        return self.end


class Board:
    """A game in Jumanji's manner: cell ``count % 6`` of a board [2, 3] must be named next, and at 5 all is done.

    A cell named wrongly ends it at once, yet with discounts of 1. Two agents get a reward each.
    """

    action_spec = Spec((2,), np.int32, num_values=np.array([2, 3]))
    observation_spec = Parts(
        _name="view",
        cell=Spec((), np.int32, num_values=6),
        count=Spec((), np.int32, minimum=0, maximum=6),
        action_mask=Spec((2, 3), bool),
    )

    def at(self, count, reward, ended, cut):
        mask = (jnp.arange(6) == count).reshape(2, 3) & (count < 5)
        view = View(count % 6, count, mask)
        return count, TimeStep(view, jnp.ones(2) * reward, jnp.ones(2) * ~ended, ended | cut)

    def reset(self, key):
        return self.at(jax.random.randint(key, (), 0, 3), 0.0, jnp.zeros((), bool), jnp.zeros((), bool))

    def step(self, count, action):
        right = action[0] * 3 + action[1] == count
        return self.at(count + right, 1.0 * right, count + right >= 5, ~right)


@pytest.mark.rest
def test_jumanji():
    env = envs.from_jumanji("board", Board())
    envs.check_env(env)
    assert env.action_space == Discrete(6)
    assert env.observation_space["cell"] == Box(False, True, (6,), jnp.dtype(bool))
    assert env.observation_space["count"].dtype == jnp.float32
    first, step, obs = play(env, jnp.zeros(20, jnp.int32))
    right = np.array([first["cell"], *obs["cell"][:-1]])[:, 0]
    np.testing.assert_array_equal(step.truncated, ~right)
    np.testing.assert_array_equal(step.reward, 2.0 * right)
    legal = env.legal(jax.tree.map(lambda x: x[None], step.next_obs))
    np.testing.assert_array_equal(legal[0], step.next_obs["cell"])
    assert env.legal({"action_mask": jnp.zeros((4, 2, 3), bool)}).all()

    done = jnp.array([0, 1, 2, 3, 4] * 4)
    _, step, _ = play(env, done)
    assert (step.next_obs["count"][step.terminated] == 5).all() and not (step.terminated & step.truncated).any()


def test_jumanji_of_several_numbers():
    class Both(Board):
        action_spec = Spec((2,), np.int16, minimum=0, maximum=3)

    env = envs.from_jumanji("both", Both(), max_steps=1)
    assert env.action_space == MultiDiscrete((3, 3))
    assert env.legal({"action_mask": jnp.array([[False, True, False], [False] * 3])}).tolist() == [
        *(False, True, False),
        *(True, True, True),
    ]

    class Odd(Board):
        action_spec = Spec((4,), np.int32, minimum=0, maximum=3)

    with pytest.raises(ConfigError, match="cannot be expressed"):
        envs.from_jumanji("odd", Odd())


class Params(NamedTuple):
    max_timesteps: int = 3

    def replace(self, **changes):
        return self._replace(**changes)


class World:
    """An environment in Craftax' manner, which ends after ``max_timesteps`` or once the action 1 is taken."""

    def observation_space(self, params):
        return types.SimpleNamespace(low=0.0, high=100.0, shape=(1,), dtype=jnp.float32)

    def action_space(self, params):
        return types.SimpleNamespace(n=2)

    def reset(self, key, params):
        return jax.random.uniform(key, (1,)), jnp.int32(0)

    def step(self, key, time, action, params):
        done = (time + 1 >= params.max_timesteps) | (action == 1)
        return 1.0 + jax.random.uniform(key, (1,)), time + 1, 1, done, {}


def test_craftax():
    env = envs.from_craftax("world", World(), Params(), max_steps=4)
    envs.check_env(env)
    _, step, _ = play(env, jnp.array([0, 0, 0, 0, 0, 1, 0]))
    np.testing.assert_array_equal(step.truncated, [False, False, False, True, False, False, False])
    np.testing.assert_array_equal(step.terminated, [False] * 5 + [True, False])


@pytest.mark.rest
def test_trees_train():
    """An observation of several parts, with illegal actions, through a training."""
    config = ppo.Config(total_steps=128, num_envs=4, num_steps=16, num_minibatches=2, hidden_sizes=(4,))
    metrics = jax.jit(ppo.make_train(config, envs.from_jumanji("board", Board())))(jax.random.key(0)).metrics
    assert metrics["alive"].all()


@pytest.mark.parametrize("family", list(EXTRAS))
def test_missing_libraries_and_wrong_names(family, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    name = families()[family][0]
    with pytest.raises(ConfigError) as error:
        envs.make(name)
    assert str(error.value) == f"env = {name!r}: {EXTRAS[family]} is not installed; pip install 'purerl[{family}]'"
    with pytest.raises(ConfigError, match=f"^env = '{name}x': unknown environment; nearest: {name}, "):
        envs.make(f"{name}x")


def skip_if_missing(name):
    if not is_installed(family := name.partition("/")[0]):
        pytest.skip(f"{EXTRAS[family]} is an extra: pip install 'purerl[{family}]'")


@pytest.mark.parametrize("name", OPTIONAL)
def test_contract(name):
    skip_if_missing(name)
    envs.check_env(envs.make(name), num_steps=8, num_envs=2)


def jumanjis():
    import jumanji

    raw = jumanji.make("Game2048-v1")
    show = lambda state, timestep: (state, timestep.observation.board, timestep.reward)
    return lambda key: show(*raw.reset(key)), lambda state, action, key: show(*raw.step(state, action))


def craftaxs():
    from craftax.craftax_env import make_craftax_env_from_name

    raw = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    show = lambda obs, state, reward, *_: (state, obs, reward)
    return lambda key: show(*raw.reset(key), 0), lambda state, action, key: show(*raw.step(key, state, action))


def xminigrids():
    import xminigrid

    raw, params = xminigrid.make("MiniGrid-FourRooms")
    show = lambda timestep: (timestep, timestep.observation, timestep.reward)
    return lambda key: show(raw.reset(params, key)), lambda state, action, key: show(raw.step(params, state, action))


def pgxs():
    import pgx

    raw = pgx.make("minatar-breakout")
    show = lambda state: (state, state.observation, state.rewards[0])
    return lambda key: show(raw.init(key)), lambda state, action, key: show(raw.step(state, action, key))


def playgrounds():
    from mujoco_playground import registry

    raw = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    show = lambda state: (state, state.obs, state.reward)
    return lambda key: show(raw.reset(key)), lambda state, action, key: show(raw.step(state, action))


def kinds_and_colours(planes):
    return jnp.stack([jnp.argmax(part, axis=-1) for part in jnp.split(planes, [13], axis=-1)], axis=-1)


THEIRS = {
    "jumanji/Game2048-v1": (jumanjis, lambda obs: obs["board"]),
    "craftax/Craftax-Classic-Symbolic-v1": (craftaxs, lambda obs: obs),
    "xminigrid/MiniGrid-FourRooms": (xminigrids, kinds_and_colours),
    "pgx/minatar-breakout": (pgxs, lambda obs: obs),
    "playground/CartpoleBalance": (playgrounds, lambda obs: obs),
}
"""What plays each library's own environment, as ``(state, what is seen, reward)``, and where ours shows the same."""


@pytest.mark.parametrize("name", THEIRS)
def test_steps_are_those_of_the_library(name):
    """Observations and rewards up to the end of the first episode, which our time limit cuts off."""
    skip_if_missing(name)
    env, (reset, step), seen = envs.make(name, max_steps=9), THEIRS[name][0](), THEIRS[name][1]
    actions = sample(env.action_space, jax.random.key(3), (9,))

    @jax.jit
    def both(key):
        key_reset, key_noise = jax.random.split(key)
        noise = env.noise(key_noise, (9,))
        theirs_noise = jax.random.split(key_noise, 9) if isinstance(noise, tuple) else noise
        ours, (theirs, shown, _) = env.begin(key_reset), reset(key_reset)

        def act(carry, inputs):
            noise, theirs_noise, action = inputs
            ours, result = env.step(noise, carry[0], action)
            theirs, *expected = step(carry[1], action, theirs_noise)
            return (ours, theirs), (seen(result.next_obs), result.reward, expected, result.terminated, result.truncated)

        return (seen(ours[1]), shown), jax.lax.scan(act, (ours[0], strong(theirs)), (noise, theirs_noise, actions))[1]

    with jax.numpy_rank_promotion("allow"):
        first, (obs, reward, expected, terminated, truncated) = jax.device_get(both(jax.random.key(5)))
    length = 1 + int(np.argmax(terminated | truncated))
    assert truncated[length - 1] == (length == 9 and not terminated[8])
    np.testing.assert_allclose(*np.asarray(first, np.float64), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(obs[:length], np.float64(expected[0][:length]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(reward[:length], expected[1][:length], rtol=1e-4, atol=1e-5)


class Walker(NamedTuple):
    """A state as Playground's are."""

    obs: Any
    reward: Any
    done: Any

    def replace(self, **fields):
        return self._replace(**fields)


class Walking:
    """An environment of Playground's kind, whose critic knows the friction."""

    action_size = 2

    def __init__(self, privileged):
        self.see = lambda x: {"state": x[:1], **({privileged: x} if privileged else {})}

    def reset(self, key):
        return Walker(self.see(jax.random.normal(key, (3,))), jnp.float32(0), jnp.float32(0))

    def step(self, state, action):
        return Walker(jax.tree.map(lambda x: x + 1, state.obs), jnp.float32(1), jnp.float32(0))


def test_what_playground_calls_privileged_is_for_critics():
    """Observations of the two names alone; any other tree is seen whole."""
    env = playground.from_playground("mine", Walking("privileged_state"), max_steps=3)
    check_env(env)
    assert agents.critic_sees_more(env)
    assert env.own(env.observation_space).shape == (1,) and env.state(env.observation_space).shape == (3,)
    for other in ("pixels", None):
        env = playground.from_playground("mine", Walking(other), max_steps=3)
        assert env.own is env.state is None
