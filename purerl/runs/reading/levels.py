"""Levels of a run: saved, read, chosen and drawn; and the results of its policies in each of them."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, population, trees
from purerl.curricula import Buffer
from purerl.envs import held_out
from purerl.errors import ConfigError, own_code
from purerl.formulas import aggregates
from purerl.loops.evaluation import chosen_by, evaluate
from purerl.names import Trust
from purerl.population.layouts import place, spread
from purerl.runs.reading import evaluation, loading
from purerl.runs.reading.loading import Run
from purerl.store import card_files, tensors
from purerl.types import Env, PyTree

if TYPE_CHECKING:
    from purerl.display.plots import Figure

FILE, PICTURE = "levels.safetensors", "levels.png"
"""The files of the levels of a run's curriculum, and of a picture of those with the highest scores."""
MOST = 10**6
"""The largest number of levels that are drawn at random."""
SHOWN = 24
"""The number of levels in a picture."""
HELD_OUT = "held-out"
LEVEL = "level."
"""The prefix of the path of each leaf of a level."""
NUMBERS = {"score": np.float32, "best": np.float32, "stamp": np.int32}


class Levels(NamedTuple):
    """Levels ``[N, ...]``, the name of each, and the score ``[N]`` of each; None without scores."""

    levels: PyTree
    names: list[str]
    score: np.ndarray | None = None


def save(directory: Path, buffer: Buffer, about: dict[str, Any]) -> None:
    """Writes the levels of all agents of a run as numpy arrays.

    ``buffer`` has a leading axis ``[P]``, and ``about`` are further entries of the file's card. A place that holds no
    level has a score of 0, and lies beyond the ``size`` of its agent.
    """
    taken = np.arange(buffer.score.shape[1])[None] < np.asarray(buffer.size)[:, None]
    arrays = {LEVEL + name: np.asarray(tensors.plain(leaf)) for name, leaf in trees.named_leaves(buffer.levels).items()}
    arrays |= {name: np.where(taken, getattr(buffer, name), 0).astype(dtype) for name, dtype in NUMBERS.items()}
    arrays["size"] = np.asarray(buffer.size)
    agents, capacity = buffer.score.shape
    card_files.save(card_files.LEVELS, directory / FILE, arrays, {**about, "agents": agents, "capacity": capacity})


def load(path: Path, env: Env, name: str) -> Levels:
    """Reads the levels of all agents from a file, which is untrusted, agent by agent.

    Raises:
        ConfigError: The file holds no levels, or levels of another environment.
    """
    like = jax.eval_shape(lambda key: env.levels(key, ()), jax.random.key(0))

    def expected(card: dict[str, Any]) -> Mapping[str, Any]:
        if card.get("env") != name:
            raise ConfigError(f"{path}: has levels of {str(card.get('env'))[:80]}, not of {name}")
        lead = card["agents"], card["capacity"]
        words = trees.named_leaves(jax.eval_shape(lambda levels: jax.tree.map(tensors.plain, levels), like))
        shapes = {LEVEL + each: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype) for each, x in words.items()}
        shapes |= {each: jax.ShapeDtypeStruct(lead, dtype) for each, dtype in NUMBERS.items()}
        return shapes | {"size": jax.ShapeDtypeStruct(lead[:1], np.int32)}

    card, arrays = card_files.load(card_files.LEVELS, path, expected)
    size = arrays["size"]
    if not np.any(size > 0) or np.any(size < 0) or np.any(size > card["capacity"]):
        raise ConfigError(f"{path}: has no levels, or not as many as its card says")
    agent, place = np.nonzero(np.arange(card["capacity"])[None] < size[:, None])
    rows = lambda name: arrays[name][agent, place]
    leaves = [tensors.placed(rows(LEVEL + each), leaf) for each, leaf in trees.named_leaves(like).items()]
    names = [f"agent {a}, level {p}" for a, p in zip(agent, place, strict=True)]
    return Levels(jax.tree.unflatten(jax.tree.structure(like), leaves), names, rows("score"))


