"""Whether every environment that an extra installs keeps the contract: `envs.check_env` over 200 random steps of each.

    python scripts/extras.py [FAMILY/ ...]

With arguments, only those whose names begin with one of them. Prints the libraries' versions and a line for each
environment, and exits with 1 if any fails. A family whose library is not installed fails as a whole.
"""

import argparse
import importlib.metadata
import sys
import time

import scales

from purerl import catalogue, envs
from purerl.errors import ConfigError

COPIES = 4


def fault(name: str, steps: int) -> str:
    """What is wrong with an environment, on one line; empty if nothing is."""
    try:
        envs.check_env(envs.make(name), num_steps=steps, num_envs=COPIES)
    except ConfigError as error:
        return "; ".join(str(error).splitlines())
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return ""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("prefixes", nargs="*", metavar="FAMILY/", help="what names begin with (default: all)")
    result.add_argument("--steps", type=int, default=200, help="steps of each environment (default: 200)")
    scales.add(result, ", ".join(catalogue.EXTRAS.values()), steps=4)
    return result


def main() -> int:
    """Checks all environments that are asked for and returns the exit code."""
    failed, given = 0, parser().parse_args()
    prefixes = tuple(given.prefixes)
    print("versions:", *(f"{p}=={_version(p)}" for p in ("jax", *catalogue.EXTRAS)), flush=True)
    for family in catalogue.EXTRAS:
        for name in catalogue.names(family):
            if not name.startswith(prefixes or ""):
                continue
            start, result = time.perf_counter(), fault(name, given.steps)
            failed += bool(result)
            print(
                f"{'FAILED' if result else 'ok':6} {name} in {time.perf_counter() - start:.1f} s {result}", flush=True
            )
    return min(failed, 1)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


if __name__ == "__main__":
    sys.exit(main())
