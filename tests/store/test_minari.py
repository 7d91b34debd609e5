"""Minari's datasets: episodes are kept whole, and a file from outside opens no other and takes no more than it says."""

import json
import os
import pickle
import subprocess
import sys

import minari_files
import numpy as np
import pytest
from minari_files import BOX, SEEN, episode

from purerl.errors import ConfigError
from purerl.store import minari

h5py = pytest.importorskip("h5py")
MOST = 2**20


def read(folder, **given):
    place = minari.folder(str(folder))
    return minari.read(place, minari.about(place), given.pop("most_bytes", MOST), **given)


def test_episodes(tmp_path):
    """Neither a step nor an observation is lost or taken from a neighbour (D4RL, issues 145 and 204)."""
    minari_files.write(tmp_path, [episode(3, truncated=[2]), episode(2, terminated=[1], start=10)])
    play = read(tmp_path)
    np.testing.assert_array_equal(play.obs[0][:, 0], [0, 1, 2, 10, 11])
    np.testing.assert_array_equal(play.final_obs[0], [[3, -3, 1.5], [12, -12, 6]])
    np.testing.assert_array_equal(play.reward, [0, 1, 2, 10, 11])
    np.testing.assert_array_equal(play.action[:, 0], [-2, 0, 2, -2, 2])
    assert play.terminated.tolist() == [False, False, False, False, True]
    assert play.truncated.tolist() == [False, False, True, False, False] and play.missing == 0
    assert {x.dtype.name for x in (*play.obs, *play.final_obs, play.reward, play.action)} == {"float32"}
    assert len(read(tmp_path, episodes=1).reward) == 3


def test_flags_within_an_episode_end_one(tmp_path):
    """And where both are set it is a termination; without any the episode is cut off where it stops."""
    minari_files.write(tmp_path, [episode(4, truncated=[1]), episode(2, terminated=[1], truncated=[1])])
    play = read(tmp_path)
    assert play.truncated.tolist() == [False, True, False, True, False, False]
    assert play.terminated.tolist() == [False] * 5 + [True]
    np.testing.assert_array_equal(play.final_obs[0][:, 0], [2, 4, 2])


def test_a_missing_last_observation(tmp_path):
    """As in four episodes of antmaze-umaze-v0 (Minari, issue 199): a terminated step stays, another one goes."""
    episodes = [episode(3, last=False, terminated=[2]), episode(3, last=False, truncated=[2])]
    minari_files.write(tmp_path, [*episodes, episode(1, last=False, truncated=[0]), episode(1, truncated=[0])])
    play = read(tmp_path)
    assert play.missing == 3 and play.reward.tolist() == [0, 1, 2, 0, 1, 0]
    assert play.terminated.tolist() == [False, False, True, False, False, False]
    assert play.truncated.tolist() == [False, False, False, False, True, True]
    np.testing.assert_array_equal(play.final_obs[0][:, 0], [2, 2, 1])


def test_trees_of_observations_and_other_spaces(tmp_path):
    """A dictionary, in the order of its keys, within it a tuple and a text, which is left out; counting from 3."""
    seen = {"type": "Tuple", "subspaces": [SEEN, {"type": "Discrete", "dtype": "int64", "start": 5, "n": 4}]}
    text = {"type": "Text", "max_length": 3, "min_length": 0, "charset": "ab"}
    image = {"type": "Box", "dtype": "uint8", "shape": [3, 20, 20]}
    image |= {side: np.full((3, 20, 20), x).tolist() for side, x in (("low", 0), ("high", 255))}
    space = {"type": "Dict", "subspaces": {"z": seen, "a": image, "words": text}}
    actions = {"type": "MultiDiscrete", "dtype": "int64", "nvec": [[2, 3]], "start": [[0, 3]]}
    pictures = np.random.default_rng(0).integers(0, 256, (3, 3, 20, 20), np.uint8)
    obs = {"z": (episode(2)["observations"], np.array([5, 8, 6])), "a": pictures}
    made = episode(2, truncated=[1], obs=obs, actions=np.array([[[0, 3]], [[1, 5]]]))
    minari_files.write(tmp_path, [made], space, actions)
    play = read(tmp_path)
    first, second, third = play.obs
    np.testing.assert_array_equal(first, pictures[:2].transpose(0, 2, 3, 1))  # channels last, as agents see them
    np.testing.assert_array_equal(second[:, 0], [0, 1])
    assert third.tolist() == [0, 3] and play.final_obs[2].tolist() == [1]
    assert play.action.tolist() == [[0, 0], [1, 2]] and play.action.dtype == np.int32


