"""The command line for tests, in this process."""

import pytest

from purerl import cli


def run(*args, expect=0):
    """Runs ``purerl ARGS``, whose exit code must be ``expect``."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    assert stop.value.code == expect
