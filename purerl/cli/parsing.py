"""Parsing of the command line into options and configs, with one line for each error."""

import contextlib
import dataclasses
import io
import math
import re
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import tyro

from purerl.algos import ALGORITHMS
from purerl.cli import helping
from purerl.display import output
from purerl.errors import ConfigError
from purerl.names import choose, nearest

if TYPE_CHECKING:
    from purerl.runs.describing.config_file import ConfigFile, Start

SUFFIXES = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
"""What a whole number may end in."""
WITH_ENV = "train", "sweep", "plan"
"""Commands that may have the environment after the algorithm, without ``--env``."""
Options = TypeVar("Options")
Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Train(Generic[Options, Config]):
    """The options of a command and the config of an algorithm."""

    options: Options
    config: Config


def grouped(options: type, algorithm: Any) -> type:
    """Makes the class of a command's options and an algorithm's settings, as one flat list of flags.

    Its fields are ``options``, the algorithm's own config, and the settings of each wrapper that can be put around it,
    each with the heading of its flags in the help.

    Args:
        options: The class of the command's options.
        algorithm: The algorithm.

    Raises:
        ConfigError: An option and a setting have the same name.
    """
    from purerl.learners.wrappers import wrapper

    settings_names, option_names = (
        {field.name for field in dataclasses.fields(x)} for x in (algorithm.Config, options)
    )
    if twice := ", ".join(sorted(settings_names & option_names)):
        raise ConfigError(
            f"algorithm = {algorithm.name!r}: its settings {twice} are also options of the command; rename them"
        )
    flat = tyro.conf.arg(name="")
    headed = lambda heading, **default: dataclasses.field(metadata={"heading": heading}, **default)
    fields: list[Any] = [
        ("options", Annotated[options, flat], headed("")),
        ("config", Annotated[algorithm.own_config, flat], headed(algorithm.name)),
    ]
    for i, each in enumerate(wrapper.added(algorithm.own_config, algorithm.wrappers)):
        settings: Any = each.Settings
        fields.append((f"wrapper_{i}", Annotated[settings, flat], headed(each.name, default_factory=settings)))
    return dataclasses.make_dataclass("Grouped", fields, namespace={"__doc__": options.__doc__}, frozen=True)


def parts(kind: Any, default: Any = None) -> list[helping.Part]:
    """Lists the parts of ``kind``, a class of `grouped`, or the single part that another class is.

    Args:
        kind: The class.
        default: An instance of it, which holds those of the parts (None: there is none).
    """
    fields = dataclasses.fields(kind)
    if not all("heading" in field.metadata for field in fields):
        return [helping.Part("", kind, default)]
    kinds = typing.get_type_hints(kind)
    return [helping.Part(x.metadata["heading"], kinds[x.name], getattr(default, x.name, None)) for x in fields]


def together(given: Any, algorithm: Any) -> Train[Any, Any]:
    """Converts an instance of a class of `grouped` to the options and the config that it holds."""
    parts = [getattr(given, field.name) for field in dataclasses.fields(given)[1:]]
    values = {field.name: getattr(part, field.name) for part in parts for field in dataclasses.fields(part)}
    return Train(given.options, algorithm.Config(**values))


def apart(given: Train[Any, Any], kind: Any) -> Any:
    """Converts options and a config to an instance of ``kind``, a class of `grouped`."""
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)[1:]]
    of_part = lambda part: part(**{field.name: getattr(given.config, field.name) for field in dataclasses.fields(part)})
    return kind(given.options, *(of_part(hints[name]) for name in names))


