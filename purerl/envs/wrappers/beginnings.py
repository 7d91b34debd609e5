"""A wrapper that sets how a fleet begins episodes."""

from purerl.envs.resets import parse
from purerl.types import Env


def resets(env: Env, text: str) -> Env:
    """Sets ``env``'s ``resets`` to ``text``: ``every``, ``pool:N``, ``few`` or ``few:N``. Raises `ConfigError`."""
    parse(env.name, text)
    return env._replace(resets=text)
