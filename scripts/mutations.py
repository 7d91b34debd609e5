"""Random damage to files, and what may come of reading them; `fuzz.py` says which."""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl.errors import ConfigError

SECONDS, BYTES = 20, 2**29
"""The most that one load may take."""
CANARY = "this"
"""A module that hostile files name, and that nothing may import."""
DEEP = "a place for a hundred thousand lists"
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 2**31, 2**32, 10**9, 10**18, 10**400, 1e308, -1e308, float("nan"), float("inf")),
    *("", "ppo", "../../x", "/etc/passwd", "os", f"{CANARY}:s", "\ud800", "\0", "[/]", "a" * 10**5, DEEP),
    *([], [[]], {}, {"": 0}, [0] * 10**4, [10**9, 10**9], {f"{CANARY}:s": [1.0, 2.0]}, [1.0, 2.0]),
)
"""What values of JSON are replaced by."""


class Loader(NamedTuple):
    """Files, and how they are read.

    - ``name``: the name of the loader.
    - ``files``: names of the files in the directory that are damaged.
    - ``make(directory)``: writes the files.
    - ``load(directory)``: reads them; what it returns says everything of what was read.
    - ``seal(directory)``: makes digests fit that a change of JSON has broken; None if there are none, so that a change
      may give other values.
    - ``change(path, rng)``: damages a file in a way of its own, after which another value may be read, and returns how.
    """

    name: str
    files: tuple[str, ...]
    make: Callable[[Path], None]
    load: Callable[[Path], str]
    seal: Callable[[Path], None] | None = None
    change: Callable[[Path, random.Random], str] | None = None


class TooSlow(BaseException):
    """A load took longer than `SECONDS`. No handler of ordinary errors catches it."""


class Found(NamedTuple):
    """How often each loader refused a mutation and read it, and what went wrong, as text."""

    counts: Counter
    wrong: list[str]


def fuzz(loaders: Sequence[Loader], mutations: int, seed: int) -> Found:
    """Mutates the files of ``loaders`` in turn, ``mutations`` times in all, and reads each mutation once."""
    rng, result = random.Random(seed), Found(Counter(), [])
    with tempfile.TemporaryDirectory() as scratch:
        originals = {loader.name: Path(scratch) / loader.name for loader in loaders}
        values = {}
        for loader in loaders:
            originals[loader.name].mkdir()
            loader.make(originals[loader.name])
            values[loader.name] = loader.load(originals[loader.name])
        for i in range(mutations):
            loader = loaders[i % len(loaders)]
            directory = Path(scratch) / "mutated"
            shutil.copytree(originals[loader.name], directory)
            how, other = mutate(loader, directory, rng)
            try:
                with bounded():
                    value = loader.load(directory)
                if value != values[loader.name] and not other:
                    result.wrong.append(f"{loader.name}, mutation {i}, {how}: read as another value")
                result.counts[loader.name, "read"] += 1
            except ConfigError as error:
                result.counts[loader.name, "refused"] += 1
                if not str(error).isprintable() and any(not line.isprintable() for line in str(error).splitlines()):
                    result.wrong.append(f"{loader.name}, mutation {i}, {how}: not printable: {str(error)!r}")
            except (Exception, TooSlow):
                result.wrong.append(f"{loader.name}, mutation {i}, {how}: {traceback.format_exc()}")
            shutil.rmtree(directory)
    if CANARY in sys.modules:
        result.wrong.append(f"{CANARY} was imported")
    return result


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Raises `TooSlow` after `SECONDS`, and `MemoryError` if the process grew by more than `BYTES`."""

    def stop(*_):
        raise TooSlow

    before, peak = signal.signal(signal.SIGALRM, stop), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 > BYTES:
            raise MemoryError(f"a load took more than {BYTES} bytes")


def mutate(loader: Loader, directory: Path, rng: random.Random) -> tuple[str, bool]:
    """Damages one file of a loader. Returns how, and whether what is read may then be another value."""
    path = directory / rng.choice(loader.files)
    if loader.change:
        return loader.change(path, rng), True
    kind = rng.choice(("bytes", "bytes", "json", "json", "sealed", "sealed", "file"))
    if path.suffix == ".json" and kind in ("json", "sealed"):
        text = change_json(path, rng)
        if kind == "sealed" and loader.seal:
            with contextlib.suppress(Exception):  # what has lost its shape cannot be sealed
                loader.seal(directory)
            return f"{path.name}: {text}, sealed", True
        return f"{path.name}: {text}", loader.seal is None
    text = change_file(path, rng) if kind == "file" else change_bytes(path, rng)
    return f"{path.name}: {text}", loader.seal is None


def change_bytes(path: Path, rng: random.Random) -> str:
    """Flips bits, or cuts, removes, repeats or inserts bytes."""
    raw = bytearray(path.read_bytes())
    at, size = rng.randrange(len(raw)), rng.choice((1, 2, 8, 100, 10_000))
    kind = rng.choice(("flip", "flip", "cut", "remove", "repeat", "insert", "replace"))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 1, 8))):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del raw[at:]
    elif kind == "remove":
        del raw[at : at + size]
    elif kind == "repeat":
        raw[at:at] = raw[at : at + size]
    elif kind == "insert":
        raw[at:at] = rng.randbytes(size)
    else:
        raw[at : at + size] = rng.choice((b"9" * 30, b"NaN", b"-1", b"1e999", b"[" * 10**5, b"\xff" * 8, b"PK\3\4"))
    path.write_bytes(raw)
    return f"{kind} at {at}"


def change_file(path: Path, rng: random.Random) -> str:
    """Puts something that is no such file in its place."""
    kind = rng.choice(("nothing", "empty", "directory", "pipe", "endless", "loop", "zip", "pickle"))
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("endless", "loop"):
        path.symlink_to("/dev/zero" if kind == "endless" else path)
    elif kind != "nothing":
        path.write_bytes(
            {"empty": b"", "zip": b"PK\3\4" + bytes(100), "pickle": b"c" + b"os\nsystem\n(S'x'\ntR."}[kind]
        )
    return kind


def change_json(path: Path, rng: random.Random) -> str:
    """Replaces, removes or adds a value, anywhere in a document."""
    document = json.loads(path.read_text())
    where = rng.choice(list(places(document)))
    value = rng.choice(HOSTILE)
    kind = rng.choice(("replace", "replace", "replace", "remove", "add"))
    parent: Any = {"": document}
    *way, last = ("", *where)
    for step in way:
        parent = parent[step]
    if kind == "remove":
        del parent[last]
    elif kind == "add" and isinstance(parent[last], dict):
        parent[last][rng.choice(("", "name", "x", "../x", "__class__"))] = value
    else:
        parent[last] = value
    text = json.dumps(parent.get("") if not where else document)
    path.write_text(text.replace(json.dumps(DEEP), "[" * 10**5 + "]" * 10**5))
    return f"{kind} {'.'.join(map(str, where))} by {str(value)[:20]!r}"


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document, and to itself."""
    yield ()
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield from ((step, *rest) for rest in places(item))
