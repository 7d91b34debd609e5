"""Datasets of play that a run learns from: untrusted files, checked before anything compiles.

A dataset is one file of `purerl record`, or several, whose episodes are joined. A description names each file by its
path and its digest, so that a run that is resumed learns from the same data.
"""

import dataclasses
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import spaces, trees
from purerl.errors import ConfigError
from purerl.population import devices, planning
from purerl.replay.fixed import Held, dataset_problems, joined, least_bytes, on_host, struct
from purerl.replay.streamed import streamed
from purerl.store import card_files, guards
from purerl.types import Dataset, Env

PATH, DIGEST = "path", "sha256"
"""The entries that a description has for each dataset: texts, or of several files lists of texts."""
PLAYED = "env", "env_params"
"""The entries of a card that say what was played."""
AUTO, DEVICE, HOST = "auto", "device", "host"
"""Where the data of a training are (``data_on``): in the memory of each device, in that of the host, or in that of the
host if they do not fit on a device."""


def where(options: Any) -> str:
    """Returns where options have the data of a training: `DEVICE` if there is no choice."""
    return getattr(options, "data_on", DEVICE)


class File(NamedTuple):
    """A file of a dataset, as a description names it."""

    path: str
    digest: str = ""


def files(entry: dict[str, Any]) -> list[File]:
    """Returns the files that a description's entry for a dataset names; digests may be missing."""
    listed = lambda name: [x] if isinstance(x := entry.get(name, ""), str) else list(x)
    paths = listed(PATH)
    return [File(*pair) for pair in zip(paths, listed(DIGEST) + [""] * len(paths), strict=False)]


def entry(files: Sequence[File]) -> dict[str, Any]:
    """Returns the entry that a description has for a dataset in ``files``."""
    columns = [file.path for file in files], [file.digest for file in files]
    paths, digests = (column[0] if len(column) == 1 else column for column in columns)
    return {PATH: paths, DIGEST: digests}


