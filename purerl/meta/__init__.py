"""Meta-learning: searches for learned functions inside algorithms, and trainings as environments of meta-agents.

Searches are by evolution or by meta-gradients. `evolve` makes a whole search by evolution as one function, `learning`
an environment of a training, and `of_policies` a search for a policy.
"""

from purerl.meta.evolution import evolve
from purerl.meta.learning import learning
from purerl.meta.policies import of_policies

__all__ = ["evolve", "learning", "of_policies"]
