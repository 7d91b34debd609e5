"""What environments are told of drawing: ``render_mode`` is "rgb_array" where a picture is drawn, otherwise None."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from purerl.errors import ConfigError

MODE, PICTURES = "render_mode", "rgb_array"


def drawn(make: Callable[..., Any], creator: Any) -> Callable[[bool], Any]:
    """Returns ``made(pictures)``, which calls ``make`` with the ``render_mode`` that is needed.

    Args:
        make: Makes an environment, by calling ``creator``; raises `ConfigError` for what that raises.
        creator: The class or function that may take a ``render_mode``. It always gets one that it has by name, so that
            its own default, such as "human", is not used unless it refuses all others. None: it is told nothing.
    """
    named, open_ended = _takes(creator)
    modes = (getattr(creator, "metadata", None) or {}).get("render_modes") if inspect.isclass(creator) else None
    draws = modes is None or PICTURES in modes

    def made(pictures: bool) -> Any:
        if not (named or open_ended):
            return make()
        if pictures and draws:
            try:
                return make(**{MODE: PICTURES})
            except ConfigError:  # it draws in another mode only, or does not know the parameter
                pass
        try:
            return make(**{MODE: None})
        except ConfigError as error:
            if not _refuses(error):
                raise
            for other in [{MODE: PICTURES}, {}] if named and draws and not pictures else [{}]:
                try:
                    return make(**other)
                except ConfigError:
                    pass
            raise

    return made


def _refuses(error: ConfigError) -> bool:
    """Returns whether an environment could not be made because of its ``render_mode``, as its own error has it."""
    cause = error.__cause__
    text = str(cause or error)
    return not text or isinstance(cause, TypeError) or re.search(r"render|\bmode\b|None", text) is not None


def _takes(creator: Any) -> tuple[bool, bool]:
    """Returns whether ``creator`` has a parameter ``render_mode``, and whether it takes any other parameters."""
    if creator is None:
        return False, False
    try:
        parameters = inspect.signature(creator).parameters
    except (TypeError, ValueError):
        return False, True
    return MODE in parameters, any(each.kind is each.VAR_KEYWORD for each in parameters.values())
