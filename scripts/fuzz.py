"""Damages real files at random and reads them back: only `ConfigError` may come of it, or what was there before.

    python scripts/fuzz.py --mutations 10000 --seed 0

Nothing is trained: the files hold an untrained policy and an untrained loss. Prints counts for each loader and exits
with 1 if a mutation led to another error, to other values, to a load of more than `SECONDS` or of more than `BYTES`.
"""

import argparse
import base64
import contextlib
import dataclasses
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

import jax
import numpy as np

from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.learned import artefacts, sockets
from purerl.runs import comparison, evaluation
from purerl.runs.description import Description, describe
from purerl.runs.options import TrainOptions
from purerl.store import json_files, policies

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
    """

    name: str
    files: tuple[str, ...]
    make: Callable[[Path], None]
    load: Callable[[Path], str]
    seal: Callable[[Path], None] | None = None


class TooSlow(BaseException):
    """A load took longer than `SECONDS`. No handler of ordinary errors catches it."""


class Found(NamedTuple):
    """How often each loader refused a mutation and read it, and what went wrong, as text."""

    counts: Counter
    wrong: list[str]


def fuzz(loaders: Sequence[Loader], mutations: int, seed: int) -> Found:
    """Mutates the files of ``loaders`` in turn, ``mutations`` times in all, and reads each mutation once."""
    rng, found = random.Random(seed), Found(Counter(), [])
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
                    found.wrong.append(f"{loader.name}, mutation {i}, {how}: read as another value")
                found.counts[loader.name, "read"] += 1
            except ConfigError as error:
                found.counts[loader.name, "refused"] += 1
                if not str(error).isprintable() and any(not line.isprintable() for line in str(error).splitlines()):
                    found.wrong.append(f"{loader.name}, mutation {i}, {how}: not printable: {str(error)!r}")
            except (Exception, TooSlow):
                found.wrong.append(f"{loader.name}, mutation {i}, {how}: {traceback.format_exc()}")
            shutil.rmtree(directory)
    if CANARY in sys.modules:
        found.wrong.append(f"{CANARY} was imported")
    return found


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
    kind = rng.choice(("bytes", "bytes", "json", "json", "sealed", "sealed", "file"))
    if path.suffix == ".json" and kind in ("json", "sealed"):
        told = change_json(path, rng)
        if kind == "sealed" and loader.seal:
            with contextlib.suppress(Exception):  # what has lost its shape cannot be sealed
                loader.seal(directory)
            return f"{path.name}: {told}, sealed", True
        return f"{path.name}: {told}", loader.seal is None
    told = change_file(path, rng) if kind == "file" else change_bytes(path, rng)
    return f"{path.name}: {told}", loader.seal is None


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


def small_run() -> Description:
    """Three agents of PPO on CartPole, with a learned loss, that nobody has trained."""
    config = ALGORITHMS["ppo"].Config(total_steps=64, num_envs=2, num_steps=8, num_minibatches=2, hidden_sizes=(4,))
    description = describe("ppo", TrainOptions(env="CartPole-v1", num_seeds=3), config, {"gravity": 9.5})
    return description._replace(learned={"value_loss": artefacts.to_json(closed_form())})


def numbers(like: Any) -> Any:
    """Numbers in the shapes of ``like``, for which nothing compiles."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), like)


def closed_form() -> artefacts.Artefact:
    """A value loss as a formula."""
    return artefacts.of_expression("value-loss", ["mul", 0.5, ["square", "error"]], {"algo": "ppo"})


def make_policy(directory: Path) -> None:
    """``policy.json`` and ``policy.safetensors``."""
    description = small_run()
    policy = numbers(evaluation.shapes(description, 3))
    policies.save_policy(directory, policy, {**description._asdict(), "members": 3})


def load_policy(directory: Path) -> str:
    """The policies, and the run that they are of."""
    run = evaluation.load(directory)
    words = [base64.b64encode(np.asarray(x).tobytes()).decode() for x in jax.tree.leaves(run.policy)]
    return json.dumps([words, run.saved, vars(run.setup.config), run.setup.labels], sort_keys=True)


def seal_policy(directory: Path) -> None:
    """The digest of what ``policy.json`` now says."""
    document = json.loads((directory / policies.DESCRIPTION).read_text())
    del document["sha256"]
    import safetensors.numpy

    arrays = safetensors.numpy.load_file(directory / policies.ARRAYS)
    document["sha256"] = policies._digest(document, arrays)
    (directory / policies.DESCRIPTION).write_text(json.dumps(document))


def make_config(directory: Path) -> None:
    """``config.json``, as a run writes it."""
    json_files.write_json(directory / "config.json", {**small_run()._asdict(), "command": ["purerl"]})


def load_config(directory: Path) -> str:
    """The description in ``config.json``."""
    path = directory / "config.json"
    return json.dumps(Description.of_json(json_files.read_json(path), str(path)))


def make_summary(directory: Path) -> None:
    """``summary.json``, as far as it is read."""
    summary = {"algo": "ppo", "env": "CartPole-v1", "env_params": {}, "env_steps": 512, "swept": {}}
    summary |= {"return_per_seed": [10.0, 20.5, None], "alive_per_seed": [True, True, False]}
    json_files.write_json(directory / "summary.json", summary)


def make_artefact(directory: Path) -> None:
    """``artefact.json`` with a card as a search writes it."""
    config = dataclasses.asdict(ALGORITHMS["impala"].Config())
    card = {"algo": "impala", "config": config, "envs": ["CartPole-v1"], "env_params": {}}
    meta_params = numbers(jax.eval_shape(sockets.make("vtrace-weight").init, jax.random.key(0)))
    artefact = artefacts.of_socket("vtrace-weight", meta_params, card, {"seconds": 1.5})
    artefacts.save(directory / artefacts.NAME, artefact)


def load_artefact(directory: Path) -> str:
    """The function, its card, and the training that it names."""
    artefact = artefacts.load(directory)
    algo, config = artefacts.training(artefact)
    return json.dumps([artefacts.to_json(artefact._replace(measured={})), algo, vars(config)], sort_keys=True)


def seal_artefact(directory: Path) -> None:
    """The digest of what ``artefact.json`` now says."""
    document = json.loads((directory / artefacts.NAME).read_text())
    names = "socket", "expression", "meta_params", "card"
    document["sha256"] = artefacts._digest({name: document.get(name) for name in names})
    (directory / artefacts.NAME).write_text(json.dumps(document))


LOADERS = [
    Loader("policy", (policies.DESCRIPTION, policies.ARRAYS), make_policy, load_policy, seal_policy),
    Loader("config", ("config.json",), make_config, load_config),
    Loader("summary", ("summary.json",), make_summary, lambda d: repr(comparison.compare([d]))),
    Loader("artefact", (artefacts.NAME,), make_artefact, load_artefact, seal_artefact),
]
"""Everything that is read back. Add what else is."""


def main() -> int:
    """Prints the counts and what went wrong; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = fuzz(LOADERS, given.mutations, given.seed)
    for (name, outcome), count in sorted(found.counts.items()):
        print(f"{name:<10}{outcome:<10}{count:,}")
    print("\n".join(found.wrong) or "nothing went wrong")
    return min(len(found.wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
