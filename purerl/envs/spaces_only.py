"""What a policy needs of its environment, as JSON: spaces, and which parts of an observation are what.

A policy can so be read where the environment itself is missing: by a stand-in of the same spaces, in which nothing can
be played.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, MultiDiscrete, Space
from purerl.types import Array, Env, Key, PyTree, Step

MASKS = "legal", "acting"
"""Functions of an environment that are saved if they return a part of an observation as it is."""
PARTS = "own", "state"
"""Functions of an environment that select parts of an observation."""
FLAGS = "zero_sum", "partly_observed", "hidden"
MOST_LEAVES, MOST_ELEMENTS, DEEPEST = 1000, 2**28, 16
"""Sizes up to which spaces are read from a file."""
SAMPLES = 16
"""How many random observations a mask must be a part of."""


def described(env: Env) -> dict[str, Any]:
    """Returns the spaces of ``env``, how many agents it has, and which parts of an observation are masks and views.

    Of a mask that is computed otherwise the name alone is in ``"code"``. Empty if a space or a view is no tree of
    dicts with names, lists and tuples, or if bounds are traced.
    """
    try:
        paths = _paths(env.observation_space)
        views = {name: _tree(getattr(env, name)(paths), str) for name in PARTS if getattr(env, name)}
        fields = {
            "observation": _tree(env.observation_space, _leaf),
            "action": _tree(env.action_space, _leaf),
            "num_agents": env.num_agents,
            **{name: True for name in FLAGS if getattr(env, name)},
            **views,
        }
        masks = {name: _part(getattr(env, name), env.observation_space, paths) for name in MASKS if getattr(env, name)}
    except Exception:  # functions of a user's own, of any kind of tree
        return {}
    code = [name for name, path in masks.items() if path is None]
    return fields | {name: path for name, path in masks.items() if path is not None} | ({"code": code} if code else {})


def stand_in(name: str, fields: Any, why: str) -> Env:
    """Makes an environment of the spaces that `described` returned, which cannot be stepped.

    Args:
        name: Its name.
        fields: What `described` returned, from an untrusted file.
        why: Why the environment itself is missing, for errors.

    Raises:
        ConfigError: The fields are damaged; or a mask is computed by code that is missing; or the environment is
            stepped. The line begins with ``why``, unless the fields are damaged.
    """
    try:
        observation, action = (_read(fields[part], _leaf_of_json, DEEPEST) for part in ("observation", "action"))
        lead = () if (num_agents := int(fields["num_agents"])) == 1 else (num_agents,)
        paths = {path: path for path in jax.tree.leaves(_paths(observation))}
        views = {part: _selection(_read(fields[part], paths.__getitem__, DEEPEST)) for part in PARTS if part in fields}
        masks = {part: _mask(paths[fields[part]]) for part in MASKS if part in fields}
        flags = {flag: bool(fields.get(flag)) for flag in FLAGS}
        problems = spaces.problems("observation", observation) + spaces.problems("action", action)
        sizes = [math.prod(leaf.shape) for leaf in spaces.leaves([observation, action]) if isinstance(leaf, Box)]
        if problems or num_agents < 1 or num_agents * sum(sizes) > MOST_ELEMENTS or len(paths) > MOST_LEAVES:
            raise ValueError
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ConfigError(f"{why}; its saved spaces are damaged") from None
    if code := fields.get("code"):
        raise ConfigError(f"{why}; its spaces are saved, but {' and '.join(map(str, code))} is code of the module")
    like: Any = spaces.struct(observation)

    def levels(key: Key, shape: tuple[int, ...]) -> PyTree:
        return jax.tree.map(lambda x: jnp.zeros((*shape, *lead, *x.shape), x.dtype), like)

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        raise ConfigError(why)

    noise = lambda key, shape: ()
    begin = lambda level: ((), level)
    parts: dict[str, Any] = {**views, **masks, **flags, "num_agents": num_agents}
    return Env(name, levels, begin, noise, step, observation, action, **parts)


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns what in the spaces of `described` has another structure, shape, type or number than before."""
    same = lambda part: part not in before or part not in now or _plain(before[part]) == _plain(now[part])
    return [part for part in ("observation", "action", "num_agents") if not same(part)]


def _plain(content: Any) -> Any:
    """Returns what `described` has of a space without the bounds of boxes, which parameters may move."""
    if not isinstance(content, dict):
        return content
    without = lambda leaf: {name: x for name, x in leaf.items() if name not in ("low", "high")}
    return jax.tree_util.tree_flatten_with_path(_read(content, without, DEEPEST))[0]


def in_words(part: str, content: Any) -> str:
    """Returns what `described` has under ``observation``, ``action`` or ``num_agents`` as text, cut to a line."""
    text = f"{content} agents" if part == "num_agents" else f"{part}s {_read(content, _leaf_in_words, DEEPEST)}"
    return text.replace("'", "")[:120]


