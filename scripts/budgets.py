"""Kernels and traffic of one iteration of every algorithm on a GPU that need not be here, held to a table.

    python scripts/budgets.py [ALGO ...] [--write]
    python scripts/budgets.py ALGO ... --env ENV [--preset PRESET] [--traced-for cpu]
    python scripts/budgets.py alphazero muzero --searches N [--env ENV] [--preset PRESET]

Each algorithm is compiled for `TARGET` with its default settings on CartPole, or on Pendulum if it needs actions in a
Box, `AGENTS` agents side by side. Prints what it takes beside what ``tests/hardware/budgets.json`` allows; ``--write``
makes that what was found. The second form only prints, for another environment, with a preset, or of a program that is
traced as for a CPU. The third prints the loops of `N` searches side by side, as training makes them: one of
simulations, and within it those down the tree and back, which count for one level.

Needs pip install 'purerl[gpu-plan]'; ``tests/hardware/test_budgets.py`` checks the table.
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


def configured(algo: str, env: str, preset: str) -> tuple[Any, Any]:
    """The settings of an algorithm, and the environment ``env``, or the first of `ENVS` that it can be trained in."""
    from purerl import envs
    from purerl.algos import ALGORITHMS

    algorithm = ALGORITHMS[algo]
    config = algorithm.preset(preset) if preset else algorithm.Config()
    named = [envs.make(name) for name in ([env] if env else ENVS)]
    return config, next((env for env in named if not algorithm.problems(config, env)), named[0])


def program(algo: str, env: str, preset: str, platform: str) -> tuple[Any, int]:
    """An iteration of `AGENTS` agents, lowered for `TARGET`, and its frames."""
    import jax

    from purerl import backend, trees
    from purerl.algos import ALGORITHMS
    from purerl.hardware import absent

    place = jax.sharding.SingleDeviceSharding(absent.device(TARGET))
    algorithm = ALGORITHMS[algo]
    config, suited = configured(algo, env, preset)
    with backend.tracing_for(platform):
        trainer = algorithm.make_trainer(config, suited, **played(algorithm.required, suited))
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), AGENTS))
        state = trees.shapes(jax.eval_shape(jax.vmap(trainer.init), keys), place)
        return jax.jit(jax.vmap(trainer.step), donate_argnums=0).lower(state), AGENTS * trainer.counts


def searches(algo: str, env: str, preset: str, number: int, platform: str) -> tuple[Any, int]:
    """``number`` searches side by side, lowered for `TARGET`, and the number of simulations of each."""
    import jax

    from purerl import backend, trees
    from purerl.algos import ALGORITHMS
    from purerl.hardware import absent
    from purerl.loops.evaluation import playing, random_player

    place = jax.sharding.SingleDeviceSharding(absent.device(TARGET))
    config, suited = configured(algo, env, preset)

    def given() -> tuple[Any, ...]:
        here = playing(key, suited, random_player(suited), number)[0]()
        state = learner.init(key, here.obs)
        return learner.behaviour(state), here, learner.noise(key, (trees.length(here.obs),))

    with backend.tracing_for(platform):
        learner, key = ALGORITHMS[algo].make_learner(config, suited), jax.random.key(0)
        lowered = jax.jit(learner.explore).lower(*trees.shapes(jax.eval_shape(given), place))
    return lowered, config.simulations


def show_searches(algo: str, *given: Any) -> None:
    """Prints the loops of searches, and what a simulation takes."""
    from purerl.population import planning

    lowered, simulations = searches(algo, *given)
    census = planning.census(lowered)
    for loop in census.loops:
        label = f"{'  ' * loop.depth}{loop.label or 'once'}"
        print(f"{algo} {label}: {loop.runs} x {loop.kernels} kernels, {loop.traffic_bytes} bytes", flush=True)
    each = census.kernels / simulations, census.traffic_bytes / simulations
    print(f"{algo}: {each[0]:.1f} kernels and {each[1]:.0f} bytes a simulation", flush=True)


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
    result.add_argument("--searches", type=int, default=0, help="print this many searches instead (default: none)")
    scales.add(result, "jax_cuda12_plugin")
    return result


def main() -> None:
    """Prints the table, and writes it if asked."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from purerl.algos import ALGORITHMS

    given = parser().parse_args()
    other = (given.env, given.preset, given.traced_for)
    default = ("", "", "gpu")
    if given.write and (other != default or given.searches):
        parser().error("--write: the table is of the defaults alone")
    if given.searches:
        for algo in given.algos:
            show_searches(algo, given.env, given.preset, given.searches, given.traced_for)
        return
    table = json.loads(TABLE.read_text()) if TABLE.exists() and other == default else {}
    for algo in given.algos or (["reinforce"] if given.scale == "tiny" else ALGORITHMS):
        before, now = table.get(algo, {}), usage(algo, *other)
        print(algo, *(f"{name} {before.get(name, '-')} -> {value}" for name, value in now.items()), flush=True)
        table[algo] = now
        if given.write:
            TABLE.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
