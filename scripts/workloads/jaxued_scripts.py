"""JaxUED's scripts of the maze (examples/ in its repository) beside ours, each in a fresh process.

    NPROC=1 python scripts/workloads/jaxued_scripts.py ours METHOD [--updates N] [--times T]
    NPROC=1 python scripts/workloads/jaxued_scripts.py CHECKOUT METHOD --python THEIR-PYTHON [--updates N] [--times T]

METHOD is dr, robust-plr, accel or paired. Both at JaxUED's sizes, those of ``--preset maze``: 32 environments,
256 steps, 5 epochs of one minibatch, an LSTM of 256; and with a buffer of 64 levels, so that replay begins at once.
Prints the seconds of N iterations, T times after the first, which compiles, and their frames. JaxUED's seconds are from
one log to the next, so that they hold an evaluation of one attempt in one maze, whose pictures it draws: the least that
its scripts do. Its ACCEL counts an update for levels that were changed, which is a part of an iteration here.
"""

import argparse
import itertools
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

SHARED = ["--checkpoint_save_interval", "0", "--eval_num_attempts", "1", "--eval_levels", "SixteenRooms"]
BUFFER = ["--level_buffer_capacity", "64"]
SCRIPTS = {
    "dr": ("maze_dr.py", []),
    "robust-plr": ("maze_plr.py", [*BUFFER, "--replay_prob", "0.5"]),
    "accel": ("maze_plr.py", [*BUFFER, "--replay_prob", "0.8", "--use_accel"]),
    "paired": ("maze_paired.py", []),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "robust-plr": {"level_capacity": 64},
    "accel": {"level_capacity": 64, "level_share": 0.89},
}
FRAMES = 32 * 256
"""Of a rollout."""


def theirs(checkout: str, python: str, method: str, updates: int, times: int) -> list[float]:
    """Returns the seconds of each round of a script of JaxUED, whose log goes nowhere."""
    script, more = SCRIPTS[method]
    rounds = ["--eval_freq", str(updates), "--num_updates", str(updates * (times + 1))]
    command = [python, str(Path(checkout) / "examples" / script), *SHARED, *rounds, *more]
    quiet = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "quiet")}
    output = subprocess.run(command, env=quiet, capture_output=True, text=True, check=True).stdout
    stamps = [float(line.split()[-1]) for line in output.splitlines() if line.startswith("logged at")]
    return [after - before for before, after in itertools.pairwise(stamps)]


def ours(method: str, updates: int, times: int) -> list[float]:
    """Returns the seconds of as many iterations of ours, compiled once."""
    import jax

    from purerl import envs, loops, ppo, use_cpu_cores

    use_cpu_cores()
    config = ppo.Config(**{**ppo.presets["maze"], "curriculum": method, **SETTINGS.get(method, {})})
    trainer = ppo.make_trainer(config, envs.make("Maze-v0"))
    state = jax.jit(trainer.init)(jax.random.key(0))
    run = jax.jit(loops.chunk(trainer, updates), donate_argnums=0)
    results = []
    for _ in range(times + 1):
        before = time.perf_counter()
        state, _ = jax.block_until_ready(run(state, updates))
        results.append(time.perf_counter() - before)
    return results[1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("method", choices=list(SCRIPTS))
    parser.add_argument("--python", default="python", help="the interpreter that has what JaxUED needs")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--times", type=int, default=2)
    args = parser.parse_args()
    how = args.method, args.updates, args.times
    seconds = ours(*how) if args.checkout == "ours" else theirs(args.checkout, args.python, *how)
    rollouts = 2 if args.method == "paired" or (args.checkout == "ours" and args.method == "accel") else 1
    labels = {"who": Path(args.checkout).name, "method": args.method, "frames": args.updates * rollouts * FRAMES}
    print(json.dumps({**labels, "seconds": seconds}))