def _leaf_in_words(leaf: Any) -> str:
    if "n" in leaf:
        return f"Discrete({leaf['n']})"
    if "sizes" in leaf:
        return f"MultiDiscrete({leaf['sizes']})"
    low, high = (leaf[name] if not isinstance(leaf[name], list) else "..." for name in ("low", "high"))
    return f"{leaf['dtype']}{leaf['shape']} in [{low}, {high}]"


def _paths(space: Space) -> PyTree:
    """Returns an observation whose leaves are their own paths as text."""
    flat, structure = jax.tree_util.tree_flatten_with_path(space, is_leaf=spaces.is_leaf)
    return jax.tree.unflatten(structure, [jax.tree_util.keystr(path) for path, _ in flat])


def _at(obs: PyTree, path: str) -> Any:
    flat = jax.tree_util.tree_flatten_with_path(obs, is_leaf=spaces.is_leaf)[0]
    return next(leaf for each, leaf in flat if jax.tree_util.keystr(each) == path)


def _mask(path: str) -> Callable[[PyTree], Array]:
    return lambda obs: jnp.asarray(_at(obs, path), bool)


def _selection(parts: PyTree) -> Callable[[PyTree], PyTree]:
    return lambda obs: jax.tree.map(lambda path: _at(obs, path), parts)


def _part(function: Callable[[PyTree], Array], space: Space, paths: PyTree) -> str | None:
    """Returns the path of the leaf of an observation that a mask is; None if it is computed otherwise."""
    rng = np.random.default_rng(0)
    like = spaces.struct(space)
    draw = lambda x: rng.integers(0, 2, (SAMPLES, *x.shape)).astype(x.dtype)
    obs = jax.tree.map(draw, like)
    mask = np.asarray(function(obs))
    for leaf, path in zip(jax.tree.leaves(obs), jax.tree.leaves(paths), strict=True):
        if leaf.shape == mask.shape and leaf.dtype.kind in "biu" and np.array_equal(leaf.astype(bool), mask):
            return path
    return None


def _tree(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """Returns a tree as JSON. Raises `TypeError` for a kind of node that JSON does not tell apart."""
    if type(tree) is dict and all(isinstance(name, str) for name in tree):
        return {"dict": {name: _tree(part, leaf) for name, part in tree.items()}}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_tree(part, leaf) for part in tree]}
    if spaces.is_leaf(tree) or isinstance(tree, str):
        return {"leaf": leaf(tree)}
    raise TypeError


def _read(tree: Any, leaf: Callable[[Any], Any], deep: int) -> Any:
    """Reads what `_tree` wrote. Raises an error for anything else."""
    [(kind, content)] = tree.items()
    if kind == "leaf":
        return leaf(content)
    if not deep or kind not in ("dict", "list", "tuple"):
        raise ValueError
    if kind == "dict":
        return {str(name): _read(part, leaf, deep - 1) for name, part in content.items()}
    return {"list": list, "tuple": tuple}[kind](_read(part, leaf, deep - 1) for part in content)


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, Discrete):
        return {"n": int(leaf.n)}
    if isinstance(leaf, MultiDiscrete):
        return {"sizes": [int(n) for n in leaf.sizes]}
    low, high = (_bound(bound) for bound in (leaf.low, leaf.high))
    shape = [int(n) for n in leaf.shape]
    return {"low": low, "high": high, "shape": shape, "dtype": np.dtype(leaf.dtype).name, "num_frames": leaf.num_frames}


def _bound(bound: Any) -> Any:
    """Returns a bound as numbers and, where it is infinite, text; one number if all are equal."""
    array = np.asarray(bound)
    written = lambda x: float(x) if np.isfinite(x) else str(float(x))
    if array.size and np.all(array == array.flat[0]):
        return written(array.flat[0])
    return [written(x) for x in array.ravel()] + [list(array.shape)]


def _leaf_of_json(leaf: Any) -> Any:
    if "n" in leaf:
        return Discrete(leaf["n"])
    if "sizes" in leaf:
        return MultiDiscrete(tuple(leaf["sizes"]))
    shape, dtype = tuple(leaf["shape"]), np.dtype(leaf["dtype"])
    if dtype.kind not in "biuf" or not all(type(n) is int and n > 0 for n in shape):
        raise ValueError
    low, high = (_bound_of_json(leaf[name], dtype) for name in ("low", "high"))
    return Box(low, high, shape, dtype, int(leaf["num_frames"]))


def _bound_of_json(bound: Any, dtype: np.dtype) -> Any:
    whole = dtype.kind in "biu"
    if not isinstance(bound, list):
        return int(bound) if whole else float(bound)
    return np.array([float(x) for x in bound[:-1]]).astype(dtype).reshape(bound[-1])
