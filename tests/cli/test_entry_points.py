"""The ways in: names and help without JAX, mistyped names and flags, anybody's own parts, plans that measure, files."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest
from commands import own_module, run

from purerl import envs, ppo
from purerl.algos import ALGORITHMS
from purerl.catalogue import families
from purerl.cli import main, parsing
from purerl.errors import ConfigError
from purerl.runs.describing.options import TrainOptions
from purerl.runs.describing.reading_options import EvalOptions
from purerl.runs.running import forecast
from purerl.store.writing import atomic
from purerl.version import __version__

SMALL = ["--total-steps", "512", "--num-envs", "4", "--num-steps", "32", "--hidden-sizes", "8", "--eval-episodes", "2"]
OWN = """
from purerl import envs, ppo
from purerl.algos import ALGORITHMS
from purerl.algos.ppo import ppo as whole
from purerl.loops.evaluation import random_player
from purerl.spaces import Discrete

mine = whole._replace(name="mine")
number = 3


def make_env(*, stride=0.1, **more):
    return envs.make("CartPole-v1", gravity=9.8 + stride, **more)


def strict(stride):
    return make_env(stride=stride)


def nothing():
    pass


def fails(*_):
    return [][1]


def leaves(*_):
    raise SystemExit(0)


def leaves_within(*_):
    return make_env()._replace(step=leaves)


def huge():
    return make_env()._replace(action_space=Discrete(2**31))


def hesitates(env):
    return random_player(env)._replace(act=leaves)


