"""Agent57 (Badia et al. 2020, "Agent57: outperforming the Atari human benchmark", arXiv 2003.13350).

It extends Never Give Up by a separate network for each of the two rewards, a wider spread of discount factors, and a
bandit that chooses which policy an actor plays.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import trees
from purerl.algos import ngu, r2d2
from purerl.algos.algorithm import Algorithm
from purerl.algos.ngu import Controller, Experience
from purerl.formulas import bandits, novelty, td_errors
from purerl.learners.families import action_values
from purerl.learners.parts import sequences
from purerl.networks import recurrent
from purerl.networks.given import given_or_own
from purerl.networks.recurrent import Recurrent
from purerl.types import Array, Env, Learner, Metrics, PyTree


@cfg.config(gamma=0.9999)
class Agent57Config(ngu.NGUConfig):
    """Settings of Agent57."""

    gamma_middle: Annotated[float, cfg.Range(0, 1)] = 0.997
    """Discount factor at the end of the first quarter of the policies; below 1."""
    bandit_window: cfg.Count = 90
    """Number of an actor's latest episodes by whose returns its bandit chooses the next policy."""
    bandit_epsilon: cfg.Fraction = 0.5
    """Probability that the bandit chooses a random policy."""
    bandit_width: cfg.NonNegative = 1.0
    """Weight of the bandit's exploration bonus for rarely chosen policies. 0: no bonus."""


class Twins(NamedTuple):
    """A pair of values, one of the extrinsic and one of the intrinsic reward."""

    extrinsic: Any
    intrinsic: Any


def problems(config: Agent57Config, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each."""
    problems = ngu.problems(config, env)
    if 2 <= config.num_policies < 4:
        problems.append(f"num_policies = {config.num_policies}: must be at least 4")
    gamma, middle, end = config.gamma, config.gamma_middle, config.gamma_end
    if cfg.known(gamma, middle, end) and not gamma >= middle >= end:
        problems.append(f"gamma = {gamma!r}, gamma_middle = {middle!r}, gamma_end = {end!r}: must not increase")
    return problems


def make_network(config: Agent57Config, env: Env) -> Recurrent:
    """Makes two of Never Give Up's networks: the first for the extrinsic reward, the second for the intrinsic one."""
    return recurrent.twins(ngu.make_network(config, env))


def make_learner(
    config: Agent57Config,
    env: Env,
    *,
    network: Recurrent | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes Agent57's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `recurrent.Recurrent` of ``(obs, ngu.NetworkInputs)`` whose output is a pair of action
            values ``[B, A]``, extrinsic and intrinsic; None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    network = given_or_own(network, make_network(config, env), ngu.input_space(config, env))
    learning = action_values.q_learning(config, env, optimiser)
    replayed = sequences.ReplayedSequences(config, network)

    betas = novelty.betas(config.num_policies, config.intrinsic_scale)

    def read(out: PyTree, policy: Array) -> Array:
        return td_errors.joined(out[0], out[1], betas[policy][..., None], config.rescale_epsilon)

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        experience, weight, target = batch
        items, policy = experience.items, experience.policy
        q = replayed.unroll(params, items)
        chooser, after_cut = jax.lax.stop_gradient(q) if config.double else target
        after = items.next_obs.obs[1].policy
        best = jnp.argmax(read(chooser, policy), -1)
        best_after_cut = jnp.argmax(read(after_cut, after), -1)
        gamma = novelty.wide_gammas(config.num_policies, config.gamma, config.gamma_middle, config.gamma_end)[policy]
        rewards = Twins(items.reward[config.burn_in :], experience.intrinsic)
        discount = gamma * (1 - items.terminated[config.burn_in :])
        trace = config.trace_lambda * (best == experience.number)

        def of_one(reward: Array, q: Array, target_q: Array, target_after: Array) -> tuple[Array, Array, Array]:
            target, learned = replayed.retrace_targets(
                items,
                reward=reward,
                discount=discount,
                taken=ngu.at(config, target_q, experience.number),
                value=ngu.at(config, target_q, best),
                after_cut=ngu.at(config, target_after, best_after_cut),
                trace=trace,
            )
            taken = jnp.take_along_axis(q, experience.number[..., None], axis=-1)[..., 0]
            error = td_errors.rescale(target, config.rescale_epsilon) - taken
            return sequences.squared(config.priority_mix, error, learned, weight)

        losses = [of_one(reward, q[0][i], target[0][i], target[1][i]) for i, reward in enumerate(rewards)]
        total, priority, td_error = (sum(x[1:], x[0]) for x in zip(*losses, strict=True))
        most = td_errors.unrescale(jnp.max(q[0][0], axis=-1), config.rescale_epsilon)
        return total, (priority, {"value": jnp.mean(most), "td_error": td_error})

    def learn(values: action_values.ActionValueState, experience: Experience, weight: Array):
        target = replayed.unroll(values.target_params, experience.items)
        return learning.step(loss, values, (experience, weight, target))

    return ngu.make_family_learner(config, env, network, learning, read, learn, make_controller(config))


def make_controller(config: Agent57Config) -> Controller:
    """Makes a bandit for each actor, whose arms are the policies (section 3.2).

    The rewards of a bandit are the undiscounted extrinsic returns of episodes. The first ``N`` episodes of actor ``i``
    play each of the ``N`` policies once, beginning with number ``i``.
    """
    num = config.num_policies

    def choose(control: bandits.Pulls, noise: Array, actor: Array) -> Array:
        one = lambda *each: bandits.choose(each[0], num, config.bandit_width, config.bandit_epsilon, each[1], each[2])
        return jax.vmap(one)(control, noise, actor)

    def record(control: bandits.Pulls, policy: Array, total: Array, last: Array) -> bandits.Pulls:
        return trees.restart(control, jax.vmap(bandits.record)(control, policy, total), last)

    def init(num_envs: int) -> bandits.Pulls:
        start: bandits.Pulls = jax.vmap(lambda _: bandits.init(config.bandit_window))(jnp.arange(num_envs))
        return start

    return Controller(init, choose, record)


agent57 = Algorithm(
    "agent57",
    Agent57Config,
    problems,
    make_learner,
    r2d2.make_trainer,
)
