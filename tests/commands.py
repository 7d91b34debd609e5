"""The command line for tests, in this process, and the folder of a user."""

import contextlib
import sys

import pytest

from purerl import cli


def run(*args, expect=0):
    """Runs ``purerl ARGS``, whose exit code must be ``expect``."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    assert stop.value.code == expect


@contextlib.contextmanager
def own_module(folder, monkeypatch, name, text):
    """Works in ``folder``, where the module ``name`` is."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop(name, None)
