"""Discovered algorithms that others published: ours against theirs, on files that a user has.

    python scripts/discovered.py disco FOLDER    # DiscoRL's update, and the oracle of our tests
    python scripts/discovered.py catch FOLDER    # DiscoRL's agent on Catch, beside random rules; half an hour
    python scripts/discovered.py open FOLDER     # OPEN's optimiser: reference files beside the published weights

FOLDER holds the published weights, ``disco_103.npz`` or ``*_OPEN.npy``, and beside them ``case*.npz`` or ``open_*.npz``
with inputs and outputs of the authors' own code.
"""

import argparse
from pathlib import Path
from typing import Any

import claims
import jax.numpy as jnp
import numpy as np
import scales
from workloads import disco_catch, disco_reference

from purerl.learned import artefacts, open_optimiser
from purerl.learned.layer_activity import Layer
from purerl.learned.open_optimiser import Progress

OPEN_CASES = {"open_breakout_stochastic_actor": "breakout_OPEN.npy", "open_multi_stochastic_actor": "multi_OPEN.npy"}
OPEN_TOLERANCE = 1e-5
TENSORS = [f"{network}/Dense_{i}/{x}" for network in ("actor", "critic") for i in range(3) for x in ("bias", "kernel")]


def open_differences(case: Any, meta_params: Any) -> dict[str, float]:
    """Returns the largest difference of each array of a reference file, by name, over its three steps."""
    flat = lambda name: jnp.concatenate([jnp.asarray(case[f"{name}/{tensor}"]).reshape(-1) for tensor in TENSORS])
    rows = lambda name, n: jnp.concatenate([jnp.asarray(case[f"{name}/{x}"]).reshape(-1, n) for x in TENSORS]).T
    params = flat("params_step0")
    momenta, carry = jnp.zeros((6, params.size)), jnp.zeros((meta_params["gru"]["hn"]["bias"].size, params.size))
    results: dict[str, float] = {}

    def compare(name: str, ours: Any, theirs: Any) -> None:
        part = name.partition("_")[2]
        results[part] = max(results.get(part, 0.0), float(np.max(np.abs(np.asarray(ours) - np.asarray(theirs)))))

    for step in (1, 2, 3):
        at = f"step{step}_"
        layers = [
            Layer(
                jnp.asarray(case[f"{at}input_mean_abs_activation/{network}/{layer[-1]}/{which}"]),
                jnp.full(case[f"params_step0/{network}/{layer}/{which}"].shape, int(layer[-1]) / 2),
            )
            for network, layer, which in (tensor.split("/") for tensor in TENSORS)
        ]
        age = Progress(
            *(jnp.asarray(case[f"{at}input_{part}_proportion"]).reshape(()) for part in ("training", "batch"))
        )
        grads = flat(f"{at}input_grad")
        momenta = open_optimiser.average(momenta, grads)
        seen = open_optimiser.features(params, grads, momenta, age, layers)
        carry = open_optimiser.remember(meta_params["gru"], carry, seen)
        out = open_optimiser.outputs(meta_params["mlp"], carry)
        actor = jnp.arange(params.size) < sum(case[f"params_step0/{x}"].size for x in TENSORS if x.startswith("actor"))
        noise = jnp.where(actor, flat(f"{at}noise_if_mask_1"), 0.0)
        taken = open_optimiser.moves(out, noise)
        params = params - taken
        if step != 2:
            compare(f"{at}momenta_after", momenta, rows(f"{at}momenta_after", 6))
            compare(f"{at}features19", seen, rows(f"{at}features19", 19))
            compare(f"{at}gru_carry_after", carry, rows(f"{at}gru_carry_after", carry.shape[0]))
            compare(f"{at}mlp_output3", out, rows(f"{at}mlp_output3", 3))
        compare(f"{at}update_subtracted", taken, flat(f"{at}update_subtracted"))
        compare(f"{at}params_after", params, flat(f"{at}params_after"))
    return results


def check_open(folder: Path) -> bool:
    """Tells the differences of every array of OPEN's reference files; returns whether all are within 1e-5."""
    close = True
    for name, weights in OPEN_CASES.items():
        with np.load(folder / f"{name}.npz", allow_pickle=False) as case:
            differences = open_differences(case, artefacts.load(folder / weights).meta_params)
        for part, difference in differences.items():
            close &= difference <= OPEN_TOLERANCE
            print(f"{name:<32} {part:<20} {difference:.1e}{'' if difference <= OPEN_TOLERANCE else '  TOO FAR'}")
    return close


CHECKS = {"disco": disco_reference.check, "catch": disco_catch.check, "open": check_open}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("what", choices=CHECKS)
    result.add_argument("folder", type=Path)
    scales.add(result, "files that others published", words=["FOLDER"])
    return result


def main() -> None:
    given = parser().parse_args()
    claims.scale = given.scale
    raise SystemExit(0 if CHECKS[given.what](given.folder) else 1)


if __name__ == "__main__":
    main()
