"""World models for a search: from observations to states of their own, what actions lead to, and what those are worth.

``S`` numbers describe a state, ``A`` actions, ``J`` outputs describe a distribution of a number.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.networks.layers import MLP, dense
from purerl.types import Array, Key, PyTree


class WorldModel(NamedTuple):
    """Three networks (Schrittwieser et al. 2020, arXiv 1911.08265, section 3).

    - ``represent(params, obs)``: the state ``[..., S]`` that an observation stands for.
    - ``advance(params, state, action)``: the next state, and the outputs ``[..., J]`` for the reward, of actions
      ``[...]`` by number.
    - ``predict(params, state)``: the logits ``[..., A]`` of the policy, and the outputs ``[..., J]`` for the value.
    """

    init: Callable[[Key, PyTree], PyTree]  # (key, obs [B, ...]) -> params
    represent: Callable[[PyTree, PyTree], Array]
    advance: Callable[[PyTree, Array, Array], tuple[Array, Array]]
    predict: Callable[[PyTree, Array], tuple[Array, Array]]


class Representation(nn.Module):
    """The features of ``torso``, through a linear layer to a state ``[..., size]``, `scaled`."""

    torso: nn.Module
    size: int

    @nn.compact
    def __call__(self, obs: PyTree) -> Array:
        """Returns the state of observations."""
        return scaled(dense(self.size, 1.0)(self.torso(obs)))


class Dynamics(nn.Module):
    """The change of a state ``[..., S]`` by an action ``[...]`` of ``num_actions``, and the outputs for the reward."""

    num_actions: int
    outputs: int
    widths: Sequence[int]
    activation: Callable[[Array], Array]

    @nn.compact
    def __call__(self, state: Array, action: Array) -> tuple[Array, Array]:
        """Returns the next state, `scaled`, and the outputs ``[..., outputs]``."""
        x = jnp.concatenate([state, jax.nn.one_hot(action, self.num_actions)], axis=-1)
        features = MLP(self.widths, self.activation)(x)
        after = scaled(state + dense(state.shape[-1], 1.0)(features))
        return after, dense(self.outputs, 0.01)(MLP(self.widths[-1:], self.activation)(features))


class Prediction(nn.Module):
    """The policy's logits ``[..., num_actions]`` of a state, and the outputs ``[..., outputs]`` for its value."""

    num_actions: int
    outputs: int
    widths: Sequence[int]
    activation: Callable[[Array], Array]

    @nn.compact
    def __call__(self, state: Array) -> tuple[Array, Array]:
        """Returns the logits and the outputs."""
        policy, value = (MLP(self.widths, self.activation)(state) for _ in range(2))
        return dense(self.num_actions, 0.01)(policy), dense(self.outputs, 0.01)(value)


def scaled(state: Array) -> Array:
    """Scales each state ``[..., S]`` to [0, 1], as actions are (arXiv 1911.08265, appendix G)."""
    low, high = (f(state, axis=-1, keepdims=True) for f in (jnp.min, jnp.max))
    return (state - low) / jnp.maximum(high - low, 1e-5)


def world_model(representation: nn.Module, dynamics: nn.Module, prediction: nn.Module) -> WorldModel:
    """Makes a `WorldModel` of three modules. Its ``init`` consumes its key.

    Args:
        representation: From observations to states.
        dynamics: From states and actions to ``(states, outputs)``.
        prediction: From states to ``(logits, outputs)``.
    """

    def init(key: Key, obs: PyTree) -> dict[str, PyTree]:
        keys = jax.random.split(key, 3)
        params = {"representation": representation.init(keys[0], obs)}
        state: Any = representation.apply(params["representation"], obs)
        action = jnp.zeros(state.shape[:-1], jnp.int32)
        return {
            **params,
            "dynamics": dynamics.init(keys[1], state, action),
            "prediction": prediction.init(keys[2], state),
        }

    def represent(params: PyTree, obs: PyTree) -> Array:
        out: Any = representation.apply(params["representation"], obs)
        return out

    def advance(params: PyTree, state: Array, action: Array) -> tuple[Array, Array]:
        out: Any = dynamics.apply(params["dynamics"], state, action)
        return out

    def predict(params: PyTree, state: Array) -> tuple[Array, Array]:
        out: Any = prediction.apply(params["prediction"], state)
        return out

    return WorldModel(init, represent, advance, predict)
