"""Checkpoints: the whole state of a run as one directory, which is there whole or not at all.

A directory of checkpoints holds one folder for each save, a step, named by its number. In it each process of the run
has written a piece, a safetensors file with its part of the arrays (`tensors.own`). The first process has written
``card.json`` with a format version, the step's number, a description by the caller (``about``), the versions of the
libraries, size and SHA-256 digest of each piece, and a digest of all of this. A step that does not match its digests is
reported as damaged.
"""

import collections
import concurrent.futures
import contextlib
import hashlib
import json
import math
import os
import reprlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl import processes
from purerl.errors import ConfigError
from purerl.store import guards, tensors, writing
from purerl.store.log import Log
from purerl.types import PyTree
from purerl.version import versions as versions_of

FORMAT = 5
"""The format version of a step; steps of other versions are refused."""
SEALED_WITH_ARRAYS = 3
"""The format version whose cards list no pieces. Their digests cover the arrays, and cannot be verified."""
KEEP = 2
"""The number of steps that are kept by default, the newest and one to fall back to."""
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "evosax")
CARD, PIECE, NOTE = "card.json", "state-{}.safetensors", "piece-{}.json"
"""The files of a step; the last two by the number of a process. A note exists until the first process has read it."""
WAIT_SECONDS = 300.0
"""The time that the first process waits for the pieces of the others, in seconds."""
LOOK_SECONDS = 0.05


class CheckpointStep(NamedTuple):
    """A step whose contents have been verified to be what was written.

    Attributes:
        path: The folder.
        number: The number of the step.
        about: The caller's description.
        versions: The versions of the libraries that wrote it.
        damaged: What is wrong with newer steps that were skipped as damaged, by number.
        pieces: The number of pieces of its arrays.
    """

    path: Path
    number: int
    about: dict[str, Any]
    versions: dict[str, str]
    damaged: dict[int, str]
    pieces: int


class Damaged(ConfigError):
    """A step that cannot be read, or whose contents differ from what was written. The message names it."""


def save(
    directory: Path, step: int, state: PyTree, about: dict[str, Any], *, keep: int = KEEP, rows: int | None = None
) -> None:
    """Writes ``state`` as the step ``directory/step``, atomically, and removes all but the newest ``keep`` steps.

    Arrays are written one after another, without a copy of all of them.

    Args:
        directory: The directory of checkpoints.
        step: The number of the step.
        state: A tree of arrays and typed keys.
        about: A description as JSON; counts that exceed an int32 belong there.
        keep: The number of steps that are kept.
        rows: If given, only so many rows of the leading axis of every array are written.

    Raises:
        FileExistsError: The step exists.
        OSError: The step cannot be written; earlier steps stay unchanged.
    """
    if (path := directory / str(step)).exists():
        raise FileExistsError(f"{path}: exists")
    save_piece(directory, step, tensors.own(state, rows), about, token=secrets.token_hex(4), keep=keep)


def save_piece(
    directory: Path,
    step: int,
    parts: Mapping[str, Any],
    about: dict[str, Any],
    *,
    token: str,
    process: int = 0,
    count: int = 1,
    keep: int = KEEP,
) -> None:
    """Writes a step by ``count`` processes, each of which calls it with its own ``parts``; see `save`.

    The first process waits for the pieces of the others, and makes a step of them.

    Args:
        directory: The directory of checkpoints.
        step: The number of the step.
        parts: The parts that this process writes (`tensors.own`).
        about: A description as JSON, which only the first process writes.
        token: A text that is the same for all processes of a run and differs between runs, so that no piece of a run
            that was killed is taken for one of this run.
        process: The number of this process.
        count: The number of processes.
        keep: The number of steps that are kept.

    Raises:
        OSError: The step cannot be written; nothing is left behind.
    """
    path = directory / str(step)
    temporary = directory / f"{step}.{token}.tmp"
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        piece = _write(temporary / PIECE.format(process), tensors.blocks(parts))
        if process:
            writing.write_json(temporary / NOTE.format(process), piece)
            return
        pieces = [piece, *(_received(temporary, other) for other in range(1, count))]
        card = {"format": FORMAT, "step": step, "about": about, "versions": versions(), "pieces": pieces}
        sealed = json.dumps({**card, tensors.SEAL: tensors.digest(card, {})})
        _write(temporary / CARD, [sealed.encode()])
        os.rename(temporary, path)
        _sync(directory)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(error.errno, f"{path}: cannot be written ({error.strerror or error})") from None
    for left in directory.glob("*.tmp"):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    for old in steps(directory)[:-keep]:
        shutil.rmtree(directory / str(old))


