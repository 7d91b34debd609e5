"""Environments of the host for tests: what they show and pay is written down beforehand."""

from types import SimpleNamespace

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from purerl.hosts.bundle import Batch, HostEnv, Turn


class Script(gymnasium.Env):
    """Shows the step within the episode and the action executed last, pays 10 times the one plus the other.

    Episodes terminate after ``length`` steps. Step ``nan`` of each shows nan, and step ``unpaid`` pays infinity.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, length=5, nan=0, unpaid=0, render_mode=None):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.length, self.nan, self.unpaid, self.render_mode = length, nan, unpaid, render_mode
        self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2), {}

    def step(self, action):
        self.time += 1
        obs = np.array([np.nan if self.time == self.nan else self.time, action])
        reward = np.inf if self.time == self.unpaid else 10.0 * self.time + action
        return obs, reward, self.time >= self.length, False, {}

    def render(self):
        return np.full((4, 6, 3), self.time, np.uint8)


class Nested(gymnasium.Env):
    """Spaces within spaces: shows what it draws, kept in ``shown``, and keeps the actions in ``given``."""

    def __init__(self, observation_space, action_space, masked=False):
        self.observation_space, self.action_space, self.masked = observation_space, action_space, masked
        self.given, self.shown = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.show()

    def step(self, action):
        assert self.action_space.contains(action), action
        self.given.append(action)
        obs, info = self.show()
        return obs, 1.0, len(self.given) % 4 == 0, False, info

    def show(self):
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], {"action_mask": np.array([1, 0, 1], np.int8)} if self.masked else {}


class Agents:
    """A parallel environment as PettingZoo has them: agent ``i`` of three leaves after ``stay[i]`` steps.

    Step ``unpaid`` pays the last agent infinity.
    """

    metadata = {"render_modes": []}

    def __init__(self, stay=(2, 3, 4), cut=(), spaces_differ=False, unpaid=0):
        self.possible_agents = ["a", "b", "c"]
        self.stay, self.cut, self.spaces_differ = dict(zip("abc", stay, strict=True)), cut, spaces_differ
        self.agents, self.unpaid = [], unpaid

    def observation_space(self, agent):
        return spaces.Box(-1, 99, (3 if self.spaces_differ and agent == "b" else 2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3, start=1)

    def reset(self, seed=None, options=None):
        self.time, self.agents, self.seed = 0, list(self.possible_agents), seed if seed is not None else self.seed
        return {agent: np.array([0, self.seed], np.float32) for agent in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        assert list(actions) == self.agents and all(1 <= action <= 3 for action in actions.values())
        self.time += 1
        went = [agent for agent in self.agents if self.stay[agent] <= self.time]
        obs = {agent: np.array([self.time, actions[agent]], np.float32) for agent in self.agents}
        reward = {agent: float(actions[agent]) for agent in self.agents}
        if self.time == self.unpaid:
            reward["c"] = np.inf
        ended = {agent: agent in went and agent not in self.cut for agent in self.agents}
        cut = {agent: agent in went and agent in self.cut for agent in self.agents}
        info = {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if agent not in went]
        return obs, reward, ended, cut, info

    def close(self):
        pass


def script(length=5, nan=0, unpaid=0, render_mode=None):
    return Script(length, nan, unpaid, render_mode)


def thunk(length=5):
    return lambda: Script(length)


def sync(num_envs=2, mode="SameStep", length=5):
    return SyncVectorEnv([lambda i=i: Script(length + i) for i in range(num_envs)], autoreset_mode=AutoresetMode(mode))


def fixed(length=5):
    return SyncVectorEnv([lambda: Script(length)] * 3)


class Late(VectorEnv):
    """A vector environment that knows only NEXT_STEP."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs=1):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces.Box(0, 1), spaces.Discrete(2)


def nothing():
    return SimpleNamespace()


def ready(length=3):
    """A `HostEnv` of somebody's own."""

    def batch(num_envs):
        obs, no = (np.zeros((num_envs, 1), np.float32),), np.zeros(num_envs, bool)
        return Batch(lambda seeds: obs, lambda action: Turn(obs, np.ones(num_envs, np.float32), no, no, obs), lambda: 0)

    return HostEnv(f"ready-{length}", spaces.Box(0, 1), spaces.Discrete(2), batch)