late = mine._replace(own_learner=leaves)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A working directory with a module ``doors_own``."""
    with own_module(tmp_path, monkeypatch, "doors_own", OWN):
        yield tmp_path


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--help"], 0, ["train ALGO --env ENV", "--version"]),
        (["--version"], 0, [f"purerl {__version__}"]),
        (["train", "--help"], 0, ["usage: purerl train ALGO", "ppo"]),
        (["evolve", "--help"], 0, ["usage: purerl evolve SOCKET", "policy-drift"]),
        (["list", "--help"], 0, ["usage: purerl list", "--family"]),
        (["list", "algos"], 0, ["ppo", "qr-dqn"]),
        (["list", "envs"], 0, ["CartPole-v1", "probe/one-step", "Breakout-MinAtar", "brax/spring/ant"]),
        (["list", "envs", "--famly", "brax"], 2, ["--famly", "nearest: --family"]),
        (["tran"], 2, ["command = 'tran'", "nearest: train"]),
        (["train", "pppo", "--env", "CartPole-v1"], 2, ["algorithm = 'pppo'", "nearest: ppo"]),
        (["evolve", "polcy-drift", "--env", "x"], 2, ["socket = 'polcy-drift'", "nearest: policy-drift"]),
        (["evolve", "policy-drift", "--algo", "pppo"], 2, ["algo = 'pppo'", "nearest: ppo"]),
    ],
)
def test_names_need_no_jax(args, code, words):
    program = "import sys, atexit; atexit.register(lambda: print('jax' in sys.modules)); from purerl.cli import main; "
    result = subprocess.run(
        [sys.executable, "-c", program + "main(sys.argv[1:])", *args], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == code and result.stdout.endswith("False\n")
    assert all(word in result.stdout + result.stderr for word in words)
    assert len(result.stderr.splitlines()) == (1 if code else 0)


def test_every_native_name_is_made():
    for name in families()["native"] + families()["probe"]:
        assert envs.make(name).name == name


@pytest.mark.parametrize(
    ("flag", "nearest"),
    [
        ("--lr", "nearest: --learning-rate; "),
        ("--lr=3e-4", "nearest: --learning-rate; "),
        ("--ne", "nearest: --no-exact, --num-envs, --num-epochs; "),
        ("--learning_rte", "nearest: --learning-rate, "),
        ("--n-envs", "nearest: --num-envs, "),
        ("--level-capacty", "nearest: --level-capacity, "),
        ("--ent-coef", "nearest: --entropy-coef, "),
    ],
)
def test_unknown_flags(flag, nearest, capsys):
    run("train", "ppo", "--env", "CartPole-v1", flag, "3", expect=2)
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert err.startswith(f"purerl: error: {flag.partition('=')[0]}: unknown option; ") and nearest in err


def test_flags_with_underscores_and_positions():
    given = parsing.training("train", "ppo", TrainOptions, ["--env", "x", "--num_envs", "8", "--no-overwrite"])
    assert given.config.num_envs == 8 and given.options.env == "x"
    assert parsing.parse(EvalOptions, "purerl eval", ["runs/x", "--max_steps", "5"], positional=True).max_steps == 5
    with pytest.raises(ConfigError, match="^--run: unknown option"):
        parsing.parse(EvalOptions, "purerl eval", ["--run", "runs/x"], positional=True)


def test_help_texts_stand_alone(capsys):
    run("train", "apex", "--help", "all")
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "What to train on" in text and "Importance-sampling exponent (beta) at the end of training." in text
    assert "`purerl evolve td-loss`" in text


@pytest.mark.weekly
def test_own_parts_are_trained_planned_and_evaluated(own, capsys, monkeypatch):
    """Under a default name without ``:`` and ``/``; files have the modes that the umask allows."""
    mine = ["doors_own:mine", "--env", "doors_own:make_env", *SMALL, "--num-seeds", "3", "--agents-at-once", "2"]
    before = os.umask(0o027)
    try:
        run("train", *mine, "--env-params", "stride=0.2", "frame_stack=2")
    finally:
        os.umask(before)
    [directory] = (own / "runs").iterdir()
    assert directory.name.startswith("doors") and not set(":/ ") & set(directory.name)
    written = [path for path in directory.iterdir() if path.suffix]
    assert {"policy.safetensors", "policy.json", "config.json", "summary.json"} <= {path.name for path in written}
    assert {path.stat().st_mode & 0o777 for path in written} == {0o640}
    assert not any(path.suffix == ".tmp" for path in written)
    moved = shutil.copytree(directory, own / "moved")
    run("eval", str(moved), "--episodes", "2", expect=2)
    assert "algo = 'doors_own:mine': a file names this module" in capsys.readouterr().err
    run("eval", str(directory), "--episodes", "2", "--json")
    result = json.loads(capsys.readouterr().out)
    assert (result["algo"], result["env"]) == ("doors_own:mine", "doors_own:make_env")
    assert len(result["return_per_seed"]) == 3

    monkeypatch.setattr("purerl.runs.running.forecast.SECONDS", 0.05)  # so that nothing waits long
    plan = ["plan", *mine, "--env-params", "stride=0.2", "frame_stack=2"]
    run(*plan, "--json")
    estimate = json.loads(capsys.readouterr().out)
    assert estimate["estimated"] and estimate["steps_per_second"] * estimate["wall_seconds"] == pytest.approx(3 * 512)
    run(*plan, "--measure", "--json")
    actual = json.loads(capsys.readouterr().out)
    assert actual["batch_size"] == 2 and actual["steps_per_second"] > 0 and not actual["estimated"]
    assert actual["wall_seconds"] * actual["steps_per_second"] == pytest.approx(3 * 512)
    run(*plan, "--measure")
    assert {"speed", "whole training"} <= {line[:20].strip() for line in capsys.readouterr().out.splitlines()}


@pytest.fixture
def seen(monkeypatch):
    """Descriptions of what would run, of which nothing runs: that takes long, and says less of what was read."""
    seen = []
    monkeypatch.setattr("purerl.runs.running.train.train", lambda description, *_: seen.append(description) or 0)
    monkeypatch.setattr("purerl.meta.search.search", lambda description, options: seen.append(description) or 0)
    return seen


def test_transforms_are_swept_and_text_is_none_of_it(seen):
    params = ["sticky_actions=0,0.5", "randomise=length:0.4:0.6,tau:0.01:0.03", "observation_mask=1,3", "frame_stack=2"]
    run("sweep", "ppo", "--env", "CartPole-v1", "--env-params", *params)
    assert seen[0].swept == {"env.sticky_actions": [0.0, 0.5]}
    text = {"randomise": "length:0.4:0.6,tau:0.01:0.03", "observation_mask": "1,3"}
    assert seen[0].env_params == {**text, "frame_stack": 2}


@pytest.mark.usefixtures("own")
def test_own_parts_are_swept_and_evolved(seen):
    run("sweep", "doors_own:mine", "--env", "doors_own:make_env", *SMALL, "--env-params", "stride=0.2,0.4")
    assert (seen[0].algo, seen[0].env) == ("doors_own:mine", "doors_own:make_env")
    assert seen[0].swept == {"env.stride": [0.2, 0.4]}
    run("evolve", "policy-drift", "--algo", "doors_own:mine", "--env", "doors_own:make_env", *SMALL[:-2])
    assert (seen[1].algo, seen[1].envs) == ("doors_own:mine", ["doors_own:make_env"])


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["nope:mine", "--env", "x"], "algorithm = 'nope:mine': cannot import nope"),
        (["doors_own:nope", "--env", "x"], "algorithm = 'doors_own:nope': module doors_own has no 'nope'"),
        (["doors_own:number", "--env", "x"], "algorithm = 'doors_own:number': is int"),
        ([":mine", "--env", "x"], "algorithm = ':mine': must be MODULE:ATTRIBUTE"),
        (["ppo", "--env", "nope:make"], "env = 'nope:make': cannot import nope"),
        (["ppo", "--env", "doors_own:nope"], "env = 'doors_own:nope': module doors_own has no 'nope'"),
        (["ppo", "--env", "doors_own:"], "env = 'doors_own:': must be MODULE:ATTRIBUTE"),
        (["ppo", "--env", "doors_own:number"], "env = 'doors_own:number': is int"),
        (["ppo", "--env", "doors_own:nothing"], "env = 'doors_own:nothing': returns NoneType"),
        (["ppo", "--env", "doors_own:strict"], "env = 'doors_own:strict': cannot be called with no parameters"),
        (
            ["ppo", "--env", "doors_own:strict", "--env-params", "strde=1"],
            "env = 'doors_own:strict': unknown parameter strde; nearest: stride",
        ),
    ],
)
def test_own_parts_that_cannot_be(args, line, own, capsys):
    run("train", *args, *SMALL, expect=2)
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and err.startswith(f"purerl: error: {line}")
    assert not (own / "runs").exists()


CARTPOLE = ["--env", "CartPole-v1"]


@pytest.mark.parametrize(
    ("args", "code", "line", "function"),
    [
        (["record", "os:system", *CARTPOLE], 2, "policy = 'os:system': cannot be called: TypeError: ", ""),
        (["record", "os:name", *CARTPOLE], 2, "policy = 'os:name': is str", ""),
        (["record", "os:fspath", *CARTPOLE], 2, "policy = 'os:fspath': cannot be called: TypeError: ", ""),
        (["record", "builtins:repr", *CARTPOLE], 2, "policy = 'builtins:repr': gives str", ""),
        (["record", "doors_own:fails", *CARTPOLE], 2, "policy = 'doors_own:fails': cannot be called: IndexE", "fails"),
        (["record", "doors_own:hesitates", *CARTPOLE], 1, "your code raised SystemExit: 0 (", "leaves"),
        (["record", "random", "--env", "doors_own:huge"], 2, "env = 'doors_own:huge': action_space: Discrete", ""),
        (["record", "random", "--env", "os:system"], 2, "env = 'os:system': cannot be called with no parameters", ""),
        (["train", "ppo", "--env", "doors_own:huge"], 2, "env = 'doors_own:huge': action_space: Discrete", ""),
        (["train", "ppo", "--env", "doors_own:fails"], 2, "env = 'doors_own:fails': cannot be called: Ind", "fails"),
        (["plan", "ppo", "--env", "doors_own:leaves"], 2, "env = 'doors_own:leaves': cannot be called: Sys", "leaves"),
        (["train", "ppo", "--env", "doors_own:leaves_within"], 2, "env = 'doors_own:leaves_within': step: c", "leaves"),
        (["check-env", "doors_own:leaves"], 2, "env = 'doors_own:leaves': cannot be called: SystemExit: 0", "leaves"),
        (["check-env", "doors_exit:x"], 2, "env = 'doors_exit:x': cannot import doors_exit: SystemExit", "<module>"),
        (["train", "doors_own:late", *CARTPOLE, *SMALL], 2, "your code raised SystemExit: 0 (", "leaves"),
    ],
)
def test_own_code_that_fails_is_told_in_a_line(args, code, line, function, own, capsys):
    """Also if it exits as if all were well."""
    (own / "doors_exit.py").write_text("raise SystemExit\n")
    run(*args, *(["--out", "here"] if args[0] in ("record", "train") else []), expect=code)
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and err.startswith(f"purerl: error: {line}"), err
    assert not function or ("(doors_" in err and err.endswith(f" {function})\n")), err
    assert not (own / "here").exists()


def test_a_fault_of_this_package_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("purerl.cli.read.list_names", json.loads)  # a fault: it needs text
    with pytest.raises(TypeError, match="the JSON object must be str"):
        main(["list", "envs"])


def test_list_marks_what_is_not_installed(capsys, monkeypatch):
    for installed in (True, False):
        monkeypatch.setattr("purerl.cli.read.is_installed", lambda family, yes=installed: yes or family != "brax")
        run("list", "envs")
        lines = capsys.readouterr().out.splitlines()
        mark = "" if installed else '   (not installed: pip install "purerl[brax]")'
        assert f"brax/spring/ant{mark}" in lines and "CartPole-v1" in lines and len(lines) == len(envs.names())
        run("list", "envs", "--json")
        assert json.loads(capsys.readouterr().out) == envs.names()
    for family, names in families().items():
        run("list", "envs", "--family", family, "--json")
        assert json.loads(capsys.readouterr().out) == names == envs.names(family)
    run("list", "algos", "--json")
    assert json.loads(capsys.readouterr().out) == list(ALGORITHMS)
    run("list", "algos", "--family", "brax", expect=2)
    assert "is for environments only" in capsys.readouterr().err


def test_atomic_files(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), atomic(path) as temporary:
        temporary.write_text("half")
        1 / 0  # noqa: B018
    assert [file.name for file in tmp_path.iterdir()] == ["file"] and path.read_text() == "before"
    with atomic(path) as temporary:
        temporary.write_text("after")
    assert [file.name for file in tmp_path.iterdir()] == ["file"] and path.read_text() == "after"


def test_measured_time_counts_every_batch(monkeypatch):
    """With a clock that chunks set by hand: a beginning of 2 s, iterations of 0.5 s, and 3 batches of 2 agents."""
    from purerl.runs.describing.description import Setup, describe
    from purerl.runs.running.run_loop import Chunk

    config = ppo.Config(total_steps=1024, num_envs=4, num_steps=32)
    setup = Setup.of(describe("ppo", TrainOptions(env="CartPole-v1", num_seeds=5), config))
    clock = [100.0]

    def begin(members):
        assert members.size == 2
        clock[0] += 2.0

    def chunks(members, state, done, num_iterations):
        for length in (1, 4, 4, 4):
            clock[0] += 0.5 * length
            done += length
            yield Chunk(None, done, length, {})

    monkeypatch.setattr(forecast, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    closed = []
    program = SimpleNamespace(
        chunk=SimpleNamespace(batch_size=2), begin=begin, chunks=chunks, close=lambda: closed.append(True)
    )
    result = forecast.measured_speed(setup, program)
    assert closed and result.wall_seconds == pytest.approx(3 * (2.0 + 8 * 0.5))
    assert result.steps_per_second == pytest.approx(5 * 1024 / result.wall_seconds)
    assert result.in_words().splitlines()[1].endswith(" 18 s")


def test_devices(monkeypatch, capsys):
    """A kind of device that is not there is refused; one that is full says what may hold its memory."""
    run("train", "ppo", "--env", "CartPole-v1", *SMALL, "--device", "tpu", expect=2)
    assert "device = 'tpu':" in capsys.readouterr().err

    def full(*args):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr("purerl.runs.running.train.train", full)
    run("train", "ppo", "--env", "CartPole-v1", *SMALL, expect=4)
    assert "allocating 9 bytes.; give fewer --lanes" in capsys.readouterr().err
    monkeypatch.setattr(jax, "devices", lambda *_: [SimpleNamespace(platform="gpu")])
    monkeypatch.setattr("purerl.runs.describing.description.describe", full)
    monkeypatch.setenv("XLA_FLAGS", "--xla_of=1")
    run("train", "ppo", "--env", "CartPole-v1", *SMALL, "--device", "gpu", "--deterministic", expect=4)
    assert "set XLA_PYTHON_CLIENT_PREALLOCATE=false" in capsys.readouterr().err
    assert os.environ["XLA_FLAGS"] == "--xla_of=1 --xla_gpu_deterministic_ops=true"
