"""Arguments of the command line as options and configs, and one line for each thing that is wrong with them."""

import contextlib
import dataclasses
import io
import math
import re
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro

from purerl.algos import ALGORITHMS
from purerl.catalogue import TEXTS
from purerl.errors import ConfigError
from purerl.names import choose, nearest

if TYPE_CHECKING:
    from purerl.runs.describing.config_file import ConfigFile, Start

Options = TypeVar("Options")
Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Train(Generic[Options, Config]):
    """The options of a command and the config of an algorithm."""

    options: Options
    config: Config


def grouped(options: type, algorithm: Any) -> type:
    """A class of ``options``, an algorithm's own config, and the settings of each wrapper that can be put around it,
    as one flat list of flags; in the help each wrapper's stand under a heading of their own.

    Raises `ConfigError` if two of them have the same name.
    """
    from purerl.learners.wrappers import wrapper

    settings_names, option_names = (
        {field.name for field in dataclasses.fields(x)} for x in (algorithm.Config, options)
    )
    if twice := ", ".join(sorted(settings_names & option_names)):
        raise ConfigError(f"algorithm = {algorithm.name!r}: its settings {twice} are options of the command already")
    flat = tyro.conf.arg(name="")
    fields: list[Any] = [("options", Annotated[options, flat]), ("config", Annotated[algorithm.own_config, flat])]
    for each in wrapper.added(algorithm.own_config, algorithm.wrappers):
        default = dataclasses.field(default_factory=each.Settings)
        settings: Any = each.Settings
        headed = tyro.conf.OmitArgPrefixes[Annotated[settings, tyro.conf.arg(name=each.name)]]
        fields.append((each.name.replace(" ", "_"), headed, default))
    return dataclasses.make_dataclass("Grouped", fields, namespace={"__doc__": options.__doc__}, frozen=True)


def together(given: Any, algorithm: Any) -> Train[Any, Any]:
    """The options and the config of what was read into a class of `grouped`."""
    parts = [getattr(given, field.name) for field in dataclasses.fields(given)[1:]]
    values = {field.name: getattr(part, field.name) for part in parts for field in dataclasses.fields(part)}
    return Train(given.options, algorithm.Config(**values))


def apart(given: Train[Any, Any], kind: Any) -> Any:
    """Options and a config as one of a class of `grouped`."""
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)[1:]]
    of_part = lambda part: part(**{field.name: getattr(given.config, field.name) for field in dataclasses.fields(part)})
    return kind(given.options, *(of_part(hints[name]) for name in names))


