"""The best policy of each member so far, in a folder of its own, which `purerl eval` reads as it reads a run."""

from pathlib import Path

import jax
import numpy as np
from rich.console import Console

from purerl import processes
from purerl.display.progress import say
from purerl.errors import ConfigError
from purerl.runs.describing.description import Description, Setup
from purerl.runs.reading import evaluation
from purerl.store.policies import save_policy
from purerl.types import PyTree

FOLDER = "best"


class Best:
    """The best policies of the members so far.

    They are compared at checkpoints, by the mean return of the episodes that ended since the checkpoint before.
    """

    def __init__(self, directory: Path, description: Description, setup: Setup, console: Console):
        """Continues with what the folder holds; if it is damaged, begins anew and prints a line about it."""
        self._directory, self._description, self._spaces = directory / FOLDER, description, setup.spaces
        self._policy: PyTree = None
        self._returns = np.full(0, -np.inf)
        self._total, self._ended = np.zeros(0), np.zeros(0, np.int64)
        if self._directory.exists():
            try:
                best = evaluation.load(self._directory, trust=True, playing=True)
                returns = best.saved["best_return_per_seed"]
                self._returns = np.array([-np.inf if value is None else value for value in returns], np.float64)
                self._policy = jax.tree.map(np.array, best.policy)
            except (ConfigError, KeyError, TypeError, ValueError) as error:
                say(console, f"the saved best policies cannot be read, and new ones are collected: {error}")

    def watch(self, metrics: dict[str, np.ndarray]) -> None:
        """Records the episodes that ended in a chunk.

        Args:
            metrics: The metrics of the chunk, ``[iterations, B]``, on the host.
        """
        ended = metrics["episodes"]
        total = np.sum(np.where(ended > 0, metrics["episode_return"] * ended, 0.0), axis=0)
        begun = self._ended.size
        self._total = self._total + total if begun else total
        self._ended = self._ended + np.sum(ended, axis=0) if begun else np.sum(ended, axis=0)

    def keep(self, first: int, policy: PyTree) -> None:
        """Compares policies with the best ones so far, keeps the better ones, and writes all on the first process.

        Args:
            first: The number of the first member that they belong to.
            policy: The policies ``[B]``, on the host. Further rows, which fill a program up, are ignored.
        """
        size = self._ended.size
        if not size:
            return
        returns = np.where(self._ended > 0, self._total / np.maximum(self._ended, 1), -np.inf)
        offered = jax.tree.map(lambda x: np.array(x[:size]), policy)
        self._total, self._ended = np.zeros(0), np.zeros(0, np.int64)
        if len(self._returns) < first + size:
            self._returns = np.concatenate([self._returns[:first], returns])
            old = jax.tree.map(lambda x: x[:first], self._policy) if first else None
            self._policy = jax.tree.map(lambda *x: np.concatenate(x), old, offered) if first else offered
        else:
            better = returns > self._returns[first : first + size]
            for kept, new in zip(jax.tree.leaves(self._policy), jax.tree.leaves(offered), strict=True):
                kept[first : first + size][better] = new[better]
            self._returns[first : first + size][better] = returns[better]
        if not processes.is_first():
            return
        self._directory.mkdir(exist_ok=True)
        about = {"members": len(self._returns), "best_return_per_seed": self._returns, "spaces": self._spaces()}
        save_policy(self._directory, self._policy, {**self._description._asdict(), **about})
