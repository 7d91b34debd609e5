"""Learning a policy from replay by critics of its actions: what DDPG, TD3 and SAC share.

The loop is that of Lillicrap et al. 2016 (arXiv 1509.02971, Algorithm 1): act with noise, draw a batch, move critics
towards targets by slowly moving copies of the networks, move the policy towards actions that the critics value more. An
algorithm defines how it acts, what a next state is worth, and what its actor minimises.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import config as cfg
from purerl import counters, networks, replay, spaces, trees
from purerl.counters import Count
from purerl.formulas import td_errors
from purerl.learners.parts import checks, from_replay, gradients, normalize, settings, target_networks
from purerl.learners.parts.normalize import Normalizer
from purerl.networks import critics
from purerl.networks.critics import ActorAndCritics
from purerl.types import Array, Env, Key, Learner, Metrics, Outcome, PyTree, Sample, Situation, Trainer, Updated

MUJOCO = {
    "total_steps": 1_000_000,
    "num_envs": 1,
    "num_steps": 1,
    "num_updates": 1,
    "batch_size": 256,
    "warmup_steps": 10_000,
    "learning_rate": 3e-4,
    "actor_learning_rate": 3e-4,
    "hidden_sizes": (256, 256),
}
"""Sizes from the papers of SAC and TD3 for robots (Haarnoja et al. 2018, arXiv 1812.05905, table 1; Fujimoto's own
code for TD3, which waits longer before its first update). Defaults are for tasks of a few numbers."""


@cfg.config(
    num_envs=4,
    num_steps=4,
    num_updates=16,
    capacity=1_000_000,
    warmup_steps=1_000,
    learning_rate_decay=0.0,
    max_grad_norm=40.0,
    activation="relu",
)
class OffPolicyGradientConfig(from_replay.ReplayConfig, settings.Torso, settings.Adam):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    n_step: cfg.Count = 1
    """Number of rewards that a target sums before it bootstraps."""
    num_critics: cfg.Count = 2
    """Number of critics; targets use their smallest value. 1 tends to overestimate."""
    tau: cfg.Fraction = 0.005
    """Fraction by which target networks move towards the online networks at each of their updates."""
    policy_delay: cfg.Count = 1
    """Number of critic updates for each update of the actor and of the target networks."""
    huber_delta: cfg.Positive = 1e4
    """Magnitude of the TD error above which the critics' loss is linear instead of quadratic."""
    learning_rate: cfg.Positive = 1e-3
    """Adam's learning rate for the critics at the start."""
    actor_learning_rate: cfg.Positive = 1e-3
    """Adam's learning rate for the actor at the start."""
    normalize_obs: bool = False
    """Normalise observations by the running mean and standard deviation of the observations learned from."""
    hidden_sizes: tuple[cfg.Count, ...] = (64, 64)
    """Widths of the dense layers of the actor and of each critic."""

    @property
    def sample_rows(self) -> int:
        """Number of consecutive rows that one sample spans."""
        return self.n_step + 1


class OffPolicyGradientState(NamedTuple):
    """The learner's state.

    ``params`` are ``{"actor", "critic"}``, and what else the actor's loss moves. ``waited`` (int32) counts updates
    since the actor's last one.
    """

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    critic_opt_state: PyTree
    actor_opt_state: PyTree
    obs_moments: PyTree
    updates: Count
    waited: Array


class OffPolicyGradientPolicy(NamedTuple):
    """What the evaluated policy needs."""

    params: PyTree
    obs_moments: PyTree


class OffPolicyGradientBehaviour(NamedTuple):
    """What acting needs: an `OffPolicyGradientPolicy`, and whether there has been an update (bool ``[]``)."""

    policy: OffPolicyGradientPolicy
    updated: Array


