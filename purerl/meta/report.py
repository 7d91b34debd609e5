"""Reports on a learned function: whole trainings with it and with its baselines, on held-out seeds.

Each baseline is first tuned separately in each environment, on other seeds, so that the comparison is with a tuned
baseline. A baseline that is the socket's own function with other meta-parameters has nothing to tune.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from purerl import backend, envs
from purerl.algos import ALGORITHMS
from purerl.display.progress import say, waiting
from purerl.envs.hosted import on_device
from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.learned import artefacts, sockets
from purerl.learned.written import Function
from purerl.meta import evolution
from purerl.meta.description import IN_ONE_PROGRAM
from purerl.names import Trust, check_trusted
from purerl.runs.describing.file_checks import parameter_problems
from purerl.store import writing
from purerl.types import Env, Key, PyTree, Trainer

TUNING, HELD_OUT, DRAWN = 2**31 + 1, 2**31 + 2, 2**31 + 4
"""Numbers that are folded into the key of a report, so that the keys of tuning and of held-out trainings differ from
those of a search, and the keys by which baselines are drawn from both."""
FACTORS = tuple(2.0**power for power in range(-6, 4))
"""The factors that are tried on the default of a baseline's tuned field."""


def report(
    run: Path,
    held_out: tuple[str, ...] = (),
    seeds: int = 256,
    tuning_seeds: int = 64,
    seed: int = 0,
    lanes: int | None = None,
    *,
    trust: Trust = False,
) -> dict[str, Any]:
    """Compares an artefact with its baselines, in the environments that it was trained in and in ``held_out`` ones.

    It writes to stderr what it begins with, the result to ``report.json`` (for a file ``NAME.json``: to
    ``NAME-report.json`` beside it), and the result as ``evidence`` to the artefact's card. Held-out seeds depend on
    ``seed`` alone: if reports are used to select among searches, the selected one needs a new report with another
    ``seed``.

    Args:
        run: A run directory, or the file of an artefact.
        held_out: Names of further environments.
        seeds: Paired trainings in each environment.
        tuning_seeds: Trainings for each value of a baseline's tuned field.
        seed: The seed of the keys of all trainings.
        lanes: As for `evolution.placed`.
        trust: Whether modules that the artefact's card names are imported (`purerl.names.Trust`).

    Returns:
        The result. Its ``rows`` have one entry for each environment and baseline: mean fitness and standard error of
            both; the mean paired difference (artefact minus baseline, with the same keys) with its bootstrapped 95 %
            interval; the interquartile means of all three with their intervals, which are the ones shown to users; and
            the tuned value of the baseline, if it has one.

    Raises:
        ConfigError: The artefact, its card or an environment is not valid, or the directory cannot be written.
    """
    path = run / artefacts.NAME if run.is_dir() else run
    if not path.is_file() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"run = {str(run)!r}: must be a run directory, or an artefact, beside which can be written")
    written = path.with_name("report.json" if path.name == artefacts.NAME else f"{path.stem}-report.json")
    artefact = artefacts.load(run, trust)
    name, config = artefacts.training(artefact, trust=trust, where=run)
    card = artefact.card
    named = card.get("envs")
    if not isinstance(named, list) or not all(isinstance(place, str) for place in named):
        raise ConfigError("artefact: its card names no environments")
    if not isinstance(card.get("env_params"), dict):
        raise ConfigError("artefact: its card has no parameters of environments")
    for place in named:
        check_trusted("artefact: env", place, trust, run)
    if problems := parameter_problems(card["env_params"], *named):
        raise ConfigError("\n".join(f"artefact: its card has {line}" for line in problems))
    places = {place: card["env_params"] if place in named else {} for place in (*named, *held_out)}
    made = {place: envs.make(place, **params) for place, params in places.items()}
    about = {"socket": artefact.socket, "algo": name, "generations": card.get("generations")}
    result = compare(
        artefact, name, config, made, named, written, about, seeds, tuning_seeds=tuning_seeds, seed=seed, lanes=lanes
    )
    artefacts.save(path, artefact._replace(card={**card, "evidence": result}))
    return result


