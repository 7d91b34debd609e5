"""Growing: a run with wider layers, in a directory of its own, which continues from a run's newest checkpoints."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import population, spaces, trees
from purerl.display.progress import console, say
from purerl.errors import ConfigError
from purerl.learners.parts import widening
from purerl.names import here
from purerl.runs.describing import config_file, datasets
from purerl.runs.describing.config_file import ConfigFile
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.describing.reading_options import GrowOptions
from purerl.runs.describing.run_directory import (
    CHECKPOINTS,
    EVALUATIONS,
    METRICS,
    QUANTILES,
    TIMES,
    claim,
    hold,
    resume_command,
)
from purerl.runs.running.resuming import Resumed
from purerl.runs.running.train import FILES, TrainingRun
from purerl.store import checkpoint, guards, trusted_modules
from purerl.store.policies import save_policy
from purerl.types import PyTree, TrainState

GROWTH_SALT = 2**31 + 1
"""Folded into a member's key to initialise new units, so that they use no key of the training."""


def widened(algo: str, config: Any, sizes: tuple[int, ...]) -> Any:
    """Returns ``config`` with dense layers of ``sizes``.

    Args:
        algo: The name of the algorithm.
        config: The config of the run.
        sizes: The new widths, as many as the config has, none of them smaller and at least one larger.

    Raises:
        ConfigError: The networks cannot grow so; a line for each reason.
    """
    had, memory = tuple(getattr(config, "hidden_sizes", ())), getattr(config, "memory", "none")
    problem, problems = f"hidden_sizes = {sizes}: the run has {had}", []
    if ":" in algo:
        problems.append(f"algo = {algo!r}: only networks of purerl's own algorithms can grow")
    if memory != "none":
        problems.append(f"memory = {memory!r}: a network with a memory cannot grow")
    if len(sizes) != len(had):
        problems.append(f"{problem}; layers can be widened, but not added or taken away")
    elif any(new < old for new, old in zip(sizes, had, strict=True)):
        problems.append(f"{problem}; layers cannot shrink")
    elif sizes == had:
        problems.append(f"{problem}; nothing would grow")
    if problems:
        raise ConfigError("\n".join(problems))
    return dataclasses.replace(config, hidden_sizes=sizes)


def grow(
    old: TrainingDescription, new: TrainingDescription, options: Any, file: ConfigFile, request: GrowOptions
) -> int:
    """Writes a run that continues an old one with wider layers, unless it is a dry run, and returns the exit code.

    Its policies act as before, and its optimisers keep their moments (`widening`). It continues from the newest sound
    checkpoints of the old run.

    Args:
        old: The description of the old run, in ``request.run``.
        new: The same description with wider layers.
        options: The options of the old run.
        file: The config file of the old run.
        request: The options of the command.

    Raises:
        ConfigError: The old run has no sound checkpoint, or the networks cannot grow. Nothing is left behind.
    """
    source, target = here(request.run), here(request.out or f"{request.run.rstrip('/')}-grown")
    if target.resolve() == source.resolve():
        raise ConfigError(f"out = {str(target)!r}: is the run that grows; must be another directory")
    if target.is_symlink():
        raise ConfigError(f"out = {str(target)!r}: is a symbolic link; a run writes only into its own directory")
    if target.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"out = {str(target)!r}: must not be inside the run that grows")
    if old.split:
        raise ConfigError(f"{source}: agents with shards cannot grow")
    if old.select:
        raise ConfigError(f"{source}: agents that are selected cannot grow")
    new = dataclasses.replace(new, warm_start={})  # the grown run resumes from checkpoints
    grown_from = TrainingRun(old, Setup.of(old, data_on=datasets.where(options)), options, source, console())
    run = TrainingRun.of(new, options, target)
    before = jax.eval_shape(grown_from.setup.trainer.init, jax.random.key(0))
    after = jax.eval_shape(run.setup.trainer.init, jax.random.key(0))
    if lines := _problems(before, after):
        raise ConfigError("\n".join(f"hidden_sizes = {request.hidden_sizes}: {line}" for line in lines))
    batch_size, so_far = grown_from.saved(Resumed(source, file, [], strict=False, override=False))
    steps = [step for step in so_far.steps if step]
    if not steps:
        raise ConfigError(f"{source / CHECKPOINTS}: has no checkpoint")
    if old.warm_start and len(steps) < len(so_far.steps):
        raise ConfigError(f"{source}: has agents that have not started, and would start without its warm start")
    sizes = f"hidden_sizes: {old.config['hidden_sizes']!r} -> {request.hidden_sizes!r}"
    done = ", ".join(str(step.number) for step in steps)
    if request.dry_run:
        say(run.console, f"{target} would have {sizes}, after iteration {done}; nothing was written")
        return 0
    with hold(target, FILES, overwrite=request.overwrite):
        claim(target, FILES)
        try:
            _write(run, source, steps, int(batch_size), before)
        except Exception:
            claim(target, FILES)
            raise
        trusted_modules.remember(target, new.code)
        config_file.write(target, file.command, new, options, [*file.history, f"{sizes} after iteration {done}"])
        say(run.console, f"{target}: {sizes}; resume with: {resume_command(target)}")
    return 0


