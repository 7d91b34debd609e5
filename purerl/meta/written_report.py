"""Reports on functions that a user or a program wrote: the comparison of `report` for an artefact, in a directory."""

from typing import Any

from purerl.algos import ALGORITHMS
from purerl.learned import written
from purerl.meta import pictures
from purerl.meta import report as reports
from purerl.runs.describing.description import Problems, file_name, usual
from purerl.runs.describing.environments import checked
from purerl.runs.describing.run_directory import clear, hold
from purerl.runs.running.run import place

REPORT, PICTURE = "report.json", "function.png"
"""The files in the directory."""


def report(name: str, socket: str, algo: str, options: Any, config: Any) -> dict[str, Any]:
    """Compares the function that ``MODULE:FUNCTION`` names with the baselines of a socket; see `report.report`.

    The algorithm ``algo`` is trained with ``config`` in the environments of ``options`` (a `WrittenOptions`). It writes
    the directory of the options.

    Raises:
        ConfigError: Something is not valid; the message has all problems at once, before anything is trained.
    """
    problems, made, params = Problems(), {}, options.params
    for env in options.env:
        with problems.collected():
            made[env] = checked(env, params)
    problems.of_settings(ALGORITHMS[algo], config, list(made.values()), usual(algo, options), {})
    function = written.load(socket, name)
    problems.extend([] if problems else function.made.problems(config))
    problems.refuse()
    written.check(function, config)
    directory = place(options, file_name(socket, algo))
    about = {"socket": socket, "algo": algo, "function": name, "config": dict(vars(config)), "env_params": params}
    sizes = {"tuning_seeds": options.tuning_seeds, "seed": options.seed, "lanes": options.lanes or None}
    with hold(directory, (REPORT, PICTURE), overwrite=options.overwrite):
        clear(directory, (REPORT, PICTURE))
        pictures.draw(directory / PICTURE, function, config)
        path = directory / REPORT
        return reports.compare(function, algo, config, made, (), path, about, options.seeds, **sizes)
