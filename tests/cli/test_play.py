"""``purerl play``: what a person at the terminal and on the page sees and may answer, and who else is refused there.

Against one who takes the first free cell.
"""

import io
import json
import re
import threading
from types import SimpleNamespace
from urllib.parse import urlencode

import browser
import numpy as np
import pytest
from commands import run, untrained
from serving import asking, served

from purerl import envs, spaces
from purerl.display import text_boards
from purerl.errors import ConfigError
from purerl.runs.describing.reading_options import PlayOptions
from purerl.runs.reading import games, overview, playing

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


def seated(game, **changes):
    """The games on a page, in which the person is in seat 0 unless told otherwise, and agent 0 begins."""
    options = PlayOptions(run=str(game), **{"seat": "0", "simulations": 0, **changes})
    page = playing.OnPage(games.of_run(options, {"draw_seats": 0}))
    page.begin()
    return page


@pytest.fixture(scope="module")
def plain(game):
    return seated(game)


@pytest.fixture
def site(game, plain):
    """The page of a game with an agent that does not search, at the beginning of the next game."""
    plain.play(str(plain.game()["place"]), playing.AGAIN)
    with served(overview.answers(game)._replace(game=plain.game, play=plain.play)) as serving:
        yield asking(serving)


def post(site, **asked):
    answer = site.ask(f"/api/game?{urlencode(asked)}", "POST")
    return answer.status, json.loads(answer.body)


def rows(text):
    """The cells of a board of tic-tac-toe: texts, and the actions where the text is a number."""
    return [[[x, int(x) if x.isdigit() else None] for x in row.split()] for row in text.splitlines()]


def test_games_on_the_page(site):
    """The games of the terminal, move by move; at an end nothing can be moved until the next one begins."""
    results = []
    for moves in ([8, 7, 6], [8, 4, 3], [1, 3, 4, 6, 8]):
        _, found = post(site, place=site.get("game")["place"], move="new")
        assert (found["cells"], found["others"], found["moves"]) == (rows("0 1 2\n3 4 5\n6 7 8"), [], [])
        assert found["about"] == "TicTacToe-v0: you are seat 0, alphazero is seat 1, 0 simulations"
        for move in moves:
            status, found = post(site, place=found["place"], move=move)
            assert status == 200 and site.get("game") == found
        made = [each["action"] for each in found["moves"]]
        theirs, result = expected(moves, "me")
        assert made[::2] == moves and made[1::2] == theirs and found["result"] == result
        assert {each["who"] for each in found["moves"][1::2]} == {"alphazero"}
        assert all(each["value"] is None and each["visits"] == [] for each in found["moves"])
        assert not [action for row in found["cells"] for _, action in row if action is not None]
        assert post(site, place=found["place"], move=5) == (400, {"problem": "the game is over; begin another one"})
        results.append(result)
    assert results == ["you win", "alphazero wins", "a draw"]


def test_a_move_that_is_none_changes_nothing(site):
    _, begun = post(site, place=site.get("game")["place"], move="8")
    assert begun["cells"] == rows("O 1 2\n3 4 5\n6 7 X")
    at = begun["place"]
    for asked, words in (
        ({"move": "x"}, "'x': is no move; give one of 1-7"),
        ({"move": "9"}, "'9': is no move; give one of 1-7"),
        ({"move": "9" * 5000}, f"'{'9' * 40}': is no move; give one of 1-7"),
        ({"move": "²"}, "'²': is no move; give one of 1-7"),
        ({}, "'': is no move; give one of 1-7"),
        ({"move": "0"}, "0: is not legal; give one of 1-7"),
        ({"move": "1", "place": at - 1}, "the game has gone on since; here it is"),
        ({"move": "1", "place": "x"}, "the game has gone on since; here it is"),
        ({"move": "new", "place": at + 1}, "the game has gone on since; here it is"),
    ):
        assert post(site, **{"place": at, **asked}) == (400, {"problem": words})
    assert json.loads(site.ask(f"/api/game?place={at}&move=1").body) == begun == site.get("game")


