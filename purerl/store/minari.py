"""Datasets of Minari: folders with ``metadata.json`` and an HDF5 file, read episode by episode, without JAX.

https://minari.farama.org/content/dataset_standards describes the format. Both files are untrusted. Of the HDF5 file
only arrays of numbers are read, by names that are known before; what they take is known before they are read. No link
is followed, no other file is opened, and attributes are not read at all. The library that reads HDF5 may still fail on
a damaged file in ways that no check covers, so `purerl data` reads in a process of its own.
"""

import math
import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from purerl.errors import ConfigError, printable
from purerl.hosts import leaves
from purerl.hosts.bundle import Leaves
from purerl.hosts.libraries import needs
from purerl.hosts.sound import InvalidData, fitted
from purerl.names import here, shown
from purerl.store import guards

PREFIX = "minari:"
"""The beginning of a dataset's name, in place of the path of its folder."""
NAME = re.compile(r"[-\w]+(/[-\w]+)*")
ROOT, USUAL_ROOT = "MINARI_DATASETS_PATH", "~/.minari/datasets"
"""The environment variable with the folder of Minari's datasets, and the folder without it."""
METADATA, ARRAYS = "metadata.json", "main_data.hdf5"
MOST_JSON_BYTES = 2**24
MOST_ELEMENTS = 2**24
"""The most elements of an observation or an action."""
MOST_CHUNK_BYTES = 2**28
"""The size of the largest piece of an array that is decompressed at once."""
FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
"""The numbers of the HDF5 filters that arrays may have, those that h5py itself has."""
IMAGE = 32
"""The least height and width from which Minari stores pictures of uint8 as JPEG."""


class About(NamedTuple):
    """What the metadata of a dataset say.

    - ``name``: the dataset's name; empty if it has none.
    - ``env``, ``env_params``: the environment that its policies are evaluated in, or else the one that was played; an
      empty name if it is not told.
    - ``algo``: the algorithm that played; empty if it is not told.
    - ``episodes``: the number of episodes.
    - ``observation_space``, ``action_space``: Gymnasium's spaces.
    """

    name: str
    env: str
    env_params: dict[str, Any]
    algo: str
    episodes: int
    observation_space: Any
    action_space: Any


class Play(NamedTuple):
    """Episodes, one after another, as a `purerl.types.Dataset` has them, in plain spaces (`purerl.hosts.leaves`).

    ``obs`` and ``final_obs`` are the leaves of observations, ``[T, ...]`` and ``[E, ...]``; all else leads with
    ``[T]``. ``missing`` is the number of episodes whose last observation is missing.
    """

    obs: Leaves
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_obs: Leaves
    missing: int


def is_minari(source: str) -> bool:
    """Returns whether ``source`` is ``minari:NAME`` or a folder, and not the path of a file."""
    return source.startswith(PREFIX) or os.path.isdir(here(source))


def folder(source: str) -> Path:
    """Returns the folder that has the two files of a dataset, which is named ``minari:NAME`` or by its folder.

    Raises:
        ConfigError: There is none.
    """
    place = here(source)
    if source.startswith(PREFIX):
        name = source.removeprefix(PREFIX)
        if not NAME.fullmatch(name):
            raise ConfigError(f"{source}: must be {PREFIX}NAME, such as {PREFIX}D4RL/door/human-v2")
        root = here(Path(os.environ.get(ROOT) or USUAL_ROOT).expanduser())
        place = root / name
        if not place.is_dir():
            raise ConfigError(f"{source}: is not in {root}; `minari download {name}` fetches it")
    for inner in (place / "data", place):
        if (inner / METADATA).is_file():
            return inner
    raise ConfigError(f"{shown(place)}: is no dataset of Minari, which has {METADATA} in a folder data")


