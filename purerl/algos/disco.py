"""DiscoRL: an agent whose update rule is a network that was itself learned.

Oh et al. 2025, "Discovering state-of-the-art reinforcement learning algorithms", Nature, doi
10.1038/s41586-025-09761-x.

The agent predicts a policy, vectors ``y`` of the observation and ``z`` of each action, the actions' values, and the
policy after each action. A rule reads replayed sequences and returns targets for the policy, ``y`` and ``z``, towards
which the agent moves. Values learn from Retrace.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import replay, trees
from purerl.algos.algorithm import Algorithm
from purerl.formulas import distributions, exploration, losses, schedules
from purerl.learners.parts import (
    all_action_rules,
    checks,
    from_replay,
    gradients,
    joint_actions,
    sequences,
    settings,
    target_networks,
)
from purerl.learners.parts.all_action_rules import Moments, Rule, RuleInputs, Steps, Targets
from purerl.networks.all_actions import AllActions, Outputs
from purerl.networks.given import given_or_own
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import (
    Array,
    Env,
    Key,
    Learner,
    Metrics,
    PyTree,
    Recorded,
    Sample,
    Situation,
    Trainer,
    Transition,
    Updated,
)

NUM_BINS = 601
"""Number of bins of the distribution of a value: whole numbers from -300 to 300."""


@cfg.config(
    num_envs=8,
    num_steps=16,
    unroll=29,
    period=16,
    num_updates=2,
    batch_size=64,
    gamma=0.997,
    learning_rate=3e-3,
    learning_rate_decay=0.0,
    hidden_sizes=(512, 512),
    activation="relu",
)
class DiscoConfig(sequences.Spans, from_replay.ReplayConfig, settings.Torso, settings.StepSize):
    """Settings of DiscoRL's agent."""

    head_size: cfg.Count = 128
    """Units of the LSTM over actions, and of the hidden layer of each output per action."""
    trace_lambda: cfg.Fraction = 0.95
    """Trace parameter (lambda) of Retrace's targets."""
    value_coef: cfg.NonNegative = 0.2
    """Weight of the action-value loss; the other losses have weight 1."""
    tau: cfg.Fraction = 0.1
    """Fraction by which the target network moves towards the online network at each update."""
    max_update: cfg.Positive = 1.0
    """Upper clip of the magnitude of each element of Adam's update, before the learning rate multiplies it."""


class DiscoState(NamedTuple):
    """The learner's state.

    ``rule`` is what the update rule keeps of this agent; ``advantages`` are running averages of advantages.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    rule: PyTree
    advantages: Moments


class Batch(NamedTuple):
    """Targets and inputs of the loss, for ``T`` steps of ``N`` sequences.

    ``obs`` and ``action`` are those of the steps, ``following`` the policy's logits ``[T, N, A]`` after them, ``value``
    the targets of action values ``[T, N]``. Only steps that are ``known`` count, and ``weight`` ``[N]`` multiplies a
    sequence's loss.
    """

    obs: PyTree
    action: Array
    targets: Targets
    following: Array
    value: Array
    terminated: Array
    known: Array
    weight: Array


def problems(config: DiscoConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each."""
    return (
        settings.with_head_problems(config)
        + settings.torso_problems(config, env)
        + from_replay.problems(config, env)
        + sequences.problems(config, config.num_steps)
        + checks.space_problems(env, (Discrete, MultiDiscrete))
        + joint_actions.problems(env)
    )


def make_network(config: DiscoConfig, env: Env, num_predictions: int) -> AllActions:
    """Makes a torso, whose last layer has no activation, and the outputs for all actions."""
    *torso, width = config.hidden_sizes
    sizes = joint_actions.joint_actions(env).num, num_predictions, NUM_BINS, width, config.head_size
    return AllActions(settings.make_torso(config, env, torso), *sizes)


