"""Adapter of JaxMARL to `Env`. jaxmarl (the extra ``purerl[jaxmarl]``) is imported on first use."""

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.stepping import Consequence, check_counts, episodes, lenient, seeds, unbounded
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env, Key, PyTree

TIMED = "MPE", "overcooked", "coin_game"
"""Beginnings of the names of environments whose episodes end by a time limit alone."""
GENERATED = ("jaxnav",)
"""Environments whose levels are made by a generator.

In jaxnav a positive return means that the goal was reached: the rewards for coming nearer are less than a collision
costs, and less than all the time of an episode.
"""
SHARED = "SMAX", "HeuristicEnemySMAX", "LearnedPolicyEnemySMAX"
"""Beginnings of the names of environments that go on paying an agent after its own end.

In SMAX each unit earns its team's reward, dead or alive (``compute_reward`` of JaxMARL 0.2.0).
"""
HIDDEN = ("SMAX", "overcooked_v2", "hanabi", "jaxnav") + tuple(
    f"MPE_simple_{each}" for each in ("adversary", "crypto", "push", "reference", "speaker_listener", "world_comm")
)
"""Beginnings of the names of environments whose states hold what some agent does not see."""
LATE = "MPE", "SMAX"
"""Beginnings of the names of environments whose episodes take a step more than their ``max_steps`` says."""


def make_jaxmarl(task: str, *, max_steps: int | None = None, **params: Any) -> Env:
    """Makes the environment registered in JaxMARL as ``task``, a map of SMAX or a kitchen of Overcooked.

    Examples are ``MPE_simple_spread_v3``, ``SMAX/2s3z``, whose enemies follow JaxMARL's heuristic, and
    ``overcooked/cramped_room``. ``max_steps`` is JaxMARL's own time limit unless it is given; it is the number of steps
    that an episode of JaxMARL really takes, 26 in MPE and 101 in SMAX. ``params`` are numbers and texts among the
    arguments of the environment's constructor, which may not be traced.

    Raises:
        ConfigError: If the name or a parameter is unknown, if JaxMARL refuses them, or if jaxmarl is not installed.
    """
    name = f"jaxmarl/{task}"
    check_counts(name, max_steps=(max_steps, 1))
    with library("jaxmarl", task):
        with _streams_kept():
            import jaxmarl

        registered, given = _registered(task)
        environment = jaxmarl.make(registered, **given)
        check_parameters(name, params, {*_arguments(environment, given), "max_steps"})
        limit = getattr(environment, "max_steps", None)
        if limit is not None:
            max_steps = limit + task.startswith(LATE) if max_steps is None else max_steps
            params["max_steps"] = max_steps + (task in GENERATED)  # these would terminate at their limit
        try:
            environment = jaxmarl.make(registered, **given, **params)
        except (AssertionError, TypeError, ValueError) as error:
            raise ConfigError(f"env = {name!r}: {error}") from None
    timed, shared = task.startswith(TIMED), task.startswith(SHARED)
    env = from_jaxmarl(name, environment, timed=timed, shared=shared, max_steps=max_steps)
    return env._replace(design=seeds(0.0) if task in GENERATED else None, hidden=task.startswith(HIDDEN))


