"""Drawings of games that have no board: matrices, cards, and choices."""

from typing import Any

import numpy as np

from purerl.display.drawings.sheet import BLUE, DIM, INK, LINE, PALETTE, RED, YELLOW, Sheet

CARDS = ("J", "Q", "K")
HISTORIES = ("to the first player", "after a pass", "after a bet", "after a pass and a bet", "")


def _chosen(moment: Any, count: int) -> list[int | None]:
    """Lists the actions of ``count`` agents; None for each in the last state, in which no action is taken."""
    return [None] * count if moment.action is None else [int(action) for action in np.ravel(moment.action)[:count]]


def matrix_game(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the payoffs of both agents for each pair of actions, and the pair that they choose."""
    from purerl.envs.native.games.matrix_game import GAMES

    name = str(params.get("game", "prisoners-dilemma"))
    pay = np.asarray(params["payoffs"] if params.get("payoffs") is not None else GAMES[name], np.float64)
    count = pay.shape[1]

    def draw(moment: Any, sheet: Sheet) -> None:
        row, column = _chosen(moment, 2)
        size = 0.74 / count
        sheet.text((0.56, 0.06), name, 0.05, DIM)
        for i in range(count):
            sheet.text((0.1, 0.2 + size * (i + 0.5)), str(i), 0.07, BLUE if i == row else DIM)
            sheet.text((0.18 + size * (i + 0.5), 0.15), str(i), 0.07, RED if i == column else DIM)
            for j in range(count):
                low = 0.18 + size * j, 0.2 + size * i
                chosen = (i, j) == (row, column)
                sheet.box(low, (low[0] + size, low[1] + size), YELLOW if chosen else "#ffffff", LINE)
                middle = low[0] + size / 2, low[1] + size / 2
                sheet.text((middle[0], middle[1] - 0.13 * size), f"{pay[0, i, j]:g}", 0.2 * size, BLUE)
                sheet.text((middle[0], middle[1] + 0.17 * size), f"{pay[1, i, j]:g}", 0.2 * size, RED)

    return draw, 2.0, 1.0


def two_step(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the three states, the current one, and the actions of both agents."""

    def draw(moment: Any, sheet: Sheet) -> None:
        places, now = [(0.5, 0.22), (0.25, 0.66), (0.75, 0.66)], int(np.ravel(moment.state)[0])
        for target in (1, 2):
            sheet.arrow((0.5, 0.3), (places[target][0], 0.54), LINE, 0.015)
        for i, (x, y) in enumerate(places):
            sheet.disc((x, y), 0.11, YELLOW if i == now else "#ffffff", INK)
            sheet.text((x, y), str(i), 0.08)
        for agent, action in enumerate(_chosen(moment, 2)):
            if action is not None:
                sheet.text((0.3 + 0.4 * agent, 0.92), f"agent {agent}: {action}", 0.06, (BLUE, RED)[agent])

    return draw, 1.0, 1.0


def permutation(params: dict[str, Any]) -> tuple:
    """Makes a drawing of the action of each agent: all of them differ where each column has one mark."""
    count = int(params.get("num_agents", 3))

    def draw(moment: Any, sheet: Sheet) -> None:
        size = 0.8 / count
        for agent, action in enumerate(_chosen(moment, count)):
            for j in range(count):
                low = 0.14 + size * j, 0.1 + size * agent
                sheet.box(low, (low[0] + size, low[1] + size), "#ffffff", LINE)
            height = 0.1 + size * (agent + 0.5)
            if action is not None:
                place = 0.14 + size * (action + 0.5), height
                sheet.disc(place, 0.3 * size, PALETTE[agent % len(PALETTE)], INK)
            sheet.text((0.07, height), str(agent), 0.06, DIM)

    return draw, 1.0, 1.0


def kuhn_poker(params: dict[str, Any]) -> tuple:
    """Makes a drawing of both cards, who moves first, the moves so far, and the move that is made now."""

    def draw(moment: Any, sheet: Sheet) -> None:
        state, actions = moment.state, _chosen(moment, 2)
        history, first = int(state.history), int(state.first)
        mover = first if history in (0, 3) else 1 - first
        for agent in (0, 1):
            x = 0.28 + 0.44 * agent
            sheet.box((x - 0.14, 0.2), (x + 0.14, 0.62), "#ffffff", INK, 0.03)
            sheet.text((x, 0.41), CARDS[int(state.cards[agent])], 0.2, (BLUE, RED)[agent])
            sheet.text((x, 0.13), "first" if agent == first else "second", 0.055, DIM)
            if agent == mover and history < 4 and actions[agent] is not None:
                sheet.text((x, 0.72), "bets" if actions[agent] else "passes", 0.08, INK)
        sheet.text((0.5, 0.9), HISTORIES[history], 0.055, DIM)

    return draw, 1.0, 1.0
