"""Random actions for environments of the host."""

from typing import Any

import numpy as np

from purerl.hosts import leaves
from purerl.hosts.bundle import HostEnv, Leaves

_MOST = 3.0
"""How far from 0, or from the only bound, unbounded actions are drawn."""


def random(host: HostEnv, generator: np.random.Generator, obs: Leaves) -> np.ndarray:
    """Draws actions ``[B, ...]`` uniformly from those that may be taken in ``obs``, in the dtype of a policy's."""
    lead = obs[0].shape[: 1 if host.num_agents == 1 else 2]
    space: Any = host.action_space
    if hasattr(space, "low"):
        low = np.where(np.isfinite(space.low), space.low, np.where(np.isfinite(space.high), space.high, 0) - _MOST)
        high = np.where(np.isfinite(space.high), space.high, np.where(np.isfinite(space.low), space.low, 0) + _MOST)
        return generator.uniform(low, high, (*lead, *space.shape)).astype(space.dtype)
    several = hasattr(space, "nvec")
    sizes = [int(n) for n in space.nvec] if several else [int(space.n)]
    mask = np.ones((*lead, sum(sizes)), bool)
    if host.legal is not None:
        paths = [leaf.path for leaf in leaves.flat(host.observation_space)]
        mask = obs[paths.index((host.legal,))].astype(bool)
    scores = np.where(mask, generator.random(mask.shape), -1.0)
    chosen = [np.argmax(part, axis=-1) for part in np.split(scores, np.cumsum(sizes)[:-1], axis=-1)]
    return (np.stack(chosen, axis=-1) if several else chosen[0]).astype(np.int32)
