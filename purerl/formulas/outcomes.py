"""Who won a game, by the returns of its agents."""

from typing import Any

__all__ = ["outcomes"]


def outcomes(returns: Any) -> Any:
    """Compares the return of each agent of a game with the highest of the others.

    So at most one agent wins a game, several draw it, and in a team whose rewards are shared all do. An agent whose
    return is nan, or plays beside one, has lost.

    Args:
        returns: ``[..., N]`` of ``N`` agents, an array of JAX or of numpy.

    Returns:
        ``[..., N]`` integers: 1 where a return is above all others (won), 0 where it is the highest together with
        others (drawn), and -1 where another is higher (lost).
    """
    best = returns == returns.max(axis=-1, keepdims=True)
    alone = best.sum(axis=-1, keepdims=True) == 1
    return 1 * (best & alone) - 1 * ~best
