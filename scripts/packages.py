"""Whether environments of real packages train from a fresh install, by one command each.

    python scripts/packages.py [--only minigrid ale-py] [--jobs 1] [--timeout 600] [--folder FOLDER]

For each package it makes a virtual environment on top of one that has purerl of this checkout, installs the package
there together with purerl's own requirements, and types one command for each of its environments, in an empty folder,
without a display. Prints a row of the table of docs/host-environments.md for each: package, version, what is typed,
exit code and what is told. Exits with 1 if one was not as `PACKAGES` says.

``--folder`` keeps the virtual environments and the whole output of the commands there, and uses the first environment
again.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import scales

ROOT = Path(__file__).resolve().parent.parent
SMALL = "--total-steps 2048 --num-envs 2 --num-steps 64 --hidden-sizes 16 --eval-episodes 2 --compile quick"
"""What every command ends with; the table leaves it out."""
LONGEST = 240
"""Characters of what is told that a row shows."""


class Task(NamedTuple):
    """An environment to train on: ``words`` follow ``--env``. ``refused``: the line that it ends in says this."""

    words: str
    refused: str = ""


class Package(NamedTuple):
    """What is installed, and the environments that are tried; the first requirement gives the version.

    ``own``: the text of ``own.py``, a file beside the user. ``agents``: environments of several agents.
    """

    requirements: tuple[str, ...]
    tasks: tuple[Task, ...]
    own: str = ""
    agents: bool = False


CRAFTER = """
import crafter
import gymnasium
import numpy as np