def about(place: Path) -> About:
    """Reads the metadata in a dataset's folder.

    Raises:
        ConfigError: They are damaged, or name spaces or a format that are not read.
    """
    path = place / METADATA
    fields = guards.read_json(path, MOST_JSON_BYTES, finite=False)
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: is no object of JSON")
    if (form := fields.get("data_format", "hdf5")) != "hdf5":
        raise ConfigError(f"{path}: its data_format is {reprlib.repr(form)}; only hdf5 is read")
    episodes = guards.count(fields.get("total_episodes"))
    if not episodes:
        raise ConfigError(f"{path}: has no episodes (total_episodes)")
    both = [_told_space(path, name, fields.get(name)) for name in ("observation_space", "action_space")]
    if fields.get("jpeg_encoding", True) and any(map(_is_picture, leaves.parts(both[0]))):
        raise ConfigError(
            f"{path}: has pictures as JPEG, which are not read; Minari stores arrays with jpeg_encoding=False"
        )
    spec = _spec(path, fields, "eval_env_spec") or _spec(path, fields, "env_spec")
    env = guards.text(spec.get("id"))
    given = {name: value for name, value in guards.mapping(spec.get("kwargs")).items() if value is not None}
    name, algo = (guards.text(fields.get(field)) for field in ("dataset_id", "algorithm_name"))
    return About(name, env and f"gymnasium/{env}", given, algo, episodes, *both)


