"""Output heads on a torso, and the actor-critic networks that are built from them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.errors import ConfigError
from purerl.formulas import exploration
from purerl.networks.layers import MLP, dense
from purerl.types import Array, Key, PyTree


class Head(nn.Module):
    """A torso and a linear layer of ``size`` outputs.

    ``free`` further outputs are parameters that do not depend on the observation. ``beside`` further outputs come from
    a linear layer of their own, so that the first ``size`` are bit for bit those of a head without ``beside``.
    """

    torso: nn.Module
    size: int
    scale: float
    free: int = 0
    beside: int = 0

    @nn.compact
    def __call__(self, obs: PyTree) -> Array:
        """Returns the outputs ``[..., size + beside + free]``, in this order."""
        features = self.torso(obs)
        out = dense(self.size, self.scale)(features)
        if self.beside:
            out = jnp.concatenate([out, dense(self.beside, self.scale)(features)], axis=-1)
        if self.free:
            shared = self.param("free", nn.initializers.zeros, (self.free,))
            out = jnp.concatenate([out, jnp.broadcast_to(shared, (*out.shape[:-1], self.free))], axis=-1)
        return out


class ActorCritic(NamedTuple):
    """A policy, as parameters of a distribution, and its value; ``carry`` is the memory, or ``()`` without one.

    ``unroll`` begins a new episode after each step whose ``last`` is true, and returns the carry after each step,
    before any reset. Without a memory the functions take any leading axes.
    """

    init: Callable[[Key, PyTree], PyTree]  # (key, obs [B, ...]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    act: Callable[[PyTree, PyTree, PyTree], tuple[Array, PyTree]]
    # (params, obs [B, ...], carry) -> (policy [B, num_params], carry)
    unroll: Callable[[PyTree, PyTree, PyTree, Array], tuple[Array, Array, PyTree]]
    # (params, obs [T, B, ...], carry, last [T, B]) -> (policy [T, B, num_params], value [T, B], carries [T, B, ...])
    value: Callable[[PyTree, PyTree, PyTree], Array]  # (params, obs [..., *obs], carry [...]) -> [...]


def actor_critic(actor: nn.Module, critic: nn.Module) -> ActorCritic:
    """Makes an `ActorCritic` of two modules without memory, which share nothing. Its ``init`` consumes its key.

    Args:
        actor: From observations to parameters of a distribution ``[..., num_params]``.
        critic: From observations to ``[..., K]`` predictions, or ``[..., 1]`` for a value ``[...]``.
    """

    def init(key: Key, obs: PyTree) -> PyTree:
        key_actor, key_critic = jax.random.split(key)
        return {"actor": actor.init(key_actor, obs), "critic": critic.init(key_critic, obs)}

    def policy(params: PyTree, obs: PyTree) -> Array:
        out: Any = actor.apply(params["actor"], obs)
        return out

    def value(params: PyTree, obs: PyTree, carry: PyTree = ()) -> Array:
        out: Any = critic.apply(params["critic"], obs)
        return predictions(out)

    return ActorCritic(
        init=init,
        init_carry=lambda num_envs: (),
        act=lambda params, obs, carry: (policy(params, obs), carry),
        unroll=lambda params, obs, carry, last: (policy(params, obs), value(params, obs), ()),
        value=value,
    )


def as_actor_critic(network: Any) -> ActorCritic:
    """Returns ``network`` itself, or the `ActorCritic` of a Flax Linen module (`shared_actor_critic`).

    Raises:
        ConfigError: ``network`` is neither.
    """
    if isinstance(network, ActorCritic):
        return network
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"network: is {type(network).__name__}; must be a networks.ActorCritic, as networks.actor_critic(actor, "
            "critic) makes of two Flax Linen modules, or one Linen module from observations to (policy, value)"
        )
    return shared_actor_critic(network.init, network.apply)


def shared_actor_critic(init: Callable[[Key, PyTree], PyTree], apply: Callable[[PyTree, PyTree], Any]) -> ActorCritic:
    """Makes an `ActorCritic` without memory of one network, of any library, that gives both the policy and the value.

    Args:
        init: ``init(key, obs [B, ...])`` returns parameters. Consumes ``key``.
        apply: ``apply(params, obs [..., *obs])`` returns ``(policy [..., num_params], value [...])``.
    """

    def both(params: PyTree, obs: PyTree) -> tuple[Array, Array]:
        out: Any = apply(params, obs)
        if isinstance(out, tuple) and len(out) == 2:
            return out
        kind = f"{type(out).__name__} of {len(out)}" if isinstance(out, tuple | list) else type(out).__name__
        kind = "one array" if hasattr(out, "shape") else kind
        raise ConfigError(f"network: gives {kind}; must give the tuple (policy, value)")

    return ActorCritic(
        init=init,
        init_carry=lambda num_envs: (),
        act=lambda params, obs, carry: (both(params, obs)[0], carry),
        unroll=lambda params, obs, carry, last: (*both(params, obs), ()),
        value=lambda params, obs, carry: both(params, obs)[1],
    )


def legal_only(network: ActorCritic, legal: Callable[[PyTree], Array], beside: int = 0) -> ActorCritic:
    """Masks a policy of logits: those of illegal actions become `exploration.ILLEGAL`.

    ``legal`` is that of `Env`: the mask of actions that an observation allows. The last ``beside`` outputs of the
    policy are no logits, and stay as they are.
    """

    def masked(policy: Array, obs: PyTree) -> Array:
        if not beside:
            return exploration.masked(policy, legal(obs))
        logits, others = jnp.split(policy, [policy.shape[-1] - beside], axis=-1)
        return jnp.concatenate([exploration.masked(logits, legal(obs)), others], axis=-1)

    def act(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        policy, carry = network.act(params, obs, carry)
        return masked(policy, obs), carry

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[Array, Array, PyTree]:
        policy, value, carries = network.unroll(params, obs, carry, last)
        return masked(policy, obs), value, carries

    return network._replace(act=act, unroll=unroll)


def one_each(network: ActorCritic, num_agents: int, which: Callable[[PyTree], Array]) -> ActorCritic:
    """Makes a network with separate parameters of ``network`` for each of ``N = num_agents`` agents.

    All ``N`` results are computed for every observation, and one of them is selected. ``init`` consumes its key.

    Args:
        network: The network of one agent.
        num_agents: The number ``N`` of agents.
        which: ``which(obs)`` is one-hot ``[..., N]``: the agent whose parameters apply to an observation.
    """

    def init(key: Key, obs: PyTree) -> PyTree:
        return jax.vmap(network.init, in_axes=(0, None))(jax.random.split(key, num_agents), obs)

    def chosen(made: PyTree, obs: PyTree) -> PyTree:
        index = jnp.argmax(which(obs), axis=-1)[None]

        def pick(x: Array) -> Array:
            return jnp.take_along_axis(x, index.reshape(*index.shape, *[1] * (x.ndim - index.ndim)), axis=0)[0]

        return jax.tree.map(pick, made)

    def act(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        made: tuple[Array, PyTree] = chosen(jax.vmap(lambda p: network.act(p, obs, carry))(params), obs)
        return made

    def unroll(params: PyTree, obs: PyTree, carry: PyTree, last: Array) -> tuple[Array, Array, PyTree]:
        made = jax.vmap(lambda p: network.unroll(p, obs, carry, last))(params)
        result: tuple[Array, Array, PyTree] = chosen(made, obs)
        return result

    def value(params: PyTree, obs: PyTree, carry: PyTree) -> Array:
        made: Array = chosen(jax.vmap(lambda p: network.value(p, obs, carry))(params), obs)
        return made

    return ActorCritic(init, network.init_carry, act, unroll, value)


def predictions(out: Array) -> Array:
    """Returns the output ``[..., K]`` of a critic, without its last axis if ``K`` is 1."""
    return jnp.squeeze(out, axis=-1) if out.shape[-1] == 1 else out


class PolicyAndValue(nn.Module):
    """Two `Head`s on the same features ``[..., F]``: ``(policy [..., size], value [...])``.

    Each has a dense layer of ``width`` units before it, or none if ``width`` is 0. ``free`` further outputs of the
    policy are parameters that do not depend on the features. With ``num_predictions`` above 1 the value is ``[...,
    num_predictions]``.
    """

    width: int
    size: int
    free: int
    activation: Callable[[Array], Array]
    num_predictions: int = 1

    @nn.compact
    def __call__(self, features: Array) -> tuple[Array, Array]:
        """Returns the policy's outputs, those of ``free`` last, and the value."""
        widths = (self.width,) if self.width else ()
        hidden = MLP(widths, self.activation), MLP(widths, self.activation)
        policy = Head(hidden[0], self.size, scale=0.01, free=self.free)(features)
        value = Head(hidden[1], 1, scale=1.0, beside=self.num_predictions - 1)
        return policy, predictions(value(features))


class SharedTorso(nn.Module):
    """Two linear layers on the features of one ``torso``: ``(policy [..., size], value [...])``; see `PolicyAndValue`.

    The gradient of the torso is the sum of those of the policy's and the value's loss.
    """

    torso: nn.Module
    heads: PolicyAndValue

    def __call__(self, obs: PyTree) -> tuple[Array, Array]:
        """Returns the policy's outputs and the value of an observation."""
        out: tuple[Array, Array] = self.heads(self.torso(obs))
        return out
