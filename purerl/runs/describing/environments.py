"""The environment that a user asked for, and the options of host environments, checked before anything compiles."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from purerl import envs
from purerl.algos.algorithm import NO_TEAM, Algorithm
from purerl.catalogue import check_values
from purerl.envs.check_types import type_problems
from purerl.errors import ConfigError, one_line, place
from purerl.hosts import opening
from purerl.hosts.opening import How
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

    An algorithm whose view is one of `NO_TEAM` trains none, and has no problem.
    """
    if algorithm.view in NO_TEAM:
        return []
    if env.num_agents == 1:
        return [f"algorithm = {algorithm.name!r}: is for several agents; {env.name} has one agent"]
    if env.zero_sum and algorithm.view(config, env).num_agents == 1:
        return [
            f"algorithm = {algorithm.name!r}: learns the reward of a team, which is 0 at every step of {env.name}; "
            "train each agent on its own reward, as ppo and dqn do"
        ]
    return []


HOST_OPTIONS = (*How._fields, "ahead", "eval_envs")
"""The options that have no effect on other environments."""


def how(options: Any) -> How:
    """Returns how the options ask for environments to be stepped."""
    return How(*(getattr(options, name) for name in How._fields))


def host_problems(options: Any, config: Any, env: Env) -> list[str]:
    """Returns a line for each reason why ``options`` and ``config`` do not fit ``env``."""
    usual = {field.name: field.default for field in dataclasses.fields(options)}
    if not env.host:
        given = [(name, getattr(options, name)) for name in HOST_OPTIONS if getattr(options, name) != usual[name]]
        return [f"{name} = {value!r}: has no effect; {env.name} is not a host environment" for name, value in given]
    lines = opening.problems(how(options))
    if options.processes:
        lines.append(f"processes = {options.processes!r}: the host environment {env.name} needs a single process")
    if getattr(config, "lag", 0) != 0:
        lines.append(f"lag = {config.lag}: is not supported for the host environment {env.name}; use --ahead")
    if options.num_devices > 1:
        lines.append(f"num_devices = {options.num_devices}: the host environment {env.name} needs a single device")
    if options.double_buffering == "on" and config.num_envs % 2:
        lines.append(f"double_buffering = 'on': num_envs = {config.num_envs} cannot be halved")
    return lines
