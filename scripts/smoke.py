"""A short run of every algorithm, of a search and its resumption, of a curriculum, and on the host: whether purerl
works on this Python and this jax.

    python scripts/smoke.py [PART/PARTS]

With 1/2, every second algorithm from the first on; with 2/2, the others. All but PPO compile quickly. Prints a line for
each and exits with 1 if any fails. Nothing is learned in so few steps, and nothing is asserted about values: that is
what the tests are for.
"""

import argparse
import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

ENVS = "CartPole-v1", "Pendulum-v1", "TwoStep-v0", "Landmarks-v0"
SMALL = ["--hidden-sizes", "8", "--compilation-cache", "off"]
QUICK = ["--compile", "quick"]
ON_POLICY = ["--num-envs", "4", "--num-steps", "16", "--total-steps", "256"]
REPLAY = ["--num-envs", "4", "--num-steps", "16", "--total-steps", "512", "--warmup-steps", "192", "--capacity", "256"]
OFFLINE = ["--num-updates", "4", "--batch-size", "16", "--total-steps", "8"]


def commands(directory: Path, part: int, parts: int) -> dict[str, list[str]]:
    """What is run, by the name that is printed: of the algorithms every ``parts``-th, ppo, and what goes on with it."""
    from purerl import envs
    from purerl.algos import ALGORITHMS
    from purerl.runs.describing.environments import team_problems

    made = [envs.make(name) for name in ENVS]
    demos = {env: str(directory / f"{env}.safetensors") for env in ENVS[:2]}
    results = {
        f"record {env}": ["record", "random", "--env", env, "--episodes", "2", "--out", path]
        for env, path in demos.items()
    }
    for i, (name, algorithm) in enumerate(ALGORITHMS.items()):
        if i % parts != part - 1 and name != "ppo":
            continue
        config = algorithm.Config()
        problems = [algorithm.problems(config, env) + team_problems(algorithm, config, env) for env in made]
        env = ENVS[problems.index([])]
        alone = not hasattr(config, "num_steps")
        sizes = OFFLINE if alone else REPLAY if hasattr(config, "capacity") else ON_POLICY
        run = ["--env", env, "--eval-episodes", "2", "--out", str(directory / name)]
        data = [word for option in algorithm.required for word in (f"--{option}", demos[env])]
        results[name] = ["train", name, *SMALL, *([] if name == "ppo" else QUICK), *sizes, *run, *data]
    search = ["evolve", "value-loss", "--env", ENVS[0], *SMALL, *QUICK, *ON_POLICY, "--population", "2"]
    search += ["--out", str(directory / "search")]
    results["a search"] = [*search, "--generations", "2"]
    results["its resumption"] = [
        "resume",
        str(directory / "search"),
        "--generations",
        "4",
        "--compilation-cache",
        "off",
    ]
    results["a longer ppo"] = ["resume", str(directory / "ppo"), "--total-steps", "512", "--compilation-cache", "off"]
    results["eval"] = ["eval", str(directory / "ppo"), "--episodes", "2", "--compilation-cache", "off"]
    maze = ["--env", "Maze-v0", *SMALL, *QUICK, *ON_POLICY, "--eval-episodes", "2", "--out", str(directory / "maze")]
    results["a curriculum"] = ["train", "ppo", *maze, "--curriculum", "accel", "--level-capacity", "8"]
    host = ["--env", "gymnasium/CartPole-v1", *SMALL, *QUICK, "--eval-episodes", "2"]
    for name, sizes in {"ppo": ON_POLICY, "dqn": REPLAY}.items():
        overlap = ["--workers", "2", "--double-buffering", "on", "--ahead", "1"] if name == "ppo" else []
        results[f"{name} on the host"] = [
            "train",
            name,
            *host,
            *sizes,
            *overlap,
            "--out",
            str(directory / f"host-{name}"),
        ]
    longer = ["--total-steps", "1024", "--compilation-cache", "off"]
    results["a longer one there"] = ["resume", str(directory / "host-dqn"), *longer]
    return results


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("part", nargs="?", default="1/1", metavar="PART/PARTS", help="which algorithms (default: all)")
    return result


def main() -> int:
    """Runs everything and returns the exit code."""
    from purerl.cli import main as purerl

    failed = 0
    part, parts = map(int, parser().parse_args().part.split("/"))
    with tempfile.TemporaryDirectory() as directory:
        for name, command in commands(Path(directory), part, parts).items():
            start, output, code = time.perf_counter(), io.StringIO(), 1
            with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
                try:
                    purerl(command)
                except SystemExit as stop:
                    code = stop.code or 0
            print(f"{'passed' if code == 0 else 'FAILED'} {name} in {time.perf_counter() - start:.1f} s", flush=True)
            if code:
                failed += 1
                print(output.getvalue())
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
