"""The dual variables of policy improvement within bounds on divergences: their settings, and a step of them.

See `purerl.formulas.divergences`. The variables are positive: they are softplus of what is learned.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl.formulas import divergences
from purerl.learners.parts import gradients
from purerl.types import Array, Metrics, PyTree, Scalar

LEAST = -18.0
"""The lower bound of what is learned, at which softplus is 1.5e-8; V-MPO's paper (arXiv 1909.12238) has 1e-8."""


@cfg.config
class DualSettings:
    """Settings of the bounds and their dual variables. A Config that extends them has those of Adam, too."""

    heading: ClassVar[str] = "bounds"
    e_step_kl: cfg.Positive = 0.1
    """Bound of the divergence of the E-step's weights from a prior, in nats: how much good actions are preferred."""
    m_step_kl: cfg.Positive = 0.01
    """Bound of the policy's divergence from the older one, in nats; of a Gaussian policy, of its means alone."""
    m_step_kl_deviation: cfg.Positive = 1e-4
    """Bound of the divergence of a Gaussian policy's standard deviations from the older ones, in nats."""
    initial_temperature: cfg.Positive = 1.0
    """Initial temperature of the E-step, in units of the values whose differences it divides."""
    initial_multiplier: cfg.Positive = 1.0
    """Initial multiplier of each divergence of the M-step."""
    dual_learning_rate: cfg.Positive = 1e-2
    """Adam's learning rate for the temperature and the multipliers at the start."""


class Duals(NamedTuple):
    """The temperature, a scalar, and the multipliers ``[C]``."""

    temperature: Array
    multipliers: Array


class DualState(NamedTuple):
    """Dual variables before their softplus, and the state of their optimiser."""

    params: Duals
    opt_state: PyTree

    @property
    def values(self) -> Duals:
        """The dual variables, which are positive."""
        return jax.tree.map(jax.nn.softplus, self.params)


class DualLearner(NamedTuple):
    """How dual variables learn: ``names`` are those of `divergences.Divergences`, ``bounds`` are ``[C]``."""

    config: Any
    names: Sequence[str]
    bounds: Array
    optimiser: optax.GradientTransformation

    def init(self) -> DualState:
        """Returns the state in which a training begins."""
        inverse = lambda x: x + jnp.log(-jnp.expm1(-jnp.float32(x)))
        multipliers = jnp.full(len(self.names), inverse(self.config.initial_multiplier))
        params = Duals(inverse(self.config.initial_temperature), multipliers)
        return DualState(params, gradients.init_optimiser(self.optimiser, params))

    def step(
        self, state: DualState, values: Array, log_prior: Array, weight: Scalar, divergence: Array
    ) -> tuple[DualState, Metrics]:
        """Takes a step of the dual variables down `divergences.temperature_dual` and `divergences.multiplier_dual`.

        Args:
            state: The state.
            values: Values of the E-step ``[..., A]``, or ``[A]`` if there is one for all states.
            log_prior: Logarithms of their prior ``[..., A]``, which sums to 1.
            weight: Weights of the states ``[...]``.
            divergence: Means over the states of the weighted divergences of the M-step ``[C]``.

        Returns:
            The new state, and metrics: the dual variables before the step, and the divergences beside their bounds.
        """
        now = state.values

        def loss(params: Duals, _: None) -> tuple[Array, None]:
            duals = jax.tree.map(jax.nn.softplus, params)
            of_each = divergences.temperature_dual(duals.temperature, values, log_prior, self.config.e_step_kl)
            bounds = self.bounds * jnp.mean(weight)
            of_multipliers = divergences.multiplier_dual(duals.multipliers, divergence, bounds)
            return jnp.mean(weight * of_each) + jnp.sum(of_multipliers), None

        params, opt_state, _, _ = gradients.gradient_step(loss, self.optimiser, state.params, state.opt_state, None)
        params = jax.tree.map(lambda x: jnp.maximum(x, LEAST), params)
        chosen = divergences.e_step_weights(values, log_prior, now.temperature)
        metrics = {
            "temperature": now.temperature,
            "e_step_kl": jnp.mean(weight * divergences.weight_divergence(chosen, log_prior)),
        }
        for i, name in enumerate(self.names):
            metrics[name] = divergence[i]
            metrics[name.replace("kl", "multiplier")] = now.multipliers[i]
        return DualState(params, opt_state), metrics


def make(config: Any, names: Sequence[str]) -> DualLearner:
    """Makes what moves the dual variables: Adam with a step size of their own.

    Args:
        config: `DualSettings` and `settings.Adam`.
        names: The names of the bounds of the M-step.
    """
    own = dataclasses.replace(config, learning_rate=config.dual_learning_rate, weight_decay=0.0)
    bounds = jnp.stack([jnp.asarray(getattr(config, name), jnp.float32) for name in names])
    return DualLearner(config, names, bounds, gradients.make_optimiser(own))
