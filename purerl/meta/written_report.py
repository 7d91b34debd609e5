"""Reports on functions that a user or a program wrote: the comparison of `report` for an artefact, in a directory."""

import re
from typing import Any

from purerl import config as cfg
from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.learned import written
from purerl.meta import pictures
from purerl.meta import report as reports
from purerl.runs.describing.environments import checked, team_problems
from purerl.runs.describing.run_directory import clear, hold
from purerl.runs.running.train import place

REPORT, PICTURE = "report.json", "function.png"
"""The files in the directory."""


def report(name: str, socket: str, algo: str, options: Any, config: Any, env_params: dict[str, Any]) -> dict[str, Any]:
    """Compares the function that ``MODULE:FUNCTION`` names with the baselines of a socket; see `report.report`.

    The algorithm ``algo`` is trained with ``config`` in the environments of ``options`` (a `WrittenOptions`), which all
    have the keyword arguments ``env_params``. It writes the directory of the options.

    Raises:
        ConfigError: Something is not valid; the message has all problems at once, before anything is trained.
    """
    usual = ALGORITHMS[algo].preset(options.preset) if options.preset else ALGORITHMS[algo].Config()
    problems, made = cfg.unused([config], usual), {}
    for env in options.env:
        try:
            made[env] = checked(env, env_params)
            problems += team_problems(ALGORITHMS[algo], config, made[env])
        except ConfigError as error:
            problems.append(str(error))
    function = written.load(socket, name)
    if problems := problems or function.made.problems(config):
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    written.check(function, config)
    directory = place(options, re.sub("[^A-Za-z0-9.]+", "-", f"{socket}-{algo}"))
    about = {"socket": socket, "algo": algo, "function": name, "config": dict(vars(config)), "env_params": env_params}
    sizes = {"tuning_seeds": options.tuning_seeds, "seed": options.seed, "lanes": options.lanes or None}
    with hold(directory, (REPORT, PICTURE), overwrite=options.overwrite):
        clear(directory, (REPORT, PICTURE))
        pictures.draw(directory / PICTURE, function, config)
        path = directory / REPORT
        return reports.compare(function, algo, config, made, (), path, about, options.seeds, **sizes)
