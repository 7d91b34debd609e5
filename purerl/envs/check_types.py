"""The checks of `check_env` for shapes, dtypes, weak types and traces. They compute nothing."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.envs.resets import parse
from purerl.errors import RAISED, ConfigError, one_line
from purerl.types import Env, Key, PyTree, Step

_structure: Callable[[PyTree], Any] = jax.tree.structure


def type_problems(env: Env, key: Key) -> list[str]:
    """Returns a line for each problem of shapes, dtypes, weak types and tree structures. Computes nothing."""
    if type(env.num_agents) is not int or env.num_agents < 1:
        return [f"num_agents = {env.num_agents!r}: must be a whole number >= 1"]
    agents = agent_axis(env)
    functions = "levels", "begin", "noise", "step"
    absent = [name for name in functions if not callable(getattr(env, name))]
    if absent:
        return [f"{name}: must be a function; an Env is (name, {', '.join(functions)}, ...)" for name in absent]
    try:
        parse(env.name, env.resets)
    except ConfigError as error:
        return [str(error).removeprefix(f"env = {env.name!r}: ")]
    problems = [
        *spaces.problems("observation_space", env.observation_space),
        *spaces.problems("action_space", env.action_space),
    ]
    if problems:
        return problems
    drawn = {}
    for name in ("levels", "noise"):
        drawn[name], lines = _draw_problems(name, getattr(env, name), key)
        problems += lines
    if any(tree is None for tree in drawn.values()):
        return problems
    if not jax.tree.leaves(drawn["levels"]):
        return ["levels: holds no array; where nothing is drawn, give purerl.envs.episodic.one_level"]
    if lines := _design_problems(env, drawn["levels"], key):
        return problems + lines
    try:
        begun = jax.eval_shape(env.begin, drawn["levels"])
    except RAISED as error:
        return [*problems, f"begin: cannot be traced by jit: {one_line(error)}"]
    if not isinstance(begun, tuple) or len(begun) != 2:
        return [*problems, f"begin: must return (env_state, obs), but returns {type(begun).__name__}"]
    env_state, obs = begun
    action = jax.eval_shape(lambda key: spaces.sample(env.action_space, key, agents), key)
    problems += _obs_problems("begin's obs", obs, env.observation_space, agents)
    problems += _weak("begin's env_state", env_state)
    problems += [] if problems else _function_problems(env)
    try:
        made = jax.eval_shape(env.step, drawn["noise"], env_state, action)
    except RAISED as error:
        return [*problems, f"step: cannot be traced by jit: {one_line(error)}"]
    if not isinstance(made, tuple) or len(made) != 2:
        return [*problems, f"step: must return (env_state, Step), but returns {type(made).__name__}"]
    next_state, step = made
    if not isinstance(step, Step):
        return [*problems, f"step: must return (env_state, Step), but the second is {type(step).__name__}"]
    problems += _obs_problems("step's next_obs", step.next_obs, env.observation_space, agents)
    problems += _array_problems("reward", step.reward, agents, jnp.float32)
    problems += _array_problems("terminated", step.terminated, agents, bool)
    problems += _array_problems("truncated", step.truncated, agents, bool)
    problems += _seat_problems(env, env_state, step) + _info_problems(env, step)
    problems += _state_problems(env_state, next_state, "step")
    problems += _weak("step's env_state", next_state)
    problems += _changed_state_problems(env, env_state, key)
    try:
        level, *batch = _led((drawn["levels"], drawn["noise"], env_state, action), (2,))
        jax.eval_shape(jax.vmap(env.begin), level)
        jax.eval_shape(jax.vmap(env.step), *batch)
    except RAISED as error:
        problems.append(f"begin or step: cannot be vmapped: {one_line(error)}")
    return problems


def _seat_problems(env: Env, env_state: PyTree, step: Step) -> list[str]:
    """Returns what is wrong with `Env.present` and `Step.over`, which say who of several agents is in the game."""
    problems = [] if isinstance(step.over, tuple) else _array_problems("over", step.over, agent_axis(env), bool)
    if env.present is None:
        return problems
    try:
        present = jax.eval_shape(env.present, env_state)
    except RAISED as error:
        return [*problems, f"present: cannot be traced by jit: {one_line(error)}"]
    return problems + _array_problems("present", present, (env.num_agents,), bool)


def _info_problems(env: Env, step: Step) -> list[str]:
    """Returns what is wrong with `Step.info`, whose numbers `Env.info_names` lists."""
    info = step.info if isinstance(step.info, dict) else {}
    problems = [f"info: lacks {name!r}, which is among info_names" for name in env.info_names if name not in info]
    given = [(name, info[name]) for name in env.info_names if name in info]
    return problems + [
        f"info[{name!r}]: must be a number [] or {list(agent_axis(env))}, but is {jnp.shape(x)}"
        for name, x in given
        if jnp.shape(x) not in ((), agent_axis(env))
    ]


def _draw_problems(name: str, draw: Callable[[Key, tuple[int, ...]], PyTree], key: Key) -> tuple[PyTree, list[str]]:
    """Returns what `levels` or `noise` draws for one, and what is wrong with it; None if the rest cannot be checked."""
    try:
        one = jax.eval_shape(lambda key: draw(key, ()), key)
        many = jax.eval_shape(lambda key: draw(key, (2, 3)), key)
    except RAISED as error:
        return None, [f"{name}: cannot be traced by jit: {one_line(error)}"]
    if _structure(one) != _structure(many):
        return None, [f"{name}: its tree structure depends on the shape asked for"]
    return one, [
        f"{name}{jax.tree_util.keystr(path)}: shape {x.shape} for {name}(key, (2, 3)), but {(2, 3, *like.shape)} "
        f"follows from {name}(key, ())"
        for (path, like), x in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(many), strict=True)
        if x.shape != (2, 3, *like.shape)
    ]


def _design_problems(env: Env, level: PyTree, key: Key) -> list[str]:
    """Returns what is wrong with a design: its levels must be like those that `levels` draws."""
    if env.design is None:
        return []
    sizes = env.design.sizes
    if not isinstance(sizes, tuple) or not sizes or any(type(size) is not int or size < 1 for size in sizes):
        return [f"design.sizes = {sizes!r}: must be a tuple of whole numbers >= 1"]
    choices, lines = jax.ShapeDtypeStruct((len(sizes),), jnp.int32), []
    for name, given in {"change": level, "build": choices}.items():
        try:
            made = jax.eval_shape(getattr(env.design, name), key, given)
        except RAISED as error:
            lines.append(f"design.{name}: cannot be traced by jit: {one_line(error)}")
            continue
        if _structure(made) != _structure(level):
            lines.append(f"design.{name}: gives {_structure(made)}, but levels {_structure(level)}")
            continue
        pairs = zip(jax.tree.leaves_with_path(level), jax.tree.leaves(made), strict=True)
        lines += [
            f"design.{name}{jax.tree_util.keystr(path)}: {x.dtype}{list(x.shape)}, but {y.dtype}{list(y.shape)} in "
            "what levels draws"
            for (path, y), x in pairs
            if (x.shape, x.dtype) != (y.shape, y.dtype)
        ]
    return lines


def _changed_state_problems(env: Env, env_state: PyTree, key: Key) -> list[str]:
    """Returns what is wrong with `keep`, which makes a state of two, and with `redraw`, which makes one of one."""
    problems: list[str] = []
    for name, first in {"keep": env_state, "redraw": key}.items():
        change = getattr(env, name)
        if change is None:
            continue
        try:
            changed = jax.eval_shape(change, first, env_state)
        except RAISED as error:
            problems.append(f"{name}: cannot be traced by jit: {one_line(error)}")
            continue
        problems += _state_problems(env_state, changed, name) + _weak(f"{name}'s env_state", changed)
    return problems


def agent_axis(env: Env) -> tuple[int, ...]:
    """Returns the leading axes of observations, actions and every field of `Step`: ``[N]`` with several agents."""
    return (env.num_agents,) if env.num_agents > 1 else ()


def trace_problems(env: Env, key: Key) -> list[str]:
    """Returns a line if `step` is another program when it is traced again. It must be free of `type_problems`."""
    env_state, _ = jax.eval_shape(env.reset, key)
    noise = jax.eval_shape(lambda key: env.noise(key, ()), key)
    action = jax.eval_shape(lambda key: spaces.sample(env.action_space, key, agent_axis(env)), key)
    one, other = (jax.make_jaxpr(lambda *args: env.step(*args))(noise, env_state, action) for _ in range(2))
    if _written(one) == _written(other):
        return []
    return ["step: is another program each time it is traced; it must depend on its arguments alone"]


def _written(program: Any) -> tuple[str, list[bytes]]:
    """Returns a traced program as text, without the addresses of functions, and its constants."""
    keys = lambda x: hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    numbers = [np.asarray(jax.random.key_data(x) if keys(x) else x) for x in program.consts]
    return re.sub("0x[0-9a-f]+", "", str(program)), [x.tobytes() for x in numbers]


def _obs_problems(leaf: str, obs: PyTree, space: spaces.Space, lead: tuple[int, ...]) -> list[str]:
    like = _led(spaces.struct(space), lead)
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


def _function_problems(env: Env) -> list[str]:
    """Returns what is wrong with the functions of observations, which take any leading axes and ignore agents."""
    problems, part = _part_problems(env, "own")
    problems += _part_problems(env, "state")[0]
    if problems:
        return problems
    inputs = {"": spaces.struct(env.observation_space)} | ({" of own(obs)": spaces.struct(part)} if env.own else {})
    for role, obs in inputs.items():
        problems += _legal_problems(env, f"legal{role}", obs)
        problems += _mask_problems(f"acting{role}", env.acting, obs, ()) if env.acting else []
    return problems


def _part_problems(env: Env, name: str) -> tuple[list[str], spaces.Space]:
    """Returns what is wrong with `own` or `state`, and the part of the space of observations that it selects."""
    select, space = getattr(env, name), env.observation_space
    if select is None:
        return [], space
    try:
        part = select(space)
    except RAISED as error:
        return [f"{name}: must select a part of observation_space, as it does of observations: {one_line(error)}"], None
    problems = spaces.problems(f"{name}(observation_space)", part)
    for lead in () if problems else ((), (2, 3)):
        try:
            obs = jax.eval_shape(select, _led(spaces.struct(space), lead))
        except RAISED as error:
            return [f"{name}: cannot be traced by jit: {one_line(error)}"], part
        problems = problems or _obs_problems(f"{name}{_of(lead)}", obs, part, lead)
    return problems, part


def _legal_problems(env: Env, leaf: str, obs: PyTree) -> list[str]:
    """Returns what is wrong with the mask of legal actions."""
    if env.legal is None:
        return []
    space = env.action_space
    if lines := spaces.choice_problems("action_space", space):
        return lines
    if not spaces.choices(space):
        return [f"{leaf}: actions are {spaces.kind(space)} of numbers alone; only choices can be illegal"]
    return _mask_problems(leaf, env.legal, obs, (sum(spaces.choices(space)),))


def _mask_problems(leaf: str, mask: Callable[[PyTree], Any], obs: PyTree, shape: tuple[int, ...]) -> list[str]:
    """Returns what is wrong with a function of one observation, or of many, that returns bools ``[..., *shape]``."""
    problems: list[str] = []
    for lead in ((), (2, 3)):
        try:
            result = jax.eval_shape(mask, _led(obs, lead))
        except RAISED as error:
            return [f"{leaf}: cannot be traced by jit: {one_line(error)}"]
        problems = problems or _array_problems(leaf + _of(lead), result, (*lead, *shape), bool)
    return problems


def _of(lead: tuple[int, ...]) -> str:
    return " of observations [2, 3, ...]" if lead else ""


def _led(tree: PyTree, lead: tuple[int, ...]) -> PyTree:
    """Returns shapes and dtypes of a tree with leading axes."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), tree)


def _array_problems(leaf: str, x: Any, shape: tuple[int, ...], dtype: Any) -> list[str]:
    if not hasattr(x, "shape"):
        return [f"{leaf}: must be one array, but is {_structure(x)}"]
    if (x.shape, x.dtype) != (shape, dtype):
        return [f"{leaf}: must be {jnp.dtype(dtype)}{list(shape)}, but is {x.dtype}{list(x.shape)}"]
    return _weak(leaf, x)


def _weak(leaf: str, tree: PyTree) -> list[str]:
    weak = [path for path, x in jax.tree.leaves_with_path(tree) if x.weak_type]
    return [f"{leaf}{jax.tree_util.keystr(path)}: is weakly typed; give it a dtype" for path in weak]


def _state_problems(before: PyTree, after: PyTree, function: str) -> list[str]:
    if _structure(before) != _structure(after):
        return [f"env_state: begin gives {_structure(before)}, but {function} {_structure(after)}"]
    return [
        f"env_state{jax.tree_util.keystr(path)}: {old.dtype}{list(old.shape)} after begin, but "
        f"{new.dtype}{list(new.shape)} after {function}"
        for (path, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
        if (old.shape, old.dtype) != (new.shape, new.dtype)
    ]