def test_where_datasets_are(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari_files.write(tmp_path / "D4RL/door/human-v2", [episode(1)])
    place = minari.folder("minari:D4RL/door/human-v2")
    assert (
        place == tmp_path / "D4RL/door/human-v2/data" == minari.folder(str(place)) == minari.folder(str(place.parent))
    )
    about = minari.about(place)
    assert (about.name, about.env, about.env_params) == ("tests/pendulum-v0", "gymnasium/Pendulum-v1", {"g": 9.81})
    for source, line in (
        ("minari:D4RL/door/cloned-v2", "`minari download D4RL/door/cloned-v2` fetches it"),
        ("minari:../door", "must be minari:NAME"),
        (str(tmp_path), "is no dataset of Minari"),
    ):
        with pytest.raises(ConfigError, match=line):
            minari.folder(source)


def test_policies_are_evaluated_in_the_environment_that_metadata_name_for_it(tmp_path):
    spec = json.dumps({"id": "Other-v1", "kwargs": {}})
    minari_files.write(tmp_path, [episode(1)], eval_env_spec=spec, algorithm_name="SAC")
    about = minari.about(tmp_path / "data")
    assert (about.env, about.env_params, about.algo) == ("gymnasium/Other-v1", {}, "SAC")


CHANGED = json.dumps({**SEEN, "shape": [2**40], "low": 0.0, "high": 1.0})
PICTURE = {"type": "Box", "dtype": "uint8", "shape": [32, 32]}
PICTURE |= {"low": np.zeros((32, 32)).tolist(), "high": np.full((32, 32), 255).tolist()}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"data_format": "arrow"}, "data_format is 'arrow'; only hdf5"),
        ({"total_episodes": 0}, "has no episodes"),
        ({"total_episodes": "many"}, "has no episodes"),
        ({"observation_space": None}, "has no observation_space"),
        ({"observation_space": "{"}, "observation_space is no space that is read .*not a JSON file"),
        ({"observation_space": '{"type": "Graph"}'}, "'Graph' is not read"),
        ({"observation_space": CHANGED}, "with bounds of"),
        ({"observation_space": json.dumps({**SEEN, "dtype": "O"})}, "Box of object"),
        ({"observation_space": json.dumps({**SEEN, "dtype": "f4, f4"})}, "Box of"),
        ({"observation_space": '{"type": "MultiBinary", "n": [1048576, 1048576]}'}, "MultiBinary of"),
        ({"observation_space": '{"type": "Dict", "subspaces": {}}'}, "Dict without parts"),
        ({"observation_space": json.dumps({**SEEN, "shape": [0], "low": [], "high": []})}, "Box without numbers"),
        ({"action_space": '{"type": "MultiDiscrete", "nvec": []}'}, "MultiDiscrete without numbers"),
        ({"observation_space": "[" * 10**5}, "nested too deeply"),
        ({"observation_space": json.dumps(PICTURE)}, "pictures as JPEG"),
        ({"action_space": json.dumps({"type": "Discrete", "n": -1})}, "action_space is no space that is read"),
        ({"env_spec": "{"}, "env_spec: not a JSON file"),
    ],
)
def test_metadata_that_are_refused(tmp_path, fields, line):
    minari_files.write(tmp_path, [episode(1)], **fields)
    with pytest.raises(ConfigError, match=line) as raised:
        minari.about(tmp_path / "data")
    assert str(raised.value).startswith(str(tmp_path)) and len(str(raised.value).splitlines()) == 1


def refused(folder, line, **given):
    with pytest.raises(ConfigError, match=line) as raised:
        read(folder, **given)
    assert str(raised.value).startswith(str(folder)) and len(str(raised.value).splitlines()) == 1


def replaced(path, name, make):
    """Has ``make(group, name)`` make a member of the first episode anew."""
    with h5py.File(path, "r+") as file:
        del file["episode_0"][name]
        make(file["episode_0"], name)


def virtual(group, name):
    layout = h5py.VirtualLayout((2,), "f8")
    layout[:] = h5py.VirtualSource("other.hdf5", "episode_0/rewards", (2,))
    group.create_virtual_dataset(name, layout)


def external(group, name):
    """Numbers that are the bytes of another file."""
    group.create_dataset(name, (2,), "u1", external=[("/etc/passwd", 0, 2)])


def filtered(group, name):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((2,))
    plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
    h5py.h5d.create(group.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((2,)), plan)


