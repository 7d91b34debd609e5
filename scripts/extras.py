"""Whether every environment that an extra installs keeps the contract: `envs.check_env` over 200 random steps of each.

    python scripts/extras.py [FAMILY/ ...]

With arguments, only those whose names begin with one of them. Prints the libraries' versions and a line for each
environment, and exits with 1 if any fails. A family whose library is not installed fails as a whole.
"""

import importlib.metadata
import sys
import time

from purerl import catalogue, envs
from purerl.errors import ConfigError

STEPS, COPIES = 200, 4


def fault(name: str) -> str:
    """What is wrong with an environment, on one line; empty if nothing is."""
    try:
        envs.check_env(envs.make(name), num_steps=STEPS, num_envs=COPIES)
    except ConfigError as error:
        return "; ".join(str(error).splitlines())
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return ""


def main(prefixes: tuple[str, ...]) -> int:
    """Checks all environments whose names begin with one of ``prefixes`` and returns the exit code."""
    failed = 0
    print("versions:", *(f"{p}=={_version(p)}" for p in ("jax", *catalogue.EXTRAS)), flush=True)
    for family in catalogue.EXTRAS:
        for name in catalogue.names(family):
            if not name.startswith(prefixes or ""):
                continue
            start, result = time.perf_counter(), fault(name)
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
    sys.exit(main(tuple(sys.argv[1:])))
