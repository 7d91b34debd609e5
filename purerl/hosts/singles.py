"""Single environments of Gymnasium, one after the other in this thread."""

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from purerl.errors import ConfigError, raised
from purerl.hosts import leaves, protocol
from purerl.hosts.bundle import Leaves
from purerl.hosts.leaves import MASK
from purerl.hosts.rows import Ends, Rows, Which
from purerl.hosts.sound import InvalidData, fitted, sound_obs, told_of

_LEARNS = {"obs_rms": "--normalize-obs", "return_rms": "--normalize-reward"}
"""Attributes of wrappers that hold statistics, with the option that does the same and is part of a run."""

_REWARDS = gymnasium.RewardWrapper, gymnasium.vector.VectorRewardWrapper
"""Wrappers that change rewards."""


class Seen(NamedTuple):
    """What the first episode of an environment shows.

    ``observation_space`` has a mask beside the observation if ``masked`` says where masks come from: "info", or
    "method" for ``action_masks()``.
    """

    observation_space: Any
    action_space: Any
    masked: str
    notes: tuple[str, ...]

    def fields(self, name: str) -> dict[str, Any]:
        """Returns the fields of a `Source` called ``name``. Raises `ConfigError` as `leaves.fields` does."""
        fields = leaves.fields(name, self.observation_space, self.action_space)
        return fields | {"notes": (*fields["notes"], *self.notes)}


def look(name: str, env: Any) -> Seen:
    """Begins an episode of the environment called ``name``, and returns what is seen.

    Raises:
        ConfigError: If a method does not return what it must, the observation is not of its space, or a space is
            missing.
    """
    reading = protocol.read(env)
    try:
        obs, info = reading.reset(seed=0)
        if isinstance(space := getattr(env, "observation_space", None), spaces.Space):
            leaves.plain(space, f"env = {name!r}: observation_space")
            first = leaves.gatherer(space)([obs])
            sound_obs(first, first)
    except InvalidData as error:
        raise ConfigError(f"env = {name!r}: {error}") from None
    found = [getattr(env, each, None) for each in ("observation_space", "action_space")]
    for each, space in zip(("observation_space", "action_space"), found, strict=True):
        if not isinstance(space, spaces.Space):
            raise ConfigError(
                f"env = {name!r}: {type(env.unwrapped).__name__} has {type(space).__name__} as its {each}; __init__"
                " must set a space of gymnasium.spaces"
            )
    notes = [note for layer in protocol.readers(reading) for note in layer.notes]
    masked = ""
    if leaves.has_choices(found[1]):
        own = leaves.mask_key(found[0]) is None and env.has_wrapper_attr("action_masks")
        masked = "info" if MASK in info else "method" if own else ""
    protocol.settled(reading)
    return Seen(observed(found[0], found[1], bool(masked)), found[1], masked, (*notes, *remarks(env)))


def remarks(env: Any) -> list[str]:
    """Returns a line for each wrapper that keeps statistics or changes rewards, of an environment or of a vector."""
    lines = []
    for layer in protocol.layers(env):
        kind = type(layer).__name__
        kept = [option for attribute, option in _LEARNS.items() if attribute in vars(layer)]
        if kept:
            lines.append(
                f"{kind} keeps statistics, which evaluation, eval, export and resume do not see: they begin anew there;"
                f" leave it out and give {' '.join(kept)} instead"
            )
        if isinstance(layer, _REWARDS) or "return_rms" in vars(layer):
            lines.append(f"{kind} changes rewards: the return that is reported is that of the changed rewards")
    return lines


