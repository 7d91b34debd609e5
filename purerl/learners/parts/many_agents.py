"""What algorithms that know of several agents share: settings, networks, and joint environments as teams."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl.envs import agents
from purerl.networks import ActorCritic
from purerl.networks.heads import one_each
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env, PyTree


@cfg.config
class Numbers:
    """Settings of how agents recognise themselves."""

    agent_ids: bool = True
    """Add each agent's index to its observation, so that agents with shared parameters can act differently."""


@cfg.config
class AgentSettings(Numbers):
    """Settings of agents that are rows of a trajectory."""

    share_parameters: bool = True
    """Use one network for all agents instead of one for each. Without sharing, every network is computed for every
    agent."""


def needs_ids(config: AgentSettings) -> bool:
    """Tells whether agents must observe which one they are."""
    return config.agent_ids or not config.share_parameters


def shared_or_own(
    config: AgentSettings, env: Env, network: ActorCritic, which: Callable[[PyTree], Array]
) -> ActorCritic:
    """Returns the network that all agents share, or one with parameters for each.

    Args:
        config: Settings; ``share_parameters`` chooses.
        env: Environment, each of whose agents is a row.
        network: The network of one agent.
        which: ``which(obs)`` returns the one-hot number of the agent.
    """
    if config.share_parameters or env.num_agents == 1:
        return network
    return one_each(network, env.num_agents, which)


class Team(NamedTuple):
    """A joint environment of ``M`` agents with ``A`` actions each.

    Its functions take observations with any leading axes: ``legal(obs)`` is bool ``[..., M, A]``, or None if all
    actions are legal; ``acting(obs)`` is bool ``[..., M]``; ``state(obs)`` is ``[..., S]`` float32; ``present(obs)`` is
    bool ``[..., M]``, who is in the game. ``acting`` itself is None where all agents always act, ``present`` where none
    leaves before the others.
    """

    num_agents: int
    num_actions: int
    legal: Callable[[PyTree], Array | None]
    acting: Callable[[PyTree], Array] | None
    state: Callable[[PyTree], Array]
    state_space: Box
    present: Callable[[PyTree], Array] | None


def team(env: Env) -> Team:
    """Makes the team of a joint environment (`agents.joint`) with Discrete actions."""
    space, sizes = env.observation_space, env.action_space.sizes
    part = "state" if "state" in space else "agents"
    size = agents.flat_size(space[part])
    return Team(
        len(sizes),
        sizes[0],
        (lambda obs: obs["legal"]) if "legal" in space else (lambda obs: None),
        (lambda obs: obs["acting"]) if "acting" in space else None,
        lambda obs: agents.flat(space[part], obs[part]),
        Box(-np.inf, np.inf, (size,), jnp.float32),
        (lambda obs: obs["present"]) if "present" in space else None,
    )


def inputs(env: Env, ids: bool, previous: bool = False) -> tuple[Space, Callable[[PyTree], PyTree]]:
    """Returns the space of an agent's inputs, and the function that makes them.

    The inputs are the agent's own observation and what the arguments add. The function takes joint observations
    ``[...]`` and returns inputs ``[..., M, ...]``.

    Args:
        env: A joint environment.
        ids: Whether to add which agent it is.
        previous: Whether to add the agent's previous action, which observations must have then.
    """
    num_agents, own = agents.agents_of(env.observation_space)
    space = {"obs": own}
    if ids:
        space["id"] = Box(0, 1, (num_agents,), jnp.float32)
    if previous:
        space["previous"] = Discrete(env.action_space.sizes[0] + 1)
    rank = len(jax.tree.leaves(own, is_leaf=lambda x: isinstance(x, Box))[0].shape)

    def view(obs: PyTree) -> PyTree:
        inputs = {"obs": obs["agents"]}
        first = jax.tree.leaves(obs["agents"])[0]
        if ids:
            inputs["id"] = jnp.broadcast_to(jnp.eye(num_agents), (*first.shape[: first.ndim - rank], num_agents))
        if previous:
            inputs["previous"] = obs["previous"]
        return inputs

    return space, view


def central(team: Team, view: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Makes the function for the inputs of each agent's central critic.

    They are ``{"own": what seen returns, "state": the same for all}``.
    """

    def both(obs: PyTree) -> PyTree:
        state = team.state(obs)[..., None, :]
        return {
            "own": view(obs),
            "state": jnp.broadcast_to(state, (*state.shape[:-2], team.num_agents, state.shape[-1])),
        }

    return both