def compare(
    artefact: Function,
    name: str,
    config: Any,
    made: Mapping[str, Env],
    named: Sequence[str],
    path: Path,
    about: dict[str, Any],
    seeds: int,
    *,
    tuning_seeds: int,
    seed: int,
    lanes: int | None,
) -> dict[str, Any]:
    """Compares a function with its baselines and writes the result, as `report` does.

    Args:
        artefact: The function.
        name: The name of the algorithm that is trained with and without the function.
        config: The config of the algorithm.
        made: Environments by name.
        named: The names of those environments that the function was trained in.
        path: The file of the result, which is written anew after each environment.
        about: The first entries of the result.
        seeds: As for `report`.
        tuning_seeds: As for `report`.
        seed: As for `report`.
        lanes: As for `evolution.placed`.

    Raises:
        ConfigError: The algorithm or the function does not fit an environment; before anything is trained.
    """
    algo = ALGORITHMS[name]
    for env in made.values():
        on_device(env, IN_ONE_PROGRAM)
    if problems := [line for env in made.values() for line in algo.problems(config, env)]:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    for env in made.values():
        artefact.env(env)
    rows: list[dict[str, Any]] = []
    result = {**about, "seeds": seeds, "tuning_seeds": tuning_seeds, "seed": seed, "rows": rows}
    console = Console(stderr=True)
    for place, env in made.items():
        with waiting(console, place) as stage:
            begin = functools.partial(_begin, console, stage)
            begin(f"{artefact.socket} on {place}: {seeds} trainings")
            lives = functools.partial(_lives, algo, config, env, lanes, jax.random.key(seed))
            drawn = functools.partial(_drawn, algo, config, env, lanes, jax.random.key(seed), artefact, seeds)
            learned = lambda changed, value: artefact.parts(changed)
            learned_fitness = (
                lives(learned, seeds, HELD_OUT)[0] if artefact.made.env is sockets.same_env else drawn(None)
            )
            row_of = functools.partial(_row, place, place in named)
            for baseline in artefact.made.baselines:
                if baseline.drawn:
                    begin(f"{baseline.name} on {place}: {seeds} trainings")
                    rows.append({**row_of(baseline, None, learned_fitness, drawn(baseline.drawn)), "at_edge": False})
                    continue
                begin(f"{baseline.name} on {place}: {_effort(baseline, tuning_seeds, seeds)}")
                value, fitness, at_edge = _tuned(baseline, config, lives, tuning_seeds, seeds)
                rows.append({**row_of(baseline, value, learned_fitness, fitness), "at_edge": at_edge})
            writing.write_json(path, result)
    return result


def _effort(baseline: Any, tuning_seeds: int, seeds: int) -> str:
    """Returns in words how a baseline is tuned."""
    return f"{len(FACTORS)} values of {baseline.tuned} x {tuning_seeds} trainings, then {seeds} of the best"


def _tuned(
    baseline: Any, config: Any, lives: Callable[..., Any], tuning_seeds: int, seeds: int
) -> tuple[float, np.ndarray, bool]:
    """Tunes a baseline.

    Returns:
        The best value of its setting, the fitness of trainings with it on other seeds, and whether it is the smallest
        or the largest of those that were tried.
    """
    parts = lambda changed, value: baseline.parts(value)
    start = getattr(config, baseline.tuned) if baseline.start is None else baseline.start
    values = (start or 1.0) * np.array(FACTORS)
    scores = lives(parts, tuning_seeds, TUNING, **{baseline.tuned: values})
    best = int(np.argmax(_floored(scores)[0].mean(axis=1)))
    fitness = lives(parts, seeds, HELD_OUT, **{baseline.tuned: values[best : best + 1]})[0]
    return float(values[best]), fitness, best in (0, len(values) - 1)


def _begin(console: Console, stage: Callable[[str], None], text: str) -> None:
    """Writes ``text`` now and, as a stage, for as long as what it names takes."""
    say(console, f"{text} ...")
    stage(text)


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
    """Runs trainings with a field set to each of ``V`` values and returns their fitness ``[V, seeds]``.

    ``V`` is 1 without a field.

    Args:
        algo: The algorithm.
        config: The config of the algorithm.
        env: The environment.
        lanes: As for `evolution.placed`.
        key: The key of all trainings of the report; not consumed, but folded with ``salt``.
        parts: ``parts(config, value)`` returns keyword arguments of ``make_trainer``.
        seeds: The number of keys.
        salt: `TUNING` or `HELD_OUT`.
        values: One field by name, with its values ``[V]``; a field that the config lacks only goes to ``parts``.
    """

    def make_trainer(meta_params: dict[str, Any]) -> Trainer:
        fields = {name: value for name, value in meta_params.items() if hasattr(config, name)}
        changed = dataclasses.replace(config, **fields)
        return algo.make_trainer(changed, env, **parts(changed, next(iter(meta_params.values()), None)))

    keys = jax.random.split(jax.random.fold_in(key, salt), seeds)
    size = len(next(iter(values.values()), [0]))
    live = evolution.lifetimes(make_trainer, config.num_iterations, size, seeds, lanes=lanes)
    return np.asarray(
        jax.jit(live, compiler_options=backend.compiler_options())(jax.tree.map(jnp.float32, values), keys)
    )


