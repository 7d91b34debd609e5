"""Computing with the bounds of spaces, which are numpy's unless a parameter of the environment is traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def numbers(*bounds: Any) -> Any:
    """The library that can compute with ``bounds``: numpy, or jax.numpy if one is traced."""
    return jnp if any(isinstance(bound, jax.core.Tracer) for bound in bounds) else np