def serial(envs: Sequence[Any], seen: Seen) -> Rows:
    """Returns rows that step ``envs``, copies of the environment that was ``seen``.

    Copy ``i`` begins its first episode with seed ``i`` and the others without one, so that each depends on its own seed
    and actions alone.
    """
    space, actions, masked = seen.observation_space, seen.action_space, seen.masked
    gather, code, outline = leaves.gatherer(space), leaves.coder(actions, "action_space"), leaves.outline(space)
    count = int(np.prod(leaves.flat(space)[0].shape)) if masked else 0
    envs = [protocol.read(env) for env in envs]
    steps = [env.step for env in envs]
    known: list[tuple[Any, Any]] = [(None, None) for _ in envs]
    seeds: list[int | None] = [None] * len(envs)
    every = range(len(envs))
    is_new, is_first = True, True
    unasked = not masked and leaves.mask_key(space) is None and leaves.has_choices(actions)

    def seed(given: np.ndarray) -> None:
        seeds[:] = given.tolist()

    def begin(which: Which) -> Leaves:
        nonlocal is_first
        is_first = which is None
        at = every if which is None else which
        observations, infos = [], []
        for i in at:
            try:
                result = envs[i].reset(seed=seeds[i])
                seeds[i] = None
                if not protocol.begun(result):
                    raise protocol.not_a_reset(envs[i].unwrapped, result)
                unchanged(i)
            except raised() as error:
                told_of(error, int(i))
                raise
            observations.append(result[0])
            infos.append(result[1])
        return gathered(observations, infos, at, None)

    def unchanged(i: int) -> None:
        """Notices spaces that a reset has changed."""
        both = envs[i].observation_space, envs[i].action_space
        before = known[i]
        if both[0] is before[0] and both[1] is before[1]:
            return
        for name, now, was in (
            ("action_space", both[1], actions),
            ("observation_space", leaves.outline(observed(both[0], both[1], bool(masked))), outline),
        ):
            if now != was:
                raise InvalidData(
                    f"{protocol.where(envs[i].unwrapped, 'reset')} changes {name}: was {was}, is {now}; must be the"
                    " same in every copy and episode" + ("; a mask can forbid actions" * (name == "action_space"))
                )
        known[i] = both

    def step(action: np.ndarray, which: Which) -> Ends:
        at = every if which is None else which
        given = code.separate(code.decode(action))
        turns: list[Any] = []
        try:
            turns.extend(map(operator.call, steps if which is None else [steps[i] for i in which], given))
        except raised() as error:
            told_of(error, int(at[len(turns)]))
            raise
        try:
            obs, reward, terminated, truncated, info = zip(*turns, strict=True)
        except (TypeError, ValueError):
            row = next(i for i, turn in enumerate(turns) if not isinstance(turn, tuple) or len(turn) != 5)
            raise protocol.not_a_step(envs[at[row]].unwrapped, turns[row], int(at[row])) from None
        if is_new:
            settle()
        if unasked and is_first:
            masks_come_late(info, at)
        return Ends(
            gathered(obs, info, at, terminated),
            numbers(reward),
            flags(terminated, "terminated"),
            flags(truncated, "truncated"),
            info.__getitem__,
        )

    def settle() -> None:
        """After the first step: calls what follows Gymnasium's interface as it is."""
        nonlocal is_new
        is_new = False
        envs[:] = [protocol.settled(env) for env in envs]
        steps[:] = [env.step for env in envs]

    def masks_come_late(infos: Sequence[Any], at: Any) -> None:
        """Notices masks that the first reset did not give, in the steps before an episode has ended."""
        for i, info in zip(at, infos, strict=True):
            if isinstance(info, Mapping) and MASK in info:
                place = protocol.where(envs[i].unwrapped, "reset")
                raise InvalidData(f"step gives an {MASK!r} in its info, {place} does not; must give one, too", int(i))

    def gathered(observations: Sequence[Any], infos: Sequence[Any], at: Any, terminated: Any) -> Leaves:
        try:
            if not masked:
                return gather(observations)
            masks = found(infos, at, terminated)
            return gather([{"obs": obs, MASK: mask} for obs, mask in zip(observations, masks, strict=True)])
        except InvalidData as error:
            raise error.among(at) from None

    def found(infos: Sequence[Any], at: Any, terminated: Any) -> list[np.ndarray]:
        """Returns the masks of the legal actions."""
        if masked == "method":
            return [mask_of(envs[i].get_wrapper_attr("action_masks")(), count, k) for k, i in enumerate(at)]
        try:
            return [mask_of(info[MASK], count, k) for k, info in enumerate(infos)]
        except (KeyError, TypeError):
            ended = [False] * len(infos) if terminated is None else terminated
            return [sought(envs[i], infos[k], ended[k], k) for k, i in enumerate(at)]

    def sought(env: Any, info: Any, ended: bool, row: int) -> np.ndarray:
        """Returns a mask that may be missing in ``info``; where the episode has ended it does not matter."""
        if isinstance(info, Mapping) and MASK in info:
            return mask_of(info[MASK], count, row)
        if env.has_wrapper_attr("action_masks"):
            return mask_of(env.get_wrapper_attr("action_masks")(), count, row)
        if ended:
            return np.ones(count, np.int8)
        raise InvalidData(
            f"the info of {protocol.where(env.unwrapped, 'step')} has no {MASK!r}, which the first one had; must have"
            " one at every step and reset, all 1 where all actions are legal",
            row,
        )

    def close() -> None:
        for env in envs:
            env.close()

    draws = getattr(envs[0], "render_mode", None) == "rgb_array"
    return Rows(len(envs), seed, begin, step, close, picture(lambda i: envs[i].render()) if draws else None)


