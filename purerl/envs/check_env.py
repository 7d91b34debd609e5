"""Checks that an environment keeps the contract of `purerl.types.Env`: to be run on your own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.errors import ConfigError
from purerl.types import Array, Env, Key, PyTree, Step

_NUM_RESETS = 512
_ROUNDING = 1e-6
"""How far a float32 observation may lie outside of its space, in units of one plus the bound."""
_RARE = 0.25
"""The largest fraction of first observations after an episode's end that may show what no reset showed."""
_structure: Callable[[PyTree], Any] = jax.tree.structure


def check_env(env: Env, key: Key | None = None, num_steps: int = 256, num_envs: int = 16) -> None:
    """Raises `ConfigError` with one line for each promise that ``env`` breaks, naming the leaf; else returns None.

    First come shapes, dtypes, weak types and tree structures of `reset`, `noise` and `step`, and whether jit and vmap
    take them; nothing is computed for that. If they are right, ``num_envs`` environments are stepped ``num_steps``
    times at random under one jit, and the values are looked at: observations within their space, finite numbers, flags
    that exclude each other, ``obs`` against ``next_obs``, fresh observations after an episode's end, resets that
    depend on their key alone. What no step of that run met is not tested, so pass more steps where episodes are long.
    """
    key = jax.random.key(0) if key is None else key
    problems = type_problems(env, key) or _value_problems(env, key, num_steps, num_envs)
    if problems:
        raise ConfigError("\n".join(f"{env.name}: {problem}" for problem in problems))


def type_problems(env: Env, key: Key) -> list[str]:
    """What `check_env` says of shapes, dtypes, weak types and tree structures, a line each. Computes nothing."""
    problems = [
        *spaces.problems("observation_space", env.observation_space),
        *spaces.problems("action_space", env.action_space),
    ]
    if problems:
        return problems
    try:
        env_state, obs = jax.eval_shape(env.reset, key)
        noise = jax.eval_shape(lambda key: env.noise(key, ()), key)
        noises = jax.eval_shape(lambda key: env.noise(key, (2, 3)), key)
    except Exception as error:
        return [f"reset or noise: cannot be traced by jit: {_first_line(error)}"]
    if _structure(noise) != _structure(noises):
        return ["noise: its tree structure depends on the shape asked for"]
    action = jax.eval_shape(lambda key: spaces.sample(env.action_space, key), key)
    problems += [
        f"noise{jax.tree_util.keystr(path)}: shape {many.shape} for noise(key, (2, 3)), but {(2, 3, *one.shape)} "
        f"follows from noise(key, ())"
        for (path, one), many in zip(jax.tree.leaves_with_path(noise), jax.tree.leaves(noises), strict=True)
        if many.shape != (2, 3, *one.shape)
    ]
    problems += _obs_problems("reset's obs", obs, env.observation_space)
    problems += _weak("reset's env_state", env_state)
    problems += [] if problems else _legal_problems(env, obs)
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


def _obs_problems(leaf: str, obs: PyTree, space: spaces.Space) -> list[str]:
    like = spaces.struct(space)
    if _structure(obs) != _structure(like):
        return [f"{leaf}: must be {_words(like)}, but is {_words(obs)}"]
    pairs = zip(jax.tree.leaves_with_path(obs), jax.tree.leaves(like), strict=True)
    return [
        line
        for (path, x), y in pairs
        for line in _array_problems(leaf + jax.tree_util.keystr(path), x, y.shape, y.dtype)
    ]


def _words(tree: PyTree) -> str:
    single = _structure(tree) == _structure(0)
    return "one array" if single else str(_structure(tree))


def _legal_problems(env: Env, obs: PyTree) -> list[str]:
    """Shape and type of the mask of legal actions, and that it does not depend on floats, which are normalised."""
    if env.legal is None:
        return []
    space = env.action_space
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return [f"legal: actions are {spaces.kind(space)}; only Discrete and MultiDiscrete ones can be illegal"]
    size = space.n if isinstance(space, spaces.Discrete) else sum(space.sizes)
    try:
        mask = jax.eval_shape(env.legal, obs)
        many = jax.eval_shape(env.legal, jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, 3, *x.shape), x.dtype), obs))
    except Exception as error:
        return [f"legal: cannot be traced by jit: {_first_line(error)}"]
    problems = _array_problems("legal", mask, (size,), bool)
    return problems or _array_problems("legal of observations [2, 3, ...]", many, (2, 3, size), bool)


def _array_problems(leaf: str, x: Any, shape: tuple[int, ...], dtype: Any) -> list[str]:
    if not hasattr(x, "shape"):
        return [f"{leaf}: must be one array, but is {_structure(x)}"]
    if (x.shape, x.dtype) != (shape, dtype):
        return [f"{leaf}: must be {jnp.dtype(dtype)}{list(shape)}, but is {x.dtype}{list(x.shape)}"]
    return _weak(leaf, x)


def _weak(leaf: str, tree: PyTree) -> list[str]:
    weak = [path for path, x in jax.tree.leaves_with_path(tree) if x.weak_type]
    return [f"{leaf}{jax.tree_util.keystr(path)}: is weakly typed; give it a dtype" for path in weak]


