"""Runs read back: which members a run had, their policies, their evaluation, and comparisons."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from purerl import config as cfg
from purerl import envs, files, population, statistics
from purerl.algos import ALGORITHMS, read_config
from purerl.evaluate import evaluate
from purerl.meta import artefacts
from purerl.types import Env, Learner, PyTree, Trainer

EVALUATION_SALT = 2**31
"""Folded into a seed's key before it is evaluated, so that evaluating touches no key of the training."""
COMPARED = ("algo", "env", "env_params", "env_steps", "swept", "return_per_seed", "alive_per_seed")
"""What a comparison reads of a summary."""
ENV_PREFIX = "env."
"""Of the swept names that are parameters of the environment, not of the algorithm's config."""


class Setup(NamedTuple):
    """What a description stands for: the members of a run, and how to make their environments and trainers.

    ``swept`` in a description maps names to one value for each configuration. Member ``i`` has configuration ``i // S``
    and seed ``i % S``, so that all configurations share their seeds' keys; ``labels`` say so, member by member.
    """

    config: Any
    make_env: Callable[..., Env]
    make_trainer: Callable[..., Trainer]
    members: population.Members
    labels: list[dict[str, int]]
    swept: dict[str, list[float]]

    @classmethod
    def of(cls, description: dict[str, Any]) -> "Setup":
        """Reads a description, as `experiment.describe` makes it or a file holds it."""
        algo, seeds, swept = ALGORITHMS[description["algo"]], description["seeds"], description["swept"]
        learned = description.get("learned", {})
        config = read_config(description["algo"], description["config"])

        def make_env(env_params: dict[str, Any] | None = None) -> Env:
            return envs.make(description["env"], **{**description["env_params"], **(env_params or {})})

        def make_trainer(config: Any, env_params: dict[str, Any] | None = None) -> Trainer:
            return algo.make_trainer(config, make_env(env_params), **artefacts.parts(learned, config))

        count = len(next(iter(swept.values()), [0]))
        repeated = {name: np.repeat(np.asarray(values, np.float32), len(seeds)) for name, values in swept.items()}
        members = population.members(
            dataclasses.replace(config, **config_part(repeated)),
            jnp.tile(jnp.stack([jax.random.key(seed) for seed in seeds]), count),
            env_params=env_part(repeated) or None,
        )
        which = [{"config": c} if swept else {} for c in range(count)]
        labels = [{**label, "seed": seed} for label in which for seed in seeds]
        return cls(config, make_env, make_trainer, members, labels, swept)

    @property
    def trainer(self) -> Trainer:
        """The first member's."""
        return self.make_trainer(**population.take(self.members.given, 0))

    def first(self, count: int) -> "Setup":
        """The first ``count`` members alone, for a run that was interrupted between batches."""
        return self._replace(members=population.take(self.members, slice(0, count)), labels=self.labels[:count])


def config_part(swept: dict[str, Any]) -> dict[str, Any]:
    """Those of the swept values that belong to the algorithm's config."""
    return {name: values for name, values in swept.items() if not name.startswith(ENV_PREFIX)}


def env_part(swept: dict[str, Any], index: int | None = None) -> dict[str, Any]:
    """Those that belong to the environment, without their prefix; of all configurations or of one."""
    part = {name.removeprefix(ENV_PREFIX): v for name, v in swept.items() if name.startswith(ENV_PREFIX)}
    return part if index is None else {name: values[index] for name, values in part.items()}


class Run(NamedTuple):
    """A trained run, read back: ``policy`` has a leading axis of agents ``[P]``, in the order of ``setup.labels``."""

    saved: dict[str, Any]
    setup: Setup
    env: Env
    learner: Learner
    policy: PyTree


