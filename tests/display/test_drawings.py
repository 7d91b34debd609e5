"""Films: what is drawn of a state, what is written, and an agent of a run from the command line."""

import json
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from purerl import cli, envs, spaces
from purerl.algos import ALGORITHMS
from purerl.display import drawings, films
from purerl.display.drawings import Moment, bodies, grids, sheet
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.runs.description import Setup, describe
from purerl.runs.options import TrainOptions
from purerl.store.policies import save_policy

SIZE = 96
NO_PICTURE = spaces.Discrete(2)


def frame(name, state, obs=(), action=0):
    return drawings.drawing(name, {}, NO_PICTURE).frame(Moment(state, obs, np.asarray(action)), SIZE)


def where(picture, colour):
    """Rows and columns of the pixels of nearly this colour, as their mean."""
    near = np.abs(picture.astype(int) - sheet.rgb(colour)).sum(axis=-1) < 30
    assert near.any()
    return np.argwhere(near).mean(axis=0)


@pytest.mark.parametrize("name", list(drawings.OF_STATES))
def test_every_drawing_is_of_an_environment(name):
    known = {each.removeprefix("gymnax/") for each in envs.names()}
    known |= {"brax/" + each.rpartition("/")[2] for each in known if each.startswith("brax/")}
    assert name in known


@pytest.mark.parametrize(
    ("name", "state", "action"),
    [
        ("CartPole-v1", [0.1, 0, 0.1, 0], 1),
        ("Acrobot-v1", [0.1, 0.2, 0, 0], 2),
        ("Pendulum-v1", [0.1, 0], [1.0]),
        ("MountainCarContinuous-v0", [-0.5, 0], [0.3]),
        ("MountainCar-v0", [-0.5, 0], 0),
        ("TwoStep-v0", 1, [0, 1]),
        ("MatrixGame-v0", None, [0, 1]),
        ("Permutation-v0", None, [0, 2, 1]),
        ("DeepSea-v0", {"row": 2, "column": 1}, 0),
        ("CueCorridor-v0", {"cell": 3, "cue": 1}, 1),
        ("NoisyGrid-v0", {"place": np.array([2, 3]), "screen": np.arange(8) / 8}, 3),
        ("Landmarks-v0", {"agents": np.array([[0, 0], [4, 4]]), "landmarks": np.array([[1, 1], [2, 3]])}, [1, 2]),
        ("TicTacToe-v0", {"marks": np.eye(2, 9, dtype=bool), "mover": 0}, [5, 0]),
        ("KuhnPoker-v0", {"cards": np.array([0, 2]), "first": 1, "history": 2}, [1, 0]),
        ("FourRooms-misc", {"pos": np.array([1, 1]), "goal": np.array([8, 9])}, 1),
        ("FrozenLake-misc", {"position": 4}, 2),
    ],
)
def test_drawings_show_the_state(name, state, action):
    given = SimpleNamespace(**state) if isinstance(state, dict) else np.asarray(state)
    picture = frame(name, given, action=action)
    assert picture.dtype == np.uint8 and picture.shape[0] == SIZE and len(np.unique(picture.reshape(-1, 3), axis=0)) > 2


def test_carts_stand_where_they_are_and_poles_lean():
    left, right = (frame("CartPole-v1", np.array([x, 0, lean, 0])) for x, lean in ((-1.2, -0.2), (1.2, 0.2)))
    middle = left.shape[1] / 2
    assert where(left, sheet.INK)[1] < middle < where(right, sheet.INK)[1]
    assert where(left, sheet.ORANGE)[1] < where(left, sheet.SKY)[1]
    assert where(right, sheet.ORANGE)[1] > where(right, sheet.SKY)[1]


def test_agents_stand_in_their_cells():
    state = SimpleNamespace(agents=np.array([[0, 0], [4, 4]]), landmarks=np.array([[0, 4], [4, 0]]))
    picture = frame("Landmarks-v0", state, action=[0, 0])
    assert (where(picture, sheet.BLUE) < SIZE / 4).all() and (where(picture, sheet.RED) > 3 * SIZE / 4).all()


def test_what_policies_see_is_drawn_where_nothing_else_is():
    space = spaces.Box(False, True, (4, 8, 2), jnp.dtype(bool))
    obs = np.zeros((4, 8, 2), bool)
    obs[0, 0, 0] = obs[3, 7, 1] = True
    picture = drawings.drawing("anything", {}, space).frame(Moment(None, obs, 0), SIZE)
    assert picture.shape == (SIZE, 2 * SIZE, 3)
    np.testing.assert_allclose(where(picture, sheet.PALETTE[0]), [SIZE / 8, SIZE / 8], atol=4)
    np.testing.assert_allclose(where(picture, sheet.PALETTE[1]), [7 * SIZE / 8, 15 * SIZE / 8], atol=4)
    stacked = space._replace(shape=(4, 8, 4), num_frames=2)
    newest = np.concatenate([np.zeros_like(obs), obs], axis=-1)
    again = drawings.drawing("anything", {}, stacked).frame(Moment(None, newest, 0), SIZE)
    np.testing.assert_array_equal(again, picture)
    with pytest.raises(ConfigError, match="has no drawing"):
        drawings.drawing("anything", {}, spaces.Box(0, 1, (7,), jnp.float32))


