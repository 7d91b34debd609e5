"""Exact values of games of two actions that two players repeat for ever, and steps of learners in them.

A policy is five logits of its first action, to "cooperate": at the start, and after both cooperated (CC), after only
the owner did (CD), after only the other did (DC), and after neither did (DD). Each player reads them from its own side,
so that one's CD is the other's DC. Nothing is sampled: with the distribution ``p0`` of the first outcome, the chain
``P`` of outcomes and a discount ``gamma``, the discounted visits of the outcomes are ``p0' (I - gamma P)^-1`` (Foerster
et al. 2018, arXiv 1709.04326, section 4.2; Lu et al. 2022, arXiv 2205.01447, appendix).

The functions take one pair of players. Payoffs ``[2, 4]`` are the rewards of ``own`` and ``other`` in CC, CD, DC and DD
of ``own``'s side.
"""

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Array, Scalar

FROM_THE_OTHER_SIDE = np.array([0, 1, 3, 2, 4])
"""The indices of the other player's logits, in the order of one's own."""


def visits(own: Array, other: Array, gamma: Scalar) -> Array:
    """Computes the discounted visits ``[4]`` of CC, CD, DC and DD of ``own``'s side.

    They add up to ``1 / (1 - gamma)``. ``own`` and ``other`` ``[5]`` are the players' logits, each from its own side;
    ``gamma`` lies in [0, 1).
    """
    first, second = jax.nn.sigmoid(own), jax.nn.sigmoid(other)[FROM_THE_OTHER_SIDE]
    outcomes = jnp.stack([first * second, first * (1 - second), (1 - first) * second, (1 - first) * (1 - second)])
    beginning, chain = outcomes[:, 0], outcomes[:, 1:]  # chain[j, i] is the probability of j after i
    return solve(jnp.eye(4) - gamma * chain, beginning)


def solve(matrix: Array, vector: Array) -> Array:
    """Solves ``matrix @ x = vector`` for a ``matrix`` ``[N, N]`` whose columns (or rows) are diagonally dominant.

    It eliminates without pivoting, which is stable for these, and is written out over scalars: under vmap it is a few
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
    solution: list[Array] = []
    for i in reversed(range(size)):
        rest = rows[i][size]
        for j, x in enumerate(solution):
            rest = rest - rows[i][size - 1 - j] * x
        solution.append(rest / rows[i][i])
    return jnp.stack(solution[::-1])


def values(own: Array, other: Array, payoffs: Array, gamma: Scalar) -> Array:
    """Computes the discounted sums of rewards ``[2]`` of ``own`` and ``other``.

    Multiplied by ``1 - gamma`` they are means per round.
    """
    return jnp.sum(payoffs * visits(own, other, gamma)[None], axis=1)


def naive_step(learner: Array, other: Array, payoffs: Array, gamma: Scalar, learning_rate: Scalar) -> Array:
    """Computes a learner's logits ``[5]`` after a gradient step up its own value, with the other's logits constant.

    Args:
        learner: ``[5]``, the learner's logits.
        other: ``[5]``, the other's logits.
        payoffs: ``[2, 4]`` from the learner's side, its own first.
        gamma: The discount, in [0, 1).
        learning_rate: The step size.
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
    """Computes the logits ``[5]`` of a learner that looks ahead to the other's next naive step (LOLA).

    Foerster et al. 2018, arXiv 1709.04326, eq. 4. The learner ascends
    ``V + learning_rate * (dV/dother . dV_other/dother)``, the first-order value after the other's step of the same
    rate.

    Args:
        learner: ``[5]``, the learner's logits.
        other: ``[5]``, the other's logits.
        payoffs: ``[2, 4]`` from the learner's side, its own first.
        gamma: The discount, in [0, 1).
        learning_rate: The step size of both steps.
        both_factors: Whether the whole product is differentiated, as in the code of M-FOS (arXiv 2205.01447, whose
            opponent this is). If False, the first factor is a constant, as in LOLA's own paper.
    """

    def ahead(x: Array) -> Array:
        slope = jax.jacobian(lambda y: values(x, y, payoffs, gamma))(other)  # [2, 5]
        gain = slope[0] if both_factors else jax.lax.stop_gradient(slope[0])
        return values(x, other, payoffs, gamma)[0] + learning_rate * jnp.sum(gain * slope[1])

    return learner + learning_rate * jax.grad(ahead)(learner)
