"""Where results go: to the standard output, which they have for themselves.

While environments may live, whatever else is written there goes to the standard error: what Python prints, what
compiled code prints, and what processes print that they start. So what a command prints as JSON is JSON.
"""

import contextlib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, TextIO

_commands: list[contextlib.ExitStack] = []
"""What puts things back at the end of the command that is running: at most one."""
_results: list[TextIO] = []
"""The file for results, while the standard output is the standard error: at most one."""


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Lets `divert` have effect within the context."""
    with contextlib.ExitStack() as back:
        _commands.append(back)
        try:
            yield
        finally:
            _commands.remove(back)


def divert() -> None:
    """Leads the standard output to the standard error up to the end of the `command`, but for `results`."""
    if not _commands or _results:
        return
    back, given, before = _commands[-1], sys.stdout, _copy(1)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        given.flush()
    back.callback(_restore, before)
    _results.append(_file(given, before, back))
    back.callback(_results.clear)
    back.enter_context(contextlib.redirect_stdout(sys.stderr))
    os.dup2(2 if _is_open(2) else os.open(os.devnull, os.O_WRONLY), 1)


def end() -> None:
    """Leads the standard output to the standard error for good: what environments print as the process ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        os.dup2(2, 1)


def flowing(text: str) -> str:
    """Wraps each line of ``text`` at the terminal's width; two spaces or more begin the column where a row goes on."""
    width = shutil.get_terminal_size().columns

    def wrapped(line: str) -> str:
        indent = " " * len(re.findall(r"^ *(?:\S.*?  +)?", line)[0])
        return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)

    return "\n".join(map(wrapped, text.splitlines()))


def show(text: str) -> None:
    """Prints a line, or lines, of results."""
    print(text, file=results())


def results() -> TextIO:
    """Returns the file that results are printed to."""
    return _results[-1] if _results else sys.stdout


def _file(given: Any, before: int, back: contextlib.ExitStack) -> TextIO:
    """Returns a file that leads where ``given``, the standard output of Python, does now.

    That is ``given`` itself, unless it is the one of the process, of which ``before`` is a copy.
    """
    try:
        shared = given.fileno() == 1 and before >= 0
    except (OSError, ValueError, AttributeError):  # a file without a descriptor, or none
        shared = False
    if not shared:
        return given or open(os.devnull, "w")
    how = {"buffering": 1, "encoding": given.encoding, "errors": given.errors}
    file: TextIO = open(os.dup(before), "w", **how)  # noqa: SIM115 - closed by `_close`
    back.callback(_close, file)
    return file


def _close(file: TextIO) -> None:
    with contextlib.suppress(OSError):  # it was raised where something was printed
        file.close()


def _restore(before: int) -> None:
    if before >= 0:
        os.dup2(before, 1)
        os.close(before)
    else:
        os.close(1)


def _copy(number: int) -> int:
    """Returns a copy of a file descriptor; -1 if it is closed."""
    return os.dup(number) if _is_open(number) else -1


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
