"""Two environments beside each other, such as the same game of two libraries: random play, or trainings.

    python scripts/benchmark.py environments Breakout-MinAtar gymnax/Breakout-MinAtar
    python scripts/benchmark.py environments Breakout-MinAtar gymnax/Breakout-MinAtar --algo ppo --preset minatar

A ratio is how many times as many frames/s the first one makes.
"""

import argparse
import sys
from typing import Any

from workloads import sides, turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("envs", nargs=2, metavar="ENV", help="two environments, as purerl train --env names them")
    parser.add_argument("--algo", help="train with this algorithm instead of playing at random")
    parser.add_argument("--preset", help="settings of the algorithm, as purerl train --preset names them")
    parser.add_argument("--num-envs", type=int, default=64, help="copies that play at random (default: 64)")
    parser.add_argument("--total-steps", type=int, default=500_000, help="frames of a run (default: 500000)")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    if args.preset and not args.algo:
        return "--preset: needs --algo"
    return None


def job(request: dict[str, Any]) -> turns.Job:
    """Random play of ``total_steps`` frames, or a training of as many."""
    import jax

    from purerl import envs

    if request["algo"]:
        return sides.training(request)
    run = random_play(request, envs.make(request["side"]))
    key = jax.random.key
    return turns.Job(lambda: jax.jit(run).lower(key(0)), lambda program, seed: program(key(seed)))


def random_play(request: dict[str, Any], env: Any):
    """A function of a key that plays chunks of 100 steps, and sums every element of what each step gives, so that all
    of it is computed."""
    import jax
    import jax.numpy as jnp

    from purerl import envs, spaces

    fleet, length = envs.fleet(env, request["num_envs"]), 100

    def play(key):
        key, key_reset = jax.random.split(key)

        def chunk(state, key):
            key_noise, key_action = jax.random.split(key)
            action = spaces.sample(env.action_space, key_action, (length, fleet.size))

            def step(state, given):
                state, *shown = fleet.step(given[0], state, given[1])
                return state, shown

            state, steps = jax.lax.scan(step, state, (fleet.noise(key_noise, (length,)), action))
            return state, sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(steps))

        chunks = request["total_steps"] // (length * request["num_envs"])
        return jax.lax.scan(chunk, fleet.reset(key_reset)[0], jax.random.split(key, chunks))[1]

    return play


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints both."""
    request = {**request, **{name: getattr(args, name) for name in ("algo", "num_envs", "total_steps")}}
    preset = f" --preset {args.preset}" if args.preset else ""
    words = lambda env: f"{args.algo} --env {env} --total-steps {args.total_steps}{preset}".split()
    requests = {name: {**request, "side": name, "options": words(name)} for name in args.envs}
    taking = [sides.side(name, sys.executable, each) for name, each in requests.items()]
    results = turns.measure(taking, args.rounds, args.processes)
    row = turns.speeds(results, args.total_steps)
    first, second = args.envs
    row["ratio"] = turns.ratio(results[second], results[first])
    print(f"{first} / {second}: {turns.show(row['ratio'])}", flush=True)
    return [row]
