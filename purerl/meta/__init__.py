"""Meta-evolution: learned functions inside algorithms, and how they are found.

`evolve` is a whole search in one call.
"""

from purerl.meta.evolution import evolve

__all__ = ["evolve"]
