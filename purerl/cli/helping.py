"""The help of a command, as tyro prints it: the options that most people change, or all, each under a heading."""

import dataclasses
import typing
from typing import Annotated, Any, NamedTuple

import docstring_parser
import tyro

from purerl.display import output

MOST = 29
"""The most options in ``--help``, besides ``--help`` itself; ``--help all`` has the others."""
_NAMES = """
env env_params preset config algo data demos total_steps num_seeds seed out generations population num_envs num_steps
learning_rate gamma hidden_sizes strategy dry_run measure num_samples select seeds tuning_seeds limit_seconds
limit_gigabytes json target log eval_every device memory lifetimes initial sigma meta_learning_rate budget_seconds rule
td_error num_atoms v_min v_max num_quantiles num_policies noise_deviation target_entropy actor_learning_rate
share_parameters num_epochs num_minibatches clip_epsilon gae_lambda trace_lambda entropy_coef planner simulations
value_targets batch_size capacity warmup_steps num_updates n_step tau target_period epsilon_end exploration_fraction
curriculum intrinsic opponents normalize_obs normalize_reward torso prioritised unroll stop_at demo_ratio cloning
critic_cloning q_weight conservatism expectile inverse_temperature
"""
OFTEN = _NAMES.split()
"""The options that most people change, the most important first. So are all that a user's own class declares."""
BEFORE_WRAPPERS = "network", "loop", "replay", "optimiser", "curriculum"
AFTER_WRAPPERS = "host environment", "device"
"""The headings that classes of options give themselves, in the order of the help."""


class Option(NamedTuple):
    """An option in the help.

    - ``help``: Its text; None where tyro finds it beside the type.
    - ``heading``: That of its section, and whether a class that several commands or algorithms share gives it.
    - ``default``: `dataclasses.MISSING` if there is none.
    - ``rank``: The lower, the more people change the option; ``len(OFTEN)`` if few do.
    """

    name: str
    type: Any
    help: str | None
    default: Any
    heading: tuple[str, bool]
    rank: int


class Part(NamedTuple):
    """A dataclass of options: ``heading`` is that of its options in the help, ``default`` an instance or None."""

    heading: str
    kind: Any
    default: Any


def show(
    parts: list[Part],
    prog: str,
    description: str,
    registry: tyro.constructors.ConstructorRegistry,
    positional: bool,
    whole: bool,
) -> None:
    """Prints the help of the command ``prog`` at the width of the terminal: all options, or unless ``whole`` `MOST`.

    Defaults that are shown are those of ``Part.default``, or else those of the fields. If the command is
    ``positional``, fields without a default are given without a flag.
    """
    options = sorted((each for part in parts for each in _options(part)), key=lambda each: each.rank)
    whole = whole or len(options) <= MOST
    shown = options if whole else [each for each in options if each.rank < len(OFTEN)][:MOST]
    own, wrappers = [(part.heading, False) for part in parts[:2]], {(x.heading, False): _about(x) for x in parts[2:]}
    if not whole:
        one = "wrapper", False
        shown = [each._replace(heading=one) if each.heading in wrappers else each for each in shown]
        wrappers = {one: ""}
    before, after = ([(heading, True) for heading in those] for those in (BEFORE_WRAPPERS, AFTER_WRAPPERS))
    sections = []
    for i, key in enumerate(dict.fromkeys([*own, *before, *wrappers, *after])):
        if fields := [_field(each, positional) for each in shown if each.heading == key]:
            namespace = {"__doc__": wrappers.get(key, "")}
            section: Any = dataclasses.make_dataclass("Section", fields, kw_only=True, namespace=namespace)
            title = f"own {key[0]}" if (key[0], True) in (*before, *after) and not key[1] else key[0]
            headed = tyro.conf.OmitArgPrefixes[Annotated[section, tyro.conf.arg(name=title)]]
            sections.append((f"section_{i}", headed))
    try:
        tyro.cli(
            dataclasses.make_dataclass("Help", sections),
            prog=prog,
            args=["--help"],
            # Of lines that are not indented tyro makes one.
            description=output.flowing(" " + " ".join(description.split())),
            config=(tyro.conf.PositionalRequiredArgs,) if positional else (),
            registry=registry,
        )
    except SystemExit:
        if not whole:
            print(f"--help all shows {len(options) - len(shown)} more")


def _options(part: Part) -> list[Option]:
    """Lists the options of a part, those of the class itself before those of the classes that it extends."""
    hints, texts, bases = typing.get_type_hints(part.kind, include_extras=True), _texts(part.kind), part.kind.__mro__
    options = []
    for field in dataclasses.fields(part.kind):
        declared = next(x for x in reversed(bases) if field.name in _names_of_fields(x))
        default = default_of(field) if part.default is None else getattr(part.default, field.name)
        is_own = declared.__module__.partition(".")[0] != __name__.partition(".")[0]
        rank = OFTEN.index(field.name) if field.name in OFTEN else len(OFTEN)
        rank = -2 if default_of(field) is dataclasses.MISSING else -1 if is_own else rank
        shared = None if is_own else vars(declared).get("heading")
        heading = (shared, True) if shared else (part.heading, False)
        option = Option(field.name, hints[field.name], texts.get(field.name), default, heading, rank)
        options.append((bases.index(declared), option))
    return [option for _, option in sorted(options, key=lambda each: each[0])]


def _names_of_fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()


def default_of(field: dataclasses.Field) -> Any:
    """Returns the default of a field, which its factory makes if it has one; `dataclasses.MISSING`: there is none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _about(part: Part) -> str:
    """Returns the docstring of a part's class; empty if dataclasses made it."""
    text = part.kind.__doc__ or ""
    return "" if text.startswith(f"{part.kind.__name__}(") else text


def _texts(kind: type) -> dict[str, str]:
    """Reads the docstrings of fields by their names, each as one line."""
    bases = reversed(kind.__mro__[:-1])
    params = [each for base in bases for each in docstring_parser.parse_from_object(base).params]
    return {each.arg_name: " ".join((each.description or "").split()) for each in params}


def _field(option: Option, positional: bool) -> tuple[str, Any, Any]:
    """Makes the field of an option for tyro, which then prints no default that the text tells already.

    An argument that is given without a flag, if ``positional``, is shown by its name, such as RUN.
    """
    value, told = option.default, "(default:" in (option.help or "")
    hint: Any = "" if told else lambda default: f"(default: {default or 'empty'})"
    about: dict[str, Any] = {"help": option.help, "help_behavior_hint": hint}
    if positional and value is dataclasses.MISSING and option.type is str:
        about["metavar"] = option.name.upper()
    noted: Any = Annotated[option.type, tyro.conf.arg(**about)]
    if positional and value is dataclasses.MISSING and told:  # the command itself has the default
        of_default: Any = tyro.conf.Positional
        noted, value = of_default[noted], ""
    default: Any = {} if value is dataclasses.MISSING else {"default_factory": lambda: value}
    return option.name, noted, dataclasses.field(**default)
