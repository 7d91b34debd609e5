"""`purerl data`: what is in a dataset, and datasets of Minari as files of this package."""

from collections.abc import Mapping
from typing import Any

import jax

from purerl import spaces, trees
from purerl.envs.hosted import space_of
from purerl.errors import ConfigError
from purerl.hosts import leaves
from purerl.names import here, tell_once
from purerl.replay.fixed import dataset_problems
from purerl.runs.describing.reading_options import DataOptions
from purerl.runs.describing.run_directory import check_out
from purerl.runs.reading import contents
from purerl.store import card_files, minari
from purerl.types import Dataset


def told(options: DataOptions, env_params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is in the dataset that ``options`` name, for JSON; writes it if they ask for that.

    Raises:
        ConfigError: The dataset is damaged or cannot be read, or the options are not possible. Nothing is written.
    """
    if minari.is_minari(options.source):
        return _of_minari(options, env_params)
    usual = DataOptions(options.source)
    given = [
        name for name in ("out", "env", "env_params", "episodes") if getattr(options, name) != getattr(usual, name)
    ]
    if given:
        raise ConfigError(f"{given[0]}: has no effect; {options.source} is a file already, and only shown")
    return contents.described(here(options.source))


def _of_minari(options: DataOptions, env_params: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a dataset of Minari, with ``env_params`` in place of those in its metadata, and writes it."""
    path = here(options.out) if options.out else None
    if path:
        check_out(path, overwrite=options.overwrite)
    place = minari.folder(options.source)
    about = minari.about(place)
    if path and not (options.env or about.env):
        raise ConfigError(f"env: is missing; {options.source} does not tell its environment, so --env must")
    observations, actions = map(space_of, minari.plain_spaces(about))
    for line in leaves.remarks(about.observation_space, "observation_space"):
        tell_once(line)
    play = minari.read(place, about, card_files.MOST_BYTES, options.episodes)
    form = jax.tree.structure(spaces.struct(observations))
    obs, final_obs = (jax.tree.unflatten(form, part) for part in (play.obs, play.final_obs))
    data = Dataset(obs, play.action, play.reward, play.terminated, play.truncated, final_obs)
    if problems := dataset_problems(data, observations, actions):
        raise ConfigError("\n".join(f"{options.source}: {line}" for line in problems))
    env = options.env or about.env
    params = {**({} if options.env else about.env_params), **env_params}
    params = {name: value for name, value in params.items() if value is not None}
    policy = {"minari": about.name or place.parent.name, **({"algo": about.algo} if about.algo else {})}
    limits, missing = contents.bounds(actions), {contents.MISSING: play.missing}
    if path:
        contents.save(path, data, actions, env, params, policy, missing)
        return contents.described(path)
    numbers = contents.numbers(data, trees.named_leaves({"action": data.action}), limits)
    players = contents.players({"policy": policy})
    return {"env": env, "env_params": params, **numbers, **missing, "players": players}
