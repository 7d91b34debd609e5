"""What a discovered function is worth: whole trainings with it and with what it replaces, on seeds it has never seen.

What it replaces is tuned first, on other seeds, in each environment for itself: the comparison is with the best that it
can do.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from purerl import envs, files, losses, statistics
from purerl.algos import ALGORITHMS, read_config
from purerl.meta import artefacts, evolution
from purerl.types import Env, Trainer

TUNING, HELD_OUT = 2**31 + 1, 2**31 + 2
"""Folded into the keys of seeds, so that no training of a search is met again."""
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""What the tuned field of a baseline is multiplied by."""


class Baseline(NamedTuple):
    """Something that a learned function replaces: ``parts`` for ``make_trainer``, and the float that is tuned."""

    name: str
    parts: dict[str, Any]
    tuned: str


def _dpo(log_ratio: Any, advantage: Any, config: Any) -> Any:
    constants = dataclasses.make_dataclass("Constants", ["drift_a", "drift_b"])(2.0, 0.6)
    return losses.discovered_policy(log_ratio, advantage, constants)


BASELINES = {
    "value-loss": (
        Baseline("L2", {"value_loss": losses.squared_value_loss}, "value_coef"),
        Baseline("clipped L2", {"value_loss": losses.clipped_value_loss}, "value_coef"),
    ),
    "policy-drift": (
        Baseline("PPO's clip", {}, "clip_epsilon"),
        Baseline("DPO", {"objective": _dpo}, "clip_epsilon"),
    ),
    "td-loss": (Baseline("Huber", {}, "huber_delta"),),
    "vtrace-weight": (Baseline("V-trace", {}, "rho_bar"),),
    "rule": (Baseline("A2C", {}, "value_coef"),),
    "optimiser": (Baseline("Adam", {}, "learning_rate"),),
}


def report(
    directory: Path, held_out: tuple[str, ...] = (), seeds: int = 256, tuning_seeds: int = 64, lanes: int | None = None
) -> dict[str, Any]:
    """Compares a search's artefact with its baselines, in its own environments and in ``held_out`` ones.

    ``rows`` has one for each environment and baseline: mean fitness with its standard error of both, the mean of the
    paired differences (artefact less baseline, the same keys) with its bootstrapped 95 % interval, and what the
    baseline was tuned to. Writes ``report.json``. Raises `ConfigError`.
    """
    artefact = artefacts.load(directory)
    card = artefact.card
    algo, config = ALGORITHMS[card["algo"]], read_config(card["algo"], card["config"])
    rows = []
    for name in dict.fromkeys((*card["envs"], *held_out)):
        env = envs.make(name, **(card["env_params"] if name in card["envs"] else {}))
        lives = functools.partial(_lives, algo, config, env, lanes)
        ours = lives(artefact.parts, seeds, HELD_OUT)[0]
        for baseline in BASELINES[artefact.socket]:
            parts, field = lambda _, b=baseline: b.parts, baseline.tuned
            values = getattr(config, field) * np.array(FACTORS)
            scores = lives(parts, tuning_seeds, TUNING, **{field: values})
            best = values[np.argmax(np.where(np.isfinite(scores), scores, -1e30).mean(axis=1))]
            theirs = lives(parts, seeds, HELD_OUT, **{field: np.array([best])})[0]
            rows.append(_row(name, name in card["envs"], baseline, float(best), ours, theirs))
    found = {
        "socket": artefact.socket,
        "algo": card["algo"],
        "seeds": seeds,
        "tuning_seeds": tuning_seeds,
        "rows": rows,
    }
    files.write_json(directory / "report.json", found)
    return found


def _lives(
    algo: Any,
    config: Any,
    env: Env,
    lanes: int | None,
    parts: Callable[[Any], dict[str, Any]],
    seeds: int,
    salt: int,
    **values: np.ndarray,
) -> np.ndarray:
    """The fitness of trainings with fields set to each of ``values`` ``[V]``: ``[V, seeds]``, or ``[1, seeds]``."""

    def make_trainer(meta_params: dict[str, Any], task: Any) -> Trainer:
        changed = dataclasses.replace(config, **meta_params)
        return algo.make_trainer(changed, env, **parts(changed))

    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), salt))(jnp.arange(seeds))
    size = len(next(iter(values.values()), [0]))
    live = evolution.lifetimes(make_trainer, config.num_iterations, size, 1, seeds, lanes=lanes)
    return np.asarray(jax.jit(live)(jax.tree.map(jnp.float32, values), keys))[:, 0]


def _row(
    env: str, seen: bool, baseline: Baseline, tuned: float, ours: np.ndarray, theirs: np.ndarray
) -> dict[str, Any]:
    both = np.isfinite(ours) & np.isfinite(theirs)
    difference = ours[both] - theirs[both]
    mean = lambda x: x.mean(axis=(-2, -1))  # noqa: E731
    estimate = statistics.estimate(difference[:, None], statistic=mean)
    return {
        "env": env,
        "trained_on": seen,
        "baseline": baseline.name,
        "tuned": {baseline.tuned: tuned},
        "fitness": float(ours[both].mean()),
        "fitness_error": _error(ours[both]),
        "baseline_fitness": float(theirs[both].mean()),
        "baseline_error": _error(theirs[both]),
        "difference": estimate._asdict(),
        "died": int((~np.isfinite(ours)).sum()),
        "baseline_died": int((~np.isfinite(theirs)).sum()),
    }


def _error(x: np.ndarray) -> float:
    return float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")


def print_report(found: dict[str, Any]) -> None:
    """A table with a row for each environment and baseline."""
    table = Table(
        "environment", "baseline", "tuned to", "evolved", "baseline", "difference", "95 % interval", "verdict"
    )
    for row in found["rows"]:
        [(field, value)] = row["tuned"].items()
        difference = row["difference"]
        verdict = "better" if difference["low"] > 0 else "worse" if difference["high"] < 0 else "no difference seen"
        table.add_row(
            row["env"] + ("" if row["trained_on"] else " (held out)"),
            row["baseline"],
            f"{field} {value:.3g}",
            f"{row['fitness']:.1f} +- {row['fitness_error']:.1f}",
            f"{row['baseline_fitness']:.1f} +- {row['baseline_error']:.1f}",
            f"{difference['value']:+.2f}",
            f"[{difference['low']:.2f}, {difference['high']:.2f}]",
            verdict,
        )
    console = Console()
    console = console if console.is_terminal else Console(width=140)
    console.print(table)
    console.print(f"fitness over {found['seeds']} held-out seeds, paired; +- is one standard error", highlight=False)