def link(make):
    return lambda group, name: group.__setitem__(name, make)


def array(shape, dtype="f8", **options):
    return lambda group, name: group.create_dataset(name, shape, dtype, **options)


HOSTILE = {
    "a link to another file": (link(h5py.ExternalLink("other.hdf5", "episode_0/rewards")), "is a link"),
    "a soft link": (link(h5py.SoftLink("/episode_1/rewards")), "is a link"),
    "a virtual dataset": (virtual, "in other files"),
    "numbers of another file": (external, "in other files"),
    "a filter of a plugin": (filtered, "has the HDF5 filter 32015"),
    "a huge size": (array((2**40,), chunks=(4,)), "which is too large"),
    "a size that wraps": (array((2**32, 2**32), chunks=(4, 4)), "which is too large"),
    "a huge chunk": (array((2,), maxshape=(None,), chunks=(2**26,)), "which is too large"),
    "texts": (array((2,), h5py.string_dtype()), "must be an array of numbers"),
    "records": (array((2,), np.dtype([("x", "f8"), ("y", "i4")])), "must be an array of numbers"),
    "references": (array((2,), h5py.ref_dtype), "must be an array of numbers"),
    "arrays of many lengths": (array((2,), h5py.vlen_dtype(np.uint8)), "must be an array of numbers"),
    "a number": (array(()), "must be an array of numbers"),
    "nothing": (lambda group, name: group.create_dataset(name, data=h5py.Empty("f8")), "must be an array of numbers"),
    "a group": (lambda group, name: group.create_group(name), "is no array"),
    "another length": (array((3,)), "has 2 terminations and 3 rewards"),
    "several a step": (array((2, 1)), "one reward and one flag"),
    "complex numbers": (array((2,), "c16"), "must be an array of numbers"),
    "no numbers": (lambda group, name: group.create_dataset(name, data=[np.nan, 0]), "rewards that are not finite"),
    "numbers beyond float32": (
        lambda group, name: group.create_dataset(name, data=[1e300, 0]),
        "too large for float32",
    ),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_arrays(tmp_path, case):
    """Those of weights that read the files of a machine (Keras, CVE-2026-1669), and of sizes that fill its memory."""
    path = minari_files.write(tmp_path, [episode(2), episode(2)])
    minari_files.write(tmp_path / "other", [episode(2)]).rename(path.parent / "other.hdf5")
    make, line = HOSTILE[case]
    replaced(path, "rewards", make)
    refused(tmp_path, line)


def test_a_link_on_the_way_is_not_followed(tmp_path):
    """Only the last word of a path has the link that h5py tells of (Keras, pull request 23163)."""
    seen = {"type": "Dict", "subspaces": {"x/y": SEEN}}
    path = minari_files.write(tmp_path, [episode(2, obs={"x/y": episode(2)["observations"]})], seen)
    assert len(read(tmp_path).reward) == 2
    os.mkfifo(path.parent / "pipe")  # who opens it waits for ever
    with h5py.File(path, "r+") as file:
        del file["episode_0/observations/x"]
        file["episode_0/observations"]["x"] = h5py.ExternalLink("pipe", "/")
    refused(tmp_path, "is a link")
    with h5py.File(path, "r+") as file:
        del file["episode_0"]
        file["episode_0"] = h5py.ExternalLink("pipe", "/")
    refused(tmp_path, "episode_0: is a link")


def test_what_is_not_as_the_metadata_say(tmp_path):
    path = minari_files.write(tmp_path / "few", [episode(2)], total_episodes=2)
    refused(tmp_path / "few", "episode_1: is missing")
    replaced(path, "observations", array((3, 2)))
    refused(tmp_path / "few", "has shape")
    replaced(path, "observations", array((5, 3)))
    refused(tmp_path / "few", "has 5 observations of 2 steps")
    replaced(path, "actions", array((2, 2)))
    refused(tmp_path / "few", "actions|observations")
    minari_files.write(tmp_path / "empty", [episode(0)])
    refused(tmp_path / "empty", "has no steps")
    minari_files.write(tmp_path / "many", [episode(20)] * 5)
    refused(tmp_path / "many", "has more than 2000 bytes of data", most_bytes=2000)
    os.mkfifo(tmp_path / "pipe")
    os.replace(tmp_path / "pipe", path)
    refused(tmp_path / "few", "is not a regular file")


def test_one_array_in_many_places_is_counted_each_time(tmp_path):
    path = minari_files.write(tmp_path, [episode(100)], total_episodes=20)
    with h5py.File(path, "r+") as file:
        for number in range(1, 20):
            file[f"episode_{number}"] = file["episode_0"]
    assert len(read(tmp_path, most_bytes=10_000, episodes=4).reward) == 400
    refused(tmp_path, "has more than 10000 bytes of data", most_bytes=10_000)


def test_a_file_that_was_cut(tmp_path):
    path = minari_files.write(tmp_path, [episode(3), episode(2)])
    raw = path.read_bytes()
    for size in [*range(0, 200, 20), *range(200, len(raw), 1000)]:
        path.write_bytes(raw[:size])
        refused(tmp_path, "is damaged, or no HDF5 file")


def test_an_extra_that_is_missing(tmp_path, monkeypatch):
    minari_files.write(tmp_path, [episode(2)])
    monkeypatch.setattr("purerl.hosts.libraries.is_there", lambda module: False)
    with pytest.raises(ConfigError, match="^data: h5py is not installed; pip install 'purerl.minari.'$"):
        read(tmp_path)


class Touch:
    """What an unpickler would execute."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_attributes_are_not_read(tmp_path):
    path = minari_files.write(tmp_path, [episode(2)])
    with h5py.File(path, "r+") as file:
        for place in (file, file["episode_0"], file["episode_0/rewards"]):
            place.attrs["options"] = np.void(pickle.dumps(Touch(tmp_path / "touched")))
    assert len(read(tmp_path).reward) == 2 and not (tmp_path / "touched").exists()


@pytest.mark.rest
def test_needs_no_jax(tmp_path):
    minari_files.write(tmp_path, [episode(2)])
    code = "import sys; sys.modules['jax'] = None; from purerl.store import minari; place = minari.folder(sys.argv[1]);"
    code += "print(minari.read(place, minari.about(place), 2**20).reward.tolist())"
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert ran.stdout == "[0.0, 1.0]\n", ran.stderr


@pytest.mark.rest
def test_what_minari_wrote_is_what_it_reads(tmp_path, monkeypatch):
    """Its own collector and its own reader, in an environment with a time limit."""
    library = pytest.importorskip("minari")
    import gymnasium

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with library.DataCollector(gymnasium.make("Pendulum-v1", max_episode_steps=7), record_infos=True) as env:
        for seed in range(3):
            env.reset(seed=seed)
            env.action_space.seed(seed)
            for _ in range(7 if seed else 4):  # the first is not over
                env.step(env.action_space.sample())
        made = env.create_dataset("tests/pendulum-v0", algorithm_name="random")
    place = minari.folder("minari:tests/pendulum-v0")
    about = minari.about(place)
    play = minari.read(place, about, MOST)
    episodes = list(made.iterate_episodes())
    assert (
        [len(each.rewards) for each in episodes] == [4, 7, 7] == np.diff([-1, *np.flatnonzero(play.truncated)]).tolist()
    )
    joined = lambda name, part=slice(None): np.concatenate([getattr(each, name)[part] for each in episodes])
    np.testing.assert_array_equal(play.obs[0], joined("observations", slice(-1)))
    np.testing.assert_array_equal(play.final_obs[0], joined("observations", slice(-1, None)))
    np.testing.assert_array_equal(play.action, joined("actions"))
    np.testing.assert_array_equal(play.reward, joined("rewards").astype(np.float32))
    np.testing.assert_array_equal(play.truncated, joined("truncations"))
    assert not play.terminated.any() and about.algo == "random" and about.env == "gymnasium/Pendulum-v1"
    assert BOX["low"] == about.action_space.low.tolist()


@pytest.mark.weekly
def test_damage_is_a_line_or_other_numbers(tmp_path):
    """Bits of HDF5's own tables, and of the numbers, which have no checksums here."""
    path = minari_files.write(tmp_path, [episode(3, truncated=[2]), episode(2, terminated=[1])])
    raw, rng, outcomes = path.read_bytes(), np.random.default_rng(0), {"read": 0, "refused": 0}
    about, used = minari.about(path.parent), np.flatnonzero(np.frombuffer(raw, np.uint8))
    for _ in range(500):
        damaged = bytearray(raw)
        damaged[rng.choice(used)] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            minari.read(path.parent, about, MOST)
            outcomes["read"] += 1
        except ConfigError as error:
            outcomes["refused"] += 1
            assert str(error).startswith(str(path)) and len(str(error).splitlines()) == 1
    assert min(outcomes.values()) > 50
