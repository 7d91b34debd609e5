"""The command line: ``purerl COMMAND ...``; `USAGE` names the commands.

Exit codes: 0 done, 2 bad input (nothing was run), 3 diverged, 4 out of memory, 5 a file could not be written, 130 and
143 interrupted by SIGINT and SIGTERM and saved.
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
from purerl.errors import ConfigError
from purerl.names import choose
from purerl.store.json_files import finite

C = TypeVar("C")
O = TypeVar("O")
EXIT_BAD_INPUT = 2
EXIT_OUT_OF_MEMORY = 4
EXIT_IO = 5
CACHE_OFF = "off"

USAGE = """usage: purerl COMMAND ...

commands:
  train ALGO --env ENV   train agents and evaluate them; writes a run directory
  sweep ALGO --env ENV   train over ranges of hyper-parameters and rank them
  plan ALGO --env ENV    tell what a training would cost, without running it
  evolve SOCKET --env ENV  evolve a loss, a drift, a rule or an optimiser over whole trainings
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
class EvolveOptions:
    """What to evolve on, how long, and where to."""

    algo: str = ""
    """Algorithm whose socket it is (default: the first that has one)."""
    env: tuple[str, ...] = ()
    """Environment, or several to be fit in all of them."""
    env_params: tuple[str, ...] = ()
    """Parameters of the environments, as NAME=NUMBER."""
    preset: str = ""
    """Settings of the algorithm to begin from, which those given here change."""
    population: cfg.Count = 64
    """Candidates of a generation; with meta_gradient, agents."""
    generations: cfg.Count = 256
    """Generations in all."""
    num_seeds: cfg.Count = 1
    """Trainings of each candidate in each environment, with keys that all candidates of a generation share."""
    strategy: str = "Open_ES"
    """Evolution strategy: Open_ES, SNES, PGPE, CMA_ES, Sep_CMA_ES or LES; or meta_gradient."""
    sigma: cfg.Positive = 0.04
    """Deviation of the first candidates from their mean."""
    sigma_decay: cfg.Fraction = 0.999
    """Part of it that is left after each generation; of Open_ES."""
    sigma_limit: cfg.Positive = 0.01
    """Least deviation; of Open_ES."""
    meta_learning_rate: cfg.Positive = 0.01
    """Adam's step size on the mean; of Open_ES and of meta_gradient."""
    momentum: Annotated[float, cfg.Range(0, 1)] = 0.99
    """Adam's first decay on the mean; of Open_ES."""
    seed: cfg.Seed = 0
    """Seed of the search."""
    lanes: cfg.NonNegativeCount = 0
    """Trainings that a device computes side by side. 0: one on a CPU core, and all on other devices. On a CPU, 8 are
    faster."""
    out: str | None = None
    """Run directory to make (default: runs/SOCKET-ALGO-DATE-TIME)."""
    overwrite: bool = False
    """Replace the search in the run directory."""
    resume: bool = False
    """Go on with the search in the run directory, from its newest checkpoint; it may have more generations."""
    checkpoint_seconds: cfg.Positive = 30.0
    """Time between two checkpoints."""
    budget_seconds: cfg.NonNegative = 0.0
    """Time after which the search ends, whatever its generations; 0: none."""
    dry_run: bool = False
    """Only tell the frames, the memory and the hours that it would take."""
    compilation_cache: str = "~/.cache/purerl"
    """Directory of compiled programs; "off" keeps none."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    run: Annotated[str, tyro.conf.Positional]
    """Run directory of a search, or an artefact, such as a closed form."""
    env: tuple[str, ...] = ()
    """Environments that it was not evolved in, to be tried as well."""
    seeds: cfg.Count = 256
    """Trainings with it, and as many with each baseline, on seeds that it has never seen."""
    tuning_seeds: cfg.Count = 64
    """Trainings for each value that a baseline is tuned over."""
    seed: cfg.Seed = 0
    """Another one gives other held-out seeds."""
    lanes: cfg.NonNegativeCount = 0
    """Trainings that a device computes side by side. 0: one on a CPU core, and all on other devices."""
    compilation_cache: str = "~/.cache/purerl"
    """Directory of compiled programs; "off" keeps none."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclasses.dataclass(frozen=True)
class DistillOptions:
    run: Annotated[str, tyro.conf.Positional]
    """Run directory of a search for a value loss or a policy drift."""
    out: str | None = None
    """File to write (default: closed.json in the run directory)."""


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
    except ConfigError as error:
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
    except OSError as error:
        print(f"purerl: error: {error}; what was saved before is as it was", file=sys.stderr)
        code = EXIT_IO
    sys.exit(code)


