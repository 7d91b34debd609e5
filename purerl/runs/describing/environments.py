"""The environment that a user asked for, checked before anything compiles."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from purerl import envs
from purerl.algos.algorithm import Algorithm, rows
from purerl.catalogue import check_values
from purerl.envs.check_types import type_problems
from purerl.errors import ConfigError, one_line, place
from purerl.types import Env

NOTHING: Mapping[str, Sequence[float]] = {}


def checked(name: str, params: dict[str, Any], swept: Mapping[str, Sequence[float]] = NOTHING) -> Env:
    """Makes the environment called ``name`` with ``params`` and the first of the ``swept`` values of other parameters.

    Raises:
        ConfigError: With a line for each problem: if `envs.make` refuses the environment, if a parameter has both a
            value and swept values, if a swept value is impossible, or if a swept parameter shapes the program, so that
            it cannot be swept. Also if the arrays of a user's own environment do not match its spaces and `types.Step`,
            since an agent would then train on something else than it declares.
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
            what = one_line(cause) if place(cause) else type(cause).__name__
            problems.append(f"env = {name!r}: {given}: cannot be swept ({what} when it is traced)")
    if ":" in name:
        problems += [f"env = {name!r}: {problem}" for problem in type_problems(env, key)]
    if problems:
        raise ConfigError("\n".join(problems))
    return env


def team_problems(algorithm: Algorithm, config: Any, env: Env) -> list[str]:
    """Returns a line for each reason why an algorithm that trains a team cannot train one on ``env``.

    An algorithm whose view is `rows` trains no team, and has no problem.
    """
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
