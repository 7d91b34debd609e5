"""Learning action values from replayed sequences: unrolling a recurrent network, and targets along a sequence.

``L`` steps, ``N`` sequences. The last step of a sequence only bootstraps, unless a time limit cuts the sequence there
and the ring holds what followed (`replay.views.Cut`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl.formulas import returns
from purerl.networks.recurrent import Recurrent
from purerl.types import Array, PyTree, Scalar, Transition


@cfg.config
class Spans:
    """Settings of which steps make a sequence."""

    unroll: cfg.Count = 16
    """Length of a sequence in steps. All steps but the last are learned from; the last one bootstraps."""
    period: cfg.Count = 8
    """Steps between the starts of consecutive sequences. Must divide num_steps and be less than unroll, so that all
    steps are learned from."""

    @property
    def sample_rows(self) -> int:
        """Number of rows that a sequence spans."""
        return self.unroll

    @property
    def sample_stride(self) -> int:
        """Number of rows between the places at which samples may start."""
        return self.period


@cfg.config
class Sequences(Spans):
    """Settings of a sequence for a network with a memory."""

    burn_in: cfg.NonNegativeCount = 8
    """Number of first steps of a sequence that only compute the recurrent state (carry) and are not learned from."""
    unroll: cfg.Count = 16
    """Number of steps of a sequence after the burn-in. The last one only bootstraps, unless it is truncated."""
    stored_carry: bool = True
    """Start a replayed sequence from the actor's stored recurrent state (carry) instead of zeros."""
    store_next_obs: bool = False
    """Store the next observation of every step, for twice the memory, instead of that of one truncated step in 32. A
    sequence learns from its last truncated step alone, either way."""

    @property
    def sample_rows(self) -> int:
        """Number of rows that a sequence spans."""
        return self.burn_in + self.unroll


def problems(config: Spans, num_steps: int) -> list[str]:
    """Returns the reasons why the sequences of ``config`` do not cover every step of an iteration, a line each."""
    problems = []
    if num_steps % config.period:
        problems.append(f"period = {config.period}: must divide num_steps = {num_steps}")
    if config.unroll <= config.period:
        problems.append(
            f"unroll = {config.unroll}: must be above period = {config.period}; the last step is not learned from"
        )
    return problems


class ReplayedSequences(NamedTuple):
    """What a recurrent network and its targets are on replayed sequences, of which the burn-in is not learned from."""

    config: Sequences
    network: Recurrent

    def unroll(self, params: PyTree, items: Transition) -> tuple[PyTree, PyTree]:
        """Applies the network to replayed sequences. No gradient flows through the burn-in.

        Args:
            params: Parameters of the network.
            items: Sequences of a replay.

        Returns:
            The outputs ``[L, N, ...]`` for the steps after the burn-in, and ``[N, ...]`` for what followed the cut.
        """
        carry = items.extras if self.config.stored_carry else jax.tree.map(jnp.zeros_like, items.extras)
        steps = items.obs, items.terminated | items.truncated
        obs, last = jax.tree.map(lambda x: x[: self.config.burn_in], steps)
        if self.config.burn_in:
            carry = jax.lax.stop_gradient(self.network.unroll(params, obs, carry, last)[2])
        obs, last = jax.tree.map(lambda x: x[self.config.burn_in :], steps)
        out, carries, _ = self.network.unroll(params, obs, carry, last)
        index = jnp.maximum(items.next_obs.step - self.config.burn_in, 0)
        carry = jax.tree.map(lambda x: x[index, jnp.arange(len(index))], carries)
        return out, self.network.step(params, items.next_obs.obs, carry)[0]

    def targets(
        self, items: Transition, value: Array, after_cut: Array, gamma: Scalar, n_step: int
    ) -> tuple[Array, Array]:
        """Computes the targets over ``n_step`` rewards of the steps after the burn-in.

        Args:
            items: Sequences of a replay.
            value: Values ``[L, N]`` of the observations of these steps.
            after_cut: Values ``[N]`` of what followed the sequences' cut.
            gamma: Discount factor per step.
            n_step: Number of rewards.

        Returns:
            The targets ``[L, N]``, and which steps have one, bool ``[L, N]``.
        """
        reward, terminated, truncated = (
            x[self.config.burn_in :] for x in (items.reward, items.terminated, items.truncated)
        )
        cut = self._cut(items)
        target = jax.vmap(returns.stored_n_step, in_axes=(1, 1, 1, 1, 1, None), out_axes=1)(
            reward,
            value,
            gamma * (1 - terminated),
            truncated,
            jnp.where(cut, reward + gamma * after_cut[None], value),
            n_step,
        )
        return target, self._learned(items, truncated, cut)

    def retrace_targets(
        self,
        items: Transition,
        reward: Array,
        discount: Array,
        taken: Array,
        value: Array,
        after_cut: Array,
        trace: Array,
    ) -> tuple[Array, Array]:
        """Computes targets that correct along the traces (`returns.stored_retrace`).

        Args:
            items: Sequences of a replay.
            reward: Rewards ``[L, N]`` of the steps after the burn-in, as are all ``[L, N]``.
            discount: Discounts ``[L, N]``, 0 where the process ended.
            taken: Values ``[L, N]`` of the actions that were taken.
            value: Values ``[L, N]`` of the observations.
            after_cut: Values ``[N]`` of what followed the sequences' cut.
            trace: Traces ``[L, N]``.

        Returns:
            The targets ``[L, N]``, and which steps have one, bool ``[L, N]``.
        """
        truncated = items.truncated[self.config.burn_in :]
        cut = self._cut(items)
        stopped = jnp.where(cut, reward + discount * after_cut[None], taken)
        columns = trace, reward, taken, value, discount, truncated, stopped
        target = jax.vmap(returns.stored_retrace, in_axes=1, out_axes=1)(*columns)
        return target, self._learned(items, truncated, cut)

    def _cut(self, items: Transition) -> Array:
        """Tells which steps after the burn-in are the cut, bool ``[L, N]``."""
        steps = len(items.reward) - self.config.burn_in
        return jnp.arange(steps)[:, None] == items.next_obs.step[None] - self.config.burn_in

    def _learned(self, items: Transition, truncated: Array, cut: Array) -> Array:
        """Tells which steps after the burn-in have a target, bool ``[L, N]``: where an agent was in the game."""
        known = ~truncated.at[-1].set(True) | cut
        return known if isinstance(items.present, tuple) else known & items.present[self.config.burn_in :]


def squared(priority_mix: Scalar, error: Array, learned: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Computes the squared loss of TD errors, and the priorities of sequences.

    A sequence's priority mixes its largest error with its mean one by ``priority_mix`` (Kapturowski et al. 2019,
    section 2.3).

    Args:
        priority_mix: Weight of the largest error; the mean one has the rest.
        error: TD errors ``[L, N]``.
        learned: Which steps count, bool ``[L, N]``.
        weight: Weights of the sequences ``[N]``.

    Returns:
        The loss, the priorities ``[N]``, and the mean size of an error.
    """
    error = jnp.where(learned, error, 0.0)
    size = jnp.abs(error)
    steps = jnp.maximum(jnp.sum(learned, axis=0), 1)
    mean = jnp.sum(size, axis=0) / steps
    priority = priority_mix * jnp.max(size, axis=0) + (1 - priority_mix) * mean
    return jnp.mean(weight * 0.5 * jnp.mean(jnp.square(error), axis=0)), priority, jnp.mean(weight * mean)
