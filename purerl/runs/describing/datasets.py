"""Datasets of play that a run learns from: untrusted files, checked before anything compiles.

A description names each by its path and its digest, so that a run that is resumed learns from the same data.
"""

import reprlib
from pathlib import Path
from typing import Any

import jax

from purerl import spaces, trees
from purerl.errors import ConfigError
from purerl.replay.fixed import dataset_problems, stored, struct
from purerl.store import card_files
from purerl.types import Dataset, Env

PATH, DIGEST = "path", "sha256"
"""The entries that a description has for each dataset."""


def read(path: Path, env: Env, played: dict[str, Any] | None = None) -> tuple[Dataset, dict[str, Any]]:
    """Reads the dataset in a file, and returns it with its card.

    Args:
        path: The file.
        env: The environment as the algorithm that learns from the dataset sees it.
        played: The fields ``env`` and ``env_params`` that the card must have (default: any).

    Raises:
        ConfigError: If the file is damaged, or was played in another environment; with a line for each problem.
    """

    def like(card: dict[str, Any]) -> Dataset:
        return struct(env.observation_space, env.action_space, card["steps"], card["episodes"])

    def expected(card: dict[str, Any]) -> dict[str, Any]:
        for name, value in (played or {}).items():
            if card.get(name) != value:
                difference = f"{name} = {reprlib.repr(card.get(name))}, the run has {reprlib.repr(value)}"
                raise ConfigError(f"{path}: was played with {difference}")
        return trees.named_leaves(like(card))

    card, arrays = card_files.load(card_files.DATASET, path, expected)
    data = jax.tree.unflatten(jax.tree.structure(like(card)), arrays.values())
    if problems := dataset_problems(data, env.observation_space, env.action_space):
        raise ConfigError("\n".join(f"{path}: {line}" for line in problems))
    return data, card


def load_dataset(path: str | Path, env: Env) -> Dataset:
    """Reads the dataset in a file of `purerl record`, for ``make_train(config, env, demos=...)``.

    Raises:
        ConfigError: As `read` does.
    """
    return read(Path(path), env)[0]


def described(
    names: tuple[str, ...], options: Any, env: Env, played: dict[str, Any], recorded: dict[str, Any]
) -> dict[str, Any]:
    """Reads the datasets whose paths ``options`` hold, and returns their entries in a description.

    Args:
        names: The names of the algorithm's parts that are datasets. Each is also the name of an option.
        options: The options, which hold a path for each name.
        env: The environment as the algorithm sees it.
        played: The fields ``env`` and ``env_params`` that the cards must have.
        recorded: The entries of an earlier description. A file at the same path must have the same digest.

    Returns:
        By name, the path of each dataset and its digest.

    Raises:
        ConfigError: As `read` does, and if a path is missing; with a line for each problem.
    """
    entries, problems = {}, []
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
            problems.append(f"{name}: {path}: is not the dataset that the run started with (sha256 differs)")
        entries[name] = {PATH: path, DIGEST: digest}
    if problems:
        raise ConfigError("\n".join(problems))
    return entries


def parts(described: dict[str, Any], env: Env) -> dict[str, Dataset]:
    """Reads the datasets of a description, and returns them as keyword arguments of ``make_trainer``.

    Raises:
        ConfigError: As `read` does, and if a file was replaced.
    """
    datasets = {}
    for name, entry in described.items():
        datasets[name], card = read(Path(entry[PATH]), env)
        if card[DIGEST] != entry[DIGEST]:
            raise ConfigError(f"{name}: {entry[PATH]}: is not the dataset that the run started with (sha256 differs)")
    return datasets


def nbytes(parts: dict[str, Dataset], env: Env) -> int:
    """Returns the number of bytes that datasets take in a program, where all agents share them."""
    frames = spaces.frames(env.observation_space)
    return sum(trees.nbytes(stored(data, frames)) for data in parts.values())


def problems(described: Any, names: tuple[str, ...], keys: tuple[str, ...] = (PATH, DIGEST)) -> list[str]:
    """Returns a line for each fault of the entries that a file's description has for datasets; opens no dataset.

    Args:
        described: The entries by name.
        names: The names that an entry may have.
        keys: The keys that each entry must have.
    """
    return [
        f"datasets: {reprlib.repr(name)} = {reprlib.repr(entry)}: must be one of {', '.join(names) or 'none'}, with a "
        f"{' and a '.join(keys)}"
        for name, entry in described.items()
        if name not in names
        or not isinstance(entry, dict)
        or not set(keys) <= set(entry) <= {PATH, DIGEST}
        or not all(isinstance(text, str) for text in entry.values())
    ]
