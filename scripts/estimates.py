"""The estimated speed of trainings, beside the measured one.

    python scripts/estimates.py [--trainings 19] [--scale tiny]

Prints, for each training, the seconds that `purerl plan` estimates, those that ``--measure`` measures, and their ratio;
and the range of the ratios. The constants of `purerl.hardware.speed.on_cpu` were fitted to these trainings.
"""

import argparse
import json
import subprocess
import sys

import scales

TRAININGS = (
    "ppo CartPole-v1",
    "ppo CartPole-v1 --num-seeds 64 --total-steps 100k",
    "ppo CartPole-v1 --num-envs 512 --total-steps 3M",
    "ppo CartPole-v1 --hidden-sizes 512 512 --total-steps 100k",
    "ppo CartPole-v1 --memory gru --total-steps 200k",
    "ppo Pendulum-v1 --preset continuous --total-steps 300k",
    "ppo Breakout-MinAtar --total-steps 300k",
    "ppo Maze-v0 --total-steps 200k",
    "a2c Acrobot-v1 --total-steps 300k",
    "impala CartPole-v1 --total-steps 300k",
    "dqn CartPole-v1 --total-steps 200k",
    "dqn CartPole-v1 --num-seeds 32 --total-steps 50k",
    "dqn Breakout-MinAtar --total-steps 30k",
    "rainbow CartPole-v1 --total-steps 20k",
    "r2d2 CartPole-v1 --total-steps 100k",
    "pqn CartPole-v1 --total-steps 300k",
    "sac Pendulum-v1 --total-steps 20k",
    "sac Pendulum-v1 --num-seeds 8 --total-steps 10k",
    "td3 Pendulum-v1 --total-steps 20k",
)


def seconds(training: str, *more: str) -> float:
    """The seconds of the whole training, by ``purerl plan``."""
    command = [sys.executable, "-m", "purerl.cli", "plan", *training.split(), "--json", *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["wall_seconds"]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--trainings", type=int, default=len(TRAININGS), help="so many of them (default: all)")
    scales.add(result, trainings=1)
    return result


def main() -> None:
    """Prints a row for each training."""
    ratios = []
    print(f"{'estimated':>10}{'measured':>10}{'ratio':>7}  training")
    for training in TRAININGS[: parser().parse_args().trainings]:
        estimated, measured = seconds(training), seconds(training, "--measure")
        ratios.append(estimated / measured)
        print(f"{estimated:9.2f}s{measured:9.2f}s{ratios[-1]:7.2f}  {training}", flush=True)
    print(f"estimates are {min(ratios):.2f} to {max(ratios):.2f} times what was measured")


if __name__ == "__main__":
    main()