class Crafter(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(17)

    def reset(self, seed=None, options=None):
        self.env = crafter.Env(seed=seed)
        return self.env.reset(), {}

    def step(self, action):
        obs, reward, over, info = self.env.step(action)
        return obs, reward, over, False, info
"""
TREASURE = """
import mo_gymnasium
import numpy as np


def treasure():
    return mo_gymnasium.wrappers.LinearReward(mo_gymnasium.make("deep-sea-treasure-v0"), np.array([0.9, 0.1]))
"""
OBJECTIVES = "can weigh several objectives"
"""What is told of environments with a reward of several parts for one agent."""

PACKAGES = {
    "minigrid": Package(
        ("minigrid",), (Task("gymnasium/MiniGrid-Empty-5x5-v0"), Task("gymnasium/BabyAI-GoToLocal-v0"))
    ),
    "highway-env": Package(
        ("highway-env",),
        (
            Task("gymnasium/highway_env:highway-fast-v0"),
            Task("gymnasium/highway_env:parking-v0"),
            Task("gymnasium/highway-fast-v0", "unknown environment"),
        ),
    ),
    "gymnasium-robotics": Package(  # its environments of Fetch and Shadow cannot be made with MuJoCo 4
        ("gymnasium-robotics", "mujoco<3.4"),
        (
            Task("gymnasium/gymnasium_robotics:FetchReach-v4"),
            Task("gymnasium/gymnasium_robotics:PointMaze_UMaze-v3"),
            Task("gymnasium/gymnasium_robotics:AdroitHandDoor-v1"),
        ),
    ),
    "ale-py": Package(
        ("ale-py", "opencv-python-headless"), (Task("gymnasium/ALE/Pong-v5 --env-params atari=1 --preset image"),)
    ),
    "shimmy": Package(  # dm_control 1.0.50 reads what MuJoCo 4 no longer has
        ("shimmy[dm-control]", "mujoco<3.4"), (Task("gymnasium/shimmy:dm_control/cartpole-swingup-v0"),)
    ),
    "crafter": Package(("crafter",), (Task("own:Crafter"),), CRAFTER),
    "flappy-bird-gymnasium": Package(
        ("flappy-bird-gymnasium",), (Task("gymnasium/flappy_bird_gymnasium:FlappyBird-v0"),)
    ),
    "mo-gymnasium": Package(
        ("mo-gymnasium",),
        (Task("own:treasure"), Task("gymnasium/mo_gymnasium:deep-sea-treasure-v0", OBJECTIVES)),
        TREASURE,
    ),
    "pybullet-envs-gymnasium": Package(
        ("pybullet-envs-gymnasium",), (Task("gymnasium/pybullet_envs_gymnasium:HopperBulletEnv-v0"),)
    ),
    "panda-gym": Package(("panda-gym",), (Task("gymnasium/panda_gym:PandaReach-v3"),)),
    "pyflyt": Package(("PyFlyt",), (Task("gymnasium/PyFlyt.gym_envs:PyFlyt/QuadX-Hover-v1"),)),
    "gym-pusht": Package(("gym-pusht",), (Task("gymnasium/gym_pusht:gym_pusht/PushT-v0"),)),
    "metaworld": Package(("metaworld",), (Task("gymnasium/metaworld:Meta-World/MT1 --env-params env_name=reach-v3"),)),
    "vizdoom": Package(("vizdoom",), (Task("gymnasium/vizdoom.gymnasium_wrapper:VizdoomBasic-v1 --preset image"),)),
    "nle": Package(("nle",), (Task("gymnasium/nle:NetHackScore-v0"),)),
    "popgym": Package(("popgym",), (Task("gymnasium/popgym:popgym-RepeatPreviousEasy-v0"),)),
    "gymnasium-2048": Package(
        ("gymnasium-2048",), (Task("gymnasium/gymnasium_2048:gymnasium_2048/TwentyFortyEight-v0"),)
    ),
    "gym-anytrading": Package(("gym-anytrading",), (Task("gymnasium/gym_anytrading:stocks-v0"),)),
    "pettingzoo": Package(
        ("pettingzoo[sisl,butterfly]",),
        (
            Task("pettingzoo/sisl.multiwalker_v9"),
            Task("pettingzoo/sisl.pursuit_v5"),
            Task("pettingzoo/butterfly.knights_archers_zombies_v11"),
        ),
        agents=True,
    ),
    "mpe2": Package(("mpe2",), (Task("pettingzoo/mpe.simple_spread_v3"),), agents=True),
    "magent2": Package(
        ("magent2",),
        (
            Task("magent2.environments.gather_v5:parallel_env"),
            Task("magent2.environments.adversarial_pursuit_v4:parallel_env", "different spaces"),
        ),
        agents=True,
    ),
    "lbforaging": Package(("lbforaging",), (Task("gymnasium/lbforaging:Foraging-8x8-2p-1f-v3"),), agents=True),
    "multigrid": Package(
        ("multigrid",), (Task("gymnasium/multigrid.envs:MultiGrid-Empty-8x8-v0 --env-params agents=2"),), agents=True
    ),
    "gym-multigrid": Package(
        ("gym-multigrid",), (Task("gymnasium/gym_multigrid:multigrid-collect-single-v0", "np.float_"),), agents=True
    ),
    "momaland": Package(("momaland",), (Task("momaland.envs.beach.mobeach_v0:parallel_env", OBJECTIVES),), agents=True),
    "rware": Package(("rware",), (Task("gymnasium/rware:rware-tiny-2ag-v2"),), agents=True),
}


def words(task: Task) -> list[str]:
    """Returns the words of the command after ``purerl``."""
    return ["train", "ppo", "--env", *shlex.split(task.words), *shlex.split(SMALL), "--out", "run"]


def told(output: str) -> str:
    """Returns, in one line, what a command said of the environment, and how it ended: its last line that is not blank.

    The advice that follows a training, and where it was written, are left out.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("resume with")]
    said = [line for line in lines[:-1] if "env = " in line]
    last = [line.rpartition(";")[0] if line.startswith("completed") else line for line in lines[-1:]]
    return "; ".join([*said, *last])[:LONGEST]


def row(name: str, version: str, task: Task, code: int, text: str) -> str:
    """Returns a row of the table."""
    return f"| {name} | {version} | `--env {task.words}` | {code} | {text.replace('|', '/')} |"


def as_said(task: Task, code: int, text: str) -> bool:
    """Returns whether a command ended as its task says: it trained, or ended in the line that the task has."""
    return code != 0 and task.refused in text if task.refused else code == 0


