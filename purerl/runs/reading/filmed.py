"""The returns of the episodes of films in a run directory, which the page of the run shows below them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.display import words
from purerl.store import guards, writing

NAME = "films.json"
"""The file with the episodes of each film."""
FEW = 4
"""The largest number of agents whose returns are shown one by one."""
MOST = 20
"""The largest number of episodes of a film that are told."""


class Episode(NamedTuple):
    """An episode of a film: the returns ``[N]`` of all agents, its steps, and how it ended, in words."""

    returns: list[float]
    steps: int
    end: str


def add(path: Path, about: dict[str, Any], episodes: list[Episode]) -> None:
    """Writes what a film of a run shows into the file beside it.

    Args:
        path: The film, in a run directory.
        about: What identifies the agent.
        episodes: Its episodes.
    """
    films = guards.contents(path.parent, NAME)
    films = {name: entry for name, entry in films.items() if guards.is_plain(path.parent / name)}
    entry = {**about, "bytes": path.stat().st_size, "episodes": [episode._asdict() for episode in episodes]}
    writing.write_json(path.parent / NAME, {**films, path.name: entry})


def read(directory: Path, names: list[str]) -> dict[str, str]:
    """Returns in words what the named films of a run show, as far as it is known. The file is untrusted.

    A film that was replaced since, which has another size, is left out.
    """
    films, result = guards.contents(directory, NAME), {}
    for name in names:
        entry = films.get(name)
        if not isinstance(entry, dict) or entry.get("bytes") != (directory / name).lstat().st_size:
            continue
        rows = [row for row in guards.listed(entry, "episodes")[:MOST] if isinstance(row, dict)]
        lists = [guards.listed(row, "returns") for row in rows]
        returns = [[guards.plotted(x) for x in of_agents] for of_agents in lists if of_agents]
        if not returns:
            continue
        result[name] = f"agent {guards.count(entry.get('agent'))}, {told(entry, returns)}"
    return result


def told(about: dict[str, Any], returns: list[list[float]]) -> str:
    """Formats how the actions of a film were chosen (`evaluation.manner`), and the returns of its episodes."""
    sampled = "sampled, " if about.get("sampled") is True else ""
    return f"{sampled}{in_words(returns)}{words.simulations(about)}"


def in_words(returns: list[list[float]]) -> str:
    """Formats the returns of episodes, ``[N]`` each: of a few agents those of each seat, of many their mean."""
    several = max(map(len, returns), default=1)
    each = [episode if several <= FEW else [float(np.mean(episode))] for episode in returns]
    what = ("mean " if several > FEW else "") + f"return{'s'[: len(returns) != 1]}"
    of = " by seat" if 1 < several <= FEW else ""
    return f"{what}{of} {'; '.join(' : '.join(f'{x:.5g}' for x in episode) for episode in each)}"