def from_jaxmarl(
    name: str, environment: Any, *, timed: bool = False, shared: bool = False, max_steps: int | None = None
) -> Env:
    """Adapts an environment of JaxMARL without wrappers; its agents are the rows, in JaxMARL's order.

    Observations of unequal shapes become vectors, padded with zeros to one size. Actions of unequal sizes are padded
    too: further integers are illegal, further numbers are ignored.

    Where actions can be illegal, or JaxMARL gives the state of the world, observations are dicts of ``obs``, ``legal``
    (bool ``[A]``) and ``state``, which `Env.legal` and `Env.state` give. Where JaxMARL leaves an agent no action, all
    of its own are legal. Agents see all but ``state``. ``acting`` is False where JaxMARL leaves an agent a single
    action: in SMAX it is dead then, and in Hanabi it is another's turn.

    A level is a key, and so is the noise of a step.

    Args:
        name: The name of the `Env`.
        environment: An environment of JaxMARL.
        timed: Whether the environment's episodes end by a time limit alone. Episodes are then truncated where JaxMARL
            ends them, for all agents at once.
        shared: Whether an agent that is done goes on earning what the others earn. Episodes then terminate for all
            agents at once, where the game ends. Unless either is set, an agent terminates where JaxMARL says that it is
            done, or the game.
        max_steps: Steps after which an episode is truncated; None: only JaxMARL ends it.

    Raises:
        ConfigError: If a number is too small, or actions cannot be expressed.
    """
    agents, num_agents = environment.agents, len(environment.agents)
    together = timed or shared or num_agents == 1
    with jax.ensure_compile_time_eval():
        own_spaces = [environment.action_space(agent) for agent in agents]
        action_space, sizes, native = _actions(name, agents, own_spaces)
    with lenient():
        obs_like, state_like = jax.eval_shape(environment.reset, jax.random.key(0))
    stacked = _stacked([obs_like[agent].shape for agent in agents])
    mask, changing = _mask(environment, state_like, action_space, sizes)
    has_state = hasattr(environment, "get_world_state")

    def observe(obs: PyTree, state: PyTree) -> PyTree:
        parts = {"obs": stacked([obs[agent] for agent in agents])}
        if mask:
            parts["legal"] = mask(state)
        if has_state:
            world = jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(environment.get_world_state(state))])
            parts["state"] = jnp.broadcast_to(world, (num_agents, world.size))
        parts = jax.tree.map(lambda x: x[0], parts) if num_agents == 1 else parts
        return parts if len(parts) > 1 else parts["obs"]

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        obs, state = environment.reset(key)
        return state, observe(obs, state)

    def step(state: PyTree, action: Array, key: Key) -> Consequence:
        obs, state, rewards, dones, _ = environment.step_env(key, state, native(action))
        reward = jnp.stack([jnp.asarray(rewards[agent], jnp.float32) for agent in agents])
        over = jnp.asarray(dones["__all__"], bool)
        if not together:
            over |= jnp.stack([jnp.asarray(dones[agent], bool) for agent in agents])
        flags = (False, over) if timed else (over, False)
        return Consequence(state, observe(obs, state), reward[0] if num_agents == 1 else reward, *flags)

    with lenient():
        shapes = jax.eval_shape(reset, jax.random.key(0))[1]
    env = episodes(
        name,
        reset,
        step,
        unbounded(shapes, lead=int(num_agents > 1)),
        action_space,
        chance=jax.random.split,
        max_steps=max_steps,
        legal=(lambda obs: obs["legal"]) if mask else None,
        num_agents=num_agents,
    )
    env = env._replace(ends_together=together)
    if changing:
        env = env._replace(acting=lambda obs: jnp.sum(obs["legal"], axis=-1) > 1)
    if has_state:
        own = lambda obs: {part: x for part, x in obs.items() if part != "state"}
        env = env._replace(own=own, state=lambda obs: obs["state"])
    return env


@contextlib.contextmanager
def _streams_kept() -> Iterator[None]:
    """Sets ``sys.__stdout__`` to ``sys.stdout`` within the context, and ``sys.__stderr__`` likewise.

    The import of jaxmarl sets the latter to the former, which would undo a redirection.
    """
    streams = "stdout", "stderr"
    before = [getattr(sys, f"__{each}__") for each in streams]
    for each in streams:
        setattr(sys, f"__{each}__", getattr(sys, each))
    try:
        yield
    finally:
        for each, stream in zip(streams, before, strict=True):
            setattr(sys, f"__{each}__", stream)


