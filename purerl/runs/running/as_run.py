"""A training of Python, written as a run that every command reads."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl import config as cfg
from purerl.algos import ALGORITHMS
from purerl.algos.algorithm import Algorithm
from purerl.display.progress import console, waiting
from purerl.errors import ConfigError, own_code
from purerl.learners.parts import warm_start
from purerl.names import choose, here
from purerl.runs.describing import config_file
from purerl.runs.describing.description import Setup, TrainingDescription, describe
from purerl.runs.describing.options import TrainOptions
from purerl.runs.describing.run_directory import TIMES, clear, hold
from purerl.runs.describing.sweeps import config_part, configurations
from purerl.runs.reading import evaluation, loading
from purerl.runs.reading.host_evaluation import Venue
from purerl.runs.reading.run_curves import EVALUATED
from purerl.runs.running import early_stopping, logs
from purerl.runs.running.run_loop import Chunk
from purerl.store import guards, trusted_modules
from purerl.store.metrics import Known
from purerl.types import Result, TrainState

if TYPE_CHECKING:
    from purerl.runs.running.train import TrainingRun
    from purerl.runs.running.training import Trained


def save(
    directory: str | Path,
    result: Result,
    algo: Algorithm[Any] | str,
    config: Any,
    env: str,
    *,
    env_params: Mapping[str, Any] | None = None,
    seed: int = 0,
    swept: Mapping[str, Sequence[float]] | None = None,
    parts: Mapping[str, str] | None = None,
    eval_episodes: int = 100,
    sample: bool = False,
    seconds: float = float("nan"),
    overwrite: bool = False,
) -> None:
    """Writes what a training in Python has learned as a run directory, which all commands and `load` read.

    It has the policies, the metrics, the results of a final evaluation, and their pictures. It has no checkpoint, so
    that ``purerl resume`` cannot go on with it; ``--warm-start`` can begin with it.

    Args:
        directory: The run directory, which is made.
        result: What ``make_train``, `train_in_chunks` or `train_population` gave: of one agent, or of ``P`` agents with
            that leading axis, configuration after configuration, each with the same seeds.
        algo: The algorithm; one of your own as ``MODULE:ATTRIBUTE``.
        config: The config of all agents, apart from what is swept.
        env: The name of the environment, as for `envs.make`; one of your own as ``MODULE:FUNCTION``.
        env_params: Its parameters.
        seed: The seed of the first agent of a configuration; agent ``i`` has ``seed + i``. The run of the command line
            with these seeds is the same if the agents began with ``jax.random.key(seed + i)``.
        swept: A value for each configuration, by the name of the setting, or ``env.NAME`` for a parameter of the
            environment.
        parts: Your own parts of the algorithm, such as ``{"network": "MODULE:NAME"}``.
        eval_episodes: The number of episodes that each agent plays in the final evaluation.
        sample: Whether actions are drawn from the policies' distributions there, as in `train_in_chunks`.
        seconds: How long the training took, if it is to be told.
        overwrite: Whether a run in the directory may be replaced.

    Raises:
        ConfigError: A line for each argument that is no possible run, or from which the result cannot have come; or
            there is a run already. Nothing is written.
    """
    from purerl.runs.running.train import TrainingRun

    state, values = _of_agents(result)
    columns = _columns(swept or {})
    evaluations = {"eval_episodes": eval_episodes, "sample": sample}
    options = _options(values, columns, env=env, seed=seed, env_params=env_params or {}, **evaluations)
    if seconds <= 0 or seconds == math.inf:
        raise ConfigError(f"seconds = {seconds!r}: must be above 0")
    described = _described(_name(algo), options, config, columns, parts or {})
    run = TrainingRun(described, Setup.of(described), options, here(directory), console())
    trained = _trained(run, state, values, seconds)
    with hold(run.directory, run.FILES, overwrite=overwrite):
        _write(run, values, trained)


def _options(
    values: dict[str, np.ndarray], columns: dict[str, list[float]], *, env_params: Mapping[str, Any], **given: Any
) -> TrainOptions:
    """Returns the options of the command line that are ``given``, and those that follow from metrics and columns."""
    return TrainOptions(
        env_params=tuple(f"{name}={guards.yaml_text(value)}" for name, value in env_params.items()),
        num_seeds=max(1, len(values["alive"].T) // max(1, configurations(columns))),
        eval_every=int(any(name.startswith(EVALUATED) for name in values)),
        **given,
    )


def _of_agents(result: Result) -> tuple[TrainState, dict[str, np.ndarray]]:
    """Returns the states ``[P]`` and the metrics ``[iterations, P]`` of a result, of one agent with ``P`` = 1."""
    if "alive" not in result.metrics or np.ndim(result.metrics["alive"]) not in (1, 2):
        raise ConfigError("result: must have metrics, [iterations] or [P, iterations]")
    alone = np.ndim(result.metrics["alive"]) == 1
    state, metrics = jax.tree.map(lambda x: x[None], tuple(result)) if alone else result
    values = {name: np.asarray(column).T for name, column in metrics.items()}
    if not values["alive"].size:
        raise ConfigError("result: has no iteration")
    return state, values


def _columns(swept: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Returns swept values as numbers. Raises `ConfigError` if they are none, or are not equally many."""
    try:
        columns = {name: list(map(float, column)) for name, column in swept.items()}
    except (TypeError, ValueError):
        raise ConfigError("swept: must have a number for each configuration, by the name of the setting") from None
    if len({len(column) for column in columns.values()}) > 1:
        raise ConfigError("swept: the settings must have equally many values, one for each configuration")
    return columns


