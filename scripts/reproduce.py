"""Searches at full scale, or the same code at a scale for continuous integration.

    python scripts/reproduce.py value-loss|policy-drift --scale full|ci|tiny [--out DIR] [OPTIONS of purerl evolve]

Runs the search, reports it on held-out seeds, and fits a closed form. ``value-loss`` at full scale is the published
one, of 100 billion frames; ``policy-drift`` has LPO's population and generations, on CartPole in place of brax. A
search that was stopped goes on when the same command is given again.

    python scripts/reproduce.py results --scale full|ci|tiny [--out DIR] [--names WORD ...] [--again] [--missing]
        [--budget-seconds N]

Trains the rows of the table of results that have no line, too few seeds or no curve, or with ``--again`` all that are
named, and writes the page (`results.main`). With ``--missing`` it lists what is missing at full scale, whatever
``--scale``, with the expected hours, and trains nothing.

    python scripts/reproduce.py act --scale full|ci|tiny [--out DIR] [--only PLACE-ROLE ...] [OPTIONS of purerl evolve]

Evolves messages to agents that learn, adversarial and allied, and tries them on agents of their own (`act.main`).

    python scripts/reproduce.py mfos --scale full|ci|tiny [--out DIR] [--only PART ...] [OPTIONS of purerl train]

Trains agents that shape opponents who learn, in matrix games and in the coin game (`mfos.main`).
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import act
import claims
import mfos
import results
import scales
from claims import command

CARTPOLE = ["--env", "CartPole-v1", "--num-envs", "4", "--num-steps", "64"]
SHORT = ["--total-steps", "32768", "--learning-rate", "2.5e-3", "--meta-learning-rate", "0.03", "--momentum", "0.9"]
EXPERIMENTS = {
    "value-loss": {
        "full": [*CARTPOLE, "--total-steps", "190976", "--population", "512", "--generations", "1024"],
        "ci": [*CARTPOLE, *SHORT, "--population", "16", "--generations", "12"],
    },
    "policy-drift": {
        "full": [*CARTPOLE, "--total-steps", "190976", "--population", "32", "--generations", "1025"],
        "ci": [*CARTPOLE, *SHORT, "--population", "16", "--generations", "12"],
    },
}
"""Options of `purerl evolve` by experiment and scale."""
SEEDS = {"full": ["--seeds", "256"], "ci": ["--seeds", "16", "--tuning-seeds", "4"]}


TINY = {
    **dict.fromkeys(EXPERIMENTS, ["--population", "4", "--generations", "2", "--total-steps", "2048"]),
    "act": ["--population", "4", "--generations", "2", "--total-steps", "2048"],
    "mfos": ["--total-steps", str(2 * 64 * mfos.STEPS)],
}
"""What follows the options of scale ci at tiny, where evolved functions have as few seeds as it."""
TRAININGS = {"act": act, "mfos": mfos}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    experiments = result.add_subparsers(dest="experiment", required=True)
    for name in (*EXPERIMENTS, "results", *TRAININGS):
        one, tiny = experiments.add_parser(name), {}
        one.add_argument("--out", type=Path)
        if name == "results":
            one.add_argument("--names", nargs="+", default=())
            one.add_argument("--again", action="store_true")
            one.add_argument("--missing", action="store_true")
            one.add_argument("--budget-seconds", type=float, default=math.inf)
            tiny = {"names": ["train reinforce"]}
        elif name in TRAININGS:
            one.add_argument("--only", nargs="+", choices=TRAININGS[name].NAMES, default=TRAININGS[name].USUAL)
            tiny = {"only": TRAININGS[name].TINY}
        scales.add(one, choices=("ci", "full", "tiny"), **tiny)
    return result


def main() -> None:
    """Runs one experiment; exits with the first code that is not 0."""
    given, more = parser().parse_known_args()
    claims.scale, scale = given.scale, "full" if given.scale == "full" else "ci"
    if given.experiment == "results":
        if more:
            parser().error(f"unknown: {' '.join(more)}")
        scale = "full" if given.missing else scale
        results.main(scale, given.out, given.names, given.budget_seconds, given.again, given.missing)
        return
    out = given.out or Path(f"runs/{given.experiment}-{given.scale}")
    more = [*(TINY[given.experiment] if given.scale == "tiny" else []), *more]
    if given.experiment in EXPERIMENTS:
        search(given.experiment, scale, out, more)
    else:
        TRAININGS[given.experiment].main(scale, out, given.only, more)


def search(experiment: str, scale: str, out: Path, more: Sequence[str]) -> None:
    """Searches, reports and distils, with ``more`` options of the search."""
    first = ["evolve", experiment, *EXPERIMENTS[experiment][scale], "--out", str(out), *more]
    if (out / "config.json").exists():
        first = ["resume", str(out), *more]
    report = ["evolve", "report", str(out), *SEEDS[scale]]
    for words in (first, report, ["evolve", "distill", str(out)]):
        command(words)


if __name__ == "__main__":
    main()
