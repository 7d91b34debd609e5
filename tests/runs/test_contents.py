"""What is told of a dataset, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from purerl import spaces, trees
from purerl.errors import ConfigError
from purerl.runs.reading import contents
from purerl.store import card_files
from purerl.types import Dataset

ACTIONS = spaces.Box(np.float32([-2, -np.inf]), np.float32([2, 1]), (2,), jnp.float32)
DATA = Dataset(
    obs={"a": np.arange(5, dtype=np.float32)[:, None], "b": np.arange(5, dtype=np.int32)},
    action=np.float32([[-2, 1], [1.997, -9], [1.9, 0.5], [0, 1], [-1.9999, 2]]),
    reward=np.float32([1, 2, 3, 5, 7]),
    terminated=np.array([False, False, True, False, False]),
    truncated=np.array([False, False, False, False, True]),
    final_obs={"a": np.ones((2, 1), np.float32), "b": np.zeros(2, np.int32)},
)
POLICY = {"function": "random"}


@pytest.fixture
def path(tmp_path):
    contents.save(tmp_path / "x.safetensors", DATA, ACTIONS, "E-v0", {"size": 3}, POLICY, {"seed": 0})
    return tmp_path / "x.safetensors"


def test_numbers(path):
    """Episodes of 3 and 2 steps with returns 6 and 12. Of the first number of an action, the 1st, 2nd and 5th are
    within 0.004 of a bound; of the second, which has one bound, the 1st, 4th and 5th are at it or beyond: 6 of 10."""
    found = contents.described(path)
    expected = {"steps": 5, "episodes": 2, "truncated": 1, "missing_last": 0, "actions_at_bounds": 0.6}
    expected |= {"return_mean": 9, "return_std": 3, "return_min": 6, "return_max": 12}
    expected |= {"length_mean": 2.5, "length_std": 0.5, "length_min": 2, "length_max": 3}
    assert {name: found[name] for name in expected} == expected
    assert found["env"] == "E-v0" and found["env_params"] == {"size": 3} and found["bytes"] == path.stat().st_size
    assert [each["words"] for each in found["players"]] == ["random"]
    card, arrays = card_files.load(card_files.DATASET, path)
    assert card["action_bounds"] == {"action": [[-2, None], [2, 1]]} and found["sha256"] == card["sha256"]
    assert set(arrays) == set(trees.named_leaves(DATA))


def stored(path, card, arrays=DATA):
    whole = {"env": "E-v0", "env_params": {}, "steps": 5, "episodes": 2, "policy": POLICY, **card}
    card_files.save(card_files.DATASET, path, arrays if isinstance(arrays, dict) else trees.named_leaves(arrays), whole)


@pytest.mark.parametrize("limits", [None, {}, 7, {"action": []}, {"action": [[1], [2]]}, {"action": [["x"] * 2] * 2}])
def test_a_card_without_sound_bounds(path, limits):
    """As every card of an earlier version is."""
    stored(path, {"action_bounds": limits} if limits is not None else {})
    assert contents.described(path)["actions_at_bounds"] is None


def test_numbers_that_are_constants_do_not_count(path):
    """Of the others the first number is at a bound in 3 of 5 steps, as above."""
    stored(path, {"action_bounds": {"action": [[-2, 0.5], [2, 0.5]]}})
    assert contents.described(path)["actions_at_bounds"] == 0.6


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_parameters_that_a_card_cannot_hold(tmp_path, number):
    with pytest.raises(ConfigError, match="env_params: .* has a number that is not finite"):
        contents.save(tmp_path / "x.safetensors", DATA, ACTIONS, "E-v0", {"range": [0.7, number]}, POLICY, {})
    assert not any(tmp_path.iterdir())


def test_choices_have_no_bounds():
    assert contents.bounds({"x": spaces.Discrete(3), "y": spaces.Box(0, 3, (), jnp.int32)}) == {}
    assert contents.bounds({"y": spaces.Box(0, 1, (2,), jnp.float32)}) == {"action.y": [[0, 0], [1, 1]]}


def test_whoever_played_is_named(path):
    players = [{**POLICY, "share": 0.75, "episodes": 3, "steps": 9}]
    players += [{"run": "x", "agent": 2, "algo": "sac", "sampled": True, "share": 0.25, "episodes": 1, "steps": 2}]
    stored(path, {"policy": {"players": players}})
    assert [each["words"] for each in contents.described(path)["players"]] == ["random", "agent 2 of x (sac, sampled)"]
    for given in (None, 7, {"players": [7, {"run": ["x"]}, {"function": "\x1b[2J", "share": "?", "steps": -1}]}):
        stored(path, {"policy": given})
        assert all(each["words"].isprintable() for each in contents.described(path)["players"])
    assert contents.who({"minari": "D4RL/door/human-v2", "algo": "people"}) == "D4RL/door/human-v2 of Minari (people)"


NAMED = trees.named_leaves(DATA)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"reward": None}, "has no reward"),
        ({"terminated": np.ones(5, bool)}, "a step is both terminated and truncated"),
        ({"truncated": np.zeros(5, bool)}, "1 steps end an episode, expected 2"),
        ({"reward": np.ones(4, np.float32)}, "has 4 steps, its card says 5"),
        ({"reward": np.ones((5, 1), np.float32)}, r"reward is float32\[5, 1\]"),
        ({"reward.x": np.ones(5, np.float32)}, "'reward.x' is no array of a dataset"),
        ({"obs.a": np.ones((4, 1), np.float32)}, r"obs.* is float32\[4, 1\]"),
        ({"final_obs.a": np.ones((2, 2), np.float32)}, r"float32\[2, 2\], expected float32\[2, 1\]"),
        ({"final_obs.b": None}, "another structure"),
        ({"more": np.ones(5, np.float32)}, "'more' is no array of a dataset"),
        ({"obs.a": jnp.ones((5, 1), jnp.bfloat16)}, r"'obs.a' is BF16\[5, 1\], which numpy has no dtype for"),
    ],
)
def test_what_are_no_episodes(path, changed, line):
    stored(path, {}, {name: x for name, x in {**NAMED, **changed}.items() if x is not None})
    with pytest.raises(ConfigError, match=line) as raised:
        contents.described(path)
    assert all(each.startswith(str(path)) for each in str(raised.value).splitlines())
