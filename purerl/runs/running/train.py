"""A run, from its directory to its summary: training, logs, checkpoints and evaluation.

It is what the commands of the command line do, without parsing.
"""

import contextlib
import functools
import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import interrupts, processes
from purerl.algos import ALGORITHMS, presets
from purerl.display.progress import console, picturing, say, waiting
from purerl.display.tables import print_summary
from purerl.errors import ConfigError, own_code
from purerl.formulas import aggregates
from purerl.interrupts import Interrupted
from purerl.names import here
from purerl.population import arithmetic, devices
from purerl.runs.describing import config_file, environments, machine, sharding, sweeps
from purerl.runs.describing.description import Description, Setup
from purerl.runs.describing.machine import machine_facts
from purerl.runs.describing.run_directory import (
    CHECKPOINTS,
    EVALUATIONS,
    EXPORTS,
    FILMS,
    METRICS,
    QUANTILES,
    TIMES,
    claim,
    hold,
    resume_command,
)
from purerl.runs.describing.sweeps import MOST_PROGRAMS, env_part
from purerl.runs.reading import curves, evaluation, levels
from purerl.runs.reading.evaluation import Plays
from purerl.runs.reading.host_evaluation import Venue
from purerl.runs.running import early_stopping, forecast, resuming, run_loop, saved_policies
from purerl.runs.running.device_program import RunProgram, compile_program
from purerl.runs.running.host_program import HostProgram
from purerl.runs.running.logs import ELSEWHERE
from purerl.runs.running.resuming import Resumed
from purerl.runs.running.run_loop import Run
from purerl.runs.running.training import Progress, Trained, cut_logs, endless, train_batches
from purerl.store import trusted_modules, writing
from purerl.store.policies import save_policy
from purerl.types import Trainer

EXIT_DIVERGED = 3
EVALUATION_STEPS = 10_000
"""The number of steps after which an episode of the final evaluation is cut."""
FILES = (
    config_file.NAME,
    METRICS,
    QUANTILES,
    TIMES,
    EVALUATIONS,
    *ELSEWHERE,
    curves.NAME,
    levels.FILE,
    levels.PICTURE,
    "summary.json",
    "policy.safetensors",
    "policy.json",
    "sweep.json",
    "sweep.png",
    CHECKPOINTS,
    saved_policies.BEST,
    saved_policies.WARM_START,
    *FILMS,
    *EXPORTS,
    *map(str, range(MOST_PROGRAMS)),
)
"""The files and folders that a run writes, including those of a sweep over programs
(`sweep_of_programs.train_programs`)."""


def train(
    description: Description,
    options: Any,
    command: str = "train",
    out: Path | None = None,
    compiled: Callable[[], None] = lambda: None,
) -> int:
    """Trains a run's members, evaluates them, writes a run directory, and returns the exit code.

    Args:
        description: The description of the run.
        options: Its options.
        command: The command that makes such a run, "train" or "sweep".
        out: The directory of the run; None: the one of the options (`place`).
        compiled: Called once the program is compiled, before anything is written.

    Raises:
        ConfigError: The run is not possible. Nothing is compiled or written.
        DoesNotFit: The run does not fit into memory. Nothing is left behind.
    """
    directory = out or place(options, description.name)
    description, begun = saved_policies.read_warm_start(description, options.warm_start)
    run = Run(description, Setup.of(description, options.diagnostics, begun), options, directory, console())
    with hold(directory, FILES, overwrite=options.overwrite):
        _print_presets(run)
        program = _compile(run, options.agents_at_once or "auto")
        run_loop.confirm(run, _expected_seconds(run.setup, program))
        compiled()
        if processes.is_first():
            claim(directory, FILES)
            config_file.write(directory, command, description, options)
            for folder in (directory, directory / saved_policies.BEST):
                trusted_modules.remember(folder, description.code)
            saved_policies.keep_warm_start(directory, description, begun)
        batches = math.ceil(run.setup.members.size / program.chunk.batch_size)
        return _train(run, program, Progress([None] * batches))


