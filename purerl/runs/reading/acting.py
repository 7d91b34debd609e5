"""Acting with a saved policy, for users who have observations and need actions."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import spaces, trees
from purerl.errors import ConfigError
from purerl.names import Trust
from purerl.runs.reading import evaluation
from purerl.types import PyTree, Situation


class Acting:
    """A policy as a plain function of observations, from numpy to numpy, which holds its memory."""

    def __init__(self, of: evaluation.Agent):
        learner, policy = of.learner, of.policy
        self._like: Any = spaces.struct(of.env.observation_space)
        self._init_carry, self._carry, self._rows = learner.init_carry, None, 0
        key = jax.random.key(0)  # `exploit` is deterministic, so any key will do
        self._act = jax.jit(lambda obs, carry: learner.exploit(policy, Situation(obs, carry), key))

    def __call__(self, obs: PyTree) -> np.ndarray:
        """Returns the most likely action in an observation, or in each of a batch of observations.

        Args:
            obs: An observation, or a batch ``[B, ...]`` of them.

        Returns:
            An action, or actions ``[B, ...]``.

        Raises:
            ConfigError: The structure or a shape is not the one of the environment's observations; or ``B``
                differs from the number of rows in the memory.
        """
        leaves, structure = jax.tree.flatten(obs)
        expected: Any = jax.tree.structure(self._like)
        if structure != expected:
            raise ConfigError(f"obs: must be {expected}, but is {structure}")
        likes = trees.named_leaves(self._like)
        arrays = [np.asarray(x) for x in leaves]
        lead = arrays[0].shape[: max(arrays[0].ndim - len(next(iter(likes.values())).shape), 0)]
        for (name, like), x in zip(likes.items(), arrays, strict=True):
            if x.shape != (*lead, *like.shape) or len(lead) > 1 or lead == (0,):
                problem = f"obs{name and '.' + name}: must be {list(like.shape)} or a batch of these"
                raise ConfigError(f"{problem}, the same for all parts, but is {list(x.shape)}")
        rows = lead[0] if lead else 1
        if self._carry is None:
            self._carry, self._rows = self._init_carry(rows), rows
        if rows != self._rows and jax.tree.leaves(self._carry):
            raise ConfigError(f"obs: {rows} rows, but the memory has {self._rows}; call reset() first")
        pairs = zip(likes.values(), arrays, strict=True)
        batch = [x.astype(like.dtype).reshape(rows, *like.shape) for like, x in pairs]
        action, self._carry = self._act(jax.tree.unflatten(structure, batch), self._carry)
        actions = np.asarray(action)
        return actions if lead else actions[0]

    def reset(self, ended: Any = None) -> None:
        """Resets the memory of the policy.

        Args:
            ended: Bool ``[B]``: the rows whose episode has ended, which are reset; None: all.
        """
        if ended is None or self._carry is None:
            self._carry = None
        else:
            self._carry = trees.restart(self._carry, self._init_carry(self._rows), np.asarray(ended, bool))


def acting(directory: str | Path, agent: int = 0, *, trust: Trust = False) -> Acting:
    """Makes an `Acting` of an agent of a run directory.

    Args:
        directory: The run directory.
        agent: The number of the agent.
        trust: Whether modules of the user's own that the run names are imported (`names.Trust`).

    Raises:
        ConfigError: The run cannot be read (`load`); or it has no such agent; or the memory of the agent depends on
            rewards.
    """
    agent_of_run = evaluation.agent(directory, agent, trust=trust)
    if agent_of_run.learner.restart is not None:
        raise ConfigError(f"{directory}: {agent_of_run.saved['algo']} has a memory of rewards; use purerl.evaluate")
    return Acting(agent_of_run)
