"""Adversarial cheap talk (Lu et al. 2022, arXiv 2211.11030): what evolved messages do to agents that no search has met.

    python scripts/reproduce.py act --scale full|ci|tiny [--out DIR] [--only PLACE-ROLE ...] [OPTIONS of purerl evolve]

For each place and role it searches, compares what was found with silence and with random messages on held-out agents,
paired, and prints what it claims and whether it holds. ``full`` has the constants of the authors' code (populations
of 128 to 1024, 2049 generations), with hidden layers of tanh in place of ReLU. ``ci`` has agents that learn in fewer
frames, and messages that are linear functions of the observation. A search that was stopped goes on when the
same command is given again.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from claims import claim, command, failed

from purerl import envs
from purerl.algos import ALGORITHMS
from purerl.display import plots
from purerl.learned import artefacts, messages

CARTPOLE = ["--env", "CartPole-v1", "--env-params", "max_steps=200"]
PENDULUM, REACHER = ["--env", "Pendulum-v1"], ["--env", "Reacher-misc"]
FULL_BATCH = ["--num-minibatches", "1"]
LEARNERS = {
    "full": {
        "cartpole": [*CARTPOLE, "--num-envs", "4", "--num-steps", "256", "--total-steps", str(4 * 256 * 32)]
        + ["--num-epochs", "16", "--learning-rate", "0.005", "--hidden-sizes", "32", "32"],
        "pendulum": [*PENDULUM, "--num-envs", "16", "--num-steps", "256", "--total-steps", str(16 * 256 * 128)]
        + ["--num-epochs", "16", "--learning-rate", "0.02", "--gamma", "0.95", "--entropy-coef", "0.005"]
        + ["--hidden-sizes", "32", "32"],
        "reacher": [*REACHER, "--num-envs", "32", "--num-steps", "128", "--total-steps", str(32 * 128 * 256)]
        + ["--num-epochs", "10", "--learning-rate", "0.004", "--entropy-coef", "5e-4"]
        + ["--hidden-sizes", "128", "128", "--activation", "relu"],
    },
    "ci": {
        "cartpole": [*CARTPOLE, "--num-envs", "4", "--num-steps", "128", "--total-steps", str(4 * 128 * 32)]
        + ["--num-epochs", "8", "--learning-rate", "0.005", "--hidden-sizes", "32", "32"],
        "pendulum": [*PENDULUM, "--num-envs", "16", "--num-steps", "200", "--total-steps", str(16 * 200 * 24)]
        + ["--num-epochs", "8", "--learning-rate", "0.01", "--gamma", "0.95", "--entropy-coef", "0.005"]
        + ["--hidden-sizes", "32", "32", "--normalize-reward"],
        "reacher": [*REACHER, "--num-envs", "16", "--num-steps", "100", "--total-steps", str(16 * 100 * 32)]
        + ["--num-epochs", "8", "--learning-rate", "0.005", "--entropy-coef", "5e-4"]
        + ["--hidden-sizes", "32", "32"],
    },
}
"""Who learns, by scale and place."""
POPULATION = {"cartpole": "1024", "pendulum": "768", "reacher": "128"}
PAPER = ["--message-gain", "1", "--message-layers", "64", "64", "--generations", "2049", "--normalize-obs"]
CI = ["--population", "32", "--sigma", "0.3", "--meta-learning-rate", "0.1", "--generations", "60"]
ROLES = {
    "adversary": ["--role", "adversary"],
    "ally": ["--role", "ally"],
    "guide": ["--role", "guide", "--message-scale", "3.14159"],
}
HIDDEN = {"cartpole": ["--unseen", "1", "3"], "pendulum": ["--unseen", "2"], "reacher": ["--unseen", "4", "5"]}
"""The velocities, which agents do not see at scale ci unless the messages are an adversary's: there is something to
tell them, and who relies on what is told can be led."""
SEEDS = {"full": "256", "ci": "48"}
GATES = {"cartpole-adversary": 45.0, "cartpole-ally": 150.0}
"""Returns that held-out agents stay below, or exceed, at scale ci; victims of random messages do neither."""


def arguments(scale: str, name: str) -> list[str]:
    """Those of ``purerl evolve`` for ``PLACE-ROLE``."""
    place, role = name.split("-")
    sizes = ["--population", POPULATION[place], *PAPER] if scale == "full" else CI
    sizes = [*sizes, "--num-seeds", "4"] if (scale, role) == ("full", "guide") else sizes
    hidden = HIDDEN[place] if scale == "ci" and role != "adversary" else []
    return ["cheap-talk", *LEARNERS[scale][place], *FULL_BATCH, *sizes, *ROLES[role], *hidden]


NAMES = [f"{place}-{role}" for place in POPULATION for role in ROLES]
USUAL, TINY = NAMES[: len(ROLES)], NAMES[:1]
"""What runs if nobody names any, and at scale tiny."""


def main(scale: str, out: Path, only: Sequence[str], more: Sequence[str]) -> None:
    """Runs the experiments that ``--only`` names among ``more`` (default: those on CartPole); the rest of ``more`` are
    options of the searches. Exits with 1 if a claim fails."""
    for name in only:
        directory = out / name
        begin = ["evolve", *arguments(scale, name), "--out", str(directory)]
        if (directory / "config.json").exists():
            begin = ["resume", str(directory)]
        for words in ([*begin, *more], ["evolve", "report", str(directory), "--seeds", SEEDS[scale]]):
            command(words)
        tell(name, json.loads((directory / "report.json").read_text()), scale)
        draw(directory)
    raise SystemExit(bool(failed))


def tell(name: str, report: dict, scale: str) -> None:
    """Prints the returns that held-out agents reach, and what is claimed of them. Of a guide they are its own."""
    sign = -1.0 if name.endswith("adversary") else 1.0
    above = lambda fitness: fitness >= sign * GATES[name]
    for row in report["rows"]:
        low, high = sorted(sign * row["difference"][end] for end in ("low", "high"))
        evolved = f"{sign * row['fitness']:.1f} +- {row['fitness_error']:.1f}"
        other = f"{sign * row['baseline_fitness']:.1f} +- {row['baseline_error']:.1f}"
        claim(
            f"{name}: return {evolved}; {row['baseline']}: {other}; difference in [{low:.1f}, {high:.1f}]",
            row["difference"]["low"] > 0,
        )
        if scale == "ci" and name in GATES:
            claim(
                f"{name}: the gate of {GATES[name]:.0f} is not passed with {row['baseline']}",
                not above(row["baseline_fitness"]),
            )
    if scale == "ci" and name in GATES:
        claim(f"{name}: the gate of {GATES[name]:.0f} is passed", above(report["rows"][0]["fitness"]))


def draw(directory: Path, agents: int = 16) -> None:
    """Writes ``agents.png``: returns of agents that learn with the messages found, without, and with random ones."""
    artefact = artefacts.load(directory)
    name, config = artefacts.training(artefact)
    env = envs.make(artefact.card["envs"][0], **artefact.card["env_params"])
    keys, drawn = jax.random.split(jax.random.fold_in(jax.random.key(1), agents), (2, agents))

    def returns(meta_params, key):
        train = ALGORITHMS[name].make_train(config, artefact.made.env(meta_params, env))
        return train(key).metrics["episode_return"]

    run = jax.jit(jax.vmap(returns))
    messages_of = {"evolved": lambda meta_params, key: meta_params, "none": messages.silent, "random": messages.random}
    lines = {}
    for what, draw in messages_of.items():
        meta_params = jax.vmap(draw, in_axes=(None, 0))(artefact.meta_params, drawn)
        lines[what] = np.asarray(run(meta_params, keys))
    frames = np.arange(1, config.num_iterations + 1) * config.batch_size
    plots.curves(directory / "agents.png", frames, lines, f"{directory.name}: messages")