def _problems(before: TrainState, after: TrainState) -> list[str]:
    """Returns a line for each reason why a state of the shapes ``before`` cannot become one of ``after``."""
    rest = [jax.tree.map(lambda x: (x.shape, x.dtype), state._replace(learner=())) for state in (before, after)]
    problems = widening.problems(before.learner, after.learner)
    return problems if problems or rest[0] == rest[1] else ["more than the learner would have another size"]


def _write(
    run: TrainingRun, source: Path, steps: list[checkpoint.CheckpointStep], batch_size: int, like: TrainState
) -> None:
    """Writes logs, checkpoints and policies of the grown members, batch after batch."""
    optional = [name for name in (TIMES, EVALUATIONS) if (source / name).exists()]
    for name in (METRICS, QUANTILES, *optional):
        with guards.opened(source / name)[0] as old, open(run.directory / name, "xb") as copy:
            shutil.copyfileobj(old, copy)
    run.cut_logs(batch_size, [step.number for step in steps])
    policies, digest = [], run.description.digest
    for index, step in enumerate(steps):
        members = trees.take(run.setup.members, slice(index * batch_size, (index + 1) * batch_size))
        state = _grown(run.setup, members, step, like)
        about = {"batch_size": batch_size, "seconds": step.about["seconds"], "config_sha256": digest}
        checkpoint.save(run.directory / CHECKPOINTS / str(index), step.number, state, about)
        policies.append(jax.device_get(jax.vmap(run.setup.trainer.learner.policy)(state.learner)))
    policy = jax.tree.map(lambda *x: np.concatenate(x), *policies)
    about = {"members": trees.length(policy), "spaces": run.setup.spaces()}
    save_policy(run.directory, policy, {**run.description.fields, **about})


def _grown(setup: Setup, members: population.Members, step: checkpoint.CheckpointStep, like: TrainState) -> TrainState:
    """Widens the layers of a batch of members: returns its state ``[B]`` at a step; ``like`` has the old shapes."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((members.size, *x.shape), x.dtype), like)
    state: TrainState = checkpoint.read(step, shapes)

    def one(member: population.Members, learned: PyTree, obs: PyTree) -> PyTree:
        learner = setup.make_trainer(**member.given).learner
        return widening.widen(learned, learner.init(jax.random.fold_in(member.keys, GROWTH_SALT), obs))

    obs = state.actors.obs
    if setup.trainer.updates:  # nothing was ever observed
        space = spaces.struct(setup.trainer.fleet.env.observation_space)
        obs = jax.tree.map(lambda x: np.zeros((members.size, 1, *x.shape), x.dtype), space)
    return state._replace(learner=jax.jit(jax.vmap(one))(members, state.learner, obs))
