"""Spaces, observations and actions of Gymnasium as a `HostEnv` has them, and back."""

from collections import OrderedDict

import gymnasium
import host_envs
import jax
import numpy as np
import pytest
from gymnasium import spaces

from purerl.errors import ConfigError
from purerl.hosts import leaves, moves, opening
from purerl.hosts.bundle import packed
from purerl.hosts.gymnasium import single
from purerl.hosts.rows import host_env
from purerl.hosts.singles import mask_of
from purerl.hosts.sound import InvalidData

DEEP = spaces.Dict(
    {
        "z": spaces.Discrete(4, start=-2),
        "a": spaces.Tuple([spaces.Box(-1, 1, (2, 3), np.float64), spaces.MultiBinary(4)]),
        "m": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 7]]),
        "i": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "n": spaces.Dict({"y": spaces.Box(-5, 5, (), np.int64), "b": spaces.Box(0, 1, (2,), bool)}),
    }
)
CHOICES = spaces.Dict(
    {
        "y": spaces.Discrete(3, start=5),
        "b": spaces.Tuple([spaces.MultiDiscrete([[2, 3], [4, 5]]), spaces.MultiBinary(2)]),
    }
)


def environment(observation_space, action_space, masked=False, kind=host_envs.Nested):
    """The host environment, and the copies that its batches are made of."""
    copies = []

    def make(**more):
        copies.append(kind(observation_space, action_space, masked))
        return copies[-1]

    return host_env(single("nested", make), []), copies


def expected(obs):
    """The leaves of one observation of `DEEP`, in the order of ``jax.tree.leaves``, as they are to be seen."""
    shifted = {**obs, "z": obs["z"] + 2, "m": (obs["m"] - [[1, 1], [0, 7]]).ravel()}
    dtypes = "f4", "i1", "u1", "i4", "b1", "i4", "i4"
    order = jax.tree.leaves(shifted)
    return [np.asarray(order[k]).astype(d) for k, d in zip((0, 1, 2, 3, 4, 5, 6), dtypes, strict=True)]


def test_observations_are_leaves_in_the_order_of_jax():
    env, copies = environment(DEEP, spaces.Discrete(2))
    batch = env.batch(2)
    first = batch.reset(np.arange(2))
    turn = batch.step(np.zeros(2, int))
    for result, at in ((first, -2), (turn.next_obs, -1)):
        for row, copy in enumerate(copies):
            for leaf, target in zip(result, expected(copy.shown[at]), strict=True):
                assert leaf.dtype == target.dtype
                np.testing.assert_array_equal(leaf[row], target)
    spaces_there = jax.tree.leaves(_tree(env.observation_space), is_leaf=lambda x: isinstance(x, gymnasium.Space))
    for leaf, space in zip(first, spaces_there, strict=True):
        assert (leaf.shape[1:], leaf.dtype.itemsize) == (
            space.shape,
            4 if space.dtype == np.int64 else space.dtype.itemsize,
        )
        assert all(space.contains(np.asarray(row, space.dtype)) for row in leaf)


def _tree(space):
    if isinstance(space, spaces.Dict):
        return {key: _tree(each) for key, each in space.items()}
    return tuple(map(_tree, space)) if isinstance(space, spaces.Tuple) else space


def test_stacked_observations_have_the_same_leaves():
    shown = [DEEP.sample() for _ in range(3)]
    stacked = gymnasium.vector.utils.concatenate(
        DEEP, shown, gymnasium.vector.utils.create_empty_array(DEEP, n=3, fn=np.zeros)
    )
    for one, other in zip(leaves.gatherer(DEEP)(shown), leaves.splitter(DEEP)(stacked), strict=True):
        assert one.dtype == other.dtype and not any(np.shares_memory(other, x) for x in jax.tree.leaves(stacked))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("space", "sizes", "action", "given"),
    [
        (spaces.Discrete(3, start=5), 3, 2, 7),
        (spaces.MultiBinary(3), [2, 2, 2], [1, 0, 1], [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3], start=[4, 0]), [2, 3], [1, 2], [5, 2]),
        (
            CHOICES,
            [2, 3, 4, 5, 2, 2, 3],
            [1, 2, 3, 4, 0, 1, 2],
            {"b": (np.array([[1, 2], [3, 4]]), np.array([0, 1])), "y": 7},
        ),
    ],
)
def test_actions_are_one_leaf_and_back(space, sizes, action, given):
    env, copies = environment(spaces.Box(0, 1), space)
    assert env.action_space == (
        spaces.Discrete(sizes) if isinstance(sizes, int) else spaces.MultiDiscrete(np.array(sizes))
    )
    batch = env.batch(2)
    batch.reset(np.arange(2))
    batch.step(np.stack([np.zeros_like(action), action]).astype(np.int32))
    jax.tree.map(np.testing.assert_array_equal, copies[1].given[0], given)


