"""How players share episodes: the method of largest remainders, by hand."""

from fractions import Fraction

import pytest

from purerl.errors import ConfigError
from purerl.runs.reading.shares import parts


@pytest.mark.parametrize(
    ("shares", "episodes", "expected"),
    [
        (["0.9", "0.1"], 20, [18, 2]),
        (["9", "1"], 20, [18, 2]),  # relative to their sum
        ([".5", "0.3", "0.2"], 7, [4, 2, 1]),  # 3.5, 2.1 and 1.4: one is left, and the first lost most
        (["1", "1", "1"], 20, [7, 7, 6]),  # all lost two thirds: the first two
        (["0.1", "0.2", "0.7"], 10, [1, 2, 7]),  # exactly, where floats give 0.99..., 2.00... and 6.99...
        (["0.35", "0.35", "0.3"], 10, [4, 3, 3]),
    ],
)
def test_shares_of_episodes(shares, episodes, expected):
    found = parts([f"policy {i}={share}" for i, share in enumerate(shares)], episodes)
    assert [part.episodes for part in found] == expected and sum(part.share for part in found) == 1
    assert [part.name for part in found] == [f"policy {i}" for i in range(len(shares))]


def test_one_player_needs_no_share(tmp_path):
    assert parts(["random"], 3) == parts(["random=0.2"], 3) == [("random", Fraction(1), 3)]
    (tmp_path / "lr=0.1").mkdir()  # a run directory
    ran = str(tmp_path / "lr=0.1")
    assert parts([ran], 3)[0].name == ran
    assert [part.name for part in parts([f"{ran}=1", "random=2"], 3)] == [ran, "random"]


@pytest.mark.parametrize(
    ("who", "line"),
    [
        ([], "who: is missing"),
        (["random", "runs/x=0.1"], "who = 'random': has no share"),
        (["random=0", "runs/x=1"], "who = 'random=0': its share must be above 0"),
        (["random=0"], "who = 'random=0': its share must be above 0"),
        (["random=0.99", "runs/x=0.01"], "its share of 20 episodes is 0.2, which gives none of them"),
        (["random=nan", "runs/x=1"], "who = 'random=nan': has no share"),
        (["random=-1", "runs/x=1"], "who = 'random=-1': has no share"),
    ],
)
def test_refused(who, line):
    with pytest.raises(ConfigError, match=line):
        parts(who, 20)
