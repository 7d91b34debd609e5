"""The evaluation of a run's policies in chosen levels: the results in each level, and in the worst of them."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, population, trees
from purerl.errors import own_code
from purerl.formulas import aggregates
from purerl.loops.evaluation import evaluate
from purerl.names import Trust
from purerl.population.layouts import place, spread
from purerl.runs.reading import levels as chosen_levels
from purerl.runs.reading.evaluation import EVALUATION_SALT, Run, load
from purerl.runs.reading.levels import Levels
from purerl.types import Key, PyTree

ROWS = 4096
"""The approximate number of episodes of an agent that are played at once."""
SHARES = (0.01, 0.05, 0.1)
"""The fractions of levels, the worst ones, over which means are reported."""


def evaluate_run(
    directory: Path,
    levels: str,
    episodes: int,
    max_steps: int,
    seed: int,
    *,
    trust: Trust = False,
    env_params: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Plays the policies of a run, which is only read, in each of some levels.

    Args:
        directory: The run directory.
        levels: The levels (`levels.chosen`).
        episodes: The number of episodes of each policy in each level.
        max_steps: The number of steps after which an episode is cut off.
        seed: The episodes follow from it and the members' keys.
        trust: As for `evaluation.load`.
        env_params: As for `evaluation.load`.

    Returns:
        The results, which can be written as JSON. ``return_per_level`` and, where episodes can be solved,
        ``solved_per_level``, the fraction that was, have a list for each agent. ``return_worst`` and ``solved_worst``
        have the means over the worst 1, 5 and 10 % of levels, by the fraction as text.

    Raises:
        ConfigError: The run cannot be read (`evaluation.load`), or it has no such levels (`levels.chosen`).
    """
    run = load(directory, trust=trust, env_params=env_params, playing=True)
    chosen = chosen_levels.chosen(levels, run.env, run.saved["env"])
    with own_code(run.saved["algo"]):
        episodes_of_levels = play(run, chosen, episodes, max_steps, seed)
    of_each = {"return": episodes_of_levels["return"].mean(axis=2, dtype=np.float64)}
    if run.env.design and run.env.design.solved is not None:
        of_each["solved"] = (episodes_of_levels["return"] > float(run.env.design.solved)).mean(axis=2)
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
        "levels": chosen.names,
        "unfinished_per_seed": (~episodes_of_levels["finished"]).sum(axis=(1, 2)).tolist(),
        **results,
    }


def play(run: Run, chosen: Levels, episodes: int, max_steps: int, seed: int) -> dict[str, np.ndarray]:
    """Plays policies in levels and returns ``return`` and ``finished``, each ``[P, N, episodes]``.

    Args:
        run: The run, with ``P`` policies.
        chosen: The ``N`` levels.
        episodes: The number of episodes of each policy in each level.
        max_steps: The number of steps after which an episode is cut off.
        seed: The episodes follow from it and the members' keys.

    Returns:
        The returns, of several agents their mean, and whether the episodes ended, of several agents whether all did.
    """
    setup, number = run.setup, trees.length(chosen.levels)
    at_once = min(number, max(1, ROWS // episodes))
    layout = population.layout(setup.members.size, jax.local_devices())

    def one(member: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        given, key, policy, levels = member
        env, learner = setup.make_env(given.get("env_params")), setup.make_learner(**given)
        repeated = jax.tree.map(lambda x: jnp.repeat(x, episodes, axis=0), levels)
        played = evaluate(key, env, learner, policy, at_once * episodes, max_steps, repeated)
        of_levels = lambda x: x.reshape(at_once, episodes, -1)
        return state, (jnp.mean(of_levels(played.episode_return), axis=2), jnp.all(of_levels(played.finished), axis=2))

    program = jax.jit(spread(one, layout), compiler_options=backend.compiler_options())

    def own_key(key: Key, start: int) -> Key:
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, EVALUATION_SALT), seed), start)

    results = []
    for start in range(0, number, at_once):
        levels = trees.take(chosen.levels, np.minimum(np.arange(start, start + at_once), number - 1))
        shared = jax.tree.map(lambda x: jnp.broadcast_to(x, (setup.members.size, *x.shape)), levels)
        keys = jax.vmap(lambda key, start=start: own_key(key, start))(setup.members.keys)
        everyone = setup.members.given, keys, run.policy, shared
        results.append(jax.device_get(program(place(everyone, layout), ())[1]))
    size = setup.members.size
    returns, finished = (np.concatenate(x, axis=1)[:size, :number] for x in zip(*results, strict=True))
    return {"return": returns, "finished": finished}
