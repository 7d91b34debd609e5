"""Errors that tell a user what to change, and errors of a user's own code as text."""

import sysconfig
from pathlib import Path

RAISED = (Exception, SystemExit)
"""What somebody's own code may raise that is to be told: all but an interruption."""
_LIBRARIES = "jax", "jaxlib", "purerl"
_INSTALLED = tuple(
    str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
"""Where Python's own modules lie, and those that were installed."""


class ConfigError(ValueError):
    """Input that cannot be run. The text names the field, its value and what is allowed, one problem a line."""


def printable(text: str) -> str:
    """``text`` with the control characters in it, such as those that move a terminal's cursor, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def told(error: BaseException) -> str:
    """The kind of an error, its first line, and its `place`, if it has one, or else that outside of this package."""
    line = (str(error).splitlines() or [""])[0]
    where = place(error) or place(error, installed=True)
    return f"{type(error).__name__}{line and ': '}{line}{where and f' ({where})'}"


def place(error: BaseException, installed: bool = False) -> str:
    """The innermost file, line and function of somebody's own code that an error passed through; empty: none.

    That is code which is neither of JAX nor of this package, nor was installed, unless ``installed``.
    """
    found, trace = "", error.__traceback__
    while trace:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        path = Path(code.co_filename)
        library = module.partition(".")[0] in _LIBRARIES or code.co_filename.startswith("<")
        if not library and (installed or not str(path.resolve()).startswith(_INSTALLED)):
            found = f"{path.name}, line {trace.tb_lineno}, in {code.co_name}"
        trace = trace.tb_next
    return found
