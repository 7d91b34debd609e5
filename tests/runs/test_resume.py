"""Runs that go on: in the same bits, with what may change, from a file, and from nothing that is damaged or hostile."""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from commands import run
from rich.console import Console

from purerl import a2c, counters, envs
from purerl.cli import parsing
from purerl.errors import ConfigError
from purerl.runs.describing import config_file, run_directory
from purerl.runs.describing.description import Setup, describe
from purerl.runs.describing.options import TrainOptions
from purerl.runs.describing.run_directory import has_checkpoints
from purerl.runs.running import training
from purerl.runs.running.device_program import compile_program
from purerl.runs.running.run import ResumePoint
from purerl.runs.running.train import FILES, TrainingRun
from purerl.store import checkpoint

SMALL = ["--env", "CartPole-v1", "--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "8", "--eval-episodes", "2"]
REPLAY = ["--total-steps", "1024", "--warmup-steps", "128", "--capacity", "256", "--batch-size", "8"]
RUNS = {
    "ppo": ["train", "ppo", *SMALL, "--total-steps", "1024", "--num-seeds", "3"],
    "dqn": ["train", "dqn", *SMALL, *REPLAY, "--prioritised"],
    "r2d2": ["train", "r2d2", *SMALL, *REPLAY, "--unroll", "5", "--period", "4", "--burn-in", "0", "--num-steps", "8"],
    "sweep": ["sweep", "a2c", *SMALL, "--total-steps", "1024", "--gamma", "0.9,0.99,1", "--agents-at-once", "2"],
}
TIMES = "wall_seconds", "compile_seconds", "steps_per_second", "updates_per_second"


def outcome(directory):
    """What a run came to, but for its times."""
    summary = json.loads((directory / "summary.json").read_text())
    kept = {name: value for name, value in summary.items() if name not in TIMES}
    files = "policy.safetensors", run_directory.METRICS, run_directory.QUANTILES
    return kept, [(directory / name).read_bytes() for name in files]


def break_down(*args, after):
    """Runs a command whose disk is full after so many chunks of a training."""
    rows, chunks = training.metrics.quantile_rows, []

    def fail(*given):
        chunks.append(given)
        if len(chunks) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rows(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.metrics, "quantile_rows", fail)
        run(*args, "--checkpoint-seconds", 1e-9, expect=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small PPO run that nothing interrupted."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    run(*RUNS["ppo"], "--out", directory)
    return directory


@pytest.mark.rest
def test_an_adaptive_learning_rate_goes_on(tmp_path):
    """In rsl_rl a resumed run began again with the step size of its settings (issue 221). No schedule depends on the
    length, so a run that is made longer has the lines of one that was as long from the start."""
    command = ["train", "ppo", *SMALL, "--adapt-learning-rate", "0.003"]
    for name, length in (("whole", "1024"), ("parts", "512")):
        run(*command, "--total-steps", length, "--out", tmp_path / name)
    run("resume", tmp_path / "parts", "--total-steps", "1024")
    whole, parts = ((tmp_path / name / run_directory.METRICS).read_bytes() for name in ("whole", "parts"))
    rates = [json.loads(line)["learning_rate"] for line in whole.splitlines()]
    assert whole == parts and len(set(rates)) > 5


@contextlib.contextmanager
def no_network():
    """Within it every connection is an error."""

    def refuse(*args, **options):
        raise AssertionError("a connection")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The same, whose disk was full in the middle."""
    directory = tmp_path_factory.mktemp("broken") / "run"
    break_down(*RUNS["ppo"], "--out", directory, after=3)
    return directory


@pytest.fixture
def copy(broken, tmp_path):
    return shutil.copytree(broken, tmp_path / "run")


def test_ends_in_the_bits_of_one_that_nothing_interrupted(whole, copy, capsys):
    assert checkpoint.steps(copy / "checkpoints" / "0") == [5, 21] and not (copy / "summary.json").exists()
    assert len((copy / run_directory.METRICS).read_text().splitlines()) > 3 * 21
    run("resume", copy)
    assert outcome(copy) == outcome(whole)
    assert "compiled in" in capsys.readouterr().err
    run("resume", copy)
    assert "the run is finished" in capsys.readouterr().err


@pytest.mark.weekly
@pytest.mark.parametrize(("name", "after"), [("dqn", 3), ("r2d2", 3), ("sweep", 6)])
def test_every_kind_of_run(name, after, tmp_path, capsys):
    """Replays, memories, and batches of which one was finished before."""
    run(*RUNS[name], "--out", tmp_path / "whole")
    break_down(*RUNS[name], "--out", tmp_path / "broken", after=after)
    assert f"resume with: purerl resume {tmp_path / 'broken'}" in capsys.readouterr().err
    run("resume", tmp_path / "broken")
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    if name == "sweep":
        rankings = [json.loads((tmp_path / run / "sweep.json").read_text()) for run in ("whole", "broken")]
        assert rankings[0] == rankings[1] and len(rankings[0]["ranked"]) == 3


GAMES = "--env TicTacToe-v0 --opponents past --num-envs 8 --n-step 4"
MODEL = "--model-sizes 8 --state-size 4 --num-atoms 11 --unroll-steps 2 --n-step 3 --prioritised --reanalyse-every 4"
KILLED = {
    "optimiser": ["ppo", *SMALL, "--total-steps", "16384", "--optimiser", "mine.npy"],
    "search": ["alphazero", *SMALL, *REPLAY, *f"--total-steps 8192 --simulations 4 {GAMES}".split()],
    "model": ["muzero", *SMALL, *REPLAY, *f"--total-steps 8192 --simulations 4 {MODEL}".split()],
}


@pytest.mark.weekly
@pytest.mark.parametrize("name", KILLED)
def test_what_is_remembered_survives_a_kill(name, tmp_path):
    """Momenta and a memory of each parameter, the count of updates and the key of the noise, after SIGKILL. And what
    searches said of positions in a replay, with the states of games between a learner and its past, and the
    priorities of sequences that a model is unrolled over."""
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=1211).astype(np.float32))
    check_killed(tmp_path, *(tmp_path / word if word == "mine.npy" else word for word in KILLED[name]))


def check_killed(folder, *args):
    """Trains in two folders, and kills one of the two once it has two checkpoints: resumed, it comes to the same."""
    args = ["train", *map(str, args)]
    run(*args, "--out", folder / "whole")
    often = ["--checkpoint-seconds", "1e-9", "--out", str(folder / "run")]
    command = [sys.executable, "-m", "purerl.cli", *args, *often]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(checkpoint.steps(folder / "run" / "checkpoints" / "0")) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL and not (folder / "run" / "summary.json").exists()
    run("resume", folder / "run")
    assert outcome(folder / "run") == outcome(folder / "whole")


@pytest.mark.weekly
@pytest.mark.parametrize("where", ["device", "host"])
def test_recorded_play_survives_a_kill(where, tmp_path):
    """Draws, moments of observations and delayed updates; the host has read the samples of an iteration ahead."""
    play = tmp_path / "play.safetensors"
    of_play = ["--env", "Pendulum-v1", "--env-params", "max_episode_steps=20", "--episodes", "8", "--out", play]
    run("record", "random", *of_play)
    sizes = ["--hidden-sizes", 8, "--num-updates", 10, "--batch-size", 8, "--eval-episodes", 2, "--total-steps", 40000]
    check_killed(tmp_path, "td3-bc", "--data", play, *sizes, "--data-on", where)


@pytest.mark.weekly
def test_a_longer_run_and_the_best_policies(tmp_path, capsys):
    """Without anything annealed, half of a run and its other half are the whole, batch by batch."""
    args = ["train", "ppo", *SMALL, "--learning-rate-decay", "0", "--num-seeds", "3", "--agents-at-once", "2"]
    run(*args, "--total-steps", 512, "--out", tmp_path / "whole", "--keep-best")
    run(*args, "--total-steps", 256, "--out", tmp_path / "half")
    run("resume", tmp_path / "half", "--total-steps", 512, "--keep-best", "--checkpoint-seconds", 0, "--keep", 1)
    error = capsys.readouterr().err
    assert "changed: total_steps: 256 -> 512" in error and "changed: keep_best: False -> True" in error
    kept = [outcome(tmp_path / name) for name in ("half", "whole")]
    assert kept[0][0] == kept[1][0] and kept[0][1][0] == kept[1][1][0]
    lines = [sorted(line for line in file.splitlines()) for _, files in kept for file in files[1:]]
    assert lines[0] == lines[2] and lines[1] == lines[3]  # an extended run logs its first batch twice over
    assert checkpoint.steps(tmp_path / "half" / "checkpoints" / "1") == [32]
    result = json.loads((tmp_path / "half" / "config.json").read_text())
    assert result["config"]["total_steps"] == 512 and "total_steps: 256 -> 512" in result["history"]
    run("resume", tmp_path / "half", "--total-steps", 256, expect=2)
    assert "total_steps = 256: the run has done 512 of each agent" in capsys.readouterr().err
    run("eval", tmp_path / "whole" / "best", "--episodes", 2, "--json")
    assert len(json.loads(capsys.readouterr().out)["return_per_seed"]) == 3


@pytest.mark.rest
@pytest.mark.parametrize("file", [checkpoint.CARD, checkpoint.PIECE.format(0)])
def test_a_damaged_checkpoint(file, whole, copy, capsys):
    """The one before serves, and is told; never wrong values, never from the start; --strict refuses."""
    path = copy / "checkpoints" / "0" / "21" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    run("resume", copy, "--strict", expect=2)
    assert str(path.parent) in capsys.readouterr().err
    run("resume", copy)
    told = capsys.readouterr().err
    assert f"damaged: {path.parent}" in told and "; resuming from 5" in told
    assert outcome(copy) == outcome(whole)
    assert [path.name for path in (copy / "checkpoints" / "0").glob("21.damaged-*")]


@pytest.mark.parametrize("damage", ["deleted", "empty", "no object", "about", "config_sha256"])
@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_no_sound_card_is_no_new_beginning(damage, strict, copy, capsys):
    """Of a run's one checkpoint: nothing is begun again, cut or written, and the damage is told, not the config."""
    shutil.rmtree(copy / "checkpoints" / "0" / "5")
    path = copy / "checkpoints" / "0" / "21" / checkpoint.CARD
    card = json.loads(path.read_text())
    if damage == "config_sha256":
        card["about"]["config_sha256"] = "0" + card["about"]["config_sha256"][1:-1] + "0"
    texts = {"empty": "", "no object": "[]", "about": json.dumps({**card, "about": {}})}
    path.unlink() if damage == "deleted" else path.write_text(texts.get(damage, json.dumps(card)))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    run("resume", copy, *strict, expect=2)
    error = capsys.readouterr().err
    assert str(path.parent) in error and "was changed since" not in error
    assert before == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}


@pytest.mark.rest
def test_a_card_that_names_another_config_is_damaged(whole, copy, capsys):
    """The one before serves."""
    path = copy / "checkpoints" / "0" / "21" / checkpoint.CARD
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "about": {**card["about"], "config_sha256": "0" * 64}}))
    run("resume", copy)
    assert "resuming from 5" in capsys.readouterr().err and outcome(copy) == outcome(whole)