def test_boxes_of_float64_are_given_float64():
    env, copies = environment(spaces.Box(0, 1), spaces.Box(-1, 1, (2,), np.float64))
    batch = env.batch(1)
    batch.reset(np.arange(1))
    batch.step(np.full((1, 2), 0.5, np.float32))
    assert copies[0].given[0].dtype == np.float64 and env.action_space.dtype == np.float32


def test_actions_outside_of_a_box_are_clipped_to_it():
    box = spaces.Box(np.array([-0.1, -np.inf]), np.array([0.3, 2]), dtype=np.float64)
    env, copies = environment(spaces.Box(0, 1), box)
    batch = env.batch(1)
    batch.reset(np.arange(1))
    for action, given in ([9, -9], [0.3, -9]), ([-9, 9], [-0.1, 2]):
        batch.step(np.array([action], np.float32))
        np.testing.assert_array_equal(copies[0].given[-1], given)


HYBRID = spaces.Dict(
    OrderedDict(
        z=spaces.Discrete(3),
        far=spaces.Box(-1, 1, (2,), np.float64),
        b=spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(4, start=5), spaces.Box(-3, 3, (), np.int64)]),
        m=spaces.MultiDiscrete([2, 5]),
    )
)
"""Keys in another order than the sorted one, as Godot RL Agents (issue 234) and RLlib (issue 22731) swapped actions."""


def test_trees_with_a_box_have_the_values_of_the_library():
    """In the order of ``jax.tree.leaves``, and each part arrives under its own key."""
    env, copies = environment(spaces.Box(0, 1), HYBRID)
    action = {
        "z": np.array([2, 0]),
        "far": np.array([[0.5, -9], [1, 0.25]], np.float32),
        "b": (np.array([[1, 0], [0, 1]], np.int8), np.array([8, 5]), np.array([-3, 2])),
        "m": np.array([[1, 4], [0, 3]]),
    }
    plain = env.action_space
    assert plain["b"][1] == spaces.Box(5, 8, (), np.int32) and plain["b"][0] == spaces.Box(0, 1, (2,), np.int8)
    assert (plain["b"][2].dtype, plain["far"].dtype, plain["z"]) == (np.int32, np.float32, spaces.Discrete(3))
    assert leaves.choices(plain) == [2, 2, 4, 7, 2, 5, 3] and leaves.wire(plain) == ((9,), "<f8")
    batch = env.batch(2)
    batch.reset(np.arange(2))
    batch.step(packed(jax.tree.leaves(action), (2,)))
    for row, copy in enumerate(copies[-2:]):
        given = copy.given[0]
        expected = jax.tree.map(lambda x, row=row: x[row], action)
        expected["far"] = np.clip(expected["far"], -1, 1)
        jax.tree.map(np.testing.assert_array_equal, given, expected)
        assert given["far"].dtype == np.float64 and given["b"][2].dtype == np.int64


@pytest.mark.parametrize("space", [HYBRID, spaces.Box(-2, 2, (2, 1), np.int8), spaces.Box(0, 1, (2,), np.bool_)])
def test_random_moves_are_of_their_space(space):
    """Which `Nested` asserts; at both ends of integers, too."""
    env, copies = environment(spaces.Box(0, 1), space)
    batch, generator = env.batch(4), np.random.default_rng(0)
    obs = batch.reset(np.arange(4))
    for _ in range(50):
        obs = batch.step(moves.random(env, generator, obs)).obs
    if isinstance(space, spaces.Box):
        given = np.stack([action for copy in copies for action in copy.given])
        assert given.dtype == space.dtype and set(np.unique(given)) == set(
            range(int(space.low.min()), int(given.max()) + 1)
        )
        assert given.max() == space.high.max()


@pytest.mark.parametrize(
    "mask",
    [
        {"z": np.array([1, 0, 1], np.int8), "far": None},
        (None, [True, False, True]),
        np.array([1, 0, 1]),
    ],
)
def test_masks_of_parts_are_joined(mask):
    """One array, one for each part, or by key; rl_games (issue 264) could take neither of two lengths."""
    assert mask_of(mask, 3).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 2**40, (2,), np.int64), spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64)]
)
def test_integers_beyond_32_bits_are_no_actions(space):
    for each, name in ((space, "action_space"), (spaces.Tuple([spaces.Discrete(2), space]), r"action_space\[1\]")):
        with pytest.raises(
            ConfigError, match=f"^env = 'nested': {name}: has integers of int64 within .*; give it the b"
        ):
            environment(spaces.Box(0, 1), each)


def test_a_box_of_numbers_has_no_mask():
    env, _ = environment(
        spaces.Dict({"action_mask": spaces.MultiBinary(2), "x": spaces.Box(0, 1)}), spaces.Box(0, 1, (2,))
    )
    assert env.legal is None


