"""Exact measures of games of two players, in numpy float64 on the host: ratings, best responses, Kuhn poker.

The games are zero-sum: what the row player, or the player who moves first, wins, the other loses. The NashConv of two
strategies is the sum of what each player could gain by a best response, which is 0 in an equilibrium and nowhere else;
their exploitability is half of it (Lanctot et al. 2017, arXiv 1711.00832, section 2).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
"""The row player's payoffs."""
ELO_SCALE = 400 / np.log(10)
"""Points of Elo's scale that correspond to a factor of e in the odds."""
ELO_TOLERANCE = 1e-12
"""`elo` ends when an iteration changes every log-strength by less than this."""
LEAST_LUCK = -100.0
"""A lower bound of an exponent in `alpha_rank`: the logarithm of a worse mutant's smallest chance to take over."""


def elo(score: ArrayLike, games: ArrayLike, *, virtual_draws: float = 0.0, most: int = 100_000) -> np.ndarray:
    """Computes the ratings of maximum likelihood, with mean 0: ``P(i beats j) = 1 / (1 + 10^((R_j - R_i) / 400))``.

    Elo 1978; the strengths ``10^(R / 400)`` are those of Bradley & Terry 1952, computed by the iteration of Hunter 2004
    (Annals of Statistics 32, eq. 3), which raises the likelihood in every step. A cycle, such as rock, paper and
    scissors, shows in no rating.

    Args:
        score: ``[N, N]``, what ``i`` scored against ``j``: 1 for a win, 1/2 for a draw.
        games: ``[N, N]``, how many games they played; equal to ``score + score.T``. Win rates can be given as ``score``
            with 1 in ``games``.
        virtual_draws: The number of drawn games that are added to each pair, which pulls the ratings together.
        most: The largest number of iterations.

    Returns:
        Ratings ``[N]``.

    Raises:
        ValueError: The likelihood has no maximum. Unless every player has scored against every other, directly or
            through a chain of others, a rating is infinite.
    """
    others = 1 - np.eye(len(np.asarray(score)))
    score = (np.asarray(score, np.float64) + virtual_draws / 2) * others
    games = (np.asarray(games, np.float64) + virtual_draws) * others
    if not _all_reach_all(score > 0):
        raise ValueError("elo: the games leave a rating infinite; virtual_draws makes all of them finite")
    strength = np.zeros(len(score))
    for _ in range(most):
        odds = np.exp(strength)
        better = np.log(score.sum(axis=1) / np.sum(games / (odds[:, None] + odds[None]), axis=1))
        moved, strength = strength, better - better.mean()
        if np.max(np.abs(strength - moved)) < ELO_TOLERANCE:
            break
    return ELO_SCALE * strength


def _all_reach_all(edges: np.ndarray) -> bool:
    """Returns whether in a graph ``[N, N]`` every node leads to every other."""
    reach = edges | np.eye(len(edges), dtype=bool)
    for _ in range(len(edges).bit_length()):
        reach = reach @ reach
    return bool(reach.all())


def nash_conv(payoff: ArrayLike, row: ArrayLike, column: ArrayLike) -> float:
    """Computes the NashConv of two mixed strategies in a matrix game: ``max_i (A y)_i - min_j (x A)_j``.

    Args:
        payoff: ``[M, K]``, the row player's payoffs ``A``.
        row: ``[M]``, the row player's probabilities ``x``.
        column: ``[K]``, the column player's probabilities ``y``.
    """
    payoff = np.asarray(payoff, np.float64)
    return float(np.max(payoff @ np.asarray(column)) - np.min(np.asarray(row) @ payoff))


def exploitability(payoff: ArrayLike, row: ArrayLike, column: ArrayLike) -> float:
    """Computes half of `nash_conv`: the mean of what the two players lose to a best response in a game of value 0."""
    return nash_conv(payoff, row, column) / 2


def alpha_rank(payoff: ArrayLike, alpha: float = 10.0, population: int = 50) -> np.ndarray:
    """Computes the fraction of time for which each strategy of a symmetric game holds a population.

    Mutants appear rarely in the population (Omidshafiei et al. 2019, arXiv 1903.01373, section 3, for one population).
    A mutant of strategy ``j`` takes over a ``population`` of ``m`` that plays ``i`` with probability
    ``(1 - e^-u) / (1 - e^(-m u))``, where ``u = alpha (payoff[j, i] - payoff[i, j])``; for ``u = 0`` that is ``1 / m``.
    The larger ``alpha``, the less often a mutant takes over by luck. In a cycle of equal gains all strategies hold the
    population for equally long.

    Args:
        payoff: ``[N, N]``, the row player's payoffs.
        alpha: The intensity of selection.
        population: The size ``m`` of the population.

    Returns:
        Fractions ``[N]``, which add up to 1.
    """
    payoff = np.asarray(payoff, np.float64)
    u = alpha * (payoff.T - payoff)  # [i, j]
    size, luck = np.where(u == 0, 1.0, np.abs(u)), np.exp(np.maximum((population - 1) * np.minimum(u, 0), LEAST_LUCK))
    takes_over = np.where(u == 0, 1 / population, luck * np.expm1(-size) / np.expm1(-population * size))
    return _stationary(takes_over)


def _stationary(rates: np.ndarray) -> np.ndarray:
    """Computes the fraction of time ``[N]`` that a process spends in each state, from its rates ``[N, N]``.

    ``rates[i, j]`` leads from state ``i`` to state ``j``.

    States are eliminated one by one without a subtraction, so that rates of very different sizes do no harm (Grassmann,
    Taksar & Heyman 1985, Operations Research 33).
    """
    rates, mass = np.array(rates), np.ones(len(rates))
    for n in range(len(rates) - 1, 0, -1):
        rates[:n, n] /= rates[n, :n].sum()
        rates[:n, :n] += np.outer(rates[:n, n], rates[n, :n])
    for n in range(1, len(rates)):
        mass[n] = mass[:n] @ rates[:n, n]
    return mass / mass.sum()