def chosen(text: str, env: Env, name: str) -> Levels:
    """Returns the levels that a user asks for by a text.

    It is the path of a file of levels; or `HELD_OUT`; or ``random:N:SEED`` for ``N`` random levels, drawn as episodes
    draw theirs.

    Raises:
        ConfigError: ``text`` is something else, or the environment has no levels to choose from.
    """
    if env.design is None:
        raise ConfigError(f"levels = {text!r}: {name} has no levels to choose from")
    if text == HELD_OUT:
        by_name = held_out(name)
        like = jax.eval_shape(lambda key: env.levels(key, ()), jax.random.key(0))
        if any(jax.eval_shape(lambda level: level, level) != like for level in by_name.values()):
            raise ConfigError(f"levels = {text!r}: are of another size than those of the run's environment")
        return Levels(jax.tree.map(lambda *x: jnp.stack(x), *by_name.values()), list(by_name))
    if not text.startswith("random:"):
        return load(Path(text), env, name)
    match = re.fullmatch(r"random:([1-9]\d{0,6}):(\d{1,9})", text)
    if not match or int(match[1]) > MOST:
        raise ConfigError(f"levels = {text!r}: must be random:N:SEED, with N from 1 to {MOST}")
    number = int(match[1])
    return Levels(env.levels(jax.random.key(int(match[2])), (number,)), [f"level {i}" for i in range(number)])


def sheet(levels: Levels, env: Env, name: str, params: dict[str, Any]) -> "Figure":
    """Draws the levels with the highest scores, as episodes begin in them, and a histogram of all scores.

    Raises:
        ConfigError: There is no drawing of the environment, or the environment cannot have these levels.
    """
    from purerl.display import drawings, plots

    drawing = drawings.drawing(name, params, env.observation_space)
    score = np.zeros(len(levels.names)) if levels.score is None else levels.score
    first = np.argsort(-score, kind="stable")[:SHOWN]
    begun = jax.device_get(jax.jit(jax.vmap(env.begin))(trees.take(levels.levels, first)))
    moments = [
        drawings.Moment(drawings.innermost(state), obs, None)
        for state, obs in (trees.take(begun, i) for i in range(len(first)))
    ]
    try:
        pictures = [drawing.frame(moment, plots.LEVEL_SIZE) for moment in moments]
    except (ArithmeticError, IndexError, ValueError) as error:  # levels of an untrusted file can be invalid
        raise ConfigError(f"levels that {name} cannot have: {type(error).__name__} when they are drawn") from None
    titles = [f"{levels.names[i]}\n{_numbers(levels.levels, i)}score {score[i]:.3g}" for i in first]
    return plots.level_sheet(pictures, titles, score, f"levels of {name} with the highest scores")


def _numbers(levels: PyTree, i: int) -> str:
    """Formats the real numbers of a level, such as drawn parameters, by name."""
    leaves = {name.rpartition(".")[2]: leaf for name, leaf in trees.named_leaves(levels).items() if leaf.ndim == 1}
    real = {name: leaf for name, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jnp.inexact)}
    return "".join(f"{name} {float(leaf[i]):.3g}\n" for name, leaf in real.items())


def draw(directory: Path, env: Env, name: str, params: dict[str, Any]) -> None:
    """Writes the `sheet` of a run's levels into its directory; nothing if it has no levels or no drawing of them."""
    from purerl.display import plots

    with contextlib.suppress(ConfigError):
        plots.save(directory / PICTURE, sheet(load(directory / FILE, env, name), env, name, params))


ROWS = 4096
"""The approximate number of episodes of an agent that are played at once."""
SHARES = (0.01, 0.05, 0.1)
"""The fractions of levels, the worst ones, over which means are reported."""


