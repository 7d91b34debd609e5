"""The authors' experiment on Catch: DiscoRL's agent by the published rule on three seeds, by random rules, and by the
rule that is written by hand."""

import time
from pathlib import Path
from typing import Any

import claims
import jax
import numpy as np

from purerl import disco, envs
from purerl.learned import artefacts, sockets
from workloads.disco_reference import WEIGHTS

SHOWN = 100, 200, 300, 350, 400, 450, 500, 550, 600, 650, 700, 800, 900, 1000
SEEDS, WINDOW, CAUGHT = 3, 50, 0.9
"""Seeds of each rule; iterations of a running mean; the mean return at which 95 % are caught."""


def rules(folder: Path) -> dict[str, Any]:
    """The parts of the algorithm, by the name of the rule, for each seed."""
    published, socket, config = artefacts.load(folder / WEIGHTS), sockets.make("disco"), disco.preset("catch")
    return {
        "published": lambda seed: published.parts(config),
        "random": lambda seed: socket.parts(socket.init(jax.random.key(1000 + seed)), config),
        "by hand": lambda seed: {},
    }


def run(parts: dict[str, Any], seed: int) -> tuple[dict[str, np.ndarray], float]:
    """The metrics of every iteration of a training, and seconds of an iteration without compiling."""
    config, env = claims.sized(disco.preset("catch")), envs.make("Catch-bsuite", rows=8, columns=8)
    trainer = disco.make_trainer(config, env, **parts)
    state, step = jax.jit(trainer.init)(jax.random.key(seed)), jax.jit(trainer.step, donate_argnums=0)
    results, start = [], 0.0
    for _ in range(config.num_iterations):
        state, metrics = step(state)
        results.append(jax.tree.map(float, metrics))
        start = start or time.perf_counter()
    seconds = (time.perf_counter() - start) / (len(results) - 1)
    return {name: np.array([row[name] for row in results]) for name in results[0]}, seconds


def tell(name: str, seed: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
    """Prints the mean return of the episodes of the last `WINDOW` iterations, and the policy's entropy, at those of
    `SHOWN`: counted from the warm-up's first, as the authors' curves are."""
    warm_up = max(SHOWN) - len(metrics["loss"])
    total, count = np.nan_to_num(metrics["episode_return"]) * metrics["episodes"], metrics["episodes"]

    def mean(end: int, window: int = WINDOW) -> float:
        rows = slice(max(end - warm_up - window, 0), end - warm_up)
        return float(np.sum(total[rows]) / np.sum(count[rows]))

    caught = [end for end in range(warm_up + WINDOW, max(SHOWN) + 1) if mean(end) >= CAUGHT]
    ends = [end for end in SHOWN if end > warm_up]
    entropy = {end: np.mean(metrics["entropy"][max(end - warm_up - WINDOW, 0) : end - warm_up]) for end in ends}
    print(f"{name} {seed} return  | " + " | ".join(f"{mean(end):.2f}" for end in ends))
    print(f"{name} {seed} entropy | " + " | ".join(f"{entropy[end]:.4f}" for end in ends))
    last, first = 50 * (1 + mean(max(SHOWN), 100)), caught[0] if caught else "never"
    print(f"{name} {seed}: 95 % caught at iteration {first}, {last:.1f} % of the last 100; {seconds:.3f} s each")


def check(folder: Path) -> bool:
    """Trains every rule and tells its curves; returns whether the published one learns on all seeds and random ones on
    none."""
    fine = True
    print("iteration | " + " | ".join(map(str, SHOWN)))
    for name, parts in rules(folder).items():
        for seed in range(SEEDS if name == "published" else 1):
            metrics, seconds = run(parts(seed), seed)
            tell(name, seed, metrics, seconds)
            rewards = np.nan_to_num(metrics["episode_return"]) * metrics["episodes"]
            late = np.sum(rewards[-100:]) / np.sum(metrics["episodes"][-100:])
            fine &= {"published": late >= CAUGHT, "random": late < -0.5}.get(name, True)
    return fine
