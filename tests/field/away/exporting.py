"""Exports a run in a folder that lacks the environment's module."""

import os
from pathlib import Path

from purerl.cli import main

if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    try:
        main(["export", "../run", "--to", "numpy", "--out", "exported"])
    finally:
        print(*sorted(path.name for path in Path().glob("exported*")))
