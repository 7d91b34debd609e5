"""Which agent of a run: by its number, or the best or the worst by one told number."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.display import words
from purerl.display.progress import console, say
from purerl.errors import ConfigError, printable
from purerl.runs.describing import sweeps
from purerl.store import guards, policies

BEST, WORST = "best", "worst"
NAMED = re.compile(rf"(.+):(\d{{1,9}}|{BEST}|{WORST})", re.DOTALL)
"""``RUN:AGENT``."""
MOST_NAMED = 8
"""The largest number of agents with the same score whose numbers are listed."""


class Choice(NamedTuple):
    """An agent of a run.

    - ``directory``: the run directory that holds its policy; of a sweep over several programs that of its program.
    - ``number``: its number in that directory.
    - ``of``: the run that it was chosen in, and its number there.
    - ``name``: how it was asked for: a number, `BEST` or `WORST`.
    - ``score``: the number that it was chosen by; nan if it was asked for by its number.
    - ``by``: what that number is.
    - ``ties``: the numbers of all agents in ``of`` with this score.
    - ``size``: the number of agents in ``of``.
    """

    directory: Path
    number: int
    of: tuple[Path, int]
    name: str
    score: float = np.nan
    by: str = ""
    ties: tuple[int, ...] = ()
    size: int = 0

    @property
    def is_ranked(self) -> bool:
        """Whether it was chosen by a score, so that the score is better, or worse, than the agent is."""
        return bool(self.by)

    def facts(self) -> dict[str, Any]:
        """Returns what can be written as JSON about the choice."""
        about = {"run": str(self.of[0]), "agent": self.of[1], "asked": self.name, "words": self.in_words()}
        return about | ({"by": self.by, "score": self.score, "ties": list(self.ties)} if self.is_ranked else {})

    def in_words(self) -> str:
        """Returns which agent was chosen, and by what."""
        agent = f"agent {self.of[1]} of {printable(str(self.of[0]))}"
        if not self.is_ranked:
            return agent
        if len(self.ties) == 1:
            return f"{agent}: {self.name} of {self.size} by {self.by}, {self.score:.2f}"
        rest = f" and {len(self.ties) - MOST_NAMED} more" if len(self.ties) > MOST_NAMED else ""
        listed = ", ".join(map(str, self.ties[:MOST_NAMED]))
        shared = f"the {'highest' if self.name == BEST else 'lowest'} {self.by.removeprefix('the ')}, {self.score:.2f}"
        first = f"{agent}: the first of {len(self.ties)} (agents {listed}{rest}) that share {shared}"
        return f"{first}; none of them is the {self.name}"


def tell(choice: Choice) -> None:
    """Prints which agent was chosen, and by what, unless it was asked for by its number."""
    if choice.is_ranked:
        say(console(), choice.in_words())


def parsed(source: str | Path) -> tuple[Path, str]:
    """Splits ``RUN[:AGENT]`` into the run directory and the name of the agent; empty without one."""
    named = NAMED.fullmatch(str(source))
    if not named or os.path.isdir(source):
        return Path(source), ""
    return Path(named[1]), named[2]


def choose(directory: str | Path, name: int | str) -> Choice:
    """Chooses an agent of a run, which is untrusted.

    The score is the mean return of the final evaluation; in the folder of the best policies of a training
    (``RUN/best``) the mean return of the episodes between two checkpoints. Agents that diverged, and those without a
    return, have none.

    Args:
        directory: The run directory. The agents of a sweep over several programs are numbered program after program.
        name: The number of the agent, `BEST` or `WORST`.

    Raises:
        ConfigError: There is no such agent, or there are no scores. One line.
    """
    directory = Path(directory)
    text = str(name)
    try:
        os.stat(directory)
    except OSError as error:
        raise ConfigError(f"{str(directory)[:100]}: {error.strerror}") from None
    inner = sweeps.parts(directory)
    if text in (BEST, WORST):
        scores, by = _scores(directory)
        known = scores[np.isfinite(scores)]
        if not known.size:
            raise ConfigError(f"agent = {text!r}: no agent of {directory} has a return; give its number")
        score = known.max() if text == BEST else known.min()
        ties = tuple(np.flatnonzero(scores == score).tolist())
        where, inside = _inside(directory, inner, ties[0])
        return Choice(where, inside, (directory, ties[0]), text, float(score), by, ties, len(scores))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"agent = {text[:40]!r}: must be {BEST}, {WORST} or a number from 0")
    where, inside = _inside(directory, inner, int(text))
    return Choice(where, inside, (directory, int(text)), text)


def _inside(directory: Path, inner: list[Path], number: int) -> tuple[Path, int]:
    """Returns the directory that holds an agent's policy, and its number there.

    Of a sweep over several programs it is one of those in ``inner``, of which some may not have ended.
    """
    if not inner:
        return directory, number
    left = number
    for part in inner:
        size = guards.count(guards.contents(part, policies.DESCRIPTION).get("members"))
        if left < size:
            return part, left
        if not size:
            raise ConfigError(f"agent = {number}: {part} has no policies yet")
        left -= size
    raise ConfigError(f"agent = {number}: {directory} has agents 0 to {number - left - 1}")


def _scores(directory: Path) -> tuple[np.ndarray, str]:
    """Returns the score ``[P]`` of each agent of a run, nan where there is none, and what it is.

    Raises:
        ConfigError: The run has no scores.
    """
    summary = guards.contents(directory, "summary.json")
    returns = guards.listed(summary, "return_per_seed")
    alive = guards.listed(summary, "alive_per_seed")
    if returns and len(alive) == len(returns):
        values = np.array([guards.plotted(x) for x in returns])
        sampled = "sampled " if summary.get("sampled") is True else ""
        by = f"the mean {sampled}return of the final evaluation{words.simulations(summary)}"
        return np.where([x is True for x in alive], values, np.nan), by
    best = guards.listed(guards.contents(directory, policies.DESCRIPTION), "best_return_per_seed")
    if best:
        return np.array([guards.plotted(x) for x in best]), "the mean return between two checkpoints of the training"
    raise ConfigError(f"{directory}: has no final evaluation, by which agents are chosen; give the number of one")
