"""Choice of opponents in self-play: records of who beats whom, and how likely each past opponent is to be met.

``N`` opponents. Nothing here is random: what is drawn at random comes as ``noise``, uniform in [0, 1).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.formulas import exploration
from purerl.types import Array, Scalar

LATEST = -1
"""The number that stands for the learner's own newest version in `latest_or_past`."""


class Payoff(NamedTuple):
    """Decayed sums over the games of ``N`` players, float32 ``[N, N]``: what the row's player scored against the
    column's (a win 1, a draw 1/2), and how many games they played."""

    score: Array
    games: Array


def no_games(num_players: int) -> Payoff:
    """The record before any game."""
    return Payoff(jnp.zeros((num_players, num_players)), jnp.zeros((num_players, num_players)))


def points(reward: Array) -> Array:
    """What the last reward of a game says of it: 1 for a win, above 0; 0 for a loss, below 0; else 1/2. Elementwise."""
    return jnp.where(reward > 0, 1.0, jnp.where(reward < 0, 0.0, 0.5))


def record(payoff: Payoff, player: Array, opponent: Array, score: Scalar, decay: Scalar = 0.99) -> Payoff:
    """The record after a game in which ``player`` scored 1 for a win, 1/2 for a draw, 0 for a loss.

    Earlier games of these two, and of no others, are first multiplied by ``decay``; AlphaStar's is 0.99 (Vinyals et al.
    2019, Nature 575, supplementary pseudocode, ``Payoff``). ``player`` and ``opponent`` are int32 scalars; a game of a
    player against itself is not recorded.
    """
    return record_all(payoff, player, opponent, jnp.float32(score)[None], jnp.ones(1, bool), decay)


def record_all(
    payoff: Payoff, player: Array, opponent: Array, score: Array, counts: Array, decay: Scalar = 0.99
) -> Payoff:
    """`record` of one game after another, ``score`` ``[G]``, of which only those that ``counts`` (bool ``[G]``) do."""
    counts = counts & (player != opponent)
    later = jnp.sum(counts) - jnp.cumsum(counts)
    weight = jnp.where(counts, jnp.float32(decay) ** later, 0.0)
    scores = jnp.stack([jnp.vdot(weight, score), jnp.vdot(weight, 1 - score)])
    rows, columns = jnp.stack([player, opponent]), jnp.stack([opponent, player])
    forget = jnp.float32(decay) ** jnp.sum(counts)
    return Payoff(
        payoff.score.at[rows, columns].multiply(forget).at[rows, columns].add(scores),
        payoff.games.at[rows, columns].multiply(forget).at[rows, columns].add(jnp.sum(weight)),
    )


def win_rates(payoff: Payoff) -> Array:
    """The part of the decayed games that the row's player won, a draw counting half; 1/2 for a pair that has not met.
    Elementwise, as in ``[N, N]``."""
    return jnp.where(payoff.games > 0, payoff.score / jnp.where(payoff.games > 0, payoff.games, 1.0), 0.5)


def hard(win_rate: Array, power: Scalar = 2.0) -> Array:
    """``(1 - w)^p``: prefers opponents that are hard to beat. Elementwise.

    Prioritised fictitious self-play (Vinyals et al. 2019, Nature 575, methods) meets an opponent with a probability
    proportional to a function of ``w``, the chance to beat it. This and the three below are such functions; `shares`
    makes probabilities of them.
    """
    return (1 - win_rate) ** power


def variance(win_rate: Array) -> Array:
    """``w (1 - w)``: prefers opponents of about the same strength. Elementwise; see `hard`."""
    return win_rate * (1 - win_rate)


def linear(win_rate: Array) -> Array:
    """``1 - w``. Elementwise; see `hard`."""
    return 1 - win_rate


def capped(win_rate: Array) -> Array:
    """``min(1/2, 1 - w)``: all opponents that are as strong or stronger alike. Elementwise; see `hard`."""
    return jnp.minimum(0.5, 1 - win_rate)


def shares(weight: Array, present: Array | None = None) -> Array:
    """Probabilities proportional to ``weight`` ``[N]``, none of which is negative; uniform if all are zero.

    Only opponents that are ``present`` (bool ``[N]``; None: all) count; if none is, all probabilities are zero.
    """
    there = jnp.ones(weight.shape, bool) if present is None else present
    weight = jnp.where(there, weight, 0.0)
    weight = jnp.where(jnp.sum(weight) > 0, weight, there.astype(weight.dtype))
    total = jnp.sum(weight)
    return weight / jnp.where(total > 0, total, 1.0)


def by_quality(quality: Array, present: Array) -> Array:
    """OpenAI Five's probabilities of past versions, ``p_i`` proportional to ``exp(q_i)`` (Berner et al. 2019, arXiv
    1912.06680, appendix N). ``[N]``; those that are not ``present`` (bool) have none."""
    softmax = jax.nn.softmax(exploration.masked(quality, present))
    return jnp.where(present, softmax, 0.0)


def beaten(quality: Array, present: Array, opponent: Array, won: Array, rate: Scalar = 0.01) -> Array:
    """Qualities ``[N]`` after games against past versions: for each that the learner ``won``, ``q_i`` falls by
    ``rate / (N p_i)``, with ``N`` the number of versions that are ``present``; otherwise nothing changes.

    ``opponent`` (int32) and ``won``, a number of games or whether one was won, are ``[]`` or ``[G]``.
    The probability with which the opponent was chosen cancels, so that all are judged alike in expectation (Berner et
    al. 2019, arXiv 1912.06680, appendix N, where ``rate`` (eta) is 0.01).
    """
    chance = by_quality(quality, present)[opponent]
    fall = rate * won / (jnp.sum(present) * jnp.where(chance > 0, chance, 1.0))
    return quality.at[opponent].add(jnp.where(chance > 0, -fall, 0.0))


def enter(quality: Array, present: Array, slot: Array) -> tuple[Array, Array]:
    """Qualities and presence after a new version took ``slot``: it enters with the largest quality of those that were
    present, what it replaces among them; the first with 0 (Berner et al. 2019, arXiv 1912.06680, appendix N)."""
    largest = jnp.max(jnp.where(present, quality, -jnp.inf))
    return quality.at[slot].set(jnp.where(jnp.any(present), largest, 0.0)), present.at[slot].set(True)


def choose(probability: Array, noise: Array) -> Array:
    """The opponent at which the cumulative sum of ``probability`` ``[N]`` first exceeds ``noise``, a scalar. int32.

    One of probability 0 is never chosen; at least one must be positive.
    """
    cumulative = jnp.where(probability > 0, jnp.cumsum(probability), 0.0)
    total = jnp.max(cumulative)
    return jnp.argmax(cumulative > jnp.minimum(noise * total, jnp.nextafter(total, 0.0))).astype(jnp.int32)


def latest_or_past(probability: Array, noise: Array, latest: Scalar = 0.8) -> Array:
    """`LATEST` with probability ``latest``, otherwise `choose` among past versions by ``probability`` ``[N]``. int32.

    OpenAI Five plays 80 % of its games against itself (Berner et al. 2019, arXiv 1912.06680, appendix N). ``noise`` is
    ``[2]``: the first says whether, the second which. Without a past version, all of whose probabilities are then zero,
    it is `LATEST`.
    """
    past = (noise[0] >= latest) & jnp.any(probability > 0)
    return jnp.where(past, choose(probability, noise[1]), LATEST)
