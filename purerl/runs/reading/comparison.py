"""The comparison of runs, of the configurations of sweeps, and of single agents, by one number for each agent."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.names import Trust, nearest
from purerl.runs.describing import sweeps
from purerl.runs.reading import choosing, evaluation, loading, results
from purerl.store import guards

COMPARED = {
    "algo": str,
    "env": str,
    "env_params": dict,
    "env_steps": int,
    "swept": dict,
    "return_per_seed": list,
    "alive_per_seed": list,
}
"""The entries that a comparison reads from a summary, and their types."""
TREES = 100
"""The number of trees of a random forest."""
EPISODES = 100
"""The number of episodes of the mean return of ``reach``, as the default of ``--stop-episodes``."""


class Measure(NamedTuple):
    """The number of an agent that is compared.

    - ``title``: what it is, in words.
    - ``sign``: 1 if higher is better, -1 if lower is.
    - ``of_training``: makes it, for each agent ``[P]``, of the metrics ``[P, iterations]`` of a training; None: it is
      the return of the final evaluation.
    """

    title: str
    sign: int = 1
    of_training: Callable[[dict[str, np.ndarray]], np.ndarray] | None = None


def measure(by: str) -> Measure:
    """Returns the measure that a user names.

    It is ``final``, the mean return of the final evaluation; ``mean``, the mean over a whole training of the return of
    its iterations; or ``reach:VALUE``, the frames after which the mean return of at least `EPISODES` episodes of the
    training is ``VALUE`` for the first time, as ``--stop-at VALUE`` finds it.

    Raises:
        ConfigError: It is none of these.
    """
    if by == "final":
        return Measure("return")
    if by == "mean":
        return Measure("mean return of the training", of_training=whole_mean)
    name, _, number = by.partition(":")
    value = guards.number(guards.yaml_scalar(number)) if name == "reach" else None
    if value is None:
        raise ConfigError(f"by = {by[:80]!r}: must be final, mean or reach:VALUE, such as reach:475")
    return Measure(f"frames until return {value:g}", -1, lambda metrics: reached(metrics, value))


def whole_mean(metrics: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the mean over a training of the return of its iterations, for each agent ``[P]``.

    Iterations in which no episode ended do not count; nan if none ended.
    """
    returns = metrics["episode_return"]
    known = np.isfinite(returns)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, returns, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def reached(metrics: dict[str, np.ndarray], value: float) -> np.ndarray:
    """Returns the frames after which agents ``[P]`` reached a mean return (`stopping.stop_at`); nan if they never did.

    Whenever at least `EPISODES` episodes have ended since the last check, their mean return is compared with ``value``.
    An agent that has diverged reaches nothing any more.
    """
    frames = np.full(len(metrics["episodes"]), np.nan)
    columns = [metrics[name] for name in ("episode_return", "episodes", "env_steps")]
    columns.append(metrics.get("alive", np.ones_like(columns[0])))
    for agent, rows in enumerate(zip(*columns, strict=True)):
        total = count = 0.0
        for each, episodes, at, alive in zip(*rows, strict=True):
            if not alive:
                break
            total, count = (total + each * episodes, count + episodes) if episodes > 0 else (total, count)
            if count >= EPISODES:
                if total / count >= value:
                    frames[agent] = at
                    break
                total = count = 0.0
    return frames


class Entry(NamedTuple):
    """What is compared: a run, a configuration of a sweep, or an agent.

    - ``name``: its name.
    - ``facts``: what is told about it.
    - ``scores``: the measure of each of its agents, ``[S]``; nan for those that diverged or have none.
    """

    name: str
    facts: dict[str, Any]
    scores: np.ndarray


def compare(sources: Sequence[str | Path], by: str = "final", *, trust: Trust = False) -> dict[str, Any]:
    """Compares runs by their interquartile means, and by the first one's probability of being better than each.

    A source is a run directory; ``RUN:N``, ``RUN:best`` or ``RUN:worst`` for one of its agents; or a line of a file of
    results, ``FILE.jsonl:ROW``, where ``ROW`` is the entry ``row`` of the line, as in ``docs/results.jsonl``. Each
    configuration of a sweep counts as a run. An agent that was chosen by its final evaluation (`choosing.choose`) is
    evaluated anew. Otherwise ``summary.json`` and logs alone are read. An agent that diverged counts as the worst, by
    ``reach`` if it had not reached the value before.

    Args:
        sources: The sources; one alone must be a sweep.
        by: The number that is compared (`measure`).
        trust: As for `loading.load`, for agents that are evaluated anew.

    Returns:
        ``by``; ``runs``, a row for each run, those of a sweep from the best on; and ``importance``, for each sweep the
        `importance` of its settings. All can be written as JSON.

    Raises:
        ConfigError: A source cannot be read, or there is nothing to compare it with; or the environments differ.
    """
    measured = measure(by)
    entries: list[Entry] = []
    important: dict[str, Any] = {}
    for source in sources:
        of_source, swept = _entries(source, measured, trust)
        if entries and (wrong := _other_env(of_source[0].facts, entries[0].facts)):
            raise ConfigError(f"{source}: {wrong} of {sources[0]}")
        if swept:
            scores = np.array([entry.scores for entry in of_source]) * measured.sign
            important[str(source)] = importance(swept, scores)
            of_source.sort(key=lambda entry: _rank(entry.scores * measured.sign), reverse=True)
        entries += of_source
    if len(entries) < 2:
        raise ConfigError(f"runs = {[*map(str, sources)]}: must be two or more runs, or a sweep")
    first = entries[0].scores * measured.sign
    rows = [_row(entry, first, measured.sign) for entry in entries]
    return {"by": by, "title": measured.title, "runs": rows, "importance": important, "told": _told(by, rows)}


