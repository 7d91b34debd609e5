"""Datasets of play that a run learns from: files from outside, looked at before anything compiles.

A description names each by its path and by its digest, so that a run that goes on learns from the same.
"""

import reprlib
from pathlib import Path
from typing import Any

import jax

from purerl import envs, replay, spaces, trees
from purerl.errors import ConfigError
from purerl.store import carded
from purerl.types import Dataset, Env

PATH, DIGEST = "path", "sha256"
"""What a description has of each dataset."""


def read(path: Path, env: Env, played: dict[str, Any] | None = None) -> tuple[Dataset, dict[str, Any]]:
    """The dataset in a file, and its card. ``env`` is as the algorithm sees it that learns from it.

    ``played`` are the fields ``env`` and ``env_params`` that the card must have (default: any). Raises `ConfigError`, a
    line for each problem, for what is damaged, and for what was played in another environment.
    """

    def like(card: dict[str, Any]) -> Dataset:
        return replay.struct(env.observation_space, env.action_space, card["steps"], card["episodes"])

    def expected(card: dict[str, Any]) -> dict[str, Any]:
        wanted = played or {}
        for name, value in wanted.items():
            found = card.get(name)
            if name == "env_params" and isinstance(found, dict):
                found = envs.renamed(found, wanted["env"])
            if found != value:
                told = f"{name} = {reprlib.repr(found)}, the run has {reprlib.repr(value)}"
                raise ConfigError(f"{path}: was played with {told}")
        return trees.named_leaves(like(card))

    card, arrays = carded.load(carded.DATASET, path, expected)
    data = jax.tree.unflatten(jax.tree.structure(like(card)), arrays.values())
    if problems := replay.dataset_problems(data, env.observation_space, env.action_space):
        raise ConfigError("\n".join(f"{path}: {line}" for line in problems))
    return data, card


def load_dataset(path: str | Path, env: Env) -> Dataset:
    """The dataset in a file of `purerl record`, for ``make_train(config, env, demos=...)``. Raises `ConfigError`."""
    return read(Path(path), env)[0]


def described(
    names: tuple[str, ...], options: Any, env: Env, played: dict[str, Any], recorded: dict[str, Any]
) -> dict[str, Any]:
    """The datasets whose paths ``options`` hold, by the ``names`` of an algorithm's parts, as a description has them.

    ``recorded`` is what an earlier description has: a file at the same path must have the same digest. Raises
    `ConfigError`, a line for each problem, as `read` does and for what is missing.
    """
    found, problems = {}, []
    for name in names:
        path, before = getattr(options, name, ""), recorded.get(name, {})
        if not path:
            problems.append(f"{name}: is missing; give --{name} FILE, a file of `purerl record`")
            continue
        try:
            digest = read(Path(path), env, played)[1][DIGEST]
        except ConfigError as error:
            problems += [f"{name}: {line}" for line in str(error).splitlines()]
            continue
        if before.get(PATH) == path and before.get(DIGEST, digest) != digest:
            problems.append(f"{name}: {path}: is another dataset than the run began with (sha256 differs)")
        found[name] = {PATH: path, DIGEST: digest}
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def parts(described: dict[str, Any], env: Env) -> dict[str, Dataset]:
    """The datasets of a description, as keyword arguments of ``make_trainer``. Raises `ConfigError` as `read` does, and
    if a file was replaced."""
    found = {}
    for name, entry in described.items():
        found[name], card = read(Path(entry[PATH]), env)
        if card[DIGEST] != entry[DIGEST]:
            raise ConfigError(f"{name}: {entry[PATH]}: is another dataset than the run began with (sha256 differs)")
    return found


def nbytes(parts: dict[str, Dataset], env: Env) -> int:
    """Bytes that datasets take in a program, once for all agents."""
    frames = spaces.frames(env.observation_space)
    return sum(trees.nbytes(replay.stored(data, frames)) for data in parts.values())


def problems(described: Any, names: tuple[str, ...], keys: tuple[str, ...] = (PATH, DIGEST)) -> list[str]:
    """What is wrong with the datasets that a file's description names, of which each must have ``keys``, a line each.
    No dataset is opened."""
    return [
        f"datasets: {reprlib.repr(name)} = {reprlib.repr(entry)}: must be one of {', '.join(names) or 'none'}, with a "
        f"{' and a '.join(keys)}"
        for name, entry in described.items()
        if name not in names
        or not isinstance(entry, dict)
        or not set(keys) <= set(entry) <= {PATH, DIGEST}
        or not all(isinstance(text, str) for text in entry.values())
    ]