def make_optimiser(config: DiscoConfig, adam: optax.GradientTransformation | None = None) -> gradients.Elementwise:
    """Makes Adam with clipped elements of its direction, which are then multiplied by the step size.

    Args:
        config: Settings of the algorithm.
        adam: A transformation to use in place of Adam; None: `optax.scale_by_adam`.
    """
    schedule = schedules.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    adam = adam or optax.scale_by_adam(eps=config.adam_epsilon)
    return gradients.chain(adam, optax.clip(config.max_update), gradients.descent(schedule))


def divergence(target: Array, logits: Array) -> Array:
    """Returns the KL divergence ``[...]`` of ``softmax(target)`` from ``softmax(logits)``, both logits ``[..., C]``."""
    log_target = jax.nn.log_softmax(target)
    return jnp.sum(jnp.exp(log_target) * (log_target - jax.nn.log_softmax(logits)), axis=-1)


def value_loss(logits: Array, value: Array) -> Array:
    """Returns the cross-entropy ``[]`` of a distribution ``[bins]`` with the two bins beside a value ``[]``."""
    return -jnp.sum(all_action_rules.two_hot(value, len(logits)) * jax.nn.log_softmax(logits))


def terms(config: DiscoConfig, out: Outputs, batch: Batch) -> dict[str, Array]:
    """Returns the terms ``[T, N]`` of an update's loss by name, from the network's outputs for the actions taken."""
    each = jax.vmap(jax.vmap(value_loss))(out.q, batch.value)
    return {
        "policy_loss": divergence(batch.targets.policy, out.policy),
        "y_loss": divergence(batch.targets.y, out.y),
        "z_loss": divergence(batch.targets.z, out.z),
        "following_loss": divergence(batch.following, out.following) * (1 - batch.terminated),
        "value_loss": config.value_coef * each,
    }


def make_learner(
    config: DiscoConfig,
    env: Env,
    *,
    rule: Rule | None = None,
    network: Any = None,
    optimiser: gradients.Elementwise | None = None,
) -> Learner:
    """Makes DiscoRL's agent as a `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        rule: A learned rule (`purerl.learned.disco`) or one of your own; None: one written by hand
            (`all_action_rules.clipped`).
        network: The agent's network; None: `make_network`.
        optimiser: An elementwise optimiser; None: `make_optimiser`.
    """
    rule = rule or all_action_rules.clipped()
    network = given_or_own(network, make_network(config, env, rule.num_predictions), env.observation_space)
    optimiser = optimiser or make_optimiser(config)
    actions = joint_actions.joint_actions(env)
    distribution = distributions.categorical(actions.num)

    def init(key: Key, obs: PyTree) -> DiscoState:
        params = network.init(key, obs)
        opt_state = gradients.init_optimiser(optimiser, params)
        return DiscoState(params, params, opt_state, rule.init(), all_action_rules.no_moments())

    def legal_only(logits: Array, obs: PyTree) -> Array:
        return exploration.masked(logits, actions.legal(obs))

    def policy(params: PyTree, obs: PyTree) -> Array:
        return legal_only(network.apply(params, obs, method=AllActions.logits), obs)

    def explore(params: PyTree, here: Situation, noise: Array):
        logits = policy(params, here.obs)
        return actions.action(distribution.sample(logits, noise)), here.carry, Recorded((), logits)

    def exploit(params: PyTree, here: Situation, key: Key):
        return actions.action(distribution.mode(policy(params, here.obs))), here.carry

    def sample(params: PyTree, here: Situation, key: Key):
        noise = distribution.noise(key, (trees.length(here.obs),))
        return actions.action(distribution.sample(policy(params, here.obs), noise)), here.carry

    def look(params: PyTree, rows: PyTree) -> Outputs:
        out: Outputs = network.apply(params, rows)
        return out._replace(policy=legal_only(out.policy, rows))

    def loss(params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        out: Outputs = network.apply(params, batch.obs, batch.action, method=AllActions.of_action)
        out = out._replace(policy=legal_only(out.policy, batch.obs))
        each = terms(config, out, batch)
        weight = jnp.where(batch.known, batch.weight[None], 0.0)
        total = jnp.sum(sum(each.values()) * weight) / losses.at_least_one(jnp.sum(batch.known))
        means = {name: losses.mean(x, batch.known) for name, x in each.items()}
        return total, means | {"entropy": jnp.mean(distribution.entropy(out.policy))}

    def update(state: DiscoState, sample: Sample, key: Key) -> Updated:
        rows, steps = read(sample.items, actions)
        online = look(state.params, rows)
        target = look(state.target_params, rows)
        values, advantages = all_action_rules.evaluate(
            steps, online, target, state.advantages, config.gamma, config.trace_lambda
        )
        targets, kept = rule.targets(RuleInputs(steps, values, online, target), state.rule)
        obs = jax.tree.map(lambda x: x[:-2], rows)
        means = {f"{name}_target": jnp.mean(x) for name, x in targets._asdict().items()}
        means["policy_target"] = jnp.mean(targets.policy, where=actions.legal(obs))
        targets = targets._replace(policy=legal_only(targets.policy, obs))
        means["target_divergence"] = losses.mean(divergence(target.policy[:-2], targets.policy), steps.known)
        batch = Batch(
            obs,
            steps.action,
            targets,
            all_action_rules.following(online.policy, steps),
            values.returns,
            steps.terminated,
            steps.known,
            sample.weight,
        )
        params, opt_state, more, metrics = gradients.gradient_step(
            loss, optimiser, state.params, state.opt_state, batch
        )
        target_params = target_networks.polyak(state.params, state.target_params, config.tau)
        size = jnp.abs(jnp.where(steps.known, values.td_error, 0.0))
        estimates = {"value": jnp.mean(values.value), "td_error": jnp.mean(size)}
        state = DiscoState(params, target_params, opt_state, kept, advantages)
        return Updated(state, {**more, **metrics, **means, **estimates}, jnp.mean(size, axis=0))

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=distribution.noise,
        behaviour=lambda state: state.params,
        explore=explore,
        policy=lambda state: state.params,
        exploit=exploit,
        update=update,
        sample=sample,
    )


