"""Where a person plays the games of `games`: at the terminal, or on a page in the browser."""

import sys
import threading
from typing import Any

import numpy as np

from purerl.display import output, text_boards, words
from purerl.display.drawings import searches
from purerl.errors import ConfigError
from purerl.runs.reading.games import Answer, Games, Turn

QUIT = "q"
"""What a person at the terminal answers who wants to end."""
AGAIN = "new"
"""What the page asks for in place of a move to begin another game."""
RESULTS = {1: "you win", 0: "a draw", -1: "{} wins"}


def about(games: Games) -> str:
    """Returns who sits where, and how many simulations there are, as text."""
    saved, simulations = games.agent.saved, words.simulations({"simulations": games.agent.simulations})
    return f"{saved['env']}: you are seat {games.seat}, {saved['algo']} is seat {1 - games.seat}{simulations}"


def result(games: Games, turn: Turn) -> str:
    """Returns the result of a game as text; empty while it goes on."""
    return "" if turn.outcome is None else RESULTS[turn.outcome].format(games.agent.saved["algo"])


def refusal(answer: str, legal: np.ndarray) -> str:
    """Returns why an answer is no legal move, and what would be one; empty if it is one."""
    listed = text_boards.numbers(legal)
    if not (answer.isascii() and answer.isdecimal() and len(answer) < 10 and int(answer) < len(legal)):
        return f"{answer[:40]!r}: is no move; give one of {listed}"
    return "" if legal[int(answer)] else f"{answer}: is not legal; give one of {listed}"


def at_terminal(games: Games) -> None:
    """Plays games with the person at the terminal, until the person or the input ends."""
    while True:
        turn = games.begin()
        output.show(f"{about(games)}; {QUIT} ends")
        while True:
            for answer in turn.answers:
                output.show(f"{games.agent.saved['algo']} plays {answer.action}")
            output.show(text_boards.board(*_seen(games, turn)))
            if turn.outcome is not None:
                break
            chosen = _ask(turn.view.legal)
            if chosen is None:
                return
            turn = games.move(chosen)
        output.show(result(games, turn))
        if _answer("again? (y, n) ") not in ("y", "yes"):
            return


def _seen(games: Games, turn: Turn) -> tuple[Any, ...]:
    """Returns what the person sees, as arguments of `text_boards.cells` and `text_boards.board`."""
    agent = games.agent
    return agent.saved["env"], agent.env.observation_space, turn.view.obs, turn.view.legal


def _ask(legal: np.ndarray) -> int | None:
    """Asks for a legal action until there is one; None: the person or the input ends."""
    while (answer := _answer(f"your move ({text_boards.numbers(legal)}): ")) not in (QUIT, ""):
        if problem := refusal(answer, legal):
            output.show(f"{problem}, or {QUIT} to end")
        else:
            return int(answer)
    return None


def _answer(question: str) -> str:
    """Prints a question and reads a line, without spaces around it; empty at the end of the input."""
    while True:
        print(question, end="", file=output.results(), flush=True)
        line = sys.stdin.readline()
        if not line:
            output.show("")
        if not line or line.strip():
            return line.strip().lower()


class OnPage:
    """The games on a page, which answers requests from any number of threads, one move at a time.

    `begin` comes first.
    """

    def __init__(self, games: Games):
        self._games, self._lock, self._place = games, threading.Lock(), 0

    def begin(self) -> None:
        """Compiles what games may need, and begins the first one."""
        self._games.compile()
        self._turn = self._games.begin()
        self._told = self._telling([])

    def game(self) -> dict[str, Any]:
        """Returns the game as it stands, as JSON.

        ``place`` counts what was asked for. Of ``cells`` each is its text and the action of moving there, or None;
        ``words`` stand in their place where there is no board. ``others`` are legal actions that no cell has. ``moves``
        are those of this game: who made it, the action, and for the agent the value and the visits of the actions that
        its search visited most (None and nothing without a search).
        """
        return self._told

    def play(self, place: str, move: str) -> dict[str, Any]:
        """Takes the person's move, an action, or begins another game for `AGAIN`; returns the game then.

        Raises:
            ConfigError: The game stands elsewhere than at ``place``, the agent has not answered yet, the game is over,
                or the move is not legal.
        """
        if not self._lock.acquire(blocking=False):
            raise ConfigError("the agent has not answered yet")
        try:
            if place != str(self._place):
                raise ConfigError("the game has gone on since; here it is")
            if move == AGAIN:
                self._turn, before = self._games.begin(), []
            elif self._turn.outcome is not None:
                raise ConfigError("the game is over; begin another one")
            elif problem := refusal(move, self._turn.view.legal):
                raise ConfigError(problem)
            else:
                own = {"who": "you", "action": int(move), "value": None, "visits": []}
                self._turn, before = self._games.move(int(move)), [*self._told["moves"], own]
            self._place += 1
            self._told = self._telling(before)
        finally:
            self._lock.release()
        return self._told

    def _telling(self, moves: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the game after ``moves`` and the agent's answers."""
        games, turn = self._games, self._turn
        going_on = turn.outcome is None
        rows = text_boards.cells(*_seen(games, turn))
        legal = np.flatnonzero(turn.view.legal).tolist() if going_on else []
        shown = {cell.action for row in rows for cell in row}
        return {
            "place": self._place,
            "about": about(games),
            "words": "" if rows else text_boards.board(*_seen(games, turn)),
            "cells": [[[cell.text, cell.action if going_on else None] for cell in row] for row in rows],
            "others": [action for action in legal if action not in shown],
            "moves": moves + [self._move(answer) for answer in turn.answers],
            "result": result(games, turn),
        }

    def _move(self, answer: Answer) -> dict[str, Any]:
        """Returns a move of the agent, with what its search found."""
        found = answer.found
        searched = {"value": float(found.value), "visits": searches.most_visited(found)} if found else {}
        return {"who": self._games.agent.saved["algo"], "action": answer.action, "value": None, "visits": []} | searched
