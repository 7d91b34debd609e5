"""A run, from its directory to its summary: train, watch, save, evaluate. The command line's verbs, without parsing."""

import importlib.metadata
import math
import os
import platform
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from purerl import checkpoint, envs, logging, run
from purerl import config as cfg
from purerl.algos import ALGORITHMS
from purerl.evaluate import evaluate
from purerl.types import Env, Learner, PyTree

FILES = ("config.json", "metrics.jsonl", "summary.json", "policy.safetensors", "policy.json")
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "gymnax", "numpy")
EXIT_DIVERGED = 3
EVALUATION_SALT = 2**31
"""Folded into a seed's key for its final evaluation, so that evaluating touches no key of the training."""


def train(algo: str, options: Any, config: Any, env_params: dict[str, float]) -> int:
    """Trains ``options.num_seeds`` agents, evaluates them, and writes a run directory. Returns the exit code.

    Raises `ConfigError`, with all problems at once, before anything compiles or is written.
    """
    env = _checked(algo, options, config, env_params)
    directory = Path(options.out or f"runs/{algo}-{_file_name(options.env)}-{datetime.now():%Y%m%d-%H%M%S}")
    _claim(directory, options.overwrite)
    console = Console(stderr=True)
    seeds = list(range(options.seed, options.seed + options.num_seeds))
    description = {"algo": algo, "env": options.env, "env_params": env_params, "seeds": seeds, "config": vars(config)}
    checkpoint.write_json(
        directory / "config.json", {**description, "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}
    )

    trainer = ALGORITHMS[algo].make_trainer(config, env)
    frames = config.num_iterations * trainer.env_steps
    if frames != config.total_steps:
        console.print(
            f"{frames:,} frames an agent will run: {config.num_iterations:,} whole iterations", highlight=False
        )
    device = jax.devices()[0]
    console.print(f"{algo} on {options.env}, {len(seeds)} agent(s), {device.platform}: compiling ...", highlight=False)
    keys = jax.numpy.stack([jax.random.key(seed) for seed in seeds])
    program = run.compile(trainer, keys)
    console.print(f"compiled in {program.compile_seconds:.1f} s", highlight=False)

    start, iteration = time.perf_counter(), 0
    with (
        run.interrupts() as interrupted,
        open(directory / "metrics.jsonl", "w") as log,
        logging.progress(console, frames * len(seeds)) as report,
    ):
        for chunk in run.chunks(program, keys, config.num_iterations):
            log.writelines(checkpoint.rows(chunk.metrics, iteration + 1, trainer.env_steps, seeds))
            log.flush()
            iteration = chunk.iteration
            report(iteration * trainer.env_steps * len(seeds), logging.mean_return(chunk.metrics))
            alive = np.isfinite(chunk.metrics["loss"][-1])
            if interrupted or not alive.any():
                break
    wall_seconds = time.perf_counter() - start

    policy = jax.vmap(trainer.learner.policy)(chunk.state.learner)
    checkpoint.save_policy(directory, policy, description)
    evaluation = _evaluate(env, trainer.learner, policy, seeds, options.eval_episodes, 10_000, EVALUATION_SALT)
    summary = {
        "status": "interrupted" if interrupted else "completed" if alive.all() else "diverged",
        **{name: description[name] for name in ("algo", "env", "env_params", "seeds")},
        "env_steps": iteration * trainer.env_steps,
        "wall_seconds": wall_seconds,
        "compile_seconds": program.compile_seconds,
        "steps_per_second": iteration * trainer.env_steps * len(seeds) / wall_seconds,
        **evaluation,
        "device": {"platform": device.platform, "kind": device.device_kind, "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), **_versions()},
        "flags": {name: os.environ[name] for name in os.environ if name.startswith(("JAX_", "XLA_"))},
    }
    checkpoint.write_json(directory / "summary.json", summary)
    _print_summary(console, directory, summary)
    if interrupted:
        return 128 + interrupted[0]
    return 0 if alive.all() else EXIT_DIVERGED


class Run(NamedTuple):
    """A trained run, read back: ``policy`` has a leading axis of agents ``[S]``, in the order of ``saved["seeds"]``."""

    saved: dict[str, Any]
    env: Env
    learner: Learner
    policy: PyTree


def load(directory: str | Path) -> Run:
    """Reads the policies of a run directory. Raises `ConfigError` if it holds none, or damaged ones.

    ``run.learner.exploit(jax.tree.map(lambda x: x[i], run.policy), obs, run.learner.init_carry(B), key)`` acts as agent
    ``i`` does in observations ``[B, ...]``.
    """
    path = Path(directory) / "policy.json"
    saved = checkpoint.read_json(path)
    if saved.get("format") != checkpoint.FORMAT:
        raise cfg.ConfigError(f"{path}: format {saved.get('format')}, expected {checkpoint.FORMAT}")
    algo = ALGORITHMS[saved["algo"]]
    env = envs.make(saved["env"], **saved["env_params"])
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in saved["config"].items()}
    learner = algo.make_learner(algo.Config(**fields), env)

    def fresh(key):
        _, obs = env.reset(key)
        return learner.policy(learner.init(key, obs[None]))

    like = jax.eval_shape(jax.vmap(fresh), jax.random.split(jax.random.key(0), len(saved["seeds"])))
    return Run(saved, env, learner, checkpoint.load_policy(Path(directory), like))


def evaluate_run(directory: Path, episodes: int, max_steps: int, seed: int) -> dict[str, Any]:
    """Plays the policies of a run directory, which is only read. Raises `ConfigError` for a directory without one."""
    run = load(directory)
    return {
        "run": str(directory),
        **{name: run.saved[name] for name in ("algo", "env", "seeds")},
        "episodes": episodes,
        **_evaluate(run.env, run.learner, run.policy, run.saved["seeds"], episodes, max_steps, seed),
    }


def print_evaluation(result: dict[str, Any]) -> None:
    """A table with a row for each agent."""
    table = Table("seed", "return", "std", "length", "unfinished", title=f"{result['algo']} on {result['env']}")
    columns = ("return_per_seed", "return_std_per_seed", "length_per_seed", "unfinished_per_seed")
    for seed, mean, std, length, unfinished in zip(result["seeds"], *(result[name] for name in columns), strict=True):
        table.add_row(str(seed), f"{mean:.2f}", f"{std:.2f}", f"{length:.1f}", str(unfinished))
    console = Console()
    console.print(table)
    console.print(
        f"mean return {result['return_mean']:.2f} over {result['episodes']} episodes an agent", highlight=False
    )


def _evaluate(
    env: Env, learner: Learner, policy: PyTree, seeds: list[int], episodes: int, max_steps: int, salt: int
) -> dict[str, Any]:
    keys = jax.numpy.stack([jax.random.fold_in(jax.random.key(seed), salt) for seed in seeds])
    play = jax.jit(jax.vmap(lambda key, policy: evaluate(key, env, learner, policy, episodes, max_steps)))
    episode_return, length, finished = (np.asarray(x) for x in play(keys, policy))
    per_seed = episode_return.mean(axis=1, dtype=np.float64)
    return {
        "return_mean": float(per_seed.mean()),
        "return_per_seed": per_seed.tolist(),
        "return_std_per_seed": episode_return.std(axis=1, dtype=np.float64).tolist(),
        "length_per_seed": length.mean(axis=1).tolist(),
        "unfinished_per_seed": (~finished).sum(axis=1).tolist(),
    }


def _checked(algo: str, options: Any, config: Any, env_params: dict[str, float]) -> Env:
    found = cfg.problems(options)
    if not found and options.seed + options.num_seeds > 2**32:
        found.append(f"num_seeds = {options.num_seeds}: seed + num_seeds must not exceed {2**32}")
    env = None
    try:
        env = envs.make(options.env, **env_params)
    except cfg.ConfigError as error:
        found.append(str(error))
    found += ALGORITHMS[algo].problems(config, env)
    if found:
        raise cfg.ConfigError("\n".join(found))
    return env


def _claim(directory: Path, overwrite: bool) -> None:
    """Makes the run directory, or takes over an empty one. Of two claims at once, one fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if overwrite:
            for name in FILES:
                (directory / name).unlink(missing_ok=True)
        if any(directory.iterdir()):
            raise cfg.ConfigError(
                f"out = {str(directory)!r}: already in use; must be a new or an empty directory, or give --overwrite "
                "to replace the run in it"
            )
        (directory / "config.json").open("x").close()
    except OSError as error:
        raise cfg.ConfigError(f"out = {str(directory)!r}: cannot be written ({error.strerror})") from None


def _file_name(env: str) -> str:
    return env.replace("/", "-")


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def _print_summary(console: Console, directory: Path, summary: dict[str, Any]) -> None:
    mean = summary["return_mean"]
    worst = min(summary["return_per_seed"], default=math.nan)
    console.print(
        f"{summary['status']}: {logging.frames_per_second(summary['steps_per_second'])}, "
        f"{summary['wall_seconds']:.1f} s; return {mean:.1f} (worst agent {worst:.1f}); {directory}",
        highlight=False,
        soft_wrap=True,
    )
