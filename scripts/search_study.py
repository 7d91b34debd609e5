"""What decides a search's success: one setting at a time is changed in the search for a value loss, at equal frames.

    NPROC=1 python scripts/search_study.py [NAME ...] [--frames 2.5e7] [--seeds 0 1] [--held-out 128]

Each line is a search: the setting, its generations and frames/s, and what its mean gains over the unchanged algorithm
on held-out seeds, in lifetimes of `LIFETIME` frames in each of `PLACES`, with bootstrapped 95 % intervals of the
interquartile mean of paired differences. Without names all of `SETTINGS` are searched.
"""

import argparse
import dataclasses
import time
from typing import Any

import jax
import numpy as np

from purerl import backend, envs, loops, ppo, trees
from purerl.formulas import aggregates
from purerl.learned import sockets
from purerl.meta import evolution, strategies

LIFETIME = 32_768
PLACES = "CartPole-v1", "Acrobot-v1", "Catch-bsuite"
"""The first is where most searches are; the last is seen by none."""
CONFIG = ppo.Config(total_steps=LIFETIME, num_envs=4, num_steps=64, learning_rate=2.5e-3)
BASE: dict[str, Any] = {"population": 64, "sigma": 0.06, "rate": 0.03, "envs": 1, "lives": (1.0,), "paired": False}
BASE |= {"seeds": 1, "lanes": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "base": {},
    "population 16": {"population": 16},
    "population 256": {"population": 256},
    "sigma 0.02": {"sigma": 0.02},
    "sigma 0.2": {"sigma": 0.2},
    "rate 0.01": {"rate": 0.01},
    "rate 0.1": {"rate": 0.1},
    "lifetime / 4": {"lives": (0.25,)},
    "lifetime * 4": {"lives": (4.0,)},
    "4 seeds": {"seeds": 4, "population": 16},
    "pairs on keys of their own": {"paired": True},
    "2 environments": {"envs": 2},
    "2 environments, paired": {"envs": 2, "paired": True},
    "1 lane": {"lanes": 1},
    "16 lanes": {"lanes": 16},
}
"""What differs from `BASE`, by name."""


def found(setting: dict[str, Any], frames: float, seed: int) -> tuple[Any, int, float]:
    """The mean of a search of as many ``frames``, its generations, and its frames/s without compiling."""
    socket, given = sockets.value_loss(), {**BASE, **setting}
    configs = [dataclasses.replace(CONFIG, total_steps=round(part * LIFETIME)) for part in given["lives"]]
    tasks = [evolution.Task(envs.make(env), config, env) for env in PLACES[: given["envs"]] for config in configs]
    like = trees.zeros(jax.eval_shape(socket.init, jax.random.key(0)))
    rates = {"sigma": given["sigma"], "sigma_decay": 1.0, "learning_rate": given["rate"], "momentum": 0.9}
    strategy = strategies.make("Open_ES", given["population"], like, **rates)
    how = {"num_seeds": given["seeds"], "paired": given["paired"], "lanes": given["lanes"]}
    search = evolution.of(socket, ppo, tasks, strategy, **how)
    generations = max(1, round(frames / search.frames))
    chunk = jax.jit(loops.chunk(search, 1), compiler_options=backend.compiler_options())
    state = jax.jit(search.init)(jax.random.key(seed))
    chunk = chunk.lower(state, 1).compile()
    start = time.perf_counter()
    for _ in range(generations):
        state, _ = chunk(state, 1)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    return search.mean(state), generations, generations * search.frames / seconds


def scores(candidates: Any, held_out: int) -> dict[str, Any]:
    """The function that maps meta-parameters ``[P]`` to their fitness ``[P, held_out]``, for each of `PLACES`."""
    socket, keys = sockets.value_loss(), jax.random.split(jax.random.key(10**6), held_out)

    def of_place(env: Any) -> Any:
        make_trainer = lambda meta_params: ppo.make_trainer(CONFIG, env, **socket.parts(meta_params, CONFIG))
        live = evolution.lifetimes(make_trainer, CONFIG.num_iterations, candidates, held_out, lanes=8)
        live = jax.jit(live, compiler_options=backend.compiler_options())
        return lambda meta_params: np.asarray(live(meta_params, keys))

    return {place: of_place(envs.make(place)) for place in PLACES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SETTINGS))
    parser.add_argument("--frames", type=float, default=2.5e7)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--held-out", type=int, default=128)
    options = parser.parse_args()
    one = lambda tree: jax.tree.map(lambda x: x[None], tree)
    judged = scores(1, options.held_out)
    unchanged = {place: live(one(sockets.value_loss().init(jax.random.key(0)))) for place, live in judged.items()}
    print("unchanged | " + " | ".join(f"{place} {np.mean(x):.1f}" for place, x in unchanged.items()), flush=True)
    for name in options.names:
        for seed in options.seeds:
            mean, generations, speed = found(SETTINGS[name], options.frames, seed)
            gains = {place: (live(one(mean)) - unchanged[place])[0] for place, live in judged.items()}
            of_place = {place: aggregates.told(x) for place, x in gains.items()}
            told = " | ".join(f"{place} {x.value:+.1f} [{x.low:+.1f}, {x.high:+.1f}]" for place, x in of_place.items())
            print(f"{name} | seed {seed} | {generations} generations | {speed:,.0f} frames/s | {told}", flush=True)


if __name__ == "__main__":
    main()
