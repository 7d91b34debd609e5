"""Fits closed forms to learned functions, by a greedy search over a fixed list of terms.

Lu et al. 2022 (arXiv 2210.05639, section 5) derived DPO from a plot of LPO by hand; this module does it by least
squares. A form is a weighted sum of a few terms. A term has at most one nonlinear parameter, such as the scale ``a`` in
``x - a * tanh(x / a)``.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl.errors import ConfigError
from purerl.learned import artefacts, expressions
from purerl.names import Trust
from purerl.types import Array

SCALES = np.geomspace(0.05, 20.0, 61)
"""The coarse grid of the search for a term's scale ``a``."""
GAIN = 0.5
"""A further term is added only if it reduces the squared error to at most this fraction."""
NEGLIGIBLE = 1e-6
"""The squared error, as a fraction of the sum of squares of the data, below which no further term is added."""

REACH = 30.0
"""The largest error of a value or an action value at which losses are fitted."""


class Term(NamedTuple):
    """A term: ``tree(x, a)`` is its expression in the input ``x``; ``free`` says whether it depends on the scale."""

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


def artefact(learned: artefacts.Artefact, *, trust: Trust = False, where: Path = Path()) -> artefacts.Artefact:
    """Fits the closed form of a learned value loss or policy drift.

    The card of the result has ``explained`` and ``terms`` (`Form`). A value loss is fitted for values that equal their
    old values, so that the effect of value clipping is lost. ``trust`` and ``where`` are as for `artefacts.training`.

    Raises:
        ConfigError: The function is of another socket or is time-aware, and in the cases of `artefacts.training`.
    """
    _, config = artefacts.training(learned, trust=trust, where=where)
    artefacts.check_timeless(learned)
    if learned.socket == "policy-drift":
        form = drift(lambda r, a: artefacts.learned_drift(learned, jnp.asarray(r), jnp.asarray(a), config))
    elif learned.socket == "value-loss":
        loss = learned.parts(config)["value_loss"]

        def of_fresh_values(error: np.ndarray) -> np.ndarray:
            triple = [jnp.asarray(x, jnp.float32) for x in (error, error, 0 * error)]
            return np.asarray(loss(*triple, config))

        form = distance(of_fresh_values)
    else:
        raise ConfigError(f"socket = {learned.socket!r}: does not take a closed form; value-loss and policy-drift do")
    card = card_of(learned, {"explained": form.explained, "terms": form.terms})
    return artefacts.of_expression(learned.socket, form.tree, card)


def errors(count: int) -> np.ndarray:
    """Returns errors ``[count]`` at which a loss is fitted, in ``[-REACH, REACH]``, spaced evenly in their arcsinh."""
    return np.sinh(np.linspace(-1.0, 1.0, count) * np.arcsinh(REACH))


