"""Choice of opponents in self-play: records of wins, and the probability with which each past opponent is chosen.

There are ``N`` opponents. Nothing here is random: random numbers are passed in as ``noise``, uniform in [0, 1).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.formulas import exploration
from purerl.types import Array, Scalar

LATEST = -1
"""The number that stands for the learner's own newest version in `latest_or_past`."""


class Payoff(NamedTuple):
    """Decayed sums over the games of ``N`` players, float32 ``[N, N]``.

    ``score`` is what the row player scored against the column player (1 for a win, 1/2 for a draw), ``games`` how many
    games they played.
    """

    score: Array
    games: Array


def no_games(num_players: int) -> Payoff:
    """Makes the record before any game."""
    return Payoff(jnp.zeros((num_players, num_players)), jnp.zeros((num_players, num_players)))


def points(reward: Array) -> Array:
    """Scores the last reward of a game: 1 for a win (above 0), 0 for a loss (below 0), 1/2 otherwise. Elementwise."""
    return jnp.where(reward > 0, 1.0, jnp.where(reward < 0, 0.0, 0.5))


def record(payoff: Payoff, player: Array, opponent: Array, score: Scalar, decay: Scalar = 0.99) -> Payoff:
    """Records a game in which ``player`` scored 1 for a win, 1/2 for a draw, 0 for a loss.

    Earlier games of these two, and of no others, are first multiplied by ``decay``; AlphaStar's is 0.99 (Vinyals et al.
    2019, Nature 575, supplementary pseudocode, ``Payoff``). A game of a player against itself is not recorded.

    Args:
        payoff: The record before the game.
        player: An int32 scalar.
        opponent: An int32 scalar.
        score: What ``player`` scored, a scalar.
        decay: The factor on earlier games.
    """
    return record_all(payoff, player, opponent, jnp.float32(score)[None], jnp.ones(1, bool), decay)


def record_all(
    payoff: Payoff, player: Array, opponent: Array, score: Array, counts: Array, decay: Scalar = 0.99
) -> Payoff:
    """Records several games of two players, one after another (see `record`).

    Args:
        payoff: The record before the games.
        player: An int32 scalar.
        opponent: An int32 scalar.
        score: ``[G]``, what ``player`` scored in each game.
        counts: ``[G]`` bool; games where it is False are left out.
        decay: The factor on earlier games, for each game.
    """
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
    """Computes the fraction of the decayed games that the row player won, in which a draw counts half.

    Elementwise, as in ``[N, N]``. It is 1/2 for a pair that has not met.
    """
    return jnp.where(payoff.games > 0, payoff.score / jnp.where(payoff.games > 0, payoff.games, 1.0), 0.5)


def hard(win_rate: Array, power: Scalar = 2.0) -> Array:
    """Computes ``(1 - w)^p``, which prefers opponents that are hard to beat. Elementwise.

    In prioritised fictitious self-play (Vinyals et al. 2019, Nature 575, methods) the probability of an opponent is
    proportional to a function of ``w``, the probability to beat it. `hard`, `variance`, `linear` and `capped` are such
    functions; `shares` converts them to probabilities.
    """
    return (1 - win_rate) ** power


def variance(win_rate: Array) -> Array:
    """Computes ``w (1 - w)``, which prefers opponents of about the same strength. Elementwise; see `hard`."""
    return win_rate * (1 - win_rate)


def linear(win_rate: Array) -> Array:
    """Computes ``1 - w``. Elementwise; see `hard`."""
    return 1 - win_rate


def capped(win_rate: Array) -> Array:
    """Computes ``min(1/2, 1 - w)``, equal for all opponents that are as strong or stronger. Elementwise; see `hard`."""
    return jnp.minimum(0.5, 1 - win_rate)


def shares(weight: Array, present: Array | None = None) -> Array:
    """Computes probabilities proportional to ``weight`` ``[N]``, which is non-negative; uniform if all are zero.

    Only opponents that are ``present`` (bool ``[N]``; None: all) count; if none is, all probabilities are zero.
    """
    there = jnp.ones(weight.shape, bool) if present is None else present
    weight = jnp.where(there, weight, 0.0)
    weight = jnp.where(jnp.sum(weight) > 0, weight, there.astype(weight.dtype))
    total = jnp.sum(weight)
    return weight / jnp.where(total > 0, total, 1.0)


def by_quality(quality: Array, present: Array) -> Array:
    """Computes OpenAI Five's probabilities of past versions, ``p_i`` proportional to ``exp(q_i)``, ``[N]``.

    Berner et al. 2019 (arXiv 1912.06680, appendix N). Versions that are not ``present`` (bool ``[N]``) have probability
    0.
    """
    softmax = jax.nn.softmax(exploration.masked(quality, present))
    return jnp.where(present, softmax, 0.0)


def beaten(quality: Array, present: Array, opponent: Array, won: Array, rate: Scalar = 0.01) -> Array:
    """Updates the qualities ``[N]`` of past versions after games against them.

    For each game that the learner won, ``q_i`` falls by ``rate / (N p_i)``, with ``N`` the number of versions that are
    ``present``; other games change nothing. The probability with which the opponent was chosen cancels, so that in
    expectation all versions are treated equally (Berner et al. 2019, arXiv 1912.06680, appendix N).

    Args:
        quality: ``[N]``.
        present: ``[N]`` bool.
        opponent: The versions that were played, int32, ``[]`` or ``[G]``.
        won: How many games the learner won, or whether it won one, ``[]`` or ``[G]``.
        rate: The step size, eta in the paper, where it is 0.01.
    """
    chance = by_quality(quality, present)[opponent]
    fall = rate * won / (jnp.sum(present) * jnp.where(chance > 0, chance, 1.0))
    return quality.at[opponent].add(jnp.where(chance > 0, -fall, 0.0))


def enter(quality: Array, present: Array, slot: Array) -> tuple[Array, Array]:
    """Returns qualities and presence, both ``[N]``, after a new version took ``slot``.

    The new version has the largest quality of those that were present, including the version that it replaces. The
    first version has quality 0 (Berner et al. 2019, arXiv 1912.06680, appendix N).
    """
    largest = jnp.max(jnp.where(present, quality, -jnp.inf))
    return quality.at[slot].set(jnp.where(jnp.any(present), largest, 0.0)), present.at[slot].set(True)


def choose(probability: Array, noise: Array) -> Array:
    """Chooses the opponent at which the cumulative sum of ``probability`` ``[N]`` first exceeds ``noise``, a scalar.

    Returns an int32 scalar. An opponent of probability 0 is never chosen; at least one probability must be positive.
    """
    cumulative = jnp.where(probability > 0, jnp.cumsum(probability), 0.0)
    total = jnp.max(cumulative)
    return jnp.argmax(cumulative > jnp.minimum(noise * total, jnp.nextafter(total, 0.0))).astype(jnp.int32)


def latest_or_past(probability: Array, noise: Array, latest: Scalar = 0.8) -> Array:
    """Chooses `LATEST` with probability ``latest``, and otherwise a past version by ``probability`` ``[N]``.

    OpenAI Five plays 80 % of its games against itself (Berner et al. 2019, arXiv 1912.06680, appendix N). ``noise`` is
    ``[2]``: the first element decides whether it is a past version, the second which (see `choose`). Without a past
    version, where all probabilities are zero, it is `LATEST`. Returns an int32 scalar.
    """
    past = (noise[0] >= latest) & jnp.any(probability > 0)
    return jnp.where(past, choose(probability, noise[1]), LATEST)