def _state_problems(before: PyTree, after: PyTree) -> list[str]:
    if _structure(before) != _structure(after):
        return [f"env_state: reset gives {_structure(before)}, but step {_structure(after)}"]
    return [
        f"env_state{jax.tree_util.keystr(path)}: {old.dtype}{list(old.shape)} after reset, but "
        f"{new.dtype}{list(new.shape)} after step"
        for (path, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
        if (old.shape, old.dtype) != (new.shape, new.dtype)
    ]


def _value_problems(env: Env, key: Key, num_steps: int, num_envs: int) -> list[str]:
    def inside(obs: PyTree) -> Array:
        """Whether all observations lie within their space."""

        def leaf(space: spaces.Leaf, x: Array) -> Array:
            least, most = (jnp.broadcast_to(jnp.asarray(bound, jnp.float32), x.shape) for bound in spaces.bounds(space))
            above = x >= least - _ROUNDING * (1 + jnp.abs(least))
            return jnp.all(above & (x <= most + _ROUNDING * (1 + jnp.abs(most))))

        return _all(spaces.tree_map(leaf, env.observation_space, obs))

    def finite(obs: PyTree) -> Array:
        return _all(jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), obs))

    def each(test: Any, *trees: PyTree) -> Array:
        """``[B]``: whether ``test`` holds for any element of any leaf of an environment."""
        rows = jax.tree.map(lambda *x: jnp.any(test(*x).reshape(num_envs, -1), axis=1), *trees)
        return jnp.any(jnp.stack(jax.tree.leaves(rows)), axis=0)

    def rollout(key: Key) -> dict[str, Array]:
        key_reset, key_noise, key_action = jax.random.split(key, 3)
        keys = jax.random.split(key_reset, _NUM_RESETS)
        starts, again = jax.vmap(env.reset)(keys), jax.vmap(env.reset)(keys)
        pairs = zip(jax.tree.leaves(starts), jax.tree.leaves(again), strict=True)
        same = [jnp.array_equal(_bits(x), _bits(y), equal_nan=True) for x, y in pairs]
        first_obs = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), starts[1])
        narrow = jax.tree.map(lambda x: jnp.min(x, axis=0), first_obs)
        wide = jax.tree.map(lambda x: jnp.max(x, axis=0), first_obs)

        def unlike_reset(x: Array, low: Array, high: Array) -> Array:
            margin = high - low
            return (x < (low - margin)[None]) | (x > (high + margin)[None])

        def one_step(env_state, inputs):
            env_state, step = jax.vmap(env.step)(inputs[0], env_state, inputs[1])
            last = step.terminated | step.truncated
            differs = each(lambda x, y: x != y, step.obs, step.next_obs)
            unlike = each(unlike_reset, step.obs, narrow, wide) & last
            broken = {
                "step's obs: leaves observation_space": ~inside(step.obs),
                "step's next_obs: leaves observation_space": ~inside(step.next_obs),
                "step's obs: is not finite": ~finite(step.obs),
                "step's next_obs: is not finite": ~finite(step.next_obs),
                "reward: is not finite": ~jnp.all(jnp.isfinite(step.reward)),
                "terminated, truncated: are both true at one step": jnp.any(step.terminated & step.truncated),
                "step's obs: differs from next_obs in the middle of an episode": jnp.any(differs & ~last),
                **_legality(env, step.obs),
            }
            return env_state, (broken, jnp.sum(unlike), jnp.sum(last))

        noise = env.noise(key_noise, (num_steps, num_envs))
        actions = spaces.sample(env.action_space, key_action, (num_steps, num_envs))
        env_state = jax.tree.map(lambda x: x[:num_envs], starts[0])
        _, (broken, unlike, ends) = jax.lax.scan(one_step, env_state, (noise, actions), num_steps)
        return {
            "reset: gives two results for one key": ~jnp.all(jnp.array(same)),
            "reset's obs: leaves observation_space": ~inside(first_obs),
            "reset's obs: is not finite": ~finite(first_obs),
            "step's obs: after an episode's end it is unlike what reset gives": jnp.sum(unlike) > _RARE * jnp.sum(ends),
        } | jax.tree.map(jnp.any, broken)

    broken = jax.device_get(jax.jit(rollout)(key))
    return [problem for problem, present in broken.items() if present]


def _legality(env: Env, obs: PyTree) -> dict[str, Array]:
    """What may be wrong with the legal actions in observations ``[B, ...]``."""
    if env.legal is None:
        return {}
    mask = env.legal(obs)
    blind = jax.tree.map(lambda x: jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x, obs)
    sizes = (env.action_space.n,) if isinstance(env.action_space, spaces.Discrete) else env.action_space.sizes
    parts = jnp.split(mask, np.cumsum(sizes)[:-1], axis=-1)
    return {
        "legal: no action is legal": ~_all([jnp.any(part, axis=-1) for part in parts]),
        "legal: depends on floats of the observation": jnp.any(mask != env.legal(blind)),
    }


def _all(tree: PyTree) -> Array:
    return jnp.all(jnp.stack([jnp.all(x) for x in jax.tree.leaves(tree)]))


def _bits(x: Array) -> Array:
    """Something that can be compared, also if ``x`` holds keys."""
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
