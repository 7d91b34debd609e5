"""The run of a training: what it compiles, and what it writes once it is trained and evaluated."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
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
from purerl.learners.parts.warm_start import Beginning
from purerl.loops.streaming import traceable
from purerl.population import arithmetic, devices, planning
from purerl.runs.describing import config_file, datasets, environments, select_options, sharding, sweeps
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.describing.machine import machine_facts
from purerl.runs.describing.run_directory import (
    CHECKPOINTS,
    EVALUATIONS,
    EXPORTS,
    FILMS,
    METRICS,
    QUANTILES,
    SELECTION,
    TIMES,
    resume_command,
)
from purerl.runs.describing.sweeps import MOST_PROGRAMS, env_part
from purerl.runs.reading import choosing, evaluation, filmed, levels, results
from purerl.runs.reading.evaluation import Plays
from purerl.runs.reading.host_evaluation import Venue
from purerl.runs.running import early_stopping, forecast, run_loop, saved_policies, selecting, streaming, training
from purerl.runs.running.device_program import RunProgram
from purerl.runs.running.host_program import HostProgram
from purerl.runs.running.logs import ELSEWHERE
from purerl.runs.running.run import ResumePoint, Run, exit_code, place
from purerl.runs.running.training import Trained, endless, train_batches
from purerl.store import guards, log, policies, trusted_modules, writing

FILES = (
    config_file.NAME,
    METRICS,
    QUANTILES,
    TIMES,
    EVALUATIONS,
    SELECTION,
    *ELSEWHERE,
    results.NAME,
    levels.FILE,
    levels.PICTURE,
    "summary.json",
    *policies.POLICY,
    *policies.CRITICS,
    "sweep.json",
    "sweep.png",
    CHECKPOINTS,
    saved_policies.BEST,
    saved_policies.WARM_START,
    *FILMS,
    filmed.NAME,
    *EXPORTS,
    *map(str, range(MOST_PROGRAMS)),
)
"""The files and folders that a run writes, including those of a sweep over programs
(`sweep_of_programs.train_programs`)."""


@dataclasses.dataclass(frozen=True)
class TrainingRun(Run):
    """A run that trains the members of a `Setup`.

    - ``begun``: the policies and critics that the members begin with; None: new ones.
    """

    begun: Beginning | None = None
    FILES = FILES
    LENGTH, RESULT = "total_steps", policies.DESCRIPTION

    @classmethod
    def new(cls, description: TrainingDescription, options: Any, directory: Path) -> "TrainingRun":
        """Makes a run that is begun in ``directory``, with the policies of the warm start that ``options`` name.

        Raises:
            ConfigError: There are no such policies, or they do not fit.
        """
        described, begun = saved_policies.read_warm_start(description, options.warm_start)
        setup = Setup.of(described, options.diagnostics, begun, data_on=datasets.where(options))
        return cls(described, setup, options, directory, console(), begun)

    @classmethod
    def of(cls, description: TrainingDescription, options: Any, directory: Path) -> "TrainingRun":
        """Makes the run that ``directory`` holds.

        Raises:
            ConfigError: The policies that it began with are damaged.
        """
        begun = saved_policies.kept_warm_start(directory, description)
        setup = Setup.of(description, options.diagnostics, begun, data_on=datasets.where(options))
        return cls(description, setup, options, directory, console(), begun)

    def folder(self, batch: int) -> Path:
        """Returns the folder of the checkpoints of a batch."""
        return self.directory / CHECKPOINTS / str(batch)

    def batches(self, batch_size: int) -> int:
        """Returns the number of batches."""
        return math.ceil(self.setup.members.size / batch_size)

    def batch_size(self, about: dict[str, Any]) -> int | str:
        """Returns the number of members in a batch by a checkpoint, or the options' if there is none."""
        size = self.setup.members.size
        saved: int | str = about.get("batch_size", self.options.agents_at_once or "auto")
        if about and not (isinstance(saved, int) and 0 < saved <= size):
            raise ConfigError(f"{self.folder(0)}: batches of {str(saved)[:40]} agents, of {size} in all")
        return saved

    def check_length(self, done: int) -> None:
        """Raises `ConfigError` if a batch has ``done`` more iterations than it should in all."""
        config = self.setup.config
        if done > config.num_iterations:
            frames = f"{self.setup.trainer.counted(done):,}"
            raise ConfigError(f"total_steps = {config.total_steps}: the run has done {frames} of each agent")

    def advise(self) -> None:
        """Prints which agent the members start from, and which presets of the algorithm suit the environment."""
        source, name = choosing.parsed(self.options.warm_start)
        if name:
            choosing.tell(choosing.choose(source, name))
        algo, env = self.description.algo, self.setup.make_env(env_part(self.setup.swept, 0))
        for name, reason in presets.fitting(ALGORITHMS[algo], self.setup.config, env).items():
            say(self.console, f"{self.description.env} has {reason}; --preset {name} has settings of {algo} for them")

    def announce(self) -> None:
        """Prints what is about to compile."""
        config, about, tell = self.setup.config, self.description, functools.partial(say, self.console)
        frames = self.setup.trainer.counted(config.num_iterations)
        if frames != config.total_steps:
            counted = f"{frames:,} {self.setup.trainer.unit}"
            tell(f"each agent trains for {counted}: {config.num_iterations:,} whole iterations")
        for option, card in ((option, made["card"]) for option, made in about.learned.items()):
            if "licence" in card:
                tell(f"{option}: {card['file']}, of {card['name']} ({card['licence']})")
        agents, used = self.setup.members.size, self.options.num_devices or len(jax.devices())
        device = f"{used} {jax.devices()[0].platform} device(s)"
        if about.split:
            device += f", {self.options.devices_per_agent} for each, in {about.split['shards']} shards"
        if about.select:
            cost = f"{planning.frames_in_words(self.setup.frames, frames * agents)} in all"
            tell(f"{select_options.in_words(about.select, self.setup.intervals, self.setup.trainer)}; {cost}")
        if stream := self.setup.trainer.stream:
            tell(f"the data, {planning.gigabytes(stream.data.nbytes)}, are read by the host, sample by sample")
        tell(f"{about.algo} on {about.env}, {agents} agent(s), {device}: compiling ...")

    def compile(self, batch_size: int | str, stage: Callable[[str], None]) -> RunProgram | HostProgram:
        """Compiles the program. The user's own code is traced first, before anything is printed."""
        setup, options, about = self.setup, self.options, self.description
        with own_code(about.algo):
            trainer = setup.trainer
            if ":" in about.algo:
                evaluation.trace(setup, trainer, options.eval_episodes, evaluation.STEPS, options.sample)
        known: dict[str, Any] = {"lanes": options.lanes or None, "stage": stage, "algo": about.algo}
        if setup.on_host:
            how, warn = environments.how(options), functools.partial(say, self.console)
            return HostProgram(setup.make_trainer, setup.members, how, options.ahead, batch_size, warn=warn, **known)
        used = devices.chosen(options.num_devices, options.devices_per_agent)
        split = sharding.split(about.split, options.devices_per_agent)
        return selecting.compile_selected(setup, batch_size, devices=used, split=split, **known)

    def expected_seconds(self, program: RunProgram | HostProgram) -> float:
        """Estimates the seconds of the training; 0 if its speed is not known before it runs."""
        if isinstance(program, HostProgram):
            return 0.0
        setup, used = self.setup, len(program.chunk.layout.devices)

        def flops() -> float:
            trainer = traceable(setup.trainer)
            state = jax.eval_shape(trainer.init, setup.members.keys[0])
            return arithmetic.flops(trainer.step, state) * setup.config.num_iterations * setup.members.size / used

        return forecast.expected(forecast.counted(setup, program), flops) * selecting.share(setup, program)

    def keep_beginning(self) -> None:
        """Writes the policies and critics that the members begin with."""
        trusted_modules.remember(self.directory / saved_policies.BEST, self.description.code)
        saved_policies.keep_warm_start(self.directory, self.description, self.begun)

    def cut_logs(self, batch_size: int, done: list[int]) -> None:
        """Cuts the logs to what the checkpoints count: ``done`` iterations of each batch."""
        labels = self.setup.labels
        names, batch_of = list(labels[0]), {tuple(label.values()): i // batch_size for i, label in enumerate(labels)}
        first_of: dict[float | None, int] = {index * batch_size: index for index in range(len(done))}

        def is_saved(batch: int | None, row: dict[str, Any]) -> bool:
            iteration = guards.number(row.get("iteration"))
            return batch is not None and iteration is not None and iteration <= done[batch]

        of_member = lambda row: is_saved(batch_of.get(tuple(guards.number(row.get(name)) for name in names)), row)
        of_batch = lambda row: is_saved(first_of.get(guards.number(row.get("first_member"))), row)
        sizes = training.counts(len(labels), batch_size)
        rows = sum(n * size for n, size in zip(done, sizes, strict=True))
        if self.description.select:
            rows = self.setup.iterations(done[0])
        log.cut(self.directory / METRICS, of_member, rows)
        log.cut(self.directory / QUANTILES, of_batch, sum(done))
        log.trim(self.directory / TIMES, of_batch)
        log.trim(self.directory / EVALUATIONS, of_member)
        log.trim(self.directory / SELECTION, of_member)

    def carry_out(self, program: RunProgram | HostProgram, so_far: ResumePoint) -> int:
        """Trains and evaluates, writes the results, and returns the exit code.

        Of several processes the first one evaluates and writes.
        """
        options, how = self.options, environments.how(self.options)
        if isinstance(program, HostProgram):  # environments of evaluations are stepped as those of the training are
            how = how._replace(workers=str(program.who.workers) if program.who.workers else "none")
        sizes = options.eval_episodes, evaluation.STEPS
        with contextlib.closing(Venue(options.eval_envs or self.setup.config.num_envs, how)) as venue:
            how_many = program.batch_size
            plays = evaluation.prepare(self.setup, *sizes, batch_size=how_many, venue=venue, sample=options.sample)
            ready = functools.partial(evaluation.open_venue, self.setup, venue, *sizes)
            return _train_and_play(self, program, so_far, plays, ready)


def train(description: TrainingDescription, options: Any, command: str = "train") -> int:
    """Trains a run's members, evaluates them, writes a run directory, and returns the exit code.

    Args:
        description: The description of the run.
        options: Its options.
        command: The command that makes such a run, "train" or "sweep".

    Raises:
        ConfigError: As for `Run.begin`.
        DoesNotFit: As for `Run.begin`.
    """
    directory = place(options, description.name)
    return streaming.placed(options, lambda settled: TrainingRun.new(description, settled, directory).begin(command))


def _train_and_play(
    run: TrainingRun, program: RunProgram | HostProgram, so_far: ResumePoint, plays: Plays, ready: Callable[[int], None]
) -> int:
    """Trains and evaluates by ``plays``, whose environments ``ready`` opens, and writes the results."""
    directory, options = run.directory, run.options
    with interrupts.deferred() as interrupted:
        try:
            within = plays if options.eval_every else None
            trained = train_batches(run, program, so_far, interrupted, within, ready)
        except Interrupted as signalled:
            say(run.console, f"interrupted; nothing new to save; resume with: {resume_command(directory)}")
            return exit_code([signalled.number], False)
        over = run_loop.is_interrupted(interrupted)
    diverged = not (any(trained.alive) if run.setup.swept else all(trained.alive))
    if not processes.is_first():
        return exit_code(interrupted, diverged)
    setup = run.setup.part(slice(len(trained.alive)))
    cost = {
        "compile_seconds": program.compile_seconds,
        "predicted_peak_bytes": program.peak_bytes,
        "mesh": program.chunk.layout.axes,
    }
    summary = write_policies(run, setup, trained, cost)
    if not trained.ended:
        say(run.console, endless(run, max(trained.counted)))
    for line in early_stopping.divergences(run, trained.faults):
        say(run.console, line)
    try:
        with waiting(run.console, "evaluating"):
            played = {} if over else plays(trained.policy, seconds=trained.evaluation_seconds)
    except Interrupted as signalled:
        over, interrupted = True, [signalled.number]
    if over:
        say(run.console, f"interrupted and saved; resume with: {resume_command(directory)}")
        return exit_code(interrupted, diverged)
    summary |= {"status": "diverged" if diverged else "completed"}
    write_results(run, setup, trained, summary, played)
    return exit_code([], diverged)


def write_results(
    run: TrainingRun, setup: Setup, trained: Trained, summary: dict[str, Any], played: dict[str, Any]
) -> None:
    """Writes and prints what a run has at its end: its summary with the final evaluation, its ranking and pictures.

    Args:
        run: The run.
        setup: The setup of those members that have been trained.
        trained: What they have learned.
        summary: What `write_policies` returned, with the ``status`` of the run.
        played: The results of the final evaluation (`evaluation.Plays`).
    """
    description, directory = run.description, run.directory
    scores = np.where(trained.alive, played["return_per_seed"], np.nan)
    mean = float(np.nanmean(scores)) if np.isfinite(scores).any() else math.nan
    summary |= {**played, "return_mean": mean, "return_iqm": aggregates.reported_estimate(scores)._asdict()}
    writing.write_json(directory / "summary.json", summary)
    print_summary(run.console, directory, summary)
    description = dataclasses.replace(run.description, swept=trained.swept)
    if setup.swept:
        frames = trained.counted[:: len(description.seeds)] if description.select else None
        ranking = sweeps.rank(description.swept, scores, frames=frames)
        sweeps.write_sweep(directory, ranking | evaluation.manner_of(played))
    else:
        with picturing(directory):
            results.draw(directory)
    if trained.buffer is not None:
        with picturing(directory):
            levels.draw(directory, setup.make_env(env_part(setup.swept, 0)), description.env, description.env_params)


def write_policies(run: TrainingRun, setup: Setup, trained: Trained, cost: dict[str, Any]) -> dict[str, Any]:
    """Writes the policies, their critics, the levels and a summary without an evaluation, which it returns.

    Their swept values are those that the configurations had at the end. ``cost`` are entries of the summary about the
    program.
    """
    description, directory = dataclasses.replace(run.description, swept=trained.swept), run.directory
    alive, halved = trained.alive, description.select.get("kind") == select_options.HALVING
    policies.save_policy(
        directory, trained.policy, {**description.fields, "members": len(alive), "spaces": setup.spaces()}
    )
    if trained.critics:
        policies.save_critics(directory, trained.critics)
    if trained.buffer is not None:
        about = {name: getattr(description, name) for name in ("algo", "env", "env_params", "config", "swept")}
        try:
            levels.save(directory, trained.buffer, {**about, "members": setup.labels})
        except ConfigError as error:  # the levels are too large to save
            say(run.console, f"the levels are not saved: {error}")
    summary = {
        "status": "interrupted",
        **{name: getattr(description, name) for name in ("algo", "env", "env_params", "seeds", "swept")},
        **counts(trained.counted, trained.seconds, setup.trainer.axis),
        "wall_seconds": trained.seconds,
        "alive_per_seed": alive,
        **({"stopped_at_per_seed": trained.stopped_at} if description.stop or halved else {}),
        **({"select": description.select} if description.select else {}),
        **cost,
        **machine_facts(),
    }
    writing.write_json(directory / "summary.json", summary)
    return summary


def counts(counted: list[int], seconds: float, axis: str) -> dict[str, Any]:
    """Returns what a summary has of the length of a training, and of its speed.

    Args:
        counted: What each member was counted.
        seconds: The seconds of the training.
        axis: The name of what is counted (`Trainer.axis`). Where it is ``updates``, no frame was taken.
    """
    of = lambda name, all_of, pace, counted: {name: max(counted), all_of: sum(counted), pace: sum(counted) / seconds}
    if axis == "env_steps":
        return of("env_steps", "all_env_steps", "steps_per_second", counted)
    frames = of("env_steps", "all_env_steps", "steps_per_second", [0])
    return {**frames, **of("updates", "all_updates", "updates_per_second", counted)}