def read(
    path: Path, env: Env, played: dict[str, Any] | None = None, *, mapped: bool = False
) -> tuple[Dataset, dict[str, Any]]:
    """Reads the dataset in a file, and returns it with its card.

    Args:
        path: The file.
        env: The environment as the algorithm that learns from the dataset sees it.
        played: The fields ``env`` and ``env_params`` that the card must have (default: any).
        mapped: As for `card_files.load`.

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

    card, arrays = card_files.load(card_files.DATASET, path, expected, mapped=mapped)
    data = jax.tree.unflatten(jax.tree.structure(like(card)), arrays.values())
    if problems := dataset_problems(data, env.observation_space, env.action_space):
        raise ConfigError("\n".join(f"{path}: {line}" for line in problems))
    return data, card


def load_dataset(path: str | Path | Sequence[str | Path], env: Env) -> Dataset:
    """Reads the dataset in a file of `purerl record`, or in several, for ``make_train(config, env, demos=...)``.

    Raises:
        ConfigError: As `read` does.
    """
    paths = [path] if isinstance(path, str | Path) else path
    return joined([read(Path(each), env)[0] for each in paths])


def played(options: Any, names: Sequence[str]) -> Any:
    """Returns ``options`` with the environment of the first dataset's card, if they name a dataset and no environment.

    ``names`` are the names of the algorithm's parts that are datasets.

    Raises:
        ConfigError: They name neither; or the card has no environment, or one that is a user's own code.
    """
    paths = [path for name in names for path in getattr(options, name, ())]
    if options.env or not names:
        return options
    if not paths:
        raise ConfigError("\n".join(f"{name}: {MISSING.format(name)}" for name in names))
    card = card_files.card(card_files.DATASET, Path(paths[0]))
    env, params = (card.get(name) for name in PLAYED)
    if not isinstance(env, str) or not isinstance(params, dict) or ":" in env:
        raise ConfigError(f"{paths[0]}: was played in {reprlib.repr(env)}; name the environment by --env")
    pairs = tuple(f"{name}={guards.yaml_text(value)}" for name, value in params.items() if name != "resets")
    resets = options.resets or params.get("resets", "")
    return dataclasses.replace(options, env=env, env_params=options.env_params or pairs, resets=resets)


def described(
    names: tuple[str, ...], options: Any, env: Env, played: dict[str, Any], recorded: dict[str, Any]
) -> dict[str, Any]:
    """Reads the datasets whose paths ``options`` hold, and returns their entries in a description.

    Args:
        names: The names of the algorithm's parts that are datasets. Each is also the name of an option.
        options: The options, which hold the paths for each name.
        env: The environment as the algorithm sees it.
        played: The fields ``env`` and ``env_params`` that the cards must have.
        recorded: The entries of an earlier description. A file at the same path must have the same digest.

    Returns:
        By name, the paths of each dataset and the digests.

    Raises:
        ConfigError: As `read` does, and if a path is missing; with a line for each problem.
    """
    entries, problems = {}, []
    for name in names:
        paths, before = getattr(options, name, ()), files(recorded[name]) if name in recorded else []
        if not paths:
            problems.append(f"{name}: {MISSING.format(name)}")
            continue
        found = []
        for i, path in enumerate(paths):
            try:
                digest = read(Path(path), env, played, mapped=True)[1][DIGEST]
            except ConfigError as error:
                problems += [f"{name}: {line}" for line in str(error).splitlines()]
                continue
            if i < len(before) and before[i].path == path and before[i].digest not in ("", digest):
                problems.append(f"{name}: {path}: {CHANGED}")
            found.append(File(path, digest))
        entries[name] = entry(found)
    if problems:
        raise ConfigError("\n".join(problems))
    return entries


MISSING = "is missing; give --{} FILE, a file of `purerl record`"
"""What is wrong where there is no file."""
CHANGED = "is not the dataset that the run started with (sha256 differs)"
"""What is wrong with a file that was replaced."""


def parts(described: dict[str, Any], env: Env, stride: int = 1, data_on: str = DEVICE) -> dict[str, Held]:
    """Reads the datasets of a description, which are keyword arguments of ``make_trainer``.

    Args:
        described: The entries of a description.
        env: The environment as the algorithm sees it.
        stride: The number of steps between the places at which samples may start.
        data_on: `DEVICE`: as programs hold them; `HOST`: as mapped files, which the host streams.

    Raises:
        ConfigError: As `read` does, and if a file was replaced.
        DoesNotFit: A device has not enough free memory. That is known before anything is put there, and as a rule
            before they are read.
    """
    frames = spaces.frames(env.observation_space)

    def checked(name: str, file: File) -> Dataset:
        data, card = read(Path(file.path), env, mapped=data_on == HOST)
        if card[DIGEST] != file.digest:
            raise ConfigError(f"{name}: {file.path}: {CHANGED}")
        return data

    if data_on == HOST:
        streams = {name: streamed(*(checked(name, file) for file in files(x))) for name, x in described.items()}
        return {name: dataclasses.replace(stream, checked=True) for name, stream in streams.items()}
    _check_room(_least_bytes(described, env))
    whole = {name: joined([checked(name, file) for file in files(entry)]) for name, entry in described.items()}
    of_host = {name: on_host(data, frames, stride) for name, data in whole.items()}
    _check_room(trees.nbytes(of_host))
    return jax.tree.map(jnp.asarray, of_host)


def _least_bytes(described: dict[str, Any], env: Env) -> int:
    """Returns how many bytes the datasets of a description take on a device at least, by their cards."""
    need = 0
    for file in [file for entry in described.values() for file in files(entry)]:
        card = card_files.card(card_files.DATASET, Path(file.path))
        like = struct(env.observation_space, env.action_space, card["steps"], card["episodes"])
        need += least_bytes(like, spaces.frames(env.observation_space))
    return need


def _check_room(need: int) -> None:
    """Raises `DoesNotFit` if datasets that ``need`` so many bytes exceed the free memory of a device."""
    if need > (free := devices.available_bytes(jax.local_devices()[:1])):
        sizes = f"{planning.gigabytes(need)} on each device, {planning.gigabytes(free)} are free"
        raise planning.DoesNotFit(f"data: needs at least {sizes}; --data-on host streams it, from recorded play alone")


def moved(recorded: dict[str, Any], options: Any) -> dict[str, Any]:
    """Returns the entries of a description with the paths that ``options`` have, for files that were moved.

    Raises:
        ConfigError: They are not as many as the run has.
    """
    entries = {}
    for name, known in recorded.items():
        before = files(known)
        paths = getattr(options, name)
        if len(paths) != len(before):
            raise ConfigError(f"{name}: has {len(paths)} files, the run has {len(before)}")
        entries[name] = entry([File(path, file.digest) for path, file in zip(paths, before, strict=True)])
    return entries


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
        if name not in names or not isinstance(entry, dict) or not _is_entry(entry, keys)
    ]


def _is_entry(entry: dict[str, Any], keys: tuple[str, ...]) -> bool:
    """Returns whether an entry has ``keys``, each with a text, or all with lists of one length of texts."""
    if not set(keys) <= set(entry) <= {PATH, DIGEST}:
        return False
    columns = [[x] if isinstance(x, str) else x for x in entry.values()]
    texts = all(isinstance(column, list) and column and all(isinstance(x, str) for x in column) for column in columns)
    return texts and len({(type(x), len(column)) for x, column in zip(entry.values(), columns, strict=True)}) == 1
