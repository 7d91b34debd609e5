"""Vector environments of Gymnasium that begin an episode in the step that ended one, or on request."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from purerl.errors import ConfigError
from purerl.hosts import leaves, protocol, telling
from purerl.hosts.bundle import Leaves
from purerl.hosts.copies import Copies, plan
from purerl.hosts.leaves import MASK
from purerl.hosts.rows import Ends, Rows, Source, Which, merged
from purerl.hosts.singles import Seen, mask_of, metadata, numbers, observed, picture, remarks
from purerl.hosts.sound import InvalidData


def vector(name: str, make: Callable[[int, bool], Any], made: Any = None) -> Source:
    """Returns the environment of which ``make(num_envs, pictures)`` makes vectors; ``made`` is the first, if there is.

    Their ``metadata["autoreset_mode"]`` is SAME_STEP or DISABLED. A `SyncVectorEnv` of another mode is set to DISABLED.

    Raises:
        ConfigError: If the mode is another, since NEXT_STEP spends a step, in which no action is taken, on each
            beginning.
    """

    def checked(env: VectorEnv, num_envs: int) -> AutoresetMode:
        if env.num_envs != num_envs:
            raise ConfigError(
                f"env = {name!r}: returns a vector environment of {env.num_envs}, but {num_envs} are needed; give"
                " the function a parameter num_envs"
            )
        if isinstance(env.unwrapped, SyncVectorEnv):
            env.unwrapped.envs = [protocol.read(each) for each in env.unwrapped.envs]
        if type(env) is SyncVectorEnv:
            env.autoreset_mode = AutoresetMode.DISABLED
            return AutoresetMode.DISABLED
        mode = metadata(env).get("autoreset_mode")
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
            raise ConfigError(
                f"env = {name!r}: its vector environment resets in a separate step ({mode}); create it with"
                " autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP, or return a single environment"
            )
        return mode

    copies = Copies(name, make, whole=True)
    size, pictures, *_ = plan()
    env = copies.look(size, pictures, made=made)
    seen = _look(name, env, checked(env, size))

    def rows(num_envs: int, pictures: bool = False) -> Rows:
        build = lambda envs: _rows(envs[0], checked(envs[0], num_envs), seen)
        opened: Rows = copies.rows(build, 1, num_envs, pictures)
        return opened

    return Source(
        **seen.fields(name),
        rows=rows,
        threaded=isinstance(env.unwrapped, AsyncVectorEnv),
        fps=float(metadata(env).get("render_fps") or 30),
        apart=False,
        paced=False,
        copies=copies,
    )


def _look(name: str, env: VectorEnv, mode: AutoresetMode) -> Seen:
    """Begins an episode of a vector environment and returns what is seen, as `singles.look` does."""
    space, action_space = env.single_observation_space, env.single_action_space
    try:
        info = _begun(env, seed=0)[1]
    except InvalidData as error:
        raise ConfigError(f"env = {name!r}: {error}") from None
    masked = ""
    if leaves.has_choices(action_space):
        own = leaves.mask_key(space) is None and _has(env, "action_masks")
        masked = "info" if MASK in info else "method" if own else ""
    if masked == "method" and mode is AutoresetMode.SAME_STEP:
        raise ConfigError(
            f"env = {name!r}: its environments have action_masks, whose result at the end of an episode a vector of"
            f" SAME_STEP does not show; give the mask as {MASK!r} in info, or return a single environment"
        )
    notes = [note for each in _readers(env) for note in each.notes]
    kept = [f"its environments have {each}" for each in ("obs_rms", "return_rms") if _is_async(env) and _has(env, each)]
    notes += [
        f"{line}, statistics that evaluation, eval, export and resume do not see; they begin anew" for line in kept
    ]
    return Seen(observed(space, action_space, bool(masked)), action_space, masked, (*notes, *remarks(env)))


def _is_async(env: VectorEnv) -> bool:
    return isinstance(env.unwrapped, AsyncVectorEnv)


def _has(env: VectorEnv, name: str) -> bool:
    """Returns whether the single environments of a vector have an attribute."""
    if not isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return False
    return bool(env.unwrapped.call("has_wrapper_attr", name)[0])


def _readers(env: VectorEnv) -> list[protocol.Reader]:
    """Returns the readers around the single environments of a vector that steps them in this thread."""
    return [one for each in getattr(env.unwrapped, "envs", ())[:1] for one in protocol.readers(each)]


def _begun(env: VectorEnv, **given: Any) -> Any:
    """Returns the result of ``env.reset(**given)``. Raises `InvalidData` if it is no observation and info."""
    takes, needs = protocol.parameters(env.reset)
    if lacks := sorted(set(given) - takes) or needs:
        raise InvalidData(f"{protocol.where(env, 'reset')} must take seed and options alone; wrong: {', '.join(lacks)}")
    result = env.reset(**given)
    if not protocol.begun(result):
        raise protocol.not_a_reset(env, result)
    return result[0], result[1] or {}


def _rows(env: VectorEnv, mode: AutoresetMode, seen: Seen) -> Rows:
    space, masked = seen.observation_space, seen.masked
    split, gather = leaves.splitter(space), leaves.gatherer(space)
    code = leaves.coder(seen.action_space, "action_space")
    count = int(np.prod(leaves.flat(space)[0].shape)) if masked else 0
    seeds: Any = None
    first: Leaves = ()
    is_new = True
    unasked = not masked and leaves.mask_key(space) is None and leaves.has_choices(seen.action_space)

    def view(obs: Any, info: Any, ended: np.ndarray | None = None) -> Any:
        return {"obs": obs, MASK: masks(info, ended)} if masked else obs

    def masks(info: Any, ended: np.ndarray | None) -> np.ndarray:
        """Returns the masks ``[n, count]``. They may be missing where an episode has ended."""
        given: Any = None if masked == "method" else info.get(MASK)
        there = np.full(env.num_envs, given is not None)
        if given is not None:
            there &= np.asarray(info.get(f"_{MASK}", True), bool)
        if there.all():
            if isinstance(given, np.ndarray) and given.shape[1:] == (count,) and given.dtype in (np.int8, np.bool_):
                return given
            return np.stack([mask_of(each, count, i) for i, each in enumerate(given)])
        if _has(env, "action_masks"):
            return np.stack([mask_of(each, count, i) for i, each in enumerate(env.unwrapped.call("action_masks"))])
        if (missing := ~there if ended is None else ~(there | ended)).any():
            raise InvalidData(
                f"info has no {MASK!r}, which the first one had; must have one at every step and reset, all 1 where all"
                " actions are legal",
                int(np.flatnonzero(missing)[0]),
            )
        every = np.ones((env.num_envs, count), np.int8)
        for i in np.flatnonzero(there):
            every[i] = mask_of(given[i], count, int(i))
        return every

    def seed(given: np.ndarray) -> None:
        nonlocal seeds
        each = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seeds = given.tolist() if each else int(np.random.SeedSequence(given.tolist()).generate_state(1)[0] >> 1)

    def begin(which: Which) -> Leaves:
        nonlocal seeds
        if which is None:
            now, seeds = seeds, None
            return split(view(*_begun(env, seed=now)))
        if mode is AutoresetMode.SAME_STEP:
            return tuple(x[which] for x in first)
        ended = np.zeros(env.num_envs, bool)
        ended[which] = True
        obs, info = _begun(env, options={"reset_mask": ended})
        return tuple(x[which] for x in split(view(obs, info, ~ended)))

    def step(action: np.ndarray, which: Which) -> Ends:
        nonlocal first, is_new
        result = env.step(code.decode(action))
        if not isinstance(result, tuple) or len(result) != 5:
            raise protocol.not_a_step(env, result)
        obs, reward, terminated, truncated, info = result
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        ended = np.flatnonzero(terminated | truncated)
        if is_new:
            is_new = False
            settle()
        if unasked and MASK in info:
            raise InvalidData(f"step gives an {MASK!r} in its info, reset does not; must give one, too")
        if mode is AutoresetMode.SAME_STEP:
            first = split(view(obs, info))
            next_obs = with_final(first, ended, info)
        else:
            next_obs = split(view(obs, info, terminated))
        source = info.get("final_info", info) if mode is AutoresetMode.SAME_STEP else info
        return Ends(next_obs, numbers(reward), terminated, truncated, lambda row: telling.of_vector(source, row))

    def settle() -> None:
        """After the first step: calls what follows Gymnasium's interface as it is."""
        if isinstance(env.unwrapped, SyncVectorEnv):
            env.unwrapped.envs = [protocol.settled(each) for each in env.unwrapped.envs]

    def with_final(next_obs: Leaves, ended: np.ndarray, info: dict[str, Any]) -> Leaves:
        if not len(ended):
            return next_obs
        if "final_obs" not in info:
            raise InvalidData("a vector environment of SAME_STEP gave no final_obs in its info")
        finals: list[Any] = [info["final_obs"][i] for i in ended]
        if masked:
            each = info.get("final_info", {}).get(MASK)
            shown = [np.ones(count, np.int8) if each is None else mask_of(each[i], count, int(i)) for i in ended]
            finals = [{"obs": obs, MASK: mask} for obs, mask in zip(finals, shown, strict=True)]
        return merged(next_obs, ended, gather(finals))

    draws = getattr(env, "render_mode", None) == "rgb_array"
    render: Any = env.render
    return Rows(env.num_envs, seed, begin, step, env.close, picture(lambda i: render()[i]) if draws else None)
