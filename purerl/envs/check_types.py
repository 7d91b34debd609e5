"""What `check_env` says of shapes, dtypes, weak types and traces. Nothing is computed for it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.types import Env, Key, PyTree, Step

_structure: Callable[[PyTree], Any] = jax.tree.structure
_LIBRARIES = "jax", "jaxlib", "purerl"


def type_problems(env: Env, key: Key) -> list[str]:
    """What `check_env` says of shapes, dtypes, weak types and tree structures, a line each. Computes nothing."""
    if env.num_agents > 1:
        return [f"num_agents = {env.num_agents}: only environments of one agent can be checked"]
    problems = [
        *spaces.problems("observation_space", env.observation_space),
        *spaces.problems("action_space", env.action_space),
    ]
    if problems:
        return problems
    try:
        begun = jax.eval_shape(env.reset, key)
    except Exception as error:
        return [f"reset: cannot be traced by jit: {_told(error)}"]
    if not isinstance(begun, tuple) or len(begun) != 2:
        return [f"reset: must return (env_state, obs), but returns {type(begun).__name__}"]
    env_state, obs = begun
    try:
        noise = jax.eval_shape(lambda key: env.noise(key, ()), key)
        noises = jax.eval_shape(lambda key: env.noise(key, (2, 3)), key)
    except Exception as error:
        return [f"noise: cannot be traced by jit: {_told(error)}"]
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
        made = jax.eval_shape(env.step, noise, env_state, action)
    except Exception as error:
        return [*problems, f"step: cannot be traced by jit: {_told(error)}"]
    if not isinstance(made, tuple) or len(made) != 2:
        return [*problems, f"step: must return (env_state, Step), but returns {type(made).__name__}"]
    next_state, step = made
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
        problems.append(f"reset or step: cannot be vmapped: {_told(error)}")
    return problems


def trace_problems(env: Env, key: Key) -> list[str]:
    """A line if `step` is another program when it is traced again. It must be free of `type_problems`."""
    env_state, _ = jax.eval_shape(env.reset, key)
    noise = jax.eval_shape(lambda key: env.noise(key, ()), key)
    action = jax.eval_shape(lambda key: spaces.sample(env.action_space, key), key)
    one, other = (jax.make_jaxpr(lambda *args: env.step(*args))(noise, env_state, action) for _ in range(2))
    if _written(one) == _written(other):
        return []
    return ["step: is another program each time it is traced; it must depend on its arguments alone"]


def _written(program: Any) -> tuple[str, list[bytes]]:
    """A traced program as text, without the addresses of functions, and its constants."""
    keys = lambda x: hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    numbers = [np.asarray(jax.random.key_data(x) if keys(x) else x) for x in program.consts]
    return re.sub("0x[0-9a-f]+", "", str(program)), [x.tobytes() for x in numbers]


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
        return [f"legal: cannot be traced by jit: {_told(error)}"]
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


def _told(error: Exception) -> str:
    """The kind of an error, its first line, and the place outside of `_LIBRARIES` where it was raised."""
    place, trace = "", error.__traceback__
    while trace:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            place = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}{place}"
