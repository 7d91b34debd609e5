"""Views of an environment of several agents: what each agent sees, and all agents as one."""

import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs import seats
from purerl.envs.wrappers.parts import with_view
from purerl.errors import ConfigError
from purerl.formulas import losses
from purerl.spaces import Box, Discrete, MultiDiscrete, Space
from purerl.types import Array, Env, PyTree, Step

Select = Callable[[PyTree], PyTree]


def own(env: Env) -> Env:
    """Removes from observations what the policies of agents may not see: an observation is what ``Env.own`` selects."""
    if env.own is None:
        return env
    return with_view(env._replace(own=None, state=None, hidden=True), env.own, env.own(env.observation_space))


def with_ids(env: Env) -> Env:
    """Turns observations into ``{"obs": as before, "id": one-hot [N] float32}``, the number of the agent.

    Without it, agents that share parameters do the same wherever they see the same. An environment of one agent stays
    as it is.
    """
    num_agents = env.num_agents
    if num_agents == 1:
        return env
    ids = np.eye(num_agents, dtype=np.float32)

    def view(obs: PyTree) -> PyTree:
        return {"obs": obs, "id": jnp.asarray(ids)}

    def keep_id(select: Select | None) -> Select | None:
        return select and (lambda obs: {"obs": select(obs["obs"]), "id": obs["id"]})

    changed = env._replace(
        legal=_of("obs", env.legal), acting=_of("obs", env.acting), own=keep_id(env.own), state=_of("obs", env.state)
    )
    space = {"obs": env.observation_space, "id": Box(0, 1, (num_agents,), jnp.float32)}
    return with_view(changed, view, space)


def with_state(env: Env) -> Env:
    """Turns observations into ``{"own": what the agent's policy may see, "state": what a central critic also sees}``.

    The state is what ``Env.state`` selects, or, of an environment without one, the observations of all agents, as one
    float32 vector.
    """
    own_space, select = _own_part(env)

    def view(obs: PyTree) -> PyTree:
        if env.state is not None:
            return {"own": select(obs), "state": env.state(obs)}
        if env.num_agents == 1:
            return {"own": select(obs), "state": flat(own_space, select(obs))}
        everything = flat(own_space, select(obs)).reshape(-1)
        return {"own": select(obs), "state": jnp.broadcast_to(everything, (env.num_agents, everything.size))}

    size = env.num_agents * flat_size(own_space)
    state_space = env.state(env.observation_space) if env.state else Box(-np.inf, np.inf, (size,), jnp.float32)
    changed = env._replace(
        legal=_of("own", env.legal),
        acting=_of("own", env.acting),
        own=lambda obs: {"own": obs["own"]},
        state=lambda obs: obs["state"],
    )
    return with_view(changed, view, {"own": own_space, "state": state_space})


OWN = operator.itemgetter("own")
STATE = operator.itemgetter("state")
"""The parts of the observations of `with_state`."""


def critic_sees_more(env: Env) -> bool:
    """Tells whether critics in ``env``, or in its `with_state`, see more than the policy of one agent.

    That is so where an environment of one agent says what the policy sees (`Env.own`) and what is for critics
    (`Env.state`).
    """
    return env.num_agents == 1 and env.own is not None and env.state is not None


def filled(space: Space, select: Select | None) -> tuple[Space, Select]:
    """Returns the space of what ``select`` leaves of observations, and a function that fills these up with zeros.

    Args:
        space: The space of observations, a tree.
        select: Selects a part of a tree, as `Env.own` does; None: all of it.

    Returns:
        The space of the part, and a function from parts ``[..., *part]`` to observations ``[..., *obs]``.
    """
    if select is None:
        return space, lambda part: part
    likes, structure = jax.tree.flatten(spaces.struct(space))
    places = jax.tree.leaves(select(jax.tree.unflatten(structure, range(len(likes)))))

    def fill(part: PyTree) -> PyTree:
        given = dict(zip(places, jax.tree.leaves(part), strict=True))
        lead = given[places[0]].shape[: given[places[0]].ndim - len(likes[places[0]].shape)]
        zeros = lambda like: jnp.zeros((*lead, *like.shape), like.dtype)
        return jax.tree.unflatten(structure, [given.get(i, zeros(like)) for i, like in enumerate(likes)])

    return select(space), fill


def only(env: Env, select: Select) -> tuple[Env, Select]:
    """Removes all but a part from observations, where nothing else is read by whoever plays.

    Args:
        env: The environment.
        select: Selects the part, as `Env.own` does.

    Returns:
        The environment whose observations are the part, and the function that fills these up (`filled`).
    """
    space, fill = filled(env.observation_space, select)
    of_part = lambda read: read and (lambda part: read(fill(part)))
    changed = env._replace(own=None, state=None, hidden=True, legal=of_part(env.legal), acting=of_part(env.acting))
    return with_view(changed, select, space), fill


