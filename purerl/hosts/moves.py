"""Random actions for environments of the host."""

from typing import Any

import numpy as np

from purerl.hosts import leaves
from purerl.hosts.bundle import HostEnv, Leaves, packed

_MOST = 3.0
"""How far from 0, or from the only bound, unbounded actions are drawn."""


def random(host: HostEnv, generator: np.random.Generator, obs: Leaves) -> np.ndarray:
    """Draws actions ``[B, ...]`` uniformly from those that may be taken in ``obs``, as they travel (`leaves.wire`)."""
    lead = obs[0].shape[: 1 if host.num_agents == 1 else 2]
    mask = None
    if host.legal is not None:
        paths = [leaf.path for leaf in leaves.flat(host.observation_space)]
        mask = obs[paths.index((host.legal,))].astype(bool)
    drawn, start = [], 0
    for space in leaves.parts(host.action_space):
        count = sum(leaves.choices(space)) if mask is not None else 0
        drawn.append(_drawn(space, generator, lead, None if mask is None else mask[..., start : start + count]))
        start += count
    return packed(drawn, lead) if hasattr(host.action_space, "spaces") else drawn[0]


def _drawn(space: Any, generator: np.random.Generator, lead: tuple[int, ...], mask: np.ndarray | None) -> np.ndarray:
    """Draws actions ``[*lead, ...]`` of a space without parts from those that ``mask`` allows (None: all)."""
    if hasattr(space, "low") and np.dtype(space.dtype).kind == "f":
        low = np.where(np.isfinite(space.low), space.low, np.where(np.isfinite(space.high), space.high, 0) - _MOST)
        high = np.where(np.isfinite(space.high), space.high, np.where(np.isfinite(space.low), space.low, 0) + _MOST)
        return generator.uniform(low, high, (*lead, *space.shape)).astype(space.dtype)
    if hasattr(space, "low") and mask is None:
        low, high = (bound.astype(np.int64) for bound in (space.low, space.high))
        return generator.integers(low, high, (*lead, *space.shape), endpoint=True).astype(space.dtype)
    sizes = leaves.choices(space)
    mask = np.ones((*lead, sum(sizes)), bool) if mask is None else mask
    scores = np.where(mask, generator.random(mask.shape), -1.0)
    chosen = [np.argmax(part, axis=-1) for part in np.split(scores, np.cumsum(sizes)[:-1], axis=-1)]
    numbers = np.stack(chosen, axis=-1).reshape(*lead, *space.shape)
    return (numbers + space.low).astype(space.dtype) if hasattr(space, "low") else numbers.astype(np.int32)
