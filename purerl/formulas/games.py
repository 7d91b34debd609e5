"""Exact measures of games of two players, in numpy float64 on the host: ratings, best responses, Kuhn poker.

What the row's player, or who moves first, wins the other loses. The NashConv of two strategies is the sum of what each
player could gain by a best response, which is 0 in an equilibrium and nowhere else; their exploitability is half of it
(Lanctot et al. 2017, arXiv 1711.00832, section 2).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
"""What the row's player wins."""
ELO_SCALE = 400 / np.log(10)
"""Points of Elo's scale in a factor of e in the odds."""
ELO_TOLERANCE = 1e-12
"""Change of all log-strengths in an iteration of `elo` below which it ends."""
LEAST_LUCK = -100.0
"""Logarithm of the smallest chance in `alpha_rank` that a worse mutant takes over."""


def elo(score: ArrayLike, games: ArrayLike, *, virtual_draws: float = 0.0, most: int = 100_000) -> np.ndarray:
    """Ratings ``[N]`` of maximum likelihood, their mean 0: ``P(i beats j) = 1 / (1 + 10^((R_j - R_i) / 400))``.

    - ``score``: ``[N, N]``, what ``i`` scored against ``j``: a win 1, a draw 1/2.
    - ``games``: ``[N, N]``, how many games they played; ``score + score.T``. Win rates serve with games of 1.
    - ``virtual_draws``: so many drawn games are added to each pair, which pulls the ratings together.
    - ``most``: iterations after which it ends at the latest.

    Elo 1978; the strengths ``10^(R / 400)`` are those of Bradley & Terry 1952, found by the iteration of Hunter 2004
    (Annals of Statistics 32, eq. 3), which raises the likelihood in every step. Raises `ValueError` where none is the
    most likely: unless everybody has scored, over some others, against everybody, a rating is infinite.
    A cycle, such as rock, paper and scissors, shows in no rating.
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
    """Whether in a graph ``[N, N]`` every node leads to every other."""
    reach = edges | np.eye(len(edges), dtype=bool)
    for _ in range(len(edges).bit_length()):
        reach = reach @ reach
    return bool(reach.all())


def nash_conv(payoff: ArrayLike, row: ArrayLike, column: ArrayLike) -> float:
    """NashConv of the mixed strategies ``row`` ``[M]`` and ``column`` ``[K]`` in the game ``payoff`` ``[M, K]``:
    ``max_i (A y)_i - min_j (x A)_j``."""
    payoff = np.asarray(payoff, np.float64)
    return float(np.max(payoff @ np.asarray(column)) - np.min(np.asarray(row) @ payoff))


def exploitability(payoff: ArrayLike, row: ArrayLike, column: ArrayLike) -> float:
    """Half of `nash_conv`: the mean of what the two players lose to a best response, in a game whose value is 0."""
    return nash_conv(payoff, row, column) / 2


def alpha_rank(payoff: ArrayLike, alpha: float = 10.0, population: int = 50) -> np.ndarray:
    """The part of all time ``[N]`` that each strategy of a symmetric game ``payoff`` ``[N, N]`` holds a population, in
    which now and then a mutant appears (Omidshafiei et al. 2019, arXiv 1903.01373, section 3, for one population).

    A mutant of strategy ``j`` takes over a ``population`` of ``m`` that plays ``i`` with the chance ``(1 - e^-u) / (1 -
    e^(-m u))``, where ``u = alpha (payoff[j, i] - payoff[i, j])``; for ``u = 0`` that is ``1 / m``. The larger
    ``alpha``, the less often by luck. In a cycle of equal gains all strategies hold it alike.
    """
    payoff = np.asarray(payoff, np.float64)
    u = alpha * (payoff.T - payoff)  # [i, j]
    size, luck = np.where(u == 0, 1.0, np.abs(u)), np.exp(np.maximum((population - 1) * np.minimum(u, 0), LEAST_LUCK))
    takes_over = np.where(u == 0, 1 / population, luck * np.expm1(-size) / np.expm1(-population * size))
    return _stationary(takes_over)


def _stationary(rates: np.ndarray) -> np.ndarray:
    """The part of all time ``[N]`` that a process spends in each state, by its rates ``[N, N]`` from row to column.

    States are eliminated one by one without a subtraction, so that rates of very different sizes do no harm (Grassmann,
    Taksar & Heyman 1985, Operations Research 33).
    """
    rates, held = np.array(rates), np.ones(len(rates))
    for n in range(len(rates) - 1, 0, -1):
        rates[:n, n] /= rates[n, :n].sum()
        rates[:n, :n] += np.outer(rates[:n, n], rates[n, :n])
    for n in range(1, len(rates)):
        held[n] = held[:n] @ rates[:n, n]
    return held / held.sum()


def fictitious_play(
    respond: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]], row: np.ndarray, column: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The averages of all that each player has played, after each round, for ever (Brown 1951).

    In a round both players answer the other's average by a best response, ``respond(row, column)``. ``row`` and
    ``column`` are what they play first. The averages are of whatever describes a strategy linearly: probabilities in a
    matrix game, weights of realisation in a game with moves.
    """
    count = 1
    while True:
        answers = respond(row, column)
        count += 1
        row, column = row + (answers[0] - row) / count, column + (answers[1] - column) / count
        yield row, column


