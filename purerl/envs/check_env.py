"""Checks that an environment of your own fulfils the contract of `purerl.types.Env`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import spaces
from purerl.envs import chance, check_host, check_play
from purerl.envs.check_types import trace_problems, type_problems
from purerl.errors import ConfigError
from purerl.types import Env, Key


class Examined(NamedTuple):
    """The result of `examine`.

    It has a line for each broken promise, a line for each thing that the random play did not meet, and the numbers of
    episodes that terminated and that were truncated.
    """

    problems: list[str]
    notes: list[str]
    terminated: int = 0
    truncated: int = 0


def check_env(env: Env, key: Key | None = None, num_steps: int = 256, num_envs: int = 16) -> None:
    """Raises `ConfigError` with one line for each promise that ``env`` breaks, naming the leaf.

    What no step of the random play met is not tested, so pass more steps where episodes are long. See `examine`.
    """
    problems = examine(env, key, num_steps, num_envs).problems
    if problems:
        raise ConfigError("\n".join(f"{env.name}: {problem}" for problem in problems))


def examine(env: Env, key: Key | None = None, num_steps: int = 256, num_envs: int = 16) -> Examined:
    """Looks for promises of `Env` that ``env`` breaks.

    First come shapes, dtypes, weak types and tree structures of `levels`, `begin`, `noise`, `step` and `keep`, and
    whether jit and vmap take them; nothing is computed for that. If they are right, ``num_envs`` environments are
    stepped ``num_steps`` times at random under one jit, and the values are checked: observations within their space,
    finite numbers, flags that exclude each other, states and observations at an episode's end against those that
    `begin` returns, beginnings and steps that depend on their arguments alone. Episodes of several agents must end
    together if `Env.ends_together` says so, and at least one agent must act at every step.

    An environment of the host is played there (`check_host`). ``key`` defaults to that of seed 0.
    """
    key = jax.random.key(0) if key is None else key
    problems = type_problems(env, key)
    if problems:
        return Examined(problems, [])
    if env.host:
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        of_host = Examined(*check_host.play(env.host, seed, num_steps, num_envs))
        return of_host._replace(notes=picture_notes(env) + of_host.notes)
    played = check_play.play(env, key, num_steps, num_envs)
    terminated, truncated = int(played.terminated), int(played.truncated)
    notes = picture_notes(env)
    notes += key_notes(env)
    notes += [] if played.varied else ["every episode begins with the same state and observation: nothing is drawn"]
    if not terminated + truncated:
        notes.append("no episode ended, so episode ends were not checked; increase --steps")
    elif terminated + truncated >= num_steps * num_envs:
        notes.append("every step ended an episode, so no other steps were checked")
    elif not terminated or not truncated:
        notes.append(f"no episode was {'truncated' if terminated else 'terminated'}")
    return Examined(check_play.lines(played) + trace_problems(env, key), notes, terminated, truncated)


def key_notes(env: Env) -> list[str]:
    """Returns a line for each leaf of the states that looks like a random key which searches would read."""
    line = "looks like a random key; no search can plan here without redraw, which draws it anew"
    return [f"env_state{path}: {line}" for path in chance.plain_keys(env)]


def picture_notes(env: Env) -> list[str]:
    """Returns a line for each leaf of the observations that looks like images with channels first."""
    from purerl.hosts.leaves import channels_first  # imports Gymnasium

    flat = jax.tree_util.tree_flatten_with_path(env.observation_space, is_leaf=spaces.is_leaf)[0]
    return [
        f"observation_space{jax.tree_util.keystr(path)}: uint8 {list(leaf.shape)} looks like images with channels"
        f" first; is read as height {leaf.shape[0]}, width {leaf.shape[1]} and {leaf.shape[2]} channels"
        for path, leaf in flat
        if isinstance(leaf, spaces.Box) and leaf.dtype == jnp.uint8 and channels_first(tuple(leaf.shape))
    ]