def _registered(task: str) -> tuple[str, dict[str, Any]]:
    """Returns the name in JaxMARL's registry, and the arguments that ``task`` stands for."""
    kind, _, variant = task.partition("/")
    if kind == "SMAX":
        from jaxmarl.environments.smax import map_name_to_scenario

        return "HeuristicEnemySMAX", {"scenario": map_name_to_scenario(variant)}
    if kind == "overcooked":
        from jaxmarl.environments import overcooked_layouts

        return kind, {"layout": overcooked_layouts[variant]}
    return kind, {"layout": variant} if variant else {}


def _arguments(environment: Any, given: dict[str, Any]) -> set[str]:
    """Returns the arguments of an environment's constructor that can be given as parameters.

    They are numbers or texts, of its own constructor and of that of the environment in it, that are not in ``given``,
    nor fields of a value there.
    """
    kinds = type(environment), type(getattr(environment, "_env", environment))
    arguments = [each for kind in kinds for each in inspect.signature(kind).parameters.values()]
    fixed = {field.name for x in given.values() if dataclasses.is_dataclass(x) for field in dataclasses.fields(x)}
    return {each.name for each in arguments if isinstance(each.default, int | float | str)} - set(given) - fixed


def _actions(
    name: str, agents: list[str], spaces: list[Any]
) -> tuple[Space, list[int], Callable[[Array], dict[str, Array]]]:
    """Returns the space of an action of any agent, the sizes of the agents' own, and a function.

    The function turns actions into JaxMARL's.
    """
    lone = len(agents) == 1
    rows = lambda action: action[None] if lone else action
    if all(hasattr(space, "n") for space in spaces):
        sizes = [int(space.n) for space in spaces]

        def choose(action: Array) -> dict[str, Array]:
            own = jnp.minimum(rows(action), np.array(sizes) - 1)
            return {agent: own[i] for i, agent in enumerate(agents)}

        return Discrete(max(sizes)), sizes, choose
    if not all(hasattr(space, "low") and len(space.shape) == 1 for space in spaces):
        raise ConfigError(f"env = {name!r}: actions {spaces} cannot be expressed; only integers and vectors can")
    sizes = [space.shape[0] for space in spaces]

    def move(action: Array) -> dict[str, Array]:
        parts = zip(agents, spaces, rows(action), strict=True)
        return {agent: jnp.clip(part[: space.shape[0]], space.low, space.high) for agent, space, part in parts}

    low, high = min(np.min(space.low) for space in spaces), max(np.max(space.high) for space in spaces)
    return Box(float(low), float(high), (max(sizes),), jnp.float32), sizes, move


def _stacked(shapes: list[tuple[int, ...]]) -> Callable[[list[Array]], Array]:
    """Returns a function that stacks arrays of these shapes, one for each agent.

    They become vectors of the largest size if they are unequal.
    """
    if len(set(shapes)) == 1:
        return jnp.stack
    largest = max(int(np.prod(shape)) for shape in shapes)
    return lambda rows: jnp.stack([jnp.pad(jnp.ravel(row), (0, largest - row.size)) for row in rows])


def _mask(
    environment: Any, state: PyTree, action_space: Space, sizes: list[int]
) -> tuple[Callable[[PyTree], Array] | None, bool]:
    """Returns a function that gives the legal actions ``[N, A]`` in a state of JaxMARL, if any are illegal.

    It also returns whether they change.
    """
    if not isinstance(action_space, Discrete):
        return None, False
    own = np.arange(action_space.n) < np.array(sizes)[:, None]
    available = getattr(environment, "get_legal_moves", environment.get_avail_actions)
    try:
        with lenient():
            jax.eval_shape(available, state)
    except NotImplementedError:
        return (None if own.all() else lambda _: jnp.asarray(own)), False

    def mask(state: PyTree) -> Array:
        moves = available(state)
        padded = _stacked([(size,) for size in sizes])
        legal = padded([jnp.asarray(moves[agent], bool) for agent in environment.agents])
        return legal | (~jnp.any(legal, axis=-1, keepdims=True) & own)

    return mask, True