def taken(flag: str, args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments without those of ``flag``, and the values that it is given, as ``flag VALUE`` or ``flag=VALUE``.

    Raises `ConfigError` for one without a value.
    """
    rest, values = [], []
    waiting = iter(args)
    for arg in waiting:
        if arg == flag:
            values.append(next(waiting, ""))
            if not values[-1] or values[-1].startswith("--"):
                raise ConfigError(f"{flag}: needs a value")
        elif arg.startswith(f"{flag}="):
            values.append(arg.partition("=")[2])
        else:
            rest.append(arg)
    return rest, values


def from_file(args: Sequence[str]) -> tuple["ConfigFile | None", list[str]]:
    """The config file that ``--config FILE`` names among ``args``, and the other arguments. Raises `ConfigError`."""
    rest, paths = taken("--config", args)
    if not paths:
        return None, rest

    from purerl.runs.describing import config_file

    file = config_file.read(Path(paths[-1]))
    config_file.trusted(file, rest, "name it on the command line as well if that is what you want")
    return file, rest


def algorithm(command: str, args: Sequence[str]) -> tuple[str, list[str], "ConfigFile | None"]:
    """What ``purerl COMMAND ALGO ...`` names, or ``--algo ALGO``: the algorithm, without JAX; the other arguments; and
    a config file.

    A config file names the algorithm if the arguments do not. Wrappers that ``--wrapper`` names become part of the
    algorithm's name. Raises `ConfigError` if there is none.
    """
    args, wrappers = taken("--wrapper", args)
    args, flagged = taken("--algo", args)
    args = [*flagged[-1:], *args]
    for wrapper in wrappers:
        if ":" not in wrapper:
            raise ConfigError(f"wrapper = {wrapper!r}: must be MODULE:ATTRIBUTE")
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: purerl {command} ALGO --env ENV [OPTIONS]\n\nalgorithms: " + ", ".join(ALGORITHMS))
        print(f"\npurerl {command} ALGO --help lists the options.")
        raise SystemExit(0 if args else 2)
    file, rest = from_file(args)
    named = rest and not rest[0].startswith("-")
    if file is None:
        return "+".join([choose("algorithm", args[0], ALGORITHMS), *wrappers]), rest[1:], None
    if file.command not in (command, "train") and command != "plan":
        raise ConfigError(f"{file.path}: is of purerl {file.command}, not of purerl {command}")
    algo = choose(f"{file.path}: algo", file.take("algo", str, rest[0] if named else ""), ALGORITHMS)
    if named and rest[0] != algo:
        raise ConfigError(f"algorithm = {rest[0]!r}: {file.path} is of {algo}")
    if wrappers:
        raise ConfigError(f"wrapper = {wrappers[0]!r}: {file.path} has all wrappers; give one of the two")
    return algo, rest[1:] if named else rest, file


BESIDE = (
    "--config FILE takes options from the config file of a run, and --wrapper MODULE:ATTRIBUTE puts a wrapper of your "
    "own around the learner."
)


def training(
    command: str, algo: str, options: type[Options], args: list[str], start: "Start | None" = None
) -> Train[Options, Any]:
    """The options and the config that ``args`` give for ``purerl COMMAND ALGO``. Raises `ConfigError`."""
    made = with_learned(options, algo)
    made.__doc__ = f"{made.__doc__} {BESIDE}"
    return with_preset(made, algo, f"purerl {command} {algo}", args, start)


def with_preset(
    options: type[Options], algo: str, prog: str, args: list[str], start: "Start | None" = None
) -> Train[Options, Any]:
    """The options and the config that ``args`` give, from the preset on that they name, or from a config file on.

    Raises `ConfigError`.
    """
    found = ALGORITHMS[algo]
    kind = grouped(options, found)
    read = lambda default: together(parse(kind, prog, args, default=default), found)
    given = read(apart(started(start, options, algo), kind) if start else None)
    if not given.options.preset:
        return given
    if start:
        raise ConfigError(f"preset = {given.options.preset!r}: a config file has all settings; give one of the two")
    return read(apart(Train(given.options, found.preset(given.options.preset)), kind))


def usual(start: "Start | None", algo: str) -> Any:
    """The config that a config file has, with defaults for what it leaves out; None without one."""
    if start is None:
        return None
    found, values = ALGORITHMS[algo], dict(start.config)
    start.file.check(values, [field.name for field in dataclasses.fields(found.Config)], "config: ")
    preset = start.options.get("preset")
    return dataclasses.replace(found.preset(preset) if preset else found.Config(), **_typed(found.Config, values))


def started(start: "Start", options: type, algo: str) -> Train[Any, Any]:
    """The options and the config of a config file, with defaults for what it leaves out. Raises `ConfigError`."""
    from purerl import config as cfg

    file, values = start.file, {"env": "", **start.options, "preset": ""}
    file.check(values, [field.name for field in dataclasses.fields(options)], "options: ")
    made = Train(options(**_typed(options, values)), usual(start, algo))
    try:
        cfg.check(made.options, *cfg.problems(made.config))
    except ConfigError as error:
        raise ConfigError("\n".join(f"{file.path}: {line}" for line in str(error).splitlines())) from None
    return made


def _typed(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON has them as the types of a dataclass: lists as tuples, and 5e5 as a whole number."""
    whole = {name for name, hint in typing.get_type_hints(kind).items() if hint is int}

    def typed(name: str, value: Any) -> Any:
        if isinstance(value, float) and value.is_integer() and name in whole:
            return int(value)
        return tuple(value) if isinstance(value, list) else value

    return {name: typed(name, value) for name, value in values.items()}


def with_learned(options: type[Options], algo: str) -> type[Options]:
    """Options with one more for each learned function and each dataset that an algorithm takes."""
    from purerl.learned import artefacts, published

    fields = []
    for name, socket in artefacts.options(algo).items():
        told = f"Learned {name.replace('_', ' ')} to use: a run directory of `purerl evolve {socket}`, or a file of it"
        told += f", or {published.FILES[socket]}." if socket in published.FILES else "."
        fields.append((name, Annotated[str, tyro.conf.arg(help=told)], dataclasses.field(default="")))
    for name in ALGORITHMS[algo].datasets:
        told = "Dataset of play to learn from: a file of `purerl record`."
        fields.append((name, Annotated[str, tyro.conf.arg(help=told)], dataclasses.field(default="")))
    namespace = {"__doc__": options.__doc__}
    return dataclasses.make_dataclass(options.__name__, fields, bases=(options,), namespace=namespace, frozen=True)


def with_settings(options: type[Options], socket: str) -> type[Options]:
    """Options with those of what a person can choose of a socket."""
    from purerl.learned import sockets

    if socket not in sockets.SETTINGS:
        return options
    bases, namespace = (sockets.SETTINGS[socket], options), {"__doc__": options.__doc__}
    return dataclasses.make_dataclass(options.__name__, [], bases=bases, namespace=namespace, frozen=True)


def parse(kind: Any, prog: str, args: list[str], *, default: Any = None, positional: bool = False) -> Any:
    """Reads ``args`` into a dataclass, from ``default`` on. Raises `ConfigError` where tyro would print a box.

    - ``kind``: the dataclass, or one of `grouped`.
    - ``prog``: the command, for texts.
    - ``args``: the arguments after it.
    - ``default``: values of what is not given.
    - ``positional``: whether fields without a default are given without a flag.
    """
    check_flags(flags(kind, positional), prog, args)
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(whole_numbers)
    settings = {"config": (tyro.conf.PositionalRequiredArgs,) if positional else (), "default": default}
    box = io.StringIO()
    try:
        with registry, contextlib.redirect_stderr(box):
            return tyro.cli(kind, prog=prog, args=args, description=kind.__doc__, **settings)
    except SystemExit as stop:
        if not stop.code:
            raise
    border = r"[^\x20-\x7e]|-{9,}|^ *[|+]|[|+] *$"
    lines = [re.sub(border, "", line).strip() for line in box.getvalue().splitlines()[1:]]
    text = " ".join(line or ";" for line in lines).split("; For full helptext")[0]
    raise ConfigError(text.strip("; ").replace(" ;", ";") + f"; see {prog} --help")


def check_flags(known: Sequence[str], prog: str, args: Sequence[str]) -> None:
    """Raises `ConfigError`, a line for each flag in ``args`` that is not among ``known``, with the nearest ones."""
    given = [arg.partition("=")[0] for arg in args if arg.startswith("--") and arg != "--"]
    unknown = [flag for flag in given if flag.replace("_", "-") not in known and not flag.startswith("--tyro-")]
    if unknown and not {"-h", "--help"} & set(args):
        lines = [
            f"{flag}: unknown option; nearest: {nearest_flags(flag, known)}; see {prog} --help" for flag in unknown
        ]
        raise ConfigError("\n".join(lines))


def flags(kind: Any, positional: bool = False) -> list[str]:
    """The flags of a dataclass, or of a class of `grouped`: ``--name``, and ``--no-name`` of what is true or false."""
    found, parts = ["--help"], list(typing.get_type_hints(kind).values())
    for part in parts if all(map(dataclasses.is_dataclass, parts)) else [kind]:
        hints = typing.get_type_hints(part)
        for field in dataclasses.fields(part):
            name, required = field.name.replace("_", "-"), field.default is dataclasses.MISSING
            found += [] if positional and required else [f"--{name}"]
            found += [f"--no-{name}"] if hints[field.name] is bool else []
    return found


def nearest_flags(flag: str, known: Sequence[str]) -> str:
    """The flags whose words begin with the letters of ``flag`` (``--lr``), or else the three most like it."""
    word = flag.lstrip("-").replace("_", "-").lower()
    initials = [name for name in known if word == "".join(part[:1] for part in name.lstrip("-").split("-"))]
    return ", ".join(initials) or nearest("--" + word, known)


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


def env_params(pairs: Sequence[str], resets: str = "") -> dict[str, float | str]:
    """``("gravity=9.8",)`` as a dictionary; whole numbers stay ints, and values of `TEXTS` text.

    ``resets`` is the option of that name, which becomes a parameter. Raises `ConfigError`, also for a name that is
    given twice.
    """
    params: dict[str, float | str] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        value = text if name in TEXTS else _number(pair, text)
        if name in params:
            raise ConfigError(f"env_params = {pair!r}: {name} is given twice")
        params[name] = value
    if resets and params.setdefault("resets", resets) != resets:
        raise ConfigError(f"resets = {resets!r}: env_params has resets={params['resets']}; give one of the two")
    return params


def _number(pair: str, text: str) -> float:
    """The number in a ``NAME=NUMBER``."""
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"env_params = {pair!r}: must be NAME=NUMBER") from None
    whole = number.is_integer() and abs(number) < 2**31 and "." not in text
    return int(number) if whole else number
