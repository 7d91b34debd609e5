"""A policy, and ``K`` critics that value any of its actions, each with parameters of its own."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import trees
from purerl.networks.batch_renorm import STATISTICS
from purerl.networks.heads import Head
from purerl.networks.layers import dense
from purerl.types import Array, Key, PyTree


class ActorAndCritics(NamedTuple):
    """A policy network and ``K`` critics of its actions.

    Actions lie in the box ``[-1, 1]`` of ``D`` dimensions, or are discrete; critics of discrete actions value all of
    them at once. The critics share no parameters with the actor, nor with each other.
    """

    actor: nn.Module  # obs -> [..., outputs]
    critics: nn.Module  # obs, action [..., D] -> [..., K], or [..., K, J] for distributions; or obs -> [..., K, A]
    size: int = 0  # D; 0: discrete actions

    def init(self, key: Key, obs: PyTree) -> dict[str, PyTree]:
        """Returns parameters ``{"actor", "critic"}`` for observations ``[B, ...]``. Consumes ``key``."""
        key_actor, key_critic = jax.random.split(key)
        action = (jnp.zeros((trees.length(obs), self.size)),) if self.size else ()
        return {"actor": self.actor.init(key_actor, obs), "critic": self.critics.init(key_critic, obs, *action)}

    def act(self, params: PyTree, obs: PyTree) -> Array:
        """Returns the output of the actor, of which ``params`` are the parameters."""
        out: Any = self.actor.apply(params, obs)
        return out

    def q_values(self, params: PyTree, obs: PyTree, *action: Array, dropout: Key | tuple[()] = ()) -> Array:
        """Returns the values by the critics, of which ``params`` are the parameters.

        With the key ``dropout``, which is consumed, units are dropped in critics that have dropout; ``()``: none are.
        """
        rngs: dict[str, Any] = {} if isinstance(dropout, tuple) else {"rngs": {"dropout": dropout}}
        out: Any = self.critics.apply(params, obs, *action, **rngs)
        return out


class Critic(nn.Module):
    """The value of an action in a box: ``obs, action [..., D] -> [...]``.

    ``features`` turns an observation into a vector. The action is concatenated to it, and ``joint`` with its dense
    layers and one linear layer follow. With ``outputs`` there are so many numbers ``[..., outputs]`` for each action,
    which describe a distribution (`return_distributions`).
    """

    features: nn.Module
    joint: nn.Module
    outputs: int = 0

    @nn.compact
    def __call__(self, obs: PyTree, action: Array) -> Array:
        """Returns the value ``[...]``, or the outputs, of each observation and action."""
        x = jnp.concatenate([self.features(obs), action], axis=-1)
        out = dense(self.outputs or 1, 1.0)(self.joint(x))
        return out if self.outputs else out[..., 0]


def for_box(
    size: int,
    outputs: int,
    num_critics: int,
    torso: nn.Module,
    features: nn.Module,
    joint: nn.Module,
    critic_outputs: int = 0,
) -> ActorAndCritics:
    """Makes an actor and ``K = num_critics`` critics of actions of ``size`` dimensions.

    Args:
        size: The number ``D`` of dimensions of an action.
        outputs: The number of outputs of the actor, by a linear layer on ``torso``.
        num_critics: The number ``K`` of critics.
        torso: The actor's torso, from observations to features.
        features: The torso of each critic: the action is concatenated to its features.
        joint: The dense layers of each critic after that.
        critic_outputs: The number ``J`` of outputs of each critic for an action; 0: a value.
    """
    axis = -2 if critic_outputs else -1
    of_action = several(Critic, num_critics, axis)(features, joint, critic_outputs)
    return ActorAndCritics(Head(torso, outputs, scale=0.01), of_action, size)


def for_discrete(
    num_actions: int, num_critics: int, torso: nn.Module, of_critics: nn.Module | None = None
) -> ActorAndCritics:
    """Makes an actor of logits ``[..., A]`` and ``K = num_critics`` critics ``[..., K, A]`` of ``A = num_actions``.

    Each has a ``torso`` of its own, critics that of ``of_critics`` if there is one.
    """
    critics = several(Head, num_critics, -2)(of_critics or torso, num_actions, 1.0)
    return ActorAndCritics(Head(torso, num_actions, scale=0.01), critics)


def several(kind: type[nn.Module], num_critics: int, axis: int) -> Any:
    """Makes a module of ``num_critics`` copies of a ``kind``, each with parameters of its own.

    Their outputs are stacked along ``axis``.
    """
    return nn.vmap(
        kind,
        in_axes=None,
        out_axes=axis,
        axis_size=num_critics,
        variable_axes={"params": 0, STATISTICS: 0},
        split_rngs={"params": True, "dropout": True},
    )
