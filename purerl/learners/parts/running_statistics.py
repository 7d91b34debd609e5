"""Running statistics among a network's variables, `batch_renorm.STATISTICS`, which no optimiser moves."""

from purerl.networks.batch_renorm import STATISTICS
from purerl.types import PyTree


def without(params: PyTree) -> PyTree:
    """Returns what an optimiser moves of parameters: all but running statistics."""
    if not isinstance(params, dict):
        return params
    return {name: without(x) for name, x in params.items() if name != STATISTICS}


def restored(moved: PyTree, params: PyTree) -> PyTree:
    """Returns ``moved``, which is of the form that `without` gives, with the running statistics of ``params``."""
    if not isinstance(params, dict):
        return moved
    return {name: x if name == STATISTICS else restored(moved[name], x) for name, x in params.items()}