def metadata(env: Any) -> dict[str, Any]:
    """Returns the metadata of an environment, which may have none."""
    return getattr(env, "metadata", None) or {}


def observed(observation_space: Any, action_space: Any, masked: bool) -> Any:
    """Returns the space of the observations: with a mask in ``info``, ``{"action_mask": ..., "obs": ...}``."""
    if not masked:
        return observation_space
    count = sum(leaves.choices(leaves.coder(action_space, "action_space").space))
    return spaces.Dict({"obs": observation_space, MASK: spaces.Box(0, 1, (count,), np.int8)})


def mask_of(mask: Any, count: int, row: int | None = None) -> np.ndarray:
    """Returns a mask of ``count`` actions, as int8 or bool, from an array or a sequence of any kind, or several.

    A mapping has the masks of a `Dict` of actions by key. None, of a part that has no choices, is left out.

    Raises:
        InvalidData: If it has another length, or elements other than 0 and 1.
    """
    if type(mask) is np.ndarray and mask.shape == (count,) and mask.dtype in (np.int8, np.bool_):
        return mask
    try:
        x = np.concatenate([np.ravel(np.asarray(part)) for part in _each(mask) if part is not None])
    except (TypeError, ValueError):
        x = np.empty(0, object)
    if x.dtype.kind not in "fiub":
        raise InvalidData(f"the {MASK} is a {type(mask).__name__}, must be an array of 0 and 1", row)
    if x.shape != (count,):
        raise InvalidData(f"the {MASK} has {x.size} elements, there are {count} actions", row)
    if not ((x == 0) | (x == 1)).all():
        raise InvalidData(f"the {MASK} has {x[(x != 0) & (x != 1)][0]}, must have 0 and 1 alone", row)
    return x.astype(np.int8)


def _each(mask: Any) -> Sequence[Any]:
    """Returns the masks that a mask consists of, in the order of `leaves.parts`."""
    if isinstance(mask, Mapping):
        return [part for key in sorted(mask) for part in _each(mask[key])]
    return mask if isinstance(mask, tuple | list) else (mask,)


def numbers(reward: Sequence[Any], each: int = 1) -> np.ndarray:
    """Returns rewards as float32 ``[n]``, ``each`` of every environment; arrays of one element are numbers.

    Raises:
        InvalidData: For anything else.
    """
    try:
        rewards = np.array(reward)
    except ValueError:  # of several shapes
        rewards = np.empty((0, 0))
    if rewards.ndim != 1 or rewards.dtype.kind not in "fiub":
        rewards = np.array([_number(one, i // each) for i, one in enumerate(reward)])
    return fitted(rewards, np.dtype(np.float32), "reward", each)


def _number(reward: Any, row: int) -> float:
    if not isinstance(reward, str | bytes):
        try:
            return float(np.asarray(reward).item())
        except (TypeError, ValueError):
            pass
    several = isinstance(reward, np.ndarray | list | tuple)
    what = f"an array of shape {np.shape(reward)}" if several else repr(reward)[:80]
    way = "; a wrapper in a function of your own can weigh several objectives" if several else ""
    raise InvalidData(f"the reward is {what}, must be a number{way}", row)


def flags(given: Sequence[Any], name: str) -> np.ndarray:
    """Returns flags as bool ``[n]``; arrays of one element are flags. Raises `InvalidData` for other arrays."""
    try:
        x = np.array(given, bool)
    except ValueError:  # of several shapes
        x = np.empty((0, 0), bool)
    return x if x.ndim == 1 else np.array([_flag(each, name, row) for row, each in enumerate(given)])


def _flag(given: Any, name: str, row: int) -> bool:
    if np.size(given) != 1:
        raise InvalidData(f"{name} is an array of shape {np.shape(given)}, must be True or False", row)
    return bool(np.asarray(given).item())


def picture(render: Callable[[int], Any]) -> Callable[[int], np.ndarray]:
    """Returns a function that makes a picture of ``render(i)``.

    It raises `ConfigError` if the library cannot draw one.
    """

    def frame(i: int) -> np.ndarray:
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # stops pygame from opening a sound card
        try:
            image = np.asarray(render(i))
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise ConfigError(f"no picture: {' '.join(str(error).split())}") from error
        if image.ndim != 3 or image.shape[-1] != 3:
            raise ConfigError(f"cannot be rendered: the environment returns an array of shape {image.shape}")
        return image.astype(np.uint8)

    return frame
