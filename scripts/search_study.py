"""What decides a search's success: one setting at a time is changed in the search for a value loss, at equal frames.

    NPROC=1 python scripts/search_study.py [NAME ...] [--frames 2.5e7] [--seeds 0 1] [--held-out 256]

Each line is a search: the setting, its generations and frames/s, and what its mean gains over PPO with a tuned L2 loss
on held-out seeds, in lifetimes of `LIFETIME` frames in each of `PLACES`, with bootstrapped 95 % intervals of the
interquartile mean of paired differences. Without names all of `SETTINGS` are searched.
"""

import argparse
import dataclasses
import functools
import time
from typing import Any

import jax
import numpy as np
import scales

from purerl import backend, envs, loops, ppo, trees
from purerl.formulas import aggregates
from purerl.learned import sockets
from purerl.meta import evolution, strategies

LIFETIME = 32_768
PLACES = "CartPole-v1", "Acrobot-v1"
"""Most searches are in the first alone."""
CONFIG = ppo.Config(total_steps=LIFETIME, num_envs=4, num_steps=64, learning_rate=2.5e-3, value_coef=0.25)
SOCKET = sockets.value_loss("squared")
"""Initially the L2 loss, whose best coefficient on CartPole by `purerl evolve report` is that of `CONFIG`."""
BASE: dict[str, Any] = {"population": 64, "sigma": 0.06, "rate": 0.03, "envs": 1, "lives": (1.0,), "paired": False}
BASE |= {"seeds": 1, "lanes": 4, "momentum": 0.9, "socket": SOCKET}
SETTINGS: dict[str, dict[str, Any]] = {
    "base": {},
    "population 16": {"population": 16},
    "population 256": {"population": 256},
    "sigma 0.02": {"sigma": 0.02},
    "sigma 0.2": {"sigma": 0.2},
    "rate 0.01": {"rate": 0.01},
    "rate 0.1": {"rate": 0.1},
    "momentum 0.99": {"momentum": 0.99},
    "purerl's defaults": {"sigma": 0.04, "rate": 0.01, "momentum": 0.99},
    "lifetime / 4": {"lives": (0.25,)},
    "lifetime * 4": {"lives": (4.0,)},
    "begins with the clipped loss": {"socket": sockets.value_loss()},
    "4 seeds": {"seeds": 4, "population": 16},
    "pairs on keys of their own": {"paired": True},
    "2 environments": {"envs": 2},
    "2 environments, paired": {"envs": 2, "paired": True},
    "1 lane": {"lanes": 1},
    "16 lanes": {"lanes": 16},
}
"""What differs from `BASE`, by name."""


def run_search(setting: dict[str, Any], frames: float, seed: int) -> tuple[Any, Any, int, float]:
    """Searches for as many ``frames``; returns the socket, the mean, generations, and frames/s without compiling."""
    given = {**BASE, **setting}
    socket = given["socket"]
    configs = [dataclasses.replace(CONFIG, total_steps=round(part * LIFETIME)) for part in given["lives"]]
    tasks = [evolution.Task(envs.make(env), config, env) for env in PLACES[: given["envs"]] for config in configs]
    like = trees.zeros(jax.eval_shape(socket.init, jax.random.key(0)))
    rates = {"sigma": given["sigma"], "learning_rate": given["rate"], "momentum": given["momentum"]}
    strategy = strategies.make("Open_ES", given["population"], like, sigma_decay=1.0, **rates)
    how = {"num_seeds": given["seeds"], "paired": given["paired"], "lanes": given["lanes"]}
    search = evolution.make_search(socket, ppo, tasks, strategy, **how)
    generations = max(1, round(frames / search.frames))
    state = jax.jit(search.init)(jax.random.key(seed))
    chunk = jax.jit(loops.chunk(search, 1)).lower(state, 1).compile(backend.compiler_options())
    start = time.perf_counter()
    for _ in range(generations):
        state, _ = chunk(state, 1)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    return socket, search.mean(state), generations, generations * search.frames / seconds


@functools.cache
def scores(socket: Any, held_out: int) -> dict[str, Any]:
    """Makes the function that returns the fitness ``[held_out]`` with meta-parameters, for each of `PLACES`."""
    keys = jax.random.split(jax.random.key(10**6), held_out)

    def of_place(env: Any) -> Any:
        make_trainer = lambda meta_params: ppo.make_trainer(CONFIG, env, **socket.parts(meta_params, CONFIG))
        live = evolution.lifetimes(make_trainer, CONFIG.num_iterations, 1, held_out, lanes=8)
        live = jax.jit(live, compiler_options=backend.compiler_options())
        return lambda meta_params: np.asarray(live(jax.tree.map(lambda x: x[None], meta_params), keys))[0]

    return {place: of_place(envs.make(place)) for place in PLACES}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("names", nargs="*")
    result.add_argument("--frames", type=float, default=2.5e7)
    result.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    result.add_argument("--held-out", type=int, default=256)
    scales.add(result, frames=1, seeds=[0], held_out=2)
    return result


def main() -> None:
    options = parser().parse_args()
    first = SOCKET.init(jax.random.key(0))
    unchanged = {place: live(first) for place, live in scores(SOCKET, options.held_out).items()}
    print("tuned L2 | " + " | ".join(f"{place} {np.mean(x):.1f}" for place, x in unchanged.items()), flush=True)
    for name in options.names or (["population 16"] if options.scale == "tiny" else SETTINGS):
        for seed in options.seeds:
            socket, mean, generations, speed = run_search(SETTINGS[name], options.frames, seed)
            judged = scores(socket, options.held_out)
            gains = {
                place: aggregates.reported_estimate(live(mean) - unchanged[place]) for place, live in judged.items()
            }
            text = " | ".join(f"{place} {x.value:+.1f} [{x.low:+.1f}, {x.high:+.1f}]" for place, x in gains.items())
            print(f"{name} | seed {seed} | {generations} generations | {speed:,.0f} frames/s | {text}", flush=True)


if __name__ == "__main__":
    main()
