"""TD3+BC from a dataset on the device beside unifloral's script, in updates of the critics a second.

    python scripts/benchmark.py offline --peer unifloral=CHECKOUT

Both have the paper's settings: two updates of the critics for each of the actor, batches of 256, networks of 256 and
256, standardised observations. The dataset is of random numbers, in the sizes of Pendulum. unifloral's
``algorithms/td3_bc.py`` (measured with commit f2dc127) is loaded without D4RL, Gym and Weights & Biases, by which it
evaluates and logs, and with a point in place of distrax's distribution of one. What is not the same: there both updates
of the critics have the same batch and the targets of networks move with the actor; here each update draws a batch of
its own and moves the targets.
"""

import argparse
import os
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

from workloads import sides, turns

SCRIPT = "algorithms/td3_bc.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1_000_000, help="steps of the dataset (default: 1,000,000)")
    parser.add_argument("--updates", type=int, default=1000, help="updates of the critics in a run (default: 1,000)")
    parser.add_argument("--peer", default="", help="unifloral=CHECKOUT")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    name, _, checkout = args.peer.partition("=")
    if args.peer and (name != "unifloral" or not Path(checkout, SCRIPT).is_file()):
        return f"--peer {args.peer}: must be unifloral=CHECKOUT, with {SCRIPT}"
    return f"--updates {args.updates}: must be even" if args.updates % 2 else None


def columns(rows: int) -> dict[str, Any]:
    """Random steps of an environment with observations ``[3]`` and actions ``[1]``."""
    import numpy as np

    random = np.random.default_rng(0)
    of = lambda *shape: random.uniform(-1, 1, shape).astype(np.float32)
    return {"obs": of(rows, 3), "action": of(rows, 1), "reward": of(rows), "next_obs": of(rows, 3)}


def ours(request: dict[str, Any]) -> turns.Job:
    """``num_updates`` updates as one iteration of a training."""
    import jax
    import numpy as np

    from purerl import envs, replay, td3_bc
    from purerl.types import Dataset

    rows, updates = request["rows"], request["updates"]
    play, end = columns(rows), np.arange(rows) % 200 == 199
    end[-1] = True
    data = Dataset(play["obs"], play["action"], play["reward"], np.zeros(rows, bool), end, play["next_obs"][end])
    config, env = td3_bc.Config(total_steps=updates, num_updates=updates), envs.make("Pendulum-v1")

    def run(key, data):
        trainer = td3_bc.make_trainer(config, env, data=data)
        return trainer.step(trainer.init(key))[0].learner.params

    held = replay.held(data)
    lower = lambda: jax.jit(run).lower(jax.random.key(0), held)
    return turns.Job(lower, lambda program, seed: program(jax.random.key(seed), held))


def unifloral(checkout: str) -> Any:
    """The script as a module."""

    class Point:
        def __init__(self, value):
            self.value = value

        def sample(self, seed):
            return self.value

    import jax.numpy as jnp

    distrax = types.ModuleType("distrax")
    vars(distrax).update(Deterministic=Point, Tanh=lambda: jnp.tanh, Transformed=lambda x, f: Point(f(x.value)))
    absent = {name: types.ModuleType(name) for name in ("d4rl", "gym", "tyro", "wandb")}
    sys.path.insert(0, str(Path(checkout, SCRIPT).parent))
    with mock.patch.dict(sys.modules, {"distrax": distrax, **absent}), mock.patch.dict(os.environ):
        import td3_bc

        return td3_bc


def theirs(request: dict[str, Any]) -> turns.Job:
    """Half as many of the script's steps, each of two updates of the critics, in a scan as it has."""
    import jax
    import jax.numpy as jnp

    module = unifloral(request["checkout"])
    args, play = module.Args(), columns(request["rows"])
    data = module.Transition(**jax.tree.map(jnp.asarray, play), done=jnp.zeros(request["rows"]))
    deviation = data.obs.std(axis=0)
    actor, critics = (
        make(data.obs.mean(axis=0), deviation)
        for make in (lambda *moments: module.DeterministicTanhActor(1, *moments), module.DualQNetwork)
    )

    def run(key, data):
        keys = jax.random.split(key)
        of_actor = module.create_train_state(args, keys[0], actor, [data.obs[0]])
        of_critics = module.create_train_state(args, keys[1], critics, [data.obs[0], data.action[0]])
        state = module.AgentTrainState(of_actor, of_actor, of_critics, of_critics)
        step = module.make_train_step(args, actor.apply, critics.apply, data)
        state = jax.lax.scan(step, (key, state), None, request["updates"] // args.num_critic_updates_per_step)[0][1]
        return state.actor.params, state.dual_q.params

    lower = lambda: jax.jit(run).lower(jax.random.PRNGKey(0), data)
    return turns.Job(lower, lambda program, seed: program(jax.random.PRNGKey(seed), data))


def job(request: dict[str, Any]) -> turns.Job:
    """Updates of either side."""
    return (ours if request["side"] == "purerl" else theirs)(request)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints purerl and the peer."""
    name, _, checkout = args.peer.partition("=")
    given = {**request, "rows": args.rows, "updates": args.updates, "checkout": str(Path(checkout).resolve())}
    pythons = {"purerl": sys.executable} | ({name: args.peer_python} if name else {})
    taking = [sides.side(each, python, {**given, "side": each}) for each, python in pythons.items()]
    results = turns.measure(taking, args.rounds, args.processes)
    row = turns.speeds(results, args.updates, "", "updates")
    if name:
        row["ratio"] = turns.ratio(results["purerl"], results[name])
        print(f"{name} / purerl: {turns.show(row['ratio'])}", flush=True)
    return [row]