def fictitious_play(
    respond: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]], row: np.ndarray, column: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the averages of all strategies that each player has played, after each round, without end (Brown 1951).

    In a round both players answer the other's average by a best response, ``respond(row, column)``. ``row`` and
    ``column`` are the strategies that they play first. The averages are of anything that describes a strategy linearly:
    probabilities in a matrix game, realisation weights in a game with several moves.
    """
    count = 1
    while True:
        answers = respond(row, column)
        count += 1
        row, column = row + (answers[0] - row) / count, column + (answers[1] - column) / count
        yield row, column


def matrix_responses(payoff: ArrayLike) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Makes a function of best responses in a matrix game ``[M, K]`` for `fictitious_play`.

    Responses are pure; of several equally good ones it is the first.
    """
    payoff = np.asarray(payoff, np.float64)
    rows, columns = np.eye(payoff.shape[0]), np.eye(payoff.shape[1])
    return lambda row, column: (rows[np.argmax(payoff @ column)], columns[np.argmin(row @ payoff)])


class Plans(NamedTuple):
    """A strategy of each seat in Kuhn poker as realisation weights ``[3, 4]``.

    For each card (jack, queen, king) and each way in which the hand can end for the seat, the weight is the product of
    the seat's own probabilities on the way there. The ends of ``first`` are: bet; check; check, then call; check, then
    fold. The ends of ``second`` are, facing a bet: call; fold; and facing a check: bet; check.
    """

    first: np.ndarray
    second: np.ndarray


def _kuhn_payoff() -> np.ndarray:
    """Computes the first seat's gain times the cards' probability 1/6: ``[3, 4, 3, 4]`` by card and end of each."""
    payoff = np.zeros((3, 4, 3, 4))
    for mine in range(3):
        for other in set(range(3)) - {mine}:
            sign = 1 if mine > other else -1
            for first, second, won in ((0, 0, 2 * sign), (0, 1, 1), (1, 3, sign), (2, 2, 2 * sign), (3, 2, -1)):
                payoff[mine, first, other, second] = won / 6
    return payoff


KUHN = _kuhn_payoff()
"""Kuhn poker (Kuhn 1950) in sequence form, with three cards, an ante of 1 and a bet of 1. Its value for the first
seat is -1/18."""


def kuhn_plans(policy: ArrayLike) -> Plans:
    """Converts a table of behaviour ``[2, 2, 3]``, the probabilities to bet or to call a bet, to `Plans`.

    The axes are the seat (first, second), whether it faces a bet, and the card (jack, queen, king): 12 information
    sets. The first seat faces a bet after it has checked.
    """
    (opening, calling), (betting, meeting) = np.asarray(policy, np.float64)
    first = [opening, 1 - opening, (1 - opening) * calling, (1 - opening) * (1 - calling)]
    return Plans(np.stack(first, axis=-1), np.stack([meeting, 1 - meeting, betting, 1 - betting], axis=-1))


def kuhn_policy(plans: Plans) -> np.ndarray:
    """Converts plans to the table of behaviour ``[2, 2, 3]`` of `kuhn_plans`.

    An entry is 1/2 for a decision to which the seat's own actions never lead.
    """
    first, second = plans
    reached = first[:, 1] > 0
    calling = np.where(reached, first[:, 2] / np.where(reached, first[:, 1], 1.0), 0.5)
    return np.array([[first[:, 0], calling], [second[:, 2], second[:, 0]]])


def kuhn_value(plans: Plans) -> float:
    """Computes what the first seat wins in the mean."""
    return float(np.einsum("ia,iajb,jb", plans.first, KUHN, plans.second))


def kuhn_responses(first: np.ndarray, second: np.ndarray) -> Plans:
    """Computes a best response of each seat to the other's plan; it bets and calls where that is no worse."""
    gain = np.einsum("iajb,jb->ia", KUHN, second)
    calls = gain[:, 2] >= gain[:, 3]
    bets = gain[:, 0] >= gain[:, 1] + np.maximum(gain[:, 2], gain[:, 3])
    loss = np.einsum("ia,iajb->jb", first, KUHN)
    facing_check, facing_bet = loss[:, 2] <= loss[:, 3], loss[:, 0] <= loss[:, 1]
    return kuhn_plans([[bets, calls], [facing_check, facing_bet]])


def kuhn_gains(plans: Plans) -> float:
    """Computes the NashConv of two plans."""
    best = kuhn_responses(*plans)
    return kuhn_value(Plans(best.first, plans.second)) - kuhn_value(Plans(plans.first, best.second))


def kuhn_nash_conv(policy: ArrayLike) -> float:
    """Computes the NashConv of a table of behaviour ``[2, 2, 3]`` (`kuhn_plans`); 0 in an equilibrium."""
    return kuhn_gains(kuhn_plans(policy))


def kuhn_equilibrium(alpha: float) -> np.ndarray:
    """Computes an equilibrium ``[2, 2, 3]`` (Kuhn 1950) in which the first seat bets a jack with probability ``alpha``.

    ``alpha`` lies in [0, 1/3]. The first seat bets a king three times as often and never a queen, with which it calls
    with probability ``alpha + 1/3``. The second seat, which has only one equilibrium strategy, bets a jack and calls
    with a queen a third of the time.
    """
    first = [[alpha, 0.0, 3 * alpha], [0.0, alpha + 1 / 3, 1.0]]
    return np.array([first, [[1 / 3, 0.0, 1.0], [0.0, 1 / 3, 1.0]]])