def _name(algo: Algorithm[Any] | str) -> str:
    """Returns the name of an algorithm that the command line knows.

    Raises:
        ConfigError: It has none.
    """
    if isinstance(algo, str):
        return choose("algo", algo, ALGORITHMS)
    known = ALGORITHMS.get(algo.name)
    if known is None or known.own_config is not algo.own_config:
        raise ConfigError(f"algo = {algo.name!r}: is no algorithm of purerl; give yours as MODULE:ATTRIBUTE")
    return algo.name


def _described(
    algo: str, options: TrainOptions, config: Any, swept: dict[str, list[float]], parts: Mapping[str, str]
) -> TrainingDescription:
    """Describes the training. Raises `ConfigError` if it is not possible."""
    if not isinstance(options.env, str):
        raise ConfigError("env: must be the name of the environment; of your own MODULE:FUNCTION")
    if not isinstance(config, ALGORITHMS[algo].own_config):
        raise ConfigError(f"config: is {type(config).__name__}, must be a Config of {algo}")
    for name in config_part(swept):
        choose("swept", name, cfg.traced_fields(ALGORITHMS[algo].Config))
    return dataclasses.replace(describe(algo, options, config, swept=swept), parts=dict(parts))


def _trained(run: "TrainingRun", state: TrainState, values: dict[str, np.ndarray], seconds: float) -> "Trained":
    """Makes the result that `train_batches` would have, of states ``[P]`` and metrics ``[iterations, P]``.

    Raises:
        ConfigError: They are not those of the run's agents.
    """
    from purerl.runs.running.training import Trained

    (iterations, size), description = values["alive"].shape, run.description
    if description.size != size:
        raise ConfigError(f"result: has {size} agents, and {configurations(description.swept)} configurations")
    learner = run.setup.trainer.learner
    policy = jax.device_get(jax.vmap(learner.policy)(state.learner))
    if problem := warm_start.problem(loading.shapes(description, size), policy):
        raise ConfigError(f"result, as of {description.algo} on {description.env} with this config: {problem}")
    return Trained(
        policy,
        jax.device_get(jax.vmap(learner.critics)(state.learner)) if learner.critics else {},
        jax.device_get(getattr(state.curriculum, "buffer", None)),
        np.asarray(state.alive).tolist(),
        [run.setup.trainer.counted(iterations)] * size,
        early_stopping.stopped_at(state, size, run.setup.trainer),
        seconds,
        bool(values["episodes"].any()),
        early_stopping.faults(state, size),
        description.swept,
    )


def _write(run: "TrainingRun", values: dict[str, np.ndarray], trained: "Trained") -> None:
    """Writes a run whose directory is held: its logs of metrics ``[iterations, P]``, and what `train` writes."""
    from purerl.runs.running.train import write_policies, write_results

    setup = run.setup
    with contextlib.closing(Venue(setup.config.num_envs)) as venue:
        sizes = run.options.eval_episodes, evaluation.STEPS
        play = evaluation.prepare(setup, *sizes, venue=venue, sample=run.options.sample)
        with own_code(run.description.algo), waiting(run.console, "evaluating"):
            played = play(trained.policy, seconds=trained.evaluation_seconds)
    clear(run.directory, run.FILES)
    config_file.write(run.directory, "sweep" if setup.swept else "train", run.description, run.options)
    trusted_modules.remember(run.directory, run.description.code)
    iterations = len(values["alive"])
    evaluated = {name: values.pop(name) for name in list(values) if name.startswith(EVALUATED)}
    everyone = logs.Ran(0, slice(None), setup.labels, jax.tree.map(np.asarray, setup.members.given["config"]))
    with logs.opened(run, Known()) as written:
        written.chunk(Chunk((), iterations, iterations, values, trained.seconds), 1, everyone, trained.seconds)
        known = np.any([np.isfinite(column).any(axis=1) for column in evaluated.values()], axis=0)
        for i in np.flatnonzero(known).tolist():
            written.evaluation({name: column[i].tolist() for name, column in evaluated.items()}, i + 1, everyone)
    if math.isnan(trained.seconds):
        (run.directory / TIMES).unlink()
    alive = any(trained.alive) if setup.swept else all(trained.alive)
    summary = write_policies(run, setup, trained, {"compile_seconds": math.nan})
    write_results(run, setup, trained, summary | {"status": "completed" if alive else "diverged"}, played)
