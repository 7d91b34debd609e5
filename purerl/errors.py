"""Errors that tell a user what to change, and errors of a user's own code as text."""

import contextlib
import signal
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType

RAISED = (Exception, SystemExit)
"""What a user's own code may raise and is reported: everything but an interruption (`raised`)."""
MOST_FRAMES = 5
"""The most frames of a user's own code that the report of an error names, the innermost ones."""
MOST_CHARACTERS = 400
"""The most characters of the text of an error that are reported."""
_THIS = "purerl"
_LIBRARIES = "jax", "jaxlib", "flax", _THIS
_INSTALLED = tuple(
    str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
"""The folders of Python's own modules and of installed packages."""


class ConfigError(ValueError):
    """Input that cannot be run. The text names the field, its value and what is allowed, one problem a line."""


class HostError(RuntimeError):
    """A failure of an environment of the host during a run, after which the run cannot go on. The text is one line."""


def raised() -> tuple[type[BaseException], ...]:
    """Returns `RAISED`, with `KeyboardInterrupt` where no signal raises one, so that the user's own code did.

    ``except raised()`` calls it only once something was raised.
    """
    by_signal = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return RAISED if by_signal else (*RAISED, KeyboardInterrupt)


def printable(text: str) -> str:
    """Returns ``text`` with its control characters, such as those that move a terminal's cursor, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def own_code(algo: str = "") -> Iterator[None]:
    """Turns what a user's own code raises within the context into a `ConfigError`.

    Its text is a line with the error and its frames. Other errors are faults of this package and stay what they are,
    unless ``algo`` is a user's own algorithm, a ``MODULE:ATTRIBUTE``. This package's code may then have failed on what
    that returned, and the line names its innermost frame.
    """
    try:
        yield
    except (ConfigError, MemoryError):
        raise
    except raised() as error:
        if place(error):
            raise ConfigError(f"your code raised {one_line(error)}") from error
        if ":" not in algo:
            raise
        met = "".join(_frames(error, lambda code, module: module == _THIS)[-1:])
        raise ConfigError(
            f"algorithm = {algo!r}: does not fit purerl's interface: {_text(error)}{met and f' (met by {met})'}"
        ) from error


def one_line(error: BaseException) -> str:
    """Returns the kind of an error, its text, and its `place`.

    If no code of a user's own is in its trace, the place is that in code outside of this package, if there is any.
    """
    where = place(error) or place(error, installed=True)
    return f"{_text(error)}{where and f' ({where})'}"


def place(error: BaseException, installed: bool = False) -> str:
    """Returns the files, lines and functions of a user's own code that an error passed through, the innermost last.

    They are at most `MOST_FRAMES`; empty: none. A user's own code is neither of JAX, flax nor this package, nor was it
    installed. With ``installed`` other installed code counts, too.
    """

    def is_own(code: CodeType, module: str) -> bool:
        library = module in _LIBRARIES or code.co_filename.startswith("<")
        return not library and (installed or not str(Path(code.co_filename).resolve()).startswith(_INSTALLED))

    return " > ".join(_frames(error, is_own)[-MOST_FRAMES:])


def _frames(error: BaseException, counts: Callable[[CodeType, str], bool]) -> Sequence[str]:
    """Returns ``FILE:LINE FUNCTION`` of the frames whose code and whose module's top-level name are ``counts``."""
    frames: list[str] = []
    trace = error.__traceback__
    while trace:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        if counts(code, module.partition(".")[0]):
            frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return list(dict.fromkeys(frames))


def _text(error: BaseException) -> str:
    """Returns the kind of an error and the first line of its text, with the second where the first ends in a colon."""
    lines = [line for line in map(str.strip, str(error).splitlines()) if line] or [""]
    line = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return f"{type(error).__name__}{line and ': '}{line[:MOST_CHARACTERS]}"
