"""Never Give Up (Badia et al. 2020, arXiv 2002.06038): recurrent action values of a family of policies.

Each policy adds a bonus for novelty to its rewards, with a weight of its own. So exploring never ends, while one of the
policies has no bonus. Sequences are replayed as in R2D2, and targets are Retrace's, rescaled (appendix E).
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl.algos import r2d2
from purerl.algos.algorithm import Algorithm
from purerl.formulas import novelty, td_errors
from purerl.learners.families import action_values, family_novelty, policy_families
from purerl.learners.families.policy_families import Experience, problems
from purerl.learners.parts import sequences, settings
from purerl.networks.given import given_or_own
from purerl.networks.recurrent import Recurrent
from purerl.types import Array, Env, Learner, Metrics, PyTree

RETRACE = cfg.Needs("targets over n steps, which these are not: see trace_lambda", lambda config: False)


@cfg.config
class NGUConfig(family_novelty.NoveltySettings, r2d2.R2D2Config):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    gamma: Annotated[float, cfg.Range(0, 1)] = 0.997
    """Discount factor per step of the policy without an intrinsic reward; below 1."""
    gamma_end: Annotated[float, cfg.Range(0, 1)] = 0.99
    """Discount factor per step of the policy with the largest intrinsic reward; below 1."""
    trace_lambda: cfg.Fraction = 0.95
    """Trace parameter (lambda) of Retrace's targets."""
    n_step: Annotated[cfg.Count, RETRACE] = 5
    """Not used: Retrace's targets have no fixed number of steps."""
    memory: Literal["none", "gru", "lstm", "lru", "gtrxl"] = "lstm"  # type: ignore[assignment]  # wider than R2D2's
    """Recurrent layer between the torso and the head."""


def make_network(config: NGUConfig, env: Env) -> Recurrent:
    """Makes a torso joined by `policy_families.NetworkInputs`, a recurrent cell, and streams to the action values."""
    return policy_families.make_network(config, env)


def make_learner(
    config: NGUConfig,
    env: Env,
    *,
    network: Recurrent | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes Never Give Up's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `recurrent.Recurrent` of ``(obs, policy_families.NetworkInputs)`` whose output is ``[B, A]``; None:
            `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    network = given_or_own(network, make_network(config, env), policy_families.input_space(config, env))
    optimiser = optimiser or settings.make_optimiser(config)

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        experience, weight, target_q = batch
        items = experience.items
        q = sequences.unroll(config, network, params, items)
        chooser = jax.lax.stop_gradient(q) if config.double else target_q
        best, best_after_cut = (jnp.argmax(x, axis=-1) for x in chooser)
        value, after_cut = at(config, target_q[0], best), at(config, target_q[1], best_after_cut)
        beta = novelty.betas(config.num_policies, config.intrinsic_scale)[experience.policy]
        gamma = novelty.gammas(config.num_policies, config.gamma, config.gamma_end)[experience.policy]
        target, learned = sequences.retrace_targets(
            config,
            items,
            reward=sequences.late(config, items.reward) + beta * experience.intrinsic,
            discount=gamma * (1 - sequences.late(config, items.terminated)),
            taken=at(config, target_q[0], experience.number),
            value=value,
            after_cut=after_cut,
            trace=config.trace_lambda * (best == experience.number),
        )
        taken = jnp.take_along_axis(q[0], experience.number[..., None], axis=-1)[..., 0]
        error = td_errors.rescale(target, config.rescale_epsilon) - taken
        total, priority, td_error = sequences.squared(config, error, learned, weight)
        most = td_errors.unrescale(jnp.max(q[0], axis=-1), config.rescale_epsilon)
        return total, (priority, {"value": jnp.mean(most), "td_error": td_error})

    def learn(values: action_values.ActionValueState, experience: Experience, weight: Array):
        target_q = sequences.unroll(config, network, values.target_params, experience.items)
        return action_values.q_learning_step(config, env, optimiser, loss, values, (experience, weight, target_q))

    controller = policy_families.fixed(config.num_policies)
    return policy_families.make_learner(config, env, network, optimiser, lambda q, policy: q, learn, controller)


def at(config: NGUConfig, q: Array, number: Array) -> Array:
    """Returns the values ``[...]`` of actions ``[...]``, undoing the rescaling of the action values ``[..., A]``."""
    return td_errors.unrescale(jnp.take_along_axis(q, number[..., None], axis=-1)[..., 0], config.rescale_epsilon)


ngu = Algorithm(
    "ngu",
    NGUConfig,
    problems,
    make_learner,
    r2d2.make_trainer,
)
