"""Speed of whole trainings: frames/s, compile seconds and peak memory, beside a peer in alternation.

    python scripts/benchmark.py ppo-cartpole --agents 1 64 --processes 5 --peer purejaxrl=CHECKOUT --peer-python PYTHON

Each process count is a fresh pair of interpreters, one for purerl and one for the peer (whose versions clash: PureJaxRL
needs gymnax 0.0.9), which train by turns in rounds with a new seed each; only one computes at a time. A ratio is taken
within a round, then the median over rounds is a process's figure, and the median over processes is reported with its
range. Compiling is timed apart, and two warm-ups come first. Frames are environment steps.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

NUM_ENVS, NUM_STEPS = 4, 128


def frames(total_steps: int) -> int:
    """Environment steps that a training of one agent really takes."""
    return total_steps // (NUM_ENVS * NUM_STEPS) * NUM_ENVS * NUM_STEPS


def purerl_program(agents: int, total_steps: int, lanes: int):
    """PPO with PureJaxRL's settings, which are `ppo.Config`'s own: a program of keys ``[agents]`` on every device."""
    from purerl import envs, population, ppo, use_cpu_cores

    if agents > 1:
        use_cpu_cores()
    config = ppo.Config(total_steps=total_steps, num_envs=NUM_ENVS, num_steps=NUM_STEPS)
    train = ppo.make_train(config, envs.make("CartPole-v1"))
    layout = population.layout(agents, lanes=lanes or None)
    train_all = population.spread(lambda key, _: ((), train(key)), layout)
    return lambda keys: train_all(population.fill(keys, layout.size), ())[1]


def purejaxrl_train(checkout: str, total_steps: int):
    """PureJaxRL's PPO from a checkout of it, with what keeps it from running mended at run time.

    Its module of wrappers imports packages that CartPole does not use; and its initialisers' batched QR would
    deadlock under vmap, so the initialisers run one after another.
    """
    import types

    import jax

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
    import flax.linen.initializers as initializers

    orthogonal = initializers.orthogonal

    def one_after_another(scale):
        init = orthogonal(scale)
        return lambda key, shape, *dtype: jax.custom_batching.sequential_vmap(lambda key: init(key, shape, *dtype))(key)

    initializers.orthogonal = one_after_another
    sys.path.insert(0, str(Path(checkout) / "purejaxrl"))
    import ppo

    return ppo.make_train(
        {
            "LR": 2.5e-4,
            "NUM_ENVS": NUM_ENVS,
            "NUM_STEPS": NUM_STEPS,
            "TOTAL_TIMESTEPS": total_steps,
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
    )


def work(what: str, agents: int, total_steps: int, lanes: int) -> None:
    """A worker: compiles, says so on standard output, then trains once for each seed that it reads."""
    import jax

    if what == "purerl":
        train, lone = purerl_program(agents, total_steps, lanes), False
    else:
        train, lone = purejaxrl_train(what.removeprefix("purejaxrl="), total_steps), agents == 1
        train = train if lone else jax.vmap(train)

    def keys(seed):
        return jax.random.key(seed) if lone else jax.random.split(jax.random.key(seed), agents)

    start = time.perf_counter()
    program = jax.jit(train).lower(keys(0)).compile()
    compile_seconds = time.perf_counter() - start
    memory = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    for seed in (0, 1):
        jax.block_until_ready(program(keys(seed)))
    device = jax.devices()[0]
    print(
        json.dumps(
            {
                "compile_seconds": compile_seconds,
                "predicted_peak_bytes": held * len(jax.devices()),
                "device": device.device_kind,
                "jax": jax.__version__,
                "matmul_precision": jax.config.jax_default_matmul_precision or "default",
            }
        ),
        flush=True,
    )
    for line in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(program(keys(int(line))))
        seconds = time.perf_counter() - start
        stats = device.memory_stats() or {}
        used = stats.get("peak_bytes_in_use", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        print(
            json.dumps({"seconds": seconds, "cores": (time.process_time() - cpu) / seconds, "peak_bytes": used}),
            flush=True,
        )


class Worker:
    """A fresh interpreter that trains when told to."""

    def __init__(self, python: str, what: str, agents: int, total_steps: int, lanes: int) -> None:
        command = [python, __file__, "worker", what, str(agents), str(total_steps), str(lanes)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = self._read()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker died: {' '.join(self.process.args)}")
        return json.loads(line)

    def train(self, seed: int) -> dict:
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(args: argparse.Namespace, agents: int) -> dict:
    """Alternates purerl and the peer for ``args.rounds`` rounds in each of ``args.processes`` fresh pairs."""
    pairs = [("purerl", sys.executable)] + ([(args.peer, args.peer_python)] if args.peer else [])
    results: dict[str, list[dict]] = {what: [] for what, _ in pairs}
    for number in range(args.processes):
        with contextlib.ExitStack() as stack:
            workers = {}
            for what, python in pairs:
                workers[what] = Worker(python, what, agents, args.total_steps, args.lanes)
                stack.callback(workers[what].close)
            rounds = {what: [] for what in workers}
            for turn in range(args.rounds):
                for what in sorted(workers, reverse=bool(turn % 2)):
                    rounds[what].append(workers[what].train(10 + number * args.rounds + turn))
            for what, worker in workers.items():
                results[what].append({**worker.facts, "rounds": rounds[what]})
    return results


def row(agents: int, total_steps: int, results: dict[str, list[dict]]) -> dict:
    """The figures of one agent count: medians over processes, ranges in brackets."""
    figures = {"agents": agents}
    for what, processes in results.items():
        seconds = [statistics.median(r["seconds"] for r in p["rounds"]) for p in processes]
        figures[what.split("=")[0]] = {
            "frames_per_second": spread([agents * frames(total_steps) / s for s in seconds]),
            "compile_seconds": spread([p["compile_seconds"] for p in processes]),
            "peak_mib": spread([max(r["peak_bytes"] for r in p["rounds"]) / 2**20 for p in processes]),
            "predicted_peak_mib": spread([p["predicted_peak_bytes"] / 2**20 for p in processes]),
            "cores": spread([statistics.median(r["cores"] for r in p["rounds"]) for p in processes]),
            "device": processes[0]["device"],
            "jax": processes[0]["jax"],
            "matmul_precision": processes[0]["matmul_precision"],
        }
    if len(results) == 2:
        ours, peers = results.values()
        ratios = [
            statistics.median(b["seconds"] / a["seconds"] for a, b in zip(x["rounds"], y["rounds"], strict=True))
            for x, y in zip(ours, peers, strict=True)
        ]
        figures["ratio"] = spread(ratios)
    return figures


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def show(value: dict[str, float], digits: str = ".3g") -> str:
    return f"{value['median']:{digits}} [{value['low']:{digits}}, {value['high']:{digits}}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=["ppo-cartpole"])
    parser.add_argument("--agents", type=int, nargs="+", default=[1], help="agents trained at once (default: 1)")
    parser.add_argument("--total-steps", type=int, default=500_000, help="frames of an agent (default: 500000)")
    parser.add_argument("--lanes", type=int, default=0, help="purerl's agents side by side (default: its own choice)")
    parser.add_argument("--rounds", type=int, default=7, help="trainings of each in a process (default: 7)")
    parser.add_argument("--processes", type=int, default=5, help="fresh processes (default: 5)")
    parser.add_argument("--peer", help="purejaxrl=CHECKOUT")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peer's dependencies")
    parser.add_argument("--json", type=Path, help="write all figures here")
    args = parser.parse_args()
    if args.peer and not (
        args.peer.startswith("purejaxrl=") and Path(args.peer.partition("=")[2], "purejaxrl").is_dir()
    ):
        parser.error(f"--peer {args.peer}: must be purejaxrl=CHECKOUT, a checkout that holds purejaxrl/ppo.py")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.2f}")
    print(f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}; median [lowest, highest] of {args.processes} processes")
    rows = []
    for agents in args.agents:
        rows.append(row(agents, args.total_steps, measure(args, agents)))
        for name in (n for n in rows[-1] if n not in ("agents", "ratio")):
            f = rows[-1][name]
            print(
                f"{agents} agents, {name}: {show(f['frames_per_second'], ',.0f')} frames/s, compile "
                f"{show(f['compile_seconds'])} s, peak {show(f['peak_mib'])} MiB, cores {show(f['cores'])}",
                flush=True,
            )
        if "ratio" in rows[-1]:
            print(f"{agents} agents, ratio: {show(rows[-1]['ratio'])}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
