"""Torsos, heads and the orthogonal initialiser."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.networks.layers import MLP, dense
from purerl.types import Array, Key, PyTree


class Head(nn.Module):
    """A torso and a linear layer. ``free`` more outputs are parameters that do not depend on the observation."""

    torso: nn.Module
    size: int
    scale: float
    free: int = 0

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        out = dense(self.size, self.scale)(self.torso(obs))
        if self.free:
            shared = self.param("free", nn.initializers.zeros, (self.free,))
            out = jnp.concatenate([out, jnp.broadcast_to(shared, (*out.shape[:-1], self.free))], axis=-1)
        return out


class ActorCritic(NamedTuple):
    """A policy, as distribution parameters, and its value; with a memory, or with ``()`` for its ``carry``.

    ``unroll`` begins a new episode after each step whose ``last`` is true, and returns the carries as each step leaves
    them. Without a memory, any leading axes will do everywhere.
    """

    init: Callable[[Key, Array], PyTree]  # (key, obs [B, ...]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    act: Callable[[PyTree, Array, PyTree], tuple[Array, PyTree]]
    # (params, obs [B, ...], carry) -> (policy [B, num_params], carry)
    unroll: Callable[[PyTree, Array, PyTree, Array], tuple[Array, Array, PyTree]]
    # (params, obs [T, B, ...], carry, last [T, B]) -> (policy [T, B, num_params], value [T, B], carries [T, B, ...])
    value: Callable[[PyTree, Array, PyTree], Array]  # (params, obs [..., *obs], carry [...]) -> [...]


def actor_critic(actor: nn.Module, critic: nn.Module) -> ActorCritic:
    """Two modules without memory that share nothing: the actor puts out distribution parameters, the critic
    ``[..., K]`` predictions, or ``[..., 1]`` for a value ``[...]``."""

    def init(key: Key, obs: Array) -> PyTree:
        key_actor, key_critic = jax.random.split(key)
        return {"actor": actor.init(key_actor, obs), "critic": critic.init(key_critic, obs)}

    def policy(params: PyTree, obs: Array) -> Array:
        return actor.apply(params["actor"], obs)

    def value(params: PyTree, obs: Array, carry: PyTree = ()) -> Array:
        return predictions(critic.apply(params["critic"], obs))

    return ActorCritic(
        init=init,
        init_carry=lambda num_envs: (),
        act=lambda params, obs, carry: (policy(params, obs), carry),
        unroll=lambda params, obs, carry, last: (policy(params, obs), value(params, obs), ()),
        value=value,
    )


def predictions(out: Array) -> Array:
    """What a critic puts out, ``[..., K]``; a single prediction without its axis."""
    return jnp.squeeze(out, axis=-1) if out.shape[-1] == 1 else out


class PolicyAndValue(nn.Module):
    """Two `Head`s on the same features ``[..., F]``: ``(policy [..., size], value [...])``, each with a dense layer of
    ``width`` before it. ``free`` more parameters of the policy do not depend on the features. With several
    ``num_predictions`` the value is ``[..., num_predictions]``."""

    width: int
    size: int
    free: int
    activation: Callable[[Array], Array]
    num_predictions: int = 1

    @nn.compact
    def __call__(self, features: Array) -> tuple[Array, Array]:
        hidden = MLP((self.width,), self.activation), MLP((self.width,), self.activation)
        policy = Head(hidden[0], self.size, scale=0.01, free=self.free)(features)
        return policy, predictions(Head(hidden[1], self.num_predictions, scale=1.0)(features))