def based(folder: Path) -> Path:
    """Returns the Python of a virtual environment in ``folder`` that has purerl of this checkout; made once."""
    python, made = folder / "base" / "bin" / "python", folder / "base" / "made"
    if not made.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "base"], check=True)
        _pip(python, python, "-e", str(ROOT), log=folder / "base.log").check_returncode()
        made.touch()
    return python


def layered(base: Path, folder: Path) -> Path:
    """Returns the Python of a new virtual environment in ``folder`` that also has what that of ``base`` has."""
    subprocess.run([base, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    below, site = (next((each / "lib").glob("python3*/site-packages")) for each in (base.parent.parent, folder))
    (site / "base.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
    return folder / "bin" / "python"


def rows(name: str, base: Path, folder: Path, timeout: float) -> Iterator[tuple[str, bool]]:
    """Installs a package and yields for each of its environments the row and whether it is as `PACKAGES` says."""
    package, home = PACKAGES[name], folder / name
    home.mkdir(exist_ok=True)
    (home / "own.py").write_text(package.own)
    try:
        python = layered(base, home / "venv")
        installed = _pip(base, python, "purerl", *package.requirements, log=home / "pip.log", timeout=timeout)
        if installed.returncode:
            raise subprocess.SubprocessError((home / "pip.log").read_text().strip().splitlines()[-1][:LONGEST])
    except subprocess.SubprocessError as error:
        for task in package.tasks:
            yield row(name, "not installed", task, 1, " ".join(str(error).split())), False
        return
    ask = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    distribution = package.requirements[0].partition("[")[0]
    version = subprocess.run([python, "-c", ask, distribution], capture_output=True, text=True).stdout.strip()
    for i, task in enumerate(package.tasks):
        code, output = _typed(python, words(task), home, timeout)
        (home / f"{i}.log").write_text(output)
        yield row(name, version, task, code, told(output)), as_said(task, code, output)
        subprocess.run(["rm", "-rf", home / "run"], check=True)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description="Whether environments of real packages train from a fresh install.")
    result.add_argument("--only", nargs="+", choices=PACKAGES, default=list(PACKAGES), metavar="PACKAGE")
    result.add_argument("--jobs", type=int, default=1, help="packages tried at once")
    result.add_argument("--timeout", type=float, default=600, help="seconds of an installation, and of a command")
    result.add_argument("--folder", type=Path, help="where the environments and the outputs are kept")
    scales.add(result, "the network", only=["minigrid"])
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and returns the exit code."""
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        base = based(folder)
        print("| package | version | what to type | exit code | what is told |\n|---|---|---|---|---|", flush=True)

        def tried(name: str) -> list[str]:
            wrong = []
            for text, right in rows(name, base, folder, options.timeout):
                print(text, flush=True)
                wrong += [] if right else [text]
            return wrong

        with ThreadPoolExecutor(options.jobs) as pool:
            wrong = [text for each in pool.map(tried, options.only) for text in each]
    print(*(["", "not as expected:", *wrong] if wrong else ["", "all as expected"]), sep="\n", flush=True)
    return int(bool(wrong))


def _pip(base: Path, python: Path, *asked: str, log: Path, timeout: float | None = None) -> subprocess.CompletedProcess:
    """Installs what is ``asked`` where ``python`` is, with the pip of ``base``. Its output is written to ``log``."""
    command = [base, "-m", "pip", "--python", python, "install", "--quiet", *asked]
    with log.open("w") as output:
        return subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, timeout=timeout)


def _typed(python: Path, typed: Sequence[str], home: Path, timeout: float) -> tuple[int, str]:
    """Returns the exit code of ``purerl`` and its output; 124: it took longer."""
    left_out = "PYTHONPATH", "DISPLAY", "SDL_VIDEODRIVER", "MUJOCO_GL"
    clean = {each: value for each, value in os.environ.items() if each not in left_out} | {"NPROC": "1"}
    command = [python, "-m", "purerl.cli", *typed]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=clean, cwd=home,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        output = process.communicate(timeout=timeout)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its workers, too
        return 124, process.communicate()[0]


if __name__ == "__main__":
    sys.exit(main())