def test_planes_mix_from_paper_to_their_colour():
    planes = np.array([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]])
    [row] = grids.colours_of(planes, ("#ff0000", "#00ff00"))
    np.testing.assert_array_equal(row, [sheet.rgb(sheet.PAPER), [255, 0, 0], [0, 255, 0]])


def test_rotations_of_bodies_are_those_of_matrices():
    rng = np.random.default_rng(0)
    one, two = (turn / np.linalg.norm(turn) for turn in rng.normal(size=(2, 4)))

    def matrix(turn):
        w, x, y, z = turn
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )

    point = rng.normal(size=3)
    np.testing.assert_allclose(bodies.rotated(one, point), matrix(one) @ point)
    np.testing.assert_allclose(bodies.rotated(bodies.product(one, two), point), matrix(one) @ matrix(two) @ point)


def pictures(count=5):
    return [np.full((20, 30, 3), 40 * i, np.uint8) for i in range(count)]


def test_gif_and_page_hold_every_picture(tmp_path):
    films.write(tmp_path / "a.gif", pictures(), [""] * 5, fps=10)
    with Image.open(tmp_path / "a.gif") as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (5, (30, 20), 100)
        film.seek(4)
        assert np.abs(np.asarray(film.convert("RGB")).astype(int) - 160).max() < 8
    films.write(tmp_path / "a.gif", pictures()[:1], [""], fps=1e-4)  # slower than a GIF can be
    films.write(tmp_path / "a.html", pictures(), [f"step {i} <b>" for i in range(5)], fps=10)
    page = (tmp_path / "a.html").read_text()
    assert page.count("data:image/png;base64,") == 5 and "step 4 &lt;b&gt;" in page and "100.0" in page
    assert "http" not in page and "@" not in page.replace("@media", "")


def test_mp4_is_written_by_ffmpeg_or_refused_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(films.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ConfigError, match=r"needs ffmpeg; pip install 'purerl\[film\]'"):
        films.write(tmp_path / "a.mp4", pictures(), [""] * 5, fps=10)
    monkeypatch.setattr(films.shutil, "which", lambda name: "/bin/ffmpeg")
    told = []

    def ran(command, input, **_):
        told.extend([command, input])
        return subprocess.CompletedProcess(command, 0, b"film", b"")

    monkeypatch.setattr(films.subprocess, "run", ran)
    films.write(tmp_path / "a.mp4", pictures(), [""] * 5, fps=10)
    assert (tmp_path / "a.mp4").read_bytes() == b"film"
    assert "30x20" in told[0] and len(told[1]) == 5 * 20 * 30 * 3


def run(*args, expect=0):
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    assert stop.value.code == expect


@pytest.fixture(scope="module")
def corridor(tmp_path_factory):
    """A run directory with a policy that was not trained, in an environment behind a transform."""
    params = {"depth": 4, "sticky_actions": 0.1}
    config = ALGORITHMS["ppo"].Config(hidden_sizes=(4,), num_envs=2)
    description = describe("ppo", TrainOptions(env="DeepSea-v0"), config, params)
    setup = Setup.of(description)
    learner, env = setup.make_learner(config=config), setup.make_env()
    fresh = jax.vmap(lambda key: learner.policy(learner.init(key, fleet(env, 2).reset(key)[1])))
    directory = tmp_path_factory.mktemp("render") / "run"
    directory.mkdir()
    save_policy(directory, fresh(setup.members.keys), {**description._asdict(), "members": 1})
    return directory


def test_an_agent_is_filmed_for_its_episodes(corridor, capsys):
    run("render", str(corridor), "--episodes", "2", "--fps", "5", "--size", "64")
    with Image.open(corridor / "film.gif") as film:
        assert film.size == (64, 64)
    told = capsys.readouterr().out
    assert "16 frames, return" in told  # 4 steps, and 4 that the last one stays, of each episode
    run("render", str(corridor), expect=2)
    assert "--overwrite replaces it" in capsys.readouterr().err
    run("render", str(corridor), "--max-steps", "3", "--out", str(corridor / "film.html"), "--fps", "5")
    page = (corridor / "film.html").read_text()
    assert "step 2" in page and "cut off" in page and "step 3" not in page


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--out", "film.avi"], "must end in .gif, .mp4, .html"),
        (["--agent", "1", "--out", "x.gif"], "has agents 0 to 0"),
        (["--fps", "1e9", "--out", "x.gif"], "fps"),
        (["--out", "no/such/film.gif"], "must be a file in a directory that is there"),
        (["--size", "9"], "size = 9"),
    ],
)
def test_bad_input(args, words, corridor, capsys):
    run("render", str(corridor), *args, expect=2)
    assert words in capsys.readouterr().err
    assert json.loads((corridor / "policy.json").read_text())["env"] == "DeepSea-v0"
