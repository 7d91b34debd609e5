"""Controls of a search: functions of the same size that no search has seen, to be reported on as its result is.

    python scripts/search_controls.py runs/loss
    purerl evolve report runs/loss/initial.json --seeds 512
    purerl evolve report runs/loss/random.json --seeds 512

``initial.json`` holds the candidate that a search begins with. In ``random.json`` each array of the search's result is
replaced by Gaussian numbers with the same root mean square.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import scales

from purerl.learned import artefacts

SEED = 1


def like(key: Any, x: Any) -> Any:
    """Draws numbers with the shape and the root mean square of ``x``."""
    return jnp.sqrt(jnp.mean(jnp.square(x))) * jax.random.normal(key, x.shape)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("run", type=Path, help="run directory of a search")
    scales.add(result, "the run of a search", words=["RUN"])
    return result


def main() -> None:
    run = parser().parse_args().run
    artefact = artefacts.load(run)
    leaves, shape = jax.tree.flatten(artefact.meta_params)
    keys = jax.random.split(jax.random.key(SEED), len(leaves))
    controls = {
        "initial": artefact.made.init(jax.random.key(SEED)),
        "random": jax.tree.unflatten(shape, [like(key, x) for key, x in zip(keys, leaves, strict=True)]),
    }
    for name, meta_params in controls.items():
        card = {part: artefact.card[part] for part in ("algo", "config", "envs", "env_params")}
        path = run / f"{name}.json"
        artefacts.save(path, artefacts.of_socket(artefact.socket, meta_params, card, settings=artefact.settings))
        print(path)


if __name__ == "__main__":
    main()
