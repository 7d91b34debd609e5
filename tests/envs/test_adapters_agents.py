"""Adapters of environments of several agents: what is padded, masked and cut on tiny ones, and the libraries' own."""

import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from purerl import envs, ppo
from purerl.catalogue import EXTRAS, is_installed
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete
from purerl.trees import strong


def play(env, choose, num_steps, seed=0):
    """The level, the first observation and, of each step, its randomness, the actions, the `Step` and what is seen
    after it, ``[T, N, ...]``.

    ``choose(key, obs)`` gives the agents' actions.
    """

    @jax.jit
    def run(key):
        key_reset, key_noise, key_action = jax.random.split(key, 3)
        state, obs = env.begin(key_reset)

        def one_step(carry, inputs):
            state, obs = carry
            noise, key = inputs
            action = choose(key, obs)
            state, step = env.step(noise, state, action)
            start, last = env.begin(jax.random.fold_in(key, 1)), jnp.any(step.last)
            after = jax.tree.map(lambda new, old: jnp.where(last, new, old), start, (state, step.next_obs))
            return after, (noise, action, step, after[1])

        noise = env.noise(key_noise, (num_steps,))
        keys = jax.random.split(key_action, num_steps)
        return key_reset, obs, jax.lax.scan(one_step, (state, obs), (noise, keys))[1]

    return run(jax.random.key(seed))


def legally(env):
    """Random legal actions of ``num_agents`` agents."""

    def choose(key, obs):
        if isinstance(env.action_space, Box):
            return jax.random.uniform(key, (env.num_agents, *env.action_space.shape))
        chances = jax.random.uniform(key, (env.num_agents, env.action_space.n))
        return jnp.argmax(jnp.where(env.legal(obs), chances, -1.0) if env.legal else chances, axis=-1)

    return choose


def numbers(space_n=None, **bounds):
    return types.SimpleNamespace(n=space_n) if space_n else types.SimpleNamespace(**bounds)


@struct.dataclass
class Duel:
    health: jax.Array
    time: jax.Array


class Pair:
    """An environment in JaxMARL's manner: each hit of one agent costs the other one of its two lives.

    The agents see vectors of 2 and 3 numbers and have 2 and 3 actions, of which 1 hits. A dead agent can only do 0, and
    2 is never legal at odd times. It ends at time 3, 7 or 11 if one is dead, and once both are.
    """

    agents = ["left", "right"]
    num_actions = {"left": 2, "right": 3}

    def action_space(self, agent):
        return numbers(self.num_actions[agent])

    def reset(self, key):
        state = Duel(jnp.array([2, 2]), jnp.int32(0))
        return self.obs(state), state

    def obs(self, state):
        seen = jnp.array([*state.health, state.time], jnp.float32)
        return {"left": seen[:2], "right": seen}

    def get_avail_actions(self, state):
        left = jnp.array([True, True]) & ((state.health[0] > 0) | (jnp.arange(2) == 0))
        right = jnp.array([True, True, state.time % 2 == 0]) & ((state.health[1] > 0) | (jnp.arange(3) == 0))
        return {"left": left.astype(jnp.uint8), "right": right.astype(jnp.uint8)}

    def get_world_state(self, state):
        return jnp.append(state.health, state.time)

    def step_env(self, key, state, actions):
        hits = jnp.stack([actions["right"] == 1, actions["left"] == 1]) & (state.health > 0)
        state = Duel(jnp.maximum(state.health - hits, 0), state.time + 1)
        rewards = {"left": 1 * hits[1], "right": 1 * hits[0]}
        ended = jnp.any(state.health == 0) & (state.time % 4 == 3) | jnp.all(state.health == 0)
        return self.obs(state), state, rewards, {"left": ended, "right": ended, "__all__": ended}, {}