def extract_flag(flag: str, args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Takes a flag out of arguments.

    Args:
        flag: The flag, given as ``flag VALUE`` or ``flag=VALUE``.
        args: The arguments.

    Returns:
        The other arguments, and the values of the flag.

    Raises:
        ConfigError: The flag has no value.
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
    """Reads the config file that ``--config FILE`` names.

    Returns:
        The file (None: there is none), and the other arguments.

    Raises:
        ConfigError: The flag has no value, the file is wrong, or it names code that is not trusted.
    """
    rest, paths = extract_flag("--config", args)
    if not paths:
        return None, rest

    from purerl.runs.describing import config_file

    file = config_file.read(Path(paths[-1]))
    config_file.trusted(file, rest, "name it on the command line as well if that is what you want")
    return file, rest


def algorithm(command: str, args: Sequence[str]) -> tuple[str, list[str], "ConfigFile | None"]:
    """Reads the algorithm of ``purerl COMMAND ALGO [ENV] ...`` or ``--algo ALGO``, without JAX.

    A config file names the algorithm if the arguments do not. Wrappers that ``--wrapper`` names become part of the
    algorithm's name. Without arguments, or with ``--help`` in place of the algorithm, the usage is printed and the
    command exits.

    Returns:
        The algorithm's name, the other arguments, and the config file (None: there is none).

    Raises:
        ConfigError: There is no such algorithm, a wrapper is wrong, or the config file does not fit the command or the
            arguments.
    """
    args, wrappers = extract_flag("--wrapper", args)
    args, flagged = extract_flag("--algo", args)
    args = [*flagged[-1:], *args]
    for wrapper in wrappers:
        if ":" not in wrapper:
            raise ConfigError(f"wrapper = {wrapper!r}: must be MODULE:ATTRIBUTE")
    if not args or args[0] in ("-h", "--help"):
        usage = f"usage: purerl {command} ALGO --env ENV [OPTIONS]\n\nalgorithms: {', '.join(ALGORITHMS)}"
        print(output.flowing(f"{usage}\n\npurerl {command} ALGO --help lists the options."))
        raise SystemExit(0 if args else 2)
    if command in WITH_ENV and len(args) > 1 and not any(arg.startswith("-") for arg in args[:2]):
        if any(arg == "--env" or arg.startswith("--env=") for arg in args):
            raise ConfigError(f"env = {args[1]!r}: is given twice, the second time by --env")
        args = [args[0], "--env", *args[1:]]
    file, rest = from_file(args)
    named = rest and not rest[0].startswith("-")
    if file is None:
        return "+".join([choose("algorithm", args[0], ALGORITHMS), *wrappers]), rest[1:], None
    if file.command not in (command, "train") and command != "plan":
        raise ConfigError(f"{file.path}: is a config file of purerl {file.command}, not of purerl {command}")
    algo = choose(f"{file.path}: algo", file.take("algo", str, rest[0] if named else ""), ALGORITHMS)
    if named and rest[0] != algo:
        raise ConfigError(f"algorithm = {rest[0]!r}: {file.path} is a config of {algo}")
    if wrappers:
        raise ConfigError(
            f"wrapper = {wrappers[0]!r}: {file.path} already names the wrappers; give --wrapper or the file, not both"
        )
    return algo, rest[1:] if named else rest, file


BESIDE = (
    "--config FILE reads options from the config file of a run. --wrapper MODULE:ATTRIBUTE adds a wrapper of your own "
    "around the learner."
)


def training(
    command: str, algo: str, options: type[Options], args: list[str], start: "Start | None" = None
) -> Train[Options, Any]:
    """Reads the options and the config of ``purerl COMMAND ALGO``.

    Args:
        command: The command.
        algo: The name of the algorithm.
        options: The class of the command's options.
        args: The arguments after the algorithm.
        start: The values of a config file, in place of the defaults (None: there is no config file).

    Raises:
        ConfigError: An argument or a value of the file is wrong.
    """
    check_data(algo, args)
    made = with_learned(options, algo)
    made.__doc__ = f"{made.__doc__} {BESIDE}"
    given = with_preset(made, algo, f"purerl {command} {algo}", args, start)
    options_given: Any = given.options
    if not (names := ALGORITHMS[algo].required) or options_given.env:
        return given

    from purerl.runs.describing import datasets

    return Train(datasets.played(given.options, names), given.config)


def check_data(algo: str, args: Sequence[str]) -> None:
    """Raises `ConfigError`, with a line about who does, if arguments have ``--data`` and ``algo`` learns by playing."""
    if not any(arg.partition("=")[0] == "--data" for arg in args) or "data" in ALGORITHMS[algo].datasets:
        return
    about = lambda name: (sys.modules[ALGORITHMS[name].own_learner.__module__].__doc__ or name).partition(":")[0]
    others = [f"{name} ({about(name)})" for name in ALGORITHMS if "data" in ALGORITHMS[name].required]
    raise ConfigError(f"--data: {algo} ({about(algo)}) learns by playing; from data learn {', '.join(others)}")


def with_preset(
    options: type[Options], algo: str, prog: str, args: list[str], start: "Start | None" = None
) -> Train[Options, Any]:
    """Reads options and a config, with the values of a preset or of a config file in place of the defaults.

    Args:
        options: The class of the command's options.
        algo: The name of the algorithm.
        prog: The command, for texts.
        args: The arguments, which may name a preset.
        start: The values of a config file (None: there is no config file).

    Raises:
        ConfigError: An argument or a value of the file is wrong, or there are both a preset and a config file.
    """
    algorithm = ALGORITHMS[algo]
    kind = grouped(options, algorithm)
    read = lambda default: together(parse(kind, prog, args, default=default), algorithm)
    given = read(apart(started(start, options, algo), kind) if start else None)
    if not given.options.preset:
        return given
    if start:
        raise ConfigError(
            f"preset = {given.options.preset!r}: cannot be combined with a config file, which has all settings"
        )
    return read(apart(Train(given.options, algorithm.preset(given.options.preset)), kind))


def started(start: "Start", options: type, algo: str) -> Train[Any, Any]:
    """Reads the options and the config of a config file, with defaults for what the file leaves out.

    Args:
        start: The values of the file.
        options: The class of the command's options.
        algo: The name of the algorithm.

    Raises:
        ConfigError: A name or a value in the file is wrong.
    """
    from purerl import config as cfg
    from purerl.runs.describing.description import usual
    from purerl.runs.describing.options import FORMER

    file, given = start.file, {"env": "", **start.options, "preset": ""}
    values = file.existing(given, [field.name for field in dataclasses.fields(options)], "options: ", FORMER)
    read: Any = options(**cfg.typed(options, values))
    made = Train(read, usual(algo, read, start))
    try:
        cfg.check(made.options, *cfg.problems(made.config))
    except ConfigError as error:
        raise ConfigError("\n".join(f"{file.path}: {line}" for line in str(error).splitlines())) from None
    return made


def with_learned(options: type[Options], algo: str) -> type[Options]:
    """Extends a class of options by one for each part of an algorithm that may be learned or a user's own.

    Each dataset that the algorithm takes is an option, too.
    """
    from purerl.learned import artefacts, own_parts, published
    from purerl.learners.parts.from_data import DataConfig

    own, fields = own_parts.options(ALGORITHMS[algo]), list[Any]()
    for name, socket in artefacts.options(algo).items():
        paths = f"a run directory of `purerl evolve {socket}`, a file of it, a name of `purerl list learned`"
        paths += f", or {published.FILES[socket]}" if socket in published.FILES else ""
        help_text = f"Learned {name.replace('_', ' ')} to use: {paths}."
        if name in own:
            of_optax = " or a name of optax, such as adam, adamw or muon" if name == own_parts.OPTIMISER else ""
            help_text += f" Or MODULE:NAME for your own, {own_parts.SIGNATURES[name]}{of_optax}."
        fields.append((name, Annotated[str, tyro.conf.arg(help=help_text)], dataclasses.field(default="")))
    for name in [name for name in own if name not in artefacts.options(algo)]:
        help_text = f"Your own {name}, as MODULE:NAME or ./FILE.py:NAME: {own_parts.SIGNATURES[name]}."
        fields.append((name, Annotated[str, tyro.conf.arg(help=help_text)], dataclasses.field(default="")))
    for name in ALGORITHMS[algo].datasets:
        beside = "" if name in ALGORITHMS[algo].required else " beside the agent's own"
        help_text = f"Dataset of play to learn from{beside}: a file of `purerl record`, or several, which are joined."
        fields.append((name, Annotated[tuple[str, ...], tyro.conf.arg(help=help_text)], dataclasses.field(default=())))
    if issubclass(ALGORITHMS[algo].own_config, DataConfig):
        help_text = (
            "Where the dataset is. device: in the memory of each device. host: in the files, from which the host reads "
            "each iteration's samples while the device computes, for data that do not fit on a device; results are the "
            "same. auto: host if the training does not fit on the device with its data."
        )
        kinds: Any = Literal["auto", "device", "host"]
        fields.append(("data_on", Annotated[kinds, tyro.conf.arg(help=help_text)], dataclasses.field(default="auto")))
    if ALGORITHMS[algo].required:
        help_text = "Environment: that of the dataset, which it has where this is left out."
        fields.append(("env", Annotated[str, tyro.conf.arg(help=help_text)], dataclasses.field(default="")))
    namespace = {"__doc__": options.__doc__, "__module__": __name__}
    return dataclasses.make_dataclass(options.__name__, fields, bases=(options,), namespace=namespace, frozen=True)


def with_settings(options: type[Options], socket: str) -> type[Options]:
    """Extends a class of options by the settings of a socket, if it has any."""
    from purerl.learned import sockets

    if socket not in sockets.SETTINGS:
        return options
    bases, namespace = (sockets.SETTINGS[socket], options), {"__doc__": options.__doc__}
    return dataclasses.make_dataclass(options.__name__, [], bases=bases, namespace=namespace, frozen=True)


def parse(kind: Any, prog: str, args: list[str], *, default: Any = None, positional: bool = False) -> Any:
    """Reads arguments into a dataclass, with one line for an error in place of tyro's box.

    With ``--help`` it prints the help instead, and the command exits.

    Args:
        kind: The dataclass, or a class of `grouped`.
        prog: The command, for texts.
        args: The arguments after it.
        default: An instance with the values of what is not given (None: the defaults of the fields).
        positional: Whether fields without a default are given without a flag.

    Raises:
        ConfigError: An argument is wrong.
    """
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(whole_numbers)
    args = [word for arg in args for word in (["--help", "all"] if arg == "--help=all" else [arg])]
    if asked := [i for i, arg in enumerate(args) if arg in ("-h", "--help")]:
        whole = args[asked[0] + 1 :][:1] == ["all"]
        helping.show(parts(kind, default), prog, kind.__doc__, registry, positional, whole)
        raise SystemExit(0)
    check_flags(flags(kind, positional), prog, args)
    settings = {"config": (tyro.conf.PositionalRequiredArgs,) if positional else (), "default": default}
    box = io.StringIO()
    try:
        with registry, contextlib.redirect_stderr(box):
            return tyro.cli(kind, prog=prog, args=args, **settings)
    except SystemExit as stop:
        if not stop.code:
            raise
    border = r"[^\x20-\x7e]|-{9,}|^ *[|+]|[|+] *$"
    lines = [re.sub(border, "", line).strip() for line in box.getvalue().splitlines()[1:]]
    text = " ".join(line or ";" for line in lines).split("; For full helptext")[0]
    raise ConfigError(text.strip("; ").replace(" ;", ";") + f"; see {prog} --help")


def check_flags(known: Sequence[str], prog: str, args: Sequence[str]) -> None:
    """Raises `ConfigError` with a line for each flag in ``args`` that is not among ``known``, with the nearest ones."""
    given = [arg.partition("=")[0] for arg in args if arg.startswith("--") and arg != "--"]
    unknown = [flag for flag in given if flag.replace("_", "-") not in known and not flag.startswith("--tyro-")]
    if unknown:
        lines = [
            f"{flag}: unknown option; nearest: {nearest_flags(flag, known)}; see {prog} --help" for flag in unknown
        ]
        raise ConfigError("\n".join(lines))


def flags(kind: Any, positional: bool = False) -> list[str]:
    """Lists the flags of a dataclass or a class of `grouped`: ``--name``, and ``--no-name`` of a field that is a bool.

    Args:
        kind: The dataclass, or a class of `grouped`.
        positional: Whether fields without a default are given without a flag, and so have none.
    """
    names = ["--help"]
    for part in parts(kind):
        hints = typing.get_type_hints(part.kind)
        for field in dataclasses.fields(part.kind):
            name, required = field.name.replace("_", "-"), helping.default_of(field) is dataclasses.MISSING
            names += [] if positional and required else [f"--{name}"]
            names += [f"--no-{name}"] if hints[field.name] is bool else []
    return names


def nearest_flags(flag: str, known: Sequence[str]) -> str:
    """Lists the flags whose words begin with the letters of ``flag`` (``--lr``), or else the three most like it."""
    word = flag.lstrip("-").replace("_", "-").lower()
    initials = [name for name in known if word == "".join(part[:1] for part in name.lstrip("-").split("-"))]
    return ", ".join(initials) or nearest("--" + word, known)


def whole_numbers(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """Returns the rule by which tyro reads ints: ``500000``, ``500_000``, ``5e5`` and ``500k``; None for others."""
    if info.type is not int:
        return None

    def read(args: list[str]) -> int:
        try:
            return int(args[0])
        except ValueError:
            pass
        factor = SUFFIXES.get(args[0][-1:], 1)
        try:
            number = float(args[0][:-1] if factor > 1 else args[0]) * factor
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