def test_a_directory_that_is_removed_under_way(tmp_path, capsys):
    """Is told after the next chunk, instead of trained for, with nothing to go on from."""
    rows, chunks = training.metrics.quantile_rows, []

    def remove(*given):
        chunks.append(given)
        if len(chunks) == 2:
            shutil.rmtree(tmp_path / "run")
        return rows(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.metrics, "quantile_rows", remove)
        run(*RUNS["ppo"], "--out", tmp_path / "run", expect=5)
    assert "jsonl: was removed or replaced while it was written" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.rest
def test_a_run_that_had_saved_nothing(whole, tmp_path):
    """Begins again, and its log with it; and no run asks anything of the network."""
    with no_network():
        break_down(*RUNS["ppo"], "--out", tmp_path / "run", after=0)
        assert not checkpoint.steps(tmp_path / "run" / "checkpoints" / "0")
        run("resume", tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(whole)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--num-envs", "4"], "num_envs = 4: the run has 2; it cannot be changed"),
        (["--env", "Catch-bsuite"], "env = 'Catch-bsuite': the run has 'CartPole-v1'; it cannot be changed"),
        (["--seed", "1"], "seed = 1: the run has 0; it cannot be changed"),
        (["--out", "elsewhere"], "out = 'elsewhere': the run has None; it cannot be changed"),
        (["--hidden-sizes", "9"], "hidden_sizes = (9,): the run has (8,); it cannot be changed"),
        (["--learning-rate", "1"], "learning_rate = 1.0: the run has 0.00025; --override changes it"),
        (["--lanes", "3"], "lanes = 3: the run has 0; --override changes it"),
        (["--learning-rate", "-1", "--override"], "learning_rate = -1.0: must"),
        (["--learning-rte", "1"], "--learning-rte: unknown option; nearest: --learning-rate"),
        (["--keep", "0"], "keep = 0: must lie in"),
    ],
)
def test_what_cannot_change(args, line, broken, capsys):
    before = {path: path.stat().st_mtime_ns for path in broken.rglob("*")}
    run("resume", broken, *args, expect=2)
    assert line in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in broken.rglob("*")}


