"""``python -m purerl.cli`` is ``purerl``."""

from purerl.cli import entry

entry()
