"""What a discovered function is worth: whole trainings with it and with what it replaces, on seeds it has never seen.

What it replaces is tuned first, on other seeds, in each environment for itself: the comparison is with the best that it
can do.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import envs
from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.learned import artefacts, sockets
from purerl.meta import evolution
from purerl.store import json_files
from purerl.types import Env, Key, Trainer

TUNING, HELD_OUT = 2**31 + 1, 2**31 + 2
"""Folded into the key of a report, so that no training of a search is met again."""
FACTORS = tuple(2.0**power for power in range(-6, 4))
"""What the tuned field of a baseline is multiplied by."""


def report(
    run: Path,
    held_out: tuple[str, ...] = (),
    seeds: int = 256,
    tuning_seeds: int = 64,
    seed: int = 0,
    lanes: int | None = None,
) -> dict[str, Any]:
    """Compares an artefact, that of a run directory or a file, with its baselines, in its own environments and in
    ``held_out`` ones.

    ``rows`` has one for each environment and baseline: mean fitness with its standard error of both, the mean of the
    paired differences (artefact less baseline, the same keys) with its bootstrapped 95 % interval, and what the
    baseline was tuned to. Held-out seeds follow from ``seed`` alone: whoever chooses between searches by their
    reports has to judge the chosen one by another. Writes ``report.json``, or ``NAME-report.json`` beside a file
    ``NAME.json``, and the same as evidence on the artefact's card. Raises `ConfigError`.
    """
    path = run / artefacts.NAME if run.is_dir() else run
    if not path.is_file() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"run = {str(run)!r}: must be a run directory, or an artefact, beside which can be written")
    written = path.with_name("report.json" if path.name == artefacts.NAME else f"{path.stem}-report.json")
    artefact = artefacts.load(path)
    name, config = artefacts.training(artefact)
    algo, card = ALGORITHMS[name], artefact.card
    named = card.get("envs")
    if not isinstance(named, list) or not all(isinstance(place, str) for place in named):
        raise ConfigError("artefact: its card names no environments")
    if not isinstance(card.get("env_params"), dict):
        raise ConfigError("artefact: its card has no parameters of environments")
    places = {place: card["env_params"] for place in card["envs"]} | {
        place: {} for place in held_out if place not in card["envs"]
    }
    made = {place: envs.make(place, **params) for place, params in places.items()}
    if problems := [line for env in made.values() for line in algo.problems(config, env)]:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    found = {"socket": artefact.socket, "algo": name, "generations": card.get("generations")}
    found |= {"seeds": seeds, "tuning_seeds": tuning_seeds, "seed": seed, "rows": []}
    for place, env in made.items():
        lives = functools.partial(_lives, algo, config, env, lanes, jax.random.key(seed))
        ours = lives(lambda changed, value: artefact.parts(changed), seeds, HELD_OUT)[0]
        for baseline in sockets.make(artefact.socket).baselines:
            parts = lambda changed, value, b=baseline: b.parts(value)  # noqa: E731
            start = getattr(config, baseline.tuned) if baseline.start is None else baseline.start
            values = (start or 1.0) * np.array(FACTORS)
            scores = lives(parts, tuning_seeds, TUNING, **{baseline.tuned: values})
            best = int(np.argmax(_floored(scores)[0].mean(axis=1)))
            theirs = lives(parts, seeds, HELD_OUT, **{baseline.tuned: values[best : best + 1]})[0]
            row = _row(place, place in card["envs"], baseline, float(values[best]), ours, theirs)
            found["rows"].append({**row, "at_edge": best in (0, len(values) - 1)})
        json_files.write_json(written, found)
    artefacts.save(path, artefact._replace(card={**card, "evidence": found}))
    return found


def _lives(
    algo: Any,
    config: Any,
    env: Env,
    lanes: int | None,
    key: Key,
    parts: Callable[[Any, Any], dict[str, Any]],
    seeds: int,
    salt: int,
    **values: np.ndarray,
) -> np.ndarray:
    """The fitness of trainings with one field set to each of ``values`` ``[V]``: ``[V, seeds]``, or ``[1, seeds]``.

    ``parts(config, value)`` are those of ``make_trainer``; a field that the config lacks is for them alone.
    """

    def make_trainer(meta_params: dict[str, Any], task: Any) -> Trainer:
        fields = {name: value for name, value in meta_params.items() if hasattr(config, name)}
        changed = dataclasses.replace(config, **fields)
        return algo.make_trainer(changed, env, **parts(changed, next(iter(meta_params.values()), None)))

    keys = jax.random.split(jax.random.fold_in(key, salt), seeds)
    size = len(next(iter(values.values()), [0]))
    live = evolution.lifetimes(make_trainer, config.num_iterations, size, 1, seeds, lanes=lanes)
    return np.asarray(jax.jit(live)(jax.tree.map(jnp.float32, values), keys))[:, 0]


def _floored(*scores: np.ndarray) -> list[np.ndarray]:
    """Scores in which the worst of all stands for what has none: a training that died did no better."""
    everything = np.concatenate([x.reshape(-1) for x in scores])
    finite = everything[np.isfinite(everything)]
    return [np.where(np.isfinite(x), x, finite.min() if finite.size else np.nan) for x in scores]


def _row(
    env: str, seen: bool, baseline: sockets.Baseline, tuned: float, ours: np.ndarray, theirs: np.ndarray
) -> dict[str, Any]:
    with_floor, their_floor = _floored(ours, theirs)
    mean = lambda x: x.mean(axis=(-2, -1))  # noqa: E731
    difference = (with_floor - their_floor)[:, None]
    nothing = aggregates.Estimate(np.nan, np.nan, np.nan)
    estimate = nothing if np.any(np.isnan(difference)) else aggregates.estimate(difference, statistic=mean)
    return {
        "env": env,
        "trained_on": seen,
        "baseline": baseline.name,
        "tuned": {baseline.tuned: tuned},
        "fitness": float(with_floor.mean()),
        "fitness_error": _error(with_floor),
        "baseline_fitness": float(their_floor.mean()),
        "baseline_error": _error(their_floor),
        "difference": estimate._asdict(),
        "without": int((~np.isfinite(ours)).sum()),
        "baseline_without": int((~np.isfinite(theirs)).sum()),
    }


def _error(x: np.ndarray) -> float:
    return float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
