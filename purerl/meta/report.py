"""Reports on a learned function: whole trainings with it and with its baselines, on held-out seeds.

Each baseline is first tuned separately in each environment, on other seeds, so that the comparison is with a tuned
baseline. A baseline that is the socket's own function with other meta-parameters has nothing to tune.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    """Compares a function with its baselines and writes the result, as `report` does with these numbers.

    The algorithm ``name`` is trained with ``config`` in environments ``made``, by name, of which the function was
    trained in those ``named``. The result begins with ``about``. ``path`` is its file, which is written anew after each
    environment.

    Raises:
        ConfigError: The algorithm or the function does not fit an environment; before anything is trained.
    """
    for env in made.values():
        on_device(env, IN_ONE_PROGRAM)
    if problems := [line for env in made.values() for line in ALGORITHMS[name].problems(config, env)]:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    for env in made.values():
        artefact.env(env)
    rows: list[dict[str, Any]] = []
    result = {**about, "seeds": seeds, "tuning_seeds": tuning_seeds, "seed": seed, "rows": rows}
    console = Console(stderr=True)
    for place, env in made.items():
        trainings = Trainings(ALGORITHMS[name], config, env, lanes, jax.random.key(seed), seeds, tuning_seeds)
        with waiting(console, place) as stage:
            begin = functools.partial(_begin, console, stage)
            rows += _compared(trainings, artefact, place, place in named, begin)
            writing.write_json(path, result)
    return result


def _begin(console: Console, stage: Callable[[str], None], text: str) -> None:
    """Writes ``text`` now and, as a stage, for as long as what it names takes."""
    say(console, f"{text} ...")
    stage(text)


class Trainings(NamedTuple):
    """The trainings of a report in one environment, whose keys all follow from ``key``, which is not consumed.

    - ``lanes``: as for `evolution.placed`.
    - ``seeds``: the number of trainings that are compared.
    - ``tuning_seeds``: the number of trainings for each value of a baseline's tuned field.
    """

    algo: Any
    config: Any
    env: Env
    lanes: int | None
    key: Key
    seeds: int
    tuning_seeds: int

    def learned(self, artefact: Function) -> np.ndarray:
        """Returns the fitness ``[seeds]`` of trainings with an artefact."""
        if artefact.made.env is not sockets.same_env:
            return self.drawn(artefact, lambda meta_params, key: meta_params)
        return self._fitness(lambda changed, value: artefact.parts(changed), self.seeds, HELD_OUT)[0]

    def tuned(self, baseline: sockets.Baseline) -> tuple[float, np.ndarray, bool]:
        """Tunes a baseline.

        Returns:
            The best value of its setting; the fitness ``[seeds]`` of trainings with it on other keys; and whether it is
            the smallest or the largest of those that were tried.
        """
        parts = lambda changed, value: baseline.parts(value)
        start = getattr(self.config, baseline.tuned) if baseline.start is None else baseline.start
        values = (start or 1.0) * np.array(FACTORS)
        scores = self._fitness(parts, self.tuning_seeds, TUNING, **{baseline.tuned: values})
        best = int(np.argmax(_floored(scores)[0].mean(axis=1)))
        fitness = self._fitness(parts, self.seeds, HELD_OUT, **{baseline.tuned: values[best : best + 1]})[0]
        return float(values[best]), fitness, best in (0, len(values) - 1)

    def drawn(self, artefact: Function, draw: Callable[[PyTree, Key], PyTree]) -> np.ndarray:
        """Returns the fitness ``[seeds]`` of trainings with the socket of an artefact.

        ``draw(meta_params, key)`` makes the meta-parameters of each training from those of the artefact.
        """
        socket = artefact.made

        def make_trainer(meta_params: PyTree) -> Trainer:
            env = socket.env(meta_params, self.env)
            return self.algo.make_trainer(self.config, env, **socket.parts(meta_params, self.config))

        held_out, drawn = (self._keys(salt, self.seeds) for salt in (HELD_OUT, DRAWN))
        meta_params = jax.vmap(draw, in_axes=(None, 0))(artefact.meta_params, drawn)
        judged = evolution.judge(socket, self.env)
        live = evolution.lives(make_trainer, self.config.num_iterations, self.seeds, **judged, lanes=self.lanes)
        return _run(live, {"meta_params": meta_params}, held_out)

    def _keys(self, salt: int, seeds: int) -> Key:
        return jax.random.split(jax.random.fold_in(self.key, salt), seeds)

    def _fitness(
        self, parts: Callable[[Any, Any], dict[str, Any]], seeds: int, salt: int, **values: np.ndarray
    ) -> np.ndarray:
        """Returns the fitness ``[V, seeds]`` of trainings with each of ``V`` values of a field; ``V`` is 1 without one.

        ``parts(config, value)`` returns keyword arguments of ``make_trainer``. The value of a field that the config
        lacks only goes there.
        """

        def make_trainer(meta_params: dict[str, Any]) -> Trainer:
            fields = {name: value for name, value in meta_params.items() if hasattr(self.config, name)}
            changed = dataclasses.replace(self.config, **fields)
            return self.algo.make_trainer(changed, self.env, **parts(changed, next(iter(meta_params.values()), None)))

        size = len(next(iter(values.values()), [0]))
        live = evolution.lifetimes(make_trainer, self.config.num_iterations, size, seeds, lanes=self.lanes)
        return _run(live, jax.tree.map(jnp.float32, values), self._keys(salt, seeds))


def _compared(
    trainings: Trainings, artefact: Function, place: str, trained_on: bool, begin: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Makes the rows of a report on the environment ``place``, one for each baseline; calls ``begin`` before each part.

    ``trained_on`` says whether the artefact was trained in it.
    """
    rows, seeds = [], trainings.seeds
    begin(f"{artefact.socket} on {place}: {seeds} trainings")
    learned = trainings.learned(artefact)
    for baseline in artefact.made.baselines:
        if baseline.drawn:
            begin(f"{baseline.name} on {place}: {seeds} trainings")
            value, fitness, at_edge = None, trainings.drawn(artefact, baseline.drawn), False
        else:
            tuning = f"{len(FACTORS)} values of {baseline.tuned} x {trainings.tuning_seeds} trainings"
            begin(f"{baseline.name} on {place}: {tuning}, then {seeds} of the best")
            value, fitness, at_edge = trainings.tuned(baseline)
        rows.append({**_row(place, trained_on, baseline, value, learned, fitness), "at_edge": at_edge})
    return rows


def _run(live: Callable[[PyTree, Key], Any], given: PyTree, keys: Key) -> np.ndarray:
    """Compiles and runs trainings, and returns their fitness."""
    return np.asarray(jax.jit(live, compiler_options=backend.compiler_options())(given, keys))


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
    """Makes a row of the report from the fitness ``[seeds]`` with the artefact and, paired with it, with a baseline.

    ``tuned`` is the tuned value of the baseline's field; None if it has none.
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
