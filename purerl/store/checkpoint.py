"""Checkpoints: the whole state of a run as one directory, which is there whole or not at all.

A directory of checkpoints holds one folder for each save, a step, named by its number. In it are the arrays as
``state.safetensors``, and ``card.json`` with a format version, the step's number, a description by the caller
(``about``), the versions of the libraries, and a SHA-256 digest of all of this. A step that does not match its digest
is reported as damaged.

If there are several processes, each writes a piece of the arrays (`pieces`), and the first one the card, which lists
them.
"""

import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import reprlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl import processes, trees
from purerl.errors import ConfigError
from purerl.store import checkpoint_pieces, guards, tensors, writing
from purerl.store.log import Log
from purerl.types import PyTree
from purerl.version import versions as versions_of

FORMAT = 3
"""The format version of a step; steps of other versions are refused."""
IN_PIECES = 4
"""The format version of a step whose arrays are in pieces."""
KEEP = 2
"""The number of steps that are kept by default, the newest and one to fall back to."""
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "evosax")
ARRAYS, CARD = "state.safetensors", "card.json"
BLOCK = 2**20
"""The number of bytes that are read at once to compute a digest."""


class CheckpointStep(NamedTuple):
    """A step whose contents have been verified to be what was written.

    Attributes:
        path: The folder.
        number: The number of the step.
        about: The caller's description.
        versions: The versions of the libraries that wrote it.
        damaged: What is wrong with newer steps that were skipped as damaged, by number.
        pieces: The number of pieces of its arrays; 0 if they are not in pieces.
    """

    path: Path
    number: int
    about: dict[str, Any]
    versions: dict[str, str]
    damaged: dict[int, str]
    pieces: int = 0


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
    path, temporary = directory / str(step), directory / f"{step}.tmp"
    if path.exists():
        raise FileExistsError(f"{path}: exists")
    shutil.rmtree(temporary, ignore_errors=True)
    with _writing(path, temporary):
        temporary.mkdir(parents=True)
        digest = hashlib.sha256()
        with open(temporary / ARRAYS, "xb") as file:
            for block in tensors.blocks(state, rows):
                file.write(block)
                digest.update(block)
            _through(file)
        _finish(path, temporary, {"format": FORMAT, "step": step, "about": about, "versions": versions()}, digest)
    _prune(directory, keep)


def save_piece(
    directory: Path,
    step: int,
    parts: Mapping[str, Any],
    about: dict[str, Any],
    *,
    process: int,
    count: int,
    token: str,
    keep: int = KEEP,
) -> None:
    """Writes a step by ``count`` processes, each of which calls it with its own ``parts``; see `save`.

    The first process waits for the pieces of the others, and makes a step of them.

    Args:
        directory: The directory of checkpoints.
        step: The number of the step.
        parts: The parts that this process writes (`checkpoint_pieces.own`).
        about: A description as JSON, which only the first process writes.
        process: The number of this process.
        count: The number of processes.
        token: A text that is the same for all processes of a run and differs between runs, so that no piece of a run
            that was killed is taken for one of this run.
        keep: The number of steps that are kept.

    Raises:
        OSError: The step cannot be written.
    """
    path, temporary = directory / str(step), directory / f"{step}.{token}.tmp"
    with _writing(path, temporary):
        temporary.mkdir(parents=True, exist_ok=True)
        checkpoint_pieces.write(temporary, process, parts)
        if process:
            return
        listed = checkpoint_pieces.gather(temporary, count)
        card = {"format": IN_PIECES, "step": step, "about": about, "versions": versions(), "pieces": listed}
        _finish(path, temporary, card, hashlib.sha256())
    _prune(directory, keep)


@contextlib.contextmanager
def _writing(path: Path, temporary: Path) -> Iterator[None]:
    """Runs the block that writes a step. Raises `OSError`, with nothing left behind, if it cannot be written."""
    try:
        yield
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(error.errno, f"{path}: cannot be written ({error.strerror or error})") from None


def _finish(path: Path, temporary: Path, card: dict[str, Any], digest: Any) -> None:
    """Writes the card of a step whose arrays are written, with their ``digest``, and moves the step to its place."""
    digest.update(writing.canonical(card))
    with open(temporary / CARD, "xb") as file:
        file.write(json.dumps({**card, "sha256": digest.hexdigest()}).encode())
        _through(file)
    os.rename(temporary, path)
    _sync(path.parent)


def _prune(directory: Path, keep: int) -> None:
    """Removes all but the newest ``keep`` steps."""
    for old in steps(directory)[:-keep]:
        shutil.rmtree(directory / str(old))


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
        return CheckpointStep(path, number, card["about"], card["versions"], damaged, len(card.get("pieces", ())))
    raise Damaged("\n".join(damaged.values()))


def read(step: CheckpointStep, like: PyTree, put: tensors.Put = tensors.on_default) -> PyTree:
    """Reads the state of a step in the structure of ``like``; arguments and errors are those of `tensors.read`."""
    if step.pieces:
        return checkpoint_pieces.read(step.path, step.pieces, like, put)
    return tensors.read(step.path / ARRAYS, like, put)


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
    written = {name: value for name, value in card.items() if name != "sha256"}
    in_pieces = "pieces" in card
    digest = hashlib.sha256() if in_pieces else _digest(path)
    digest.update(writing.canonical(written))
    if card.get("sha256") != digest.hexdigest():
        raise Damaged(f"{path}: was changed after it was written (sha256 differs)")
    if in_pieces and (wrong := checkpoint_pieces.problem(path, card["pieces"])):
        raise Damaged(f"{path}: {wrong}")
    expected = IN_PIECES if in_pieces else FORMAT
    if card.get("format") != expected:
        raise ConfigError(f"{path}: format {reprlib.repr(card.get('format'))}, expected {expected}")
    if card.get("step") != int(path.name):
        raise Damaged(f"{path}: holds the step {reprlib.repr(card.get('step'))}, not {path.name}")
    if not isinstance(card.get("about"), dict) or not isinstance(card.get("versions"), dict):
        raise Damaged(f"{path / CARD}: not the card of a checkpoint")
    return card


def _digest(path: Path) -> Any:
    """Computes the digest of a step's arrays, which the caller continues. Raises `Damaged`."""
    digest = hashlib.sha256()
    try:
        with guards.opened(path / ARRAYS)[0] as file:
            _check_size(path, file)
            while block := file.read(BLOCK):
                digest.update(block)
    except Damaged:
        raise
    except (ConfigError, OSError) as error:
        raise Damaged(f"{path / ARRAYS}: cannot be read ({error})") from None
    return digest


def _check_size(path: Path, file: Any) -> None:
    """Raises `Damaged` if a file's size is not the one that its header declares, before more is read."""
    try:
        tensors.read_header(file, os.fstat(file.fileno()).st_size, Path(ARRAYS))
    except ConfigError as error:
        raise Damaged(f"{path}: was changed after it was written ({error})") from None
    file.seek(0)


def _through(file: Any) -> None:
    """Flushes a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    """Flushes the names in a directory to the disk."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


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
        several = processes.count() > 1
        if several:
            state, rows = checkpoint_pieces.own(state, rows), None
        overlaps = trees.nbytes(state) <= OVERLAP_BYTES
        if overlaps:
            state, rows = tensors.on_host(state, rows), None
        crew = {"process": processes.index(), "count": processes.count(), "token": self._token}

        def write() -> None:
            for log in logs:
                log.sync()
            if several:
                save_piece(directory, step, state, about, keep=keep, **crew)
            else:
                save(directory, step, state, about, keep=keep, rows=rows)

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
