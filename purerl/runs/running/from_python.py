"""Runs from Python: a training with a callback between chunks, and a saved policy as a function."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import loops, population, spaces, trees
from purerl.errors import ConfigError
from purerl.hosts.opening import How
from purerl.names import Trust
from purerl.runs.reading import evaluation
from purerl.runs.running import device_program, run_loop
from purerl.runs.running.host_program import HostProgram
from purerl.types import Key, Metrics, PyTree, Result, Situation, Trainer, TrainState


def train_in_chunks(
    trainer: Trainer,
    key: Key,
    num_iterations: int,
    on_chunk: Callable[[TrainState, Metrics], Any] = lambda state, metrics: None,
    *,
    every: int = 0,
) -> Result:
    """Trains an agent and calls a function after each chunk of iterations.

    It computes what ``jax.jit(loops.train(trainer, num_iterations))(key)`` computes. Environments of the host are
    stepped in worker processes where that is faster, and closed at the end.

    Args:
        trainer: The trainer.
        key: Consumed.
        num_iterations: The number of iterations.
        on_chunk: Called as ``on_chunk(state, metrics)`` after each chunk, with metrics as numpy arrays
            ``[iterations]``. The training ends early where it returns True. The next chunk overwrites the state: copy
            (`jax.device_get`) what is needed of it.
        every: If it is not 0, a chunk also ends at each multiple of so many iterations. A chunk takes about a quarter
            of a second.

    Returns:
        The last state, and the metrics of all iterations as numpy arrays.
    """
    rows: list[Any] = []
    with contextlib.ExitStack() as stack:
        if trainer.fleet.host:
            state, chunks = _hosted(trainer, key, num_iterations, every, stack)
        else:
            state, chunks = _compiled(trainer, key, num_iterations, every)
        for state, metrics in chunks:
            rows.append(metrics)
            if on_chunk(state, metrics) is True:
                break
    joined: Any = {name: np.concatenate([each[name] for each in rows]) for name in (rows or [{}])[0]}
    return Result(state, joined)


Started = tuple[TrainState, Iterator[tuple[TrainState, Any]]]
"""The state that a training begins with, and an iterator over the states and metrics after its chunks."""


def _compiled(trainer: Trainer, key: Key, num_iterations: int, every: int) -> Started:
    """Begins a training that is one compiled program."""
    capacity, chunk_seconds = device_program.CAPACITY, device_program.CHUNK_SECONDS
    advance = jax.jit(loops.chunk(trainer, capacity), donate_argnums=0)
    state = jax.jit(trainer.init)(key)
    chunks = run_loop.advance(
        advance, state, 0, num_iterations, capacity=capacity, chunk_seconds=chunk_seconds, every=every
    )
    cut = lambda chunk: {name: np.asarray(values)[: chunk.length] for name, values in chunk.metrics.items()}
    return state, ((chunk.state, cut(chunk)) for chunk in chunks)


def _hosted(trainer: Trainer, key: Key, num_iterations: int, every: int, stack: contextlib.ExitStack) -> Started:
    """Begins a training in environments of the host, as a population of one; ``stack`` closes them."""
    alone = population.Members({}, key[None])
    running = stack.enter_context(contextlib.closing(HostProgram(lambda: trainer, alone, How(), ahead=0)))
    begun, mine = running.begin(alone), lambda state: trees.take(state, 0)
    chunks = running.chunks(alone, begun, 0, num_iterations, every)
    row = lambda chunk: {name: values[:, 0] for name, values in chunk.metrics.items()}
    return mine(begun), ((mine(chunk.state), row(chunk)) for chunk in chunks)


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
