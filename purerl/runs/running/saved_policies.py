"""Policies in a run directory besides its own: those that it began with, and the best so far."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
from rich.console import Console

from purerl import processes, trees
from purerl.display import progress
from purerl.errors import ConfigError
from purerl.learners.parts import warm_start
from purerl.learners.parts.warm_start import Beginning
from purerl.names import check_trusted
from purerl.runs.describing import config_file
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.reading import choosing, loading
from purerl.store import policies
from purerl.store.policies import save_policy
from purerl.types import PyTree

WARM_START = "warm_start"
"""The folder in a run directory that holds the policies and critics that the agents began with."""
CRITICS = "critics"
"""The entry for the names of the critics in a description's ``warm_start``, which one without critics lacks."""


def read_warm_start(description: TrainingDescription, source: str) -> tuple[TrainingDescription, Beginning | None]:
    """Reads what a run begins with, the policies and the critics of ``source``: ``RUN``, ``RUN:AGENT`` or empty.

    Critics that ``source`` lacks begin anew, of which a line is printed.

    Returns:
        The description, which now names them, and the policies and critics: one for all agents ``[1]``, or one for each
        ``[P]``. If ``source`` is empty, the unchanged description and None.

    Raises:
        ConfigError: There are no such policies; or their run names modules of the user's own that this one does not; or
            they, or their critics, differ in a leaf from those of this run. One line.
    """
    if not source:
        return description, None
    where, agent = choosing.parsed(source)
    choice = choosing.choose(where, agent) if agent else None
    where, number = (choice.directory, choice.number) if choice else (where, None)
    field, saved = f"warm_start = {source!r}", policies.load_description(where)
    for name, value in config_file.code(saved).items():
        if value not in description.code:
            check_trusted(f"{field}: {name}", value, False, where, "this run must name it as well")
    run = loading.load(where, trust=True)
    size, own = run.setup.members.size, description.size
    if number is not None and number >= size:
        raise ConfigError(f"{field}: {where} has agents 0 to {size - 1}")
    if number is None and size not in (1, own):
        raise ConfigError(f"{field}: {where} has {size} agents, this run {own}; name one of them, as {where}:0")
    known = loading.critic_shapes(description, 1)
    begun = Beginning(run.policy, warm_start.among(known, run.critics if known else {}))
    begun = begun if number is None else trees.take(begun, slice(number, number + 1))
    one = lambda tree: jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)
    problem = warm_start.problem(one(loading.shapes(description, 1)), one(begun.policy))
    unfit = warm_start.problem(one(warm_start.among(begun.critics, known)), one(begun.critics), "critics")
    if unfit and saved["algo"] != description.algo:
        begun = begun._replace(critics={})
    elif unfit:
        problem = problem or unfit
    if problem:
        raise ConfigError(f"{field}, of {saved['algo']} on {saved['env']}: {problem}")
    if lacking := [name for name in known if name not in begun.critics]:
        progress.say(
            progress.console(),
            f"{where}: has no {' and no '.join(lacking)} that fits this training, where they begin anew",
        )
    entry = {"run": str(where), "agent": number, "sha256": saved["sha256"]}
    entry |= {CRITICS: sorted(begun.critics)} if begun.critics else {}
    return dataclasses.replace(description, warm_start=entry), jax.tree.map(np.asarray, begun)


def keep_warm_start(directory: Path, description: TrainingDescription, begun: Beginning | None) -> None:
    """Writes what the agents of a run begin with into its directory; nothing if ``begun`` is None."""
    if begun is not None:
        (directory / WARM_START).mkdir()
        about = {"members": trees.length(begun.policy), "warm_start": description.warm_start}
        policies.save_policy(directory / WARM_START, begun.policy, about)
        if begun.critics:
            policies.save_critics(directory / WARM_START, begun.critics)


def kept_warm_start(directory: Path, description: TrainingDescription) -> Beginning | None:
    """Reads what `keep_warm_start` wrote, for a run that is resumed; None if it began with nothing.

    Raises:
        ConfigError: It is damaged, or belongs to another run.
    """
    if not description.warm_start:
        return None
    folder = directory / WARM_START
    document = policies.load_description(folder)
    size, about = document.get("members"), document.get("warm_start")
    if type(size) is not int or not 1 <= size <= description.size or about != description.warm_start:
        raise ConfigError(f"{folder}: was changed since the run started")
    policy = policies.load_policy(folder, document, loading.shapes(description, size))
    critics = policies.load_critics(folder, loading.critic_shapes(description, size))
    if sorted(critics) != description.warm_start.get(CRITICS, []):
        raise ConfigError(f"{folder}: was changed since the run started")
    return Beginning(policy, critics)


BEST = "best"


class Best:
    """The best policies of the members so far.

    They are compared at checkpoints, by the mean return of the episodes that ended since the checkpoint before.
    """

    def __init__(self, directory: Path, description: TrainingDescription, setup: Setup, console: Console):
        """Continues with what the folder holds; if it is damaged, begins anew and prints a line about it."""
        self._directory, self._description, self._spaces = directory / BEST, description, setup.spaces
        self._policy: PyTree = None
        self._returns = np.full(0, -np.inf)
        self._total, self._ended = np.zeros(0), np.zeros(0, np.int64)
        if self._directory.exists():
            try:
                best = loading.load(self._directory, trust=True, playing=True)
                returns = best.saved["best_return_per_seed"]
                self._returns = np.array([-np.inf if value is None else value for value in returns], np.float64)
                self._policy = jax.tree.map(np.array, best.policy)
            except (ConfigError, KeyError, TypeError, ValueError) as error:
                progress.say(console, f"the saved best policies cannot be read, and new ones are collected: {error}")

    def watch(self, metrics: dict[str, np.ndarray]) -> None:
        """Records the episodes that ended in a chunk with ``metrics`` ``[iterations, B]``, on the host."""
        ended = metrics["episodes"]
        total = np.sum(np.where(ended > 0, metrics["episode_return"] * ended, 0.0), axis=0)
        begun = self._ended.size
        self._total = self._total + total if begun else total
        self._ended = self._ended + np.sum(ended, axis=0) if begun else np.sum(ended, axis=0)

    def keep(self, first: int, policy: PyTree) -> None:
        """Compares policies with the best ones so far, keeps the better ones, and writes all on the first process.

        The policies ``[B]``, on the host, are those of the members from number ``first`` on. Further rows, which fill a
        program up, are ignored.
        """
        size = self._ended.size
        if not size:
            return
        returns = np.where(self._ended > 0, self._total / np.maximum(self._ended, 1), -np.inf)
        offered = jax.tree.map(lambda x: np.array(x[:size]), policy)
        self._total, self._ended = np.zeros(0), np.zeros(0, np.int64)
        if len(self._returns) < first + size:
            self._returns = np.concatenate([self._returns[:first], returns])
            old = jax.tree.map(lambda x: x[:first], self._policy) if first else None
            self._policy = jax.tree.map(lambda *x: np.concatenate(x), old, offered) if first else offered
        else:
            better = returns > self._returns[first : first + size]
            for kept, new in zip(jax.tree.leaves(self._policy), jax.tree.leaves(offered), strict=True):
                kept[first : first + size][better] = new[better]
            self._returns[first : first + size][better] = returns[better]
        if not processes.is_first():
            return
        self._directory.mkdir(exist_ok=True)
        about = {"members": len(self._returns), "best_return_per_seed": self._returns, "spaces": self._spaces()}
        save_policy(self._directory, self._policy, {**self._description.fields, **about})
