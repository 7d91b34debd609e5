"""Damages real files at random and reads them back: only `ConfigError` may come of it, or what was there before.

    python scripts/fuzz.py --mutations 10000 --seed 0

Nothing is trained: the files hold an untrained policy and an untrained loss. Prints counts for each loader and exits
with 1 if a mutation led to another error, to other values, or to a load beyond the limits of `mutations`.
"""

import argparse
import base64
import contextlib
import dataclasses
import hashlib
import io
import json
import random
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import scales
from mutations import CANARY, HOSTILE, Loader, fuzz

from purerl import cli, envs, trees
from purerl.algos import ALGORITHMS
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.learned import artefacts, sockets
from purerl.names import check_trusted, choose
from purerl.population import planning
from purerl.replay.fixed import struct
from purerl.runs.describing import config_file
from purerl.runs.describing import datasets as of_play
from purerl.runs.describing.description import TrainingDescription, describe, start
from purerl.runs.describing.options import TrainOptions
from purerl.runs.reading import comparison, contents, loading
from purerl.store import card_files, checkpoint, log, minari, policies, tensors, trusted_modules, writing


def small_run() -> TrainingDescription:
    """Three agents of PPO on CartPole, with a learned loss, that nobody has trained."""
    config = ALGORITHMS["ppo"].Config(total_steps=64, num_envs=2, num_steps=8, num_minibatches=2, hidden_sizes=(4,))
    options = TrainOptions(env="CartPole-v1", num_seeds=3, env_params=("gravity=9.5",))
    description = describe("ppo", options, config)
    return dataclasses.replace(description, learned={"value_loss": artefacts.to_json(closed_form())})


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
    policy = numbers(loading.shapes(description, 3))
    policies.save_policy(directory, policy, {**description.fields, "members": 3})


def load_policy(directory: Path) -> str:
    """The policies, and the run that they are of."""
    run = loading.load(directory)
    words = [base64.b64encode(np.asarray(x).tobytes()).decode() for x in jax.tree.leaves(run.policy)]
    return json.dumps([words, run.saved, vars(run.setup.config), run.setup.labels], sort_keys=True)


def seal_policy(directory: Path) -> None:
    """The digest of what ``policy.json`` now says."""
    document = json.loads((directory / policies.DESCRIPTION).read_text())
    del document["sha256"]
    import safetensors.numpy

    arrays = safetensors.numpy.load_file(directory / policies.ARRAYS)
    document["sha256"] = tensors.digest(document, arrays)
    (directory / policies.DESCRIPTION).write_text(json.dumps(document))


def make_config(directory: Path) -> None:
    """``config.json``, as a run writes it, and a file as a person might write it."""
    config_file.write(directory, "train", small_run(), TrainOptions(env=""))
    lines = "algo: dqn", "env: CartPole-v1", "seeds: [3, 4]", "config: {learning_rate: 1e-3, prioritised: true}"
    (directory / "mine.yaml").write_text("\n".join(lines) + "\noptions:\n  eval_episodes: 5e1\n")


def load_config(directory: Path) -> str:
    """The runs that both files describe, as `purerl train --config` and `purerl resume` read them."""
    results = []
    for name in (config_file.NAME, "mine.yaml"):
        file = config_file.read(directory / name)
        config_file.trusted(file, (), "trust it")
        algo = choose("algo", file.take("algo", str, ""), ALGORITHMS)
        begin = start(file)
        given = parsing.started(begin, parsing.with_learned(TrainOptions, algo), algo)
        results.append(describe(algo, given.options, given.config, begin).fields)
    return json.dumps(writing.finite(results))


LIKE = {"weights": np.arange(12.0, dtype=np.float32).reshape(3, 4), "count": np.arange(3, dtype=np.uint32)}


def make_checkpoint(directory: Path) -> None:
    """A step, and the log whose rows it counts."""
    checkpoint.save(directory, 3, LIKE, {"seconds": 1.5, "batch_size": 1})
    with log.Log(directory / "metrics.jsonl") as rows:
        rows.write(f'{{"iteration": {i}, "loss": {i / 3}}}\n' for i in range(1, 5))


def load_checkpoint(directory: Path) -> str:
    """The step's arrays and what is said of it, and the log cut to it."""
    step = checkpoint.newest(directory, strict=True)
    state = checkpoint.read(step, LIKE, lambda array, leaf: np.asarray(array))
    return json.dumps([writing.finite(state), step.number, step.about])


def load_log(directory: Path) -> str:
    """The log, cut to the rows of the step."""
    log.cut(directory / "metrics.jsonl", lambda row: row.get("iteration") in (1, 2, 3), 3)
    return (directory / "metrics.jsonl").read_text()


