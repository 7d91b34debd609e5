"""The commands ``purerl eval``, ``compare`` and ``list``, which write nothing but a plot that is asked for."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Literal

from purerl import catalogue
from purerl.algos import ALGORITHMS
from purerl.catalogue import families, is_installed
from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.display import output
from purerl.errors import ConfigError
from purerl.hosts.libraries import MODULES
from purerl.names import here


def evaluate(args: list[str]) -> int:
    """Runs ``purerl eval RUN``."""
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import EvalOptions

    options = parsing.parse(EvalOptions, "purerl eval", args, positional=True)
    cfg.check(options)
    params = options.params

    if options.levels and options.against:
        raise ConfigError(f"levels = {options.levels!r}: cannot be combined with against = {options.against!r}")
    if options.simulations_against is not None and not options.against:
        raise ConfigError(f"simulations_against = {options.simulations_against}: has no effect without against")

    from purerl.display import progress, tables
    from purerl.runs.reading import evaluation, levels
    from purerl.store import trusted_modules
    from purerl.store.writing import finite

    with prepared(options):
        how = options.episodes, options.max_steps, options.seed
        trust = trusted_modules.memory(options.trust)
        given: dict[str, Any] = {"trust": trust, "env_params": params, "sample": options.sample}
        given["simulations"] = options.simulations
        with progress.waiting(progress.console(), "evaluating"):
            if options.levels:
                result = levels.evaluate_in_levels(options.run, options.levels, *how, **given)
            else:
                given |= {name: getattr(options, name) for name in ("eval_envs", "against", "simulations_against")}
                result = evaluation.evaluate_run(options.run, *how, **given)
    if options.json:
        output.show(json.dumps(finite(result), indent=2))
    elif options.levels:
        tables.print_levels(result)
    else:
        tables.print_evaluation(result)
    return 0


def compare(args: list[str]) -> int:
    """Runs ``purerl compare RUN RUN ...``."""
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import CompareOptions

    options = parsing.parse(CompareOptions, "purerl compare", args, positional=True)
    if not options.runs:
        raise ConfigError("runs: are missing; name two or more runs, or a sweep")
    cfg.check(options, *cfg.unused([options], CompareOptions(options.runs)))
    if options.offline:
        return _compare_offline(options)

    from purerl.display import tables
    from purerl.runs.reading import comparison
    from purerl.store import trusted_modules
    from purerl.store.writing import finite

    rows = comparison.compare(options.runs, options.by, trust=trusted_modules.memory(options.trust))
    if options.json:
        output.show(json.dumps(finite(rows), indent=2))
    else:
        tables.print_comparison(rows)
    return 0


def _compare_offline(options: Any) -> int:
    """Runs ``purerl compare --offline SWEEP ...``, which writes a plot alone."""
    from purerl.display import curves, plots, progress, tables
    from purerl.runs.describing.options import MachineOptions
    from purerl.runs.describing.run_directory import check_out
    from purerl.runs.reading import offline_comparison
    from purerl.store import trusted_modules
    from purerl.store.writing import finite

    path = here(options.out)
    if options.out and path.suffix not in plots.FORMATS:
        raise ConfigError(f"out = {options.out!r}: must end in {', '.join(plots.FORMATS)}")
    if options.out:
        check_out(path, overwrite=True)
    sizes = {"episodes": options.episodes, "policies": options.policies}
    with prepared(MachineOptions()), progress.waiting(progress.console(), "evaluating"):
        result = offline_comparison.compare(options.runs, **sizes, trust=trusted_modules.memory(options.trust))
    if options.json:
        output.show(json.dumps(finite(result), indent=2))
    else:
        tables.print_offline(result)
    if options.out:
        plots.save(path, curves.offline_figure(result))
    return 0


if TYPE_CHECKING:
    Family = str
else:
    Family = Literal[("all", *families(), *MODULES)]


@dataclasses.dataclass(frozen=True)
class ListOptions:
    """What to list."""  # not in runs.options, which needs JAX

    what: Literal["algos", "envs", "learned"]
    """What to list."""
    family: Family = "all"
    """Library whose environments to list. For the host libraries gymnasium, envpool and pettingzoo only names are
    listed."""
    json: bool = False
    """Print a JSON list of names instead of text."""


def list_names(args: list[str]) -> int:
    """Runs ``purerl list algos|envs|learned``, the first two without JAX."""
    options = parsing.parse(ListOptions, "purerl list", args, positional=True)
    family = None if options.family == "all" else options.family
    if options.what != "envs" and family:
        raise ConfigError(f"family = {family!r}: is for environments only; give purerl list envs --family {family}")
    if options.what == "algos":
        names = lines = list(ALGORITHMS)
    elif options.what == "learned":
        from purerl.learned import shipped

        names = list(shipped.files())
        lines = names if options.json else [_function(name) for name in names]
    elif family in MODULES:
        from purerl.hosts import making

        output.divert()
        names = lines = making.listed(family)
    else:
        names, lines = catalogue.names(family), _lines(family)
    output.show(json.dumps(names, indent=2) if options.json else "\n".join(lines))
    return 0


def _function(name: str) -> str:
    """Describes a learned function that comes with purerl: how it is used, and where its report found it better."""
    from purerl.display import words
    from purerl.learned import artefacts, shipped

    artefact = artefacts.load(shipped.files()[name])
    algo, config = artefacts.training(artefact)
    usual = type(config)()
    changed = {name: x for name, x in vars(config).items() if x != getattr(usual, name)}
    options = [f"--{field.replace('_', '-')} {words.value(x)}" for field, x in changed.items()]
    option = artefact.option.replace("_", "-")
    used = " ".join(["purerl train", algo, f"--{option}", name, *options])
    lines = [name, f"    {used}", f"    searched for in: {', '.join(artefact.card['envs'])}"]
    found = shipped.compared(artefact.card.get("evidence", {}).get("rows", []))
    lines += [f"    {how}: {', '.join(places)}" for how, places in found.items() if places]
    return "\n".join(lines)


def _lines(family: str | None) -> list[str]:
    """Lists the environments of a family or of all, with the command that installs those that are not installed."""
    lines = []
    for each, names in families().items():
        if family in (None, each):
            mark = "" if is_installed(each) else f'   (not installed: pip install "purerl[{each}]")'
            lines += [name + mark for name in names]
    return lines
