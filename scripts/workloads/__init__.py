"""What `scripts/benchmark.py` measures: a module for each kind of workload.

`turns`, which all of them take, and `named`, the words of those that have names, are modules of purerl. Where it is not
installed, in the interpreter of a peer, they are found as files.
"""

from pathlib import Path

try:
    from purerl.benchmarks import named, turns

    __all__ = ["named", "turns"]
except ImportError:
    __path__.append(str(Path(__file__).parents[2] / "purerl" / "benchmarks"))
