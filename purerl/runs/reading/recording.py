"""The recording of datasets, by a trained policy, a player of the user's own, or uniformly random actions."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import trees
from purerl.envs import agents
from purerl.errors import ConfigError, printable
from purerl.loops.evaluation import Player, player, random_player
from purerl.loops.recording import record
from purerl.names import called, here, imported
from purerl.replay.fixed import dataset_problems
from purerl.runs.describing.environments import checked
from purerl.runs.describing.options import RecordOptions
from purerl.runs.describing.run_directory import check_out
from purerl.runs.reading import evaluation, host_evaluation
from purerl.runs.reading.evaluation import RANDOM
from purerl.store import card_files, checkpoint, trusted_modules
from purerl.types import Env

RECORDING_SALT = 2**31 + 2
"""Folded into the key of a recording's seed.

Its episodes are none that were trained or evaluated on.
"""

COPIES = 8
"""The largest number of copies of a host environment that play for a policy that is not of a run."""


class Cast(NamedTuple):
    """An environment and its player.

    - ``name``, ``env_params``: the name and the parameters of the environment.
    - ``env``: the environment as the policy sees it.
    - ``player``: the player.
    - ``policy``: the entry for the player in the card of the dataset.
    - ``copies``: the usual number of copies of a host environment that play.
    """

    name: str
    env_params: dict[str, Any]
    env: Env
    player: Player
    policy: dict[str, Any]
    copies: int = COPIES


def record_run(options: RecordOptions, env_params: dict[str, Any]) -> dict[str, Any]:
    """Records the dataset that ``options`` ask for, writes it, and returns its card.

    Args:
        options: The options of the command.
        env_params: The parameters of the environment; of a run, those in place of its own.

    Raises:
        ConfigError: The options are not possible, before anything is played; or the player's actions are not in the
            environment's action space.
    """
    path = here(options.out)
    check_out(path, overwrite=options.overwrite)
    if options.who == RANDOM or (":" in options.who and not Path(options.who).is_dir()):
        cast = _of_function(options, env_params)
    else:
        cast = _of_run(options, env_params)
    key = jax.random.fold_in(jax.random.key(options.seed), RECORDING_SALT)
    given = key, cast.env, cast.player, options.episodes, options.max_steps
    on_host = functools.partial(host_evaluation.record, copies=options.eval_envs or cast.copies)
    data = on_host(*given) if cast.env.host else record(*given)
    if wrong := dataset_problems(data, cast.env.observation_space, cast.env.action_space):
        raise ConfigError("\n".join(f"{options.who}: {line}" for line in wrong))
    ends = np.flatnonzero(data.last)
    returns = np.add.reduceat(data.reward.astype(np.float64), np.concatenate([[0], ends[:-1] + 1]))
    card = {
        "env": cast.name,
        "env_params": cast.env_params,
        "policy": cast.policy,
        "seed": options.seed,
        "max_steps": options.max_steps,
        "steps": len(data.reward),
        "episodes": len(ends),
        "truncated": int(np.sum(data.truncated)),
        "return_mean": float(returns.mean()),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "versions": checkpoint.versions(),
    }
    return card_files.save(card_files.DATASET, path, trees.named_leaves(data), card)


def _of_run(options: RecordOptions, env_params: dict[str, Any]) -> Cast:
    """Makes the player of an agent of a run, in the environment that it was trained in."""
    if options.env:
        raise ConfigError(f"env = {options.env!r}: {options.who} plays in its own environment; omit --env")
    given: dict[str, Any] = {"trust": trusted_modules.memory(options.trust), "env_params": env_params}
    agent = evaluation.agent(options.who, options.agent, **given, playing=True)
    about = {"run": Path(options.who).name, **agent.label}
    about |= {name: agent.saved[name] for name in ("algo", "sha256")}
    copies = agent.saved["config"].get("num_envs", COPIES)
    return Cast(agent.saved["env"], agent.env_params, agent.env, player(agent.learner, agent.policy), about, copies)


def _of_function(options: RecordOptions, env_params: dict[str, Any]) -> Cast:
    """Makes the player that ``MODULE:FUNCTION`` returns for the environment, or one of random actions."""
    if not options.env:
        raise ConfigError(f"env: is missing; {options.who} needs --env")
    if options.agent:
        raise ConfigError(f"agent = {options.agent}: {options.who} is not a run; omit --agent")
    env = agents.own(checked(options.env, env_params))
    if options.who == RANDOM:
        return Cast(options.env, env_params, env, random_player(env), {"function": RANDOM})
    function = imported("policy", options.who)
    if not callable(function):
        raise ConfigError(
            f"policy = {options.who!r}: is {type(function).__name__}, must be a function that gives a Player"
        )
    made = called("policy", options.who, function, env)
    if not isinstance(made, Player):
        raise ConfigError(
            f"policy = {options.who!r}: gives {type(made).__name__}, must give a purerl.loops.evaluation.Player"
        )
    return Cast(options.env, env_params, env, made, {"function": options.who})


def in_words(path: str, card: dict[str, Any]) -> str:
    """Formats the card of the dataset at ``path`` as text."""
    size, returns = here(path).stat().st_size, [card[f"return_{what}"] for what in ("mean", "min", "max")]
    played = f"{card['episodes']} episodes of {card['env']}, {card['steps']} steps, {card['truncated']} cut off"
    scores = "mean return {:.2f}, from {:.2f} to {:.2f}".format(*returns)
    return f"{printable(path)}: {played}; {scores}; {size:,} bytes, sha256 {card['sha256'][:12]}"
