"""Searches at full scale, or the same code at a scale for continuous integration.

    python scripts/reproduce.py value-loss|policy-drift --scale full|ci [--out DIR] [OPTIONS of purerl evolve]

Runs the search, reports it on held-out seeds, and fits a closed form. ``value-loss`` at full scale is the published
one, of 100 billion frames; ``policy-drift`` has LPO's population and generations, on CartPole in place of brax. A
search that was stopped goes on when the same command is given again.
"""

import argparse
from pathlib import Path

from purerl import cli

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
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--scale", choices=("full", "ci"), default="ci")
    parser.add_argument("--out", type=Path)
    given, more = parser.parse_known_args()
    out = given.out or Path(f"runs/{given.experiment}-{given.scale}")
    search = ["evolve", given.experiment, *EXPERIMENTS[given.experiment][given.scale], "--out", str(out), *more]
    if (out / "config.json").exists():
        search = ["resume", str(out), *more]
    report = ["evolve", "report", str(out), *SEEDS[given.scale]]
    for command in (search, report, ["evolve", "distill", str(out)]):
        print("purerl " + " ".join(command), flush=True)
        try:
            cli.main(command)
        except SystemExit as stop:
            if stop.code:
                raise


if __name__ == "__main__":
    main()
