"""Vector environments of Gymnasium that begin an episode in the step that ended one, or on request."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from purerl.errors import ConfigError
from purerl.hosts import leaves
from purerl.hosts.bundle import Leaves
from purerl.hosts.leaves import MASK
from purerl.hosts.rows import Ends, Rows, Source, Which, merged
from purerl.hosts.singles import numbers, observed, picture


def vector(name: str, make: Callable[[int], Any]) -> Source:
    """Returns the environment of which ``make(num_envs)`` makes vectors.

    Their ``metadata["autoreset_mode"]`` is SAME_STEP or DISABLED. A `SyncVectorEnv` of another mode is set to DISABLED.

    Raises:
        ConfigError: If the mode is another, since NEXT_STEP spends a step, in which no action is taken, on each
            beginning.
    """

    def made(num_envs: int) -> tuple[VectorEnv, AutoresetMode]:
        env = make(num_envs)
        if env.num_envs != num_envs:
            raise ConfigError(
                f"env = {name!r}: returns a vector environment of {env.num_envs}, but {num_envs} are needed; give"
                " the function a parameter num_envs"
            )
        if type(env) is SyncVectorEnv:
            env.autoreset_mode = AutoresetMode.DISABLED
            return env, AutoresetMode.DISABLED
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
            raise ConfigError(
                f"env = {name!r}: its vector environment resets in a separate step ({mode}); create it with"
                " autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP, or return a single environment"
            )
        return env, mode

    env, _ = made(1)
    try:
        obs_space, action_space = env.single_observation_space, env.single_action_space
        info = env.reset(seed=0)[1]
    finally:
        env.close()
    masked = MASK in info
    space = observed(obs_space, action_space, masked)

    def rows(num_envs: int) -> Rows:
        return _rows(*made(num_envs), masked)

    return Source(
        **leaves.fields(name, space, action_space),
        rows=rows,
        threaded=isinstance(env.unwrapped, AsyncVectorEnv),
        fps=float(env.metadata.get("render_fps", 30)),
        apart=False,
    )


def _rows(env: VectorEnv, mode: AutoresetMode, masked: bool) -> Rows:
    space = observed(env.single_observation_space, env.single_action_space, masked)
    split, gather = leaves.splitter(space), leaves.gatherer(space)
    code = leaves.coder(env.single_action_space, "action_space")
    seeds: Any = None
    first: Leaves = ()

    def view(obs: Any, info: dict[str, Any]) -> Any:
        return {"obs": obs, MASK: info[MASK]} if masked else obs

    def seed(given: np.ndarray) -> None:
        nonlocal seeds
        each = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seeds = given.tolist() if each else int(np.random.SeedSequence(given.tolist()).generate_state(1)[0] >> 1)

    def begin(which: Which) -> Leaves:
        nonlocal seeds
        if which is None:
            now, seeds = seeds, None
            return split(view(*env.reset(seed=now)))
        if mode is AutoresetMode.SAME_STEP:
            return tuple(x[which] for x in first)
        ended = np.zeros(env.num_envs, bool)
        ended[which] = True
        return tuple(x[which] for x in split(view(*env.reset(options={"reset_mask": ended}))))

    def step(action: np.ndarray, which: Which) -> Ends:
        nonlocal first
        obs, reward, terminated, truncated, info = env.step(code.decode(action))
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        next_obs = split(view(obs, info))
        if mode is AutoresetMode.SAME_STEP:
            first = next_obs
            next_obs = with_final(next_obs, np.flatnonzero(terminated | truncated), info)
        return Ends(next_obs, numbers(reward), terminated, truncated)

    def with_final(next_obs: Leaves, ended: np.ndarray, info: dict[str, Any]) -> Leaves:
        if not len(ended):
            return next_obs
        if "final_obs" not in info:
            raise ValueError("a vector environment of SAME_STEP gave no final_obs in its info")
        masks = info["final_info"][MASK] if masked else next_obs[0]
        final = gather([view(info["final_obs"][i], {MASK: masks[i]}) for i in ended])
        return merged(next_obs, ended, final)

    draws = env.render_mode == "rgb_array"
    render: Any = env.render
    return Rows(env.num_envs, seed, begin, step, env.close, picture(lambda i: render()[i]) if draws else None)
