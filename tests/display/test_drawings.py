"""Films: what is drawn of a state, what is written, and an agent of a run from the command line."""

import base64
import itertools
import json
import sys
import weakref
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from commands import run
from PIL import Image

from purerl import envs, spaces
from purerl.algos import ALGORITHMS
from purerl.catalogue import EXTRAS, is_installed
from purerl.display import drawings, films
from purerl.display.drawings import Moment, bodies, grids, libraries, sheet
from purerl.display.films import Picture
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.runs.describing.description import Setup, describe
from purerl.runs.describing.options import TrainOptions
from purerl.runs.reading import filmed
from purerl.store.policies import save_policy

SIZE = 96
NO_PICTURE = spaces.Discrete(2)


def frame(name, state, obs=(), action=0):
    """The picture before an action; that of an episode's last state, without one, is drawn as well."""
    drawing = drawings.drawing(name, {}, NO_PICTURE)
    last = drawing.frame(Moment(state, obs, None), SIZE)
    picture = drawing.frame(Moment(state, obs, np.asarray(action)), SIZE)
    assert last.shape == picture.shape
    return picture


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
        (
            "Obstacles-v0",
            {"place": [0.2, 0.3], "goal": [0.9, 0.9], "middles": np.eye(2) / 2, "radii": [0.1, 0.0]},
            [1.0, -1.0],
        ),
        ("TwoStep-v0", 1, [0, 1]),
        ("MatrixGame-v0", None, [0, 1]),
        ("Permutation-v0", None, [0, 2, 1]),
        ("DeepSea-v0", {"row": 2, "column": 1}, 0),
        ("CueCorridor-v0", {"cell": 3, "cue": 1}, 1),
        ("NoisyGrid-v0", {"place": np.array([2, 3]), "screen": np.arange(8) / 8}, 3),
        ("Maze-v0", {"walls": np.eye(21, dtype=bool).ravel(), "goal": 150, "place": 200, "direction": 1}, 2),
        ("Landmarks-v0", {"agents": np.array([[0, 0], [4, 4]]), "landmarks": np.array([[1, 1], [2, 3]])}, [1, 2]),
        ("CoinGame-v0", {"agents": np.array([0, 8]), "coins": np.array([4, 4])}, [0, 3]),
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
    for cells, first, last in (([0, 8], sheet.BLUE, sheet.RED), ([8, 0], sheet.RED, sheet.BLUE)):
        state = SimpleNamespace(agents=np.array(cells), coins=np.array(cells))  # each where its own coin is
        picture = frame("CoinGame-v0", state, action=[0, 1])
        assert (where(picture, first) < SIZE / 3).all() and (where(picture, last) > 2 * SIZE / 3).all()


def test_agents_of_mazes_see_what_lies_ahead():
    """The agent in the middle of 13 x 13 cells, looking each way: what it sees lies there, and the goal where it is."""
    stride, margin, cell = 21, 4, SIZE / 13
    walls = np.pad(np.zeros((13, 13), bool), margin, constant_values=True).ravel()
    middle, goal = (stride * (row + margin) + column + margin for row, column in ((6, 6), (12, 0)))
    for direction, (down, right) in enumerate([(0, 1), (1, 0), (0, -1), (-1, 0)]):
        state = SimpleNamespace(walls=walls, goal=goal, place=middle, direction=direction)
        picture = frame("Maze-v0", state)
        np.testing.assert_allclose(where(picture, sheet.GREEN), [12.5 * cell, 0.5 * cell], atol=4)
        seen = where(picture, grids.SEEN) - SIZE / 2
        np.testing.assert_allclose(seen, [2.2 * cell * down, 2.2 * cell * right], atol=0.35 * cell)


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


