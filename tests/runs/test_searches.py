"""Evaluations, films, recordings, exports and functions of an agent that searches: how many simulations, told where."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run, untrained
from PIL import Image

import purerl
from purerl import ConfigError, envs
from purerl.display import words
from purerl.learners.parts import planning
from purerl.runs.reading import episodes, loading, overview
from purerl.types import Situation

REFUSED = "simulations = 3: dqn does not search; omit it"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose agent searches with 2 simulations, and one whose agent does not; both have parameters of 0."""
    folder = tmp_path_factory.mktemp("searches")
    untrained(folder / "game", "alphazero", "TicTacToe-v0", simulations=2, n_step=8)
    summary = {"return_per_seed": [0.0], "alive_per_seed": [True], "simulations": 2}
    (folder / "game/summary.json").write_text(json.dumps(summary))
    (folder / "game/config.json").write_text(json.dumps({"options": {"eval_episodes": 2}}))
    untrained(folder / "plain", "dqn", "TicTacToe-v0")
    return folder


def last(env, moves):
    """The state and the observations ``[2, ...]`` after these moves by turns, of which agent 0 makes the first."""
    state, obs = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    for move in moves:
        state, made = step(env.noise(jax.random.key(1), ()), state, jnp.array([move, move]))
        obs = made.next_obs
    return state, obs


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["eval", "plain", "--simulations", "3"], REFUSED),
        (["record", "plain", "--simulations", "3"], REFUSED),
        (["render", "plain", "--simulations", "3"], REFUSED),
        (["play", "plain", "--simulations", "3"], REFUSED),
        (["eval", "game", "--simulations", "-1"], "simulations = -1: must lie in [0, 2147483648)"),
        (["eval", "game", "--simulations-against", "1"], "simulations_against = 1: has no effect without against"),
        (
            ["eval", "game", "--against", "random", "--simulations-against", "1"],
            "simulations_against = 1: against = 'random' does not search; omit it",
        ),
        (
            ["record", "random", "--env", "TicTacToe-v0", "--simulations", "1"],
            "simulations = 1: random is not a run; omit --simulations",
        ),
    ],
)
def test_refused_in_a_line(args, line, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    run(*args, expect=2)
    assert capsys.readouterr().err == f"purerl: error: {line}\n"


def test_python_refuses_too(folder):
    with pytest.raises(ConfigError, match=REFUSED):
        purerl.load(folder / "plain", simulations=3)
    with pytest.raises(ConfigError, match="simulations = -1: must lie in"):
        purerl.load(folder / "game", simulations=-1)
    assert purerl.load(folder / "game").simulations == 2 and purerl.load(folder / "plain").simulations is None
    setup = purerl.load(folder / "game", simulations=7).only(0).setup
    assert setup.config.simulations == setup.members.given["config"].simulations == 7


@pytest.mark.rest
def test_each_search_has_as_many_as_were_asked_for(folder):
    """They are the visits of the root, beside those of a training; without any there is no search."""
    env = envs.make("TicTacToe-v0")
    state, obs = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 3))
    here = Situation(obs.reshape(6, -1), (), state)
    for given, number in ((None, 2), (5, 5)):
        agent = loading.agent(folder / "game", 0, simulations=given)
        search = jax.jit(agent.learner.search, static_argnums=3)
        found: planning.Planned = search(agent.policy, here, jax.random.key(2), False)[2]
        np.testing.assert_array_equal(found.visits.sum(axis=-1), [number] * 3)
        assert agent.simulations == number
    assert loading.agent(folder / "game", 0, simulations=0).learner.search is None


@pytest.mark.rest
def test_whatever_shows_results_says_how_many(folder, capsys, tmp_path):
    shown = lambda *args: (capsys.readouterr(), run(*args), capsys.readouterr().out)[-1]
    sides = "--against", folder / "game", "--simulations", "3", "--simulations-against", "0"
    result = json.loads(shown("eval", folder / "game", *sides, "--episodes", "2", "--json"))
    assert (result["simulations"], result["simulations_against"]) == (3, 0)
    assert words.simulations(result) == ", 3 simulations, 0 of the opponents"
    title = " ".join(shown("eval", folder / "game", "--against", folder / "plain", "--episodes", "2").split())
    assert "means of 2 episodes, 2 simulations ┏" in title  # the opponent does not search
    out = tmp_path / "play.safetensors"
    card = json.loads(shown("record", folder / "game", "--episodes", "2", "--simulations", "1", "--out", out, "--json"))
    assert card["policy"]["simulations"] == 1
    assert " of TicTacToe-v0, 1 simulation, " in episodes.recorded_in_words(str(out), card)
    film = shown("render", folder / "game", "--size", "64")
    assert film.endswith(", 2 simulations\n")
    page = overview.answers(folder).run("game")
    assert page["filmed"]["film.gif"].endswith(", 2 simulations") and page["searched"] == ", 2 simulations"
    with Image.open(folder / "game/film.gif") as searched:
        assert searched.size == (52 + 32, 64)  # the board, and the search beside it


@pytest.mark.rest
def test_exports_are_the_network(folder, capsys, tmp_path):
    """Also of the best agent, whose return is that of the network; its card has no other."""
    run("export", folder / "game", "--to", "numpy", "--agent", "best", "--out", tmp_path / "policy")
    told = " ".join(capsys.readouterr().err.split())
    assert "by the mean return of the final evaluation, 2 simulations, 0.00" in told
    assert "what is exported is the network alone" in told and "in 2 other episodes, 0 simulations" in told
    assert json.loads((tmp_path / "policy/policy.json").read_text())["simulations"] == 0


@pytest.mark.rest
def test_acting_searches_where_it_is_given_the_state(folder, capsys):
    """Where agent 0 can win by cell 8, a search finds it; the network alone takes the first free cell."""
    env = envs.make("TicTacToe-v0", draw_seats=0)
    state, obs = last(env, [2, 3, 5, 4])
    act = purerl.acting(folder / "game", simulations=64)
    alone = act(obs)
    assert alone[0] == act(obs[0]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["alphazero acts by its network alone; with act(obs, env_state=...) it searches"]
    assert act(obs, env_state=state)[0] == 8
    both = jax.tree.map(lambda *x: np.stack(x), *[(state, obs)] * 3)
    many = act(both[1], env_state=both[0])
    assert many.shape == (3, 2) and set(many[:, 0]) == {8}
    for wrong, of in ((obs[0], state), (both[1], state), (obs, both[0]), (obs, obs)):
        with pytest.raises(ConfigError, match="^obs: with env_state must|^env_state: must be a state as"):
            act(wrong, env_state=of)
    none = purerl.acting(folder / "game", simulations=0)
    assert none(obs)[0] == none(obs, env_state=state)[0] == 0 and not capsys.readouterr().err
    with pytest.raises(ConfigError, match="env_state: dqn does not search in the environment"):
        purerl.acting(folder / "plain")(obs, env_state=state)