def evaluate_in_levels(
    source: str | Path,
    levels: str,
    episodes: int,
    max_steps: int,
    seed: int,
    *,
    trust: Trust = False,
    env_params: Mapping[str, Any] = MappingProxyType({}),
    sample: bool = False,
    simulations: int | None = None,
) -> dict[str, Any]:
    """Plays the policies of a run, which is only read, in each of some ``levels`` (`chosen`).

    The other arguments are those of `evaluation.evaluate_run`; so many episodes are played in each level.

    Returns:
        The results, which can be written as JSON. ``return_per_level`` and, where episodes can be solved,
        ``solved_per_level``, the fraction that was, have a list for each agent. ``return_worst`` and ``solved_worst``
        have the means over the worst 1, 5 and 10 % of levels, by the fraction as text.

    Raises:
        ConfigError: The run cannot be read (`loading.load`), or it has no such levels (`chosen`), or ``sample`` is
            refused.
    """
    run, choice = loading.of_source(source, trust=trust, env_params=env_params, simulations=simulations)
    picked = chosen(levels, run.env, run.saved["env"])
    chosen_by(run.learner, sample)
    with own_code(run.saved["algo"]):
        episodes_of_levels = play_levels(run, picked, episodes, max_steps, seed, sample=sample)
    of_each = {"return": episodes_of_levels["return"].mean(axis=2, dtype=np.float64)}
    if run.env.design and run.env.design.solved is not None:
        of_each["solved"] = (episodes_of_levels["return"] > float(run.env.design.solved)).mean(axis=2)
    results: dict[str, Any] = {}
    for name, scores in of_each.items():
        results[f"{name}_per_seed"] = scores.mean(axis=1).tolist()
        results[f"{name}_worst"] = {f"{share:g}": aggregates.worst(scores, share).tolist() for share in SHARES}
        results[f"{name}_per_level"] = scores.tolist()
    return {
        **run.about(Path(source), episodes),
        **({"chosen": choice.facts()} if choice else {}),
        **evaluation.manner(sample, run.simulations),
        "levels": picked.names,
        "unfinished_per_seed": (~episodes_of_levels["finished"]).sum(axis=(1, 2)).tolist(),
        **results,
    }


def play_levels(
    run: Run, chosen: Levels, episodes: int, max_steps: int, seed: int, *, sample: bool = False
) -> dict[str, np.ndarray]:
    """Plays the ``P`` policies of a run in ``N`` levels, as `evaluate_in_levels` does.

    Returns:
        ``return``, of several agents their mean, and ``finished``, whether the episodes ended, of several agents
        whether all did; each ``[P, N, episodes]``.
    """
    setup, number = run.setup, trees.length(chosen.levels)
    at_once = min(number, max(1, ROWS // episodes))
    layout = population.layout(setup.members.size, jax.local_devices())

    def one(member: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        given, key, policy, levels = member
        env, learner = setup.make_env(given.get("env_params")), setup.make_learner(**given)
        repeated = jax.tree.map(lambda x: jnp.repeat(x, episodes, axis=0), levels)
        played = evaluate(key, env, learner, policy, at_once * episodes, max_steps, repeated, sample=sample)
        of_levels = lambda x: x.reshape(at_once, episodes, -1)
        return state, (jnp.mean(of_levels(played.episode_return), axis=2), jnp.all(of_levels(played.finished), axis=2))

    program = jax.jit(spread(one, layout), compiler_options=backend.compiler_options())

    keys, results = evaluation.keys(setup.members.keys, seed), []
    for start in range(0, number, at_once):
        levels = trees.take(chosen.levels, np.minimum(np.arange(start, start + at_once), number - 1))
        shared = jax.tree.map(lambda x: jnp.broadcast_to(x, (setup.members.size, *x.shape)), levels)
        everyone = setup.members.given, jax.vmap(jax.random.fold_in, (0, None))(keys, start), run.policy, shared
        results.append(jax.device_get(program(place(everyone, layout), ())[1]))
    size = setup.members.size
    returns, finished = (np.concatenate(x, axis=1)[:size, :number] for x in zip(*results, strict=True))
    return {"return": returns, "finished": finished}
