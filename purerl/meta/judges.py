"""Judges of agents, for searches by gradients: the loss on a rollout after training, with a slope through training.

A judge also has the optimiser that agents train with, through which gradients can flow.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import networks
from purerl.algos import disco
from purerl.envs.fleet import fleet
from purerl.formulas import distributions, exploration, returns, schedules
from purerl.learned import disco as disco_rules
from purerl.learners.families import actor_critic
from purerl.learners.parts import all_action_rules, gradients, joint_actions, settings
from purerl.learners.parts.all_action_rules import Moments
from purerl.learners.parts.widening import core
from purerl.loops.rollout import rollout
from purerl.networks.all_actions import AllActions
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer, TrainState, Transition

GAE_LAMBDA = 0.95
"""The trace parameter of the advantages by which an agent's own critic judges it."""
EPSILON_ROOT = 1e-10
"""Added under Adam's square root, whose infinite slope at 0 would make the gradient through it nan."""


class Judge(NamedTuple):
    """How agents of one kind are judged.

    Attributes:
        optimiser: The optimiser that agents train with; gradients flow through it.
        init: ``init(key, obs [B, ...])`` makes the state that the judge keeps of an agent. Consumes ``key``.
        loss: ``loss(trainer, agent, metrics [iterations], judging, key) -> (loss [], judging)`` lets an agent act for
            ``num_steps`` steps after the iterations of these metrics; gradients flow through its parameters and the
            metrics. Consumes ``key``.
        num_steps: The steps of the rollout on which an agent is judged.
    """

    optimiser: optax.GradientTransformation
    init: Callable[[Key, PyTree], PyTree]
    loss: Callable[[Trainer, TrainState, Metrics, PyTree, Key], tuple[Array, PyTree]]
    num_steps: int


def by_own_critic(config: Any, env: Env) -> Judge:
    """Makes a judge of policy gradients: ``-mean(advantage * log pi)``, with advantages of the agent's own critic.

    Source: Xu et al. 2018, arXiv 1805.09801.
    """
    schedule = schedules.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    adam = optax.scale_by_adam(eps=1e-5, eps_root=EPSILON_ROOT)
    optimiser = gradients.chain(gradients.clip_by_norm(config.max_grad_norm), adam, gradients.descent(schedule))

    def loss(trainer: Trainer, agent: TrainState, metrics: Metrics, judging: PyTree, key: Key) -> tuple[Array, PyTree]:
        judged, learned, rows = actor_critic.make_agent(config, env), core(agent.learner), fleet(env, config.num_envs)
        latest = actor_critic.PolicyGradientPolicy(learned.params, learned.obs_moments)
        _, trajectory, _ = rollout(key, rows, trainer.learner, latest, agent.actors, config.num_steps)
        _, trajectory = judged.scale(learned, trajectory)
        steps = judged.prepare(learned, trajectory)
        policy, value, next_value = judged.evaluate(learned.params, steps)
        log_prob = judged.distribution.log_prob(policy, steps.action)
        advantage, _ = judged.advantages_and_targets(returns.by_gae(GAE_LAMBDA), steps, log_prob, value, next_value)
        return -jnp.mean(jax.lax.stop_gradient(advantage) * log_prob), judging

    return Judge(optimiser, lambda key, obs: (), loss, config.num_steps)


VALUE_SIZES, VALUE_RATE, VALUE_GAMMA, VALUE_LAMBDA = (256, 256), 1e-3, 0.99, 0.96
"""The layers of the value network that judges agents of DiscoRL, Adam's step size, discount and trace parameter."""
ENTROPY, PREDICTIONS_ENTROPY, CENTRE, NEARNESS = 1e-2, 1e-3, 1e-3, 1e-2
"""Weights beside the policy gradient of the policy's entropy, of the entropy of ``y`` and ``z``, of the squared means
of targets, and of their divergence from the target network's policy."""


class Judging(NamedTuple):
    """A judge's state of an agent: a value network, its optimiser's state, and the moments of advantages."""

    params: PyTree
    opt_state: PyTree
    advantages: Moments


