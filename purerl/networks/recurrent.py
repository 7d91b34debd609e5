"""Recurrent networks: a torso, a layer that remembers, and a head."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import trees
from purerl.formulas import exploration
from purerl.networks.heads import ActorCritic
from purerl.networks.memory.base import Memory
from purerl.types import Array, Key, PyTree


class Recurrent(NamedTuple):
    """A network with a memory, the ``carry``: ``[B, ...]`` leading, zeros at the start of an episode.

    ``unroll`` sets the carry back to that after each step whose ``last`` is true, so that the next step begins an
    episode. It also returns the carries as each step leaves them, and the carry that continues where the steps ended.
    """

    init: Callable[[Key, PyTree], PyTree]  # (key, obs [B, ...]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    step: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]
    # (params, obs [..., *obs], carry [...]) -> (out [...], carry [...])
    unroll: Callable[[PyTree, PyTree, PyTree, Array], tuple[PyTree, PyTree, PyTree]]
    # (params, obs [T, B, ...], carry, last [T, B]) -> (out [T, B, ...], carries [T, B, ...], carry)


def recurrent(torso: nn.Module, memory: Memory, head: nn.Module) -> Recurrent:
    """``head(memory(torso(obs)))``; ``head`` maps ``[..., size]`` to anything.

    ``unroll`` applies torso and head to all steps at once.
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
    """A network of action values in which those of actions that are not ``legal`` are `exploration.ILLEGAL`."""

    def step(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        q, carry = network.step(params, obs, carry)
        return exploration.masked(q, legal(obs)), carry

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[PyTree, PyTree, PyTree]:
        q, carries, carry = network.unroll(params, obs, carry, last)
        return exploration.masked(q, legal(obs)), carries, carry

    return network._replace(step=step, unroll=unroll)


def rows(network: Recurrent, inputs: Callable[[PyTree], PyTree], num_rows: int) -> Recurrent:
    """``network`` of several rows at a time, each with a carry of its own.

    ``inputs(obs)`` makes what ``network`` sees, ``[..., M, *obs]`` with ``M = num_rows``, of an observation ``[...]``.
    What it puts out is ``[..., M, ...]``, and so are the carries.
    """

    def init(key: Key, obs: PyTree) -> PyTree:
        return network.init(key, trees.merge(inputs(obs), 2))

    def init_carry(num_envs: int) -> PyTree:
        return trees.split(network.init_carry(num_envs * num_rows), (num_envs, num_rows))

    def step(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        return network.step(params, inputs(obs), carry)

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[PyTree, PyTree, PyTree]:
        seen = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), inputs(obs))
        all_last = jnp.repeat(last, num_rows, axis=1)
        out, carries, carry = network.unroll(params, seen, trees.merge(carry, 2), all_last)
        out, carries = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, num_rows, *x.shape[2:]), (out, carries))
        return out, carries, trees.split(carry, (last.shape[1], num_rows))

    return Recurrent(init, init_carry, step, unroll)


def twins(network: Recurrent) -> Recurrent:
    """Two networks like ``network`` with parameters and carries of their own: everything is a pair."""

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
    """An actor ``[..., num_params]`` and a critic ``[...]`` with a memory each: the carry is that of both."""

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
        return policy, value[..., 0], (of_actor, of_critic)

    return ActorCritic(
        init=init,
        init_carry=lambda num_envs: (actor.init_carry(num_envs), critic.init_carry(num_envs)),
        act=act,
        unroll=unroll,
        value=lambda params, obs, carry: critic.step(params["critic"], obs, carry[1])[0][..., 0],
    )


def actor_critic(network: Recurrent) -> ActorCritic:
    """Of a network whose head puts out ``(policy [..., num_params], value [...])``."""

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
