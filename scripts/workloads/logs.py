"""What logging costs: `purerl train ppo` on CartPole-v1 with all that it writes by default, beside no logs at all.

    python scripts/benchmark.py logging --agents 1 1000

Both sides train the same agents in the same chunks by the same program, and save a checkpoint and the policies at the
end. The share is what is left of the throughput with the logs: ``metrics.jsonl``, ``quantiles.jsonl``, ``times.jsonl``
and progress, as plain lines.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from workloads import sides, turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 1000], help="agents at once (default: 1 1000)")
    parser.add_argument("--frames", type=int, default=10**7, help="frames of all agents in a run (default: 10000000)")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    return None


class Ready(NamedTuple):
    """A compiled training, and what runs it with a seed."""

    program: Any
    run_of: Any

    def memory_analysis(self) -> Any:
        return self.program.chunk.program.memory_analysis()


class Prepared(NamedTuple):
    """What compiles it."""

    run_of: Any

    def compile(self) -> Ready:
        from purerl.runs.running.device_program import compile_program

        setup = self.run_of(0, Path()).setup
        return Ready(compile_program(setup.make_trainer, setup.members, setup.members.size), self.run_of)


def prepared(agents: int, total_steps: int) -> Prepared:
    """PPO with its default settings, by the options of ``purerl train``."""
    from rich.console import Console

    from purerl import use_cpu_cores, use_one_thread

    use_cpu_cores() if agents > 1 else use_one_thread()

    from purerl.cli import parsing
    from purerl.runs.describing.description import Setup, describe
    from purerl.runs.describing.options import TrainOptions
    from purerl.runs.running.train import TrainingRun

    def run_of(seed: int, directory: Path) -> TrainingRun:
        args = ["--env", "CartPole-v1", "--num-seeds", str(agents), "--total-steps", str(total_steps)]
        given = parsing.training("train", "ppo", TrainOptions, [*args, "--seed", str(seed * agents)])
        described = describe("ppo", given.options, given.config)
        console = Console(file=open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
        return TrainingRun(described, Setup.of(described), given.options, directory, console)

    return Prepared(run_of)


def logged(ready: Ready, seed: int) -> Any:
    """The training as a person runs it, but for its evaluation and its picture."""
    from purerl.runs.running.run import ResumePoint
    from purerl.runs.running.training import train_batches

    with tempfile.TemporaryDirectory() as folder:
        run = ready.run_of(seed, Path(folder))
        (run.directory / "checkpoints").mkdir()
        return train_batches(run, ready.program, ResumePoint([None]), []).policy


def bare(ready: Ready, seed: int) -> Any:
    """The same chunks, of which nobody takes note."""
    import jax
    import numpy as np

    from purerl.population import layouts
    from purerl.runs.running import device_program, run_loop
    from purerl.store.checkpoint import saver

    with tempfile.TemporaryDirectory() as folder, saver() as saving:
        run = ready.run_of(seed, Path(folder))
        (run.directory / "checkpoints").mkdir()
        setup, members = run.setup, run.setup.members
        state = ready.program.begin(members)
        placed = layouts.place(members, ready.program.chunk.layout)
        data = ready.program.data()
        paced = run_loop.advance(
            lambda state, length: ready.program.chunk.program(placed.given, state, data, length),
            state,
            0,
            setup.config.num_iterations,
            capacity=device_program.CAPACITY,
            chunk_seconds=device_program.CHUNK_SECONDS,
        )
        for chunk in paced:
            state = chunk.state
        saving.save(run.directory / "checkpoints" / "0", chunk.done, state, {}, keep=1, logs=(), rows=members.size)
        policy = jax.vmap(setup.trainer.learner.policy)(state.learner)
        return jax.tree.map(lambda x: np.asarray(x)[: members.size], policy)


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training of all agents."""
    side = {"logged": logged, "bare": bare}[request["side"]]
    return turns.Job(lambda: prepared(request["agents"], request["total_steps"]), side)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of agents."""
    rows = []
    for agents in args.agents:
        given = {**request, "agents": agents, "total_steps": max(args.frames // agents // 512, 1) * 512}
        taking = [sides.side(side, sys.executable, {**given, "side": side}) for side in ("bare", "logged")]
        results = turns.measure(taking, args.rounds, args.processes)
        speeds = turns.speeds(results, agents * given["total_steps"], f"{agents} agents, ")
        rows.append({"agents": agents, **speeds, "share": turns.ratio(results["bare"], results["logged"])})
        print(f"{agents} agents, share of the throughput with logs: {turns.show(rows[-1]['share'], '.4f')}", flush=True)
    return rows