def load(directory: str | Path) -> Run:
    """Reads the policies of a run directory. Raises `ConfigError` if it holds none, or damaged ones.

    ``run.learner.exploit(jax.tree.map(lambda x: x[i], run.policy), obs, run.learner.init_carry(B), key)`` acts as agent
    ``i`` does in observations ``[B, ...]``.
    """
    path = Path(directory) / "policy.json"
    saved = files.read_json(path)
    if saved.get("format") != files.FORMAT:
        raise cfg.ConfigError(f"{path}: format {saved.get('format')}, expected {files.FORMAT}")
    setup = Setup.of(saved).first(saved["members"])
    env = setup.make_env(env_part(setup.swept, 0))
    learner = setup.make_trainer(config=setup.config, env_params=env_part(setup.swept, 0)).learner

    def fresh(key):
        _, obs = env.reset(key)
        return learner.policy(learner.init(key, obs[None]))

    like = jax.eval_shape(jax.vmap(fresh), setup.members.keys)
    return Run(saved, setup, env, learner, files.load_policy(Path(directory), like))


def evaluate_run(directory: Path, episodes: int, max_steps: int, seed: int) -> dict[str, Any]:
    """Plays the policies of a run directory, which is only read. Raises `ConfigError` for a directory without one."""
    run = load(directory)
    return {
        "run": str(directory),
        **{name: run.saved[name] for name in ("algo", "env", "seeds", "swept")},
        "members": run.setup.labels,
        "episodes": episodes,
        **play(run.setup, run.policy, episodes, max_steps, seed=seed),
    }


def play(
    setup: Setup, policy: PyTree, episodes: int, max_steps: int, *, seed: int = 0, batch_size: int | None = None
) -> dict[str, Any]:
    """Plays ``episodes`` with each member's policy, in its own environment; lists have an entry for each member.

    The episodes follow from the member's key and ``seed``; those of seed 0 end a training. ``batch_size`` members play
    at once (default: all).
    """
    size = setup.members.size
    layout = population.layout(min(batch_size or size, size))
    fold = lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION_SALT), seed)  # noqa: E731
    everyone = setup.members.given, jax.vmap(fold)(setup.members.keys), policy

    def one(member, state):
        given, key, policy = member
        env = setup.make_env(given.get("env_params"))
        return state, evaluate(key, env, setup.make_trainer(**given).learner, policy, episodes, max_steps)

    program, found = jax.jit(population.spread(one, layout)), []
    for first in range(0, size, layout.size):
        batch = population.take(everyone, slice(first, first + layout.size))
        found.append(jax.device_get(program(population.place(batch, layout), ())[1]))
    episode_return, length, finished = (np.concatenate(x)[:size] for x in zip(*found, strict=True))
    per_seed = episode_return.mean(axis=1, dtype=np.float64)
    return {
        "return_mean": float(per_seed.mean()),
        "return_per_seed": per_seed.tolist(),
        "return_std_per_seed": episode_return.std(axis=1, dtype=np.float64).tolist(),
        "length_per_seed": length.mean(axis=1).tolist(),
        "unfinished_per_seed": (~finished).sum(axis=1).tolist(),
    }


def print_evaluation(result: dict[str, Any]) -> None:
    """A table with a row for each agent."""
    names = list(result["members"][0])
    table = Table(*names, "return", "std", "length", "unfinished", title=f"{result['algo']} on {result['env']}")
    columns = ("return_per_seed", "return_std_per_seed", "length_per_seed", "unfinished_per_seed")
    for label, mean, std, length, unfinished in zip(
        result["members"], *(result[name] for name in columns), strict=True
    ):
        table.add_row(*map(str, label.values()), f"{mean:.2f}", f"{std:.2f}", f"{length:.1f}", str(unfinished))
    console = Console()
    console.print(table)
    console.print(
        f"mean return {result['return_mean']:.2f} over {result['episodes']} episodes an agent", highlight=False
    )


