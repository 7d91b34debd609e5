"""Workers that look at an environment for this process, and then become the first worker of a pool. Needs no JAX."""

import json
import os
import time
from typing import Any

from purerl.hosts import copies, memory, processes, told
from purerl.hosts.bundle import Recipe
from purerl.hosts.processes import Process

GROUPS = 2
"""The most groups that a scout can step."""
START_SECONDS = 300.0
"""Seconds that a worker may take to make its environments."""
_waiting: list["Scout"] = []


class Scout:
    """A worker that has looked at the environment of ``recipe``, with a file for the memory that it is to share."""

    def __init__(self, recipe: Recipe, num_envs: int):
        self.recipe, self.memory = recipe, memory.anonymous()
        share = {"worker": 0, "workers": 1, **recipe._asdict(), "sizes": [], "rows": [], "first": [], "games": [0, 0]}
        self.process: Process = processes.start({**share, "scout": num_envs}, self.memory, GROUPS)
        copies.workers.add(self)

    def told(self) -> Any:
        """Returns what the worker tells of the environment: fields of a `Source`; None if it is another kind."""
        begun = time.monotonic()
        _, fields = processes.answer(self.process, 0, START_SECONDS, lambda: begun)
        return {each: told.space(x) if each in told.SPACES else x for each, x in fields.items()} if fields else None

    def order(self, share: dict[str, Any]) -> None:
        """Has the worker make its share of the environments."""
        processes.send(self.process, json.dumps(share).encode() + b"\n")
        copies.workers.discard(self)

    def close(self) -> None:
        """Ends the worker, which closes what it has looked at."""
        if self in _waiting:
            _waiting.remove(self)
        copies.workers.discard(self)
        processes.end([self.process], lambda line: None)
        os.close(self.memory)


def look(name: str, params: dict[str, Any], num_envs: int) -> Any:
    """Returns fields of the `Source` of an environment, which a worker has looked at; None if it is another kind.

    The worker waits for a pool (`taken`), and is ended with the `copies.session`.

    Raises:
        ConfigError: If the worker cannot make the environment.
    """
    scout = Scout(Recipe(name, params), num_envs)
    with processes.starting(scout.close, name, "looks at"):
        fields = scout.told()
    if fields is None:
        scout.close()
        return None
    _waiting.append(scout)
    copies.at_end.append(lambda: scout.close() if scout in _waiting else None)
    return fields


def taken(recipe: Recipe, groups: int) -> Scout | None:
    """Returns the worker that has looked at the environment of ``recipe``, and is not waiting any more; None: none."""
    for scout in _waiting:
        same = all(recipe.params.get(each) == value for each, value in scout.recipe.params.items())
        if scout.recipe.name == recipe.name and same and groups <= GROUPS:
            _waiting.remove(scout)
            return scout
    return None
