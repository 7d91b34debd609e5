"""SAC beside Rejax 0.1.3 (which needs gymnax 0.0.9) on Pendulum: the same frames, updates, networks and buffers.

Both have two critics, a learned temperature and an update for each frame. Rejax steps every environment once and then
learns; purerl may collect K steps first (``--num-steps``) and then takes K times as many updates. What is not the same:
Rejax moves its targets once for the updates of a step, purerl at each update; Rejax draws a batch without replacement,
clips each element of a gradient, and takes the cut of Pendulum's episodes for an end.
"""

import argparse
from typing import Any

from workloads import dqn, sides, turns

ENVIRONMENT = "Pendulum-v1"
NUM_ENVS, BATCH_SIZE, WARMUP, CAPACITY = 4, 256, 1_000, 100_000
LEARNING_RATE, TAU, MAX_GRAD_NORM = 3e-4, 0.005, 40.0
HIDDEN_SIZES = (64, 64)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=int, nargs="+", default=[1], help="agents trained at once (default: 1)")
    parser.add_argument("--total-steps", type=int, default=5_000, help="frames of an agent (default: 5000)")
    parser.add_argument("--num-steps", type=int, default=5, help="K, purerl's steps between updates (default: 5)")
    parser.add_argument("--lanes", type=int, default=0, help="purerl's agents side by side (default: its own choice)")
    parser.add_argument("--peer", choices=["rejax"])


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    batch = NUM_ENVS * args.num_steps
    if WARMUP % batch or args.total_steps % batch or args.total_steps <= WARMUP:
        return f"--total-steps {args.total_steps}: must be a multiple of {batch} above {WARMUP}, which divides, too"
    return None


def words(request: dict[str, Any], lanes: int) -> str:
    """What follows ``purerl train``."""
    options = {
        "env": ENVIRONMENT,
        "num_seeds": request["agents"],
        "lanes": lanes,
        "total_steps": request["total_steps"],
        "num_envs": NUM_ENVS,
        "num_steps": request["num_steps"],
        "num_updates": NUM_ENVS * request["num_steps"],
        "batch_size": BATCH_SIZE,
        "capacity": CAPACITY,
        "warmup_steps": WARMUP,
        "learning_rate": LEARNING_RATE,
        "actor_learning_rate": LEARNING_RATE,
        "tau": TAU,
        "max_grad_norm": MAX_GRAD_NORM,
        "hidden_sizes": " ".join(map(str, HIDDEN_SIZES)),
    }
    return " ".join(["sac", *(f"--{name.replace('_', '-')} {value}" for name, value in options.items())])


def rejax_train(request: dict[str, Any]):
    """Rejax's own training of one agent, evaluated by nothing: its frames, updates and parameters."""
    from rejax import SAC

    algo = SAC.create(
        env=ENVIRONMENT,
        hidden_layer_sizes=HIDDEN_SIZES,
        num_envs=NUM_ENVS,
        num_epochs=NUM_ENVS,
        batch_size=BATCH_SIZE,
        buffer_size=CAPACITY,
        fill_buffer=WARMUP,
        target_update_freq=1,
        polyak=1 - TAU,
        total_timesteps=request["total_steps"],
        eval_freq=request["total_steps"],
        skip_initial_evaluation=True,
        learning_rate=LEARNING_RATE,
        max_grad_norm=MAX_GRAD_NORM,
    ).replace(eval_callback=lambda algo, state, key: ())

    def outcome(key):
        state, _ = algo.train(key)
        return state.global_step, state.critic_ts.step, (state.actor_ts.params, state.critic_ts.params)

    return outcome


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training of all agents."""
    import jax
    import numpy as np

    agents, lone = request["agents"], request["agents"] == 1
    if request["side"] == "purerl":
        total_steps = request["total_steps"]
        return dqn.took(sides.training(request), agents * total_steps, total_steps - WARMUP)
    train = rejax_train(request) if lone else jax.vmap(rejax_train(request))

    def keys(seed):
        return jax.random.key(seed) if lone else jax.random.split(jax.random.key(seed), agents)

    def tally(result):
        results = [np.unique(count).tolist() for count in result[:2]]
        if results != [[request["total_steps"]], [request["total_steps"] - WARMUP]]:
            raise SystemExit(f"{request['side']} took {results} frames and updates")
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(result[2])):
            raise SystemExit(f"{request['side']} diverged")
        return {}

    return turns.Job(lambda: jax.jit(train).lower(keys(0)), lambda program, seed: program(keys(seed)), tally=tally)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of agents."""
    given = {**request, "total_steps": args.total_steps, "num_steps": args.num_steps}
    return [measured(args, {**given, "agents": agents}) for agents in args.agents]


def measured(args: argparse.Namespace, request: dict[str, Any]) -> dict[str, Any]:
    """The figures of one number of agents, printed and as a row."""
    taking = [sides.ours(words(request, args.lanes), request)]
    if args.peer:
        taking.append(sides.side(args.peer, args.peer_python, {**request, "side": args.peer}))
    results, agents = turns.measure(taking, args.rounds, args.processes), request["agents"]
    speeds = turns.speeds(results, agents * args.total_steps, f"{agents} agents, ")
    row = {"agents": agents, "total_steps": args.total_steps, **speeds}
    if args.peer:
        row["ratio"] = turns.ratio(results[args.peer], results["purerl"])
        print(f"{agents} agents, ratio: {turns.show(row['ratio'])}", flush=True)
    return row
