"""Recurrent networks: a torso, a memory and a head."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import trees
from purerl.formulas import exploration
from purerl.networks.heads import ActorCritic, predictions
from purerl.networks.memory.base import Memory
from purerl.types import Array, Key, PyTree

__all__ = ["Recurrent", "actor_critic", "legal_only", "recurrent", "separate"]


class Recurrent(NamedTuple):
    """A network with a memory, the ``carry``: leading axis ``[B]``, zeros at the start of an episode.

    ``unroll`` resets the carry after each step whose ``last`` is true, so that the next step begins an episode. It
    returns the outputs; the carry after each step, before any reset; and the carry for the step that follows, after any
    reset.
    """

    init: Callable[[Key, PyTree], PyTree]  # (key, obs [B, ...]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    step: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]
    # (params, obs [..., *obs], carry [...]) -> (out [...], carry [...])
    unroll: Callable[[PyTree, PyTree, PyTree, Array], tuple[PyTree, PyTree, PyTree]]
    # (params, obs [T, B, ...], carry, last [T, B]) -> (out [T, B, ...], carries [T, B, ...], carry)


def recurrent(torso: nn.Module, memory: Memory, head: nn.Module) -> Recurrent:
    """Makes the network ``head(memory(torso(obs)))``. Its ``init`` consumes its key.

    ``head`` maps ``[..., size]`` to anything. ``unroll`` applies torso and head to all steps at once.
    """

    def init(key: Key, obs: PyTree) -> PyTree:
        key_torso, key_memory, key_head = jax.random.split(key, 3)
        features, torso_params = torso.init_with_output(key_torso, obs)
        memory_params = memory.init(key_memory, features)
        out, _ = memory.step(memory_params, features, memory.init_carry(trees.length(obs)))
        return {"torso": torso_params, "memory": memory_params, "head": head.init(key_head, out)}

    def step(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        features: Any = torso.apply(params["torso"], obs)
        out, carry = memory.step(params["memory"], features, carry)
        return head.apply(params["head"], out), carry

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[PyTree, PyTree, PyTree]:
        features: Any = torso.apply(params["torso"], obs)
        out, carries, carry = memory.unroll(params["memory"], features, carry, last)
        return head.apply(params["head"], out), carries, carry

    return Recurrent(init, memory.init_carry, step, unroll)


def legal_only(network: Recurrent, legal: Callable[[PyTree], Array | None]) -> Recurrent:
    """Masks a network of action values: those of illegal actions become `exploration.ILLEGAL`.

    ``legal`` is that of `Env`: the mask of actions that an observation allows, or None for all.
    """

    def step(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        q, carry = network.step(params, obs, carry)
        return exploration.masked(q, legal(obs)), carry

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[PyTree, PyTree, PyTree]:
        q, carries, carry = network.unroll(params, obs, carry, last)
        return exploration.masked(q, legal(obs)), carries, carry

    return network._replace(step=step, unroll=unroll)


def rows(network: Recurrent, inputs: Callable[[PyTree], PyTree], num_rows: int) -> Recurrent:
    """Makes a network that applies ``network`` to several rows at a time, each with a carry of its own.

    Args:
        network: The network of one row.
        inputs: ``inputs(obs)`` are the inputs of ``network``, ``[..., M, *obs]``, for an observation ``[...]``.
        num_rows: The number ``M`` of rows.

    Returns:
        A network whose outputs and carries are ``[..., M, ...]``.
    """

    def init(key: Key, obs: PyTree) -> PyTree:
        return network.init(key, trees.merge(inputs(obs), 2))

    def init_carry(num_envs: int) -> PyTree:
        return trees.split(network.init_carry(num_envs * num_rows), (num_envs, num_rows))

    def step(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        return network.step(params, inputs(obs), carry)

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[PyTree, PyTree, PyTree]:
        inputs_of_rows = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), inputs(obs))
        all_last = jnp.repeat(last, num_rows, axis=1)
        out, carries, carry = network.unroll(params, inputs_of_rows, trees.merge(carry, 2), all_last)
        out, carries = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, num_rows, *x.shape[2:]), (out, carries))
        return out, carries, trees.split(carry, (last.shape[1], num_rows))

    return Recurrent(init, init_carry, step, unroll)


def twins(network: Recurrent) -> Recurrent:
    """Makes two networks like ``network``, with parameters and carries of their own.

    Parameters, carries and outputs are pairs. ``init`` consumes its key.
    """

    def init(key: Key, obs: PyTree) -> PyTree:
        one, other = jax.random.split(key)
        return network.init(one, obs), network.init(other, obs)

    def step(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        (one, first), (other, second) = (network.step(params[i], obs, carry[i]) for i in range(2))
        return (one, other), (first, second)

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[PyTree, PyTree, PyTree]:
        both = (network.unroll(params[i], obs, carry[i], last) for i in range(2))
        out, carries, following = zip(*both, strict=True)
        return out, carries, following

    return Recurrent(init, lambda num_envs: (network.init_carry(num_envs), network.init_carry(num_envs)), step, unroll)


def separate(actor: Recurrent, critic: Recurrent) -> ActorCritic:
    """Makes an `ActorCritic` of two networks, each with a memory of its own.

    The carry is the pair of their carries. ``init`` consumes its key.

    Args:
        actor: Its outputs are parameters of a distribution ``[..., num_params]``.
        critic: Its output is ``[..., K]`` predictions, or ``[..., 1]`` for a value ``[...]``.
    """

    def init(key: Key, obs: PyTree) -> PyTree:
        key_actor, key_critic = jax.random.split(key)
        return {"actor": actor.init(key_actor, obs), "critic": critic.init(key_critic, obs)}

    def act(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        policy, of_actor = actor.step(params["actor"], obs, carry[0])
        _, of_critic = critic.step(params["critic"], obs, carry[1])
        return policy, (of_actor, of_critic)

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[Array, Array, PyTree]:
        policy, of_actor, _ = actor.unroll(params["actor"], obs, carry[0], last)
        value, of_critic, _ = critic.unroll(params["critic"], obs, carry[1], last)
        return policy, predictions(value), (of_actor, of_critic)

    return ActorCritic(
        init=init,
        init_carry=lambda num_envs: (actor.init_carry(num_envs), critic.init_carry(num_envs)),
        act=act,
        unroll=unroll,
        value=lambda params, obs, carry: predictions(critic.step(params["critic"], obs, carry[1])[0]),
    )


def actor_critic(network: Recurrent) -> ActorCritic:
    """Makes an `ActorCritic` of a network whose head returns ``(policy [..., num_params], value [...])``."""

    def act(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        (policy, _), carry = network.step(params, obs, carry)
        return policy, carry

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[Array, Array, PyTree]:
        (policy, value), carries, _ = network.unroll(params, obs, carry, last)
        return policy, value, carries

    return ActorCritic(
        init=network.init,
        init_carry=network.init_carry,
        act=act,
        unroll=unroll,
        value=lambda params, obs, carry: network.step(params, obs, carry)[0][1],
    )
