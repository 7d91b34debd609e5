"""Policies read back from a run directory, and played."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import population, trees
from purerl.errors import ConfigError
from purerl.loops.evaluation import evaluate
from purerl.runs.description import Description, Setup, env_part
from purerl.store import json_files, policies
from purerl.types import Env, Learner, PyTree

EVALUATION_SALT = 2**31
"""Folded into a seed's key before it is evaluated, so that evaluating touches no key of the training."""


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
    saved = json_files.read_json(path)
    if saved.get("format") != policies.FORMAT:
        raise ConfigError(f"{path}: format {saved.get('format')}, expected {policies.FORMAT}")
    setup = Setup.of(Description.of_json(saved, str(path))).first(saved["members"])
    env = setup.make_env(env_part(setup.swept, 0))
    learner = setup.make_trainer(config=setup.config, env_params=env_part(setup.swept, 0)).learner

    def fresh(key):
        _, obs = env.reset(key)
        return learner.policy(learner.init(key, obs[None]))

    like = jax.eval_shape(jax.vmap(fresh), setup.members.keys)
    return Run(saved, setup, env, learner, policies.load_policy(Path(directory), like))


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
        batch = trees.take(everyone, slice(first, first + layout.size))
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
