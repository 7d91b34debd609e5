"""PPO on CartPole-v1, or on brax's hopper, beside PureJaxRL (which needs gymnax 0.0.9)."""

import argparse
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

from workloads import named, sides, turns


class Setting(NamedTuple):
    """What both sides train: the words after ``purerl train``, and PureJaxRL's sizes, module and settings.

    The others are the same in both (`PUREJAXRL`)."""

    words: str
    num_envs: int
    num_steps: int
    module: str
    theirs: dict[str, Any]


SETTINGS = {
    "ppo-cartpole": Setting(named.PPO_CARTPOLE, 4, 128, "ppo", {}),
    "ppo-hopper": Setting(
        named.PPO_HOPPER,
        2048,
        10,
        "ppo_continuous_action",
        {
            "LR": 3e-4,
            "NUM_MINIBATCHES": 32,
            "ENT_COEF": 0.0,
            "ENV_NAME": "hopper",
            "ANNEAL_LR": False,
            "NORMALIZE_ENV": True,
        },
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=int, nargs="+", default=[1], help="agents trained at once (default: 1)")
    parser.add_argument("--total-steps", type=int, default=500_000, help="frames of an agent (default: 500000)")
    parser.add_argument("--lanes", type=int, default=0, help="purerl's agents side by side (default: its own choice)")
    parser.add_argument("--precision", default="auto", help="purerl's, as of purerl train (default: auto)")
    parser.add_argument("--peer", help="purejaxrl=CHECKOUT")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    name, _, checkout = (args.peer or "").partition("=")
    if args.peer and not (name == "purejaxrl" and Path(checkout, "purejaxrl").is_dir()):
        return f"--peer {args.peer}: must be purejaxrl=CHECKOUT, a checkout that holds purejaxrl/ppo.py"
    return None


def frames(setting: Setting, total_steps: int) -> int:
    """Environment steps that a training of one agent really takes."""
    batch = setting.num_envs * setting.num_steps
    return total_steps // batch * batch


def words(workload: str, agents: int, total_steps: int, lanes: int = 0, precision: str = "auto") -> str:
    """What follows ``purerl train``: PureJaxRL's settings, most of which are `ppo.Config`'s own."""
    sizes = f"--num-seeds {agents} --total-steps {total_steps} --lanes {lanes} --precision {precision}"
    return f"{SETTINGS[workload].words} {sizes}"


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
    """PureJaxRL's module of wrappers imports packages that may not be there, where they are not used."""
    absent = [name for name in ("brax", "navix") if importlib.util.find_spec(name) is None]
    for name, attributes in {
        "brax": ("envs",),
        "brax.envs": (),
        "brax.envs.wrappers": (),
        "brax.envs.wrappers.training": ("EpisodeWrapper", "AutoResetWrapper"),
        "navix": (),
    }.items():
        if name.partition(".")[0] not in absent:
            continue
        module = sys.modules[name] = types.ModuleType(name)
        for attribute in attributes:
            setattr(module, attribute, None)


PUREJAXRL = {
    "LR": 2.5e-4,
    "NUM_ENVS": 4,
    "NUM_STEPS": 128,
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


def purejaxrl_train(setting: Setting, checkout: str, total_steps: int):
    """PureJaxRL's PPO from a checkout of it, with what keeps it from running mended at run time."""
    stand_in_for_unused_packages()
    initialise_one_after_another()
    sys.path.insert(0, str(Path(checkout) / "purejaxrl"))
    if setting.module == "ppo":
        from ppo import make_train
    else:
        from ppo_continuous_action import make_train
    sizes = {"NUM_ENVS": setting.num_envs, "NUM_STEPS": setting.num_steps, "TOTAL_TIMESTEPS": total_steps}
    return make_train({**PUREJAXRL, **setting.theirs, **sizes})


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training of all agents."""
    import jax

    if request["side"] == "purerl":
        return sides.training(request)
    agents, setting = request["agents"], SETTINGS[request["workload"]]
    train, lone = purejaxrl_train(setting, request["checkout"], request["total_steps"]), agents == 1
    train = train if lone else jax.vmap(train)

    def keys(seed):
        return jax.random.key(seed) if lone else jax.random.split(jax.random.key(seed), agents)

    def tally(result):
        return turns.of_curve(result["metrics"]["returned_episode_returns"].mean(axis=(-2, -1)).reshape(agents, -1))

    return turns.Job(lambda: jax.jit(train).lower(keys(0)), lambda program, seed: program(keys(seed)), tally=tally)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of agents."""
    rows = []
    for agents in args.agents:
        request = {**request, "total_steps": args.total_steps, "agents": agents}
        taking = [sides.ours(words(args.workload, agents, args.total_steps, args.lanes, args.precision), request)]
        if args.peer:
            theirs = {**request, "side": "purejaxrl", "checkout": args.peer.partition("=")[2]}
            taking.append(sides.side("purejaxrl", args.peer_python, theirs))
        results = turns.measure(taking, args.rounds, args.processes)
        of_all = agents * frames(SETTINGS[args.workload], args.total_steps)
        speeds = turns.speeds(results, of_all, f"{agents} agents, ")
        rows.append({"agents": agents, **speeds})
        if args.peer:
            rows[-1]["ratio"] = turns.ratio(results["purejaxrl"], results["purerl"])
            print(f"{agents} agents, ratio: {turns.show(rows[-1]['ratio'])}", flush=True)
    return rows
