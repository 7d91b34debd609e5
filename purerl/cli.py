"""The command line: ``purerl COMMAND ...``; `USAGE` names the commands.

Exit codes: 0 done, 2 bad input (nothing was run), 3 diverged, 4 out of memory, 130 and 143 interrupted by SIGINT and
SIGTERM and saved.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from purerl import config as cfg
from purerl.files import finite
from purerl.envs.names import nearest

C = TypeVar("C")
O = TypeVar("O")
EXIT_BAD_INPUT = 2
EXIT_OUT_OF_MEMORY = 4
CACHE_OFF = "off"

USAGE = """usage: purerl COMMAND ...

commands:
  train ALGO --env ENV   train agents and evaluate them; writes a run directory
  sweep ALGO --env ENV   train over ranges of hyper-parameters and rank them
  plan ALGO --env ENV    tell what a training would cost, without running it
  eval RUN               evaluate the policies of a run directory
  compare RUN RUN ...    runs side by side, with intervals
  list algos|envs        name what there is

purerl COMMAND --help tells more."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """What to train on, how often, and where to."""

    env: str
    """Environment; `purerl list envs` names them."""
    env_params: tuple[str, ...] = ()
    """Parameters of the environment, as NAME=NUMBER."""
    preset: str = ""
    """Settings to begin from, which those given here change: minatar, brax or openai-five, where the algorithm has
    it."""
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
    agents_at_once: cfg.NonNegativeCount = 0
    """Agents on the devices at once; the others wait. 0: as many as their memory holds."""
    lanes: cfg.NonNegativeCount = 0
    """Agents that a device computes side by side. 0: one on a CPU core, which keeps every agent's bits what they are
    alone (with 4 it is faster), and all on other devices."""
    compilation_cache: str = "~/.cache/purerl"
    """Directory of compiled programs, which makes the same command start faster the next time; "off" keeps none.
    JAX_COMPILATION_CACHE_DIR in the environment goes before it."""


@dataclasses.dataclass(frozen=True)
class SweepOptions(TrainOptions):
    """What to sweep: any number as LOW:HIGH:lin|log:COUNT, LOW:HIGH:lin|log (at random) or VALUE,VALUE,..."""

    num_samples: cfg.Count = 16
    """Configurations to draw where ranges are given without a count."""


@dataclasses.dataclass(frozen=True)
class PlanOptions(TrainOptions):
    """What to plan for."""

    json: bool = False
    """Print JSON instead of a table."""


@dataclasses.dataclass(frozen=True)
class Train(Generic[O, C]):
    options: Annotated[O, tyro.conf.arg(name="")]
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
    """Seed of the episodes; 0 gives those that ended the training."""
    compilation_cache: str = "~/.cache/purerl"
    """Directory of compiled programs; "off" keeps none."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclasses.dataclass(frozen=True)
class Compare:
    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run directories, two or more; all are set against the first."""
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
    except MemoryError as error:
        print(f"purerl: error: out of memory: {error}", file=sys.stderr)
        code = EXIT_OUT_OF_MEMORY
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    sys.exit(code)


def dispatch(args: list[str]) -> int:
    """Finds the command's word and runs it; returns the exit code."""
    commands = {
        "train": train,
        "sweep": sweep,
        "plan": plan,
        "eval": evaluate,
        "compare": compare,
        "list": list_names,
    }
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


def parse(kind: type[C], prog: str, args: list[str], default: C | None = None) -> C:
    """Reads ``args`` into a dataclass, from ``default`` on. Raises `ConfigError` where tyro would print a box."""
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(whole_numbers)
    box = io.StringIO()
    try:
        with registry, contextlib.redirect_stderr(box):
            return tyro.cli(kind, prog=prog, args=args, default=default)
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
    algo, given = _training("train", TrainOptions, args)

    from purerl import experiment

    with _prepared(given.options):
        description = experiment.describe(algo, given.options, given.config, env_params(given.options.env_params))
        return experiment.train(description, given.options)


def sweep(args: list[str]) -> int:
    """``purerl sweep ALGO``."""
    from purerl import ranges
    from purerl.algos import ALGORITHMS
    from purerl.results import ENV_PREFIX

    fields = cfg.traced_fields(ALGORITHMS[args[0]].Config) if args and args[0] in ALGORITHMS else []
    args, swept = ranges.extract(args, fields, ENV_PREFIX)
    algo, given = _training("sweep", SweepOptions, args)
    cfg.check(given.options, *([] if swept else [f"nothing to sweep: give a number as {ranges.FORMS}"]))
    values = ranges.configurations(swept, given.options.num_samples, given.options.seed)

    from purerl import experiment

    with _prepared(given.options):
        description = experiment.describe(
            algo, given.options, given.config, env_params(given.options.env_params), values
        )
        return experiment.train(description, given.options)


def plan(args: list[str]) -> int:
    """``purerl plan ALGO``."""
    algo, given = _training("plan", PlanOptions, args)

    from purerl import experiment, planning

    with _prepared(given.options):
        description = experiment.describe(algo, given.options, given.config, env_params(given.options.env_params))
        found = experiment.plan(description, given.options)
    print(json.dumps(found._asdict(), indent=2) if given.options.json else planning.in_words(found))
    return 0


def _training(command: str, options: type[O], args: list[str]) -> tuple[str, Any]:
    """The algorithm's name, and a `Train` of its options and config."""
    from purerl import presets
    from purerl.algos import ALGORITHMS

    if not args or args[0] in ("-h", "--help"):
        print(f"usage: purerl {command} ALGO --env ENV [OPTIONS]\n\nalgorithms: " + ", ".join(ALGORITHMS))
        print(f"\npurerl {command} ALGO --help lists the options.")
        raise SystemExit(0 if args else EXIT_BAD_INPUT)
    name = choose("algorithm", args[0], ALGORITHMS)
    target = Train[options, ALGORITHMS[name].Config], f"purerl {command} {name}", args[1:]
    given = parse(*target)
    if given.options.preset:
        given = parse(*target, Train(given.options, presets.config(given.options.preset, name)))
    return name, given


@contextlib.contextmanager
def _prepared(options: TrainOptions | Eval) -> Iterator[None]:
    """JAX set up for a whole program: all cores, the compilation cache, and running out of memory as `MemoryError`."""
    import jax

    from purerl.devices import use_compilation_cache, use_cpu_cores

    with contextlib.suppress(RuntimeError):  # called from a program that has computed before
        use_cpu_cores()
    if options.compilation_cache != CACHE_OFF:
        use_compilation_cache(Path(options.compilation_cache).expanduser())
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(f"{str(error).splitlines()[0]}; give fewer --agents-at-once, or cut num_envs") from None


def evaluate(args: list[str]) -> int:
    """``purerl eval RUN``."""
    options = parse(Eval, "purerl eval", args)
    cfg.check(options)

    from purerl import results

    with _prepared(options):
        result = results.evaluate_run(Path(options.run), options.episodes, options.max_steps, options.seed)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        results.print_evaluation(result)
    return 0


def compare(args: list[str]) -> int:
    """``purerl compare RUN RUN ...``."""
    options = parse(Compare, "purerl compare", args)
    if len(options.runs) < 2:
        raise cfg.ConfigError(f"runs = {list(options.runs)}: must be two or more run directories")

    from purerl import results

    found = results.compare([Path(run) for run in options.runs])
    if options.json:
        print(json.dumps(finite(found), indent=2))
    else:
        results.print_comparison(found)
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