def test_a_move_that_another_site_asks_for_is_refused(site):
    """A browser sends what any page posts as plain text without asking first (cezar, issue 426), and with the name of
    another host what a page posts whose name leads here (spec-kitty, issue 4769)."""
    own, port = site.address.rstrip("/"), site.server.server_address[1]
    begun = site.get("game")
    target = f"/api/game?place={begun['place']}&move=1"
    for given in (
        {"host": "evil.example"},
        {"host": f"evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": own.replace("http", "https")},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert site.ask(target, "POST", **given).status == 403, given
    assert site.ask("/api/runs", "POST").status == 501 and site.ask(target, "PUT").status == 501
    assert site.get("game") == begun
    assert site.ask(target, "POST", Origin=own, Sec_Fetch_Site="same-origin").status == 200


@pytest.mark.rest
def test_searches_are_shown_as_films_show_them(game):
    """In the other seat, where the agent begins; its search has eight simulations, as in its training."""
    page = seated(game, seat="1", simulations=None)
    [first] = page.game()["moves"]
    assert page.game()["about"] == "TicTacToe-v0: you are seat 1, alphazero is seat 0, 8 simulations"
    assert sum(visits for _, visits in first["visits"]) == 8 and -1 <= first["value"] <= 1
    most = [visits for _, visits in first["visits"]]
    assert most == sorted(most, reverse=True) and first["action"] in dict(first["visits"])


def test_one_move_at_a_time():
    """While the agent computes the game stands where it did, and nothing else can be asked for."""
    begun, go_on = threading.Event(), threading.Event()
    view = games.View(np.zeros(3), np.ones(2, bool), np.ones(2, bool))
    space = spaces.Box(0, 1, (3,), np.dtype(float))
    agent = SimpleNamespace(
        saved={"env": "own:game", "algo": "a2c"}, env=SimpleNamespace(observation_space=space), simulations=None
    )

    class Slow:
        seat = 0

        def compile(self):
            pass

        def begin(self):
            return games.Turn(view, [], None)

        def move(self, chosen):
            begun.set()
            assert go_on.wait(60)
            return games.Turn(view, [games.Answer(1, ())], -1)

    Slow.agent = agent
    page = playing.OnPage(Slow())
    page.begin()
    before = page.game()
    assert (before["words"], before["cells"], before["others"]) == ("0 0 0", [], [0, 1])
    thread = threading.Thread(target=page.play, args=("0", "0"), daemon=True)
    thread.start()
    assert begun.wait(60) and page.game() == before
    with pytest.raises(ConfigError, match="^the agent has not answered yet$"):
        page.play("0", "new")
    go_on.set()
    thread.join()
    assert [each["action"] for each in page.game()["moves"]] == [0, 1] and page.game()["result"] == "a2c wins"


def test_the_page_is_served_once_all_is_known(game, site, monkeypatch, capsys):
    """What is wrong is said before anything compiles."""
    port = site.server.server_address[1]
    monkeypatch.setattr(games.Games, "compile", lambda self: pytest.fail("compiled"))
    for args, words in (
        (["--port", "9000"], "port = 9000: has no effect without page"),
        (["--open"], "open = True: has no effect without page"),
        (["--page", "--port", port], f"port = {port}: is not available (Address already in use); --port 0"),
        (["--page", "--port", "65536"], "port = 65536: must lie in [0, 65536)"),
    ):
        run("play", game, *args, expect=2)
        assert capsys.readouterr().err.startswith(f"purerl: error: {words}")
    monkeypatch.undo()
    monkeypatch.setattr("socketserver.BaseServer.serve_forever", lambda self: None)
    shown = answered(monkeypatch, capsys, [], game, "--simulations", "0", "--page", "--port", "0", "--seat", "0")
    assert re.fullmatch(r"TicTacToe-v0: http://127\.0\.0\.1:\d+/#/play \(Ctrl-C ends\)\n", shown)


@pytest.mark.skipif(browser.PATH is None, reason="there is no Chromium, which pip cannot install")
def test_a_game_in_a_browser(game, site):
    with browser.opened() as page:
        page.view(1280, 900)
        page.go(site.address)
        page.wait("!document.getElementById('play').hidden")
        page.js("document.getElementById('play').click()")
        for width in (1280, 390):
            page.view(width, 844)
            page.js("document.getElementById('new')?.click()")
            page.wait("document.querySelectorAll('button.cell').length === 9")
            page.wait(f"document.documentElement.scrollWidth <= {width}")
            for move, left in ((8, 7), (7, 5)):
                page.js(f"document.querySelector('[aria-label=\"move {move}\"]').click()")
                page.wait(f"document.querySelectorAll('button.cell:not(:disabled)').length === {left}")
            page.js("document.querySelector('[aria-label=\"move 6\"]').click()")
            page.wait("document.querySelector('h1').textContent === 'you win'")
            texts = page.js("[...document.querySelectorAll('.cell')].map(x => x.textContent)")
            assert texts == ["O", "O", "2", "3", "4", "5", "X", "X", "X"]
            sizes = page.js("[...document.querySelectorAll('.cell')].map(x => x.getBoundingClientRect().width)")
            assert min(sizes) > 30 and max(sizes) - min(sizes) < 2
        assert page.errors == []


SEARCHED = {
    "place": 3,
    "about": "<b>a game</b>",
    "words": "",
    "cells": [[["X", None], [".", None]], [["O", None], ["3", 3]]],
    "others": [4],
    "moves": [
        {"who": "a2c", "action": 2, "value": -0.5, "visits": [[2, 6], [0, 2]]},
        {"who": "you", "action": 0, "value": None, "visits": []},
    ],
    "result": "",
}


@pytest.mark.skipif(browser.PATH is None, reason="there is no Chromium, which pip cannot install")
def test_a_search_in_a_browser(tmp_path):
    """The latest one is drawn; names are text, and a pass has a button beside the board."""
    answers = overview.answers(tmp_path)._replace(game=lambda: SEARCHED)
    with served(answers) as serving, browser.opened() as page:
        for width in (1280, 390):
            page.view(width, 844)
            page.go("about:blank")
            page.go(f"{asking(serving).address}#/play")
            page.wait("document.querySelectorAll('.visits > *').length === 6")
            texts = page.js("[...document.querySelectorAll('.visits > span')].map(x => x.textContent)")
            assert texts == ["2", "6", "0", "2"]
            bars = page.js("[...document.querySelectorAll('.visits > progress')].map(x => x.position)")
            assert bars == [1, pytest.approx(1 / 3)]
            said = page.js("document.body.innerText")
            assert all(words in said for words in ("for its move 2", "value \u22120.50", "<b>a game</b>", "you 0"))
            moves = page.js("[...document.querySelectorAll('button.move')].map(x => x.textContent)")
            assert moves == ["3", "4"] and page.js("document.documentElement.scrollWidth") <= width
        assert page.errors == []
