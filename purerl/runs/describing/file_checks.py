"""Checks of the description of a run in a file, which is untrusted."""

import reprlib
from pathlib import Path
from typing import Any

from purerl import config as cfg
from purerl import envs
from purerl.algos import ALGORITHMS, read_config
from purerl.errors import ConfigError
from purerl.learned import artefacts, own_parts
from purerl.names import Trust, check_trusted, choose
from purerl.runs.describing import datasets, select_options, sharding, stop_options
from purerl.runs.describing.sweeps import ENV_PREFIX, config_part, env_part
from purerl.store import guards
from purerl.types import Env

KINDS = {
    "algo": str,
    "env": str,
    "env_params": dict,
    "seeds": list,
    "config": dict,
    "swept": dict,
    "learned": dict,
    "datasets": dict,
    "stop": dict,
    "warm_start": dict,
    "split": dict,
    "parts": dict,
    "select": dict,
}
"""The type of each field of a `Description` in JSON."""
EMPTY: dict[str, Any] = {name: {} for name, kind in KINDS.items() if kind is dict}
"""The fields that a file may lack, which are then empty."""
MOST_OF_A_SIZE = 2**16
"""The largest whole number among the parameters of an environment, except for numbers of steps."""
MOST_VALUES, MOST_TEXT = 1000, 10_000
"""The most values that a parameter of an environment consists of, and the most characters of them."""
MOST_CHARACTERS = 300
"""The largest number of characters of a line about what a file holds."""


def problems(fields: Any, trust: Trust, where: Path, stand_in: Env | None = None) -> list[str]:
    """Returns a line for each fault of the description of a run that a file holds.

    The checks run in parts, since each needs the one before: faults of a part end the checks. Nothing that the run at
    ``where`` names is imported, unless ``trust``. The environment is not made if there is a ``stand_in`` for it.
    """
    if not isinstance(fields, dict):
        return ["not the description of a run"]
    fields = {**EMPTY, **fields}
    wrong = [name for name, kind in KINDS.items() if not isinstance(fields.get(name), kind)]
    if wrong:
        return [f"not the description of a run: {', '.join(wrong)} missing or of another type"]
    algo, env, seeds, swept = fields["algo"], fields["env"], fields["seeds"], fields["swept"]
    try:
        for field in ("algo",) if stand_in else ("algo", "env"):
            check_trusted(field, fields[field], trust, where)
        for part, name in fields["parts"].items():
            check_trusted(f"parts: {reprlib.repr(part)}", str(name), trust, where)
        choose("algo", algo, ALGORITHMS)
        config = read_config(algo, fields["config"])
    except ConfigError as error:
        return str(error).splitlines()
    lines = cfg.problems(config) + parameter_problems(fields["env_params"], env)
    lines += _seed_problems(seeds) + _column_problems(swept)
    if not lines and len(seeds) * len(next(iter(swept.values()), [0])) > cfg.MEMBERS:
        lines.append(f"seeds and swept: more than {cfg.MEMBERS} agents")
    if lines:
        return lines
    if stand_in:
        env, problem = stand_in, list[str]()
    else:
        env, problem = _environment(env, fields["env_params"] | env_part(swept, 0))
    extremes = {
        name: [min(column), max(column)] for name, column in swept.items()
    }  # ranges are intervals, so the extremes suffice
    of_config = lambda config: ALGORITHMS[algo].problems(config, env)
    lines = problem + of_config(config) + cfg.sweep_problems(config, config_part(extremes), of_config)
    lines += datasets.problems(fields["datasets"], ALGORITHMS[algo].datasets) + stop_options.problems(fields["stop"])
    lines += sharding.problems_of_file(fields["split"]) + select_options.problems(fields["select"])
    lines += own_parts.problems_of_file(ALGORITHMS[algo], fields["parts"])
    lines += warm_start_problems(fields["warm_start"])
    return lines + _learned_problems(algo, fields["learned"], trust, where)


def warm_start_problems(begun: dict[str, Any]) -> list[str]:
    """Returns a line if a file's entry of the run whose policies a run began with is faulty; does not open it."""
    kinds = {"run": str, "agent": int | None, "sha256": str, "critics": list}
    full = {"critics": [], **begun}
    sound = set(full) == set(kinds) and all(isinstance(full[name], kind) for name, kind in kinds.items())
    if not begun or (sound and not isinstance(begun["agent"], bool) and (begun["agent"] or 0) >= 0):
        return []
    return ["warm_start: must have a run, an agent or null, and a sha256, and may have a list of critics"]


