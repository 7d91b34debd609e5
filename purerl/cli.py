"""The command line: ``purerl train ALGO``, ``purerl eval RUN``, ``purerl list algos|envs``.

Exit codes: 0 done, 2 bad input (nothing was run), 3 diverged, 130 and 143 interrupted by SIGINT and SIGTERM and saved.
"""

import contextlib
import dataclasses
import io
import json
import math
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from purerl import config as cfg
from purerl.envs.names import nearest

C = TypeVar("C")
EXIT_BAD_INPUT = 2

USAGE = """usage: purerl COMMAND ...

commands:
  train ALGO --env ENV   train agents and evaluate them; writes a run directory
  eval RUN               evaluate the policies of a run directory
  list algos|envs        name what there is

purerl COMMAND --help tells more."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """What to train on, how often, and where to."""

    env: str
    """Environment; `purerl list envs` names them."""
    env_params: tuple[str, ...] = ()
    """Parameters of the environment, as NAME=NUMBER."""
    num_seeds: cfg.Count = 1
    """Agents to train at once, in one program."""
    seed: cfg.Seed = 0
    """Seed of the first agent; the others count up. Agent i equals a lone run with its seed."""
    out: str | None = None
    """Run directory to make (default: runs/ALGO-ENV-DATE-TIME)."""
    overwrite: bool = False
    """Replace the run in the run directory."""
    eval_episodes: cfg.Count = 100
    """Episodes of the final evaluation, for each agent."""


@dataclasses.dataclass(frozen=True)
class Train(Generic[C]):
    options: Annotated[TrainOptions, tyro.conf.arg(name="")]
    config: Annotated[C, tyro.conf.arg(name="")]


@dataclasses.dataclass(frozen=True)
class Eval:
    run: Annotated[str, tyro.conf.Positional]
    """Run directory."""
    episodes: cfg.Count = 100
    """Episodes to play with each agent's policy, taking its most likely actions."""
    max_steps: cfg.Count = 10_000
    """Steps after which an episode is cut."""
    seed: cfg.Seed = 0
    """Seed of the episodes."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclasses.dataclass(frozen=True)
class List:
    what: Annotated[Literal["algos", "envs"], tyro.conf.Positional]
    """What to list."""
    json: bool = False
    """Print JSON instead of lines."""


def main(args: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its code. ``args`` defaults to the command line's."""
    try:
        code = dispatch(list(sys.argv[1:] if args is None else args))
    except cfg.ConfigError as error:
        for line in str(error).splitlines():
            print(f"purerl: error: {line}", file=sys.stderr)
        code = EXIT_BAD_INPUT
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    sys.exit(code)


def dispatch(args: list[str]) -> int:
    """Finds the command's word and runs it; returns the exit code."""
    commands = {"train": train, "eval": evaluate, "list": list_names}
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else EXIT_BAD_INPUT
    return commands[choose("command", args[0], commands)](args[1:])


def choose(field: str, value: str, names: Any) -> str:
    """``value`` if it is one of ``names``; otherwise raises `ConfigError` with the nearest of them."""
    if value in names:
        return value
    raise cfg.ConfigError(
        f"{field} = {value!r}: unknown; nearest: {nearest(value, names)}; must be one of {', '.join(names)}"
    )


def parse(kind: type[C], prog: str, args: list[str]) -> C:
    """Reads ``args`` into a dataclass. Raises `ConfigError` where tyro would print a box."""
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(whole_numbers)
    box = io.StringIO()
    try:
        with registry, contextlib.redirect_stderr(box):
            return tyro.cli(kind, prog=prog, args=args)
    except SystemExit as stop:
        if not stop.code:
            raise
    lines = [re.sub(r"[^\x20-\x7e]", "", line).strip() for line in box.getvalue().splitlines()[1:]]
    text = " ".join(line or ";" for line in lines).split("; For full helptext")[0]
    raise cfg.ConfigError(text.strip("; ").replace(" ;", ";") + f"; see {prog} --help")


def whole_numbers(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """Reads ints as people write them: ``500000``, ``500_000`` and ``5e5``."""
    if info.type is not int:
        return None

    def read(args: list[str]) -> int:
        try:
            return int(args[0])
        except ValueError:
            pass
        try:
            number = float(args[0])
        except ValueError:
            number = math.nan
        if not number.is_integer():
            raise ValueError(f"{args[0]!r} is not a whole number")
        return int(number)

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def env_params(pairs: Sequence[str]) -> dict[str, float]:
    """``("gravity=9.8",)`` as a dictionary; whole numbers stay ints. Raises `ConfigError`."""
    params = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            number = float(text)
        except ValueError:
            raise cfg.ConfigError(f"env_params = {pair!r}: must be NAME=NUMBER") from None
        params[name] = int(number) if number.is_integer() and "." not in text else number
    return params


def train(args: list[str]) -> int:
    """``purerl train ALGO``."""
    from purerl.algos import ALGORITHMS

    if not args or args[0] in ("-h", "--help"):
        print("usage: purerl train ALGO --env ENV [OPTIONS]\n\nalgorithms: " + ", ".join(ALGORITHMS))
        print("\npurerl train ALGO --help lists the options.")
        return 0 if args else EXIT_BAD_INPUT
    name = choose("algorithm", args[0], ALGORITHMS)
    algo = ALGORITHMS[name]
    given = parse(Train[algo.Config], f"purerl train {name}", args[1:])

    from purerl import experiment

    return experiment.train(name, given.options, given.config, env_params(given.options.env_params))


def evaluate(args: list[str]) -> int:
    """``purerl eval RUN``."""
    options = parse(Eval, "purerl eval", args)
    cfg.check(options)

    from purerl import experiment

    result = experiment.evaluate_run(Path(options.run), options.episodes, options.max_steps, options.seed)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        experiment.print_evaluation(result)
    return 0


def list_names(args: list[str]) -> int:
    """``purerl list algos|envs``."""
    options = parse(List, "purerl list", args)

    from purerl import envs
    from purerl.algos import ALGORITHMS

    names = list(ALGORITHMS) if options.what == "algos" else envs.names()
    print(json.dumps(names, indent=2) if options.json else "\n".join(names))
    return 0


if __name__ == "__main__":
    main()
