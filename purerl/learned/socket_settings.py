"""Settings of sockets: what a user can choose and what the environment adds, read from JSON and checked."""

import dataclasses
from typing import Annotated, Any, Literal, TypeVar

from purerl import config as cfg
from purerl import names

MOST, MOST_LAYERS = 4096, 8
Size = Annotated[int, cfg.Range(1, MOST, open_high=False)]
ValueLossBase = Literal["clipped", "squared"]
Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class Layers:
    """Widths of the hidden layers of a socket's network."""

    hidden_sizes: tuple[Size, ...] = ()


@dataclasses.dataclass(frozen=True)
class TimeAware:
    """The settings of a function that may see where in its training an agent is."""

    time_aware: bool = False
    """Also give the function the training's progress and the logarithm of its length in frames."""


@dataclasses.dataclass(frozen=True)
class ValueLossSettings:
    """The settings of a value loss."""

    value_loss_base: ValueLossBase = "clipped"
    """The loss that the function changes. clipped: PPO's, in which a value moves at most clip_epsilon from the old one.
    squared: half the squared error; it is often the better start of a search."""


@dataclasses.dataclass(frozen=True)
class SizedValueLossSettings(Layers, ValueLossSettings):
    """Widths of hidden layers, for a value loss."""


@dataclasses.dataclass(frozen=True)
class AwareLayers(Layers, TimeAware):
    """Widths of hidden layers, for a function that may see how far an agent's training has progressed."""


def read(kind: type[Made], socket: str, layers: str, fields: dict[str, Any]) -> Made:
    """Reads settings of the class ``kind`` from JSON, in which tuples are lists.

    Args:
        kind: The class of the settings.
        socket: The name of the socket, for messages.
        layers: The name of the field with the widths of layers; "" if there is none.
        fields: The settings by name.

    Raises:
        ConfigError: A setting is unknown or not valid; one line for each that is not valid.
    """
    made: Any = kind
    known = [field.name for field in dataclasses.fields(made)]
    values = names.existing(fields, known, f"settings of {socket}: ")
    result = made(**{name: tuple(x) if isinstance(x, list) else x for name, x in values.items()})
    widths = getattr(result, layers, ())
    deep = isinstance(widths, tuple) and len(widths) > MOST_LAYERS
    cfg.check(result, *([f"{layers}: must be at most {MOST_LAYERS}"] if deep else []))
    checked: Made = result
    return checked


def among(kind: type[Made], options: Any) -> Made:
    """Returns the settings of the class ``kind`` that are among ``options``."""
    made: Any = kind
    return kind(**{field.name: getattr(options, field.name) for field in dataclasses.fields(made)})


def as_json(made: Any) -> dict[str, Any]:
    """Converts settings to JSON: a dict in which tuples are lists."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(made).items()}


def changed(kind: type[Any], options: Any) -> dict[str, Any]:
    """Returns the settings of ``kind`` that are among ``options`` as JSON; none if all have their defaults."""
    made = among(kind, options)
    return {} if made == kind() else as_json(made)
