"""Fictitious play in games that are known exactly: the NashConv of the averages, which falls towards 0.

    python scripts/games.py kuhn
    python scripts/games.py rps

Kuhn poker ends below 0.02 after 1000 best responses of each seat, and rock, paper, scissors below 0.03 after 10,000;
the exit status is 1 if not.
"""

import argparse
import itertools

import numpy as np

from purerl.formulas import games


def kuhn(first: np.ndarray, second: np.ndarray) -> float:
    return games.kuhn_gains(games.Plans(first, second))


def rps(row: np.ndarray, column: np.ndarray) -> float:
    return games.nash_conv(games.ROCK_PAPER_SCISSORS, row, column)


GAMES = {
    "kuhn": (kuhn, games.kuhn_responses, games.kuhn_plans(np.full((2, 2, 3), 0.5)), (10, 50, 100, 300, 1000), 0.02),
    "rps": (rps, games.matrix_responses(games.ROCK_PAPER_SCISSORS), np.eye(3)[:2], (100, 1000, 10_000), 0.03),
}
"""How far a game's averages are from an equilibrium, its best responses, what is played first, the rounds after which
to look, and what the last of them must come below."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=GAMES)
    measure, respond, start, rounds, gate = GAMES[parser.parse_args().game]
    found = float("inf")
    for count, averages in enumerate(itertools.islice(games.fictitious_play(respond, *start), rounds[-1]), 1):
        if count in rounds:
            found = measure(*averages)
            print(f"after {count:>6} best responses: NashConv {found:.4f}")
    raise SystemExit(found > gate)


if __name__ == "__main__":
    main()
