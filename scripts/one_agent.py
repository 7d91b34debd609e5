"""Whether an agent over several devices is one agent, and what that costs.

    python scripts/one_agent.py exact|wire [--only ALGORITHM ...] [--target h200]

On 8 virtual CPU devices, an agent in 8 shards, by algorithm, a line each:

- ``exact``: whether with exact sums all of the state has the same bits on 1, 2, 4 and 8 devices after 50 iterations.
- ``wire``: bytes on a device, and those that it sends in an iteration and for a frame, on 1, 2, 4 and 8 GPUs of a kind
  that need not be here, by ``purerl plan --target``.

Exits with 1 if something must be and is not.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scales

from purerl import config as cfg
from purerl import envs
from purerl.algos import ALGORITHMS
from purerl.population import Members, layout, splitting
from purerl.population.layouts import spread
from purerl.population.splitting import Split
from purerl.types import PyTree

SHARDS, DEVICES = 8, (1, 2, 4, 8)
ON_POLICY = {"num_envs": 16, "num_steps": 16}
REPLAY = {"num_envs": 16, "num_steps": 4, "batch_size": 64, "capacity": 4096, "warmup_steps": 512}
SEQUENCES = {"num_envs": 8, "batch_size": 16}
PPO = {**ON_POLICY, "num_minibatches": 2, "num_epochs": 2}
RECURRENT = {**PPO, "memory": "gru", "sequence_length": 8, "normalize_obs": True, "normalize_reward": True}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", PPO),
    "impala": ("impala", "CartPole-v1", ON_POLICY),
    "dqn": ("dqn", "CartPole-v1", REPLAY),
    "r2d2": ("r2d2", "CartPole-v1", SEQUENCES),
    "sac": ("sac", "Pendulum-v1", REPLAY),
    "qmix": ("qmix", "TwoStep-v0", {"num_envs": 16}),
    "prioritised dqn": ("dqn", "CartPole-v1", {**REPLAY, "prioritised": True, "epsilon_ladder": 3.0}),
    "recurrent ppo with moments": ("ppo", "CartPole-v1", RECURRENT),
}
LARGE = "--num-envs", "64", "--batch-size", "512"
PLANNED = {
    "ppo": ("ppo", "--env", "CartPole-v1", "--num-envs", "4096", "--num-steps", "32"),
    "ppo Breakout": ("ppo", "--env", "Breakout-MinAtar", "--preset", "image", "--num-envs", "1024"),
    "impala Breakout": ("impala", "--env", "Breakout-MinAtar", "--preset", "image", "--num-envs", "1024"),
    "dqn Breakout": ("dqn", "--env", "Breakout-MinAtar", "--preset", "image", *LARGE),
    "prioritised dqn": ("dqn", "--env", "CartPole-v1", "--prioritised", *LARGE),
    "sac Pendulum": ("sac", "--env", "Pendulum-v1", *LARGE),
    "r2d2 CartPole": ("r2d2", "--env", "CartPole-v1", "--num-envs", "64", "--batch-size", "64"),
}


class Training(NamedTuple):
    """An algorithm in an environment."""

    algo: Any
    env: Any
    config: Any

    def states(self, split: Split) -> Iterator[PyTree]:
        """The state after each iteration of an agent over devices."""
        key, place = jax.random.key(0), layout(1, jax.devices()[: split.devices], per_agent=split.devices)
        given = {"config": jax.tree.map(jnp.asarray, cfg.with_lengths(self.config))}
        agent = splitting.agent(lambda config: self.algo.make_trainer(config, self.env), Members(given, key), split.cut)
        everyone = Members(jax.tree.map(lambda x: x[None], given), key[None])
        start = spread(lambda m, _: ((), agent.init(m)), place, (False, agent.differs))
        go_on = spread(lambda given, state: agent.chunk(given, state, 1, 1), place, (agent.differs, False))
        options = {"compiler_options": split.compiler_options(jax.devices()[0])}
        state = jax.jit(lambda members: start(members, ())[1], **options)(everyone)
        step = jax.jit(go_on, **options)
        while True:
            state, _ = step(everyone.given, state)
            yield jax.tree.map(lambda x: x[0], state)


def training(name: str) -> Training:
    """The training of `CASES` called ``name``."""
    algo, env, settings = CASES[name]
    return Training(ALGORITHMS[algo], envs.make(env), ALGORITHMS[algo].Config(**settings))


def exact(name: str, iterations: int) -> bool:
    """Compares the bits of an agent on 1, 2, 4 and 8 devices; prints a line, and returns whether they are equal."""
    case, result = training(name), []
    for devices in DEVICES:
        states = case.states(Split(SHARDS, devices, exact=True))
        state = next(itertools.islice(states, iterations - 1, None))
        result.append(jax.device_get(jax.tree.map(_words, state)))
    differ = [
        sum(not np.array_equal(a, b, equal_nan=True) for a, b in _pairs(result[0], other)) for other in result[1:]
    ]
    text = "all bits equal" if not any(differ) else f"{differ} arrays differ on {DEVICES[1:]} devices from those on 1"
    print(f"{name}: after {iterations} iterations {text}", flush=True)
    return not any(differ)


def _pairs(a: PyTree, b: PyTree) -> Iterator[tuple[Any, Any]]:
    return zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)


def _words(x: Any) -> Any:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def purerl(*args: str, devices: int = 8) -> str:
    """What ``purerl ARGS`` prints, on so many virtual devices."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
    environment.pop("XLA_FLAGS", None)
    command = [sys.executable, "-m", "purerl.cli", *args]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def wire(name: str, target: str) -> bool:
    """Plans an agent for 1, 2, 4 and 8 absent GPUs; prints a line for each."""
    for devices in DEVICES:
        over = ("--shards", str(SHARDS), "--devices-per-agent", str(devices), "--target", target, "--json")
        result = json.loads(purerl("plan", *PLANNED[name], *over))
        frames = result["frames_per_iteration"]
        print(
            f"{name}, {devices} x {target}: {result['peak_bytes'] / devices / 2**20:,.0f} MiB a device, sent by each "
            f"{result['sent_bytes'] / 2**10:,.1f} KiB an iteration, {result['sent_bytes'] / frames:,.2f} B a frame",
            flush=True,
        )
    return True


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("part", choices=("exact", "wire"))
    result.add_argument("--only", nargs="*", default=[])
    result.add_argument("--target", default="h200")
    result.add_argument("--iterations", type=int, default=50, help="of exact (default: 50)")
    scales.add(result, {"wire": "jax_cuda12_plugin"}, only=["ppo"], iterations=2)
    return result


def main() -> None:
    """Runs a part."""
    args = parser().parse_args()
    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    if args.part == "wire":
        good = [wire(name, args.target) for name in args.only or PLANNED]
    else:
        good = [exact(name, args.iterations) for name in args.only or CASES]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
