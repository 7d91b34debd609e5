"""The environment that a person asked for, looked at before anything compiles."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from purerl import envs
from purerl.algos.algorithm import Algorithm, rows
from purerl.catalogue import check_values
from purerl.envs.check_types import type_problems
from purerl.errors import ConfigError, place, told
from purerl.types import Env

NOTHING: Mapping[str, Sequence[float]] = {}


def checked(name: str, params: dict[str, Any], swept: Mapping[str, Sequence[float]] = NOTHING) -> Env:
    """The environment called ``name`` with ``params`` and the first of the ``swept`` values of other parameters.

    Raises `ConfigError`, with all problems at once: for what `envs.make` refuses, for a swept value that cannot be, a
    parameter that shapes the program and so cannot be swept, and for one of somebody's own whose arrays are not those
    of its spaces and of `types.Step`, which would train on something else than it says.
    """
    problems = [f"env_params: {given} is given as a number and as a range" for given in swept if given in params]
    for given, values in swept.items():
        for value in dict.fromkeys(values):
            try:
                check_values(name, {given: value})
                if given in envs.wrappers.TRANSFORMS:
                    envs.make(name, **params, **{given: value})
            except ConfigError as error:
                problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    first: dict[str, Any] = {given: values[0] for given, values in swept.items()}
    env = envs.make(name, **params, **first)
    key = jax.random.key(0)
    for given in swept:
        rest = {other: first[other] for other in first if other != given}
        make = functools.partial(envs.make, name, **params, **rest)
        try:
            jax.eval_shape(lambda x, given=given, make=make: make(**{given: x}).reset(key), first[given])
        except ConfigError as error:
            problems.append(str(error))
        except Exception as error:
            cause = error.__cause__ or error
            what = told(cause) if place(cause) else type(cause).__name__
            problems.append(f"env = {name!r}: {given}: cannot be swept ({what} when it is traced)")
    if ":" in name:
        problems += [f"env = {name!r}: {problem}" for problem in type_problems(env, key)]
    if problems:
        raise ConfigError("\n".join(problems))
    return env


def team_problems(algorithm: Algorithm, config: Any, env: Env) -> list[str]:
    """Why there is no team for an algorithm to train on ``env``, a line each: none for one whose view is `rows`."""
    if algorithm.view is rows:
        return []
    if env.num_agents == 1:
        return [f"algorithm = {algorithm.name!r}: is for several agents; {env.name} has one agent"]
    if env.zero_sum and algorithm.view(config, env).num_agents == 1:
        return [
            f"algorithm = {algorithm.name!r}: learns the reward of a team, which is 0 at every step of {env.name}; "
            "train each agent on its own reward, as ppo and dqn do"
        ]
    return []