def joint(env: Env, previous: bool = False) -> Env:
    """Joins all ``N`` agents of ``env`` into one, for algorithms that learn what they do together.

    Observations are ``{"agents": those of all agents [N, ...]}``, beside it ``"state"``, ``"legal"`` (bool ``[N, A]``)
    and ``"acting"`` (bool ``[N]``) where ``env`` has them, and with ``previous`` (for Discrete actions) the last action
    of each, ``"previous"`` (int32 ``[N]``): 1 more than the action, 0 at the start of an episode. Where agents may end
    before the others, ``"present"`` (bool ``[N]``) says who is in the game, and the episode ends when it is over.
    Actions are `MultiDiscrete` of ``N`` parts, or a `Box` ``[N, ...]``. The reward is the mean over agents, which is
    the team's where they share one.

    Raises:
        ConfigError: If actions are neither `Discrete` nor a `Box`.
    """
    own_space, select = _own_part(env)
    alone, num_agents = env.num_agents == 1, env.num_agents
    space = {"agents": _stacked(own_space, num_agents)}
    of_state, legal, acting, nothing = env.state, env.legal, env.acting, np.zeros(num_agents, np.int32)
    game, apart = seats.seated(env), seats.apart(env)
    if of_state:
        space["state"] = of_state(env.observation_space)
    if legal:
        space["legal"] = Box(False, True, (num_agents, _num_actions(env)), jnp.bool_)
    if acting:
        space["acting"] = Box(False, True, (num_agents,), jnp.bool_)
    if apart:
        space["present"] = Box(False, True, (num_agents,), jnp.bool_)
    if previous:
        space["previous"] = Box(0, _num_actions(env), (num_agents,), jnp.int32)

    def view(obs: PyTree, did: Array, present: Array | tuple[()]) -> PyTree:
        obs = jax.tree.map(lambda x: x[None], obs) if alone else obs
        own = select(obs)
        parts = {"agents": own}
        if of_state:
            parts["state"] = jax.tree.map(lambda x: x[0], of_state(obs))
        if legal:
            parts["legal"] = legal(own)
        if acting:
            parts["acting"] = losses.both(present, acting(own))
        if apart:
            parts["present"] = present
        if previous:
            parts["previous"] = did
        return parts

    def begin(level: PyTree) -> tuple[PyTree, PyTree]:
        env_state, obs = game.begin(level)
        return env_state, view(obs, jnp.asarray(nothing), env_state.present if apart else ())

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        did = action + 1 if previous else jnp.asarray(nothing)
        action = action[0] if alone else action
        if apart:
            env_state, made = seats.advance(env, noise, env_state, action)
        else:
            env_state, made = env.step(noise, env_state, action)
        over, cut = jnp.all(made.game_over), jnp.any(made.truncated)
        # Those whom the end of the game cut off have a value there.
        next_obs = view(made.next_obs, did, env_state.present | (made.truncated & over) if apart else ())
        info = {name: jnp.mean(made.info[name]) for name in env.info_names}
        return env_state, Step(next_obs, jnp.mean(made.reward), over & ~cut, over & cut, info=info)

    return Env(
        env.name,
        env.levels,
        begin,
        env.noise,
        step,
        space,
        _joint_actions(env),
        legal and (lambda obs: obs["legal"].reshape(*obs["legal"].shape[:-2], -1)),
        keep=game.keep,
        resets=env.resets,
        host=env.host,
        design=env.design,
        info_names=env.info_names,
        partly_observed=env.partly_observed,
        hidden=env.hidden or env.own is not None,
        redraw=game.redraw,
    )


def agents_of(space: Space) -> tuple[int, Space]:
    """Returns ``N``, and the space of one agent's observations, given the observation space of `joint`."""
    leaves = spaces.leaves(space["agents"])
    return leaves[0].shape[0], spaces.tree_map(
        lambda leaf: leaf._replace(low=_first(leaf.low), high=_first(leaf.high), shape=leaf.shape[1:]), space["agents"]
    )


def flat(space: Space, obs: PyTree) -> Array:
    """Flattens observations of a tree of spaces, with any leading axes, to vectors ``[..., D]`` float32."""
    parts = spaces.tree_map(
        lambda leaf, x: x.astype(jnp.float32).reshape(*x.shape[: x.ndim - len(_shape(leaf))], -1), space, obs
    )
    return jnp.concatenate(jax.tree.leaves(parts), axis=-1)


def flat_size(space: Space) -> int:
    """Returns ``D`` of `flat`."""
    return sum(math.prod(_shape(leaf)) for leaf in spaces.leaves(space))


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(spaces.struct(leaf).shape)


def _own_part(env: Env) -> tuple[Space, Select]:
    """Returns the space of what a policy may see, and a function that selects it."""
    if env.own is None:
        return env.observation_space, lambda obs: obs
    return env.own(env.observation_space), env.own


def _of(name: str, function: Select | None) -> Select | None:
    return function and (lambda obs: function(obs[name]))


def _stacked(space: Space, num_agents: int) -> Space:
    """Returns the space of ``N`` elements side by side; integers become boxes of integers."""

    def leaf(one: Any) -> Box:
        low, high = spaces.bounds(one)
        num_frames = one.num_frames if isinstance(one, Box) else 1
        kind = one.dtype if isinstance(one, Box) else jnp.int32
        return Box(_lead(low), _lead(high), (num_agents, *_shape(one)), kind, num_frames)

    return spaces.tree_map(leaf, space)


def _lead(bound: Any) -> Any:
    return bound if np.ndim(bound) == 0 else bound[None]


def _first(bound: Any) -> Any:
    return bound if np.ndim(bound) == 0 else bound[0]


def _num_actions(env: Env) -> int:
    if not isinstance(env.action_space, Discrete):
        raise ConfigError(f"env = {env.name!r}: has {spaces.kind(env.action_space)} actions; agents need Discrete ones")
    return env.action_space.n


def _joint_actions(env: Env) -> Space:
    space = env.action_space
    if isinstance(space, Box):
        return Box(_lead(space.low), _lead(space.high), (env.num_agents, *space.shape), space.dtype)
    return MultiDiscrete((_num_actions(env),) * env.num_agents)
