"""Which parameters are kernels: those that weight decay shrinks, and that Muon moves as matrices."""

from typing import Any

import jax
import jax.numpy as jnp
from optax import contrib

from purerl.types import PyTree

KERNELS = "kernel", "weight"
"""Names of kernels in networks of Flax and of most other libraries. What has another name is a bias, the scale of a
norm, an embedding, or a free parameter such as a standard deviation."""
ATTENTION = "query", "key", "value"
"""Layers of an attention, whose kernels ``[in, heads, size]`` are matrices of ``heads * size`` columns."""


def mask(params: PyTree) -> PyTree:
    """Returns a tree like ``params`` with 1 for each number of a kernel and 0 for all others."""
    return jax.tree_util.tree_map_with_path(
        lambda path, x: jnp.full(x.shape, float(_is_kernel(_names(path), x)), x.dtype), params
    )


def matrices(params: PyTree) -> PyTree:
    """Returns for each parameter how it is a matrix, a `contrib.MuonDimensionNumbers`; None: it is no kernel.

    The last two axes of a kernel are one, and others are several kernels side by side, as critics are stacked ``[K, in,
    out]``. A convolution ``[height, width, in, out]`` has a row for each number of its window (Jordan 2024,
    kellerjordan.github.io/posts/muon).
    """
    paths = [_names(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]]
    attentions = {path[:-2] for path in paths if path[-2:-1] == ATTENTION[:1]}

    def axes(path: Any, x: Any) -> contrib.MuonDimensionNumbers | None:
        names, ndim = _names(path), x.ndim
        if not _is_kernel(names, x):
            return None
        if ndim >= 3 and names[:-2] in attentions and names[-2] in ATTENTION:
            return contrib.MuonDimensionNumbers((ndim - 3,), (ndim - 2, ndim - 1))
        rows = 3 if ndim >= 4 and names[-2].startswith("Conv") else 1
        return contrib.MuonDimensionNumbers(tuple(range(ndim - 1 - rows, ndim - 1)), (ndim - 1,))

    return jax.tree_util.tree_map_with_path(axes, params)


def _is_kernel(names: tuple[str, ...], x: Any) -> bool:
    return x.ndim >= 2 and names[-1:] in {(name,) for name in KERNELS}


def _names(path: Any) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((part,), simple=True) for part in path)
