"""Closed forms fitted to learned functions, by a search over an allow-list of terms.

Lu et al. 2022 (arXiv 2210.05639, section 5) read DPO off LPO's plot by hand; this does it by least squares. A term has
one or no free number, such as ``a`` in ``x - a * tanh(x / a)``; a form is a sum of a few terms with their weights.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl.errors import ConfigError
from purerl.learned import artefacts, expressions

SCALES = np.geomspace(0.05, 20.0, 61)
"""Where a term's free number is looked for first."""
GAIN = 0.5
"""A further term must leave at most this part of the error that was left before it."""
NEGLIGIBLE = 1e-6
"""Part of the data's variance, unexplained, at which a form is taken for exact."""


class Term(NamedTuple):
    """``tree(x, a)`` is the expression of a term of ``x``; ``free`` tells whether it depends on ``a``."""

    name: str
    tree: Callable[[Any, float], Any]
    free: bool = True


SATURATING = Term("x - a tanh(x / a)", lambda x, a: ["sub", x, ["mul", a, ["tanh", ["div", x, a]]]])
DRIFT_TERMS = (
    SATURATING,
    Term("tanh(x / a)", lambda x, a: ["tanh", ["div", x, a]]),
    Term("beyond a", lambda x, a: ["relu", ["sub", x, a]]),
    Term("beyond a |A|", lambda x, a: ["relu", ["sub", x, ["mul", a, ["abs", "advantage"]]]]),
    Term("x", lambda x, a: x, free=False),
    Term("x^2", lambda x, a: ["square", x], free=False),
)
LOSS_TERMS = (
    Term("x^2", lambda x, a: ["square", x], free=False),
    Term("x", lambda x, a: x, free=False),
    Term("|x|", lambda x, a: ["abs", x], free=False),
    Term("relu(x)^2", lambda x, a: ["square", ["relu", x]], free=False),
    Term("tanh(x / a)", lambda x, a: ["tanh", ["div", x, a]]),
    Term("log(1 + |x| / a)", lambda x, a: ["log1p_abs", ["div", x, a]]),
    Term("beyond a", lambda x, a: ["relu", ["sub", ["abs", x], a]]),
)


def artefact(learned: artefacts.Artefact) -> artefacts.Artefact:
    """The closed form of a learned value loss or policy drift, with ``explained`` and ``terms`` on its card.

    A value loss is taken where values are as they were when they were acted by, so that a clip of their change is lost.
    Raises `ConfigError` for other sockets.
    """
    _, config = artefacts.training(learned)
    if learned.socket == "policy-drift":
        form = drift(lambda *x: artefacts.learned_drift(learned, *map(jnp.asarray, x), config))
    elif learned.socket == "value-loss":
        loss = learned.parts(config)["value_loss"]

        def of_fresh_values(error: np.ndarray) -> np.ndarray:
            triple = [jnp.asarray(x, jnp.float32) for x in (error, error, 0 * error)]
            return np.asarray(loss(*triple, config))

        form = distance(of_fresh_values)
    else:
        raise ConfigError(f"socket = {learned.socket!r}: takes no closed form; value-loss and policy-drift do")
    card = {name: value for name, value in learned.card.items() if name not in ("evidence", "fitness")}
    card |= {"explained": form.explained, "terms": form.terms}
    return artefacts.of_expression(learned.socket, form.tree, card)


class Form(NamedTuple):
    """A fitted expression, the part of the data's squares that it explains, and its terms ``(name, weight, a)``."""

    tree: Any
    explained: float
    terms: list[tuple[str, float, float]]


def drift(learned: Callable[[np.ndarray, np.ndarray], np.ndarray], most_terms: int = 2) -> Form:
    """The closed form of a drift ``learned(log_ratio, advantage)``, one piece for each sign of the advantage.

    Inputs of terms are ``(ratio - 1) * A`` and ``log_ratio * A``; each piece is held above 0, where a drift lies.
    """
    log_ratio, advantage = (x.reshape(-1) for x in np.meshgrid(np.linspace(-1.0, 1.0, 81), np.linspace(-4, 4, 80)))
    target = np.asarray(learned(log_ratio, advantage), np.float64)
    inputs = [["mul", ["expm1", "log_ratio"], "advantage"], ["mul", "log_ratio", "advantage"]]
    pieces, names = [], []
    for sign in (1, -1):
        side = sign * advantage > 0
        variables = {"log_ratio": log_ratio[side], "advantage": advantage[side]}
        form = fit(target[side], variables, inputs, DRIFT_TERMS, most_terms, above=0.0)
        pieces.append(["relu", form.tree])
        names += form.terms
    tree = ["if_positive", "advantage", *pieces]
    return Form(tree, _explained(target, _value(tree, {"log_ratio": log_ratio, "advantage": advantage})), names)