def seal_checkpoint(directory: Path) -> None:
    """The digests of what the piece has, and of what the card then says."""
    card = json.loads((directory / "3" / checkpoint.CARD).read_text())
    del card["sha256"]
    piece = (directory / "3" / checkpoint.PIECE.format(0)).read_bytes()
    card["pieces"] = [{"bytes": len(piece), "sha256": hashlib.sha256(piece).hexdigest()}]
    (directory / "3" / checkpoint.CARD).write_text(json.dumps({**card, "sha256": tensors.digest(card, {})}))


COMMANDS = (
    "train ppo --env CartPole-v1 --env-params gravity=9.5 --num-seeds 3 --learning-rate 1e-3 --hidden-sizes 8 8",
    "sweep dqn --env Catch-bsuite --learning-rate 1e-4:1e-2:log:4 --gamma 0.9,0.99 --prioritised --num-envs 2",
    "plan impala --env CartPole-v1 --total-steps 1e6 --memory gru --json",
    "evolve value-loss --env CartPole-v1 --population 8 --strategy SNES --sigma 0.1 --generations 4",
    "eval run --episodes 3 --seed 1",
    "record run --episodes 3 --agent 1 --overwrite",
    "record run:0=0.5 random=0.5 --episodes 4 --out new.safetensors",
    "data demos.safetensors --json",
    "data minari:D4RL/door/human-v2 --out new.safetensors --episodes 3 --env-params gravity=9",
    "train r2d3 --env CartPole-v1 --demos demos.safetensors --demo-ratio 0.25",
    "compare run run --json",
    "list envs --family gymnax",
    "resume run --total-steps 1e6 --checkpoint-seconds 5",
)


DEMOS = "demos.safetensors"
CARTPOLE = envs.make("CartPole-v1")


def make_dataset(directory: Path) -> None:
    """``demos.safetensors``, of two episodes that nobody has played."""
    like = struct(CARTPOLE.observation_space, CARTPOLE.action_space, 5, 2)
    ends = np.array([False, True, False, False, True])
    data = trees.zeros(like)._replace(terminated=ends, obs=numbers(like.obs))
    card = {"env": "CartPole-v1", "env_params": {}, "policy": {}, "steps": 5, "episodes": 2}
    card_files.save(card_files.DATASET, directory / DEMOS, trees.named_leaves(data), card)


def load_dataset(directory: Path) -> str:
    """The steps, and what is said of them."""
    data, card = of_play.read(directory / DEMOS, CARTPOLE, {"env": "CartPole-v1", "env_params": {}})
    return json.dumps([[np.asarray(x).tolist() for x in jax.tree.leaves(data)], card], sort_keys=True)


def load_contents(directory: Path) -> str:
    """What `purerl data` tells of the file."""
    return json.dumps(contents.described(directory / DEMOS), sort_keys=True)


def make_minari(directory: Path) -> None:
    """``metadata.json``, as Minari writes it."""
    box = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1.0, float("-inf")], "high": [1.0, 2.0]}
    seen = {"type": "Dict", "subspaces": {"a": box, "b": {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}}}
    told = {"observation_space": json.dumps(seen), "action_space": json.dumps(box), "data_format": "hdf5"}
    told |= {"env_spec": json.dumps({"id": "Pendulum-v1", "kwargs": {"g": 9.81}})}
    told |= {"dataset_id": "tests/pendulum-v0", "total_episodes": 2, "total_steps": 5, "algorithm_name": "SAC"}
    (directory / minari.METADATA).write_text(json.dumps(told))


def make_commands(directory: Path) -> None:
    """``commands.json``, a command line each, and the run that they name."""
    (directory / "run").mkdir()
    for make in (make_policy, make_config, make_summary):
        make(directory / "run")
    make_dataset(directory)
    writing.write_json(directory / "commands.json", [command.split() for command in COMMANDS])


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


def load_commands(directory: Path) -> str:
    """One of the command lines, up to where it would compile. Raises `ConfigError` if it ends in exit code 2."""
    document = json.loads((directory / "commands.json").read_text())
    lines = [line for line in document if isinstance(line, list)] if isinstance(document, list) else []
    errors, code = io.StringIO(), 0
    silent = contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO())
    for line in lines:
        words = [str(word)[:1000] for word in line if "\0" not in str(word)]
        with silent[0], silent[1], nothing_compiles(), contextlib.chdir(directory):
            try:
                cli.main(words)
            except SystemExit as stop:
                code = max(code, int(stop.code or 0))
    sys.modules.pop(CANARY, None)  # who names a module on the command line has it imported
    if code not in (0, 2) or "Traceback" in errors.getvalue():
        raise RuntimeError(f"exit code {code}: {errors.getvalue()}")
    if code:
        raise ConfigError(errors.getvalue())
    return ""