def test_masks_in_info_are_seen_beside_the_observation():
    env, _ = environment(spaces.Box(0, 1, (2,)), spaces.Discrete(3), masked=True)
    assert env.legal == "action_mask" and list(env.observation_space.spaces) == ["action_mask", "obs"]
    batch = env.batch(2)
    mask, obs = batch.reset(np.arange(2))
    assert mask.dtype == np.int8 and obs.shape == (2, 2)
    np.testing.assert_array_equal(batch.step(np.zeros(2, int)).next_obs[0], [[1, 0, 1]] * 2)


def test_masks_in_the_observation_are_told():
    space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "board": spaces.Box(0, 1)})
    assert environment(space, spaces.Discrete(3))[0].legal == "action_mask"
    assert environment(DEEP, spaces.Discrete(3))[0].legal is None


class Legal(host_envs.Nested):
    """Of two numbers to choose, at least one value of each is legal."""

    def show(self):
        obs, info = super().show()
        obs["action_mask"][[0, 2]] |= 1 - obs["action_mask"][[1, 3]]
        return obs, info


def test_steps_are_timed_with_legal_actions():
    deep = spaces.Tuple([spaces.Box(0, 1, (5,)), spaces.Box(0, 1, (2,))])
    space = spaces.Dict({"a": deep, "action_mask": spaces.MultiBinary(5)})
    env, copies = environment(space, spaces.MultiDiscrete([2, 3]), kind=Legal)
    assert opening.seconds_of_step(env, 1) > 0
    shown = [each["action_mask"] for i, each in enumerate(copies[0].shown[1:-1]) if i % 5 != 4]  # the ends
    assert len(copies[0].given) == len(shown)
    for given, mask in zip(copies[0].given, shown, strict=True):
        for number, part in zip(given, (mask[:2], mask[2:]), strict=True):
            assert part[number]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0, 1), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_without_one_shape_are_refused(space):
    kind = type(space).__name__
    for alone, words in (space, kind), (spaces.Dict({"x": space}), f"Dict of {kind}"):
        with pytest.raises(ConfigError, match=f"^env = 'nested': observation_space: is {words}; must be Box"):
            environment(alone, spaces.Discrete(2))
    with pytest.raises(ConfigError, match=f"^env = 'nested': action_space: has {kind}; actions are"):
        environment(spaces.Box(0, 1), space)
    beside = spaces.Dict({"x": space, "t": spaces.Tuple([space, spaces.Box(0, 1, (2,)), spaces.Dict({"y": space})])})
    env, copies = environment(beside, spaces.Discrete(2))
    assert env.observation_space == spaces.Dict({"t": spaces.Tuple([spaces.Box(0, 1, (2,))])})
    assert env.notes == tuple(
        f"observation_space{path}: is {kind}, which has no fixed shape; is left out"
        for path in ("['t'][0]", "['t'][2]['y']", "['x']")
    )
    (first,) = env.batch(1).reset(np.arange(1))
    np.testing.assert_array_equal(first[0], copies[-1].shown[-1]["t"][1])


LARGE = np.iinfo(np.int64).max


@pytest.mark.parametrize(
    ("space", "dtype", "value", "seen"),
    [
        (spaces.Box(-LARGE - 1, LARGE, (2,), np.int64), np.float32, 2**40, 2**40),
        (spaces.Box(0, 2**64 - 1, (2,), np.uint64), np.float32, 2**63, 2**63),
        (spaces.Box(0, 2**32 - 1, (2,), np.uint32), np.float32, 2**32 - 2**9, 2**32 - 2**9),
        (spaces.Box(0, 9, (2,), np.uint32), np.int32, 7, 7),
        (spaces.Box(0, 9, (2,), np.int64), np.int32, 7, 7),
        (spaces.Discrete(5, start=2**33), np.int32, 2**33 + 3, 3),
        (spaces.MultiDiscrete([5, 6], start=[-(2**40), 2**40]), np.int32, [3 - 2**40, 2**40 + 4], [3, 4]),
    ],
)
def test_integers_are_read_as_they_are(space, dtype, value, seen):
    env, _ = environment(space, spaces.Discrete(2))
    (leaf,) = leaves.flat(env.observation_space)
    obs = np.broadcast_to(np.array(value, space.dtype), space.shape)
    (x,), (stacked,) = leaves.gatherer(space)([obs, obs]), leaves.splitter(space)(np.stack([obs, obs]))
    assert x.dtype == stacked.dtype == leaf.dtype == dtype
    for each in x, stacked:
        np.testing.assert_array_equal(each, np.broadcast_to(seen, (2, *leaf.shape)))
    assert len(env.notes) == (dtype == np.float32)