def dispatch(args: list[str]) -> int:
    """Finds the command's word and runs it; returns the exit code."""
    commands = {
        "train": train,
        "sweep": sweep,
        "plan": plan,
        "evolve": evolve,
        "eval": evaluate,
        "compare": compare,
        "list": list_names,
    }
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else EXIT_BAD_INPUT
    return commands[choose("command", args[0], commands)](args[1:])


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
    raise ConfigError(text.strip("; ").replace(" ;", ";") + f"; see {prog} --help")


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
            raise ConfigError(f"env_params = {pair!r}: must be NAME=NUMBER") from None
        params[name] = int(number) if number.is_integer() and "." not in text else number
    return params


def train(args: list[str]) -> int:
    """``purerl train ALGO``."""
    algo, given = _training("train", TrainOptions, args)

    from purerl.runs.description import describe
    from purerl.runs.train import train as run

    with _prepared(given.options):
        description = describe(algo, given.options, given.config, env_params(given.options.env_params))
        return run(description, given.options)


def sweep(args: list[str]) -> int:
    """``purerl sweep ALGO``."""
    from purerl.algos import ALGORITHMS
    from purerl.cli import ranges
    from purerl.runs.description import ENV_PREFIX

    fields = cfg.traced_fields(ALGORITHMS[args[0]].Config) if args and args[0] in ALGORITHMS else []
    args, swept = ranges.extract(args, fields, ENV_PREFIX)
    algo, given = _training("sweep", SweepOptions, args)
    cfg.check(given.options, *([] if swept else [f"nothing to sweep: give a number as {ranges.FORMS}"]))
    values = ranges.configurations(swept, given.options.num_samples, given.options.seed)

    from purerl.runs.description import describe
    from purerl.runs.train import train as run

    with _prepared(given.options):
        description = describe(algo, given.options, given.config, env_params(given.options.env_params), values)
        return run(description, given.options)


def plan(args: list[str]) -> int:
    """``purerl plan ALGO``."""
    algo, given = _training("plan", PlanOptions, args)

    from purerl.population import planning
    from purerl.runs.description import describe
    from purerl.runs.train import plan as cost

    with _prepared(given.options):
        description = describe(algo, given.options, given.config, env_params(given.options.env_params))
        found = cost(description, given.options)
    print(json.dumps(found._asdict(), indent=2) if given.options.json else planning.in_words(found))
    return 0


def evolve(args: list[str]) -> int:
    """``purerl evolve SOCKET``."""
    from purerl.algos import ALGORITHMS
    from purerl.learned import sockets

    if not args or args[0] in ("-h", "--help"):
        print("usage: purerl evolve SOCKET --env ENV [OPTIONS]\n\nsockets: " + ", ".join(sockets.SOCKETS))
        print("\npurerl evolve SOCKET --help lists the options.")
        print("purerl evolve report RUN sets what was found against what it replaces, on held-out seeds.")
        print("purerl evolve distill RUN fits a closed form to it.")
        return 0 if args else EXIT_BAD_INPUT
    if args[0] in ("report", "distill"):
        return {"report": report, "distill": distill}[args[0]](args[1:])
    socket = choose("socket", args[0], sockets.SOCKETS)
    algos = sockets.algorithms(socket)
    named = [value for flag, value in zip(args, args[1:], strict=False) if flag == "--algo"]
    named += [flag.removeprefix("--algo=") for flag in args if flag.startswith("--algo=")]
    algo = choose("algo", named[-1], ALGORITHMS) if named else algos[0]
    if socket not in ALGORITHMS[algo].sockets:
        raise ConfigError(f"algo = {algo!r}: has no socket {socket}; must be one of {', '.join(algos)}")
    target = Train[EvolveOptions, ALGORITHMS[algo].Config], f"purerl evolve {socket}", args[1:]
    given = parse(*target)
    if given.options.preset:
        given = parse(*target, Train(given.options, ALGORITHMS[algo].preset(given.options.preset)))
    with _prepared(given.options):
        from purerl.meta import search

        params = env_params(given.options.env_params)
        description = search.describe(socket, algo, given.options, given.config, params)
        if not given.options.dry_run:
            return search.search(description, given.options)
        from purerl.display import progress
        from purerl.population import planning

        found = search.plan(description)
        print(f"{'frames':<24}{found['frames']:,}")
        print(f"{'frames a generation':<24}{found['frames_per_generation']:,}")
        print(f"{'peak memory':<24}{planning.gigabytes(found['peak_bytes'])}")
        print(f"{'speed':<24}{progress.frames_per_second(found['steps_per_second'])}")
        print(f"{'hours':<24}{found['hours']:.3g}")
    return 0


