"""A user's own network in place of an algorithm's: made the same kind of network, and checked by its shapes alone."""

from typing import Any, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import spaces
from purerl.errors import RAISED, ConfigError, one_line
from purerl.networks.critics import ActorAndCritics
from purerl.networks.heads import ActorCritic, as_actor_critic
from purerl.networks.recurrent import Recurrent
from purerl.networks.value_networks import ValueNetwork, as_value_network
from purerl.networks.world_models import WorldModel
from purerl.spaces import Space
from purerl.types import PyTree

Network = TypeVar("Network")
COUNT = 3
"""The number of observations that a network is tried with; few networks have as many outputs."""
MUST_BE = {
    ActorAndCritics: "critics.ActorAndCritics, as critics.for_box and critics.for_discrete make",
    Recurrent: "recurrent.Recurrent, as recurrent.recurrent(torso, memory, head) makes of two Flax Linen modules and a "
    "memory",
    WorldModel: "world_models.WorldModel, as world_models.world_model makes of three Flax Linen modules",
}


class Fitting(NamedTuple):
    """A network that an algorithm gives another whose parts it takes, so that it is not checked again."""

    network: Any


def given_or_own(network: Any, own: Network, space: Space) -> Network:
    """Returns a user's ``network`` as a network of the kind of ``own``; None: ``own``.

    Nothing is computed: the shapes of the outputs are compared (`jax.eval_shape`). The number of critics may differ.

    Args:
        network: The user's: of the same type, or a Flax Linen module for an `ActorCritic` or a `ValueNetwork`.
        own: The one that the algorithm makes itself.
        space: The space of the observations.

    Raises:
        ConfigError: ``network`` is of another type, cannot be applied to observations, or gives something else than
            ``own``.
    """
    if network is None:
        return own
    if isinstance(network, Fitting):
        fitting: Network = network.network
        return fitting
    fitting = _as_kind(network, own)
    obs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((COUNT, *x.shape), x.dtype), spaces.struct(space))
    try:
        made = jax.eval_shape(lambda obs: _outputs(fitting, obs), obs)
    except ConfigError:
        raise
    except RAISED as error:
        seen = ", ".join(_text(x) for x in jax.tree.leaves(obs))
        raise ConfigError(f"network: cannot be applied to {COUNT} observations, {seen}: {one_line(error)}") from error
    for name, must in jax.eval_shape(lambda obs: _outputs(own, obs), obs).items():
        if wrong := _difference(made[name], must):
            raise ConfigError(f"network: gives {wrong} as {name} of {COUNT} observations; must give {_text(must)}")
    return fitting


def _as_kind(network: Any, own: Any) -> Any:
    """Returns ``network`` as a network of the type of ``own``."""
    if isinstance(own, ActorCritic):
        return as_actor_critic(network)
    if isinstance(own, ValueNetwork):
        return as_value_network(network)
    if isinstance(network, nn.Module if isinstance(own, nn.Module) else type(own)):
        if isinstance(own, ActorAndCritics) and network.size != own.size:
            raise ConfigError(f"network: is for actions of size {network.size}; must be {own.size}")
        return network
    must = MUST_BE.get(type(own), "Flax Linen module, as the algorithm's own is")
    raise ConfigError(f"network: is {type(network).__name__}; must be a {must}")


def _outputs(network: Any, obs: PyTree) -> dict[str, PyTree]:
    """Returns what a network gives for observations ``[N]``, by name."""
    params, ended = network.init(jax.random.key(0), obs), jnp.zeros((1, COUNT), bool)
    if isinstance(network, ActorCritic):
        carry, one = network.init_carry(COUNT), jax.tree.map(lambda x: x[None], obs)
        (policy, _), value = network.act(params, obs, carry), network.value(params, obs, carry)
        unrolled = network.unroll(params, one, carry, ended)
        return {"policy": policy, "value": value, "policy of unroll": unrolled[0], "value of unroll": unrolled[1]}
    if isinstance(network, ValueNetwork):
        return {"values": network.apply(params, obs, network.still((COUNT,)))}
    if isinstance(network, WorldModel):
        state = network.represent(params, obs)
        after, reward = network.advance(params, state, jnp.zeros(COUNT, jnp.int32))
        if wrong := _difference(after, state):
            raise ConfigError(f"network: gives {wrong} as next state; must give what represent gives, {_text(state)}")
        policy, of_value = network.predict(params, state)
        return {"policy": policy, "outputs for the value": of_value, "outputs for the reward": reward}
    if isinstance(network, Recurrent):
        return {"output": network.step(params, obs, network.init_carry(COUNT))[0]}
    if isinstance(network, ActorAndCritics):
        action = [jnp.zeros((COUNT, network.size))] if network.size else []
        values = network.q_values(params["critic"], obs, *action)
        least = jnp.min(values, axis=-1 if values.ndim == 2 else -2)
        return {"actor's output": network.act(params["actor"], obs), "least value of the critics": least}
    return {"output": network.apply(params, obs)}


def _difference(made: PyTree, must: PyTree) -> str:
    """Returns ``made`` in words if it has another structure, shape or type than ``must``."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (made, must)]
    same = structures[0] == structures[1] and all(
        hasattr(x, "shape") and x.shape == y.shape and x.dtype == y.dtype
        for x, y in zip(jax.tree.leaves(made), jax.tree.leaves(must), strict=True)
    )
    return "" if same else _text(made)


def _text(tree: PyTree) -> str:
    """Returns the types and shapes of a tree, as ``float32[3, 2]``."""
    texts = [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(tree)]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
