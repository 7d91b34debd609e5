"""A network that predicts what follows each action: DiscoRL's agent.

Oh et al. 2025 (doi 10.1038/s41586-025-09761-x), Methods.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.layers import dense
from purerl.types import Array, PyTree


class Outputs(NamedTuple):
    """The outputs of the network for observations ``[...]`` with ``A`` actions: all of them are logits.

    - ``policy`` ``[..., A]``.
    - ``y`` ``[..., K]``: predictions about the observation, whose meaning an update rule gives them.
    - ``z`` ``[..., A, K]``: the same about each action.
    - ``q`` ``[..., A, bins]``: a distribution over the action's value.
    - ``following`` ``[..., A, A]``: the policy after the action.

    `AllActions.of_action` gives ``z``, ``q`` and ``following`` of one action alone, without the axis of actions.
    """

    policy: Array
    y: Array
    z: Array
    q: Array
    following: Array


def truncated(scale: float) -> Callable[..., Array]:
    """Makes an initialiser ``init(key, shape, dtype)`` of truncated Gaussians, which consumes its key.

    It draws from a Gaussian of standard deviation ``scale`` that is cut off at two of these.
    """
    return nn.initializers.truncated_normal(scale)


class AllActions(nn.Module):
    """A module from observations to `Outputs`.

    ``policy`` and ``y`` are linear in ``width`` features, a linear layer on ``torso``. One step of an LSTM of ``size``
    units, whose input is an action, turns the features into what ``z``, ``q`` and ``following`` are computed from, each
    by a hidden layer of ``size`` units with relu.
    """

    torso: nn.Module
    num_actions: int
    num_predictions: int
    num_bins: int
    width: int
    size: int

    def setup(self) -> None:
        """Makes the layers."""
        wide, narrow = 1 / np.sqrt(self.width), 1 / np.sqrt(self.size)
        cell = 1 / np.sqrt(self.num_actions + self.size)
        self.features = dense(self.width, 1.0)
        self.policy, self.y = (dense(n, 0.01, init=truncated) for n in (self.num_actions, self.num_predictions))
        self.root = dense(self.size, wide, init=truncated)
        self.gates = dense(4 * self.size, cell, init=truncated)
        self.action = self.param("action", truncated(cell), (self.num_actions, 4 * self.size))
        sizes = {"z": self.num_predictions, "q": self.num_bins, "following": self.num_actions}
        self.hidden = {name: dense(self.size, narrow, init=truncated) for name in sizes}
        self.heads = {name: dense(size, narrow, init=truncated) for name, size in sizes.items()}

    def __call__(self, obs: PyTree) -> Outputs:
        """Returns the `Outputs` of observations ``[..., *obs]`` for all actions."""
        features, cell, gates = self._root(obs)
        each = gates[..., None, :] + self.action.reshape(*[1] * (gates.ndim - 1), *self.action.shape)
        return self._outputs(features, cell[..., None, :], each)

    def of_action(self, obs: PyTree, action: Array) -> Outputs:
        """Returns the `Outputs` of observations ``[..., *obs]`` for one action each, int ``[...]``."""
        features, cell, gates = self._root(obs)
        return self._outputs(features, cell, gates + jax.nn.one_hot(action, self.num_actions) @ self.action)

    def logits(self, obs: PyTree) -> Array:
        """Returns the logits ``[..., A]`` of the policy alone."""
        made: Array = self.policy(self.features(self.torso(obs)))
        return made

    def _root(self, obs: PyTree) -> tuple[Array, Array, Array]:
        """Returns what does not depend on the action.

        These are the features ``[..., width]``, the cell ``[..., size]`` before the action, and the gates
        ``[..., 4 * size]`` without the action's part.
        """
        features = self.features(self.torso(obs))
        cell = self.root(features)
        return features, cell, self.gates(jnp.tanh(cell))

    def _outputs(self, features: Array, cell: Array, gates: Array) -> Outputs:
        enter, new, forget, leave = jnp.split(gates, 4, axis=-1)
        cell = nn.sigmoid(forget + 1) * cell + nn.sigmoid(enter) * jnp.tanh(new)
        hidden = nn.sigmoid(leave) * jnp.tanh(cell)
        made: dict[str, Any] = {name: self.heads[name](nn.relu(self.hidden[name](hidden))) for name in self.heads}
        return Outputs(self.policy(features), self.y(features), **made)
