"""Games of two actions that two players repeat for ever, exactly, and how a learner moves in them.

A policy is five logits of its first action, to "cooperate": at the start, and after both cooperated (CC), after the
owner alone did (CD), after the other alone did (DC), and after neither did (DD). Each player reads them from its own
side, so that one's CD is the other's DC. Nothing is sampled: with the distribution ``p0`` of the first outcome, the
chain ``P`` of outcomes and a discount ``gamma``, the discounted visits of the outcomes are ``p0' (I - gamma P)^-1``
(Foerster et al. 2018, arXiv 1709.04326, section 4.2; Lu et al. 2022, arXiv 2205.01447, appendix).

The functions are of one pair of players. Payoffs ``[2, 4]`` are what ``own`` and ``other`` get in CC, CD, DC and DD of
``own``'s side.
"""

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Array, Scalar

FROM_THE_OTHER_SIDE = np.array([0, 1, 3, 2, 4])
"""Where the other player's logits stand, in the order of one's own."""


def visits(own: Array, other: Array, gamma: Scalar) -> Array:
    """Discounted visits ``[4]`` of CC, CD, DC and DD of ``own``'s side; they add up to ``1 / (1 - gamma)``.

    ``own, other`` ``[5]`` are the players' logits, each from its own side; ``gamma`` lies in [0, 1).
    """
    first, second = jax.nn.sigmoid(own), jax.nn.sigmoid(other)[FROM_THE_OTHER_SIDE]
    outcomes = jnp.stack([first * second, first * (1 - second), (1 - first) * second, (1 - first) * (1 - second)])
    beginning, chain = outcomes[:, 0], outcomes[:, 1:]  # chain[j, i] is the probability of j after i
    return solve(jnp.eye(4) - gamma * chain, beginning)


def solve(matrix: Array, vector: Array) -> Array:
    """``x`` with ``matrix @ x = vector``, for a ``matrix`` ``[N, N]`` whose columns (or rows) are diagonally dominant.

    Elimination without pivoting, which is stable for these, written out over scalars: under vmap it is a few
    elementwise operations, where `jnp.linalg.solve` would call LAPACK for each matrix.
    """
    size = len(vector)
    rows = [[*(matrix[i, j] for j in range(size)), vector[i]] for i in range(size)]
    for i in range(size):
        for below in range(i + 1, size):
            factor = rows[below][i] / rows[i][i]
            rows[below] = [
                low if j <= i else low - factor * high
                for j, (low, high) in enumerate(zip(rows[below], rows[i], strict=True))
            ]
    found: list[Array] = []
    for i in reversed(range(size)):
        rest = rows[i][size]
        for j, x in enumerate(found):
            rest = rest - rows[i][size - 1 - j] * x
        found.append(rest / rows[i][i])
    return jnp.stack(found[::-1])


def values(own: Array, other: Array, payoffs: Array, gamma: Scalar) -> Array:
    """The discounted sums ``[2]`` of what ``own`` and ``other`` get; times ``1 - gamma`` they are means per round."""
    return jnp.sum(payoffs * visits(own, other, gamma)[None], axis=1)


def naive_step(learner: Array, other: Array, payoffs: Array, gamma: Scalar, learning_rate: Scalar) -> Array:
    """The logits ``[5]`` of a learner after a step up the gradient of its own value, as if the other stood still.

    ``payoffs`` are from the learner's side, its own first.
    """
    return learner + learning_rate * jax.grad(lambda x: values(x, other, payoffs, gamma)[0])(learner)


def lola_step(
    learner: Array,
    other: Array,
    payoffs: Array,
    gamma: Scalar,
    learning_rate: Scalar,
    both_factors: bool = True,
) -> Array:
    """The logits ``[5]`` of a learner that looks ahead to the other's next naive step (LOLA, arXiv 1709.04326, eq. 4).

    It ascends ``V + learning_rate * (dV/dother . dV_other/dother)``, the first-order value after the other's step of
    the same rate. ``both_factors`` differentiates the whole product, as the code of M-FOS does (arXiv 2205.01447,
    whose opponent this is); without it the first factor is a constant, as in LOLA's own paper. ``payoffs`` are from
    the learner's side, its own first.
    """

    def ahead(x: Array) -> Array:
        slope = jax.jacobian(lambda y: values(x, y, payoffs, gamma))(other)  # [2, 5]
        gain = slope[0] if both_factors else jax.lax.stop_gradient(slope[0])
        return values(x, other, payoffs, gamma)[0] + learning_rate * jnp.sum(gain * slope[1])

    return learner + learning_rate * jax.grad(ahead)(learner)
