"""Policies of a run, played in chosen levels: how each level goes, and the worst of them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, population, trees
from purerl.errors import own_code
from purerl.formulas import aggregates
from purerl.loops.evaluation import evaluate
from purerl.names import Trust
from purerl.runs.reading import levels as chosen_levels
from purerl.runs.reading.evaluation import EVALUATION_SALT, Run, load
from purerl.runs.reading.levels import Levels
from purerl.types import Key, PyTree

ROWS = 4096
"""Episodes of an agent that are played at once, about."""
SHARES = (0.01, 0.05, 0.1)
"""Of the levels: the means over the worst ones are told of so many."""


def evaluate_run(
    directory: Path, levels: str, episodes: int, max_steps: int, seed: int, *, trust: Trust = False
) -> dict[str, Any]:
    """Plays ``episodes`` in each of the ``levels`` (`levels.chosen`) with each policy of a run, which is only read.

    What it returns can be written as JSON. ``return_per_level`` and, where episodes can be solved,
    ``solved_per_level``, the share that was, have a list for each agent; ``return_worst`` and ``solved_worst`` the mean
    over the worst 1, 5 and 10 % of levels, by the share as text. Raises `ConfigError` as `evaluation.load` and
    `levels.chosen` do.
    """
    run = load(directory, trust=trust)
    asked = chosen_levels.chosen(levels, run.env, run.saved["env"])
    with own_code(run.saved["algo"]):
        found = play(run, asked, episodes, max_steps, seed)
    of_each = {"return": found["return"].mean(axis=2, dtype=np.float64)}
    if run.env.design and run.env.design.solved is not None:
        of_each["solved"] = (found["return"] > float(run.env.design.solved)).mean(axis=2)
    results: dict[str, Any] = {}
    for name, scores in of_each.items():
        results[f"{name}_per_seed"] = scores.mean(axis=1).tolist()
        results[f"{name}_worst"] = {f"{share:g}": aggregates.worst(scores, share).tolist() for share in SHARES}
        results[f"{name}_per_level"] = scores.tolist()
    return {
        "run": str(directory),
        **{name: run.saved[name] for name in ("algo", "env", "seeds", "swept")},
        "members": run.setup.labels,
        "episodes": episodes,
        "levels": asked.names,
        "unfinished_per_seed": (~found["finished"]).sum(axis=(1, 2)).tolist(),
        **results,
    }


def play(run: Run, asked: Levels, episodes: int, max_steps: int, seed: int) -> dict[str, np.ndarray]:
    """Computes the returns ``[P, N, episodes]`` of ``P`` policies in ``N`` levels, of several agents their mean, and
    whether the episodes ended, by name."""
    setup, number = run.setup, trees.length(asked.levels)
    at_once = min(number, max(1, ROWS // episodes))
    layout = population.layout(setup.members.size, jax.local_devices())

    def one(member: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        given, key, policy, levels = member
        env, learner = setup.make_env(given.get("env_params")), setup.make_learner(**given)
        repeated = jax.tree.map(lambda x: jnp.repeat(x, episodes, axis=0), levels)
        played = evaluate(key, env, learner, policy, at_once * episodes, max_steps, repeated)
        of_levels = lambda x: x.reshape(at_once, episodes, -1)
        return state, (jnp.mean(of_levels(played.episode_return), axis=2), jnp.all(of_levels(played.finished), axis=2))

    program = jax.jit(population.spread(one, layout), compiler_options=backend.compiler_options())

    def own_key(key: Key, start: int) -> Key:
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, EVALUATION_SALT), seed), start)

    found = []
    for start in range(0, number, at_once):
        levels = trees.take(asked.levels, np.minimum(np.arange(start, start + at_once), number - 1))
        shared = jax.tree.map(lambda x: jnp.broadcast_to(x, (setup.members.size, *x.shape)), levels)
        keys = jax.vmap(lambda key, start=start: own_key(key, start))(setup.members.keys)
        everyone = setup.members.given, keys, run.policy, shared
        found.append(jax.device_get(program(population.place(everyone, layout), ())[1]))
    size = setup.members.size
    returns, finished = (np.concatenate(x, axis=1)[:size, :number] for x in zip(*found, strict=True))
    return {"return": returns, "finished": finished}
