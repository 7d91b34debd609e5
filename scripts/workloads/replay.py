"""Replay buffers beside flashbax: microseconds of a step inside one jitted scan of 1000 steps.

A step of ``uniform`` adds one transition of each of 16 environments and draws a batch; one of ``prioritised`` draws a
batch and gives it new priorities. The batch is written out in full: observations, next observations and all else.
Observations are bool 10x10x4, as MinAtar's. Buffers are full beforehand, donated, and carried from run to run. flashbax
has its flat buffers, which keep an observation once, and what they recommend on the device at hand.

What is not the same: flashbax draws with its probabilities, purerl gives the weights that come of them; purerl tells
terminations from truncations and multiplies the discount, flashbax hands out the two transitions. Neither copies its
transitions; but XLA on CPU copies flashbax's sum tree, which its loops carry, twice a step of ``prioritised``.
"""

import argparse
import sys
from typing import Any

from workloads import sides, turns

NUM_STEPS = 1000
NUM_ENVS = 16
OBS_SHAPE = (10, 10, 4)
PRIORITY_EXPONENT = 0.6
KINDS = ("uniform", "prioritised")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = lambda text: int(float(text))
    parser.add_argument("--sizes", type=size, nargs="+", default=[10**5, 10**6], help="transitions (default: 1e5 1e6)")
    parser.add_argument("--batch", type=int, default=256, help="transitions of a sample (default: 256)")
    parser.add_argument("--peer", choices=["flashbax"])


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    for size in args.sizes:
        if size % NUM_ENVS or size < 2 * NUM_ENVS:
            return f"--sizes {size}: must be a multiple of the {NUM_ENVS} environments, and hold two steps of each"
    return None


def transitions(key) -> dict[str, Any]:
    """What is added, ``[steps, B, ...]``: observations of which one bit in eight is set, and episodes of 100 steps."""
    import jax
    import jax.numpy as jnp

    keys, shape = jax.random.split(key, 5), (NUM_STEPS, NUM_ENVS)
    return {
        "obs": jax.random.bernoulli(keys[0], 0.125, (*shape, *OBS_SHAPE)),
        "action": jax.random.randint(keys[1], shape, 0, 6),
        "reward": jax.random.normal(keys[2], shape),
        "terminated": jax.random.bernoulli(keys[3], 0.01, shape),
        "truncated": jnp.zeros(shape, bool),
    }


def purerl_buffer(kind: str, size: int, batch: int):
    """``(init, add, sample, update)`` of purerl; ``init`` and ``add`` take a step of `transitions`."""
    import jax

    from purerl import replay
    from purerl.types import Transition

    ring = {
        "num_rows": size // NUM_ENVS,
        "num_envs": NUM_ENVS,
        "batch_size": batch,
        "view": replay.transitions(1, 0.99),
    }
    buffer = (
        replay.uniform(**ring) if kind == "uniform" else replay.prioritised(**ring, alpha=PRIORITY_EXPONENT, beta=0.4)
    )

    def transition(step):
        return Transition(**step, next_obs=step["obs"], extras=())

    return (
        lambda step: buffer.init(jax.tree.map(lambda x: x[0], transition(step))),
        lambda state, step: buffer.add(state, jax.tree.map(lambda x: x[None], transition(step))),
        buffer.sample,
        buffer.update,
    )


def flashbax_buffer(kind: str, size: int, batch: int):
    """The same of flashbax."""
    import flashbax
    import jax

    flat = {"max_length": size, "min_length": batch, "sample_batch_size": batch, "add_batch_size": NUM_ENVS}
    if kind == "uniform":
        buffer = flashbax.make_flat_buffer(**flat)
    else:
        buffer = flashbax.make_prioritised_flat_buffer(
            **flat, priority_exponent=PRIORITY_EXPONENT, device=jax.default_backend()
        )
    return (
        lambda step: buffer.init(jax.tree.map(lambda x: x[0], step)),
        buffer.add,
        buffer.sample,
        lambda state, sample, priority: buffer.set_priorities(state, sample.indices, priority),
    )