def _drawn(
    algo: Any,
    config: Any,
    env: Env,
    lanes: int | None,
    key: Key,
    artefact: Function,
    seeds: int,
    draw: Callable[[PyTree, Key], PyTree] | None,
) -> np.ndarray:
    """Runs trainings with the socket of an artefact on the keys of `HELD_OUT` and returns their fitness ``[seeds]``.

    Args:
        algo: As for `_lives`.
        config: As for `_lives`.
        env: As for `_lives`.
        lanes: As for `_lives`.
        key: As for `_lives`.
        artefact: The learned function.
        seeds: As for `_lives`.
        draw: ``draw(meta_params, key)`` makes the meta-parameters of each training; None: the artefact's.
    """
    socket = artefact.made

    def make_trainer(meta_params: PyTree) -> Trainer:
        return algo.make_trainer(config, socket.env(meta_params, env), **socket.parts(meta_params, config))

    held_out, drawn = (jax.random.split(jax.random.fold_in(key, salt), seeds) for salt in (HELD_OUT, DRAWN))
    draw = draw or (lambda meta_params, key: meta_params)
    meta_params = jax.vmap(draw, in_axes=(None, 0))(artefact.meta_params, drawn)
    judged = evolution.judge(socket, env)
    live = evolution.lives(make_trainer, config.num_iterations, seeds, **judged, lanes=lanes)
    return np.asarray(
        jax.jit(live, compiler_options=backend.compiler_options())({"meta_params": meta_params}, held_out)
    )


def _floored(*scores: np.ndarray) -> list[np.ndarray]:
    """Replaces non-finite scores (trainings that died) by the worst finite one among all ``scores``."""
    everything = np.concatenate([x.reshape(-1) for x in scores])
    finite = everything[np.isfinite(everything)]
    return [np.where(np.isfinite(x), x, finite.min() if finite.size else np.nan) for x in scores]


def _row(
    env: str,
    trained_on: bool,
    baseline: sockets.Baseline,
    tuned: float | None,
    learned_fitness: np.ndarray,
    baseline_fitness: np.ndarray,
) -> dict[str, Any]:
    """Makes a row of the report.

    Args:
        env: The name of the environment.
        trained_on: Whether the artefact was trained in it.
        baseline: The baseline that the artefact is compared with.
        tuned: The tuned value of the baseline's field; None if it has none.
        learned_fitness: ``[seeds]``, the fitness with the artefact, paired with ``baseline_fitness``.
        baseline_fitness: ``[seeds]``, the fitness with the baseline.
    """
    with_floor, their_floor = _floored(learned_fitness, baseline_fitness)
    mean = lambda x: x.mean(axis=(-2, -1))
    difference = (with_floor - their_floor)[:, None]
    nothing = aggregates.Estimate(np.nan, np.nan, np.nan)
    none = np.any(np.isnan(difference))
    estimate = nothing if none else aggregates.estimate(difference, statistic=mean)
    of_iqm = lambda x: (nothing if none else aggregates.reported_estimate(x))._asdict()
    return {
        "env": env,
        "trained_on": trained_on,
        "baseline": baseline.name,
        "tuned": {} if tuned is None else {baseline.tuned: tuned},
        "fitness": float(with_floor.mean()),
        "fitness_error": _error(with_floor),
        "baseline_fitness": float(their_floor.mean()),
        "baseline_error": _error(their_floor),
        "difference": estimate._asdict(),
        "fitness_iqm": of_iqm(with_floor),
        "baseline_iqm": of_iqm(their_floor),
        "iqm_difference": of_iqm(difference[:, 0]),
        "without": int((~np.isfinite(learned_fitness)).sum()),
        "baseline_without": int((~np.isfinite(baseline_fitness)).sum()),
    }


def _error(x: np.ndarray) -> float:
    """Computes the standard error of the mean of ``x`` ``[N]``; nan for a single element."""
    return float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
