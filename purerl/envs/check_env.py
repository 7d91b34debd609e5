"""Checks that an environment keeps the contract of `purerl.types.Env`: to be run on your own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.errors import ConfigError
from purerl.spaces import Discrete, Space
from purerl.types import Array, Env, Key, PyTree, Step

_NUM_RESETS = 512
_ROUNDING = 1e-6
"""How far a float32 observation may lie outside of its space, in units of one plus the bound."""


def check_env(env: Env, key: Key | None = None, num_steps: int = 256, num_envs: int = 16) -> None:
    """Raises `ConfigError` with one line for each promise that ``env`` breaks, naming the leaf; else returns None.

    First come shapes, dtypes, weak types and tree structures of `reset`, `noise` and `step`, and whether jit and vmap
    take them; nothing is computed for that. If they are right, ``num_envs`` environments are stepped ``num_steps``
    times at random under one jit, and the values are looked at: observations within their space, finite numbers, flags
    that exclude each other, ``obs`` against ``next_obs``, fresh observations after an episode's end, resets that
    depend on their key alone. What no step of that run met is not tested, so pass more steps where episodes are long.
    """
    key = jax.random.key(0) if key is None else key
    problems = _type_problems(env, key) or _value_problems(env, key, num_steps, num_envs)
    if problems:
        raise ConfigError("\n".join(f"{env.name}: {problem}" for problem in problems))


def random_actions(space: Space, key: Key, shape: tuple[int, ...]) -> Array:
    """``shape`` many actions: uniform over the space, or standard normal ones clipped into it where it is unbounded."""
    if isinstance(space, Discrete):
        return jax.random.randint(key, shape, 0, space.n)
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    bounded = np.all((np.abs(low) < 1e30) & (np.abs(high) < 1e30))
    draw = jax.random.uniform if bounded else jax.random.normal
    sample = draw(key, (*shape, *space.shape))
    low, high = np.broadcast_to(low, sample.shape), np.broadcast_to(high, sample.shape)
    return jnp.asarray(low + sample * (high - low) if bounded else jnp.clip(sample, low, high), space.dtype)


def _type_problems(env: Env, key: Key) -> list[str]:
    problems = [
        *_space_problems("observation_space", env.observation_space),
        *_space_problems("action_space", env.action_space),
    ]
    if problems:
        return problems
    try:
        env_state, obs = jax.eval_shape(env.reset, key)
        noise = jax.eval_shape(lambda key: env.noise(key, ()), key)
        noises = jax.eval_shape(lambda key: env.noise(key, (2, 3)), key)
    except Exception as error:
        return [f"reset or noise: cannot be traced by jit: {_first_line(error)}"]
    if jax.tree.structure(noise) != jax.tree.structure(noises):
        return ["noise: its tree structure depends on the shape asked for"]
    action = jax.eval_shape(lambda key: random_actions(env.action_space, key, ()), key)
    problems += [
        f"noise{jax.tree_util.keystr(path)}: shape {many.shape} for noise(key, (2, 3)), but {(2, 3, *one.shape)} "
        f"follows from noise(key, ())"
        for (path, one), many in zip(jax.tree.leaves_with_path(noise), jax.tree.leaves(noises), strict=True)
        if many.shape != (2, 3, *one.shape)
    ]
    problems += _obs_problems("reset's obs", obs, env.observation_space)
    problems += _weak("reset's env_state", env_state)
    try:
        next_state, step = jax.eval_shape(env.step, noise, env_state, action)
    except Exception as error:
        return [*problems, f"step: cannot be traced by jit: {_first_line(error)}"]
    if not isinstance(step, Step):
        return [*problems, f"step: must return (env_state, Step), but the second is {type(step).__name__}"]
    problems += _obs_problems("step's obs", step.obs, env.observation_space)
    problems += _obs_problems("step's next_obs", step.next_obs, env.observation_space)
    problems += _array_problems("reward", step.reward, (), jnp.float32)
    problems += _array_problems("terminated", step.terminated, (), bool)
    problems += _array_problems("truncated", step.truncated, (), bool)
    problems += _state_problems(env_state, next_state)
    problems += _weak("step's env_state", next_state)
    try:
        batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), (noise, env_state, action))
        jax.eval_shape(jax.vmap(env.reset), jax.eval_shape(lambda key: jax.random.split(key), key))
        jax.eval_shape(jax.vmap(env.step), *batch)
    except Exception as error:
        problems.append(f"reset or step: cannot be vmapped: {_first_line(error)}")
    return problems


def _space_problems(leaf: str, space: Space) -> list[str]:
    if isinstance(space, Discrete):
        return []
    try:
        ordered = np.all(np.broadcast_to(space.low, space.shape) <= np.broadcast_to(space.high, space.shape))
    except ValueError:
        return [f"{leaf}: low and high must broadcast to shape {space.shape}"]
    return [] if ordered else [f"{leaf}: low must not exceed high"]


def _obs_problems(leaf: str, obs: PyTree, space: Space) -> list[str]:
    shape, dtype = ((), jnp.int32) if isinstance(space, Discrete) else (tuple(space.shape), space.dtype)
    return _array_problems(leaf, obs, shape, dtype)


def _array_problems(leaf: str, x: Any, shape: tuple[int, ...], dtype: Any) -> list[str]:
    if not hasattr(x, "shape"):
        return [f"{leaf}: must be one array, but is {jax.tree.structure(x)}"]
    if (x.shape, x.dtype) != (shape, dtype):
        return [f"{leaf}: must be {jnp.dtype(dtype)}{list(shape)}, but is {x.dtype}{list(x.shape)}"]
    return _weak(leaf, x)


def _weak(leaf: str, tree: PyTree) -> list[str]:
    weak = [path for path, x in jax.tree.leaves_with_path(tree) if x.weak_type]
    return [f"{leaf}{jax.tree_util.keystr(path)}: is weakly typed; give it a dtype" for path in weak]


def _state_problems(before: PyTree, after: PyTree) -> list[str]:
    if jax.tree.structure(before) != jax.tree.structure(after):
        return [f"env_state: reset gives {jax.tree.structure(before)}, but step {jax.tree.structure(after)}"]
    return [
        f"env_state{jax.tree_util.keystr(path)}: {old.dtype}{list(old.shape)} after reset, but "
        f"{new.dtype}{list(new.shape)} after step"
        for (path, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
        if (old.shape, old.dtype) != (new.shape, new.dtype)
    ]


def _value_problems(env: Env, key: Key, num_steps: int, num_envs: int) -> list[str]:
    space = env.observation_space
    low, high = (0, space.n - 1) if isinstance(space, Discrete) else (space.low, space.high)

    def inside(obs):
        least, most = (jnp.broadcast_to(jnp.asarray(bound, jnp.float32), obs.shape) for bound in (low, high))
        above = obs >= least - _ROUNDING * (1 + jnp.abs(least))
        return jnp.all(above & (obs <= most + _ROUNDING * (1 + jnp.abs(most))))

    def rollout(key):
        key_reset, key_noise, key_action = jax.random.split(key, 3)
        keys = jax.random.split(key_reset, _NUM_RESETS)
        starts, again = jax.vmap(env.reset)(keys), jax.vmap(env.reset)(keys)
        pairs = zip(jax.tree.leaves(starts), jax.tree.leaves(again), strict=True)
        same = [jnp.array_equal(_bits(x), _bits(y), equal_nan=True) for x, y in pairs]
        first_obs = jnp.asarray(starts[1], jnp.float32)
        narrow, wide = jnp.min(first_obs, axis=0), jnp.max(first_obs, axis=0)
        margin = wide - narrow

        def one_step(env_state, inputs):
            env_state, step = jax.vmap(env.step)(inputs[0], env_state, inputs[1])
            last = step.terminated | step.truncated
            differs = jnp.any((step.obs != step.next_obs).reshape(num_envs, -1), axis=1)
            stale = (step.obs < (narrow - margin)[None]) | (step.obs > (wide + margin)[None])
            return env_state, {
                "step's obs: leaves observation_space": ~inside(step.obs),
                "step's next_obs: leaves observation_space": ~inside(step.next_obs),
                "step's obs: is not finite": ~jnp.all(jnp.isfinite(step.obs)),
                "step's next_obs: is not finite": ~jnp.all(jnp.isfinite(step.next_obs)),
                "reward: is not finite": ~jnp.all(jnp.isfinite(step.reward)),
                "terminated, truncated: are both true at one step": jnp.any(step.terminated & step.truncated),
                "step's obs: differs from next_obs in the middle of an episode": jnp.any(differs & ~last),
                "step's obs: after an episode's end it is unlike what reset gives": jnp.any(
                    jnp.any(stale.reshape(num_envs, -1), axis=1) & last
                ),
            }

        noise = env.noise(key_noise, (num_steps, num_envs))
        actions = random_actions(env.action_space, key_action, (num_steps, num_envs))
        env_state = jax.tree.map(lambda x: x[:num_envs], starts[0])
        _, found = jax.lax.scan(one_step, env_state, (noise, actions), num_steps)
        return {
            "reset: gives two results for one key": ~jnp.all(jnp.array(same)),
            "reset's obs: leaves observation_space": ~inside(first_obs),
            "reset's obs: is not finite": ~jnp.all(jnp.isfinite(first_obs)),
        } | jax.tree.map(jnp.any, found)

    found = jax.device_get(jax.jit(rollout)(key))
    return [problem for problem, present in found.items() if present]


def _bits(x: Array) -> Array:
    """Something that can be compared, also if ``x`` holds keys."""
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
