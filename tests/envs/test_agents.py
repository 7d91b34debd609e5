"""Views of environments of several agents: who sees what, where an episode ends, and all agents as one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fleets import alone, drawn

from purerl import envs, spaces
from purerl.envs import agents
from purerl.envs.check_types import type_problems
from purerl.envs.episodic import no_noise, one_level
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, MultiDiscrete
from purerl.types import Env, Step

KEY = jax.random.key(0)
N, A = 3, 4
TURNS = np.array([[True, False, True], [False, True, True], [True, True, False], [False, False, True]])
MAY = np.array([[0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 1]], bool)
ENDED = {"terminated": np.full(N, True), "truncated": np.full(N, True), "mixed": np.array([True, False, True])}


def probe(end="terminated", **change):
    """Three steps of three agents. ``mine`` is the agent's number and the time, ``may`` and ``turn`` are masks, ``all``
    is the time for critics; action ``a`` of agent ``j`` pays it ``a * 10**j``."""

    def observe(time):
        count = jnp.full(N, time, jnp.float32)
        return {
            "mine": jnp.stack([jnp.arange(N, dtype=jnp.float32), count], axis=-1),
            "may": jnp.asarray(MAY),
            "turn": jnp.asarray(TURNS)[time],
            "all": jnp.stack([count, -count], axis=-1),
        }

    def step(noise, time, action):
        last, ends = time == 2, jnp.asarray(ENDED[end])
        flags = (last & ends, last & ~ends) if end != "truncated" else (jnp.zeros(N, bool), last & ends)
        reward = action.astype(jnp.float32) * 10.0 ** jnp.arange(N)
        return time + 1, Step(observe(time + 1), reward, *flags)

    env = Env(
        "probe/three",
        one_level,
        lambda level: (jnp.zeros((), jnp.int32), observe(jnp.zeros((), jnp.int32))),
        no_noise,
        step,
        {
            "mine": Box(np.zeros(2, np.float32), np.array([N - 1, 3], np.float32), (2,), jnp.float32),
            "may": Box(False, True, (A,), jnp.bool_),
            "turn": Box(False, True, (), jnp.bool_),
            "all": Box(-3, 3, (2,), jnp.float32),
        },
        Discrete(A),
        lambda obs: obs["may"],
        N,
        acting=lambda obs: obs["turn"],
        own=lambda obs: {name: obs[name] for name in ("mine", "may", "turn")},
        state=lambda obs: obs["all"],
        ends_together=True,
    )
    return env._replace(**change)


def played(env, *actions):
    """The first observation, what is seen after each of these actions, and the steps."""
    env_state, obs = env.reset(KEY)
    seen, steps = [], []
    for action in actions:
        env_state, after, step = alone(env)(drawn(env, KEY), env_state, jnp.asarray(action))
        seen.append(jax.device_get(after))
        steps.append(jax.device_get(step))
    return jax.device_get(obs), seen, steps


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


VIEWS = {
    "own": agents.own,
    "with_ids": agents.with_ids,
    "with_state": agents.with_state,
    "with_state of ids": lambda env: agents.with_state(agents.with_ids(env)),
    "joint": agents.joint,
    "joint with previous": lambda env: agents.joint(env, previous=True),
}
ENVIRONMENTS = {
    "probe": probe,
    "nothing told": lambda: probe(legal=None, acting=None, own=None, state=None),
    "TwoStep-v0": lambda: envs.make("TwoStep-v0"),
    "TicTacToe-v0": lambda: envs.make("TicTacToe-v0"),
    "one agent": lambda: envs.make("CartPole-v1"),
    "one with masks": lambda: envs.make("probe/illegal-actions"),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_views_are_sound(name, view):
    """Shapes, dtypes and masks are those of the spaces, also of many observations."""
    assert type_problems(VIEWS[view](ENVIRONMENTS[name]()), KEY) == []


@pytest.mark.parametrize("view", VIEWS)
def test_spaces_contain_observations(view):
    env = VIEWS[view](probe("truncated"))
    first, seen, steps = played(env, *np.full((4, N), A - 1))
    for obs in (first, *seen, *(step.next_obs for step in steps)):
        for leaf, x in zip(spaces.leaves(env.observation_space), jax.tree.leaves(obs), strict=True):
            low, high = spaces.bounds(leaf)
            assert np.all(np.asarray(low) <= x) and np.all(x <= np.asarray(high)), leaf


def test_own_is_what_policies_may_see():
    env = agents.own(probe())
    first, seen, steps = played(env, *np.ones((3, N), int))
    assert env.own is None and env.state is None
    assert set(first) == set(env.observation_space) == {"mine", "may", "turn"}
    np.testing.assert_array_equal(steps[1].next_obs["mine"], [[0, 2], [1, 2], [2, 2]])
    np.testing.assert_array_equal(steps[2].next_obs["mine"], [[0, 3], [1, 3], [2, 3]])
    np.testing.assert_array_equal(seen[2]["mine"], [[0, 0], [1, 0], [2, 0]])
    np.testing.assert_array_equal(env.legal(first), MAY)
    np.testing.assert_array_equal(env.acting(seen[0]), TURNS[1])
    plain = probe(own=None)
    assert agents.own(plain) is plain


def test_ids():
    """Each agent sees its own number, in every observation; what else is told of observations stays."""
    env = agents.with_ids(probe())
    first, seen, steps = played(env, *np.ones((3, N), int))
    for obs in (first, seen[2], steps[2].next_obs):
        np.testing.assert_array_equal(obs["id"], np.eye(N))
        np.testing.assert_array_equal(env.legal(obs), MAY)
        np.testing.assert_array_equal(env.own(obs)["id"], np.eye(N))
        assert set(env.own(obs)["obs"]) == {"mine", "may", "turn"}
    np.testing.assert_array_equal(env.acting(steps[2].next_obs), TURNS[3])
    np.testing.assert_array_equal(env.state(steps[2].next_obs), [[3, -3]] * N)
    single = envs.make("CartPole-v1")
    assert agents.with_ids(single) is single


def test_state_for_critics():
    """`Env.state`, or what all agents see, one after another, which is the same for each of them."""
    env = agents.with_state(agents.with_ids(probe()))
    _, seen, steps = played(env, *np.ones((3, N), int))
    np.testing.assert_array_equal(steps[2].next_obs["state"], [[3, -3]] * N)
    np.testing.assert_array_equal(seen[2]["state"], np.zeros((N, 2)))
    np.testing.assert_array_equal(env.own(seen[0])["own"]["id"], np.eye(N))
    np.testing.assert_array_equal(env.acting(seen[0]), TURNS[1])
    np.testing.assert_array_equal(env.legal(seen[0]), MAY)
    made = agents.with_state(probe(state=None))
    _, seen, steps = played(made, *np.ones((3, N), int))
    each = np.concatenate([MAY, [[0, 1], [1, 1], [2, 1]], TURNS[1][:, None]], axis=1)  # leaves by name
    np.testing.assert_array_equal(seen[0]["state"], [each.reshape(-1)] * N)


@pytest.mark.parametrize("end", ENDED)
def test_joint(end):
    env = agents.joint(probe(end), previous=True)
    assert env.num_agents == 1 and env.action_space == MultiDiscrete((A,) * N)
    first, seen, steps = played(env, [1, 2, 3], [0, 0, 1], [3, 2, 0])
    assert set(first) == {"agents", "state", "legal", "acting", "previous"}
    np.testing.assert_array_equal(first["previous"], [0, 0, 0])
    np.testing.assert_allclose([step.reward for step in steps], [107, 100 / 3, 23 / 3], rtol=1e-6)
    ends = {"terminated": (True, False), "truncated": (False, True), "mixed": (False, True)}[end]
    assert [(s.terminated, s.truncated) for s in steps] == [(False, False), (False, False), ends]
    for at, (did, time) in enumerate([((2, 3, 4), 1), ((1, 1, 2), 2), ((4, 3, 1), 3)]):
        obs = steps[at].next_obs
        np.testing.assert_array_equal(obs["previous"], did)
        np.testing.assert_array_equal(obs["agents"]["mine"], [[0, time], [1, time], [2, time]])
        np.testing.assert_array_equal(obs["state"], [time, -time])
        np.testing.assert_array_equal(obs["acting"], TURNS[time])
        np.testing.assert_array_equal(env.legal(obs), MAY.reshape(-1))
        if time < 3:
            same(seen[at], obs)
    same(seen[2], first)


def test_joint_of_one_agent():
    """It is the environment itself, with an axis of one agent."""
    plain_env, given = envs.make("probe/illegal-actions"), []

    def step(noise, env_state, action):
        given.append(action.shape)
        return plain_env.step(noise, env_state, action)

    one = plain_env._replace(step=step)
    env = agents.joint(one, previous=True)
    first, seen, steps = played(env, [1], [2])
    assert given == [(), ()]
    plain, plain_seen, plain_steps = played(one, 1, 2)
    same(first["agents"], jax.tree.map(lambda x: x[None], plain))
    assert env.action_space == MultiDiscrete((3,))
    for obs, step, plain_obs, made in zip(seen, steps, plain_seen, plain_steps, strict=True):
        same(step.next_obs["agents"], jax.tree.map(lambda x: x[None], made.next_obs))
        same(step[1:], made[1:])
        np.testing.assert_array_equal(env.legal(obs), one.legal(plain_obs))
    assert [int(step.next_obs["previous"][0]) for step in steps] == [2, 3] and seen[1]["previous"][0] == 0
    assert agents.joint(one).observation_space.keys() == {"agents", "legal"}


def test_joint_actions_in_a_box():
    def step(noise, time, action):
        time, made = probe().step(noise, time, jnp.zeros(N, jnp.int32))
        return time, made._replace(reward=action[:, 0] - action[:, 1])

    low = np.array([-1, -2], np.float32)
    env = probe(step=step, legal=None, action_space=Box(low, 3.0, (2,), jnp.float32))
    seen = agents.joint(env)
    assert seen.action_space.shape == (N, 2)
    np.testing.assert_array_equal(np.broadcast_to(seen.action_space.low, (N, 2)), [low] * N)
    *_, (made,) = played(seen, np.array([[1, 0], [2, 0], [6, 3]], np.float32))
    assert made.reward == 2.0
    with pytest.raises(ConfigError, match="has Box actions; agents need Discrete ones"):
        agents.joint(env, previous=True)
    with pytest.raises(ConfigError, match="has MultiDiscrete actions"):
        agents.joint(probe(action_space=MultiDiscrete((2, 2))))


def test_agents_of_and_flat():
    env = probe()
    num_agents, space = agents.agents_of(agents.joint(env).observation_space)
    own = env.own(env.observation_space)
    assert num_agents == N and spaces.struct(space) == spaces.struct(own)
    np.testing.assert_array_equal(space["mine"].high, own["mine"].high)
    _, obs = env.reset(KEY)
    one = agents.flat(own, env.own(obs))
    assert one.shape == (N, agents.flat_size(own)) == (N, 7) and one.dtype == jnp.float32
    np.testing.assert_array_equal(one[1], [1, 0, 1, 1, 1, 0, 0])
    several = agents.flat({"a": Discrete(5), "b": MultiDiscrete((2, 3))}, {"a": jnp.array([4, 1]), "b": jnp.eye(2)})
    np.testing.assert_array_equal(several, [[4, 1, 0], [1, 0, 1]])