def place(options: Any, name: str) -> Path:
    """Returns the directory of a new run: the one of the options, or one with its ``name`` and the time."""
    return here(options.out or processes.from_first(f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}"))


def resume(description: Description, options: Any, resumed: Resumed) -> int:
    """Resumes a run and returns the exit code. The results have the bits of a run without an interrupt.

    Args:
        description: The description of the run, with the changes.
        options: Its options, with the changes.
        resumed: The run that is resumed, and what has changed.

    Raises:
        ConfigError: There is nothing sound to continue from. Nothing is written.
    """
    directory = resumed.directory
    with hold(directory, FILES, resume=True):
        setup = Setup.of(description, options.diagnostics, saved_policies.kept_warm_start(directory, description))
        run = Run(description, setup, options, directory, console())
        folder = directory / CHECKPOINTS
        batch_size = _batch_size(run, resumed, folder)
        batches = 0 if batch_size == "auto" else math.ceil(run.setup.members.size / int(batch_size))
        steps = [resuming.newest(folder / str(k), run.console, strict=resumed.strict) for k in range(batches)]
        so_far = Progress(steps, max((step.about["seconds"] for step in steps if step), default=0.0))
        whole, furthest = run.setup.config.num_iterations, max(so_far.done, default=0)
        if furthest > whole:
            done = f"{run.setup.trainer.frames(furthest):,}"
            raise ConfigError(f"total_steps = {run.setup.config.total_steps}: the run has done {done} of each agent")
        if resumed.finished:
            say(run.console, f"{directory}: the run is finished; give --total-steps to continue it")
            return 0
        program = _compile(run, batch_size)
        so_far = so_far if steps else Progress([None] * math.ceil(run.setup.members.size / program.chunk.batch_size))
        resuming.agreed([step.path.name if step else None for step in steps])
        if processes.is_first():
            cut_logs(run, program.chunk.batch_size, so_far.done)
            resuming.begin(resumed, description, options, [step for step in steps if step], run.console)
        processes.gathered(None)
        return _train(run, program, so_far)


def _batch_size(run: Run, resumed: Resumed, folder: Path) -> int | str:
    """Returns the number of members in a batch by the checkpoints, or the options' if nothing was saved yet."""
    about, size = resuming.checked(resumed, folder, folder / "0"), run.setup.members.size
    saved = about.get("batch_size", run.options.agents_at_once or "auto")
    if about and not (isinstance(saved, int) and 0 < saved <= size):
        raise ConfigError(f"{folder / '0'}: batches of {str(saved)[:40]} agents, of {size} in all")
    return saved


def _compile(run: Run, batch_size: int | str) -> RunProgram | HostProgram:
    """Compiles the program of a run and prints a line about it.

    The user's own code is traced first.

    Raises:
        ConfigError: The user's own code raised an error. Nothing is printed.
    """
    setup, options, name = run.setup, run.options, run.description
    lanes, digest = options.lanes or None, config_file.digest(name._asdict())
    with own_code(name.algo):
        trainer = setup.trainer
        if ":" in name.algo:
            evaluation.trace(setup, trainer, options.eval_episodes, EVALUATION_STEPS)
    with waiting(run.console, "tracing", machine.last_compile_time(digest)) as stages:
        print_once = functools.cache(lambda: _print_start(run, trainer))

        def stage(name: str) -> None:
            print_once()
            stages(name)

        known: dict[str, Any] = {"lanes": lanes, "stage": stage, "algo": name.algo}
        program: RunProgram | HostProgram
        if setup.host:
            how = environments.how(options), options.ahead
            known |= {"warn": functools.partial(say, run.console)}
            program = HostProgram(setup.make_trainer, setup.members, *how, batch_size, **known)
        else:
            used = devices.chosen(options.num_devices, options.devices_per_agent)
            known |= {"devices": used, "split": sharding.split(name.split, options.devices_per_agent)}
            program = compile_program(setup.make_trainer, setup.members, batch_size, **known)
    if processes.is_first():
        machine.note_compile_time(digest, program.compile_seconds)
    at_once, size = program.chunk.batch_size, setup.members.size
    batches = f", {math.ceil(size / at_once)} batches of {at_once}" if at_once < size else ""
    say(run.console, f"compiled in {program.compile_seconds:.1f} s{batches}")
    return program


def _expected_seconds(setup: Setup, program: RunProgram | HostProgram) -> float:
    """Estimates the seconds of a training; 0 if its speed is not known before it runs."""
    if isinstance(program, HostProgram):
        return 0.0

    def flops() -> float:
        trainer = setup.trainer
        state = jax.eval_shape(trainer.init, setup.members.keys[0])
        return arithmetic.flops(trainer.step, state) * setup.config.num_iterations * setup.members.size / len(used)

    used = program.chunk.layout.devices
    return forecast.expected(forecast.counted(setup, program), flops)


def _print_presets(run: Run) -> None:
    """Prints which presets of the algorithm suit the environment, unless their settings were changed."""
    algo, env = run.description.algo, run.setup.make_env(env_part(run.setup.swept, 0))
    for name, reason in presets.fitting(ALGORITHMS[algo], run.setup.config, env).items():
        say(run.console, f"{run.description.env} has {reason}; --preset {name} has settings of {algo} for them")


def _print_start(run: Run, trainer: Trainer) -> None:
    """Prints what is about to compile."""
    config, name = run.setup.config, run.description
    frames = trainer.frames(config.num_iterations)
    if frames != config.total_steps:
        say(run.console, f"each agent trains for {frames:,} frames: {config.num_iterations:,} whole iterations")
    for option, card in ((option, made["card"]) for option, made in name.learned.items()):
        if "licence" in card:
            say(run.console, f"{option}: {card['file']}, of {card['name']} ({card['licence']})")
    agents, used = run.setup.members.size, run.options.num_devices or len(jax.devices())
    device = f"{used} {jax.devices()[0].platform} device(s)"
    if name.split:
        device += f", {run.options.devices_per_agent} for each, in {name.split['shards']} shards"
    say(run.console, f"{name.algo} on {name.env}, {agents} agent(s), {device}: compiling ...")


def _train(run: Run, program: RunProgram | HostProgram, so_far: Progress) -> int:
    """Runs the training and the final evaluation, writes the results, and returns the exit code.

    Of several processes the first one evaluates and writes.
    """
    options, batch_size = run.options, program.chunk.batch_size
    with contextlib.closing(_venue(run, program)) as venue:
        plays = evaluation.prepare(
            run.setup, options.eval_episodes, EVALUATION_STEPS, batch_size=batch_size, venue=venue
        )
        ready = functools.partial(evaluation.open_venue, run.setup, venue, options.eval_episodes, EVALUATION_STEPS)
        return _train_and_play(run, program, so_far, plays, ready)


def _venue(run: Run, program: RunProgram | HostProgram) -> Venue:
    """Returns the host environments of the evaluations: they are stepped as those of the training are."""
    how = environments.how(run.options)
    if isinstance(program, HostProgram):
        how = how._replace(workers=str(program.who.workers) if program.who.workers else "none")
    return Venue(run.options.eval_envs or run.setup.config.num_envs, how)


def _train_and_play(
    run: Run, program: RunProgram | HostProgram, so_far: Progress, plays: Plays, ready: Callable[[int], None]
) -> int:
    """Does what `_train` does, with the function that evaluates, and the one that opens its environments."""
    description, directory, options = run.description, run.directory, run.options
    with interrupts.deferred() as interrupted:
        try:
            within = plays if options.eval_every else None
            trained = train_batches(run, program, so_far, interrupted, within, ready)
        except Interrupted as signalled:
            say(run.console, f"interrupted; nothing new to save; resume with: {resume_command(directory)}")
            return 128 + signalled.number
        over = run_loop.is_interrupted(interrupted)
    diverged = not (any(trained.alive) if run.setup.swept else all(trained.alive))
    if not processes.is_first():
        return 128 + interrupted[0] if over else EXIT_DIVERGED if diverged else 0
    setup, alive = run.setup.first(len(trained.alive)), trained.alive
    summary = _write(run, program, setup, trained)
    if not trained.ended:
        say(run.console, endless(run, max(trained.env_steps)))
    for line in early_stopping.divergences(run, trained.faults):
        say(run.console, line)
    try:
        with waiting(run.console, "evaluating"):
            played = {} if over else plays(trained.policy, seconds=trained.evaluation_seconds)
    except Interrupted as signalled:
        over, interrupted = True, [signalled.number]
    if over:
        say(run.console, f"interrupted and saved; resume with: {resume_command(directory)}")
        return 128 + interrupted[0]
    scores = np.where(alive, played["return_per_seed"], np.nan)
    mean = float(np.nanmean(scores)) if np.isfinite(scores).any() else math.nan
    summary |= {**played, "return_mean": mean, "return_iqm": aggregates.reported_estimate(scores)._asdict()}
    summary["status"] = "diverged" if diverged else "completed"
    writing.write_json(directory / "summary.json", summary)
    print_summary(run.console, directory, summary)
    if setup.swept:
        sweeps.write_sweep(directory, sweeps.rank(setup.swept, scores))
    else:
        with picturing(directory):
            curves.draw(directory)
    if trained.buffer is not None:
        with picturing(directory):
            levels.draw(directory, setup.make_env(env_part(setup.swept, 0)), description.env, description.env_params)
    return EXIT_DIVERGED if diverged else 0


def _write(run: Run, program: RunProgram | HostProgram, setup: Setup, trained: Trained) -> dict[str, Any]:
    """Writes the policies, the levels and a summary without an evaluation, which it returns."""
    description, directory, alive = run.description, run.directory, trained.alive
    save_policy(directory, trained.policy, {**description._asdict(), "members": len(alive), "spaces": setup.spaces()})
    if trained.buffer is not None:
        about = {name: getattr(description, name) for name in ("algo", "env", "env_params", "config", "swept")}
        try:
            levels.save(directory, trained.buffer, {**about, "members": setup.labels})
        except ConfigError as error:  # the levels are too large to save
            say(run.console, f"the levels are not saved: {error}")
    summary = {
        "status": "interrupted",
        **{name: getattr(description, name) for name in ("algo", "env", "env_params", "seeds", "swept")},
        "env_steps": max(trained.env_steps),
        "all_env_steps": sum(trained.env_steps),
        "wall_seconds": trained.seconds,
        "compile_seconds": program.compile_seconds,
        "steps_per_second": sum(trained.env_steps) / trained.seconds,
        "alive_per_seed": alive,
        **({"stopped_at_per_seed": trained.stopped_at} if description.stop else {}),
        "predicted_peak_bytes": program.chunk.peak_bytes,
        "mesh": program.chunk.layout.axes,
        **machine_facts(),
    }
    writing.write_json(directory / "summary.json", summary)
    return summary