class Method(NamedTuple):
    """What distinguishes an algorithm of the family from the others.

    ``N`` samples, ``K`` critics. For a team of ``M`` agents, ``[N]`` and ``[N, K]`` below are ``[N, M]`` and ``[N, M,
    K]``, except for the actor's loss.

    Observations are normalised, actions in the environment's units. ``params`` are all of the learner's, and ``moving``
    those without ``"critic"``. ``targets`` names the parameters that have slowly moving copies. ``present(obs)`` is
    bool ``[N, M]``, where the values of an agent of a team are learned; None: everywhere.
    """

    init: Callable[[Key, PyTree], dict[str, PyTree]]  # (key, obs) -> params
    noise: Callable[[Key, tuple[int, ...]], PyTree]  # noise of updates and of exploration: one element per observation
    explore: Callable[[PyTree, Array, PyTree, PyTree, PyTree], tuple[Array, PyTree]]
    # (actor, updated, obs, carry, noise) -> (action, carry)
    exploit: Callable[[PyTree, PyTree], Array]  # (actor, obs) -> action
    value: Callable[[PyTree, PyTree, Array], Array]  # (critic, obs, action) -> [N, K]
    next_value: Callable[[dict, dict, PyTree, PyTree], Array]  # (params, target_params, next_obs, noise) -> [N]
    actor_loss: Callable[[dict, PyTree, PyTree, PyTree], tuple[Array, Metrics]]
    # (moving, critic, obs, noise) -> (loss [N], metrics)
    targets: Sequence[str]
    init_carry: Callable[[int], PyTree] = lambda num_envs: ()
    present: Callable[[PyTree], Array] | None = None


def problems(config: OffPolicyGradientConfig, env: Env | None, kinds: tuple[type, ...] = (spaces.Box,)) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions of a Box must be bounded.

    Args:
        config: Settings of the algorithm.
        env: The environment.
        kinds: Types of action spaces that the algorithm can act in.
    """
    problems = cfg.problems(config) + settings.torso_problems(config, env)
    problems += from_replay.problems(config, env)
    of_spaces = checks.space_problems(env, kinds)
    if of_spaces or env is None or not isinstance(env.action_space, spaces.Box) or spaces.is_bounded(env.action_space):
        return problems + of_spaces
    return [*problems, f"env = {env.name!r}: has actions without bounds; the algorithm needs a bounded Box"]


def networks_for_box(config: OffPolicyGradientConfig, env: Env, outputs: int) -> ActorAndCritics:
    """Makes networks for actions in a Box, with an actor of ``outputs`` numbers for each dimension."""
    size = math.prod(env.action_space.shape)
    joint = networks.MLP(config.hidden_sizes, networks.ACTIVATIONS[config.activation], layer_norm=config.layer_norm)
    torso, features = settings.make_torso(config, env), settings.make_torso(config, env, ())
    return critics.for_box(size, outputs * size, config.num_critics, torso, features, joint)


def moving(box: spaces.Box) -> np.ndarray | None:
    """Returns which dimensions ``[D]`` of ``box`` are no constants, whose bounds are equal; None: all."""
    scale = spaces.unit(box)[1]
    return None if isinstance(scale, jax.Array) or np.all(scale > 0) else np.ravel(scale) > 0


def units(box: spaces.Box) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Returns ``(to_box, to_unit)``, which convert actions from the units of networks to those of ``box``, and back.

    ``to_box`` turns vectors ``[..., D]`` in [-1, 1] into actions ``[..., *shape]`` of ``box``. Dimensions that are
    constants are 0 in the units of networks.
    """
    centre, scale = spaces.unit(box)
    divisor = scale + (scale == 0)

    def to_box(x: Array) -> Array:
        x = x.reshape(*x.shape[:-1], *box.shape)
        return trees.like(centre, x) + trees.like(scale, x) * x

    def to_unit(action: Array) -> Array:
        x = (action - trees.like(centre, action)) / trees.like(divisor, action)
        return x.reshape(*x.shape[: x.ndim - len(box.shape)], -1)

    return to_box, to_unit


class CriticParts(TypedDict, total=False):
    """Parts that every algorithm of the family takes: arguments of `make_learner`."""

    td_loss: Callable[[Array, Any], Array]
    optimiser: optax.GradientTransformation | None


