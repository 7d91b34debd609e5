"""Adversarial cheap talk: messages that are evolved over whole trainings of the agents that hear them.

Lu et al. 2022 (arXiv 2211.11030). A message ``scale * tanh(gain * f(obs))`` is appended to each observation. ``f`` is a
small network that is fixed during a training, has no memory and no randomness, and changes nothing else.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl.envs.wrappers.talk import Channel, Goal, led, messages
from purerl.errors import ConfigError
from purerl.learned import socket_settings
from purerl.learned.networks import mlp
from purerl.learned.socket_settings import MOST, Size
from purerl.types import Array, Env, Key, PyTree


@dataclasses.dataclass(frozen=True)
class MessageSettings:
    """What is said, and to what end."""

    role: Literal["adversary", "ally", "guide"] = "adversary"
    """What messages are evolved for. adversary: agents that hear them while they learn earn little. ally: they earn
    much. guide: trained agents go to any goal that other messages then name; in CartPole-v1, Pendulum-v1, Reacher-misc.
    """
    messages: Size = 2
    """Number of elements of a message."""
    message_scale: Annotated[float, cfg.Range(0, 1e6, open_low=True)] = 2 * math.pi
    """Largest magnitude of an element of a message."""
    message_gain: Annotated[float, cfg.Range(0, 1e6, open_low=True)] = 3.0
    """Factor on the network's outputs before tanh."""
    message_layers: tuple[Size, ...] = ()
    """Widths of the hidden layers of the network that computes messages. Empty: a linear function of the
    observation."""
    unseen: tuple[Annotated[int, cfg.Range(0, MOST)], ...] = ()
    """Indices of elements of the observation that the message network receives and the agent does not. 1 3 are
    CartPole's velocities."""


@dataclasses.dataclass(frozen=True)
class Made(MessageSettings):
    """Settings with what the environment adds: the elements of an observation, and those of a goal."""

    inputs: Size = 1
    goal_size: Annotated[int, cfg.Range(0, MOST)] = 0


class Talk(NamedTuple):
    """The functions of a kind of talk: ``init(key)`` makes meta-parameters, ``env`` and ``trial`` are a `Socket`'s.

    With the initial meta-parameters all messages are zeros. ``speak(meta_params, obs)`` gives the messages of a
    training.
    """

    init: Callable[[Key], PyTree]
    env: Callable[[PyTree, Env], Env]
    trial: Callable[[PyTree, Env], Env] | None
    speak: Callable[[PyTree, Array], Array]


def read(fields: dict[str, Any]) -> Made:
    """Reads settings from JSON. Raises `ConfigError`, a line for each that is not valid."""
    return socket_settings.read(Made, "cheap-talk", "message_layers", fields)


def settings(options: Any, env: Env) -> dict[str, Any]:
    """Returns the settings among ``options``, with what ``env`` adds, as JSON.

    Raises:
        ConfigError: A setting is not valid, or `make` or the environment refuses the settings.
    """
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(MessageSettings)}
    width = math.prod(getattr(env.observation_space, "shape", ()))
    size = goal_of(env).size if given["role"] == "guide" else 0
    made = read({**given, "inputs": max(1, min(width, MOST)), "goal_size": size})
    make(made).env((), env)
    return socket_settings.as_json(made)


def make(made: Made) -> Talk:
    """Makes the functions of a kind of talk."""
    channel = Channel(made.inputs, made.messages, made.message_scale, made.unseen)
    teacher = mlp(made.inputs, made.message_layers, made.messages)
    guide = mlp(made.inputs + made.goal_size, made.message_layers, made.messages)

    def message(network: Any, params: PyTree, heard: Array) -> Array:
        outputs = network.apply(params, *(heard[..., i] for i in range(heard.shape[-1])))
        return made.message_scale * jnp.tanh(made.message_gain * jnp.stack(outputs, axis=-1))

    def init(key: Key) -> PyTree:
        key_learning, key_trained = jax.random.split(key)
        first = {"learning": teacher.init(key_learning)}
        return {**first, "trained": guide.init(key_trained)} if made.role == "guide" else first

    def speak(meta_params: PyTree, obs: Array) -> Array:
        return message(teacher, meta_params["learning"], obs)

    def env(meta_params: PyTree, env: Env) -> Env:
        return messages(env, channel, lambda obs: speak(meta_params, obs))

    def trial(meta_params: PyTree, env: Env) -> Env:
        towards = lambda obs, goal: message(guide, meta_params["trained"], jnp.concatenate([obs, goal], axis=-1))
        goal = goal_of(env)
        if made.goal_size != goal.size:
            raise ConfigError(f"goal_size = {made.goal_size}: the goals of {env.name} have {goal.size}")
        return led(env, channel, towards, goal)

    return Talk(init, env, trial if made.role == "guide" else None, speak)


def random(meta_params: PyTree, key: Key) -> PyTree:
    """Draws parameters of random messages. Consumes ``key``.

    They are Gaussians, in each array with the root mean square of that array in ``meta_params``.
    """
    leaves, structure = jax.tree.flatten(meta_params)
    keys = jax.random.split(key, len(leaves))
    size = lambda x: jnp.sqrt(jnp.mean(jnp.square(x)))
    drawn = [size(x) * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def silent(meta_params: PyTree, key: Key) -> PyTree:
    """Makes parameters of messages that are all zeros. ``key`` is not used."""
    return jax.tree.map(jnp.zeros_like, meta_params)


def goal_of(env: Env) -> Goal:
    """Returns the goals that trained agents are led to in an environment.

    Raises:
        ConfigError: No goals are known for the environment, or its observations were changed, so that they do not show
            where it is.
    """
    if env.name not in GOALS:
        raise ConfigError(f"env = {env.name!r}: has no goals to guide to; {', '.join(GOALS)} have")
    goal, shape = GOALS[env.name], getattr(env.observation_space, "shape", ())
    if shape != (goal.inputs,):
        problem = f"observations {list(shape)}; a guide needs the usual [{goal.inputs}]"
        raise ConfigError(f"env = {env.name!r}: has {problem}")
    return goal


def _on_a_disc(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws points ``[*shape, 2]``, uniform on the disc of radius 2. Consumes ``key``."""
    u = jax.random.uniform(key, (*shape, 2))
    return 2.0 * jnp.sqrt(u[..., :1]) * _direction(u[..., 1])


def _direction(turn: Array) -> Array:
    """Returns points ``[..., 2]`` of the unit circle, by their angle in turns."""
    angle = 2 * jnp.pi * turn
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


GOALS: dict[str, Goal] = {
    "CartPole-v1": Goal(
        4, 1, lambda key, shape: jax.random.uniform(key, (*shape, 1), minval=-2.4, maxval=2.4), lambda obs: obs[..., :1]
    ),
    "Pendulum-v1": Goal(3, 2, lambda key, shape: _direction(jax.random.uniform(key, shape)), lambda obs: obs[..., :2]),
    "Reacher-misc": Goal(
        8, 2, _on_a_disc, lambda obs: jnp.stack([obs[..., 0] + obs[..., 1], obs[..., 2] + obs[..., 3]], axis=-1)
    ),
}
"""Goals by environment. They are places of the cart on its track, of the pendulum's tip on its circle, and of the hand
of a reacher with two joints, whose observation begins with the cosines and then the sines of its angles."""
