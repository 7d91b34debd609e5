"""Searches at full scale, or the same code at a scale for continuous integration.

    python scripts/reproduce.py value-loss|policy-drift --scale full|ci [--out DIR] [OPTIONS of purerl evolve]

Runs the search, reports it on held-out seeds, and fits a closed form. ``value-loss`` at full scale is the published
one, of 100 billion frames; ``policy-drift`` has LPO's population and generations, on CartPole in place of brax. A
search that was stopped goes on when the same command is given again.

    python scripts/reproduce.py results --scale full|ci [--out DIR] [--names WORD ...] [--again] [--missing]
        [--budget-seconds N]

Trains the rows of the table of results that have no line, too few seeds or no curve, or with ``--again`` all that are
named, and writes the page (`results.main`). With ``--missing`` it lists what is missing at full scale, whatever
``--scale``, with the expected hours, and trains nothing.

    python scripts/reproduce.py act --scale paper|ci [--out DIR] [--only PLACE-ROLE ...] [OPTIONS of purerl evolve]

Evolves messages to agents that learn, adversarial and allied, and tries them on agents of their own (`act.main`).

    python scripts/reproduce.py mfos --scale paper|ci [--out DIR] [--only PART ...] [OPTIONS of purerl train]

Trains agents that shape opponents who learn, in matrix games and in the coin game (`mfos.main`).
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import act
import mfos
import results
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


def main() -> None:
    """Runs one experiment; exits with the first code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=(*EXPERIMENTS, "results", "act", "mfos"))
    named = lambda scale: {"paper": "full"}.get(scale, scale)
    parser.add_argument(
        "--scale", type=named, choices=("full", "ci"), default="ci", help="paper is another word for full"
    )
    parser.add_argument("--out", type=Path)
    given, more = parser.parse_known_args()
    if given.experiment == "results":
        parser.add_argument("--names", nargs="+", default=())
        parser.add_argument("--again", action="store_true")
        parser.add_argument("--missing", action="store_true")
        parser.add_argument("--budget-seconds", type=float, default=math.inf)
        given = parser.parse_args()
        scale = "full" if given.missing else given.scale
        results.main(scale, given.out, given.names, given.budget_seconds, given.again, given.missing)
    elif given.experiment in EXPERIMENTS:
        search(given.experiment, given.scale, given.out, more)
    else:
        {"act": act, "mfos": mfos}[given.experiment].main(given.scale, given.out, more)


def search(experiment: str, scale: str, out: Path | None, more: Sequence[str]) -> None:
    """Searches, reports and distils, with ``more`` options of the search."""
    out = out or Path(f"runs/{experiment}-{scale}")
    first = ["evolve", experiment, *EXPERIMENTS[experiment][scale], "--out", str(out), *more]
    if (out / "config.json").exists():
        first = ["resume", str(out), *more]
    report = ["evolve", "report", str(out), *SEEDS[scale]]
    for words in (first, report, ["evolve", "distill", str(out)]):
        command(words)


if __name__ == "__main__":
    main()
