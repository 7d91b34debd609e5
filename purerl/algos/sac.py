"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1801.01290), with a learned temperature (arXiv 1812.05905)."""

from collections.abc import Callable
from typing import Annotated, NamedTuple, Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import draw
from purerl.algos.algorithm import Algorithm
from purerl.algos.ddpg import MUJOCO
from purerl.formulas import soft
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import (
    Acting,
    Batch,
    CriticParts,
    OffPolicyGradientState,
)
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated

WHILE_LEARNED = cfg.Needs("learn_temperature", lambda config: config.learn_temperature)


@cfg.config
class Temperature:
    """Settings of the price of a policy's entropy."""

    learn_temperature: bool = True
    """Learn the temperature so that the policy's entropy approaches target_entropy."""
    initial_temperature: cfg.Positive = 1.0
    """Initial temperature: reward per nat of the policy's entropy."""
    target_entropy: Annotated[float, cfg.Range(), WHILE_LEARNED] = -1.0
    """Target entropy of the policy, in nats per dimension of an action in [-1, 1]. Uniform actions have 0.69."""


@cfg.config
class SACConfig(off_policy_gradients.CriticKindConfig, Temperature):
    """Settings of SAC."""


def make_network(config: SACConfig, env: Env) -> ActorAndCritics:
    """Makes an actor of means and logarithms of standard deviations, before their tanh, and critics."""
    family = off_policy_gradients.family_of(config)
    return off_policy_gradients.networks_for_box(config, env, 2, family, config.critic_dropout)


def init_params(config: Temperature, network: ActorAndCritics, key: Key, obs: PyTree) -> dict[str, PyTree]:
    """Initialises the parameters of the networks and the logarithm of the temperature. key: Consumed."""
    return {**network.init(key, obs), "log_temperature": jnp.log(jnp.float32(config.initial_temperature))}


def kept(config: Temperature) -> tuple[str, ...]:
    """Returns the names of what another training can begin with beside the actor: critics, a learned temperature."""
    return ("critic", "log_temperature") if config.learn_temperature else ("critic",)


def temperature(params: dict) -> Array:
    """Returns the temperature, through which no gradient flows."""
    return jax.lax.stop_gradient(jnp.exp(params["log_temperature"]))


def with_temperature(
    config: Temperature, params: dict, loss: Array, entropy: Array, target_entropy: Array | float
) -> tuple[Array, Metrics]:
    """Adds the loss of the temperature, if it is learned, to the actor's loss.

    Args:
        config: Settings of the algorithm.
        params: Parameters that the actor's step changes: ``"actor"`` and ``"log_temperature"``.
        loss: The actor's loss ``[N]``.
        entropy: Entropies of the policy, in nats ``[N]``, through which the temperature's loss lets no gradient.
        target_entropy: What they should be, a number or ``[N]``.

    Returns:
        The loss ``[N]``, and the metrics ``entropy`` and ``temperature``.
    """
    if config.learn_temperature:
        loss += soft.temperature_loss(params["log_temperature"], entropy, target_entropy)
    return loss, {"entropy": jnp.mean(entropy), "temperature": temperature(params)}


class SquashedPolicy(NamedTuple):
    """A Gaussian policy that tanh squashes into a box. Its actions are vectors ``[..., D]`` in [-1, 1].

    - ``sample(out, noise)``: samples actions by the actor's output, and returns their log-densities ``[...]``, too.
    - ``draw(actor, obs, noise)``: the same, by the actor's parameters.
    - ``executed(action)``: the action that stands in a replay, as such a vector.
    - ``acting``: how it explores and exploits.
    - ``target_entropy``: the target of its entropy, in nats.
    """

    sample: Callable[[Array, Array], tuple[Array, Array]]
    draw: Callable[[PyTree, PyTree, Array], tuple[Array, Array]]
    executed: Callable[[Array], Array]
    acting: Acting
    target_entropy: Array | float


def squashed_policy(config: Temperature, env: Env, network: ActorAndCritics) -> SquashedPolicy:
    """Makes a squashed Gaussian policy of actions in the box of ``env``, with the actor of ``network``."""
    to_box, to_unit = off_policy_gradients.units(env.action_space)
    free = off_policy_gradients.free_dimensions(env.action_space)
    num_free = network.size if free is None else int(free.sum())

    def squash(out: Array, noise: Array) -> tuple[Array, Array]:
        return soft.squashed_sample(out, noise, free)

    def draw_action(actor: PyTree, obs: PyTree, noise: Array) -> tuple[Array, Array]:
        return squash(network.act(actor, obs), noise)

    def noise(key: Key, shape: tuple[int, ...]) -> Array:
        return draw.normal(key, (*shape, network.size))

    def sample(actor: PyTree, obs: PyTree, noise: Array) -> Array:
        return to_box(draw_action(actor, obs, noise)[0])

    def exploit(actor: PyTree, obs: PyTree) -> Array:
        return to_box(soft.squashed_mode(network.act(actor, obs)))

    acting = Acting(noise, None, exploit, sample=sample)
    return SquashedPolicy(squash, draw_action, to_unit, acting, config.target_entropy * num_free)