def _told(by: str, rows: list[dict[str, Any]]) -> str:
    """Returns in what the numbers that are compared differ; empty if they are of the same kind."""
    if by == "mean" and len({row["env_steps"] for row in rows}) > 1:
        return "the trainings have different lengths; each mean return is over its own"
    drawn = sum("sampled" in row for row in rows)
    if 0 < drawn < len(rows):
        return f"{drawn} of {len(rows)} returns are of sampled actions, the others of the most likely ones"
    return ""


def _rank(scores: np.ndarray) -> tuple[float, float]:
    """Returns what configurations are ordered by: the interquartile mean, then the sum of their scores."""
    return float(aggregates.iqm(scores)), float(np.nansum(np.where(np.isfinite(scores), scores, -1e30)))


def _row(entry: Entry, first: np.ndarray, sign: int) -> dict[str, Any]:
    """Returns a row of a comparison; the scores ``first`` are those of the first one, times ``sign``."""
    own = entry.scores * sign
    iqm = aggregates.reported_estimate(own)
    ends = (iqm.low, iqm.high) if sign > 0 else (-iqm.high, -iqm.low)
    better = aggregates.reported_estimate(first, own, statistic=aggregates.probability_of_improvement)
    return {
        "run": entry.name,
        **entry.facts,
        "mean": float(np.mean(entry.scores)),
        "iqm": {"value": iqm.value * sign, "low": ends[0], "high": ends[1]},
        "per_seed": entry.scores.tolist(),
        "first_is_better": better._asdict(),
    }


def _other_env(facts: dict[str, Any], first: dict[str, Any]) -> str:
    """Returns how the environment differs from the first one's; empty if it does not."""
    wrong = [name for name in ("env", "env_params") if facts[name] != first[name]]
    return f"{wrong[0]} = {facts[wrong[0]]!r} differs from {first[wrong[0]]!r}" if wrong else ""


def _entries(source: str | Path, measured: Measure, trust: Trust) -> tuple[list[Entry], dict[str, list[Any]]]:
    """Reads what a source names: one entry, or of a sweep one for each configuration, and then what was swept.

    Raises:
        ConfigError: It cannot be read, or has no such number.
    """
    directory, agent = choosing.parsed(source)
    if agent:
        choice = choosing.choose(directory, agent)
        summary = _summary(choice.directory)
        entry = Entry(str(source), _facts(summary, 1, measured), _score(choice, summary, measured, trust))
        return [entry], {}
    summary = _summary(directory)
    scores, swept = _scores(directory, summary, measured), summary["swept"]
    if not swept:
        return [Entry(str(directory), _facts(summary, len(scores), measured), scores)], {}
    count = sweeps.configurations(swept)
    if len(scores) % count:
        raise ConfigError(f"{directory}: swept must hold lists whose length divides the agents")
    by_configuration = scores.reshape(count, -1)
    named = [f"{directory}: {sweeps.in_words(swept, c)}" for c in range(count)]
    facts = _facts(summary, by_configuration.shape[1], measured)
    axis = "updates" if "updates" in summary else "env_steps"
    rows = zip(named, _counted(directory, summary, count, axis), by_configuration, strict=True)
    return [Entry(name, {**facts, axis: taken}, row) for name, taken, row in rows], swept


def _counted(directory: Path, summary: dict[str, Any], count: int, axis: str) -> list[int]:
    """Returns the frames (the updates, if ``axis`` names them) of an agent of each configuration of a sweep.

    Agents may have stopped early; of a configuration it is the most that one of its agents took.
    """
    counted: list[int] = []
    for each in [_summary(part) for part in sweeps.parts(directory)] or [summary]:
        stopped = guards.listed(each, "stopped_at_per_seed") or [None] * len(each["alive_per_seed"])
        counted += [guards.count(each.get(axis)) if at is None else guards.count(at) for at in stopped]
    if len(counted) % count or not counted:
        return [summary[axis]] * count
    return np.array(counted).reshape(count, -1).max(axis=1).tolist()


