"""Each copy of an environment is made where it is stepped, and closed there once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from purerl import envs
from purerl.cli import main
from purerl.errors import ConfigError
from purerl.hosts import copies, making, opening, pool
from purerl.hosts.bundle import Recipe
from purerl.hosts.opening import Decided, How

MODULE = """
import os, subprocess, sys, time
import gymnasium, numpy as np, purerl
from gymnasium import spaces

def note(word):
    with open("count.txt", "a") as file:
        file.write(f"{word} {os.getpid()}\\n")

class Counted(gymnasium.Env):
    metadata = {"render_modes": ["human", "rgb_array"]}
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode="human", length=10, uneven=0, dies=0, fails=0, seconds=0.0):
        note(f"made {render_mode}")
        self.length, self.uneven, self.dies, self.fails, self.seconds = length, uneven, dies, fails, seconds
        self.render_mode, self.closed, self.steps = render_mode, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.end = 0, self.length
        if self.uneven and self.np_random.random() < 0.2:
            self.end = self.length * self.uneven
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t, self.steps = self.t + 1, self.steps + 1
        if self.steps == 1:
            note("stepped")
        time.sleep(self.seconds)
        if self.steps == self.dies:
            raise RuntimeError("died")
        return np.zeros(2, np.float32), 1.0, self.t >= self.end, False, {}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

    def close(self):
        note("again" if self.closed else "closed")
        self.closed += 1
        if self.fails:
            raise RuntimeError("cannot be closed")

class Once(Counted):
    made = 0

    def __init__(self):
        if Once.made:
            raise RuntimeError("once per process")
        Once.made += 1
        super().__init__()

class OneAlive(Counted):
    alive = 0

    def __init__(self):
        if OneAlive.alive:
            raise RuntimeError("another is alive")
        OneAlive.alive += 1
        super().__init__()

    def close(self):
        super().close()
        OneAlive.alive -= 1

class Spawns(Counted):
    def __init__(self):
        super().__init__()
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        note(f"child {self.child.pid}")

    def close(self):
        super().close()
        self.child.kill()
        self.child.wait()

ONE = []

def same():
    if not ONE:
        ONE.append(Counted(None))
    return ONE[0]

def handed(**options):
    return Counted(**options)

def several(num_envs=3):
    return Counted(None)

def strict(**options):
    if options:
        raise ValueError(f"unknown options {options}")
    return Counted(None)

def traced(**options):
    note(f"options={len(options)}")
    return purerl.envs.make("CartPole-v1")
