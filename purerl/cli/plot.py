"""The command ``purerl plot RUN ...``."""

from pathlib import Path
from typing import Any

from purerl.cli import parsing
from purerl.errors import ConfigError, printable

MANY = 32
"""The number of agents from which on a single training is drawn as a population."""


def plot(args: list[str]) -> int:
    """Runs ``purerl plot RUN ...``, which writes one picture.

    It reads only config files, logs and JSON, and for ``--kind levels`` the run and its levels as well.
    """
    from purerl.runs.describing.reading_options import PlotOptions

    options = parsing.parse(PlotOptions, "purerl plot", args, positional=True)
    if not options.runs:
        raise ConfigError("runs = []: must be one or more run directories")

    from purerl.display import plots
    from purerl.runs.describing import config_file

    path = Path(options.out)
    if path.suffix not in plots.FORMATS:
        raise ConfigError(f"out = {options.out!r}: must end in {', '.join(plots.FORMATS)}")
    runs = [Path(run) for run in options.runs]
    files = [config_file.read(run / config_file.NAME) for run in runs]
    kind = options.kind if options.kind != "auto" else _kind(options, files)
    if len(runs) > 1 and kind != "curves":
        raise ConfigError(f"kind = {kind!r}: needs a single run; several runs are drawn as curves")
    if kind != "curves" and (options.y or options.group_by or options.x != "frames"):
        raise ConfigError(f"kind = {kind!r}: has fixed axes; --x, --y and --group-by are for curves")
    draws = {"curves": _curves, "quantiles": _quantiles, "map": _map, "search": _search, "levels": _levels}
    figure = draws[kind](options, runs, files)
    try:
        plots.save(path, figure)
    except OSError as error:
        raise ConfigError(f"out = {options.out!r}: cannot be written ({error.strerror})") from None
    print(printable(str(path)))
    return 0


def _kind(options: Any, files: list[Any]) -> str:
    """Chooses the kind of picture that suits the runs of these config files."""
    alone, seeds = len(files) == 1 and not (options.y or options.group_by), files[0].fields.get("seeds")
    if alone and files[0].command == "sweep":
        return "map"
    if alone and files[0].command == "evolve":
        return "search"
    many = isinstance(seeds, list) and len(seeds) >= MANY
    return "quantiles" if alone and many and options.x == "frames" else "curves"


def _title(file: Any) -> str:
    """Returns the algorithm and the environment of a run."""
    envs = file.fields.get("envs")
    several = ", ".join(map(str, envs)) if isinstance(envs, list) else ""
    return f"{file.fields.get('algo')} on {file.fields.get('env') or several}"


def _curves(options: Any, runs: list[Path], files: list[Any]) -> Any:
    """Draws a curve for each configuration of each run, or for each value of a setting (`lines.readable`)."""
    from purerl.display import curves, words
    from purerl.display.lines import grouped
    from purerl.runs.reading import run_curves

    unit = run_curves.unit(runs)
    usual = "eval_return" if unit == "updates" else "episode_return"
    metric = options.y or ("fitness" if files[0].command == "evolve" else usual)
    drawn = grouped(run_curves.lines(runs, metric, options.x), options.group_by)
    if not drawn.lines:
        raise ConfigError(f"y = {metric!r}: its log does not say after how many frames")
    titles = list(dict.fromkeys(map(_title, files)))
    label = "seconds of training" if options.x == "seconds" else unit
    title = titles[0] if len(titles) == 1 else ""
    return curves.learning_figure(drawn.lines, (label, words.shown(metric)), title, drawn.told)


def _quantiles(options: Any, runs: list[Path], files: list[Any]) -> Any:
    """Draws the returns of a population."""
    from purerl.display import curves
    from purerl.runs.reading.results import population

    x, middle, quantiles = population(runs[0])
    if not len(x):
        raise ConfigError(f"{runs[0]}: has no quantiles of a population")
    return curves.population_figure(x, middle, quantiles, ("frames", "return"), _title(files[0]))


def _map(options: Any, runs: list[Path], files: list[Any]) -> Any:
    """Draws the map of a sweep."""
    from purerl.display import plots
    from purerl.store import guards
    from purerl.store.guards import plotted

    path = runs[0] / "sweep.json"
    summary = guards.read_json(path)
    try:
        rows = sorted(summary["ranked"], key=lambda row: row["config"])
        shown = lambda x: guards.text(x) if isinstance(x, str) else plotted(x)
        swept = {name: [shown(x) for x in column] for name, column in summary["swept"].items()}
        scores = [[plotted(x) for x in row["returns"]] for row in rows]
        frames = [guards.count(row.get("env_steps")) for row in rows]
        return plots.sweep_figure(swept, scores, _title(files[0]), frames)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise ConfigError(f"{path}: not the ranking of a sweep") from None


def _search(options: Any, runs: list[Path], files: list[Any]) -> Any:
    """Draws the fitness of a search over its frames, and what it learned."""
    from purerl.learned import artefacts
    from purerl.meta import pictures
    from purerl.runs.reading import run_curves
    from purerl.store import trusted_modules

    trust = trusted_modules.memory(False)
    artefact = artefacts.load(runs[0], trust, artefacts.REPORT_IMPORTS)
    _, config = artefacts.training(artefact, trust=trust, where=runs[0])
    there = {"fitness", *run_curves.metrics(runs[0], run_curves.columns)}
    names = [name for name in ("fitness_worst", "fitness", "fitness_best") if name in there]
    curves = {str(name): run_curves.lines(runs, name)[0] for name in names}
    values = {name: each.values for name, each in curves.items()}
    return pictures.search(curves["fitness"].x, values, "frames", artefact, config)


def _levels(options: Any, runs: list[Path], files: list[Any]) -> Any:
    """Draws the levels of a curriculum as they begin in the environment of the run."""
    from purerl.runs.reading import levels, loading
    from purerl.store import trusted_modules

    run = loading.load(runs[0], trust=trusted_modules.memory(False), playing=True)
    name, params = run.saved["env"], run.saved["env_params"]
    return levels.sheet(levels.load(runs[0] / levels.FILE, run.env, name), run.env, name, params)
