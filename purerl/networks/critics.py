"""Actors and critics of their actions: a policy, and ``K`` critics that judge any action, with parameters of each."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import trees
from purerl.networks.heads import Head
from purerl.networks.layers import MLP, dense
from purerl.types import Array, Key, PyTree


class ActorAndCritics(NamedTuple):
    """A policy network, and ``K`` critics of actions in the box ``[-1, 1]`` of ``D`` dimensions or, of discrete
    actions, of all of them.

    The critics share no parameters with the actor, nor with each other.
    """

    actor: nn.Module  # obs -> [..., outputs]
    critics: nn.Module  # obs, action [..., D] -> [..., K]; or obs -> [..., K, A]
    size: int = 0  # D; 0: discrete actions

    def init(self, key: Key, obs: PyTree) -> dict[str, PyTree]:
        """Parameters ``{"actor", "critic"}`` for observations ``[B, ...]``. Consumes ``key``."""
        key_actor, key_critic = jax.random.split(key)
        action = (jnp.zeros((trees.length(obs), self.size)),) if self.size else ()
        return {"actor": self.actor.init(key_actor, obs), "critic": self.critics.init(key_critic, obs, *action)}

    def act(self, params: PyTree, obs: PyTree) -> Array:
        """What the actor puts out, by its own parameters."""
        out: Any = self.actor.apply(params, obs)
        return out

    def judge(self, params: PyTree, obs: PyTree, *action: Array) -> Array:
        """What the critics put out, by their own parameters."""
        out: Any = self.critics.apply(params, obs, *action)
        return out


class Critic(nn.Module):
    """The value of an action in a box: ``obs, action [..., D] -> [...]``.

    ``features`` turns an observation into a vector, beside which the action is laid before the dense layers of
    ``joint``.
    """

    features: nn.Module
    joint: MLP

    @nn.compact
    def __call__(self, obs: PyTree, action: Array) -> Array:
        x = jnp.concatenate([self.features(obs), action], axis=-1)
        return dense(1, 1.0)(self.joint(x))[..., 0]


def for_box(
    size: int, outputs: int, num_critics: int, torso: nn.Module, features: nn.Module, joint: MLP
) -> ActorAndCritics:
    """For actions of ``size`` dimensions: an actor with ``outputs`` numbers after ``torso``, and critics that lay the
    action beside the ``features`` of the observation, before the dense layers of ``joint``."""
    return ActorAndCritics(Head(torso, outputs, scale=0.01), several(Critic, num_critics, -1)(features, joint), size)


def for_discrete(num_actions: int, num_critics: int, torso: nn.Module) -> ActorAndCritics:
    """For ``A = num_actions``: an actor of logits, and critics of all actions."""
    return ActorAndCritics(
        Head(torso, num_actions, scale=0.01), several(Head, num_critics, -2)(torso, num_actions, 1.0)
    )


def several(kind: type[nn.Module], num_critics: int, axis: int) -> Any:
    """Modules of one ``kind`` with parameters of their own, what they put out side by side along ``axis``."""
    return nn.vmap(
        kind,
        in_axes=None,
        out_axes=axis,
        axis_size=num_critics,
        variable_axes={"params": 0},
        split_rngs={"params": True},
    )