def played(env, actions):
    """What is seen first, and turns."""
    batch = env.batch(actions.shape[1])
    return batch.reset(np.arange(actions.shape[1])), [batch.step(action) for action in actions]


def looped(make, actions):
    """The same of a plain loop over copies, as arrays ``[T, B, ...]``: next_obs, reward, terminated, truncated, obs."""
    first, turns = [], []
    for lane in range(actions.shape[1]):
        env = make()
        first.append(env.reset(seed=lane)[0])
        turns.append([])
        for action in actions[:, lane]:
            next_obs, reward, terminated, truncated, _ = env.step(action)
            obs = env.reset()[0] if terminated or truncated else next_obs
            turns[-1].append((next_obs, reward, terminated, truncated and not terminated, obs))
    return np.array(first), [np.stack([[turn[k] for turn in lane] for lane in turns], axis=1) for k in range(5)]


def assert_same(host, loop, dtype=np.float32):
    (first, turns), (first_there, there) = host, loop
    np.testing.assert_array_equal(first[0], first_there.astype(dtype))
    for field, expected in zip(("next_obs", "reward", "terminated", "truncated", "obs"), there, strict=True):
        result = np.stack([getattr(turn, field)[0] if "obs" in field else getattr(turn, field) for turn in turns])
        np.testing.assert_array_equal(result, expected.astype(result.dtype), err_msg=field)
    assert all(turn.reward.dtype == np.float32 and turn.terminated.dtype == bool for turn in turns)
    assert all(turn.cut == 0 and turn.next_obs[0].dtype == dtype for turn in turns)


def pair(length=4, alone=-1, reset_early=False):
    """A `HostEnv` of two agents, paid what both choose together; agent 0 leaves at step ``alone`` by itself. With
    ``reset_early`` the last observation of an episode is the first of the next."""

    def batch(num_envs):
        time, lots = np.zeros(num_envs, np.int64), []

        def seen():
            drawn = np.array([lot.random() for lot in lots], np.float32)
            obs = np.stack([time.astype(np.float32), drawn], axis=-1)
            return (np.repeat(obs[:, None], 2, axis=1),)

        def reset(seeds):
            time[:], lots[:] = 0, [np.random.default_rng(seed) for seed in seeds]
            return seen()

        def step(action):
            time[:] += 1
            reward = np.repeat(action.sum(axis=1, keepdims=True), 2, axis=1).astype(np.float32)
            last, next_obs = np.repeat((time >= length)[:, None], 2, axis=1), seen()
            last[:, 0] |= time == alone
            ended = last.all(axis=1)
            time[ended] = 0
            obs = seen() if ended.any() else next_obs
            obs = (np.where(ended[:, None, None], obs[0], next_obs[0]),)
            return Turn(obs if reset_early else next_obs, reward, last, np.zeros_like(last), obs)

        return Batch(reset, step, lambda: None)

    return HostEnv("pair", spaces.Box(0, 99, (2,), np.float32), spaces.Discrete(2), batch, num_agents=2)


class Faulty(Script):
    """A `Script` with an error: ``fault`` names it."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        if fault == "mask":
            inner = spaces.Box(-np.inf, np.inf, (2,), np.float32)
            self.observation_space = spaces.Dict({"action_mask": spaces.Box(0, 1, (3,), np.int8), "obs": inner})
        if fault == "space":
            self.observation_space = spaces.Box(0, 4, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if self.fault == "seeds":
            obs = np.random.random(2)
        return self.masked(obs), info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.fault == "steps":
            obs = obs + np.random.random(2)
        if self.fault == "shape" and self.time == 4:
            obs = np.zeros(3)
        return self.masked(obs), reward, terminated, truncated, info

    def masked(self, obs):
        mask = np.array([self.time != 3] * 3, np.int8)
        return {"action_mask": mask, "obs": obs.astype(np.float32)} if self.fault == "mask" else obs


def faulty(fault="", render_mode=None):
    return Faulty(fault)