@pytest.mark.parametrize(
    ("space", "value", "words"),
    [
        (spaces.Box(0, 9, (2,), np.int64), [1, 2**31 + 5], "2147483653 in the observation does not fit into int32"),
        (spaces.Box(0, 9, (2,), np.uint32), [1, 2**32 - 1], "4294967295 in the observation does not fit into int32"),
        (spaces.Box(0, 9, (2,), np.int8), [1, 300], "300 in the observation does not fit into int8"),
        (spaces.Box(0, 9, (2,), np.uint8), [1, -1], "-1 in the observation does not fit into uint8"),
        (spaces.Discrete(3), 2**32, "4294967296 in the observation does not fit into int32"),
    ],
)
def test_integers_beyond_what_their_space_promised_are_told(space, value, words):
    good, wrong = np.zeros(space.shape, np.int64), np.array(value, np.int64)
    with pytest.raises(InvalidData, match=f"^environment 1: {words}$"):
        leaves.gatherer(space)([good, wrong])
    with pytest.raises(InvalidData, match=words):
        leaves.splitter(space)(np.stack([good, wrong]))
    with pytest.raises(InvalidData, match=f"environment 0: .*{words.partition(' in ')[0]}"):
        leaves.gatherer(spaces.Dict({"x": space}), 2)([{"x": good}, {"x": wrong}])


@pytest.mark.parametrize("space", [spaces.Discrete(2**33), spaces.MultiDiscrete([2, 2**31])])
def test_more_values_than_32_bits_count_are_refused(space):
    for both in (space, spaces.Discrete(2)), (spaces.Box(0, 1), space):
        with pytest.raises(ConfigError, match="has 8589934592|has 2147483648 values; must have at most 2147483647"):
            environment(*both)


@pytest.mark.parametrize(
    ("shape", "axes", "seen"),
    [
        ((3, 36, 36), (1, 2, 0), (36, 36, 3)),
        ((4, 84, 84), (1, 2, 0), (84, 84, 4)),
        ((3, 24, 32), (1, 2, 0), (24, 32, 3)),
        ((4, 36, 36, 3), (1, 2, 0, 3), (36, 36, 12)),
        ((4, 3, 36, 36), (2, 3, 0, 1), (36, 36, 12)),
        ((36, 36, 3), None, None),
        ((7, 7, 3), None, None),
        ((5, 4, 26), None, None),
        ((4, 5, 26), None, None),
        ((3, 7), None, None),
        ((16, 16, 16, 3), None, None),
    ],
)
def test_images_have_their_channels_last(shape, axes, seen):
    space = spaces.Box(0, 255, shape, np.uint8)
    env, _ = environment(spaces.Dict({"x": space}), spaces.Discrete(2))
    obs = space.sample()
    target = obs if axes is None else obs.transpose(axes).reshape(seen)
    assert env.observation_space["x"].shape == target.shape and len(env.notes) == (axes is not None)
    (x,), (stacked,) = leaves.gatherer(space)([obs, obs]), leaves.splitter(space)(np.stack([obs, obs]))
    np.testing.assert_array_equal(x, np.stack([target, target]))
    np.testing.assert_array_equal(stacked, x)


@pytest.mark.parametrize("value", [3, 3.0, np.float64(3), np.array(3)])
def test_a_number_is_taken_for_an_array_of_one(value):
    (x,) = leaves.gatherer(spaces.Box(0, 9, (1,), np.float32))([value, np.ones(1)])
    np.testing.assert_array_equal(x, [[3], [1]])


def test_other_arrays_of_three_axes_stay():
    space = spaces.Box(0, 1, (3, 36, 36), np.float32)
    env, _ = environment(space, spaces.Discrete(2))
    assert env.observation_space == space and not env.notes


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (spaces.Box(0, 1, (2,)), np.zeros(3)),
        (spaces.Box(0, 1, (2,)), np.zeros((1, 2))),
        (spaces.Discrete(3), np.zeros(1, int)),
        (spaces.Box(0, 9, (2,), np.int32), np.zeros(2)),
        (spaces.Discrete(3), 0.5),
        (spaces.Box(0, 1, (2,)), None),
        (spaces.Box(0, 1, (2,)), [[1], [1, 2]]),
        (spaces.Dict({"x": spaces.Box(0, 1, (2,))}), {"y": np.zeros(2)}),
        (spaces.Dict({"x": spaces.Box(0, 1, (2,))}), np.zeros(2)),
    ],
)
def test_what_is_not_of_its_space_is_told(space, obs):
    good = [space.sample() for _ in range(2)]
    assert len(leaves.gatherer(space)(good)[0]) == 2
    with pytest.raises(InvalidData, match="^environment 1: the observation|^the observation is float64"):
        leaves.gatherer(space)([good[0], obs])