def card_of(learned: artefacts.Artefact, about: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the card of a function that was distilled from ``learned``.

    It keeps how ``learned`` was trained, and adds the digest of ``learned`` and ``about``, facts about the fit.
    """
    of_itself = "evidence", "fitness", "explained", "explained_change", "terms", "distilled_from"
    kept = {name: value for name, value in learned.card.items() if name not in of_itself}
    return {**kept, "distilled_from": artefacts.to_json(learned)["sha256"], **about}


class Form(NamedTuple):
    """A fitted expression, and how well it fits.

    ``explained`` is the fraction of the data's sum of squares that the expression explains, and ``terms`` are its terms
    ``(name, weight, a)``.
    """

    tree: Any
    explained: float
    terms: list[tuple[str, float, float]]


def drift(learned: Callable[[np.ndarray, np.ndarray], np.ndarray | Array]) -> Form:
    """Fits the closed form of a drift ``learned(log_ratio, advantage) -> drift``, all ``[N]``.

    There is one piece for each sign of the advantage ``A``, clipped below at 0 because a drift is non-negative. The
    inputs of terms are ``(ratio - 1) * A`` and ``log_ratio * A``; a piece has at most two terms.
    """
    log_ratio, advantage = (x.reshape(-1) for x in np.meshgrid(np.linspace(-1.0, 1.0, 81), np.linspace(-4, 4, 80)))
    target = np.asarray(learned(log_ratio, advantage), np.float64)
    inputs = [["mul", ["expm1", "log_ratio"], "advantage"], ["mul", "log_ratio", "advantage"]]
    pieces, names = [], []
    for sign in (1, -1):
        side = sign * advantage > 0
        variables = {"log_ratio": log_ratio[side], "advantage": advantage[side]}
        form = fit(target[side], variables, inputs, DRIFT_TERMS, most_terms=2, above=0.0)
        pieces.append(["relu", form.tree])
        names += form.terms
    tree = ["if_positive", "advantage", *pieces]
    left = np.sum(np.square(target - _value(tree, {"log_ratio": log_ratio, "advantage": advantage})))
    return Form(tree, 1 - float(left / (np.sum(np.square(target)) + 1e-30)), names)


def distance(learned: Callable[[np.ndarray], np.ndarray]) -> Form:
    """Fits the closed form of a value loss ``learned(error) -> loss``, both ``[N]``, up to an additive constant.

    It is fitted to `errors`, which are weighted by the inverse of their magnitude, so that the loss near 0 matters
    most. It has at most four terms.
    """
    error = errors(1201)
    target = np.asarray(learned(error), np.float64)
    target = target - target[600]  # at error 0
    weight = 1 / np.sqrt(1 + np.square(error))
    return fit(target, {"error": error}, ["error"], LOSS_TERMS, most_terms=4, weight=weight)


def fit(
    target: np.ndarray,
    variables: Mapping[str, np.ndarray],
    inputs: Sequence[Any],
    terms: Sequence[Term],
    most_terms: int,
    above: float | None = None,
    weight: np.ndarray | None = None,
) -> Form:
    """Fits a weighted sum of terms to ``target`` by greedy least squares: repeatedly adds the term that helps most.

    It stops at ``most_terms`` terms, if the error is negligible (`NEGLIGIBLE`), or if no term helps enough (`GAIN`).
    Terms are applied to the expressions ``inputs`` of ``variables``, which have values ``[N]``. ``weight`` ``[N]`` are
    factors on the errors (None: 1). Only data ``above`` a value is fitted, if it is given, because the caller clips the
    form below at it.
    """
    data = np.ones(len(target), bool) if above is None else target > above + 1e-5 * np.ptp(target)
    weight = np.ones(len(target)) if weight is None else weight
    goal = (target * weight)[data]
    if not np.any(data):
        return Form(0.0, 1.0, [])
    selected = {name: values[data] for name, values in variables.items()}
    column = lambda term, x, a: _value(term.tree(x, a), selected) * weight[data]
    total = float(np.sum(np.square(goal))) + 1e-30
    chosen: list[tuple[Term, Any, float]] = []
    left, weights = total, np.zeros(0)
    while len(chosen) < most_terms and left > NEGLIGIBLE * total:
        columns = [column(*pick) for pick in chosen]
        best = min(
            (_best_scale(goal, columns, term, x, column) for term in terms for x in inputs),
            key=lambda candidate: candidate[0],
        )
        if best[0] > GAIN * left:
            break
        left, weights, pick = best
        chosen.append(pick)
    tree: Any = 0.0
    for factor, (term, x, a) in zip(weights, chosen, strict=True):
        part = ["mul", float(factor), term.tree(x, float(a))]
        tree = part if tree == 0.0 else ["add", tree, part]
    fitted = [(term.name, float(factor), float(a)) for factor, (term, _, a) in zip(weights, chosen, strict=True)]
    return Form(tree, 1 - left / total, fitted)


def _best_scale(
    goal: np.ndarray, columns: list[np.ndarray], term: Term, x: Any, column: Callable[[Term, Any, float], np.ndarray]
):
    """Returns ``(error, weights, (term, x, a))`` for the best scale ``a`` of a term that is added to ``columns``.

    ``column(term, x, a)`` returns the weighted values ``[N]`` of a term in the expression ``x``; ``goal`` is the
    weighted data ``[N]``. The scale is searched on a coarse grid, then on successively finer grids around the best.
    """

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
    """Evaluates an expression in float64, ``[N]``."""
    value = np.asarray(expressions.evaluate(tree, variables), np.float64)
    return np.broadcast_to(value, next(iter(variables.values())).shape)
