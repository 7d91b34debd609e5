"""Games whose winner is known by hand: what is paid is written down, whatever is done. On the device, on the host."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from purerl.envs.episodic import episodic, one_level
from purerl.hosts.pettingzoo import parallel
from purerl.hosts.rows import host_env
from purerl.spaces import Box, Discrete


class Script(NamedTuple):
    """Rewards ``[T, N]``, after how many steps each agent leaves, and by hand its return and the outcome for it."""

    rewards: list
    leave: list
    returns: list
    outcome: list
    zero_sum: bool = True


GAMES = {
    "first": Script([[0, 0], [1, -1]], [2, 2], [1, -1], [1, -1]),
    "draw": Script([[1, -1], [-0.25, 0.25], [-0.75, 0.75]], [3, 3], [0, 0], [0, 0]),
    "one_of_three": Script([[-1, 2, -1], [0.5, -1, 0.5]], [2, 2, 2], [-0.5, 1, -0.5], [-1, 1, -1]),
    "two_of_three": Script([[1, -2, 1]], [1, 1, 1], [1, -2, 1], [0, -1, 0]),
    "team": Script([[1, 1], [0.5, 0.5]], [2, 2], [1.5, 1.5], [0, 0], False),
    "apart": Script([[1, 2, 3], [9, 1, 1], [9, 9, 1]], [1, 2, 3], [1, 3, 5], [-1, -1, 1], False),
    "apart_at_odds": Script([[-1, 2, -1], [9, -1, 1], [9, 9, 0]], [1, 2, 3], [-1, 1, 0], [-1, 1, -1]),
}
"""Those whose agents leave before the others pay them 9 afterwards, which is none of theirs."""


def on_device(name):
    script = GAMES[name]
    rewards, leave = jnp.array(script.rewards, jnp.float32), np.array(script.leave)
    together, number = len(set(script.leave)) == 1, len(script.leave)

    def dynamics(time, action):
        ended = time + 1 >= leave
        return time + 1, rewards[time], ended[0] if together else ended

    env = episodic(
        name,
        levels=one_level,
        initial=lambda level: jnp.zeros((), jnp.int32),
        dynamics=dynamics,
        observe=lambda time: jnp.full((number, 2, 2), time, jnp.float32),
        time_limit=100,
        observation_space=Box(0, 9, (2, 2), jnp.float32),
        action_space=Discrete(2),
        num_agents=number,
    )
    return env._replace(zero_sum=script.zero_sum)


class OnHost:
    """A parallel environment as PettingZoo has them."""

    def __init__(self, name):
        self.script = GAMES[name]
        self.metadata = {"name": name, "zero_sum": self.script.zero_sum}
        self.possible_agents = [f"agent_{i}" for i in range(len(self.script.leave))]
        self.agents = []

    def observation_space(self, agent):
        return spaces.Box(0, 9, (2, 2), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.time, self.agents = 0, list(self.possible_agents)
        return self.seen(self.agents), {agent: {} for agent in self.agents}

    def seen(self, agents):
        return {agent: np.full((2, 2), self.time, np.float32) for agent in agents}

    def step(self, actions):
        number = {agent: i for i, agent in enumerate(self.possible_agents)}
        reward = {agent: float(self.script.rewards[self.time][number[agent]]) for agent in self.agents}
        self.time += 1
        there = self.agents
        ended = {agent: self.time >= self.script.leave[number[agent]] for agent in there}
        self.agents = [agent for agent in there if not ended[agent]]
        return self.seen(there), reward, ended, dict.fromkeys(there, False), {agent: {} for agent in there}

    def close(self):
        pass


def on_host(name):
    return host_env(parallel(name, lambda **_: OnHost(name)), ())


def first():
    return on_device("first")


def apart():
    return on_device("apart")


def one_of_three_on_host():
    return on_host("one_of_three")


def lies_on_host():
    return on_host("team")._replace(zero_sum=True)
