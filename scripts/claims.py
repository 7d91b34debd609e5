"""What scripts of acceptance experiments share: claims that hold or fail, figures a line for each seed, and a command
line."""

import argparse
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scales

from purerl import cli, train_population, use_cpu_cores
from purerl.types import Array, PyTree

failed: list[str] = []
scale = "full"
"""Set by who reads the command line. At tiny nothing fails, and trainings are cut to `ITERATIONS`."""
ITERATIONS = 8


def claim(text: str, holds: Any) -> None:
    """Prints ``text`` and whether it holds."""
    print(f"{'holds' if holds else 'not asked of a tiny run' if scale == 'tiny' else 'FAILS'}: {text}", flush=True)
    if not holds and scale != "tiny":
        failed.append(text)


def command(words: Sequence[str]) -> None:
    """Prints and runs ``purerl`` with these words. Exits with its code if that is not 0."""
    print("purerl " + " ".join(words), flush=True)
    try:
        cli.main(list(words))
    except SystemExit as stop:
        if stop.code:
            raise


def show(title: str, rows: Array) -> None:
    """Prints a line of figures for each seed ``[S, ...]``."""
    for seed, row in enumerate(np.asarray(rows).reshape(len(rows), -1)):
        print(f"{title}, seed {seed}: " + " ".join(f"{x:.2f}" for x in row), flush=True)


def few(full: int, tiny: int) -> int:
    """The number of a loop's turns, at this scale."""
    return tiny if scale == "tiny" else full


def sized(config: Any) -> Any:
    """``config``, of `ITERATIONS` at scale tiny."""
    if scale != "tiny":
        return config
    if not hasattr(config, "num_steps"):  # from recorded play alone: steps are updates
        return dataclasses.replace(config, total_steps=ITERATIONS * config.num_updates)
    least = config.num_envs * (getattr(config, "warmup_rows", 0) + ITERATIONS * config.num_steps)
    return dataclasses.replace(config, total_steps=min(config.total_steps, least))


def population(make_train: Callable, config: Any, seeds: int) -> PyTree:
    """What ``make_train(sized(config))(key)`` returns, as numpy ``[S]``."""
    result = train_population(make_train, sized(config), jax.vmap(jax.random.key)(jnp.arange(seeds)))
    return jax.tree.map(np.asarray, result)


Experiments = dict[str, tuple[Callable[..., None], int]]
"""By name a function of a number of seeds, and of options, those with defaults; and how many seeds there are."""


def command_line(description: str, experiments: Experiments, needs: dict[str, str] | None = None) -> Any:
    """Makes the parser of a command that names an experiment; ``needs``: what each needs (`scales.Scale`)."""
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="experiment", required=True)
    for name, (experiment, seeds) in experiments.items():
        command = commands.add_parser(name, help=inspect.getdoc(experiment))
        command.add_argument("--seeds", type=int, default=seeds)
        for option in list(inspect.signature(experiment).parameters.values())[1:]:
            command.add_argument(f"--{option.name}", type=type(option.default), default=option.default)
        scales.add(command, (needs or {}).get(name, ""), seeds=2)
    return parser


def main(parser: argparse.ArgumentParser, experiments: Experiments) -> None:
    """Runs the experiment that the command line names; the exit status is 1 if a claim fails."""
    global scale
    given = vars(parser.parse_args())
    scale = given.pop("scale")
    use_cpu_cores()
    experiments[given.pop("experiment")][0](**given)
    raise SystemExit(bool(failed))