def make_learner(
    config: SACConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes SAC's `Learner`: a squashed Gaussian policy, with a temperature that is learned along with it.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `critics.ActorAndCritics` for a box, with two outputs of the actor for each dimension; None:
            `make_network`.
        **parts: The remaining arguments of `off_policy_gradients.make_agent`.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    policy = squashed_policy(config, env, network)
    family = off_policy_gradients.family_of(config)
    agent = off_policy_gradients.make_agent(
        config, policy.acting, target_networks=("critic",), tau=config.tau, family=family, **parts
    )

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        action, dropout = policy.executed(batch.action), batch.dropout.critic
        q = network.q_values(critic, batch.obs, action, dropout=dropout)  # [N, K], of distributions [N, K, J]
        return agent.critic_loss(q, batch)

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        action, log_prob = policy.draw(params["actor"], batch.obs, batch.noise)
        q = agent.values(network.q_values(critic, batch.obs, action, dropout=batch.dropout.actor))
        value = soft.soft_value(q, log_prob, temperature(params))
        each, metrics = with_temperature(config, params, -value, -log_prob, policy.target_entropy)
        return jnp.mean(batch.weight * each), metrics

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        dropout = off_policy_gradients.dropout(config, key)
        key_next, key_actor = jax.random.split(key)
        size = sample.weight.shape
        batch = agent.batch(state, sample, policy.acting.noise(key_actor, size), dropout)
        noise = policy.acting.noise(key_next, size)
        action, log_prob = policy.draw(state.params["actor"], batch.next_obs, noise)
        next_q = network.q_values(state.target_params["critic"], batch.next_obs, action, dropout=dropout.target)
        value, probabilities = agent.least(next_q)  # of K critics: [N], or atoms [N, J]
        next_value = soft.less_cost(value, log_prob, temperature(state.params))
        batch = agent.with_target(batch, next_value, probabilities)  # reward + discount * next_value
        return agent.step(state, sample, batch, critic_loss, actor_loss)  # the critics, then the actor

    return agent.learner(lambda key, obs: init_params(config, network, key, obs), update, kept=kept(config))


BRAX = {
    "num_envs": 128,
    "num_steps": 1,
    "capacity": 2**20,
    "warmup_steps": 8_192,
    "gamma": 0.997,
    "learning_rate": 6e-4,
    "actor_learning_rate": 6e-4,
    "normalize_obs": True,
    "hidden_sizes": (256, 256),
}
HOPPER = {**BRAX, "total_steps": 6_553_600, "num_updates": 64, "batch_size": 512}
WALKER2D = {**BRAX, "total_steps": 7_864_320, "num_updates": 32, "batch_size": 128}
"""Settings of brax' own training of these tasks (github.com/google/brax, notebooks/training.ipynb). Brax also
multiplies the rewards: by 30 for hopper and by 5 for walker2d (``reward_scale`` of the environment)."""


DROQ = {**MUJOCO, "num_updates": 20, "warmup_steps": 5_000, "critic_dropout": 0.01, "layer_norm": True}
"""DroQ for robots: twenty updates a step, by critics with dropout and layer normalisation (Hiraoka et al. 2021, arXiv
2110.02034, table 3)."""
SIMBA = {
    **MUJOCO,
    "torso": "simba",
    "normalize_obs": True,
    "hidden_sizes": (128,),
    "critic_hidden_sizes": (512, 512),
    "num_updates": 2,
    "warmup_steps": 5_000,
    "learning_rate": 1e-4,
    "actor_learning_rate": 1e-4,
    "weight_decay": 1e-2,
    "initial_temperature": 1e-2,
    "target_entropy": -0.5,
}
"""SimBa for robots: residual blocks and normalised observations, two updates a step (Lee et al. 2024, arXiv 2410.09754;
github.com/SonyResearch/simba, configs/agent/sac_simba.yaml; its discount factor by length of episode is left out)."""
FAST_GPU = {
    "total_steps": 204_800_000,
    "num_envs": 4_096,
    "num_steps": 1,
    "num_updates": 8,
    "batch_size": 8_192,
    "capacity": 1_024 * 4_096,
    "warmup_steps": 10 * 4_096,
    "gamma": 0.97,
    "tau": 0.414,
    "policy_delay": 4,
    "learning_rate": 3e-4,
    "actor_learning_rate": 3e-4,
    "weight_decay": 1e-3,
    "initial_temperature": 1e-3,
    "target_entropy": 0.0,
    "critic": "categorical",
    "num_atoms": 101,
    "v_min": -20.0,
    "v_max": 20.0,
    "normalize_obs": True,
    "activation": "silu",
    "layer_norm": True,
    "hidden_sizes": (512, 256, 128),
    "critic_hidden_sizes": (768, 384, 192),
}
"""FastSAC's settings for humanoids (Seo et al. 2025, arXiv 2512.01996; github.com/amazon-far/holosoma,
config_values/algo.py). There targets follow by 0.125 at each update, here by as much at every fourth: 1 - 0.875^4."""
FAST = {
    **FAST_GPU,
    "total_steps": 3_000_000,
    "num_envs": 256,
    "num_updates": 4,
    "batch_size": 1_024,
    "capacity": 4_096 * 256,
    "warmup_steps": 10 * 256,
    "n_step": 3,
    "hidden_sizes": (128, 128),
    "critic_hidden_sizes": (256, 128),
}
"""The same in sizes for two cores of a CPU, with returns over three steps."""


sac = Algorithm(
    "sac",
    SACConfig,
    off_policy_gradients.kind_problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    presets={
        "mujoco": MUJOCO,
        "simba": SIMBA,
        "droq": DROQ,
        "hopper": HOPPER,
        "walker2d": WALKER2D,
        "fast": FAST,
        "fast-gpu": FAST_GPU,
    },
)