@pytest.mark.rest
def test_unequal_agents():
    env = envs.from_jaxmarl("pair", Pair(), max_steps=5)
    envs.check_env(env)
    assert env.num_agents == 2 and env.action_space == Discrete(3)
    assert {part: space.shape for part, space in env.observation_space.items()} == {
        "obs": (3,),
        "legal": (3,),
        "state": (3,),
    }
    _, first, (_, _, step, shown) = play(env, legally(env), 60)
    np.testing.assert_array_equal(first["obs"], [[2, 2, 0], [2, 2, 0]])
    np.testing.assert_array_equal(first["legal"], [[True, True, False], [True, True, True]])
    obs = jax.device_get(step.next_obs)
    assert not obs["obs"][:, 0, 2].any() and not obs["legal"][:, 0, 2].any()
    np.testing.assert_array_equal(obs["obs"][:, 1], obs["state"][:, 1])
    np.testing.assert_array_equal(obs["state"][:, 0], obs["state"][:, 1])
    np.testing.assert_array_equal(env.acting(obs), obs["state"][:, 0, :2] > 0)
    assert set(env.own(obs)) == {"obs", "legal"} and env.state(obs) is obs["state"]
    assert step.reward.dtype == jnp.float32 and set(np.unique(step.reward)) == {0.0, 1.0}
    gone, time = obs["state"][:, 0, :2] == 0, obs["state"][:, 0, 2]
    dead, late = gone.any(-1) & (time % 4 == 3) | gone.all(-1), time == 5
    assert dead.any() and (late & ~dead).any()
    np.testing.assert_array_equal(step.terminated, np.stack([dead, dead], 1))
    np.testing.assert_array_equal(step.truncated, np.stack([late & ~dead] * 2, 1))
    np.testing.assert_array_equal(shown["state"][dead | late][:, 0], [[2, 2, 0]] * (dead | late).sum())


def test_an_end_by_time_alone():
    env = envs.from_jaxmarl("pair", Pair(), timed=True)
    _, _, (_, _, step, _) = play(env, legally(env), 60)
    assert step.truncated.any() and not step.terminated.any()


class Mortal(Pair):
    """An agent is done once it is dead, also before the game ends."""

    def step_env(self, key, state, actions):
        obs, state, rewards, dones, info = super().step_env(key, state, actions)
        own = {agent: dones[agent] | (state.health[i] == 0) for i, agent in enumerate(self.agents)}
        return obs, state, rewards, dones | own, info


@pytest.mark.parametrize("shared", [False, True])
def test_an_agent_that_is_done_ends_by_itself_unless_it_goes_on_earning(shared):
    env = envs.from_jaxmarl("mortal", Mortal(), shared=shared)
    assert env.ends_together == shared
    _, _, (_, _, step, _) = play(env, legally(env), 60)
    obs = jax.device_get(step.next_obs)
    gone, time = obs["state"][:, 0, :2] == 0, obs["state"][:, 0, 2]
    over = gone.any(-1) & (time % 4 == 3) | gone.all(-1)
    assert over.any() and (gone.any(-1) & ~over).any()
    np.testing.assert_array_equal(step.terminated, over[:, None] | (gone & (not shared)))


class Alone(Pair):
    """Without masks and a state of the world; an observation of each agent is a matrix or a vector."""

    get_world_state = property()  # there is no such attribute

    def get_avail_actions(self, state):
        raise NotImplementedError

    def obs(self, state):
        return {"left": jnp.ones((2, 2), jnp.int8), "right": jnp.zeros((3,), jnp.int8)}