def rank(setup: Setup, scores: np.ndarray) -> dict[str, Any]:
    """Configurations of a sweep, the best first, by the interquartile mean of their seeds' scores.

    ``scores`` has an entry for each member, nan for those that died, which count as the worst.
    """
    count = len(next(iter(setup.swept.values())))
    scores = scores.reshape(count, -1)
    rows = []
    for c in range(count):
        values = {name: values[c] for name, values in setup.swept.items()}
        estimate = statistics.estimate(scores[c])
        rows.append({**values, "config": c, **estimate._asdict(), "returns": scores[c].tolist()})
    key = lambda row: (row["value"], np.sum(np.nan_to_num(row["returns"], nan=-1e30)))  # noqa: E731
    return {"swept": setup.swept, "ranked": sorted(rows, key=key, reverse=True)}


def write_sweep(directory: Path, ranking: dict[str, Any]) -> None:
    """Writes ``sweep.json`` and ``sweep.png`` into a run directory, and prints the table."""
    from purerl import plot

    files.write_json(directory / "sweep.json", ranking)
    in_order = sorted(ranking["ranked"], key=lambda row: row["config"])
    plot.sweep_map(directory / "sweep.png", ranking["swept"], [row["returns"] for row in in_order])
    names = list(ranking["swept"])
    table = Table("rank", *names, "IQM", "95 % interval", "worst seed", "died")
    for place, row in enumerate(ranking["ranked"], start=1):
        died = int(np.isnan(row["returns"]).sum())
        worst = f"{np.nanmin(row['returns']):.1f}" if died < len(row["returns"]) else "-"
        table.add_row(
            str(place), *(f"{row[name]:.4g}" for name in names), f"{row['value']:.1f}", _interval(row), worst, str(died)
        )
    Console().print(table)


def compare(directories: list[Path]) -> dict[str, Any]:
    """Runs side by side: interquartile means, and the first's probability of improvement over each of the others.

    Reads ``summary.json`` alone. Raises `ConfigError` for a directory without one, for a sweep, and for runs on
    different environments. An agent that died counts as the worst.
    """
    rows, scores = [], []
    for directory in directories:
        summary = files.read_json(directory / "summary.json")
        missing = [name for name in COMPARED if name not in summary]
        if missing:
            raise cfg.ConfigError(f"{directory / 'summary.json'}: lacks {', '.join(missing)}")
        if summary["swept"]:
            raise cfg.ConfigError(f"{directory}: holds a sweep; compare needs runs of one configuration")
        scores.append(np.where(summary["alive_per_seed"], summary["return_per_seed"], np.nan))
        facts = {name: summary[name] for name in ("algo", "env", "env_params", "env_steps")}
        rows.append({"run": str(directory), **facts, "agents": len(scores[-1])})
        for name in ("env", "env_params"):
            if rows[-1][name] != rows[0][name]:
                raise cfg.ConfigError(
                    f"{directory}: {name} = {rows[-1][name]!r} differs from {rows[0][name]!r} of {directories[0]}"
                )
    for row, score in zip(rows, scores, strict=True):
        better = statistics.estimate(scores[0], score, statistic=statistics.probability_of_improvement)
        row |= {"return_mean": float(np.mean(score)), "return_iqm": statistics.estimate(score)._asdict()}
        row |= {"improvement_of_first": better._asdict()}
    return {"runs": rows}


def print_comparison(comparison: dict[str, Any]) -> None:
    """A table with a row for each run."""
    table = Table("run", "algo", "frames", "agents", "IQM", "95 % interval", "P(first > this)", "95 % interval")
    for row in comparison["runs"]:
        iqm, better = row["return_iqm"], row["improvement_of_first"]
        table.add_row(
            row["run"],
            row["algo"],
            f"{row['env_steps']:,}",
            str(row["agents"]),
            f"{iqm['value']:.1f}",
            _interval(iqm),
            f"{better['value']:.2f}",
            f"[{better['low']:.2f}, {better['high']:.2f}]",
        )
    Console().print(table)


def _interval(estimate: dict[str, float]) -> str:
    return f"[{estimate['low']:.1f}, {estimate['high']:.1f}]"