def _spec(path: Path, fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the specification of an environment in metadata, which is JSON in a text; empty if there is none."""
    text = fields.get(name)
    if not isinstance(text, str):
        return {}
    try:
        return guards.mapping(guards.parse_json(text.encode(), finite=False))
    except ConfigError as error:
        raise ConfigError(f"{path}: {name}: {error}") from None


def _told_space(path: Path, name: str, text: Any) -> Any:
    """Returns the space that metadata have as JSON in a text."""
    if not isinstance(text, str):
        raise ConfigError(f"{path}: has no {name}; datasets of Minari before 0.5 are not read")
    try:
        return _space(guards.parse_json(text.encode(), finite=False))
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))[:120]
        raise ConfigError(f"{path}: {name} is no space that is read ({reason})") from None


def _space(told: Any) -> Any:
    """Returns the space of Gymnasium that JSON of Minari describes; raises various errors if it does not."""
    kind = told["type"]
    if kind in ("Dict", "Tuple") and not told["subspaces"]:
        raise ValueError(f"{kind} without parts")
    if kind == "Dict":
        return spaces.Dict({name: _space(part) for name, part in told["subspaces"].items()})
    if kind == "Tuple":
        return spaces.Tuple([_space(part) for part in told["subspaces"]])
    if kind == "Text":
        return spaces.Text(1)  # which has no numbers, and is left out
    if kind == "Discrete":
        return spaces.Discrete(int(told["n"]), start=int(told.get("start", 0)))
    if kind == "MultiDiscrete":
        sizes = np.array(told["nvec"], np.int64)
        if not sizes.size:
            raise ValueError("MultiDiscrete without numbers")
        return spaces.MultiDiscrete(sizes, start=np.array(told.get("start", np.zeros_like(sizes)), np.int64))
    if kind == "MultiBinary":
        shape = np.atleast_1d(np.array(told["n"], np.int64)).tolist()
        if math.prod(shape) > MOST_ELEMENTS:
            raise ValueError(f"MultiBinary of {shape}")
        return spaces.MultiBinary(shape)
    if kind != "Box":
        raise ValueError(f"{kind!r:.40} is not read")
    dtype = np.dtype(told["dtype"])
    if dtype.kind not in "fiub":
        raise ValueError(f"Box of {dtype}")
    low, high = (np.array(told[side], dtype) for side in ("low", "high"))
    if not low.shape == high.shape == tuple(told["shape"]):
        raise ValueError(f"Box of {told['shape']!r:.40} with bounds of {list(low.shape)} and {list(high.shape)}")
    if not low.size:
        raise ValueError("Box without numbers")
    return spaces.Box(low, high, dtype=dtype.type)


def _is_picture(space: Any) -> bool:
    """Returns whether Minari may have stored the elements of a space as JPEG."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    return min(space.shape[:2]) >= IMAGE and not space.low.any() and bool((space.high == 255).all())


def plain_spaces(told: About) -> tuple[Any, Any]:
    """Returns the plain spaces of observations and actions of a dataset. Raises `ConfigError` if there are none."""
    if isinstance(told.action_space, spaces.Dict | spaces.Tuple):
        raise ConfigError(
            f"action_space: is a {type(told.action_space).__name__}; only an action without parts is read"
        )
    observations = leaves.plain(told.observation_space, "observation_space")
    return observations, leaves.coder(told.action_space, "action_space").space


def read(place: Path, told: About, most_bytes: int, episodes: int = 0) -> Play:
    """Reads the episodes in a dataset's folder.

    A step that is flagged ends an episode, wherever it is. An episode that no flag ends is truncated at its end. Where
    both flags are set, the step is terminated. An episode that has no observation after its last step keeps that step
    if it is terminated, since nothing follows a termination; otherwise the episode is truncated before that step.

    Args:
        place: The folder (`folder`).
        told: Its metadata.
        most_bytes: The size of the largest array, and of all arrays that are returned, in bytes.
        episodes: The number of episodes to read; 0: all.

    Raises:
        ConfigError: The file is damaged, larger than ``most_bytes``, not what the metadata say, or h5py is not
            installed. One line, which names the path.
    """
    needs("data", "minari", "h5py")
    import h5py

    path = place / ARRAYS
    read, total, missing = [], 0, 0
    with guards.opened(path)[0] as raw:
        try:
            with h5py.File(raw, "r") as file:
                for number in range(min(told.episodes, episodes or told.episodes)):
                    episode, lacks = _episode(_Group(file["/"], path).group(f"episode_{number}"), told, most_bytes)
                    missing += lacks
                    total += sum(x.nbytes for x in (*episode.obs, *episode[1:5], *episode.final_obs))
                    if total > most_bytes:
                        raise ConfigError(f"{path}: has more than {most_bytes} bytes of data; take fewer --episodes")
                    read += [episode] if len(episode.reward) else []
        except (KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            reason = printable(" ".join(str(error).split()))[:120]
            raise ConfigError(f"{path}: is damaged, or no HDF5 file ({reason})") from None
    if not read:
        raise ConfigError(f"{path}: has no steps")
    join = lambda of: tuple(np.concatenate(column) for column in zip(*map(of, read), strict=True))
    action, reward, terminated, truncated = join(lambda play: play[1:5])
    final_obs = join(lambda play: play.final_obs)
    return Play(join(lambda play: play.obs), action, reward, terminated, truncated, final_obs, missing)


class _Group(NamedTuple):
    """A group of an HDF5 file, from which only what lies in the file itself is taken."""

    of: Any
    path: Path

    def group(self, name: str) -> "_Group":
        """Returns the group of a name in this one."""
        import h5py

        return _Group(self._taken(name, h5py.Group, "group"), self.path)

    def array(self, name: str, kinds: str, most_bytes: int) -> np.ndarray:
        """Reads the array of a name in this group, whose dtype is of one of the ``kinds`` of numpy."""
        import h5py

        found = self._taken(name, h5py.Dataset, "array")
        plan, where = found.id.get_create_plist(), f"{self.path}: {found.name}"
        if found.is_virtual or plan.get_external_count():
            raise ConfigError(f"{where}: has its numbers in other files, which are not read")
        filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
        if unknown := [number for number in filters if number not in FILTERS]:
            raise ConfigError(
                f"{where}: has the HDF5 filter {unknown[0]}; must have {', '.join(FILTERS.values())} alone"
            )
        if found.dtype.kind not in kinds or not found.shape:
            raise ConfigError(f"{where}: is {found.dtype}{list(found.shape or ())}, must be an array of numbers")
        chunk = math.prod(found.chunks or ()) * found.dtype.itemsize
        size = math.prod(found.shape) * found.dtype.itemsize  # `found.size` wraps
        if size > most_bytes or chunk > MOST_CHUNK_BYTES:
            raise ConfigError(f"{where}: says that it has {list(found.shape)} numbers, which is too large")
        return np.asarray(found[()])

    def _taken(self, name: str, kind: type, what: str) -> Any:
        """Returns the member of a name, whose words between slashes are those of groups within groups.

        Each is looked up by its own link before it is opened, since a link into another file opens that.
        """
        import h5py

        at, where = self.of, f"{self.path}: {self.of.name.rstrip('/')}/{name}"
        for word in name.split("/"):
            if not isinstance(at, h5py.Group) or word in ("", ".") or not at.id.links.exists(word.encode()):
                raise ConfigError(f"{where}: is missing")
            if at.id.links.get_info(word.encode()).type != h5py.h5l.TYPE_HARD:
                raise ConfigError(f"{where}: is a link to something else, which is not followed")
            at = at[word]
        if not isinstance(at, kind):
            raise ConfigError(f"{where}: is no {what}")
        return at


def _episode(group: _Group, told: About, most_bytes: int) -> tuple[Play, bool]:
    """Reads an episode; returns it, and whether its last observation is missing."""
    where = f"{group.path}: {group.of.name}"
    reward = group.array("rewards", "fiu", most_bytes)
    flags = [group.array(name, "biu", most_bytes) for name in ("terminations", "truncations")]
    action = group.array("actions", "fiub", most_bytes)
    found = {
        leaf.path: group.array(_name(leaf.path), "fiub", most_bytes) for leaf in leaves.flat(told.observation_space)
    }
    steps = len(reward)
    sizes = {"terminations": len(flags[0]), "truncations": len(flags[1]), "actions": len(action)}
    for name, size in sizes.items():
        if size != steps:
            raise ConfigError(f"{where}: has {size} {name} and {steps} rewards")
    counts = {len(x) for x in found.values()}
    if len(counts) > 1 or not counts <= {steps, steps + 1}:
        raise ConfigError(f"{where}: has {' and '.join(map(str, sorted(counts)))} observations of {steps} steps")
    try:
        obs = leaves.splitter(told.observation_space)(_nested(found))
        given = _action(told.action_space, action), fitted(reward, np.dtype(np.float32), "reward")
        terminated, truncated = (fitted(flag, np.dtype(bool), "flag") for flag in flags)
    except InvalidData as error:
        raise ConfigError(f"{where}: {error.args[0]}") from None
    for name, x in (("observations", obs), ("actions", given[:1]), ("rewards", given[1:])):
        if not all(np.isfinite(part).all() for part in x):
            raise ConfigError(f"{where}: has {name} that are not finite, or too large for float32")
    if any(x.ndim != 1 for x in (given[1], terminated, truncated)):
        raise ConfigError(f"{where}: must have one reward and one flag of each kind a step")
    lacks = steps > 0 and counts == {steps}
    return _whole(obs, *given, terminated, truncated & ~terminated, lacks), lacks


def _whole(obs: Leaves, action: Any, reward: Any, terminated: Any, truncated: Any, lacks: bool) -> Play:
    """Returns the episodes of a recording, which may lack its last observation; it may have no steps."""
    steps = len(reward)
    if lacks and terminated[-1]:
        obs = tuple(np.concatenate([x, x[-1:]]) for x in obs)
    elif lacks:
        steps -= 1
    action, reward, terminated, truncated = (x[:steps] for x in (action, reward, terminated, truncated.copy()))
    if steps and not terminated[-1]:
        truncated[-1] = True
    after = np.flatnonzero(terminated | truncated) + 1
    before, final = (tuple(x[which] for x in obs) for which in (slice(steps), after))
    return Play(before, action, reward, terminated, truncated, final, 0)


def _action(space: Any, action: np.ndarray) -> np.ndarray:
    """Returns actions ``[T, ...]`` of the library's as those of the plain space. Raises `InvalidData`."""
    plain = leaves.coder(space, "action_space").space
    if action.shape[1:] != tuple(space.shape):
        raise InvalidData(f"actions are {action.dtype}{list(action.shape)}, must be [steps, *{list(space.shape)}]")
    if isinstance(space, spaces.Box):
        return fitted(action, np.dtype(plain.dtype), "action")
    start = np.broadcast_to(np.ravel(getattr(space, "start", 0)), (math.prod(plain.shape),)).reshape(plain.shape)
    counted = fitted(action, np.dtype(np.int64), "action").reshape(len(action), *plain.shape) - start
    return fitted(counted, np.dtype(np.int32), "action")


def _name(path: Sequence[Any]) -> str:
    """Returns the name of the array of a leaf of the observations within an episode."""
    return "/".join(["observations", *(f"_index_{key}" if isinstance(key, int) else key for key in path)])


def _nested(found: Mapping[tuple[Any, ...], np.ndarray]) -> Any:
    """Returns arrays by the paths of their leaves as a tree of mappings; the array itself if its path is empty."""
    if set(found) == {()}:
        return found[()]
    heads: dict[Any, dict[tuple[Any, ...], np.ndarray]] = {}
    for path, x in found.items():
        heads.setdefault(path[0], {})[path[1:]] = x
    return {head: _nested(rest) for head, rest in heads.items()}
