"""JaxUED's scripts of the maze (examples/ in its repository) beside ours, each in a fresh process.

    NPROC=1 python scripts/workloads/jaxued_scripts.py ours METHOD [--updates N] [--times T]
    NPROC=1 THEIR-PYTHON scripts/workloads/jaxued_scripts.py CHECKOUT METHOD [--updates N] [--times T]

METHOD is dr, robust-plr, accel or paired. Both at JaxUED's sizes, those of ``--preset maze``: 32 environments,
256 steps, 5 epochs of one minibatch, an LSTM of 256; and with a buffer of 64 levels, so that replay begins at once.
Prints the seconds of N iterations, T times after the first, which compiles, and their frames. JaxUED's seconds are from
one log to the next, so that they hold an evaluation of one attempt in one maze, whose pictures it draws: the least that
its scripts do. Its ACCEL counts an update for levels that were changed, which is a part of an iteration here.
"""

import argparse
import json
import runpy
import sys
import time
import types
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


def theirs(checkout: str, method: str, updates: int, times: int) -> list[float]:
    """The seconds of each round of a script of JaxUED, with its log going nowhere."""
    stamps: list[float] = []
    wandb: Any = types.ModuleType("wandb")

    class Config(dict):
        as_dict = dict.copy

    def init(config: dict, **_: Any) -> Any:
        wandb.config = Config(config)
        return types.SimpleNamespace(config=wandb.config)

    wandb.init, wandb.define_metric, wandb.Video, wandb.Image = init, *[lambda *args, **kwargs: None] * 3
    wandb.log = lambda found: stamps.append(time.perf_counter())
    sys.modules["wandb"] = wandb
    script, more = SCRIPTS[method]
    rounds = ["--eval_freq", str(updates), "--num_updates", str(updates * (times + 1))]
    sys.argv = [script, *SHARED, *rounds, *more]
    runpy.run_path(str(Path(checkout) / "examples" / script), run_name="__main__")
    return [after - before for before, after in zip(stamps, stamps[1:], strict=False)]


def ours(method: str, updates: int, times: int) -> list[float]:
    """The seconds of as many iterations of ours, compiled once."""
    import jax

    from purerl import envs, loops, ppo, use_cpu_cores

    use_cpu_cores()
    config = ppo.Config(**{**ppo.presets["maze"], "curriculum": method, **SETTINGS.get(method, {})})
    trainer = ppo.make_trainer(config, envs.make("Maze-v0"))
    state = jax.jit(trainer.init)(jax.random.key(0))
    run = jax.jit(loops.chunk(trainer, updates), donate_argnums=0)
    found = []
    for _ in range(times + 1):
        before = time.perf_counter()
        state, _ = jax.block_until_ready(run(state, updates))
        found.append(time.perf_counter() - before)
    return found[1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("method", choices=list(SCRIPTS))
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--times", type=int, default=2)
    asked = parser.parse_args()
    how = asked.method, asked.updates, asked.times
    seconds = ours(*how) if asked.checkout == "ours" else theirs(asked.checkout, *how)
    rollouts = 2 if asked.method == "paired" or (asked.checkout == "ours" and asked.method == "accel") else 1
    told = {"who": Path(asked.checkout).name, "method": asked.method, "frames": asked.updates * rollouts * FRAMES}
    print(json.dumps({**told, "seconds": seconds}))
