"""Warm starts: a run begins with the policies of another, which are read once, checked, and kept in its directory."""

from pathlib import Path

import jax
import numpy as np

from purerl import trees
from purerl.errors import ConfigError
from purerl.learners.parts import warm_start
from purerl.names import check_trusted
from purerl.runs.describing import config_file
from purerl.runs.describing.description import Description
from purerl.runs.reading import evaluation
from purerl.store import policies
from purerl.types import PyTree

FOLDER = "warm_start"
"""The folder in a run directory that holds the policies that the agents began with."""


def read(description: Description, source: str) -> tuple[Description, PyTree]:
    """Reads the policies that a run begins with.

    Args:
        description: The description of the run.
        source: The run whose policies these are, ``RUN`` or ``RUN:AGENT``; empty: none.

    Returns:
        The description, which now names them, and the policies: one for all agents ``[1]``, or one for each ``[P]``. If
        ``source`` is empty, the unchanged description and None.

    Raises:
        ConfigError: There are no such policies; or their run names modules of the user's own that this one does not; or
            they differ in a leaf from the policies of this run. One line.
    """
    if not source:
        return description, None
    where, number = _parsed(source)
    field, saved = f"warm_start = {source!r}", policies.load_description(where)
    for name, value in config_file.code(saved).items():
        if value not in description.code:
            check_trusted(f"{field}: {name}", value, False, where, "this run must name it as well")
    run = evaluation.load(where, trust=True)
    size, own = run.setup.members.size, description.size
    if number is not None and number >= size:
        raise ConfigError(f"{field}: {where} has agents 0 to {size - 1}")
    if number is None and size not in (1, own):
        raise ConfigError(f"{field}: {where} has {size} agents, this run {own}; name one of them, as {where}:0")
    policy = run.policy if number is None else trees.take(run.policy, slice(number, number + 1))
    one = lambda tree: jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)
    if problem := warm_start.problem(one(evaluation.shapes(description, 1)), one(policy)):
        raise ConfigError(f"{field}, of {saved['algo']} on {saved['env']}: {problem}")
    entry = {"run": str(where), "agent": number, "sha256": saved["sha256"]}
    return description._replace(warm_start=entry), jax.tree.map(np.asarray, policy)


def keep(directory: Path, description: Description, policy: PyTree) -> None:
    """Writes the policies that the agents of a run begin with into its directory; nothing if ``policy`` is None."""
    if policy is not None:
        (directory / FOLDER).mkdir()
        about = {"members": trees.length(policy), "warm_start": description.warm_start}
        policies.save_policy(directory / FOLDER, policy, about)


def kept(directory: Path, description: Description) -> PyTree:
    """Reads what `keep` wrote, for a run that is resumed; None if it began with nothing.

    Raises:
        ConfigError: It is damaged, or belongs to another run.
    """
    if not description.warm_start:
        return None
    document = policies.load_description(directory / FOLDER)
    size, about = document.get("members"), document.get("warm_start")
    if type(size) is not int or not 1 <= size <= description.size or about != description.warm_start:
        raise ConfigError(f"{directory / FOLDER}: was changed since the run started")
    return policies.load_policy(directory / FOLDER, document, evaluation.shapes(description, size))


def _parsed(source: str) -> tuple[Path, int | None]:
    """Splits ``RUN[:AGENT]`` into the directory and the number of the agent; None without one."""
    name, _, number = source.rpartition(":")
    if name and number.isascii() and number.isdecimal() and len(number) < 10:
        return Path(name), int(number)
    return Path(source), None