def _facts(summary: dict[str, Any], agents: int, measured: Measure) -> dict[str, Any]:
    """Returns what a row tells about a run, also how actions were chosen where an evaluation is measured."""
    how = evaluation.manner_of(summary) if measured.of_training is None else {}
    names = ("algo", "env", "env_params", "env_steps", *(["updates"] if "updates" in summary else []))
    facts = {name: summary[name] for name in names}
    return {**facts, "agents": agents, **how}


def _scores(directory: Path, summary: dict[str, Any], measured: Measure) -> np.ndarray:
    """Returns the measure of each agent of a run, ``[P]``."""
    if measured.of_training is None:
        returns = np.array([guards.plotted(x) for x in summary["return_per_seed"]])
        return np.where(summary["alive_per_seed"], returns, np.nan)
    inner = sweeps.parts(directory)
    each = [(part, _summary(part)) for part in inner] if inner else [(directory, summary)]
    return np.concatenate([_of_training(*one, measured) for one in each])


def _of_training(directory: Path, summary: dict[str, Any], measured: Measure) -> np.ndarray:
    """Returns the measure of each agent of a run of one program, by its log."""
    swept, alive = summary["swept"], summary["alive_per_seed"]
    count = sweeps.configurations(swept)
    seeds = [seed for seed in guards.listed(summary, "seeds") if type(seed) is int]
    labels = [{**({"config": c} if swept else {}), "seed": seed} for c in range(count) for seed in seeds][: len(alive)]
    metrics = results.metrics(directory, labels) if len(labels) == len(alive) else {}
    if not {"episode_return", "episodes", "env_steps"} <= metrics.keys():
        raise ConfigError(f"{directory}: its log has no returns of its agents")
    scores = measured.of_training(metrics) if measured.of_training else np.full(len(alive), np.nan)
    return scores if measured.sign < 0 else np.where(alive, scores, np.nan)


def _score(choice: choosing.Choice, summary: dict[str, Any], measured: Measure, trust: Trust) -> np.ndarray:
    """Returns the measure ``[1]`` of an agent. Of one that was chosen by its return that of other episodes."""
    if choice.is_ranked and measured.of_training is None:
        agent = loading.agent(choice.of[0], choice.name, trust=trust, playing=True)
        return np.array([evaluation.anew(agent, trust=trust).score])
    scores = _scores(choice.directory, summary, measured)
    if choice.number >= len(scores):
        raise ConfigError(f"agent = {choice.number}: {choice.directory} has agents 0 to {len(scores) - 1}")
    return scores[choice.number : choice.number + 1]


def importance(swept: dict[str, list[Any]], scores: np.ndarray) -> dict[str, Any]:
    """Computes how much each swept setting matters: its share of the variance of the scores.

    On a complete grid it is an analysis of variance (`aggregates.variance_shares`) of all agents. Otherwise it is a
    functional analysis of variance (Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter
    Importance") of a random forest, fitted to the means of the configurations. Agents without a score count as the
    worst that has one.

    Args:
        swept: A value for each configuration ``[C]``, by the name of the setting.
        scores: ``[C, S]``; higher is better.

    Returns:
        ``method``, in words, and ``shares`` by setting, and of their interactions, ``together``; on a grid also of
        ``seeds``. ``shares`` is empty if there is nothing to explain, and ``why`` says so.
    """
    known = np.isfinite(scores)
    if not known.any() or np.ptp(filled := np.where(known, scores, scores[known].min())) == 0:
        return {"method": "", "shares": {}, "why": "all agents have the same score, or none"}
    settings = {name: column for name, column in swept.items() if len(set(map(str, column))) > 1}
    if not settings:
        return {"method": "", "shares": {}, "why": "all configurations have the same settings"}
    columns = [list(map(str, column)) for column in settings.values()]
    if len(set(zip(*columns, strict=True))) == len(filled) == math.prod(len(set(column)) for column in columns):
        shares = aggregates.variance_shares(columns, filled)
        named = dict(zip([*settings, "together", "seeds"], shares.tolist(), strict=True))
        idle = {"together": len(settings) == 1, "seeds": filled.shape[1] == 1}
        chance = "; with one seed each, chance is part of all shares" if idle["seeds"] else ""
        named = {name: share for name, share in named.items() if not idle.get(name)}
        return {"method": f"analysis of variance of the grid{chance}", "shares": named, "why": ""}
    try:
        return _forest(settings, filled.mean(axis=1))
    except ImportError:
        why = "settings that form no complete grid need pip install 'purerl[importance]'"
        return {"method": "", "shares": {}, "why": why}