def _environment(name: str, params: dict[str, Any]) -> tuple[Env | None, list[str]]:
    """Makes the environment that a file asks for; returns None and the reasons if that is impossible."""
    try:
        return envs.make(name, **params), []
    except ConfigError as error:
        return None, str(error).splitlines()
    except Exception as error:  # other libraries' environments can raise any error for a wrong parameter
        return None, [f"env = {reprlib.repr(name)}: cannot be made ({(str(error).splitlines() or [''])[0]})"]


def parameter_problems(params: dict[str, Any], *envs: str) -> list[str]:
    """Returns a line for each faulty parameter in a file of the environments called ``envs``.

    The name must be an identifier, and the value one that the command line reads: a flag, null, a finite number, a
    short text, or lists and objects of a few of these. A size that would fill the memory, and a number
    that float32 or int32 cannot hold, are refused unless it is a user's own environment.
    """
    problems, own = [], any(":" in env for env in envs)
    for name, value in params.items():
        entry = f"env_params: {reprlib.repr(name)} = {reprlib.repr(value)}"
        if not name.isidentifier() or not _is_parameter(value, own):
            problems.append(f"{entry}: must be the name of a parameter and a value of at most {MOST_VALUES} parts")
        elif not own and "steps" not in name and any(type(x) is int and abs(x) > MOST_OF_A_SIZE for x in _parts(value)):
            problems.append(f"{entry}: a size must not exceed {MOST_OF_A_SIZE}")
    return problems


def _parts(value: Any, depth: int = 8) -> list[Any]:
    """Returns the values that a value of JSON consists of, the names in objects included, as deep as ``depth``."""
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None or not depth else [part for each in inner for part in _parts(each, depth - 1)]


def _is_parameter(value: Any, own: bool) -> bool:
    parts, number = _parts(value), guards.is_number if own else _is_number
    sound = all(part is None or isinstance(part, bool | str) or number(part) for part in parts)
    return sound and len(parts) <= MOST_VALUES and sum(map(len, map(str, parts))) <= MOST_TEXT


def _is_number(value: Any) -> bool:
    """Returns whether a value of JSON is a number that float32 or int32 can hold."""
    return guards.is_number(value, cfg.LARGEST if type(value) is float else 2**31 - 1)


def _seed_problems(seeds: list[Any]) -> list[str]:
    """Returns a line if the seeds that a file holds have a fault."""
    if not 0 < len(seeds) <= cfg.MEMBERS:
        return [f"seeds: must be 1 to {cfg.MEMBERS} whole numbers, got {len(seeds)}"]
    wrong = [seed for seed in seeds if type(seed) is not int or not 0 <= seed < 2**32]
    return [f"seeds: {reprlib.repr(wrong[0])} is no whole number in [0, {2**32})"] if wrong else []


def _column_problems(swept: dict[str, Any]) -> list[str]:
    """Returns a line for each fault of the swept values that a file holds, before any of them is tried."""
    problems = []
    for name, column in swept.items():
        if not isinstance(column, list) or not column or not all(_is_number(value) for value in column):
            problems.append(f"swept: {reprlib.repr(name)} must have a list of finite numbers")
        if name.startswith(ENV_PREFIX) and not name.removeprefix(ENV_PREFIX).isidentifier():
            problems.append(f"swept: {reprlib.repr(name)} is not the name of a parameter")
    if not problems and len({len(column) for column in swept.values()}) > 1:
        problems.append("swept: the lists must have one length")
    return problems


def _learned_problems(algo: str, learned: dict[str, Any], trust: Trust, where: Path) -> list[str]:
    """Returns a line for each fault of the learned functions that a file at ``where`` holds."""
    places, problems = artefacts.options(algo), []
    for option, document in learned.items():
        try:
            made = artefacts.of_json(document, trust, where)
        except ConfigError as error:
            problems.append(f"learned: {reprlib.repr(option)}: {error}")
            continue
        if not artefacts.is_for(made, option, places):
            problems.append(f"learned: {reprlib.repr(option)}: {algo} takes no {made.socket} there")
    return problems
