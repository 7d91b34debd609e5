"""The machine, set up for one command that computes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CACHE_OFF = "off"
"""The directory of compiled programs that stands for none."""


@contextlib.contextmanager
def prepared(options: Any) -> Iterator[None]:
    """JAX set up for a whole program: all cores, the compilation cache, and running out of memory as `MemoryError`."""
    import jax

    from purerl.population.devices import use_compilation_cache, use_cpu_cores

    with contextlib.suppress(RuntimeError):  # called from a program that has computed before
        use_cpu_cores()
    if options.compilation_cache != CACHE_OFF:
        use_compilation_cache(Path(options.compilation_cache).expanduser())
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(
            f"{str(error).splitlines()[0]}; give fewer --lanes or (but to evolve) --agents-at-once, or cut num_envs"
        ) from None
