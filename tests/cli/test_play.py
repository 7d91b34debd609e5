"""``purerl play``: what a person at the terminal sees and may answer, against one who takes the first free cell."""

import io
import re

import numpy as np
import pytest
from commands import run, untrained

from purerl import envs, spaces
from purerl.display import text_boards
from purerl.runs.reading import games

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("play") / "game", "alphazero", "TicTacToe-v0", simulations=8, n_step=8)


def answered(monkeypatch, capsys, answers, *args):
    """What is printed for a person with these answers."""
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(answers)))
    run("play", *args, "--env-params", "draw_seats=0", "--compilation-cache", "off")
    return capsys.readouterr().out


def wins(cells):
    return any(set(line) <= set(cells) for line in LINES)


def expected(moves, first):
    """The agent's moves, and the result, of a game in which it takes the first free cell; ``first``: who begins."""
    mine, theirs, turn, left = [], [], first, list(moves)
    while not wins(mine) and not wins(theirs) and len(mine + theirs) < 9:
        cell = left.pop(0) if turn == "me" else min(set(range(9)) - set(mine + theirs))
        (mine if turn == "me" else theirs).append(cell)
        turn = "they" if turn == "me" else "me"
    return theirs, "you win" if wins(mine) else "alphazero wins" if wins(theirs) else "a draw"


def told(text):
    """The agent's moves and the results that were printed."""
    moves = [int(x) for x in re.findall(r"alphazero plays (\d)", text)]
    return moves, re.findall("^you win|^alphazero wins|^a draw", text, re.MULTILINE)


def test_games_at_the_terminal(game, monkeypatch, capsys):
    """Won, lost and drawn, with answers that are no moves; then the input ends within a game."""
    played = [8, 7, 6], [8, 4, 3], [1, 3, 4, 6, 8]
    wrong = ["x", "-1", "9", "²", "9" * 5000, "", "0"]  # before the second move, when cell 0 is taken
    answers = [*map(str, played[0][:1]), *wrong, *map(str, played[0][1:])]
    answers += ["y", *map(str, played[1]), " Y ", *map(str, played[2]), "yes", "4"]
    text = answered(monkeypatch, capsys, answers, game, "--seat", "0", "--simulations", "0")
    theirs, results = zip(*[expected(moves, "me") for moves in played], strict=True)
    assert set(results) == {"you win", "alphazero wins", "a draw"}
    assert told(text) == ([*sum(theirs, []), 0], list(results))
    assert text.count("is no move; give one of 1-7, or q to end\n") == 5
    assert text.count("0: is not legal; give one of 1-7, or q to end\n") == 1
    assert max(map(len, text.splitlines())) < 120
    assert "TicTacToe-v0: you are seat 0, alphazero is seat 1, 0 simulations; q ends\n" in text
    assert "O 1 2\n3 4 5\n6 7 X\n" in text and "O O 2\n3 4 5\nX X X\nyou win" in text


@pytest.mark.rest
def test_a_person_sees_the_own_side_and_may_end(game, monkeypatch, capsys):
    """In the other seat, where the agent begins, the person's marks are X too; an agent that searches wins at once."""
    text = answered(monkeypatch, capsys, ["8", "q"], game, "--seat", "1", "--simulations", "0")
    assert told(text) == ([0, 1], []) and "O 1 2\n3 4 5\n6 7 8\n" in text and "O O 2\n3 4 5\n6 7 X\n" in text
    won = answered(monkeypatch, capsys, ["8", "7", "n"], game, "--seat", "1", "--simulations", "0", "--seed", "5")
    assert told(won) == ([0, 1, 2], ["alphazero wins"]) and won.endswith("again? (y, n) ")
    searched = answered(monkeypatch, capsys, ["4", "3", "0"], game, "--seat", "1", "--simulations", "64")
    [first, second, *_], _ = told(searched)
    assert second in set(range(9)) - {4, first} and ", 64 simulations; q ends" in searched


def test_boards():
    """Numbers of cells and of columns; stones of both, and what is no board."""
    space = envs.make("TicTacToe-v0").observation_space
    obs = np.zeros(19, bool)
    obs[[4, 9, 17]] = True
    legal = ~(obs[:9] | obs[9:18])
    assert text_boards.board("TicTacToe-v0", space, obs, legal) == "O 1 2\n3 X 5\n6 7 O"
    assert text_boards.numbers(legal) == "1-3, 5-7" and text_boards.numbers(np.array([1, 0, 1, 1])) == "0, 2, 3"
    plane = spaces.Box(0, 1, (2, 3, 2), np.dtype(bool))
    stones = np.zeros((2, 3, 2), bool)
    stones[1, 0, 0] = stones[1, 2, 1] = True
    assert text_boards.board("pgx/connect_four", plane, stones, np.ones(3, bool)) == ". . .\nX . O\n0 1 2"
    vector = spaces.Box(0, 1, (3,), np.dtype(float))
    assert text_boards.board("own:game", vector, np.array([0, 0.5, 1]), np.ones(2, bool)) == "0 0.5 1"


@pytest.mark.parametrize(
    ("algo", "env", "words"),
    [
        ("ppo", "CartPole-v1", "env = 'CartPole-v1': has 1 agent; "),
        ("ppo", "CoinGame-v0", "env = 'CoinGame-v0': has agents that act at the same time; "),
    ],
)
def test_what_is_no_game_of_two_in_turn_is_refused(algo, env, words, tmp_path, capsys):
    directory = untrained(tmp_path / "run", algo, env)
    run("play", directory, expect=2)
    assert capsys.readouterr().err == f"purerl: error: {words}purerl play is for games of two that act in turn\n"


def test_problems():
    env = envs.make("TicTacToe-v0")
    assert games.problem(env) == "" and games.problem(env._replace(host=object())) == "is an environment of the host"
    assert games.problem(env._replace(num_agents=3)) == "has 3 agents"
    numbers = spaces.MultiDiscrete((3, 3))
    assert games.problem(env._replace(action_space=numbers)) == "has actions that are not one number"
