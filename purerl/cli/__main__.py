"""The program ``python -m purerl.cli``, which is ``purerl``."""

from purerl.cli import entry

entry()