def report(args: list[str]) -> int:
    """``purerl evolve report RUN``."""
    options = parse(ReportOptions, "purerl evolve report", args)
    cfg.check(options)
    with _prepared(options):
        from purerl.display import tables
        from purerl.meta import report

        lanes = options.lanes or None
        seeds = options.seeds, options.tuning_seeds, options.seed
        found = report.report(Path(options.run), options.env, *seeds, lanes)
    if options.json:
        print(json.dumps(finite(found), indent=2))
    else:
        tables.print_report(found)
    return 0


def distill(args: list[str]) -> int:
    """``purerl evolve distill RUN``."""
    options = parse(DistillOptions, "purerl evolve distill", args)

    from purerl.learned import artefacts, expressions
    from purerl.meta import distill

    path = Path(options.out or Path(options.run) / "closed.json")
    form = distill.artefact(artefacts.load(options.run))
    try:
        artefacts.save(path, form)
    except OSError as error:
        raise ConfigError(f"out = {str(path)!r}: cannot be written ({error.strerror})") from None
    print(expressions.in_words(form.expression))
    print(f"explains {form.card['explained']:.4f} of what was learned; {path}")
    return 0


def _training(command: str, options: type[O], args: list[str]) -> tuple[str, Any]:
    """The algorithm's name, and a `Train` of its options and config."""
    from purerl.algos import ALGORITHMS

    if not args or args[0] in ("-h", "--help"):
        print(f"usage: purerl {command} ALGO --env ENV [OPTIONS]\n\nalgorithms: " + ", ".join(ALGORITHMS))
        print(f"\npurerl {command} ALGO --help lists the options.")
        raise SystemExit(0 if args else EXIT_BAD_INPUT)
    name = choose("algorithm", args[0], ALGORITHMS)
    target = Train[_with_learned(options, name), ALGORITHMS[name].Config], f"purerl {command} {name}", args[1:]
    given = parse(*target)
    if given.options.preset:
        given = parse(*target, Train(given.options, ALGORITHMS[name].preset(given.options.preset)))
    return name, given


def _with_learned(options: type[O], algo: str) -> type[O]:
    """Options with one more for each learned function that an algorithm takes."""
    from purerl.learned import artefacts

    told = "Learned function in its place: a run of `purerl evolve`, or a file of it."
    kind = Annotated[str, tyro.conf.arg(help=told)]
    fields = [(name, kind, dataclasses.field(default="")) for name in artefacts.options(algo)]
    return dataclasses.make_dataclass(options.__name__, fields, bases=(options,), frozen=True)


@contextlib.contextmanager
def _prepared(options: TrainOptions | Eval) -> Iterator[None]:
    """JAX set up for a whole program: all cores, the compilation cache, and running out of memory as `MemoryError`."""
    import jax

    from purerl.population.devices import use_compilation_cache, use_cpu_cores

    with contextlib.suppress(RuntimeError):  # called from a program that has computed before
        use_cpu_cores()
    if options.compilation_cache != CACHE_OFF:
        use_compilation_cache(Path(options.compilation_cache).expanduser())
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(
            f"{str(error).splitlines()[0]}; give fewer --lanes or (but to evolve) --agents-at-once, or cut num_envs"
        ) from None


def evaluate(args: list[str]) -> int:
    """``purerl eval RUN``."""
    options = parse(Eval, "purerl eval", args)
    cfg.check(options)

    from purerl.display import tables
    from purerl.runs import evaluation

    with _prepared(options):
        result = evaluation.evaluate_run(Path(options.run), options.episodes, options.max_steps, options.seed)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        tables.print_evaluation(result)
    return 0


def compare(args: list[str]) -> int:
    """``purerl compare RUN RUN ...``."""
    options = parse(Compare, "purerl compare", args)
    if len(options.runs) < 2:
        raise ConfigError(f"runs = {list(options.runs)}: must be two or more run directories")

    from purerl.display import tables
    from purerl.runs import comparison

    found = comparison.compare([Path(run) for run in options.runs])
    if options.json:
        print(json.dumps(finite(found), indent=2))
    else:
        tables.print_comparison(found)
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
