"""The options of environments of the host, and checks of what such environments cannot do, before anything compiles."""

import dataclasses
from typing import Any

from purerl.hosts import opening
from purerl.hosts.opening import How
from purerl.types import Env

OPTIONS = (*How._fields, "ahead", "eval_envs")
"""The options that have no effect on other environments."""


def how(options: Any) -> How:
    """Returns how the options ask for environments to be stepped."""
    return How(*(getattr(options, name) for name in How._fields))


def problems(options: Any, config: Any, env: Env) -> list[str]:
    """Returns a line for each reason why ``options`` and ``config`` do not fit ``env``."""
    usual = {field.name: field.default for field in dataclasses.fields(options)}
    if not env.host:
        given = [(name, getattr(options, name)) for name in OPTIONS if getattr(options, name) != usual[name]]
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
