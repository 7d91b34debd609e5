"""How the tests compile: as fast as XLA can, but for those that claim something of programs as users have them."""

import os
from importlib import metadata
from typing import Any

_OPTIONS = {  # how the tests set it, and what it is where nobody does
    "xla_backend_optimization_level": (0, 3),
    "xla_cpu_parallel_codegen_split_count": (1, 32),
    "xla_llvm_disable_expensive_passes": (True, False),
}
if metadata.version("jaxlib").startswith("0.10."):
    _OPTIONS["xla_cpu_use_fusion_emitters"] = (False, True)
QUICKLY: dict[str, Any] = {name: quick for name, (quick, _) in _OPTIONS.items()}
"""Compiles in about a quarter of the time, to programs that run more slowly."""
AS_SHIPPED: dict[str, Any] = {name: shipped for name, (_, shipped) in _OPTIONS.items()}
VECTORS = "--xla_cpu_prefer_vector_width=256"
"""XLA's default. Commands would set another, and round otherwise than the programs of the tests' process."""


def flags() -> str:
    """``XLA_FLAGS`` for processes that compile quickly. Those that a person has set count more."""
    ours = [f"--{name}={str(value).lower()}" for name, value in QUICKLY.items()]
    return " ".join([*ours, VECTORS, *os.environ.get("XLA_FLAGS", "").split()])


def shipped_environment() -> dict[str, str]:
    """The environment variables for a process that compiles as a user's does."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def compiled(bundle: Any, *names: str) -> Any:
    """A bundle of functions with those of these names compiled: run as they are, each operation is a program."""
    import jax

    return bundle._replace(**{name: jax.jit(getattr(bundle, name)) for name in names})


def at_random(init: Any, *args: Any, seed: int = 0) -> Any:
    """What ``init(*args)`` gives in its shapes alone: floats at random, all else 0. There is nothing to compile."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(seed)

    def fill(x: Any) -> Any:
        scale = 0.0 if x.dtype.kind != "f" else 0.5 if x.ndim > 1 else 0.1  # biases are small
        return jnp.asarray((scale * rng.normal(size=x.shape)).astype(x.dtype))

    return jax.tree.map(fill, jax.eval_shape(init, *args))


def for_bits() -> dict[str, Any]:
    """Options for `jax.jit` under which a lane has the bits of a lone run, compiled quickly."""
    from purerl import compiler_options

    return {**compiler_options(), "xla_backend_optimization_level": 0}


def core(state):
    """The state of an algorithm inside of all that was put around its learner."""
    return core(state.learner) if hasattr(state, "learner") else state
