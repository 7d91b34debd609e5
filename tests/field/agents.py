"""Parallel environments of PettingZoo whose agents die, come later, come back, or are told of in other ways."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from ten import Counts, note


class Team(Counts, ParallelEnv):
    """Three agents, each paid 1 in a step, also in the one in which it comes; all go on to step ten."""

    metadata = {"name": "team_v0", "render_modes": []}
    possible_agents = ["x", "y", "z"]
    render_mode = None
    length = 10

    def __init__(self):
        self.made()

    def observation_space(self, agent):
        return spaces.Box(0, 100, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def here(self, t):
        """The agents that are there after step ``t``."""
        return list(self.possible_agents) if t < self.length else []

    def cut(self, agent):
        """Whether the agent is truncated where it leaves."""
        return False

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, self.here(0)
        return self.seen(self.agents), {agent: {} for agent in self.agents}

    def seen(self, agents):
        return {agent: np.full(1, self.t, np.float32) for agent in agents}

    def paid(self, agent):
        """The agent's reward."""
        return 1.0

    def step(self, actions):
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.moved()
        self.t += 1
        acted, self.agents = self.agents, self.here(self.t)
        gone = {agent: agent not in self.agents for agent in acted}
        shown = list(dict.fromkeys([*acted, *self.agents]))
        ended = {agent: gone.get(agent, False) and not self.cut(agent) for agent in shown}
        cut = {agent: gone.get(agent, False) and self.cut(agent) for agent in shown}
        if not self.agents:
            self.ended()
        return (
            self.seen(shown),
            {agent: self.paid(agent) for agent in shown},
            ended,
            cut,
            {agent: {} for agent in shown},
        )


class Dying(Team):
    """Agents leave after 3, 6 and 9 steps: terminated, truncated (``kind`` 1), or by turns (2). Mean return 6."""

    def __init__(self, kind=0):
        super().__init__()
        self.kind = kind

    def here(self, t):
        return [agent for i, agent in enumerate(self.possible_agents) if t < 3 + 3 * i]

    def cut(self, agent):
        return self.kind == 1 or (self.kind == 2 and agent == "y")


class Later(Team):
    """Agent z comes in step 4: returns 10, 10 and 7."""

    def here(self, t):
        return [agent for agent in super().here(t) if agent != "z" or t >= 4]


class Back(Team):
    """Agent x leaves in step 3 and is back in step 6: returns 8, 10 and 10."""

    def here(self, t):
        return [agent for agent in super().here(t) if agent != "x" or not 3 <= t < 6]


class Waves(Team):
    """Another agent every two steps, one at a time: x, y, z, x, y. Returns 5, 6 and 3."""

    def here(self, t):
        return [self.possible_agents[t // 2 % 3]] if t < self.length else []


class Drawn(Team):
    """Draws in each step if it has a `render_mode`, whose default is "human"."""

    metadata = {"name": "drawn_v0", "render_modes": ["human", "rgb_array"], "render_fps": 5}

    def __init__(self, render_mode="human"):
        super().__init__()
        note(f"mode_{render_mode}", self.number)
        self.render_mode = render_mode

    def paid(self, agent):
        if self.render_mode is not None:
            note("drew", self.number)
        return 1.0


class Everyone(Team):
    """Flags and rewards have a key for all, as RLlib's have."""

    def step(self, actions):
        obs, rewards, ended, cut, infos = super().step(actions)
        return obs, rewards, ended | {"__all__": not self.agents}, cut | {"__all__": False}, infos


class Stays(Team):
    """Sets the flags of all at the end and leaves `agents` as they are, as tutorials do."""

    def step(self, actions):
        obs, rewards, ended, cut, infos = super().step(actions)
        if not self.agents:
            self.agents = list(self.possible_agents)
        return obs, rewards, ended, cut, infos


class NoInfos(Team):
    """`reset` returns observations alone, as PettingZoo's did."""

    def reset(self, seed=None, options=None):
        return super().reset(seed)[0]


class Dead(Team):
    """Agent x is paid 1 and terminates in its first step, y is paid nothing until step 10; each sees who it is."""

    possible_agents = ["x", "y"]

    def observation_space(self, agent):
        return spaces.Box(0, 1, (2,), np.float32)

    def here(self, t):
        return [agent for agent in super().here(t) if agent == "y" or t == 0]

    def seen(self, agents):
        return {agent: np.eye(2, dtype=np.float32)["xy".index(agent)] for agent in agents}

    def paid(self, agent):
        return float(agent == "x")