class ValueNetwork:
    """The value network by which a judge estimates advantages, and which learns from the rollouts of agents."""

    def __init__(self, config: Any, env: Env):
        self._network = networks.Head(settings.make_torso(config, env, VALUE_SIZES), 1, scale=0.01)
        self._optimiser = gradients.chain(optax.scale_by_adam(), optax.clip(1.0), optax.scale(-VALUE_RATE))

    def init(self, key: Key, obs: PyTree) -> Judging:
        """Makes the state of a judge for an agent with observations ``[B, ...]``. Consumes ``key``."""
        params = self._network.init(key, obs)
        return Judging(params, gradients.init_optimiser(self._optimiser, params), all_action_rules.no_moments())

    def value(self, params: PyTree, obs: PyTree) -> Array:
        """Returns the values of observations ``[..., obs]``, ``[...]``."""
        made: Any = self._network.apply(params, obs)
        return made[..., 0]

    def advantages(self, params: PyTree, trajectory: Transition) -> tuple[Array, Array]:
        """Returns the advantages of the steps, and targets of their values, both ``[T, B]``."""
        before, after = self.value(params, trajectory.obs), self.value(params, trajectory.next_obs)
        discount = VALUE_GAMMA * (1 - trajectory.terminated)
        gae = jax.vmap(returns.gae, in_axes=(1, 1, 1, 1, 1, None), out_axes=1)
        advantage = gae(trajectory.reward, before, after, discount, trajectory.last, VALUE_LAMBDA)
        return advantage, advantage + before

    def learn(self, judging: Judging, obs: PyTree, target: Array) -> Judging:
        """Takes one step towards the targets ``[T, B]`` of values of observations ``[T, B, ...]``."""

        def loss(params: PyTree, batch: tuple[PyTree, Array]) -> tuple[Array, tuple[()]]:
            obs, target = batch
            return 0.5 * jnp.mean(jnp.square(self.value(params, obs) - target)), ()

        step = gradients.gradient_step(loss, self._optimiser, judging.params, judging.opt_state, (obs, target))
        params, opt_state, *_ = step
        return judging._replace(params=params, opt_state=opt_state)


def by_value_network(config: Any, env: Env) -> Judge:
    """Makes a judge of agents of DiscoRL, as its authors judged them.

    Source: github.com/google-deepmind/disco_rl at 9059a29, colabs/meta_train.ipynb.

    The loss on a rollout of twice ``num_steps`` is that of a policy gradient with advantages of a value network of the
    judge's own, in standard deviations. Entropies of the policy and of the predictions are subtracted; terms that keep
    targets centred, and near the policy of the target network, are added. The value network learns from the rollouts, a
    step for each iteration.
    """
    adam = optax.scale_by_adam(eps=config.adam_epsilon, eps_root=EPSILON_ROOT)
    critic = ValueNetwork(config, env)
    network = disco.make_network(config, env, disco_rules.PREDICTIONS)
    actions = joint_actions.joint_actions(env)
    distribution, num_steps = distributions.categorical(actions.num), 2 * config.num_steps

    def loss(trainer: Trainer, agent: TrainState, metrics: Metrics, judging: PyTree, key: Key) -> tuple[Array, PyTree]:
        behaviour, rows = trainer.learner.behaviour(agent.learner), fleet(env, config.num_envs)
        _, trajectory, _ = rollout(key, rows, trainer.learner, behaviour, agent.actors, num_steps)
        numbers = actions.number(trajectory.action)
        out: Any = network.apply(agent.learner.params, trajectory.obs, numbers, method=AllActions.of_action)
        advantage, target = critic.advantages(judging.params, trajectory)
        moments = all_action_rules.follow(judging.advantages, advantage, jnp.ones(advantage.shape, bool))
        middle, deviation = all_action_rules.scale(moments)
        scaled = jax.lax.stop_gradient((advantage - middle) / deviation)
        policy = exploration.masked(out.policy, actions.legal(trajectory.obs))
        entropy = lambda logits: jnp.mean(distribution.entropy(logits))
        total = -jnp.mean(scaled * distribution.log_prob(policy, numbers)) - ENTROPY * entropy(policy)
        total -= PREDICTIONS_ENTROPY * (entropy(out.y) + entropy(out.z))
        centres = [jnp.mean(jnp.square(metrics[f"{name}_target"])) for name in ("policy", "y", "z")]
        total += CENTRE * sum(centres) + NEARNESS * jnp.mean(metrics["target_divergence"])
        judging = judging._replace(advantages=moments)
        for _ in range(len(metrics["loss"])):
            judging = critic.learn(judging, trajectory.obs, jax.lax.stop_gradient(target))
        return total, judging

    return Judge(disco.make_optimiser(config, adam), critic.init, loss, num_steps)