def _forest(swept: dict[str, list[Any]], scores: np.ndarray) -> dict[str, Any]:
    """Returns the `importance` by a random forest of scikit-learn.

    The main effect of a setting at one of its values is the mean prediction over all configurations with that value in
    place of their own. Texts are one column for each value.
    """
    from sklearn.ensemble import RandomForestRegressor

    blocks = [
        np.array(column, np.float64)[:, None]
        if all(map(guards.is_number, column))
        else np.array([[x == str(value) for x in dict.fromkeys(map(str, column))] for value in column], np.float64)
        for column in swept.values()
    ]
    features = np.concatenate(blocks, axis=1)
    forest = RandomForestRegressor(TREES, oob_score=True, random_state=0).fit(features, scores)
    variance, first, shares = float(np.var(forest.predict(features))), 0, {}
    if not variance:
        return {"method": "", "shares": {}, "why": "all configurations have the same mean score"}
    for name, block in zip(swept, blocks, strict=True):
        own = slice(first, first + block.shape[1])
        first = own.stop
        values, which = np.unique(block, axis=0, return_inverse=True)
        effects = np.empty(len(values))
        for i, value in enumerate(values):
            changed = features.copy()
            changed[:, own] = value
            effects[i] = forest.predict(changed).mean()
        shares[name] = float(np.var(effects[which.reshape(-1)])) / variance
    total = max(1.0, sum(shares.values()))
    shares = {name: share / total for name, share in shares.items()}
    unseen = max(0.0, float(forest.oob_score_))
    method = f"random forest, which predicts {unseen:.0%} of the variance of configurations that it has not seen"
    return {"method": method, "shares": shares | {"together": 1.0 - sum(shares.values())}, "why": ""}


def _summary(source: Path) -> dict[str, Any]:
    """Reads the summary of a run or of a line of results. Both are untrusted.

    Raises:
        ConfigError: A comparison cannot use it. One line.
    """
    file, is_line, row = str(source).partition(".jsonl:")
    path = Path(f"{file}.jsonl") if is_line else source / "summary.json"
    summary = _line(path, row) if is_line else guards.read_json(path)
    if not isinstance(summary, dict):
        raise ConfigError(f"{path}: not the summary of a run")
    wrong = [name for name, kind in COMPARED.items() if type(summary.get(name)) is not kind]
    if wrong:
        raise ConfigError(f"{path}: lacks {', '.join(wrong)}, or has them of another type")
    returns, alive = summary["return_per_seed"], summary["alive_per_seed"]
    if len(returns) != len(alive) or not returns:
        raise ConfigError(f"{path}: has {len(returns)} returns of {len(alive)} agents")
    if not all(x is None or guards.is_number(x) for x in returns):
        raise ConfigError(f"{path}: return_per_seed must hold numbers")
    if not all(type(x) is bool for x in alive):
        raise ConfigError(f"{path}: alive_per_seed must hold true and false")
    columns = list(summary["swept"].values())
    sound = all(isinstance(column, list) and 0 < len(column) == len(columns[0]) for column in columns)
    if not sound or not all(isinstance(x, str | bool) or guards.is_number(x) for column in columns for x in column):
        raise ConfigError(f"{path}: swept must hold lists of numbers and texts, of one length")
    if type(summary.get("updates", 0)) is not int:
        raise ConfigError(f"{path}: updates must be a whole number")
    if not 0 <= summary["env_steps"] < 2**63 or not re.fullmatch(r"[\w./:-]{1,200}", summary["algo"] + summary["env"]):
        raise ConfigError(f"{path}: not the summary of a run")
    return summary


def _line(path: Path, row: str) -> dict[str, Any]:
    """Reads the newest line of a row from a file of results, and names its entries as a summary does.

    Raises:
        ConfigError: The file is not valid, or has no such row.
    """
    raw = guards.read_bytes(path, guards.MOST_JSON_BYTES)
    try:
        lines = [guards.parse_json(line) for line in raw.splitlines()]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    rows = {str(line.get("row")): line for line in lines if isinstance(line, dict)}
    rows = {name: line for name, line in rows.items() if name.isprintable()}
    if row not in rows:
        raise ConfigError(f"{path}: has no row {row!r}; nearest: {nearest(row, rows)}")
    line = rows[row]
    returns = line.get("returns")
    alive = [x is not None for x in returns] if isinstance(returns, list) else None
    renamed: dict[str, Any] = {"env_steps": line.get("frames"), "return_per_seed": returns, "alive_per_seed": alive}
    return {"env_params": {}, "swept": {}, **line, **renamed}
