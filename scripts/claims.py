"""What scripts of acceptance experiments share: claims that hold or fail, figures a line for each seed, and a command
line."""

import argparse
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import cli, train_population, use_cpu_cores
from purerl.types import Array, PyTree

failed: list[str] = []


def claim(text: str, holds: Any) -> None:
    """Prints ``text`` and whether it holds."""
    print(f"{'holds' if holds else 'FAILS'}: {text}", flush=True)
    if not holds:
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


def population(make_train: Callable, config: Any, seeds: int) -> PyTree:
    """What ``make_train(config)(key)`` returns, as numpy ``[S]``."""
    result = train_population(make_train, config, jax.vmap(jax.random.key)(jnp.arange(seeds)))
    return jax.tree.map(np.asarray, result)


def main(description: str, experiments: dict[str, tuple[Callable[..., None], int]]) -> None:
    """Runs the experiment that the command line names, ``{name: (function, seeds)}``; the exit status is 1 if a claim
    fails. Arguments with defaults become options."""
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="experiment", required=True)
    for name, (experiment, seeds) in experiments.items():
        command = commands.add_parser(name, help=inspect.getdoc(experiment))
        command.add_argument("--seeds", type=int, default=seeds)
        for option in list(inspect.signature(experiment).parameters.values())[1:]:
            command.add_argument(f"--{option.name}", type=type(option.default), default=option.default)
    arguments = vars(parser.parse_args())
    use_cpu_cores()
    experiments[arguments.pop("experiment")][0](**arguments)
    raise SystemExit(bool(failed))