@pytest.mark.rest
def test_what_no_mask_says():
    env = envs.from_jaxmarl("alone", Alone(), max_steps=4)
    envs.check_env(env)
    _, first = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(first["obs"], [[1, 1, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(first["legal"], [[True, True, False], [True, True, True]])
    assert env.acting is None and env.own is None and env.state is None

    class Same(Alone):
        num_actions = {"left": 2, "right": 2}

    env = envs.from_jaxmarl("same", Same(), max_steps=4)
    envs.check_env(env)
    assert env.legal is None and env.observation_space.dtype == jnp.int8

    class One(Same):
        agents = ["right"]

        def step_env(self, key, state, actions):
            return super().step_env(key, state, {"left": jnp.int32(0), **actions})

    env = envs.from_jaxmarl("one", One(), max_steps=4)
    envs.check_env(env)
    assert env.num_agents == 1 and env.observation_space.shape == (3,)


def test_numbers_as_actions():
    class Moving(Alone):
        def action_space(self, agent):
            return numbers(low=0.0, high=1.0 + (agent == "right"), shape=(self.num_actions[agent],))

        def step_env(self, key, state, actions):
            assert [actions[agent].shape for agent in self.agents] == [(2,), (3,)]
            obs, state, _, dones, infos = super().step_env(key, state, {agent: jnp.int32(0) for agent in self.agents})
            return obs, state, {agent: jnp.max(actions[agent]) for agent in self.agents}, dones, infos

    env = envs.from_jaxmarl("moving", Moving(), max_steps=4)
    envs.check_env(env)
    assert env.action_space == Box(0.0, 2.0, (3,), jnp.float32) and env.legal is None
    _, _, (_, _, step, _) = play(env, lambda key, obs: jnp.full((2, 3), 5.0), 1)
    np.testing.assert_array_equal(step.reward, [[1.0, 2.0]])

    class Odd(Alone):
        def action_space(self, agent):
            return types.SimpleNamespace(num_categories=3)

    with pytest.raises(ConfigError, match="env = 'odd': actions .* cannot be expressed"):
        envs.from_jaxmarl("odd", Odd())


@struct.dataclass
class Position:
    """A state of pgx: the sticks that are left, of which a player may take one or two."""

    sticks: jax.Array
    current_player: jax.Array
    rewards: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    legal_action_mask: jax.Array


class Nim:
    """Who takes the last stick wins. pgx draws who begins; a player sees the sticks and its own number."""

    num_players, id = 2, "kuhn_poker"

    def init(self, key):
        return self.at(jnp.int32(5), jax.random.randint(key, (), 0, 2), jnp.zeros(2), False)

    def at(self, sticks, player, rewards, ended):
        legal = jnp.array([1, 2]) <= jnp.maximum(sticks, 1)
        return Position(sticks, player, rewards, jnp.asarray(ended), jnp.zeros((), bool), legal)

    def step(self, state, action, key):
        left = state.sticks - 1 - action
        won = jnp.where(jnp.arange(2) == state.current_player, 1.0, -1.0)
        return self.at(left, 1 - state.current_player, jnp.where(left <= 0, won, 0.0), left <= 0)

    def observe(self, state, player):
        return jnp.array([state.sticks > 2, player == 0])


@pytest.mark.rest
def test_players():
    env = envs.from_pgx("nim", Nim())
    envs.check_env(env)
    assert env.num_agents == 2 and env.action_space == Discrete(2)
    _, first, (_, _, step, shown) = play(env, legally(env), 64)
    last = np.asarray(step.terminated[:, 0])
    before = jax.tree.map(lambda x, y: np.concatenate([x[None], y[:-1]]), first, shown)
    np.testing.assert_array_equal(step.terminated, np.stack([last, last], 1))
    np.testing.assert_array_equal(step.reward.sum(1), 0.0)
    acting = env.acting(before)
    np.testing.assert_array_equal(acting.sum(1), 1)
    np.testing.assert_array_equal(step.reward[last] == 1, acting[last])
    assert env.legal(before)[~acting].all() and not env.legal(before)[acting].all()
    begins = np.concatenate([[True], last[:-1]])
    np.testing.assert_array_equal(before["obs"][begins][..., 2], acting[begins])
    np.testing.assert_array_equal(before["obs"][..., 2], ~before["obs"][..., 3])
    np.testing.assert_array_equal(before["obs"][..., 1], np.array([[True, False]] * 64))
    for t in np.flatnonzero(~begins):
        np.testing.assert_array_equal(before["obs"][t, :, 2:], before["obs"][t - 1, :, 2:])
    assert 0 < before["obs"][begins][:, 0, 2].mean() < 1


@pytest.mark.weekly
def test_agents_train():
    config = ppo.Config(total_steps=256, num_envs=2, num_steps=16, num_minibatches=2, hidden_sizes=(4,))
    for env in (envs.from_jaxmarl("pair", Pair(), max_steps=9), envs.from_pgx("nim", Nim())):
        assert jax.jit(ppo.make_train(config, env))(jax.random.key(0)).metrics["alive"].all()


def skip_if_missing(name):
    if not is_installed(family := name.partition("/")[0]):
        pytest.skip(f"{EXTRAS[family]} is an extra: pip install 'purerl[{family}]'")


def padded(rows):
    """Arrays of the agents side by side, smaller ones filled with zeros."""
    if len({row.shape for row in rows}) == 1:
        return np.stack(rows)
    size = max(row.size for row in rows)
    return np.stack([np.pad(np.ravel(row), (0, size - row.size)) for row in rows])


def jaxmarls(registered, **arguments):
    """What plays JaxMARL's own, as ``(state, observations, masks or None, rewards, whether it ended)``."""
    import jaxmarl

    if "map" in arguments:
        from jaxmarl.environments.smax import map_name_to_scenario

        arguments = {"scenario": map_name_to_scenario(arguments["map"])}
    raw = jaxmarl.make(registered, **arguments)
    available = {"hanabi": "get_legal_moves", "HeuristicEnemySMAX": "get_avail_actions"}.get(registered)
    masks = getattr(raw, available) if available else lambda state: None

    def own(space, action):
        return jnp.clip(action[: space.shape[0]], space.low, space.high) if action.ndim else action

    def reset(key):
        obs, state = raw.reset(key)
        return state, [obs[agent] for agent in raw.agents], masks(state), obs.get("world_state")

    def step(state, actions, key):
        chosen = {agent: own(raw.action_space(agent), actions[i]) for i, agent in enumerate(raw.agents)}
        obs, state, rewards, dones, _ = raw.step_env(key, state, chosen)
        seen = [obs[agent] for agent in raw.agents]
        rewards = jnp.stack([jnp.float32(rewards[agent]) for agent in raw.agents])
        return state, seen, masks(state), obs.get("world_state"), rewards, dones["__all__"]

    return raw.agents, reset, step


THEIRS = {
    "jaxmarl/MPE_simple_spread_v3": ("MPE_simple_spread_v3", {}, {}, 30, "truncated"),
    "jaxmarl/MPE_simple_tag_v3": ("MPE_simple_tag_v3", {"max_steps": 4}, {"max_steps": 5}, 8, "truncated"),
    "jaxmarl/MPE_simple_world_comm_v3": ("MPE_simple_world_comm_v3", {}, {}, 30, "truncated"),
    "jaxmarl/MPE_simple_speaker_listener_v4": ("MPE_simple_speaker_listener_v4", {}, {}, 30, "truncated"),
    "jaxmarl/SMAX/2s3z": ("HeuristicEnemySMAX", {"map": "2s3z"}, {}, 105, None),
    "jaxmarl/SMAX/3m": ("HeuristicEnemySMAX", {"map": "3m"}, {}, 105, "terminated"),
    "jaxmarl/overcooked/cramped_room": ("overcooked", {"max_steps": 60}, {"max_steps": 60}, 64, "truncated"),
    "jaxmarl/hanabi": ("hanabi", {}, {}, 100, "terminated"),
    "jaxmarl/coin_game": ("coin_game", {"num_outer_steps": 2}, {"num_outer_steps": 2}, 24, "truncated"),
    "jaxmarl/jaxnav": ("jaxnav", {"max_steps": 501}, {}, 400, "terminated"),
}
"""The name in JaxMARL's registry, its arguments and ours, the steps to play, and how the first episode ends."""


@pytest.mark.parametrize("name", THEIRS)
def test_steps_are_those_of_jaxmarl(name):
    """Observations, masks, states of the world, rewards and the end of the first episode, of random legal actions."""
    skip_if_missing(name)
    registered, theirs, ours, num_steps, end = THEIRS[name]
    env, (agents, reset, step) = envs.make(name, **ours), jaxmarls(registered, **theirs)
    assert env.num_agents == len(agents)

    def one_step(state, inputs):
        state, *made = step(state, *inputs)
        return strong(state), made

    with jax.numpy_rank_promotion("allow"):
        key, first, (keys, actions, played, shown) = play(env, legally(env), num_steps)
        state, *start = jax.jit(reset)(key)
        _, expected = jax.jit(lambda state: jax.lax.scan(one_step, state, (actions, keys)))(strong(state))
    *made, rewards, ended = jax.device_get(expected)
    played, length = jax.device_get(played), 1 + int(np.argmax(ended))
    assert ended[length - 1]
    ends = played.terminated | played.truncated
    np.testing.assert_array_equal(ends[:length], np.stack([ended[:length]] * len(agents), 1))
    np.testing.assert_allclose(played.reward[:length], rewards[:length], rtol=1e-5, atol=1e-5)
    if end:
        assert getattr(played, end)[length - 1].all()
    same(first, jax.device_get(start), env, agents)
    for t in range(length):
        same(jax.tree.map(lambda x, t=t: x[t], played.next_obs), jax.tree.map(lambda x, t=t: x[t], made), env, agents)
    later = jax.tree.map(lambda x: x[length - 1], (shown, played.next_obs))
    assert any((x != y).any() for x, y in zip(*map(jax.tree.leaves, later), strict=True))


def same(ours, theirs, env, agents):
    """Whether an observation holds what JaxMARL shows: of each agent, its mask, and the state of the world."""
    rows, masks, world = theirs
    parts = ours if isinstance(ours, dict) else {"obs": ours}
    np.testing.assert_allclose(parts["obs"], padded(rows), rtol=1e-5, atol=1e-5)
    if masks is not None:
        np.testing.assert_array_equal(parts["legal"], padded([masks[agent] for agent in agents]) > 0)
        np.testing.assert_array_equal(env.acting(ours), [masks[agent].sum() > 1 for agent in agents])
    if world is not None:
        np.testing.assert_allclose(parts["state"], np.stack([world] * len(agents)), rtol=1e-5, atol=1e-5)


def test_dead_units_of_smax_do_not_act():
    skip_if_missing("jaxmarl/SMAX/3m")
    env = envs.make("jaxmarl/SMAX/3m")
    _, _, (_, _, step, _) = play(env, legally(env), 60)
    obs = jax.device_get(step.next_obs)
    health = obs["state"].reshape(60, 3, -1)[:, 0, : 6 * 10].reshape(60, 6, 10)[:, :3, 0]
    np.testing.assert_array_equal(env.acting(obs), health > 0)
    assert (health == 0).any()


def test_parameters_of_jaxmarl():
    skip_if_missing("jaxmarl/MPE_simple_spread_v3")
    env = envs.make("jaxmarl/MPE_simple_spread_v3", num_agents=2, num_landmarks=2, max_steps=25)
    assert env.num_agents == 2 and env.observation_space.shape == (12,)
    _, _, (_, _, step, _) = play(env, legally(env), 26)
    np.testing.assert_array_equal(np.flatnonzero(step.truncated[:, 0]), [24])
    env = envs.make("jaxmarl/MPE_simple_spread_v3", action_type="Continuous")
    assert env.action_space == Box(0.0, 1.0, (5,), jnp.float32)
    assert envs.make("jaxmarl/MPE_simple_v3").num_agents == 1
    for name, wrong in (("SMAX/3m", "num_allies"), ("hanabi", "local_ratio"), ("overcooked/coord_ring", "layout")):
        with pytest.raises(ConfigError, match=f"unknown parameter {wrong}"):
            envs.make(f"jaxmarl/{name}", **{wrong: 1})
    with pytest.raises(ConfigError, match="env = 'jaxmarl/MPE_simple_spread_v3': local_ratio"):
        envs.make("jaxmarl/MPE_simple_spread_v3", local_ratio=2.0)


def test_jaxmarl_is_imported_silently():
    """And leaves the standard streams alone, which its import would set to those of the process."""
    skip_if_missing("jaxmarl/coin_game")
    code = (
        "import sys; from purerl import envs; before = sys.stdout, sys.stderr = sys.stderr, sys.stdout; "
        "envs.make('jaxmarl/coin_game'); assert before == (sys.stdout, sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "kuhn_poker", "leduc_holdem"])
def test_games_are_those_of_pgx(game):
    """Each player's view, rewards, turns and the end, of random legal actions; the true final view."""
    skip_if_missing("pgx/")
    import pgx

    env, raw, num_steps = envs.make(f"pgx/{game}"), pgx.make(game), 48
    with jax.numpy_rank_promotion("allow"):
        key, first, (keys, actions, played, after) = play(env, legally(env), num_steps)
        state = jax.jit(raw.init)(key)
    first, actions, played = jax.device_get((first, actions, played))
    starter, advance = int(state.current_player), jax.jit(raw.step)
    obs = first
    for t in range(num_steps):
        shown = np.stack([raw.observe(state, player) for player in range(2)])
        np.testing.assert_array_equal(obs["obs"][..., : shown.shape[-1]], shown)
        if shown.shape != obs["obs"].shape:
            np.testing.assert_array_equal(obs["obs"][:, -2:], np.eye(2)[[(p - starter) % 2 for p in range(2)]])
        if state.terminated:
            break
        mover = int(state.current_player)
        assert obs["acting"].tolist() == [player == mover for player in range(2)]
        np.testing.assert_array_equal(obs["legal"][mover], state.legal_action_mask)
        assert obs["legal"][1 - mover].all()
        state = advance(state, actions[t, mover], keys[t])
        np.testing.assert_array_equal(played.reward[t], state.rewards)
        np.testing.assert_array_equal(played.terminated[t], [state.terminated] * 2)
        obs = jax.tree.map(lambda x, t=t: x[t], played.next_obs)
    assert state.terminated and not played.truncated.any()
    assert after["acting"][t - 1].sum() == 1


def test_go_is_as_large_as_its_name_says():
    skip_if_missing("pgx/")
    for name, params, size in (("go_9x9", {}, 9), ("go_9x9", {"komi": 5.5}, 9), ("go_9x9", {"size": 5}, 5)):
        env = envs.make(f"pgx/{name}", **params)
        assert env.observation_space["obs"].shape[:2] == (size, size) and env.action_space.n == size**2 + 1