def make_learner(
    config: OffPolicyGradientConfig,
    env: Env,
    method: Method,
    td_loss: Callable[[Array, Any], Array] = td_errors.huber_loss,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes a `Learner` by ``method``.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        method: What the algorithm defines.
        td_loss: ``td_loss(error, config)``, elementwise.
        optimiser: Moves the critics and, with a state of its own, the actor; None: Adam, with a step size for each.
    """
    normalizer: Normalizer = normalize.running() if config.normalize_obs else normalize.identity()
    of_critic = optimiser or settings.make_optimiser(config)
    of_actor = optimiser or settings.make_optimiser(
        dataclasses.replace(config, learning_rate=config.actor_learning_rate), period=config.policy_delay
    )

    def init(key: Key, obs: PyTree) -> OffPolicyGradientState:
        params = method.init(key, obs)
        return OffPolicyGradientState(
            params,
            {name: params[name] for name in method.targets},
            gradients.init_optimiser(of_critic, params["critic"]),
            gradients.init_optimiser(of_actor, without_critic(params)),
            normalizer.init(trees.take(obs, 0)),
            counters.of(),
            jnp.zeros((), jnp.int32),
        )

    def behaviour(state: OffPolicyGradientState) -> OffPolicyGradientBehaviour:
        return OffPolicyGradientBehaviour(
            OffPolicyGradientPolicy(state.params["actor"], state.obs_moments), counters.reached(state.updates, 1)
        )

    def explore(behaviour: OffPolicyGradientBehaviour, here: Situation, noise: PyTree):
        policy, updated = behaviour
        obs = normalizer.apply(policy.obs_moments, here.obs)
        return *method.explore(policy.params, updated, obs, here.carry, noise), ()

    def exploit(policy: OffPolicyGradientPolicy, here: Situation, key: Key):
        return method.exploit(policy.params, normalizer.apply(policy.obs_moments, here.obs)), here.carry

    def critic_loss(critic: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        obs, action, weight, target = batch
        q = method.value(critic, obs, action)
        error = target[..., None] - q
        if method.present:
            error = jnp.where(method.present(obs)[..., None], error, 0.0)
        axes = tuple(range(1, error.ndim))
        size = jnp.mean(jnp.abs(error), axis=axes)
        each = jnp.sum(td_loss(error, config), axis=axes)
        return jnp.mean(weight * each), (size, {"value": jnp.mean(q), "td_error": jnp.mean(weight * size)})

    def actor_loss(moving: dict, batch: PyTree) -> tuple[Array, Metrics]:
        critic, obs, weight, noise = batch
        each, metrics = method.actor_loss(moving, critic, obs, noise)
        return jnp.mean(weight * each), metrics

    def learn(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        items: Outcome = sample.items
        key_next, key_actor = jax.random.split(key)
        obs, next_obs = (normalizer.apply(state.obs_moments, x) for x in (items.obs, items.next_obs))
        next_value = method.next_value(
            state.params, state.target_params, next_obs, method.noise(key_next, sample.weight.shape)
        )
        reward, discount = (x.reshape(x.shape + (1,) * (next_value.ndim - 1)) for x in (items.reward, items.discount))
        target = jax.lax.stop_gradient(reward + discount * next_value)
        critic, critic_opt_state, (priority, more), metrics = gradients.gradient_step(
            critic_loss,
            of_critic,
            state.params["critic"],
            state.critic_opt_state,
            (obs, items.action, sample.weight, target),
        )
        moving, actor_opt_state, of_policy, actor_metrics = gradients.gradient_step(
            actor_loss,
            of_actor,
            without_critic(state.params),
            state.actor_opt_state,
            (critic, obs, sample.weight, method.noise(key_actor, sample.weight.shape)),
        )
        params = {**moving, "critic": critic}
        target_params = target_networks.polyak(
            {name: params[name] for name in method.targets}, state.target_params, config.tau
        )
        waited = (state.waited + 1) % config.policy_delay
        if config.policy_delay > 1:
            moving, actor_opt_state, target_params = jax.tree.map(
                lambda new, old: jnp.where(waited == 0, new, old),
                (moving, actor_opt_state, target_params),
                (without_critic(state.params), state.actor_opt_state, state.target_params),
            )
        learned = OffPolicyGradientState(
            {**moving, "critic": critic},
            target_params,
            critic_opt_state,
            actor_opt_state,
            normalizer.update(state.obs_moments, items.obs),
            counters.increment(state.updates),
            waited,
        )
        of_policy = {"policy_loss": actor_metrics["loss"], "policy_grad_norm": actor_metrics["grad_norm"], **of_policy}
        return Updated(learned, {**more, **of_policy, **metrics}, priority)

    return Learner(
        init=init,
        init_carry=method.init_carry,
        noise=method.noise,
        behaviour=behaviour,
        explore=explore,
        policy=lambda state: OffPolicyGradientPolicy(state.params["actor"], normalize.settled(state.obs_moments)),
        exploit=exploit,
        update=learn,
    )


def without_critic(params: dict[str, PyTree]) -> dict[str, PyTree]:
    """Returns the parameters that the actor's loss moves."""
    return {name: x for name, x in params.items() if name != "critic"}


def make_trainer(config: OffPolicyGradientConfig, env: Env, learner: Learner) -> Trainer:
    """Makes one iteration as a `Trainer`, with transitions over ``n_step`` steps."""
    return from_replay.make_trainer(config, env, learner, view=replay.transitions(config.n_step, config.gamma))
