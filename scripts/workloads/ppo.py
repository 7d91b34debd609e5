"""PPO on CartPole-v1, beside PureJaxRL (which needs gymnax 0.0.9)."""

import argparse
import sys
import types
from pathlib import Path
from typing import Any

from workloads import turns

NUM_ENVS, NUM_STEPS = 4, 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=int, nargs="+", default=[1], help="agents trained at once (default: 1)")
    parser.add_argument("--total-steps", type=int, default=500_000, help="frames of an agent (default: 500000)")
    parser.add_argument("--lanes", type=int, default=0, help="purerl's agents side by side (default: its own choice)")
    parser.add_argument("--peer", help="purejaxrl=CHECKOUT")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    name, _, checkout = (args.peer or "").partition("=")
    if args.peer and not (name == "purejaxrl" and Path(checkout, "purejaxrl").is_dir()):
        return f"--peer {args.peer}: must be purejaxrl=CHECKOUT, a checkout that holds purejaxrl/ppo.py"
    return None


def frames(total_steps: int) -> int:
    """Environment steps that a training of one agent really takes."""
    return total_steps // (NUM_ENVS * NUM_STEPS) * NUM_ENVS * NUM_STEPS


def purerl_program(agents: int, total_steps: int, lanes: int):
    """PPO with PureJaxRL's settings, which are `ppo.Config`'s own: a program of keys ``[agents]`` on every device.

    Devices and threads are those of ``purerl train``.
    """
    from purerl import envs, population, ppo, trees, use_cpu_cores, use_one_thread
    from purerl.population import layouts

    if agents > 1:
        use_cpu_cores()
    else:
        use_one_thread()
    config = ppo.Config(total_steps=total_steps, num_envs=NUM_ENVS, num_steps=NUM_STEPS)
    train = ppo.make_train(config, envs.make("CartPole-v1"))
    layout = population.layout(agents, lanes=lanes or None)
    train_all = layouts.spread(lambda key, _: ((), train(key)), layout)
    return lambda keys: train_all(trees.fill(keys, layout.size), ())[1]


def initialise_one_after_another() -> None:
    """Keeps flax's orthogonal initialisers, whose batched QR deadlocks on CPU, from being batched by vmap."""
    import flax.linen.initializers as initializers
    import jax

    orthogonal = initializers.orthogonal

    def one_after_another(scale):
        init = orthogonal(scale)
        return lambda key, shape, *dtype: jax.custom_batching.sequential_vmap(lambda key: init(key, shape, *dtype))(key)

    initializers.orthogonal = one_after_another


def stand_in_for_unused_packages() -> None:
    """PureJaxRL's module of wrappers imports packages that CartPole does not use."""
    for name, attributes in {
        "brax": ("envs",),
        "brax.envs": (),
        "brax.envs.wrappers": (),
        "brax.envs.wrappers.training": ("EpisodeWrapper", "AutoResetWrapper"),
        "navix": (),
    }.items():
        module = sys.modules[name] = types.ModuleType(name)
        for attribute in attributes:
            setattr(module, attribute, None)


PUREJAXRL = {
    "LR": 2.5e-4,
    "NUM_ENVS": NUM_ENVS,
    "NUM_STEPS": NUM_STEPS,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
    "DEBUG": False,
}
"""`ppo.Config`'s own settings in PureJaxRL's words."""


def purejaxrl_train(checkout: str, total_steps: int):
    """PureJaxRL's PPO from a checkout of it, with what keeps it from running mended at run time."""
    stand_in_for_unused_packages()
    initialise_one_after_another()
    sys.path.insert(0, str(Path(checkout) / "purejaxrl"))
    import ppo

    return ppo.make_train({**PUREJAXRL, "TOTAL_TIMESTEPS": total_steps})


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training of all agents."""
    import jax

    agents = request["agents"]
    if request["side"] == "purerl":
        train, lone = purerl_program(agents, request["total_steps"], request["lanes"]), False
    else:
        train, lone = purejaxrl_train(request["checkout"], request["total_steps"]), agents == 1
        train = train if lone else jax.vmap(train)

    def keys(seed):
        return jax.random.key(seed) if lone else jax.random.split(jax.random.key(seed), agents)

    return turns.Job(lambda: jax.jit(train).lower(keys(0)), lambda program, seed: program(keys(seed)))


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of agents."""
    rows = []
    for agents in args.agents:
        request = {**request, "agents": agents, "total_steps": args.total_steps, "lanes": args.lanes}
        sides = [turns.Side("purerl", sys.executable, {**request, "side": "purerl"})]
        if args.peer:
            theirs = {**request, "side": "purejaxrl", "checkout": args.peer.partition("=")[2]}
            sides.append(turns.Side("purejaxrl", args.peer_python, theirs))
        results = turns.measure(sides, args.rounds, args.processes)
        speeds = turns.speeds(results, agents * frames(args.total_steps), f"{agents} agents, ")
        rows.append({"agents": agents, **speeds})
        if args.peer:
            rows[-1]["ratio"] = turns.ratio(results["purejaxrl"], results["purerl"])
            print(f"{agents} agents, ratio: {turns.show(rows[-1]['ratio'])}", flush=True)
    return rows