def distance(learned: Callable[[np.ndarray], np.ndarray], reach: float = 30.0, most_terms: int = 4) -> Form:
    """The closed form of a value loss, ``learned(error)``, for errors up to ``reach``, but for a constant.

    Small errors are as many as large ones, and what is missed counts by their size: slopes near 0 matter most.
    """
    error = np.sinh(np.linspace(-1.0, 1.0, 1201) * np.arcsinh(reach))
    target = np.asarray(learned(error), np.float64)
    target = target - target[600]
    return fit(target, {"error": error}, ["error"], LOSS_TERMS, most_terms, weight=1 / np.sqrt(1 + np.square(error)))


def fit(
    target: np.ndarray,
    variables: Mapping[str, np.ndarray],
    inputs: Sequence[Any],
    terms: Sequence[Term],
    most_terms: int,
    above: float | None = None,
    weight: np.ndarray | None = None,
) -> Form:
    """A sum of terms for ``target`` ``[N]``, the next best one added while it leaves `GAIN` of the error or less.

    With ``above`` only data larger than that is fitted: the rest is held there by what is put around the form. Errors
    are multiplied by ``weight`` ``[N]``.
    """
    data = np.ones(len(target), bool) if above is None else target > above + 1e-5 * np.ptp(target)
    weight = np.ones(len(target)) if weight is None else weight
    goal = (target * weight)[data]
    if not np.any(data):
        return Form(0.0, 1.0, [])
    seen = {name: values[data] for name, values in variables.items()}
    column = lambda term, x, a: _value(term.tree(x, a), seen) * weight[data]  # noqa: E731
    total = float(np.sum(np.square(goal))) + 1e-30
    chosen: list[tuple[Term, Any, float]] = []
    left, weights = total, np.zeros(0)
    while len(chosen) < most_terms and left > NEGLIGIBLE * total:
        columns = [column(*pick) for pick in chosen]
        best = min(
            (_best_scale(goal, columns, term, x, column) for term in terms for x in inputs), key=lambda found: found[0]
        )
        if best[0] > GAIN * left:
            break
        left, weights, pick = best
        chosen.append(pick)
    tree: Any = 0.0
    for weight, (term, x, a) in zip(weights, chosen, strict=True):
        part = ["mul", float(weight), term.tree(x, float(a))]
        tree = part if tree == 0.0 else ["add", tree, part]
    found = [(term.name, float(weight), float(a)) for weight, (term, _, a) in zip(weights, chosen, strict=True)]
    return Form(tree, 1 - left / total, found)


def _best_scale(
    goal: np.ndarray, columns: list[np.ndarray], term: Term, x: Any, column: Callable[[Term, Any, float], np.ndarray]
):
    """``(error, weights, (term, x, a))`` of the best ``a``: a coarse grid, and then finer ones around the best."""

    def error(a: float) -> tuple[float, np.ndarray]:
        matrix = np.stack([*columns, column(term, x, a)], axis=1)
        weights = np.linalg.lstsq(matrix, goal, rcond=None)[0]
        return float(np.sum(np.square(matrix @ weights - goal))), weights

    scales = SCALES if term.free else np.ones(1)
    best = min(scales, key=lambda a: error(a)[0])
    width = SCALES[1] / SCALES[0]
    for _ in range(12 if term.free else 0):
        best = min(best * np.geomspace(1 / width, width, 9), key=lambda a: error(a)[0])
        width **= 0.4
    return *error(best), (term, x, best)


def _value(tree: Any, variables: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.broadcast_to(
        np.asarray(expressions.evaluate(tree, variables), np.float64), next(iter(variables.values())).shape
    )


def _explained(target: np.ndarray, found: np.ndarray) -> float:
    return 1 - float(np.sum(np.square(target - found)) / (np.sum(np.square(target)) + 1e-30))
