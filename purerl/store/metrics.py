"""Metrics as JSON lines, and as a few numbers for watching a training."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from purerl.formulas import aggregates
from purerl.store.json_files import finite

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles over a population that `quantile_rows` writes."""
IQM = "iqm"
"""The name of the interquartile mean in these rows."""
TEXTS = {"b": "%s", "i": "%d", "u": "%d", "f": "%.9g"}
"""The format of a number, by the kind of its array. Nine digits are all that a float32 has."""
NULLS = ": nan", ": inf", ": -inf"
"""Numbers that JSON does not have, as they are formatted in a line."""
MOST_LINES = 4096
"""The approximate number of lines that are made at once."""
OF_EPISODES = "episode_return", "episode_length"
"""Metrics that are means over the episodes that ended."""


def rows(
    metrics: dict[str, np.ndarray], env_steps: Sequence[int], first_iteration: int, labels: list[dict[str, int]]
) -> Iterator[str]:
    """Yields metrics ``[iterations, P]`` as JSON lines, one for each iteration and member; many lines at once.

    Args:
        metrics: ``[iterations, P]`` by name.
        env_steps: ``[iterations]``, the environment steps of one member after each iteration.
        first_iteration: The number of the first row, counted from 1.
        labels: ``[P]``, added to each member's lines.
    """
    size, at_once = len(labels), max(1, MOST_LINES // len(labels))
    for start in range(0, len(env_steps), at_once):
        frames = np.array(env_steps[start : start + at_once], np.int64)
        over_members = lambda x: np.broadcast_to(x[:, None], (len(x), size))  # noqa: B023 - called at once
        iterations = first_iteration + start + np.arange(len(frames))
        columns = {"iteration": over_members(iterations)}
        columns |= {name: np.array([[label[name] for label in labels]] * len(frames)) for name in labels[0]}
        columns |= {"env_steps": over_members(frames)}
        columns |= {name: values[start : start + at_once] for name, values in metrics.items()}
        yield _lines({name: values.reshape(-1) for name, values in columns.items()})


def quantile_rows(
    metrics: dict[str, np.ndarray], env_steps: Sequence[int], first_iteration: int, first_member: int
) -> Iterator[str]:
    """Yields metrics ``[iterations, P]`` summarised as JSON lines, one for each iteration.

    A line has the number of members alive, and the `QUANTILES` and the interquartile mean of ``episode_return`` over
    members in which an episode ended.

    Args:
        metrics: ``[iterations, P]`` by name.
        env_steps: As for `rows`.
        first_iteration: As for `rows`.
        first_member: The number that identifies the batch of members.
    """
    columns = {
        "iteration": first_iteration + np.arange(len(env_steps)),
        "first_member": np.full(len(env_steps), first_member),
        "env_steps": np.array(env_steps, np.int64),
        "alive": metrics["alive"].sum(axis=1),
    }
    quantiles = aggregates.quantiles(metrics["episode_return"], QUANTILES)
    inner = {f"{q:g}": row for q, row in zip(QUANTILES, quantiles, strict=True)}
    yield _lines(columns, "episode_return", {**inner, IQM: aggregates.middles(metrics["episode_return"].T)})


def _lines(
    columns: dict[str, np.ndarray], name: str = "", inner: Mapping[str, np.ndarray] = MappingProxyType({})
) -> str:
    """Formats columns ``[N]`` as ``N`` JSON lines, in each of which the ``inner`` ones are an object called ``name``.

    One format serves all lines: it takes an eighth of the time of a `json.dumps` for each.
    """
    of = lambda columns: ", ".join(f"{_quoted(key)}: {TEXTS[x.dtype.kind]}" for key, x in columns.items())
    form = of(columns) + (f", {_quoted(name)}: {{{of(inner)}}}" if inner else "")
    every = [*columns.values(), *inner.values()]
    numbers: list = [None] * sum(len(values) for values in every)
    whole = True
    for i, values in enumerate(every):
        is_bool = values.dtype.kind == "b"
        numbers[i :: len(every)] = ["true" if x else "false" for x in values] if is_bool else values.tolist()
        whole = whole and (is_bool or bool(np.isfinite(values).all()))
    text = f"{{{form}}}\n" * len(every[0]) % tuple(numbers)
    for number in () if whole else NULLS:
        text = text.replace(number, ": null")
    return text


def line(row: dict) -> str:
    """Formats one JSON line."""
    return json.dumps(finite(row), allow_nan=False) + "\n"


def returns(metrics: dict[str, np.ndarray]) -> np.ndarray:
    """Computes each member's mean return ``[P]`` over the episodes that ended in ``[iterations, P]``; nan if none."""
    return _over_episodes(metrics, "episode_return", axis=0)


def means(metrics: dict[str, np.ndarray]) -> dict[str, float]:
    """Reduces each of the metrics ``[iterations, P]`` to one number.

    It is the mean over iterations and members in which the metric exists, for means over episodes the mean over
    episodes, for ``episodes`` the sum, and for ``alive`` and ``stopped`` the number of members that are so at the end.

    With several members there are also the `QUANTILES` of ``episode_return`` over those in which an episode ended.
    """
    result = {}
    for name, values in metrics.items():
        if name in OF_EPISODES:
            result[name] = float(_over_episodes(metrics, name))
        elif name in ("alive", "stopped"):
            result[name] = float(values[-1].sum())
        elif name == "episodes":
            result[name] = float(values.sum())
        else:
            exists = np.isfinite(values)
            total = np.sum(values, dtype=np.float64, where=exists)
            result[name] = float(total / exists.sum()) if exists.any() else float("nan")
    if metrics["alive"].shape[1] > 1:
        for q, value in zip(QUANTILES, aggregates.quantiles(returns(metrics), QUANTILES), strict=True):
            result[f"episode_return_{q:g}"] = float(value)
    return result


def _quoted(name: str) -> str:
    """Quotes a name for a format of JSON."""
    return json.dumps(name).replace("%", "%%")


def _over_episodes(metrics: dict[str, np.ndarray], name: str, axis: int | None = None) -> np.ndarray:
    """Computes the mean of a metric over the episodes that ended; nan where none did."""
    ended = metrics["episodes"].astype(np.float64)
    total, count = np.where(ended > 0, metrics[name] * ended, 0.0).sum(axis=axis), ended.sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