@contextlib.contextmanager
def nothing_compiles() -> Iterator[None]:
    """Within it trainings, searches and plans end as they would begin."""
    ends: dict[str, Any] = {"runs.running.run.Run.begin": 0, "runs.running.run.Run.resume": 0}
    ends |= {"runs.reading.episodes.record_run": {}, "runs.reading.episodes.recorded_in_words": ""}
    ends |= {"cli.limited.run": 0}
    ends |= {
        "runs.running.forecast.plan": (planning.Plan(*[1] * 10), None),
        "runs.reading.evaluation.prepare": lambda *_, **__: {"return_mean": 0.0},
    }
    with contextlib.ExitStack() as stack:
        for name, value in ends.items():
            stack.enter_context(mock.patch(f"purerl.{name}", lambda *_, value=value, **options: value))
        stack.enter_context(mock.patch("purerl.display.tables.print_evaluation"))
        yield


def make_summary(directory: Path) -> None:
    """``summary.json``, as far as it is read."""
    summary = {"algo": "ppo", "env": "CartPole-v1", "env_params": {}, "env_steps": 512, "swept": {}}
    summary |= {"return_per_seed": [10.0, 20.5, None], "alive_per_seed": [True, True, False]}
    writing.write_json(directory / "summary.json", summary)


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


def make_trusted(directory: Path) -> None:
    """What a person trusted: an environment of their own, in a run."""
    (directory / "mine.py").write_text("make = print\n")
    with state_in(directory):
        trusted_modules.remember(Path("/runs/mine"), ["mine:make"])


def load_trusted(directory: Path) -> str:
    """Nothing but what was trusted is; raises `ConfigError` where that is refused as well. It can be written again."""
    with state_in(directory), contextlib.redirect_stderr(io.StringIO()) as error:
        refusal = trusted_modules.memory(False)
        for where, name in (("/runs/mine", f"{CANARY}:s"), ("/runs/other", "mine:make"), ("/runs/mine", "mine:other")):
            if not refusal(Path(where), name):
                raise RuntimeError(f"{name} is trusted at {where}")
        if len(error.getvalue().splitlines()) > 3 or "Traceback" in error.getvalue():
            raise RuntimeError(error.getvalue())
        check_trusted("env", "mine:make", refusal, Path("/runs/mine"))
        trusted_modules.remember(Path("/runs/mine"), ["mine:make"])
        check_trusted("env", "mine:make", refusal, Path("/runs/mine"))
    return ""


@contextlib.contextmanager
def state_in(directory: Path) -> Iterator[None]:
    """Within it a person's state and modules are those of a directory."""
    with mock.patch.dict("os.environ", {"XDG_STATE_HOME": str(directory)}), contextlib.chdir(directory):
        yield


LOADERS = [
    Loader("policy", (policies.DESCRIPTION, policies.ARRAYS), make_policy, load_policy, seal_policy),
    Loader("config", ("config.json", "mine.yaml"), make_config, load_config),
    Loader("checkpoint", ("3/card.json", "3/state-0.safetensors"), make_checkpoint, load_checkpoint, seal_checkpoint),
    Loader("log", ("metrics.jsonl",), make_checkpoint, load_log),
    Loader("commands", ("commands.json",), make_commands, load_commands, change=change_command),
    Loader("summary", ("summary.json",), make_summary, lambda d: repr(comparison.compare([d, d]))),
    Loader("dataset", (DEMOS,), make_dataset, load_dataset, seal=lambda directory: None),
    Loader("contents", (DEMOS,), make_dataset, load_contents, seal=lambda directory: None),
    Loader("minari", (minari.METADATA,), make_minari, lambda d: repr(minari.about(d))),
    Loader("artefact", (artefacts.NAME,), make_artefact, load_artefact, seal_artefact),
    Loader("trusted", ("purerl/trusted.json", "mine.py"), make_trusted, load_trusted),
]
"""Everything that is read back. Add what else is."""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--mutations", type=int, default=10_000)
    result.add_argument("--seed", type=int, default=0)
    scales.add(result, mutations=100)
    return result


def main() -> int:
    """Prints the counts and what went wrong; returns the exit code."""
    given = parser().parse_args()
    result = fuzz(LOADERS, given.mutations, given.seed)
    for (name, outcome), count in sorted(result.counts.items()):
        print(f"{name:<10}{outcome:<10}{count:,}")
    print("\n".join(result.wrong) or "nothing went wrong")
    return min(len(result.wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