@pytest.mark.rest
def test_override(copy, whole, capsys):
    run("resume", copy, "--learning-rate", "0.01", "--override", "--eval-episodes", "3")
    error = capsys.readouterr().err
    assert "changed: learning_rate: 0.00025 -> 0.01" in error and "changed: eval_episodes: 2 -> 3" in error
    mine, theirs = ((path / run_directory.METRICS).read_text().splitlines() for path in (copy, whole))
    assert mine[: 3 * 21] == theirs[: 3 * 21] and mine[-1] != theirs[-1]
    assert json.loads((copy / "config.json").read_text())["config"]["learning_rate"] == 0.01


def test_a_config_that_was_edited(copy, capsys):
    path = copy / "config.json"
    path.write_text(path.read_text().replace('"gamma": 0.99', '"gamma": 0.98'))
    run("resume", copy, expect=2)
    assert "was changed since the run was saved; give --override to use it" in capsys.readouterr().err


def test_lost_rows_are_told(copy, capsys):
    (copy / run_directory.METRICS).write_text('{"iteration": 1, "seed": 0}\n')
    run("resume", copy, expect=2)
    assert "metrics.jsonl: lacks 62 of the rows that its checkpoint counts" in capsys.readouterr().err
    shutil.rmtree(copy / "checkpoints")
    run("resume", copy, expect=2)
    assert "has no checkpoint" in capsys.readouterr().err
    run("resume", copy / "nowhere", expect=2)
    assert "nowhere/config.json: No such file" in capsys.readouterr().err


