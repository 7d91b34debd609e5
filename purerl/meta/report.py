"""Reports on a learned function: whole trainings with it and with its baselines, on held-out seeds.

Each baseline is first tuned separately in each environment, on other seeds, so that the comparison is with a tuned
baseline. One that is the socket's own function with other meta-parameters has nothing to tune.
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
from purerl.store import json_files
from purerl.types import Env, Key, PyTree, Trainer

TUNING, HELD_OUT, DRAWN = 2**31 + 1, 2**31 + 2, 2**31 + 4
"""Folded into the key of a report, so that its keys differ from those of a search, and those by which baselines are
drawn from both."""
FACTORS = tuple(2.0**power for power in range(-6, 4))
"""The factors on the default of a baseline's tuned field that are tried."""


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

    - ``run``: a run directory, or the file of an artefact.
    - ``held_out``: names of further environments.
    - ``seeds``: paired trainings in each environment.
    - ``tuning_seeds``: trainings for each value of a baseline's tuned field.
    - ``seed``: of the keys of all trainings.
    - ``lanes``: as for `evolution.placed`.
    - ``trust``: whether the artefact's card may name modules of anybody's own to import.

    ``rows`` of the result has one entry for each environment and baseline: mean fitness and standard error of both, the
    mean paired difference (artefact minus baseline, with the same keys) with its bootstrapped 95 % interval; the
    interquartile means of all three with theirs, which are what people are told; and the tuned value of the baseline,
    if it has one. Held-out seeds depend on ``seed`` alone: if reports are used to select
    among searches, the selected one needs a new report with another ``seed``.

    Says on stderr what it begins with. Writes the result to ``report.json`` (for a file ``NAME.json``: to
    ``NAME-report.json`` beside it), and as ``evidence`` to the artefact's card. Raises `ConfigError`.
    """
    path = run / artefacts.NAME if run.is_dir() else run
    if not path.is_file() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"run = {str(run)!r}: must be a run directory, or an artefact, beside which can be written")
    written = path.with_name("report.json" if path.name == artefacts.NAME else f"{path.stem}-report.json")
    artefact = artefacts.load(path)
    name, config = artefacts.training(artefact, trust=trust, where=run)
    card = artefact.card
    named = card.get("envs")
    if not isinstance(named, list) or not all(isinstance(place, str) for place in named):
        raise ConfigError("artefact: its card names no environments")
    if not isinstance(card.get("env_params"), dict):
        raise ConfigError("artefact: its card has no parameters of environments")
    for place in named:
        check_trusted("artefact: env", place, trust, run)
    if problems := parameter_problems(card["env_params"]):
        raise ConfigError("\n".join(f"artefact: its card has {line}" for line in problems))
    params = envs.renamed(card["env_params"], *named)
    places = {place: params if place in named else {} for place in (*named, *held_out)}
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
    """What `report` does, once all that it needs is known. Raises `ConfigError`, before anything is trained.

    - ``artefact``: the function.
    - ``name, config``: what is trained, with and without it.
    - ``made``: environments by name, of which it was trained in those that are ``named``.
    - ``path``: where the result is written, environment by environment.
    - ``about``: its first entries.
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
            ours = lives(learned, seeds, HELD_OUT)[0] if artefact.made.env is sockets.same_env else drawn(None)
            for baseline in artefact.made.baselines:
                if baseline.drawn:
                    begin(f"{baseline.name} on {place}: {seeds} trainings")
                    row = _row(place, place in named, baseline, None, ours, drawn(baseline.drawn))
                    rows.append({**row, "at_edge": False})
                    continue
                parts = lambda changed, value, b=baseline: b.parts(value)
                start = getattr(config, baseline.tuned) if baseline.start is None else baseline.start
                values = (start or 1.0) * np.array(FACTORS)
                tried = f"{len(values)} values of {baseline.tuned} x {tuning_seeds} trainings, then {seeds} of the best"
                begin(f"{baseline.name} on {place}: {tried}")
                scores = lives(parts, tuning_seeds, TUNING, **{baseline.tuned: values})
                best = int(np.argmax(_floored(scores)[0].mean(axis=1)))
                theirs = lives(parts, seeds, HELD_OUT, **{baseline.tuned: values[best : best + 1]})[0]
                row = _row(place, place in named, baseline, float(values[best]), ours, theirs)
                rows.append({**row, "at_edge": best in (0, len(values) - 1)})
            json_files.write_json(path, result)
    return result


def _begin(console: Console, stage: Callable[[str], None], text: str) -> None:
    """Says what begins, now and as long as it takes."""
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
    """The fitness ``[V, seeds]`` of trainings with a field set to each of ``V`` values; ``V`` is 1 without a field.

    - ``algo, config, env``: what is trained.
    - ``lanes``: as for `evolution.placed`.
    - ``key``: of all trainings of the report; not consumed, but folded with ``salt``.
    - ``parts(config, value)``: keyword arguments of ``make_trainer``.
    - ``seeds``: number of keys.
    - ``salt``: `TUNING` or `HELD_OUT`.
    - ``values``: one field by name, with its values ``[V]``; a field that the config lacks only goes to ``parts``.
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
    """The fitness ``[seeds]`` of trainings with the socket of an artefact, on the keys of `HELD_OUT`.

    - ``algo, config, env, lanes, key, seeds``: as for `_lives`.
    - ``artefact``: the learned function.
    - ``draw(meta_params, key)``: the meta-parameters of each training; None: those of the artefact.
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
    """Scores with non-finite ones (trainings that died) replaced by the worst finite one among all ``scores``."""
    everything = np.concatenate([x.reshape(-1) for x in scores])
    finite = everything[np.isfinite(everything)]
    return [np.where(np.isfinite(x), x, finite.min() if finite.size else np.nan) for x in scores]


def _row(
    env: str, trained_on: bool, baseline: sockets.Baseline, tuned: float | None, ours: np.ndarray, theirs: np.ndarray
) -> dict[str, Any]:
    """A row of the report.

    - ``env``: the name of the environment.
    - ``trained_on``: whether the artefact was trained in it.
    - ``baseline``: what the artefact is compared with.
    - ``tuned``: the tuned value of the baseline's field; None if it has none.
    - ``ours, theirs``: ``[seeds]``, paired fitness with the artefact and with the baseline.
    """
    with_floor, their_floor = _floored(ours, theirs)
    mean = lambda x: x.mean(axis=(-2, -1))
    difference = (with_floor - their_floor)[:, None]
    nothing = aggregates.Estimate(np.nan, np.nan, np.nan)
    none = np.any(np.isnan(difference))
    estimate = nothing if none else aggregates.estimate(difference, statistic=mean)
    of_iqm = lambda x: (nothing if none else aggregates.told(x))._asdict()
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
        "without": int((~np.isfinite(ours)).sum()),
        "baseline_without": int((~np.isfinite(theirs)).sum()),
    }


def _error(x: np.ndarray) -> float:
    """The standard error of the mean of ``x`` ``[N]``; nan for a single element."""
    return float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
