"""Environments of Gymnasium whose spaces, rewards and ends have a part for each of several agents.

They are of no common class: packages of several agents register them with Gymnasium with a `Tuple` of spaces, or a
`Dict` by agent, and a reward for each.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


def agents_of(env: Any) -> list[Any]:
    """Returns the agents of ``env``: the keys of its spaces; empty if they are not those of agents.

    The spaces alone do not tell, as one agent may also observe and choose a `Tuple`. So where both have the same keys
    ``env`` is reset and takes a step at random, and the keys are agents if the reward has a part for each key. Reset it
    before it is used.
    """
    agents = _keys(env.observation_space)
    if not agents or agents != _keys(env.action_space):
        return []
    env.reset(seed=0)
    env.action_space.seed(0)
    reward = env.step(env.action_space.sample())[1]
    if isinstance(reward, Mapping):
        return agents if set(reward) == set(agents) else []
    return agents if np.shape(reward) == (len(agents),) else []


class Team:
    """``env``, which has these ``agents``, in the form of a parallel environment of PettingZoo.

    An agent whose own part of ``terminated`` or ``truncated`` is true leaves; its last action is repeated for ``env``,
    which takes a whole action in every step. Where these are one flag they are of all agents.
    """

    def __init__(self, env: Any, agents: list[Any]):
        self.env, self.possible_agents = env, agents
        self.agents: list[Any] = []
        self.metadata, self.render_mode = env.metadata, env.render_mode
        self.render, self.close, self.unwrapped = env.render, env.close, env.unwrapped
        self._last: dict[Any, Any] = {}

    def observation_space(self, agent: Any) -> Any:
        """Returns the space of an agent's observations."""
        return self.env.observation_space[agent]

    def action_space(self, agent: Any) -> Any:
        """Returns the space of an agent's actions."""
        return self.env.action_space[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, ...]:
        """Begins an episode, and returns observations and infos by agent."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._each(obs), self._infos(info)

    def step(self, actions: dict[Any, Any]) -> tuple[Any, ...]:
        """Takes a step, and returns observations, rewards, terminations, truncations and infos by agent."""
        self._last |= actions
        whole = {agent: self._last[agent] for agent in self.possible_agents}
        given = tuple(whole.values()) if isinstance(self.env.action_space, spaces.Tuple) else whole
        obs, reward, *ends, info = self.env.step(given)
        terminated, truncated = [
            self._each(x) if np.ndim(x) or isinstance(x, Mapping) else dict.fromkeys(self.agents, bool(x)) for x in ends
        ]
        result = self._each(obs), self._each(reward), terminated, truncated, self._infos(info)
        self.agents = [agent for agent in self.agents if not terminated[agent] and not truncated[agent]]
        return result

    def _each(self, parts: Any) -> dict[Any, Any]:
        return {agent: parts[agent] for agent in self.agents}

    def _infos(self, info: Any) -> dict[Any, Any]:
        own = isinstance(info, Mapping) and all(isinstance(info.get(agent), Mapping) for agent in self.agents)
        return self._each(info) if own else {agent: {} for agent in self.agents}


def _keys(space: Any) -> list[Any]:
    if isinstance(space, spaces.Tuple):
        return list(range(len(space.spaces)))
    return list(space.spaces) if isinstance(space, spaces.Dict) else []