def test_links_lead_nowhere(copy, tmp_path, capsys):
    """A directory from somebody else writes into itself alone."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("mine")
    for name in ("run.lock", "config.json.tmp", "metrics.jsonl", "best", "checkpoints/0/77"):
        (copy / name).unlink(missing_ok=True)
        (copy / name).symlink_to(tmp_path / "mine" / ("" if "/" in name or name == "best" else "precious.txt"))
        run("resume", copy, expect=2)
        assert f"{copy / name}: is a symbolic link" in capsys.readouterr().err
        (copy / name).unlink()
    (copy / "notes.txt").symlink_to(tmp_path / "mine" / "precious.txt")
    run(*RUNS["ppo"], "--out", copy, "--overwrite", expect=2)
    assert "already in use" in capsys.readouterr().err
    assert (tmp_path / "mine" / "precious.txt").read_text() == "mine"


def test_overwrite_takes_nothing_before_it_has_compiled(copy, monkeypatch):
    def out_of_memory(*args, **options):
        raise MemoryError("too large")

    monkeypatch.setattr("purerl.runs.running.selecting.compile_program", out_of_memory)
    before = {path.relative_to(copy) for path in copy.rglob("*")}
    run(*RUNS["ppo"], "--out", copy, "--overwrite", expect=4)
    assert before == {path.relative_to(copy) for path in copy.rglob("*")}
    run(*RUNS["ppo"], "--out", copy.with_name("new"), expect=4)
    assert not copy.with_name("new").exists()


def test_names_of_a_run():
    """Each once: those that a run writes are those that --overwrite gives away."""
    assert len(set(FILES)) == len(FILES) and {config_file.NAME, "checkpoints", "best"} <= set(FILES)


@pytest.mark.weekly
def test_started_from_a_file(whole, tmp_path, capsys):
    """The config.json of a run makes the same run; options beside it change it; YAML may leave out what it likes."""
    run("train", "--config", whole / "config.json", "--out", tmp_path / "same")
    assert outcome(tmp_path / "same") == outcome(whole)
    (tmp_path / "mine.yaml").write_text(
        "algo: ppo\nenv: CartPole-v1\nconfig: {num_envs: 2, num_steps: 8, hidden_sizes: [8], total_steps: 1.024e3}\n"
        "seeds: [0, 1, 2]\noptions:\n  eval_episodes: 2\n"
    )
    run("train", "ppo", f"--config={tmp_path / 'mine.yaml'}", "--out", tmp_path / "yaml")
    assert outcome(tmp_path / "yaml") == outcome(whole)
    run("plan", "--config", whole / "config.json", "--num-seeds", 5, "--json")
    assert json.loads(capsys.readouterr().out)["members"] == 5


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("algo: ppo\nlearning_rate: 1e-3", "learning_rate: unknown; nearest: "),
        (
            "algo: ppo\nenv: CartPole-v1\nconfig: {learning_rte: 1e-3}",
            "config: learning_rte: unknown; nearest: learning",
        ),
        ("algo: ppo\noptions: {epsodes: 1}", "options: epsodes: unknown; nearest: "),
        ("algo: ppo\nenv: CartPole-v1\nconfig: {learning_rate: fast}", "learning_rate = 'fast': must be a number"),
        ("algo: pqo", "algo = 'pqo': unknown; nearest: pqn, ppo"),
        ("algo: os:system\nenv: x", "os:system': a file names this module, which would be imported and run; name it"),
        ("algo: ppo\nenv: os:getcwd", "os:getcwd': a file names this module"),
        ("algo: !!python/object/apply:os.system [ls]", "not a YAML file"),
        ("a: &a [x, x]\nb: [*a, *a]", "aliases are not read"),
        ("algo: ppo\nalgo: dqn", "a name occurs twice"),
        ("[ppo]", "must hold fields by their names"),
        ("format: 7", "format '7', expected 1"),
        ("command: evolve\nalgo: ppo", "is a config file of purerl evolve, not of purerl train"),
        ("command: rm", "command = 'rm': must be one of train, sweep, evolve"),
        ("algo: ppo\nseeds: [0, 2]", "seeds must be whole numbers, at least one, each one more than the one before"),
        ("algo: ppo\nenv_params: {gravity: .nan}\nenv: CartPole-v1", "gravity"),
        ("[" * 100_000, "not a YAML file"),
    ],
)
def test_files_that_are_refused(text, line, tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    run("train", "--config", path, "--out", tmp_path / "run", expect=2)
    error = capsys.readouterr().err
    assert line in error and "Traceback" not in error and not (tmp_path / "run").exists()


def test_somebodys_own_run(copy, capsys):
    path = copy / "config.json"
    path.write_text(path.read_text().replace('"env": "CartPole-v1"', '"env": "nowhere:make"'))
    run("resume", copy, expect=2)
    assert "names this module, which would be imported and run, and is new here; --trust" in capsys.readouterr().err
    run("resume", copy, "--trust", expect=2)
    assert "cannot import nowhere" in capsys.readouterr().err


SIGNALS = """
import hashlib, signal, sys, time
from purerl import interrupts
with interrupts.leaving():
    with interrupts.cleaning(lambda: print("cleaned", flush=True)):
        if sys.argv[1] == "deferred":
            with interrupts.deferred() as received:
                print("ready", flush=True)
                while not received:
                    time.sleep(0.01)
                print("received", received[0], flush=True)
                hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # no Python handler would run in here
        print("ready", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["deferred", "at once"])
