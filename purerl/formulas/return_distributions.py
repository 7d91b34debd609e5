"""Distributions of the return: what the outputs of a critic say of them, and the loss that moves them to a target.

A distribution is ``J`` atoms, values of the return, with their probabilities; ``()`` for atoms that are equally likely.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.formulas import td_errors
from purerl.trees import like
from purerl.types import Array, Scalar


class Atoms(NamedTuple):
    """Distributions of returns: ``values [..., J]``, and their ``probabilities [..., J]``; ``()``: equal ones."""

    values: Array
    probabilities: Array | tuple[()] = ()

    @property
    def mean(self) -> Array:
        """The means ``[...]``."""
        if isinstance(self.probabilities, tuple):
            return jnp.mean(self.values, axis=-1)
        return jnp.sum(self.probabilities * self.values, axis=-1)


class Family(NamedTuple):
    """A family of distributions that ``J = size`` outputs of a critic describe.

    - ``atoms(out)``: the distributions of outputs ``[..., J]``.
    - ``loss(out, target)``: of one output ``[J]`` and one target, `Atoms` of any number of atoms, the loss and the size
      and sign of the error, two scalars. Gradients flow into ``out`` alone.
    """

    size: int
    atoms: Callable[[Array], Atoms]
    loss: Callable[[Array, Atoms], tuple[Array, Array]]

    def least(self, out: Array) -> Atoms:
        """Returns the distribution with the least mean of ``K`` critics' outputs ``[..., K, J]``: atoms ``[..., J]``.

        It is the pessimism of `td_errors.least` for distributions, as in FastTD3 (Seo et al. 2025, arXiv 2505.22642).
        """
        chosen = jnp.argmin(jax.lax.stop_gradient(self.atoms(out).mean), axis=-1)
        return self.atoms(jnp.sum(out * jax.nn.one_hot(chosen, out.shape[-2])[..., None], axis=-2))


def categorical(support: Array) -> Family:
    """Makes the family of distributions over fixed atoms, whose outputs are logits (D4PG's and C51's).

    The loss is the cross-entropy to the target, projected on the atoms, and the error their divergence (Bellemare et
    al. 2017, arXiv 1707.06887, Algorithm 1; Barth-Maron et al. 2018, arXiv 1804.08617, section 3).

    Args:
        support: The atoms ``[J]``, ascending.
    """

    def atoms(out: Array) -> Atoms:
        return Atoms(jnp.broadcast_to(like(support, out), out.shape), jax.nn.softmax(out))

    def loss(out: Array, target: Atoms) -> tuple[Array, Array]:
        return td_errors.cross_entropy(
            out, td_errors.project(target.values, jnp.asarray(target.probabilities), support)
        )

    return Family(len(support), atoms, loss)


def quantiles(size: int, kappa: Scalar) -> Family:
    """Makes the family of ``size`` equally likely atoms, whose outputs are the atoms themselves (QR-DQN's and TQC's).

    They are quantiles at the midpoints of equal parts of [0, 1]. The loss is the quantile Huber loss with threshold
    ``kappa``, and the error that of the mean (Dabney et al. 2018, arXiv 1710.10044, eq. 10).
    """
    midpoints = (jnp.arange(size) + 0.5) / size

    def loss(out: Array, target: Atoms) -> tuple[Array, Array]:
        return td_errors.quantile_huber(out, midpoints, target.values, kappa)

    return Family(size, Atoms, loss)


def truncated(out: Array, dropped: int) -> Array:
    """Computes the pooled quantiles of ``K`` critics without the largest: ``[..., K * (J - dropped)]``, ascending.

    Kuznetsov et al. 2020, arXiv 2005.04269, section 3: the ``K * J`` atoms are sorted together, and the
    ``dropped * K`` largest left out, whichever critics they are of.

    Args:
        out: Quantiles ``[..., K, J]``.
        dropped: Atoms to leave out for each critic, below ``J``.
    """
    num_critics, size = out.shape[-2:]
    pooled = jnp.sort(out.reshape(*out.shape[:-2], num_critics * size), axis=-1)
    return pooled[..., : num_critics * (size - dropped)]