def job(request: dict[str, Any]) -> turns.Job:
    """A scan of `NUM_STEPS` steps on a full buffer. Its last batch is carried, so that every batch is written out."""
    import jax
    import jax.numpy as jnp

    kind, size = request["kind"], request["size"]
    make = purerl_buffer if request["side"] == "purerl" else flashbax_buffer
    init, add, sample, update = make(kind, size, request["batch"])
    steps = jax.jit(transitions)(jax.random.key(0))
    at = lambda i: jax.tree.map(lambda x: x[i % NUM_STEPS], steps)

    @jax.jit
    def full():
        return jax.lax.fori_loop(0, size // NUM_ENVS, lambda i, state: add(state, at(i)), init(at(0)))

    def uniform(carry, xs):
        step, _, key = xs
        state = add(carry[0], step)
        return (state, sample(state, key)), None

    def prioritised(carry, xs):
        _, priority, key = xs
        drawn = sample(carry[0], key)
        return (update(carry[0], drawn, priority), drawn), None

    def program(state, steps, seed):
        key, key_priority = jax.random.split(jax.random.key(seed))
        priorities = jax.random.uniform(key_priority, (NUM_STEPS, request["batch"]))
        keys = jax.random.split(key, NUM_STEPS)
        shape = jax.eval_shape(sample, state, key)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape)
        step = uniform if kind == "uniform" else prioritised
        return jax.lax.scan(step, (state, nothing), (steps, priorities, keys))[0]

    full_buffers = [full()]

    def run(compiled, seed):
        state, batch = compiled(full_buffers.pop(), steps, seed)
        full_buffers.append(state)
        return state, batch

    state_bytes = sum(x.nbytes for x in jax.tree.leaves(full_buffers[0]))
    return turns.Job(
        lambda: jax.jit(program, donate_argnums=0).lower(full_buffers[0], steps, 0), run, {"state_bytes": state_bytes}
    )


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every size of both kinds; all sizes of a kind take turns, so that they can be compared."""
    rows = []
    for kind in KINDS:
        request = {**request, "kind": kind, "batch": args.batch}
        results = turns.measure(taking(args, request), args.rounds, args.processes)
        for size in args.sizes:
            rows.append({"kind": kind, "size": size, "batch": args.batch, "num_envs": NUM_ENVS})
            for name in ("purerl", args.peer) if args.peer else ("purerl",):
                rows[-1][name] = figures(results[f"{name} {size}"])
                print(f"{kind}, {size:,}, {name}: {show(rows[-1][name])}", flush=True)
            if args.peer:
                rows[-1]["ratio"] = turns.ratio(results[f"{args.peer} {size}"], results[f"purerl {size}"])
                print(f"{kind}, {size:,}, ratio: {turns.show(rows[-1]['ratio'])}", flush=True)
            if size != args.sizes[0]:
                growth = turns.ratio(results[f"purerl {size}"], results[f"purerl {args.sizes[0]}"])
                rows[-1]["growth"] = {"of": args.sizes[0], **growth}
                print(f"{kind}, purerl, {size:,} against {args.sizes[0]:,}: {turns.show(growth)}", flush=True)
    return rows


def taking(args: argparse.Namespace, request: dict[str, Any]) -> list[turns.Side]:
    """Both libraries, or purerl alone, with every size."""
    pythons = {"purerl": sys.executable} | ({args.peer: args.peer_python} if args.peer else {})
    return [
        sides.side(f"{name} {size}", python, {**request, "side": name, "size": size})
        for size in args.sizes
        for name, python in pythons.items()
    ]


def figures(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Microseconds a step, and what the buffer holds."""
    return {
        "microseconds": turns.spread([s / NUM_STEPS * 1e6 for s in turns.seconds(processes)]),
        "state_mib": processes[0]["state_bytes"] / 2**20,
        **turns.figures(processes),
    }


def show(figures: dict[str, Any]) -> str:
    steps = f"{turns.show(figures['microseconds'])} us a step"
    return f"{steps}, buffer {figures['state_mib']:.4g} MiB, {turns.show_figures(figures)}"