def test_signals(number, mode):
    """Without anything to save a process leaves at once, in whatever it is; a run at the second signal."""
    process = subprocess.Popen([sys.executable, "-c", SIGNALS, mode], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        if mode == "deferred":
            assert process.stdout.readline() == f"received {number.value}\n"
            process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert process.stdout.read() == "cleaned\n"
    finally:
        process.kill()


@pytest.mark.weekly
def test_interrupted_while_compiling(tmp_path):
    """Exit code 130, no traceback, and no directory."""
    command = [sys.executable, "-m", "purerl.cli", *RUNS["dqn"], "--out", str(tmp_path / "run")]
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    while "compiling" not in (line := process.stderr.readline()):
        assert line
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130 and process.stderr.read() == "" and not (tmp_path / "run").exists()


def at(state, number):
    """A state of A2C, one update an iteration, as if so many iterations were behind it."""
    is_count = lambda x: isinstance(x, counters.Count)

    def moved(x):
        return jax.tree.map(lambda old, new: new.reshape(old.shape), x, counters.of(number)) if is_count(x) else x

    return jax.tree.map(moved, state, is_leaf=is_count)


@pytest.mark.weekly
def test_learning_rate_at_a_hundred_billion_frames():
    """In the middle of a training of 2 * 10^11 frames a step has half the size that it has at the start."""
    config = a2c.Config(num_envs=2, num_steps=8, hidden_sizes=(8,), total_steps=2 * 10**11)
    trainer = a2c.make_trainer(config, envs.make("CartPole-v1"))
    step, start = jax.jit(trainer.step), trainer.init(jax.random.key(0))
    params = lambda state: trainer.learner.policy(state.learner).params
    moved = [
        jax.tree.map(lambda new, old: new - old, params(step(state)[0]), params(start))
        for state in (start, at(start, config.num_iterations // 2))
    ]
    jax.tree.map(lambda all, half: np.testing.assert_allclose(half, all / 2, atol=1e-7), *moved)
    assert max(float(abs(x).max()) for x in jax.tree.leaves(moved[1])) > 1e-4


@pytest.mark.rest
def test_beyond_a_hundred_billion_frames(tmp_path):
    """A run at frame 10^11 and more, in iterations beyond 2^31: its log counts on, and it goes on in the same bits."""
    frames, size = 10**11, 2 * 8
    given = parsing.training("train", "a2c", TrainOptions, [*SMALL, "--total-steps", str(frames + 64 * size)])
    options = dataclasses.replace(given.options, checkpoint_seconds=1e-9)
    described = describe("a2c", options, given.config)
    done = frames // size
    assert done > 2**31

    def begin(name):
        run = TrainingRun(described, Setup.of(described), options, tmp_path / name, Console(stderr=True))
        (run.directory / "checkpoints").mkdir(parents=True)
        return run

    whole, other = begin("whole"), begin("other")
    program = compile_program(whole.setup.make_trainer, whole.setup.members)
    for run_ in (whole, other):
        state = at(program.begin(whole.setup.members), done)
        about = {"batch_size": 1, "seconds": 0.0}
        checkpoint.save(run_.directory / "checkpoints" / "0", done, state, about)
    first = checkpoint.newest(whole.directory / "checkpoints" / "0")
    expected = training.train_batches(whole, program, ResumePoint([first]), [])
    rows = [json.loads(line) for line in (whole.directory / run_directory.METRICS).read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [frames + size * i for i in range(1, 65)]
    assert rows[-1]["iteration"] == done + 64 and expected.counted == [frames + 64 * size]

    class Stop(list):
        def __bool__(self):
            return len(checkpoint.steps(other.directory / "checkpoints" / "0")) > 1

        def __getitem__(self, place):
            return int(signal.SIGINT)

    so_far = ResumePoint([checkpoint.newest(other.directory / "checkpoints" / "0")])
    training.train_batches(other, program, so_far, Stop())
    step = checkpoint.newest(other.directory / "checkpoints" / "0")
    assert done < step.number < done + 64
    again = training.train_batches(other, program, ResumePoint([step]), [])
    jax.tree.map(np.testing.assert_array_equal, again.policy, expected.policy)
    logs = [(run_.directory / run_directory.METRICS).read_text() for run_ in (whole, other)]
    assert logs[0] == logs[1]


def test_locks_and_digests_are_of_this_run(copy):
    file = config_file.read(copy / config_file.NAME)
    changed = {**file.fields, "config": {**file.fields["config"], "total_steps": 7}}
    assert config_file.digest(changed) == config_file.digest(file.fields)
    changed["config"]["gamma"] = 0.5
    assert config_file.digest(changed) != config_file.digest(file.fields)
    with pytest.raises(ConfigError, match="No such file"):
        config_file.read(copy / "none.yaml")


@pytest.mark.parametrize("step", ["5", "0/5"])
def test_only_a_finished_step_is_a_checkpoint(step, tmp_path):
    """Of a search, and of a batch of a training; a step is moved to its place once it is written."""
    place = tmp_path / "checkpoints" / step
    written = place.with_name("5.tmp")
    assert not has_checkpoints(tmp_path)
    written.mkdir(parents=True)
    (written / "card.json").touch()
    assert not has_checkpoints(tmp_path)
    written.rename(place)
    assert has_checkpoints(tmp_path)
