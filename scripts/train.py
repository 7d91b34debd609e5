"""``python scripts/train.py ALGO --env ENV ...`` is ``purerl train ALGO --env ENV ...``."""

import sys

from purerl.cli import entry

entry(["train", *sys.argv[1:]])
