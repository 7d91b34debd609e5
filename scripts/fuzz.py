"""Damages real files at random and reads them back: only `ConfigError` may come of it, or what was there before.

    python scripts/fuzz.py --mutations 10000 --seed 0

Nothing is trained: the files hold an untrained policy and an untrained loss. Prints counts for each loader and exits
with 1 if a mutation led to another error, to other values, to a load of more than `SECONDS` or of more than `BYTES`.
"""

import argparse
import base64
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import string
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from purerl import cli
from purerl.algos import ALGORITHMS
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.learned import artefacts, sockets
from purerl.names import choose
from purerl.population import planning
from purerl.runs import comparison, config_file, evaluation
from purerl.runs.description import Description, describe, start
from purerl.runs.options import TrainOptions, recorded
from purerl.store import checkpoint, json_files, log, policies

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
    if loader.name == "commands":
        return change_command(path, rng), True
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


def change_command(path: Path, rng: random.Random) -> str:
    """Leaves one command line, with a word changed, removed, repeated or moved, or from another one."""
    lines = json.loads(path.read_text())
    line = rng.choice(lines)
    at, kind = rng.randrange(len(line)), rng.choice(("hostile", "number", "letter", "remove", "repeat", "other"))
    word = line[at]
    if kind == "remove":
        del line[at]
    elif kind == "letter":
        place = rng.randrange(len(word))
        line[at] = word[:place] + rng.choice(string.printable) + word[place + 1 :]
    elif kind == "repeat":
        line.insert(rng.randrange(len(line)), word)
    elif kind == "other":
        line.insert(at, rng.choice(rng.choice(lines)))
    else:
        odd = (
            "0",
            "-1",
            "1e400",
            "nan",
            "inf",
            "1e9",
            "1.5",
            "",
            "--",
            "=",
            "1:2:log",
            "1:0:lin:3",
            "0:1:lin:1e9",
            "a=b",
        )
        line[at] = str(rng.choice(HOSTILE))[:1000] if kind == "hostile" else rng.choice(odd)
    path.write_text(json.dumps([line]))
    return f"{kind} at {at} of {' '.join(line)[:200]!r}"


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
    """``config.json``, as a run writes it, and a file as a person might write it."""
    config_file.write(directory, "train", small_run(), recorded(TrainOptions(env="")))
    lines = "algo: dqn", "env: CartPole-v1", "seeds: [3, 4]", "config: {learning_rate: 1e-3, prioritised: true}"
    (directory / "mine.yaml").write_text("\n".join(lines) + "\noptions:\n  eval_episodes: 5e1\n")


def load_config(directory: Path) -> str:
    """The runs that both files describe, as `purerl train --config` and `purerl resume` read them."""
    found = []
    for name in (config_file.NAME, "mine.yaml"):
        file = config_file.read(directory / name)
        config_file.trusted(file, (), "trust it")
        algo = choose("algo", file.take("algo", str, ""), ALGORITHMS)
        begin = start(file)
        given = parsing.started(begin, parsing.with_learned(TrainOptions, algo), algo)
        params = parsing.env_params(given.options.env_params)
        more = begin.swept, begin.learned
        found.append(describe(algo, given.options, given.config, params, *more, usual=given.config))
    return json.dumps(json_files.finite(found))


LIKE = {"weights": np.arange(12.0, dtype=np.float32).reshape(3, 4), "count": np.arange(3, dtype=np.uint32)}


def make_checkpoint(directory: Path) -> None:
    """A step, and the log whose rows it counts."""
    checkpoint.save(directory, 3, LIKE, {"seconds": 1.5, "batch_size": 1})
    with log.Log(directory / "metrics.jsonl") as rows:
        rows.write(f'{{"iteration": {i}, "loss": {i / 3}}}\n' for i in range(1, 5))


def load_checkpoint(directory: Path) -> str:
    """The step's arrays and what is said of it, and the log cut to it."""
    step = checkpoint.newest(directory, strict=True)
    state = checkpoint.read(step, LIKE, lambda array, _: array)
    return json.dumps([json_files.finite(state), step.number, step.about])


def load_log(directory: Path) -> str:
    """The log, cut to the rows of the step."""
    log.cut(directory / "metrics.jsonl", lambda row: row.get("iteration") in (1, 2, 3), 3)
    return (directory / "metrics.jsonl").read_text()


def seal_checkpoint(directory: Path) -> None:
    """The digest of what the card now says."""
    card = json.loads((directory / "3" / checkpoint.CARD).read_text())
    del card["sha256"]
    digest = hashlib.sha256((directory / "3" / checkpoint.ARRAYS).read_bytes() + checkpoint._canonical(card))
    (directory / "3" / checkpoint.CARD).write_text(json.dumps({**card, "sha256": digest.hexdigest()}))


COMMANDS = (
    "train ppo --env CartPole-v1 --env-params gravity=9.5 --num-seeds 3 --learning-rate 1e-3 --hidden-sizes 8 8",
    "sweep dqn --env Catch-bsuite --learning-rate 1e-4:1e-2:log:4 --gamma 0.9,0.99 --prioritised --num-envs 2",
    "plan impala --env CartPole-v1 --total-steps 1e6 --memory gru --json",
    "evolve value-loss --env CartPole-v1 --population 8 --strategy SNES --sigma 0.1 --generations 4",
    "eval run --episodes 3 --seed 1",
    "compare run run --json",
    "list envs --family gymnax",
    "resume run --total-steps 1e6 --checkpoint-seconds 5",
)


def make_commands(directory: Path) -> None:
    """``commands.json``, a command line each, and the run that they name."""
    (directory / "run").mkdir()
    for make in (make_policy, make_config, make_summary):
        make(directory / "run")
    json_files.write_json(directory / "commands.json", [command.split() for command in COMMANDS])


def load_commands(directory: Path) -> str:
    """One of the command lines, up to where it would compile. Raises `ConfigError` if it ends in exit code 2."""
    document = json.loads((directory / "commands.json").read_text())
    lines = [line for line in document if isinstance(line, list)] if isinstance(document, list) else []
    told, code = io.StringIO(), 0
    silent = contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO())
    for line in lines:
        words = [str(word)[:1000] for word in line if "\0" not in str(word)]
        with silent[0], silent[1], nothing_compiles(), contextlib.chdir(directory):
            try:
                cli.main(words)
            except SystemExit as stop:
                code = max(code, int(stop.code or 0))
    if code not in (0, 2) or "Traceback" in told.getvalue():
        raise RuntimeError(f"exit code {code}: {told.getvalue()}")
    if code:
        raise ConfigError(told.getvalue())
    return ""


@contextlib.contextmanager
def nothing_compiles() -> Iterator[None]:
    """Within it trainings, searches and plans end as they would begin."""
    ends: dict[str, Any] = {"runs.train.train": 0, "runs.train.resume": 0, "meta.search.search": 0}
    ends |= {"runs.measure.plan": (planning.Plan(*[1] * 10), None), "runs.evaluation.play": {"return_mean": 0.0}}
    with contextlib.ExitStack() as stack:
        for name, value in ends.items():
            stack.enter_context(mock.patch(f"purerl.{name}", lambda *_, value=value, **options: value))
        stack.enter_context(mock.patch("purerl.display.tables.print_evaluation"))
        yield


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
    Loader("config", ("config.json", "mine.yaml"), make_config, load_config),
    Loader("checkpoint", ("3/card.json", "3/state.safetensors"), make_checkpoint, load_checkpoint, seal_checkpoint),
    Loader("log", ("metrics.jsonl",), make_checkpoint, load_log),
    Loader("commands", ("commands.json",), make_commands, load_commands),
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
