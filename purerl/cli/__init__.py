"""The command line: ``purerl COMMAND ...``; `USAGE` names the commands.

Exit codes:

- 0: the command is done.
- 1: a user's own code failed at a place that no check covers, or this package did.
- 2: the input is bad, and nothing was run.
- 3: the training diverged.
- 4: memory ran out.
- 5: a file could not be written, or another process of the run has died.
- 6: time ran out.
- 130, 143: SIGINT or SIGTERM interrupted the command; a run was saved first.

If one of several processes (``--processes``) fails, all end with its code.

The commands that compute import the modules that need JAX only after they have checked names and arguments, so that
help, lists and errors in names answer at once.
"""

import errno
import gc
import importlib
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

from purerl import channel, interrupts
from purerl.display import output
from purerl.errors import ConfigError, HostError, one_line, place, printable, raised
from purerl.hardware import drivers
from purerl.hosts import copies
from purerl.names import begun_here, choose
from purerl.version import __version__

EXIT_OWN_CODE = 1
EXIT_BAD_INPUT = 2
EXIT_OUT_OF_MEMORY = 4
EXIT_IO = 5
EXIT_TIME = 6
LEFT_SECONDS = 3.0
"""Seconds that threads which are left at the end have to end by themselves."""
NEW_OBJECTS = 100_000
"""Objects that are made before Python looks for garbage. Importing and tracing make many that stay, and looking among
them after every 700, the default of Python 3.11, took a tenth of the time of a short command."""

USAGE = """usage: purerl COMMAND ...

commands:
  train ALGO --env ENV     train agents and evaluate them; writes a run directory
  sweep ALGO --env ENV     train with ranges of hyperparameters and rank the results
  plan ALGO --env ENV      estimate memory and time of a training without running it
  evolve SOCKET --env ENV  evolve a loss, an update rule, an optimiser, messages or levels
  resume RUN               continue an interrupted training, sweep or search, or make it longer
  grow RUN                 widen the layers of a trained network without changing its policy
  eval RUN                 evaluate the policies of a run directory
  record RUN               record episodes of policies as a dataset, such as demonstrations
  data FILE                show what is in a dataset, or read one of Minari
  compare RUN RUN ...      compare runs, with confidence intervals
  plot RUN ...             draw learning curves, the map of a sweep, or the results of a search
  render RUN               render episodes of an agent as a GIF, an MP4 or a web page
  play RUN                 play a board game against an agent, in the terminal or the browser
  export RUN               export a policy as a file that runs without this package
  dashboard [FOLDER]       show the runs in a folder in the browser of this machine
  check-env ENV            check an environment of your own
  benchmark [WORKLOAD ...] measure how fast this machine trains, or compare two such measurements
  list algos|envs          list algorithms or environments

purerl COMMAND --help lists the options of a command that most people change, purerl COMMAND --help all lists all. \
purerl --version prints the version. Whole numbers may end in k, M or G: --total-steps 1M."""

COMMANDS = {
    "train": ("train", "train"),
    "sweep": ("train", "sweep"),
    "plan": ("train", "plan"),
    "evolve": ("evolve", "evolve"),
    "resume": ("resume", "resume"),
    "grow": ("grow", "grow"),
    "eval": ("read", "evaluate"),
    "record": ("record", "record"),
    "data": ("data", "data"),
    "compare": ("read", "compare"),
    "plot": ("plot", "plot"),
    "render": ("render", "render"),
    "play": ("play", "play"),
    "export": ("export", "export"),
    "dashboard": ("dashboard", "dashboard"),
    "check-env": ("check", "check_env"),
    "benchmark": ("benchmark", "benchmark"),
    "list": ("read", "list_names"),
}
"""The module of this package and the function in it that runs each command: ``function(args) -> exit code``."""


def entry(args: Sequence[str] | None = None) -> None:
    """Runs `main` as the program of a process, which no signal can stop once its exit code is known.

    It ends although threads that an environment has started go on, after `LEFT_SECONDS`.
    """
    drivers.look_for_none()
    sys.path[:] = map(os.path.abspath, sys.path)  # "" would follow an environment that changes the working directory
    code = EXIT_OWN_CODE
    try:
        main(args)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else code
        if code in [128 + number for number in interrupts.NUMBERS]:
            copies.close_all()
            output.end()
            interrupts.leave(code)  # at once: the end of the interpreter may take seconds
        raise
    finally:
        for number in interrupts.NUMBERS:
            signal.signal(number, signal.SIG_IGN)
        output.end()
        if any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
            end = threading.Timer(LEFT_SECONDS, _end, (code,))
            end.daemon = True
            end.start()


def _end(code: int) -> None:
    """Ends the process, whatever threads an environment has left."""
    copies.close_all()
    os._exit(code)


def main(args: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its code.

    Args:
        args: The command and its arguments (default: those of the command line).
    """
    gc.set_threshold(NEW_OBJECTS)
    try:
        with (
            begun_here(),
            output.command(),
            interrupts.leaving(),
            interrupts.cleaning(copies.unwound),
        ):
            code = dispatch(list(sys.argv[1:] if args is None else args))
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"purerl: error: {printable(line)}", file=sys.stderr)
        code = EXIT_BAD_INPUT
    except MemoryError as error:
        print(f"purerl: error: out of memory: {error}", file=sys.stderr)
        code = EXIT_OUT_OF_MEMORY
    except HostError as error:
        print(f"purerl: error: {printable(str(error))}", file=sys.stderr)
        code = EXIT_OWN_CODE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except ConnectionError as error:
        print(f"purerl: error: {printable(str(error))}", file=sys.stderr)
        code = EXIT_IO
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # of a path on the command line, or beside it
            print(f"purerl: error: {printable(str(error.filename)[:80])}...: {error.strerror}", file=sys.stderr)
            code = EXIT_BAD_INPUT
        else:
            print(f"purerl: error: {printable(str(error))}; what was saved earlier is unchanged", file=sys.stderr)
            code = EXIT_IO
    except interrupts.Interrupted as signalled:
        code = 128 + signalled.number
    except copies.Left:
        threading.Event().wait()  # the thread that received the signal ends the process
    except raised() as error:
        channel.await_news()
        if place(error):
            print(f"purerl: error: your code raised {one_line(error)}", file=sys.stderr)
        elif channel.current():
            traceback.print_exc()
        else:
            raise
        code = EXIT_OWN_CODE
    channel.leave(code)
    sys.exit(code)


def check_values(args: Sequence[str]) -> None:
    """Raises `ConfigError` for an empty argument, and for a number in other digits than 0 to 9."""
    for before, arg in zip(["", *args], args, strict=False):
        option, equals, value = arg.partition("=")
        if not arg or (option.startswith("--") and equals and not value):
            name = option or before or "an argument"
            raise ConfigError(f"{name}: must not be empty; omit {name} for the default")
        if not arg.isascii() and any(map(_is_number, re.split("[:,=]", arg))):
            raise ConfigError(f"{arg!r}: write numbers with the digits 0 to 9")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not text.isascii()


def dispatch(args: list[str]) -> int:
    """Runs the command that the first argument names, and returns its exit code."""
    if not args or args[0] in ("-h", "--help"):
        print(output.flowing(USAGE))
        return 0 if args else EXIT_BAD_INPUT
    if args[0] == "help":
        return dispatch([*args[1:], "--help"])
    if args[0] == "--version":
        print(f"purerl {__version__}")
        return 0
    module, function = COMMANDS[choose("command", args[0], COMMANDS)]
    check_values(args[1:])
    with copies.session():
        return getattr(importlib.import_module(f"purerl.cli.{module}"), function)(args[1:])
