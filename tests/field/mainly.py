"""A class of the script itself, stepped by workers."""

import json
from pathlib import Path

from ten import Ten

from purerl.cli import main


class Mine(Ten):
    """Ten steps."""


if __name__ == "__main__":
    small = ["--num-envs", "4", "--num-steps", "16", "--total-steps", "128", "--hidden-sizes", "8"]
    try:
        main(["train", "ppo", "--env", "__main__:Mine", "--workers", "2", *small, "--out", "run"])
    finally:
        if (path := Path("run/summary.json")).exists():
            print("return", json.loads(path.read_text())["return_mean"])
