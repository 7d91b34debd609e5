"""Kernels and traffic of one iteration of every algorithm on a GPU that need not be here, held to a table.

    python scripts/budgets.py [ALGO ...] [--write]
    python scripts/budgets.py ALGO ... --env ENV [--preset PRESET] [--traced-for cpu]

Each algorithm is compiled for `TARGET` with its default settings on CartPole, or on Pendulum if it needs actions in a
Box, `AGENTS` agents side by side. Prints what it takes beside what ``tests/hardware/budgets.json`` allows; ``--write``
makes that what was found. The second form only prints, for another environment, with a preset, or of a program that is
traced as for a CPU. Needs pip install 'purerl[gpu-plan]'; ``tests/hardware/test_budgets.py`` checks the table.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import scales

TARGET, AGENTS, ENVS, EPISODES = "h100", 64, ("CartPole-v1", "Pendulum-v1"), 20
TABLE = Path(__file__).parent.parent / "tests" / "hardware" / "budgets.json"


def usage(algo: str, env: str = "", preset: str = "", platform: str = "gpu") -> dict[str, float]:
    """``kernels`` of an iteration, and ``bytes_per_frame`` that they move; the program is traced for ``platform``."""
    from purerl.population import planning

    lowered, frames = program(algo, env, preset, platform)
    census = planning.census(lowered)
    return {"kernels": census.kernels, "bytes_per_frame": round(census.traffic_bytes / frames, 1)}


def program(algo: str, env: str, preset: str, platform: str) -> tuple[Any, int]:
    """An iteration of `AGENTS` agents, lowered for `TARGET`, and its frames."""
    import jax

    from purerl import backend, envs, trees
    from purerl.algos import ALGORITHMS
    from purerl.hardware import absent

    place = jax.sharding.SingleDeviceSharding(absent.device(TARGET))
    algorithm = ALGORITHMS[algo]
    config = algorithm.preset(preset) if preset else algorithm.Config()
    named = [envs.make(name) for name in ([env] if env else ENVS)]
    suited = next((env for env in named if not algorithm.problems(config, env)), named[0])
    with backend.tracing_for(platform):
        trainer = algorithm.make_trainer(config, suited, **played(algorithm.datasets, suited))
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), AGENTS))
        state = trees.shapes(jax.eval_shape(jax.vmap(trainer.init), keys), place)
        return jax.jit(jax.vmap(trainer.step), donate_argnums=0).lower(state), AGENTS * trainer.env_steps


def played(names: tuple[str, ...], env: Any) -> dict[str, Any]:
    """Datasets of `EPISODES` episodes of random play, by the names of an algorithm's parts."""
    import jax

    from purerl import record
    from purerl.loops.evaluation import random_player

    return {name: record(jax.random.key(0), env, random_player(env), EPISODES) for name in names}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("algos", nargs="*", help="algorithms (default: all)")
    result.add_argument("--write", action="store_true", help="write the table")
    result.add_argument("--env", default="", help=f"environment (default: {' or '.join(ENVS)})")
    result.add_argument("--preset", default="", help="named settings of the algorithm (default: none)")
    result.add_argument("--traced-for", choices=("gpu", "cpu"), default="gpu", help="platform (default: gpu)")
    scales.add(result, "jax_cuda12_plugin")
    return result


def main() -> None:
    """Prints the table, and writes it if asked."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from purerl.algos import ALGORITHMS

    given = parser().parse_args()
    other = (given.env, given.preset, given.traced_for)
    default = ("", "", "gpu")
    if given.write and other != default:
        parser().error("--write: the table is of the defaults alone")
    table = json.loads(TABLE.read_text()) if TABLE.exists() and other == default else {}
    for algo in given.algos or (["reinforce"] if given.scale == "tiny" else ALGORITHMS):
        before, now = table.get(algo, {}), usage(algo, *other)
        print(algo, *(f"{name} {before.get(name, '-')} -> {value}" for name, value in now.items()), flush=True)
        table[algo] = now
        if given.write:
            TABLE.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