def read(items: Transition, actions: joint_actions.JointActions) -> tuple[PyTree, Steps]:
    """Returns the observations and `Steps` that a rule reads of replayed sequences.

    Args:
        items: Sequences ``[T + 1, N]`` of a replay.
        actions: The joint actions of the environment.

    Returns:
        The observations ``[T + 2, N, ...]`` of the rows, and the `Steps` ``[T, N]``.
    """
    rows = jax.tree.map(lambda x, cut: jnp.concatenate([x, cut[None]]), items.obs, items.next_obs.obs)
    action, reward, terminated, truncated, behaviour = jax.tree.map(
        lambda x: x[:-1], (items.action, items.reward, items.terminated, items.truncated, items.extras.every)
    )
    cut = jnp.arange(len(reward))[:, None] == items.next_obs.step[None]
    last, known = terminated | truncated, ~truncated | cut
    known = known if isinstance(items.present, tuple) else known & items.present[:-1]
    return rows, Steps(actions.number(action), reward, terminated, last, cut, known, behaviour)


def make_trainer(config: DiscoConfig, env: Env, learner: Learner) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from sequences."""
    return from_replay.make_trainer(config, env, learner, view=replay.sequences(config.sample_rows, config.period))


CATCH = {
    "total_steps": 58_000,
    "num_envs": 2,
    "num_steps": 29,
    "unroll": 30,
    "period": 29,
    "num_updates": 1,
    "capacity": 29 * 1024,
    "warmup_steps": 58 * 32,
    "learning_rate": 1e-2,
}
"""The authors' experiment on Catch (github.com/google-deepmind/disco_rl at 9059a29, colabs/eval.ipynb): 1,000
iterations of 58 frames. Each iteration after the first 32 learns from 64 of the last 1,024 trajectories. In the
original a trajectory of 29 rows has 28 steps to learn from, because the last row only bootstraps; here it has 29."""


disco = Algorithm(
    "disco",
    DiscoConfig,
    problems,
    make_learner,
    make_trainer,
    sockets=("disco",),
    presets={"catch": CATCH},
)
