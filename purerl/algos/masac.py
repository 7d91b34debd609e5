"""Multi-agent soft actor-critic with discrete actions.

This is DI-engine's MASAC (github.com/opendilab/DI-engine, discrete SAC for teams): Christodoulou 2019 (arXiv
1910.07207) with critics that see the whole environment.

Actors share a network of their own observations. The critics of an agent see the state as well, and give a value for
each of its actions, in expectation over what the others do. All learn from the team's reward.
"""

from typing import Unpack

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import networks
from purerl.algos import sac, sac_discrete
from purerl.algos.algorithm import Algorithm
from purerl.envs import agents
from purerl.formulas import distributions, exploration, losses, soft, td_errors
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import Acting, Batch, CriticParts, OffPolicyGradientState
from purerl.learners.parts import checks, many_agents, settings
from purerl.networks import critics
from purerl.networks.critics import ActorAndCritics
from purerl.networks.given import given_or_own
from purerl.networks.torsos import OnPart
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Updated


@cfg.config
class MASACConfig(many_agents.Numbers, sac_discrete.SACDiscreteConfig):
    """Settings of MASAC."""


def view(config: MASACConfig, env: Env) -> Env:
    """Returns ``env`` with all agents as one (`agents.joint`)."""
    return agents.joint(env)


def problems(config: MASACConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete.
    """
    problems = checks.space_problems(env, (Discrete,))
    joint = None if problems or env is None else view(config, env)
    return problems + off_policy_gradients.problems(config, joint, (MultiDiscrete,))


def make_network(config: MASACConfig, env: Env) -> ActorAndCritics:
    """Makes networks of joint observations: logits ``[..., M, A]``, and critics ``[..., M, K, A]``."""
    team = many_agents.team(env)
    own, own_inputs = many_agents.inputs(env, ids=config.agent_ids)
    all_inputs = many_agents.central(team, own_inputs)
    of_actor = settings.make_torso(config, env._replace(observation_space=own))
    seen = env._replace(observation_space={"own": own, "state": team.state_space})
    of_critic = settings.make_torso(config, seen, config.critic_sizes)
    return ActorAndCritics(
        networks.Head(OnPart(own_inputs, of_actor), team.num_actions, scale=0.01),
        critics.several(networks.Head, config.num_critics, -2)(OnPart(all_inputs, of_critic), team.num_actions, 1.0),
    )


def make_learner(
    config: MASACConfig, env: Env, *, network: ActorAndCritics | None = None, **parts: Unpack[CriticParts]
) -> Learner:
    """Makes MASAC's `Learner` of a joint environment: a categorical policy of each of ``M`` agents.

    The parts are those of `sac_discrete.make_learner`.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    team = many_agents.team(env)
    categorical = distributions.categorical(team.num_actions)

    def logits(actor: PyTree, obs: PyTree) -> Array:
        return exploration.masked(network.act(actor, obs), team.legal(obs))

    acting = Acting(
        noise=lambda key, shape: categorical.noise(key, (*shape, team.num_agents)),
        explore=None,
        exploit=lambda actor, obs: categorical.mode(logits(actor, obs)),
        sample=lambda actor, obs, noise: categorical.sample(logits(actor, obs), noise),
    )
    agent = off_policy_gradients.make_agent(config, acting, target_networks=("critic",), tau=config.tau, **parts)

    def soft_values(actor: PyTree, critic: PyTree, obs: PyTree, temperature: Array) -> tuple[Array, Array]:
        """Computes soft values of each agent's policy, by the lowest of the critics, and its entropies, ``[N, M]``.

        Entropy has no weight where an agent does not act.
        """
        if team.acting:
            temperature = jnp.where(team.acting(obs), temperature, 0.0)[..., None]
        log_probs = jax.nn.log_softmax(logits(actor, obs))
        q = td_errors.least(jnp.moveaxis(network.q_values(critic, obs), -2, -1))
        entropy = soft.expected_soft_value(jnp.zeros_like(q), log_probs, 1.0)
        return soft.expected_soft_value(q, log_probs, temperature), entropy

    def critic_loss(critic: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Metrics]]:
        chosen = jax.nn.one_hot(batch.action, team.num_actions)
        q = jnp.sum(network.q_values(critic, batch.obs) * chosen[..., None, :], axis=-1)
        return agent.critic_loss(q, batch, team.present(batch.obs) if team.present else ())

    def actor_loss(params: dict[str, PyTree], critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        obs, legal = batch.obs, team.legal(batch.obs)
        value, entropy = soft_values(params["actor"], critic, obs, sac.temperature(params))
        count = team.num_actions if legal is None else jnp.sum(legal, axis=-1)
        target = config.target_entropy * jnp.log(jnp.float32(count))
        each, metrics = sac.with_temperature(config, params, -value, entropy, target)
        acts = team.acting(obs) if team.acting else ()
        present = team.present(obs) if team.present else ()
        each = jax.vmap(losses.mean)(each, losses.both(acts, present))
        return jnp.mean(batch.weight * each), metrics

    def update(state: OffPolicyGradientState, sample: Sample, key: Key) -> Updated:
        batch = agent.batch(state, sample, ())
        temperature = sac.temperature(state.params)
        next_value, _ = soft_values(state.params["actor"], state.target_params["critic"], batch.next_obs, temperature)
        if team.present:
            next_value = jnp.where(team.present(batch.next_obs), next_value, 0.0)
        batch = agent.with_target(batch, next_value)
        return agent.step(state, sample, batch, critic_loss, actor_loss)

    return agent.learner(lambda key, obs: sac.init_params(config, network, key, obs), update, kept=sac.kept(config))


masac = Algorithm(
    "masac",
    MASACConfig,
    problems,
    make_learner,
    off_policy_gradients.make_trainer,
    datasets=("demos",),
    sockets=("td-loss", "optimiser"),
    view=view,
)
