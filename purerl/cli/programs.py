"""Sweeps over settings that shape the program: the programs that a command line names, and their descriptions."""

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

from purerl.algos import ALGORITHMS
from purerl.cli import parsing
from purerl.errors import ConfigError

if TYPE_CHECKING:
    from purerl.runs.describing.config_file import Start


def read(
    command: str, algo: str, options: type[parsing.Options], args: list[str], start: "Start | None" = None
) -> tuple[parsing.Train[parsing.Options, Any], dict[str, list[Any]]]:
    """Reads the programs of ``purerl COMMAND ALGO``: all combinations of the lists of settings that shape the program.

    Args:
        command: The command.
        algo: The name of the algorithm.
        options: The class of the command's options.
        args: The arguments after the algorithm.
        start: The values of a config file (None: there is no config file).

    Returns:
        The options and the config of the first program; and by the name of each setting that differs its values, one
        for each program (empty: there is only one program).

    Raises:
        ConfigError: An argument is wrong, a list contains a value twice, or there are too many programs.
    """
    from purerl import config as cfg
    from purerl.cli import ranges
    from purerl.runs.describing.sweeps import MOST_PROGRAMS

    Config = ALGORITHMS[algo].Config
    traced = cfg.traced_fields(Config)
    rest, lists = ranges.lists(args, [field.name for field in dataclasses.fields(Config) if field.name not in traced])
    if not lists:
        training, known = parsing.training(command, algo, options, rest, start), start.programs if start else {}
        return (replaced(training, known, 0, start) if known else training), known
    counts = [len(texts) for texts in lists.values()]
    if math.prod(counts) > MOST_PROGRAMS:
        raise ConfigError(
            f"{' * '.join(map(str, counts))} programs ({', '.join(lists)}): must be at most {MOST_PROGRAMS}"
        )
    values: dict[str, list[Any]] = {}
    firsts = {name: ranges.flags(name, texts[0]) for name, texts in lists.items()}
    for name, texts in lists.items():
        beside = [arg for other, given in firsts.items() if other != name for arg in given]
        made = [
            parsing.training(command, algo, options, [*rest, *beside, *ranges.flags(name, x)], start) for x in texts
        ]
        values[name] = [getattr(each.config, name) for each in made]
        if len(set(values[name])) < len(texts):
            raise ConfigError(f"{name} = {','.join(texts)!r}: contains a value twice")
    first = parsing.training(
        command, algo, options, [*rest, *(arg for given in firsts.values() for arg in given)], start
    )
    rows = list(itertools.product(*values.values()))
    return first, {name: [row[i] for row in rows] for i, name in enumerate(values)}


def replaced(
    given: parsing.Train[Any, Any], programs: dict[str, list[Any]], index: int, start: "Start | None"
) -> parsing.Train[Any, Any]:
    """Returns the options and the config of one program.

    Args:
        given: The options and the config of the first program.
        programs: The values of each setting that differs, one for each program.
        index: The number of the program.
        start: The values of a config file (None: there is no config file).

    Raises:
        ConfigError: The config file sets something that the config does not have.
    """
    known = [field.name for field in dataclasses.fields(given.config)]
    if start:
        start.file.existing(programs, known, "programs: ")  # refuses the others
    changes = {name: column[index] for name, column in programs.items()}
    return parsing.Train(given.options, dataclasses.replace(given.config, **changes))


def in_words(programs: dict[str, list[Any]], index: int) -> str:
    """Returns the settings of a program as a line."""
    from purerl.runs.describing.sweeps import as_text

    return ", ".join(f"{name} {as_text(column[index])}" for name, column in programs.items())


def described(
    algo: str,
    given: parsing.Train[Any, Any],
    start: "Start | None",
    swept: dict[str, list[float]],
    programs: dict[str, list[Any]],
) -> list[Any]:
    """Describes each program, or the only one.

    Args:
        algo: The name of the algorithm.
        given: The options and the config of the first program.
        start: The values of a config file (None: there is no config file).
        swept: The values of each swept field, one for each configuration.
        programs: The values of each setting that differs, one for each program (empty: there is only one program).

    Raises:
        ConfigError: With the problems of all programs, each of which names its program unless all have it.
    """
    from purerl.runs.describing.config_file import FRESH
    from purerl.runs.describing.description import describe

    begun = start or FRESH
    if programs and (select := getattr(given.options, "select", "none")) != "none":
        raise ConfigError(
            f"select = {select!r}: is not supported for a sweep of several programs ({', '.join(programs)})"
        )
    if not programs:
        return [describe(algo, given.options, given.config, begun, swept)]
    descriptions, problems, count = [], {}, len(next(iter(programs.values())))
    for index in range(count):
        config = replaced(given, programs, index, start).config
        try:
            descriptions.append(describe(algo, given.options, config, begun, swept, changed=config))
        except ConfigError as error:
            problems[index] = str(error).splitlines()
    shared = [line for line in dict.fromkeys(sum(problems.values(), [])) if all(line in x for x in problems.values())]
    shared = shared if len(problems) == count else []
    own = [
        f"{in_words(programs, index)}: {line}"
        for index, lines in problems.items()
        for line in lines
        if line not in shared
    ]
    if problems:
        raise ConfigError("\n".join([*shared, *own]))
    return descriptions