"""
PPO = ["train", "ppo", "--total-steps", "128", "--num-steps", "16", "--num-envs", "4", "--num-minibatches", "1"]
SMALL = [*PPO, "--hidden-sizes", "8", "--eval-episodes", "6", "--overwrite"]


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """A folder with the module, in which commands run; its name is new, so that it is imported anew."""
    name = f"counted_{tmp_path.name}_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


def words():
    path = Path("count.txt")
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def run(*args):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, args)))
    return ended.value.code


def assert_equal(most):
    seen = words()
    assert 0 < seen["made"] == seen["closed"] <= most and not seen["again"]


@pytest.mark.rest
def test_what_train_and_eval_make_is_stepped_and_closed(counted):
    """Training has 4 copies, which the evaluation then takes."""
    assert run(*SMALL, "--env", f"{counted}:Counted", "--workers", "none", "--out", "run") == 0
    assert_equal(4)
    assert set(Path("count.txt").read_text().split()) >= {"None"} and "human" not in Path("count.txt").read_text()
    Path("count.txt").unlink()
    assert run("eval", "run", "--episodes", "5", "--eval-envs", "2", "--trust") == 0
    assert_equal(3)  # one is timed where workers then win
    Path("count.txt").unlink()
    assert run("render", "run", "--trust", "--max-steps", "12", "--out", "film.gif") == 0
    assert_equal(1)
    assert "made rgb_array" in Path("count.txt").read_text()


@pytest.mark.rest
@pytest.mark.parametrize(
    "how", [("--ahead", "1"), pytest.param(("--double-buffering", "on"), marks=pytest.mark.weekly)], ids="-".join
)
def test_what_a_thread_steps_is_looked_at_in_it(counted, how):
    """The training has 4 copies in threads, the evaluation 4 in this one."""
    assert run(*SMALL, "--env", f"{counted}:Counted", "--workers", "none", "--out", "run", *how) == 0
    assert_equal(8)
    assert words()["stepped"] == 8


def test_functions_that_hand_on_what_they_are_given_are_told_of_drawing(counted):
    for name in "handed", "strict":
        with copies.session():
            making.make(f"{counted}:{name}", {}).batch(2).close()
    assert_equal(4)
    assert Path("count.txt").read_text().count("made None") == 4
    envs.make(f"{counted}:traced")
    assert Path("count.txt").read_text().split()[-2] == "options=0"


def test_a_registered_one_is_made_with_its_longer_limit_at_once(counted, monkeypatch):
    monkeypatch.syspath_prepend(".")
    gymnasium.register("Limited-v0", entry_point=f"{counted}:Counted", max_episode_steps=3)
    try:
        with copies.session():
            envs.make("gymnasium/Limited-v0", max_episode_steps=5).host.batch(1).close()
    finally:
        gymnasium.registry.pop("Limited-v0")
    assert_equal(1)


def test_what_is_refused_for_its_own_num_envs_is_closed(counted):
    with pytest.raises(ConfigError, match="num_envs = 3"):
        making.make(f"{counted}:several", {})
    assert_equal(1)


def test_check_env_steps_what_it_makes(counted):
    assert run("check-env", f"{counted}:Counted", "--envs", "2", "--steps", "12") == 0
    assert_equal(3)
    assert words()["stepped"] == 3


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["Once", "OneAlive", "Spawns"])
def test_one_copy_for_each_worker_and_one_at_all(counted, name):
    assert run(*SMALL, "--env", f"{counted}:{name}", "--workers", "4", "--out", "run") == 0
    assert_equal(8)
    Path("count.txt").unlink()
    sys.modules.pop(counted)
    one = [*SMALL, "--num-envs", "1", "--workers", "none", "--out", "run"]
    assert run(*one, "--env", f"{counted}:{name}") == 0
    assert_equal(1)
    for line in Path("count.txt").read_text().splitlines():
        if line.startswith("child"):
            with pytest.raises(ProcessLookupError):
                os.kill(int(line.split()[1]), 0)


@pytest.mark.weekly
def test_evaluations_in_what_can_exist_once_are_refused_before_the_training(counted, capsys):
    one = [*SMALL, "--num-envs", "1", "--workers", "none", "--out", "run", "--eval-every", "1024"]
    assert run(*one, "--env", f"{counted}:OneAlive") == 2
    assert "error: eval_every = 1024:" in capsys.readouterr()[1]
    assert Path("run/metrics.jsonl").read_text() == ""
    assert_equal(1)


def played(host, workers, steps):
    who, how = Decided(workers, 1), How(worker_restarts=3)
    with opening.opened(host, 4, how, who, lambda line: None) as (stepper,):
        stepper.reset(np.arange(4))
        for _ in range(steps):
            stepper.send(np.zeros(4, np.int32))
            stepper.receive()


@pytest.mark.rest
def test_a_worker_that_raises_closes_its_copies(counted):
    params = {"dies": 12}
    with copies.session():
        host = making.make(f"{counted}:Counted", params)
        assert opening.decided(host, 4, 4, How(workers="2")).workers == 2
        played(host, 2, 14)
    seen = words()
    assert seen["made"] == seen["closed"] == 1 + 4 + 4  # looked at, first workers, restarted workers


def test_a_close_that_fails_is_told_once(counted, capfd):
    with copies.session():
        played(making.make(f"{counted}:Counted", {"fails": 1}), 0, 3)
    error = capfd.readouterr().err
    assert error.count("close raised RuntimeError: cannot be closed") == 1 == error.count("\n")
    assert_equal(4)


def test_an_error_closes_what_was_made(counted):
    host = making.make(f"{counted}:Counted", {"dies": 2})
    with pytest.raises(Exception, match="died"):
        played(host, 0, 3)
    assert_equal(4)


def test_the_same_instance_is_refused(counted):
    with pytest.raises(ConfigError, match="returns the same instance again") as error:
        making.make(f"{counted}:same", {}).batch(2)
    assert "\n" not in str(error.value)
    assert run("check-env", f"{counted}:same") == 2


@pytest.mark.weekly
@pytest.mark.parametrize("workers", ["none", "2"])
def test_a_signal_closes_everything(counted, workers):
    """During the evaluation, which nothing defers."""
    args = [*SMALL, "--env", f"{counted}:Counted", "--env-params", "seconds=0.02", "--workers", workers]
    process = subprocess.Popen(
        [sys.executable, "-m", "purerl.cli", *args, "--eval-episodes", "5000", "--out", "run"],
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "100 %" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert_equal(8)


def test_episodes_are_shared_among_few_copies_and_do_not_depend_on_their_number(counted):
    """They are seeded one by one; only what they need is stepped."""
    results = [json_of(counted, each, workers) for each, workers in ((7, 0), (2, 0), (3, 2))]
    assert results[0] == results[1] == results[2] and len(set(results[0])) > 1


def json_of(counted, each, workers):
    """Plays 7 episodes in ``each`` copies without a policy, and returns their lengths in the order of their seeds."""
    host = making.make(f"{counted}:Counted", {"uneven": 3, "length": 3})
    several = -(-7 // each)
    seeds = np.full(several * each, -1)
    seeds[:7] = np.arange(7) + 5
    left = np.ascontiguousarray(seeds.reshape(several, each).T)
    lengths, at, time = np.zeros(7, int), np.zeros(each, int), np.zeros(each, int)
    games = (several, 8)
    with opening.opened(host, each, How(), Decided(workers, 1), lambda line: None, games) as (stepper,):
        stepper.play(left, 8)
        while True:
            stepper.send(np.zeros(each, np.int32))
            turn = stepper.receive()
            for copy in range(each):
                episode = copy + at[copy] * each
                if episode >= 7:
                    assert turn.reward[copy] == 0
                    continue
                time[copy] += 1
                if turn.last[copy] or time[copy] == 8:
                    lengths[episode], time[copy], at[copy] = time[copy], 0, at[copy] + 1
            if (np.arange(each) + at * each >= 7).all():
                return lengths.tolist()


def test_names_are_looked_up_as_objects():
    import gymnasium

    class Mine(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(self.observation_space.shape, np.float32), {}

    first = envs.make(Mine)
    Mine.observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    assert (first.observation_space.shape, envs.make(Mine).observation_space.shape) == ((2,), (3,))
    assert (
        envs.make(lambda: Mine()).host.here and envs.make(gymnasium.spec("Acrobot-v1")).name == "gymnasium/Acrobot-v1"
    )
    with pytest.raises(ConfigError, match="workers = '2'.*workers cannot import"):
        opening.decided(first.host, 4, 4, How(workers="2"))
    assert opening.decided(first.host, 1, 1, How()).workers == 0
    with pytest.raises(ConfigError, match="must be a name, a class"):
        envs.make(3)


def test_files_and_ids_of_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("json.py").write_text(MODULE)
    register = "from gymnasium.envs.registration import register\n"
    cart = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    Path("limits_of_mine.py").write_text(register + f"register('FieldCart-v3', {cart!r}, max_episode_steps=77)\n")
    assert making.make("./json.py:Counted", {"render_mode": None}).action_space.n == 2
    with pytest.raises(ConfigError, match=r"json has no 'Counted' \(.*was imported\); it hides your json.py"):
        making.make("json:Counted", {})
    for name in ("limits_of_mine:FieldCart-v3", "gymnasium/limits_of_mine:FieldCart-v3"):
        assert envs.make(name).host.action_space.n == 2
    with pytest.raises(ConfigError, match="there is no file gone.py"):
        making.make("gone.py:Counted", {})
    with pytest.raises(ConfigError, match="unknown environment; nearest: .*gymnasium/PACKAGE:highway-v0"):
        making.make("gymnasium/highway-v0", {})
    with pool.open(Recipe("./json.py:Counted", {}), 1, num_workers=1) as opened:
        assert opened.steppers[0].reset(np.arange(1))[0].shape == (1, 2)
