"""Meta-learning: searches for learned functions inside algorithms, by evolution or by meta-gradients.

`evolve` makes a whole search by evolution as one function.
"""

from purerl.meta.evolution import evolve

__all__ = ["evolve"]
