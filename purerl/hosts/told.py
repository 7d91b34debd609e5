"""Spaces as JSON, in which a worker tells its parent of an environment."""

from typing import Any

import numpy as np

FIELDS = "name", "num_agents", "legal", "threaded", "fps", "paced", "apart", "notes", "seats", "limit", "zero_sum"
SPACES = "observation_space", "action_space"
"""The fields of an environment that are told; `SPACES` in `words`."""


def words(space: Any) -> Any:
    """Returns a plain space of Gymnasium (`purerl.hosts.leaves`) for JSON."""
    kind = type(space).__name__
    if kind == "Dict":
        return [kind, [[key, words(part)] for key, part in space.spaces.items()]]
    if kind == "Tuple":
        return [kind, [words(part) for part in space.spaces]]
    if kind == "Discrete":
        return [kind, int(space.n)]
    if kind == "MultiDiscrete":
        return [kind, space.nvec.tolist(), space.dtype.str]
    bounds = [x.flat[0].item() if x.size and (x == x.flat[0]).all() else x.tolist() for x in (space.low, space.high)]
    return [kind, *bounds, list(space.shape), space.dtype.str]


def space(told: Any) -> Any:
    """Returns the space that `words` made ``told`` of."""
    from gymnasium import spaces

    kind, *rest = told
    if kind == "Dict":
        return spaces.Dict({key: space(part) for key, part in rest[0]})
    if kind == "Tuple":
        return spaces.Tuple([space(part) for part in rest[0]])
    if kind == "Discrete":
        return spaces.Discrete(rest[0])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(rest[0]), dtype=np.dtype(rest[1]).type)
    low, high, shape, dtype = rest
    low, high = (np.broadcast_to(np.array(x, dtype), shape) for x in (low, high))
    return spaces.Box(low, high, dtype=np.dtype(dtype).type)