def matrix_responses(payoff: ArrayLike) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Best responses in a matrix game ``[M, K]`` for `fictitious_play`: pure, and the first of those that are equal."""
    payoff = np.asarray(payoff, np.float64)
    rows, columns = np.eye(payoff.shape[0]), np.eye(payoff.shape[1])
    return lambda row, column: (rows[np.argmax(payoff @ column)], columns[np.argmin(row @ payoff)])


class Plans(NamedTuple):
    """A strategy of each seat in Kuhn poker as weights of realisation ``[3, 4]``: for each card (jack, queen, king) the
    product of the seat's own probabilities up to each of its ends.

    ``first``: bet; check; check, then call; check, then fold. ``second``, facing a bet: call; fold; and facing a check:
    bet; check.
    """

    first: np.ndarray
    second: np.ndarray


def _kuhn_payoff() -> np.ndarray:
    """What the first seat wins, times the chance 1/6 of the cards: ``[3, 4, 3, 4]``, by card and end of each seat."""
    payoff = np.zeros((3, 4, 3, 4))
    for mine in range(3):
        for other in set(range(3)) - {mine}:
            sign = 1 if mine > other else -1
            for first, second, won in ((0, 0, 2 * sign), (0, 1, 1), (1, 3, sign), (2, 2, 2 * sign), (3, 2, -1)):
                payoff[mine, first, other, second] = won / 6
    return payoff


KUHN = _kuhn_payoff()
"""Kuhn poker (Kuhn 1950) in sequence form: three cards, an ante of 1, a bet of 1; its value is -1/18 for the first
seat."""


def kuhn_plans(policy: ArrayLike) -> Plans:
    """The `Plans` of a table of behaviour ``[2, 2, 3]``: the probability to bet, or to call a bet.

    The axes are the seat (first, second), whether it faces a bet, and the card (jack, queen, king): 12 sets of
    information. The first seat faces a bet after it has checked.
    """
    (opening, calling), (betting, meeting) = np.asarray(policy, np.float64)
    first = [opening, 1 - opening, (1 - opening) * calling, (1 - opening) * (1 - calling)]
    return Plans(np.stack(first, axis=-1), np.stack([meeting, 1 - meeting, betting, 1 - betting], axis=-1))


def kuhn_policy(plans: Plans) -> np.ndarray:
    """The table of behaviour of `kuhn_plans`; 1/2 where a seat never comes by its own doing. ``[2, 2, 3]``."""
    first, second = plans
    reached = first[:, 1] > 0
    calling = np.where(reached, first[:, 2] / np.where(reached, first[:, 1], 1.0), 0.5)
    return np.array([[first[:, 0], calling], [second[:, 2], second[:, 0]]])


def kuhn_value(plans: Plans) -> float:
    """What the first seat wins in the mean."""
    return float(np.einsum("ia,iajb,jb", plans.first, KUHN, plans.second))


def kuhn_responses(first: np.ndarray, second: np.ndarray) -> Plans:
    """A best response of each seat to the other's plan; it bets and calls where that is no worse."""
    gain = np.einsum("iajb,jb->ia", KUHN, second)
    calls = gain[:, 2] >= gain[:, 3]
    bets = gain[:, 0] >= gain[:, 1] + np.maximum(gain[:, 2], gain[:, 3])
    loss = np.einsum("ia,iajb->jb", first, KUHN)
    facing_check, facing_bet = loss[:, 2] <= loss[:, 3], loss[:, 0] <= loss[:, 1]
    return kuhn_plans([[bets, calls], [facing_check, facing_bet]])


def kuhn_gains(plans: Plans) -> float:
    """NashConv of two plans."""
    best = kuhn_responses(*plans)
    return kuhn_value(Plans(best.first, plans.second)) - kuhn_value(Plans(plans.first, best.second))


def kuhn_nash_conv(policy: ArrayLike) -> float:
    """NashConv of a table of behaviour ``[2, 2, 3]`` of both seats, as `kuhn_plans` takes it; 0 in an equilibrium."""
    return kuhn_gains(kuhn_plans(policy))


def kuhn_equilibrium(alpha: float) -> np.ndarray:
    """An equilibrium ``[2, 2, 3]`` (Kuhn 1950): the first seat bets a jack with probability ``alpha`` in [0, 1/3].

    It bets a king three times as often and never a queen, which it calls with ``alpha + 1/3``. The second seat, whose
    equilibrium is the only one, bets a jack and calls with a queen a third of the time.
    """
    first = [[alpha, 0.0, 3 * alpha], [0.0, alpha + 1 / 3, 1.0]]
    return np.array([first, [[1 / 3, 0.0, 1.0], [0.0, 1 / 3, 1.0]]])