def test_a_plane_that_is_the_same_everywhere_covers_no_other():
    """Of ones, of 255, or by turns: as if it were not there; walls that never change are drawn."""
    space = spaces.Box(0, 255, (3, 4, 3), jnp.float32)
    board, walls = np.zeros((3, 4)), np.zeros((3, 4))
    walls[2], frames = 1, []
    for constant in ([0, 0, 0], [1, 1, 1], [255, 255, 255], [0, 1, 0], [0.5, 0.25, 1]):
        drawing, pictures = drawings.drawing("anything", {}, space), []
        for place, value in enumerate(constant):
            now = board.copy()
            now[0, place] = 1
            obs = np.stack([now, walls, np.full((3, 4), value)], axis=-1)
            pictures.append(drawing.frame(Moment(None, obs, 0), SIZE))
        frames.append(pictures)
    for pictures in frames:
        np.testing.assert_array_equal(pictures, frames[0])
    assert {tuple(colour) for colour in frames[0][1][[SIZE // 6, -SIZE // 6], SIZE * 3 // 8]} == {
        tuple(sheet.rgb(colour)) for colour in sheet.PALETTE[:2]
    }


def test_each_plane_has_its_own_range_and_a_photo_none():
    small, large = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    small[0, 0] = large[0, 0] = [0, 1]
    small[1, 1] = large[1, 1] = [1, 0]
    large[..., 1] *= 1000
    space = spaces.Box(0, 1000, (2, 2, 2), jnp.float32)
    one, other = (drawings.drawing("x", {}, space).frame(Moment(None, obs, 0), SIZE) for obs in (small, large))
    np.testing.assert_array_equal(one, other)
    photo = spaces.Box(0, 255, (2, 2, 3), jnp.uint8)
    grey = drawings.drawing("x", {}, photo).frame(Moment(None, np.full((2, 2, 3), 90, np.uint8), 0), SIZE)
    assert (grey[SIZE // 2, SIZE // 2] == 90).all() and (grey[SIZE // 4, SIZE // 4] == 90).all()
    one_plane = spaces.Box(0, 255, (2, 2), jnp.uint8)  # nothing to cover, nothing to tell apart
    drawings.drawing("x", {}, one_plane).frame(Moment(None, np.full((2, 2), 200, np.uint8), 0), SIZE)


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


class Shown(NamedTuple):
    """A state that shows itself, as those of pgx do."""

    column: np.ndarray

    def to_svg(self, color_theme):
        assert isinstance(self.column, jax.Array)  # some of pgx' viewers index and update their states
        square = f'<rect x="{10 * int(self.column)}" width="10" height="10" fill="{sheet.BLUE}"/>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="10">{square}</svg>'

    @property
    def current_player(self):
        return 1


class Game:
    """A game of pgx for two, whose actions are columns."""

    num_players = 2

    def step(self, state, action, key):
        return Shown(state.column + action)


def test_libraries_draw_their_own_states(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgx", SimpleNamespace(make=lambda task: Game()))
    drawing = drawings.drawing("pgx/some_game", {"max_steps": 3}, NO_PICTURE)
    for column in (0, 2):
        moment = Moment((Shown(np.array(column)), ()), (), None)
        picture = drawing.frame(moment, SIZE)
        assert picture.shape == (SIZE, 3 * SIZE, 3)
        np.testing.assert_allclose(where(picture, sheet.BLUE), [SIZE / 2, SIZE * (column + 0.5)], atol=1)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(ConfigError, match=r"needs resvg-py to be drawn; pip install 'purerl\[pgx\]'"):
        drawings.drawing("pgx/some_game", {}, NO_PICTURE)


LINKED = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


@pytest.mark.parametrize("size", ['width="40" height="20"', 'viewBox="0 0 40 20"'])
def test_pictures_within_a_picture(size):
    """A disc in 40 by 20 that fills a square of 10 by 10 as well as it can, then twice as large and higher by 2."""
    disc = f'<svg {LINKED} {size}><circle cx="20" cy="10" r="8"/></svg>'
    data = base64.b64encode(disc.encode()).decode()
    image = f'<image x="5" width="10" height="10" xlink:href="data:image/svg+xml;base64,{data}"/>'
    group = f'<g transform="translate(0 -2) scale(2)">{image}</g>'
    picture = libraries.drawn(f'<svg {LINKED} width="40" height="20">{group}</svg>', 160)
    assert picture.shape == (160, 320, 3) and picture.dtype == np.uint8
    y, x = (np.indices((160, 320)) + 0.5) / 8
    distance = np.hypot(x - 20, y - 8) - 4
    assert (picture[distance < -0.2] == 0).all() and (picture[distance > 0.2] == 255).all()


def test_words_of_a_picture():
    """Letters of Courier are all as wide as each other, others are not, and shogi's notation has its sign."""

    def end(font, words):
        text = f'<text y="15" font-size="10" font-family="{font}">{words}</text>'
        picture = libraries.drawn(f'<svg {LINKED} width="40" height="20">{text}</svg>', 160)
        return np.flatnonzero((picture < 128).any(axis=(0, 2)))[-1]

    assert end("Courier", "ii+") == end("Courier", "MM+") and end("Serif", "ii+") + 40 < end("Serif", "MM+")
    assert end("serif", "P") + 20 < end("serif", "P⁺")


def test_viewers_change_no_backend():
    before = matplotlib.get_backend(auto_select=False)
    matplotlib.use("svg")
    try:
        with libraries.windowless():
            assert matplotlib.get_backend().lower() == "agg"
        assert matplotlib.get_backend() == "svg"
    finally:
        matplotlib.use(before or "Agg")


@pytest.mark.parametrize(
    "name", ["pgx/tic_tac_toe", "jumanji/Snake-v1", "jumanji/Maze-v0", "xminigrid/MiniGrid-Empty-5x5"]
)
def test_extras_draw_their_own_states(name):
    """Of Jumanji's viewers that of the maze alone needs arrays of JAX."""
    if not is_installed(family := name.partition("/")[0]):
        pytest.skip(f"{EXTRAS[family]} is an extra: pip install 'purerl[{family}]'")
    env = envs.make(name)
    state, obs = jax.device_get(jax.jit(env.reset)(jax.random.key(0)))
    picture = frame(name, drawings.innermost(state), obs)
    assert picture.shape == (SIZE, SIZE, 3) and len(np.unique(picture.reshape(-1, 3), axis=0)) > 2


def test_what_is_very_wide_becomes_less_high():
    wide = sheet.Sheet(1.0, SIZE)
    wide.photo(np.full((10, 160, 3), sheet.rgb(sheet.BLUE)))
    picture = wide.picture()
    assert picture.shape == (SIZE, sheet.WIDEST * SIZE, 3) and (picture[0, 0] == sheet.rgb(sheet.PAPER)).all()
    blue = (picture == sheet.rgb(sheet.BLUE)).all(axis=-1)
    assert blue.mean() == pytest.approx(sheet.WIDEST / 16, abs=0.03) and blue[SIZE // 2].all()


def pictures(count=5, stays=1):
    """Grey pictures, in each of which one square is of a colour of its own."""
    for i in range(count):
        frame = np.full((20, 30, 3), 100 + 20 * (i // 3 % 5), np.uint8)
        frame[5:9, 2 + 4 * i : 6 + 4 * i] = 50 * i % 256, 200, 0
        yield Picture(frame, f"step {i} <b>", stays if i == count - 1 else 1)


def test_gif_holds_every_picture(tmp_path):
    assert films.write(tmp_path / "a.gif", pictures(stays=3), fps=10) == 5
    with Image.open(tmp_path / "a.gif") as film:
        assert (film.n_frames, film.size, film.info["loop"]) == (5, (30, 20), 0)
        for i, picture in enumerate(pictures()):
            film.seek(i)
            np.testing.assert_array_equal(np.asarray(film.convert("RGB")), picture.frame)
            assert film.info["duration"] == (300 if i == 4 else 100)
    assert films.write(tmp_path / "a.gif", pictures(1), fps=1e-4) == 1  # slower than a GIF can be
    assert films.write(tmp_path / "a.gif", pictures(stays=12), fps=200) == 2  # every fourth of 16
    with Image.open(tmp_path / "a.gif") as film:
        film.seek(1)
        assert film.info["duration"] == 60 and np.asarray(film.convert("RGB"))[6, 19].tolist() == [200, 200, 0]


def test_pages_hold_every_picture(tmp_path):
    assert films.write(tmp_path / "a.html", pictures(stays=3), fps=10) == 5
    page = (tmp_path / "a.html").read_text()
    assert page.count("data:image/png;base64,") == 5
    assert '["step 4 &lt;b&gt;", 3]' in page and "100.0" in page
    assert "http" not in page and "@" not in page.replace("@media", "")


@pytest.mark.parametrize("ending", films.ENDINGS)
def test_pictures_are_not_kept(ending, tmp_path, monkeypatch, encoder):
    monkeypatch.setattr(films, "_encoder", lambda: str(encoder))
    made = []

    def counted():
        for picture in pictures(30):
            assert sum(each() is not None for each in made) <= 3
            made.append(weakref.ref(picture.frame))
            yield picture
            del picture

    assert films.write(tmp_path / f"a{ending}", counted(), fps=10) == len(made) == 30


@pytest.fixture
def encoder(tmp_path):
    """What stands for ffmpeg: its input becomes its last argument."""
    script = tmp_path / "ffmpeg"
    script.write_text('#!/bin/sh\necho "$@" > "$0.told"\nfor last; do :; done\ncat > "$last"\n')
    script.chmod(0o755)
    return script


def test_mp4_is_written_by_ffmpeg_or_refused_with_a_line(tmp_path, monkeypatch, encoder):
    monkeypatch.setattr(films.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ConfigError, match=r"needs ffmpeg; pip install 'purerl\[film\]'"):
        films.write(tmp_path / "a.mp4", pictures(), fps=10)
    monkeypatch.setattr(films.shutil, "which", lambda name: str(encoder))
    assert films.write(tmp_path / "a.mp4", pictures(stays=3), fps=10) == 5
    frames = [picture.frame.tobytes() for picture in pictures()]
    assert (tmp_path / "a.mp4").read_bytes() == b"".join([*frames, frames[-1], frames[-1]])
    assert "30x20 -r 10" in (tmp_path / "ffmpeg.told").read_text()
    encoder.write_text("#!/bin/sh\necho that is no film >&2\nexit 3\n")
    with pytest.raises(ConfigError, match="that is no film"):
        films.write(tmp_path / "a.mp4", pictures(500), fps=10)
    assert len((tmp_path / "a.mp4").read_bytes()) == 7 * len(frames[0])  # as it was


@pytest.fixture(scope="module")
def corridor(tmp_path_factory):
    """A run directory with a policy that was not trained, in an environment behind a transform."""
    config = ALGORITHMS["ppo"].Config(hidden_sizes=(4,), num_envs=2)
    options = TrainOptions(env="DeepSea-v0", env_params=("depth=4", "sticky_actions=0.1"))
    description = describe("ppo", options, config)
    setup = Setup.of(description)
    learner, env = setup.make_learner(config=config), setup.make_env()
    fresh = jax.vmap(lambda key: learner.policy(learner.init(key, fleet(env, 2).reset(key)[1])))
    directory = tmp_path_factory.mktemp("render") / "run"
    directory.mkdir()
    save_policy(directory, fresh(setup.members.keys), {**description.fields, "members": 1})
    return directory


@pytest.mark.rest
def test_an_agent_is_filmed_for_its_episodes(corridor, capsys):
    run("render", str(corridor), "--episodes", "2", "--fps", "5", "--size", "64")
    with Image.open(corridor / "film.gif") as film:
        assert film.size == (52, 64)  # the drawing, and a caption below it
        captions = []
        for i in range(film.n_frames):
            film.seek(i)
            captions.append(np.asarray(film.convert("L"))[52:].astype(int))
    assert all(np.ptp(caption) > 60 for caption in captions)  # ink on paper
    assert all((a != b).any() for a, b in itertools.pairwise(captions[:5]))  # another step and return
    output = capsys.readouterr().out
    assert "10 frames, returns " in output  # 4 steps of each episode, and the state that it ends in
    told = json.loads((corridor / "films.json").read_text())["film.gif"]["episodes"]
    assert [(episode["steps"], episode["end"]) for episode in told] == [(4, "terminated")] * 2
    each = "; ".join(f"{episode['returns'][0]:.5g}" for episode in told)
    assert filmed.read(corridor, ["film.gif"]) == {"film.gif": f"agent 0, returns {each}"}
    assert f"returns {each}\n" in output
    run("render", str(corridor), expect=2)
    assert "--overwrite replaces it" in capsys.readouterr().err
    run("render", str(corridor), "--max-steps", "3", "--out", str(corridor / "film.html"), "--fps", "5")
    page = (corridor / "film.html").read_text()
    assert "step 2" in page and "cut off after 3 steps, return" in page and "step 3" not in page


@pytest.mark.rest("args0-must end in .gif, .mp4, .html")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--out", "film.avi"], "must end in .gif, .mp4, .html"),
        (["--agent", "1", "--out", "x.gif"], "has agents 0 to 0"),
        (["--fps", "1e9", "--out", "x.gif"], "fps"),
        (["--out", "no/such/film.gif"], "must be a file in an existing directory"),
        (["--size", "9"], "size = 9"),
    ],
)
def test_bad_input(args, words, corridor, capsys):
    run("render", str(corridor), *args, expect=2)
    assert words in capsys.readouterr().err
    assert json.loads((corridor / "policy.json").read_text())["env"] == "DeepSea-v0"
