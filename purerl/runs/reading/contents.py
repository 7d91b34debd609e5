"""What is in a dataset: the card that a file gets, and the numbers of `purerl data`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import spaces, trees
from purerl.display import words
from purerl.errors import ConfigError, printable
from purerl.replay.fixed import dataset_problems
from purerl.spaces import Box, Space
from purerl.store import card_files, checkpoint, guards, writing
from purerl.types import Dataset, PyTree

AT_BOUND = 1e-3
"""The part of a number's range within which it is at a bound of it."""
IN_CARDS = "steps", "episodes", "truncated", "return_mean", "return_min", "return_max"
"""The `numbers` that a card has."""
BOUNDS, MISSING = "action_bounds", "missing_last"
"""The entries of a card for the bounds of actions, and for the number of episodes without a last observation."""


def save(
    path: Path,
    data: Dataset,
    action_space: Space,
    env: str,
    env_params: Mapping[str, Any],
    policy: Mapping[str, Any],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes a dataset with its card, atomically, and returns the card.

    Args:
        path: The file.
        data: The dataset, in the spaces of the environment.
        action_space: The space of its actions.
        env: The name of the environment.
        env_params: The parameters of the environment.
        policy: Who played: an entry for a player, or ``players``, a list of them in the order of their episodes.
        about: What else the card says.

    Raises:
        ConfigError: The file would be too large, or a parameter has a number that is not finite.
    """
    if any(isinstance(x, float) and not math.isfinite(x) for x in jax.tree.leaves(dict(env_params))):
        raise ConfigError(f"env_params: {env_params!r:.200} has a number that is not finite, which a card cannot hold")
    found = numbers(data, {}, None)
    where = {"env": env, "env_params": dict(env_params), "policy": dict(policy)}
    counted = {name: found[name] for name in IN_CARDS}
    card = {**where, **about, **counted, BOUNDS: bounds(action_space), "versions": checkpoint.versions()}
    return card_files.save(card_files.DATASET, path, trees.named_leaves(data), card)


def totals(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Computes the undiscounted return (float64) and the length of each episode, both ``[E]``."""
    ends = np.flatnonzero(data.last) + 1
    begins = np.concatenate([[0], ends[:-1]])
    return np.add.reduceat(data.reward.astype(np.float64), begins), ends - begins


def bounds(action_space: Space) -> dict[str, Any]:
    """Returns ``[low, high]`` of the real numbers in actions, by the names of their arrays in a file.

    Both are flat lists, with None where there is no bound.
    """
    names = trees.named_leaves({"action": spaces.struct(action_space)})
    flat = lambda leaf: [
        np.broadcast_to(np.asarray(x, float), leaf.shape).ravel().tolist() for x in spaces.bounds(leaf)
    ]
    leaves = zip(names, spaces.leaves(action_space), strict=True)
    real = {name: flat(leaf) for name, leaf in leaves if isinstance(leaf, Box) and not spaces.is_whole(leaf)}
    limits: dict[str, Any] = writing.finite(real)
    return limits


def at_bounds(actions: Mapping[str, np.ndarray], limits: Any) -> float | None:
    """Computes the share of the numbers in actions that are at a bound: nearer to it than `AT_BOUND` of their range.

    A number with one bound alone is at it if it is equal or beyond.

    Args:
        actions: Arrays ``[T, ...]`` by their names in a file.
        limits: What a card has for `bounds`, which is untrusted.

    Returns:
        The share; None if no number has a bound and is no constant, or the card does not have them.
    """
    found = count = 0
    for name, both in guards.mapping(limits).items():
        x = actions.get(name)
        if x is None or not isinstance(both, list) or len(both) != 2:
            return None
        low, high = (_numbers(side, without) for side, without in zip(both, (-np.inf, np.inf), strict=True))
        if not low.size == high.size == x[0].size:
            return None
        span, x = high - low, x.reshape(len(x), -1)
        moves = (span > 0) & (np.isfinite(low) | np.isfinite(high))
        near = np.where(np.isfinite(span), AT_BOUND * span, 0)
        found += int(np.sum(((x <= low + near) | (x >= high - near))[:, moves]))
        count += len(x) * int(np.sum(moves))
    return found / count if count else None


def _numbers(side: Any, without: float) -> np.ndarray:
    """Returns one side's bounds from a card, ``without`` where there is none; empty if they are no list of numbers."""
    if not isinstance(side, list) or any(x is not None and not guards.is_number(x) for x in side):
        return np.zeros(0)
    return np.array([without if x is None else x for x in side], np.float64)


def described(path: Path) -> dict[str, Any]:
    """Reads the dataset in a file of `purerl record`, which is untrusted, and returns what is in it, for JSON.

    Raises:
        ConfigError: The file is damaged, or has no whole episodes; with a line for each problem.
    """
    card, arrays = card_files.load(card_files.DATASET, path)
    data = _as_dataset(path, card, arrays)
    return {
        "env": guards.text(card.get("env")),
        "env_params": guards.plain(guards.mapping(card.get("env_params"))),
        **numbers(data, data.action, card.get(BOUNDS)),
        MISSING: guards.count(card.get(MISSING)),
        "players": players(card),
        "bytes": path.stat().st_size,
        "sha256": card["sha256"],
    }


def numbers(data: Dataset, actions: Mapping[str, np.ndarray], limits: Any) -> dict[str, Any]:
    """Computes the numbers that tell of a dataset.

    Args:
        data: The dataset.
        actions: Its actions, as arrays by their names in a file.
        limits: The bounds of actions, as in a card.

    Returns:
        Steps, episodes, those cut by time, mean, deviation, least and largest of returns and of lengths, and the share
        `at_bounds`.
    """
    result: dict[str, Any] = {"steps": len(data.reward), "truncated": int(np.sum(data.truncated))}
    for name, column in zip(("return", "length"), totals(data), strict=True):
        result |= {"episodes": len(column), f"{name}_mean": float(column.mean()), f"{name}_std": float(column.std())}
        result |= {f"{name}_min": column.min().item(), f"{name}_max": column.max().item()}
    return {**result, "actions_at_bounds": at_bounds(actions, limits)}


def players(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the entries of all players in a card, which is untrusted, each with its ``words`` (`who`).

    One player has no share; each of several has ``share``, ``episodes`` and ``steps``.
    """
    policy, shared = guards.mapping(card.get("policy")), []
    for each in map(guards.mapping, guards.listed(policy, "players")):
        share = {"share": guards.number(each.get("share")) or 0.0}
        shared.append({**each, **share, **{name: guards.count(each.get(name)) for name in ("episodes", "steps")}})
    return [{**each, "words": who(each)} for each in shared or [policy]]


def who(player: Mapping[str, Any]) -> str:
    """Returns a player's entry in a card, which is untrusted, as text."""
    if run := guards.text(player.get("run")):
        sampled = ", sampled" if player.get("sampled") is True else ""
        about = f"{guards.text(player.get('algo'))}{sampled}{words.simulations(dict(player))}"
        return printable(f"agent {guards.count(player.get('agent'))} of {run} ({about})")
    if name := guards.text(player.get("minari")):
        algo = guards.text(player.get("algo"))
        return printable(f"{name} of Minari{algo and f' ({algo})'}")
    return printable(guards.text(player.get("function")) or "unknown")


def _as_dataset(path: Path, card: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Dataset:
    """Returns the arrays of a file as a dataset, whose observations and actions are arrays by their names.

    Raises:
        ConfigError: They are not those of whole episodes, as many as the card says; with a line for each problem.
    """
    fields: dict[str, Any] = {name: {} for name in Dataset._fields}
    alone = "reward", "terminated", "truncated"
    for name, array in arrays.items():
        field = name.partition(".")[0]
        if field not in fields or array.ndim == 0 or (field in alone and field != name):
            raise ConfigError(f"{path}: {name[:80]!r} is no array of a dataset")
        fields[field][name.removeprefix("final_") if field == "final_obs" else name] = array
    if missing := [name for name, part in fields.items() if not part]:
        raise ConfigError(f"{path}: has no {missing[0]}")
    data = Dataset(**fields | {name: fields[name][name] for name in alone})
    if len(data.reward) != card["steps"]:
        raise ConfigError(f"{path}: has {len(data.reward)} steps, its card says {card['steps']}")
    if problems := dataset_problems(data, _any(data.obs), _any(data.action)):
        raise ConfigError("\n".join(f"{path}: {line}" for line in problems))
    return data


def _any(arrays: PyTree) -> Space:
    """Returns the space of all numbers in the shapes and dtypes of arrays ``[T, ...]``."""
    return {name: Box(-np.inf, np.inf, x.shape[1:], x.dtype) for name, x in arrays.items()}