def _write(path: Path, blocks: Iterable[Any]) -> dict[str, Any]:
    """Writes a file, flushes it to the disk, and returns its size and digest."""
    digest, size = hashlib.sha256(), 0
    with open(path, "wb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
            size += len(block)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def _received(folder: Path, process: int) -> dict[str, Any]:
    """Waits for the piece of a process, and returns what its note says, which is removed. Raises `OSError`."""
    note = folder / NOTE.format(process)
    until = time.monotonic() + WAIT_SECONDS
    while not note.exists():
        if time.monotonic() > until:
            raise OSError(f"process {process} has not written its part within {WAIT_SECONDS:g} seconds")
        time.sleep(LOOK_SECONDS)
    piece = guards.read_json(note)
    note.unlink()
    return piece


def _sync(directory: Path) -> None:
    """Flushes the names in a directory to the disk."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def steps(directory: Path) -> list[int]:
    """Returns the numbers of the steps in a directory, ascending; empty if there is no such directory."""
    entries = directory.iterdir() if directory.is_dir() else ()
    return sorted(int(path.name) for path in entries if path.name.isdecimal() and path.is_dir())


def newest(directory: Path, *, strict: bool = False) -> CheckpointStep:
    """Returns the newest step of ``directory`` whose contents are verified to be what was written.

    If the newest is damaged, the step before it is taken, unless ``strict``.

    Raises:
        Damaged: No step can be read (with ``strict``: the newest cannot).
        ConfigError: There is no step, or its format differs.
    """
    existing = steps(directory)
    if not existing:
        raise ConfigError(f"{directory}: has no checkpoint")
    damaged: dict[int, str] = {}
    for number in reversed(existing):
        path = directory / str(number)
        try:
            card = _card(path)
        except Damaged as error:
            damaged[number] = str(error)
            if strict:
                break
            continue
        return CheckpointStep(path, number, card["about"], card["versions"], damaged, len(card["pieces"]))
    raise Damaged("\n".join(damaged.values()))


def _card(path: Path) -> dict[str, Any]:
    """Reads the card of a step and verifies its contents.

    Raises:
        Damaged: The contents were changed after they were written.
        ConfigError: The step has another format.
    """
    try:
        card = guards.read_json(path / CARD)
    except ConfigError as error:
        raise Damaged(str(error)) from None
    if not isinstance(card, dict):
        raise Damaged(f"{path / CARD}: not the card of a checkpoint")
    is_old = card.get("format") == SEALED_WITH_ARRAYS and "pieces" not in card
    if card.get(tensors.SEAL) != tensors.digest(card, {}) and not is_old:
        raise Damaged(f"{path}: was changed after it was written (sha256 differs)")
    if card.get("format") != FORMAT:
        was = reprlib.repr(card.get("format"))
        raise ConfigError(f"{path}: format {was}, expected {FORMAT}; resume it by the version that saved it")
    if card.get("step") != int(path.name):
        raise Damaged(f"{path}: holds the step {reprlib.repr(card.get('step'))}, not {path.name}")
    kinds = {"about": dict, "versions": dict, "pieces": list}
    if not all(isinstance(card.get(name), kind) for name, kind in kinds.items()):
        raise Damaged(f"{path / CARD}: not the card of a checkpoint")
    for process, piece in enumerate(card["pieces"]):
        _verify(path / PIECE.format(process), piece)
    return card


def _verify(path: Path, piece: Any) -> None:
    """Raises `Damaged` unless a piece has the size and the digest that its card says; a digest comes after a size."""
    expected = piece if isinstance(piece, dict) else {}
    try:
        file, size = guards.opened(path)
        with file:
            digest = hashlib.file_digest(file, "sha256").hexdigest() if size == expected.get("bytes") else ""
    except (ConfigError, OSError) as error:
        raise Damaged(f"{path}: cannot be read ({error})") from None
    if not digest or digest != expected.get("sha256"):
        reason = "sha256 differs" if digest else f"it has {size} bytes"
        raise Damaged(f"{path}: was changed after it was written ({reason})")


def read(step: CheckpointStep, like: PyTree, put: tensors.Put = tensors.on_default) -> PyTree:
    """Reads the state of a step in the structure of ``like``; arguments and errors are those of `tensors.read_tree`."""
    paths = [step.path / PIECE.format(process) for process in range(step.pieces)]
    return tensors.read_tree(step.path, paths, like, put)


def peek(directory: Path) -> dict[str, Any]:
    """Returns the description in the newest readable card of ``directory``, unverified; empty if there is none."""
    for number in reversed(steps(directory)):
        with contextlib.suppress(ConfigError):
            card = guards.read_json(directory / str(number) / CARD)
            if isinstance(card, dict) and isinstance(card.get("about"), dict):
                return card["about"]
    return {}


def put_aside(step: CheckpointStep) -> None:
    """Renames the damaged steps after ``step``, so that later steps can be saved under their numbers."""
    for number in step.damaged:
        path = step.path.with_name(str(number))
        os.replace(path, path.with_name(f"{number}.damaged-{time.time_ns()}"))


def versions() -> dict[str, str]:
    """Returns the versions of the libraries that the bits of a run depend on."""
    return versions_of(PACKAGES)


OVERLAP_BYTES = 2**28
"""The size of the largest state that is copied and written in the background. Copies of larger ones might not fit into
memory: they are written before the training goes on, array by array."""
MOST_WAITING = 8
"""The most tasks that wait in the background; a call that adds another one blocks."""


class Saver:
    """A queue of tasks in the background. The error of a task is raised by the next call of any method."""

    def __init__(self, pool: concurrent.futures.Executor):
        self._pool = pool
        self._pending: collections.deque[concurrent.futures.Future] = collections.deque()
        self._token = processes.from_first(secrets.token_hex(4))

    def later(self, task: Callable[[], Any]) -> None:
        """Adds a task, which is called after all tasks that were added before."""
        self.check()
        while len(self._pending) >= MOST_WAITING:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(task))

    def save(
        self,
        directory: Path,
        step: int,
        state: PyTree,
        about: dict[str, Any],
        *,
        keep: int,
        logs: Sequence[Log],
        rows: int | None = None,
    ) -> None:
        """Saves a checkpoint in the background, unless the step was saved before; see `save`.

        If there are several processes, each writes its piece, and all must call this. ``logs`` are first flushed to the
        disk, so that no checkpoint is ahead of them.

        Args:
            directory: The directory of checkpoints.
            step: The number of the step.
            state: The state, which may be overwritten as soon as this returns.
            about: As for `save`.
            keep: As for `save`.
            logs: The logs of the run.
            rows: As for `save`.
        """
        self.wait()
        if processes.from_first(step in steps(directory)):
            return
        parts: Mapping[str, Any] = tensors.own(state, rows)
        overlaps = sum(math.prod(part.shape) * part.dtype.itemsize for part in parts.values()) <= OVERLAP_BYTES
        if overlaps:
            parts = {name: np.array(part) for name, part in parts.items()}
        crew = {"process": processes.index(), "count": processes.count(), "token": self._token}

        def write() -> None:
            for log in logs:
                log.sync()
            save_piece(directory, step, parts, about, keep=keep, **crew)

        self.later(write)
        if not overlaps:
            self.wait()

    def check(self) -> None:
        """Raises the error of a task that has failed."""
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()

    def wait(self) -> None:
        """Waits until all tasks are done."""
        while self._pending:
            self._pending.popleft().result()


@contextlib.contextmanager
def saver() -> Iterator[Saver]:
    """Yields a `Saver` whose tasks are all done when the block ends without an error."""
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="saver") as pool:
        made = Saver(pool)
        yield made
        made.wait()
