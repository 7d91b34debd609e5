"""Replays of whole episodes that never change, such as demonstrations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import counters, spaces, trees
from purerl.counters import Count
from purerl.errors import ConfigError
from purerl.formulas.schedules import anneal, progress
from purerl.replay import cuts, storage, sums
from purerl.replay.cuts import Cuts
from purerl.replay.priorities import importance, powered, stratified
from purerl.replay.streamed import Drawn, Streamed, rows_of
from purerl.replay.views import View
from purerl.spaces import Space
from purerl.types import Array, Dataset, Key, PyTree, Replay, Sample, Scalar, Transition


class Stored(NamedTuple):
    """A dataset as programs hold it: arrays that may be an argument of a program, which trainings under `vmap` share.

    ``rows`` ``[T, 1]`` are the steps as a ring of one environment stores them, and ``starts`` ``[M]`` (int32) those at
    which samples begin.
    """

    rows: Transition
    starts: Array

    def changed(self, change: Callable[[Transition], Transition]) -> "Stored":
        """Returns the dataset with its rows changed by ``change``."""
        return self._replace(rows=change(self.rows))


Held = Stored | Streamed
"""A dataset as programs hold it, or as the host holds it for them."""


class FixedState(NamedTuple):
    """The state of a `fixed` replay: ``sums`` of ``priority^alpha``, one for each sample, and the number of updates.

    The data are not part of it.
    """

    sums: sums.Sums
    updates: Count


def fixed(
    data: Dataset | Stored,
    *,
    batch_size: int,
    view: View,
    alpha: Scalar,
    beta: Scalar = 0.4,
    beta_end: Scalar = 1.0,
    num_updates: Scalar = 1,
    num_frames: PyTree = 1,
) -> Replay:
    """Makes a replay of ``data`` that samples by priority, as `ring.weighted` does for one environment, number 0.

    A sample begins at the first step of each episode and at every ``view.stride``-th after it; its ``slot`` is that
    step's number in ``data``. It may continue into later episodes and from the last one into the first, since no view
    lets anything flow across an episode's end. All priorities are 1 at first. With ``alpha`` and ``beta`` 0 it samples
    uniformly.

    Nothing is added. ``extras`` are ``()``, since the data were recorded with another network or with none.

    The state of a training holds only the priorities. The data are the same for all trainings under `jax.vmap`: what is
    `stored` may be an argument of their program, and a `Dataset` is a constant of it.

    Args:
        data: Whole episodes.
        batch_size: The number of draws ``N`` in a sample.
        view: What a sample is (`transitions`, `sequences`).
        alpha: The exponent of the priorities, in [0, 1].
        beta: The exponent of the weights at the start.
        beta_end: The exponent of the weights after ``num_updates`` updates; linear in between.
        num_updates: The number of updates over which the exponent of the weights is annealed.
        num_frames: The number of stacked frames, as for `ring.uniform`.
    """
    items, starts = held(data, num_frames, view.stride)
    count = len(starts)

    def init(item: Transition) -> FixedState:
        first = jnp.full((count,), powered(jnp.ones(()), alpha))
        return FixedState(sums.put(sums.init(count), jnp.arange(count), first), counters.of())

    def sample(state: FixedState, key: Key) -> Sample:
        place = stratified(state.sums, key, batch_size)
        row, env = starts[place], jnp.zeros((batch_size,), jnp.int32)
        read, usable = view.read(items, row, env, num_frames)
        exponent = anneal(beta, beta_end, progress(state.updates, num_updates))
        weight = jnp.where(usable, importance(state.sums, place, count, exponent), 0.0)
        return Sample(read, row, env, weight)

    def update(state: FixedState, sample: Sample, priority: Array) -> FixedState:
        place = jnp.where(sample.env == 0, jnp.searchsorted(starts, sample.slot).astype(jnp.int32), sums.NOWHERE)
        value = jnp.where(sample.weight > 0, powered(priority, alpha), 0.0)
        return FixedState(sums.put(state.sums, place, value), counters.increment(state.updates))

    return Replay(init, lambda state, trajectory: state, sample, update, 0)


def evenly(data: Dataset | Stored, *, batch_size: int, view: View, num_frames: PyTree = 1) -> Replay:
    """Makes a replay of ``data`` that samples uniformly with replacement, and has no state.

    Weights are 1, or 0 for samples that the view calls unusable. The arguments are those of `fixed`, and what is said
    there of samples and of ``data`` holds here.
    """
    items, starts = held(data, num_frames, view.stride)

    def sample(state: PyTree, key: Key) -> Sample:
        row = starts[places(key, batch_size, len(starts))]
        return _equal(view, items, row, row, num_frames)

    return _stateless(sample)


def places(key: Key, batch_size: int, count: int) -> Array:
    """Draws the places ``[N]`` (int32) of a sample among ``count``, uniformly. Consumes ``key``."""
    return jax.random.randint(key, (batch_size,), 0, count)


def fed(data: Streamed, view: View) -> Replay:
    """Makes a replay of what the host reads of ``data``, whose ``sample`` takes that, a `Drawn` ``[N]``, for a key.

    The samples are those of `evenly`.

    Args:
        data: The dataset.
        view: What a sample is: `transitions` of one step.

    Raises:
        ValueError: A sample is read from more than a step and the one after it.
    """
    if view.length != 2:
        raise ValueError(f"view: reads {view.length} rows, must be 2")

    def sample(state: PyTree, drawn: Drawn) -> Sample:
        column = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), drawn.rows)
        cut = jnp.where(column.truncated[::2], 0, cuts.NONE).astype(jnp.uint8)
        after = Cuts(jax.tree.map(lambda x: x[1::2], column.obs), cut, every=2)
        first = jnp.arange(0, len(column.reward), 2)
        return _equal(view, data.change(column)._replace(next_obs=after), first, drawn.slot, 1)

    return _stateless(sample)


def _equal(view: View, items: Transition, row: Array, slot: Array, num_frames: PyTree) -> Sample:
    """Reads the samples that begin in ``row`` ``[N]``, which are numbered ``slot``, as those of equal weights."""
    env = jnp.zeros(row.shape, jnp.int32)
    read, usable = view.read(items, row, env, num_frames)
    return Sample(read, slot, env, jnp.where(usable, 1.0, 0.0))


def _stateless(sample: Callable[[PyTree, Any], Sample]) -> Replay:
    """Makes a replay without a state, to which nothing is added."""
    return Replay(lambda item: (), lambda state, trajectory: state, sample, lambda state, sample, priority: state, 0)


def held(data: Dataset | Held, num_frames: PyTree = 1, stride: int = 1) -> Stored:
    """Returns ``data`` as programs hold it. Samples of a `Dataset` begin at every ``stride``-th step (`beginnings`).

    Raises:
        ConfigError: It is to stay in the host's memory.
    """
    if isinstance(data, Streamed):
        raise ConfigError("data: is in the host's memory, from which only trainings from recorded play alone stream it")
    if isinstance(data, Stored):
        return data
    with jax.ensure_compile_time_eval():
        return jax.tree.map(jnp.asarray, on_host(data, num_frames, stride))


def on_host(data: Dataset, num_frames: PyTree = 1, stride: int = 1) -> Stored:
    """Returns what `held` puts on a device, of numpy arrays: nothing of ``data`` is on a device yet."""
    data = jax.tree.map(np.asarray, data)
    starts: Any = beginnings(data, stride)
    return Stored(stored(data, num_frames), starts)


def least_bytes(data: Dataset, num_frames: PyTree = 1) -> int:
    """Computes at least how many bytes `stored` rows of ``data`` take, arrays or `jax.ShapeDtypeStruct`."""

    def rows(data: Dataset) -> Transition:
        return storage.kept(jax.tree.map(lambda x: x[:, None], rows_of(data)), num_frames, 1)

    return trees.nbytes(jax.eval_shape(rows, data))


def joined(parts: list[Dataset]) -> Dataset:
    """Joins datasets of the same spaces, one after another, episode by episode."""
    whole: Dataset = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    return whole


def beginnings(data: Dataset, stride: int) -> np.ndarray:
    """Computes the steps ``[M]`` (int32) at which samples begin: in each episode the first and every ``stride``-th.

    They are in ascending order.
    """
    ends = np.flatnonzero(data.last) + 1
    begins = np.concatenate([[0], ends[:-1]])
    return np.concatenate([np.arange(a, b, stride) for a, b in zip(begins, ends, strict=True)]).astype(np.int32)


def stored(data: Dataset, num_frames: PyTree = 1) -> Transition:
    """Converts ``data`` to rows ``[T, 1]`` as a ring of one environment stores them. All arrays are of numpy.

    Observations are stored once. The next observations of truncated steps are stored in blocks; a block is as long as
    the smallest distance of two truncated steps, so that all of them are held.
    """
    column = jax.tree.map(lambda x: x[:, None], data)
    kept = storage.kept(rows_of(column)._replace(next_obs=column.final_obs), num_frames, 1)
    at = np.flatnonzero(data.truncated)
    every = int(min([cuts.NONE, *np.diff(at)]))
    after = jax.tree.map(lambda x: x[np.flatnonzero(data.truncated[data.last])], kept.next_obs)
    row_of = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), after)
    like = jax.eval_shape(lambda: cuts.empty(row_of, len(data.reward), every))

    def blocks(like: jax.ShapeDtypeStruct, new: np.ndarray, nothing: int) -> Any:
        whole = np.full(like.shape, nothing, like.dtype)
        whole[at // every] = new
        return whole

    next_obs = jax.tree.map(lambda x, new: blocks(x, new, 0), like.obs, after)
    row = blocks(like.row, (at % every)[:, None], cuts.NONE)
    return kept._replace(next_obs=Cuts(next_obs, row, every))


def struct(observation_space: Space, action_space: Space, steps: int, episodes: int) -> Dataset:
    """Returns shapes and dtypes of a dataset with that many steps and episodes, as `jax.ShapeDtypeStruct`."""

    def many(count: int, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), tree)

    obs, action = spaces.struct(observation_space), spaces.struct(action_space)
    number, flag = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.bool_)
    one = Dataset(obs, action, number, flag, flag, ())
    whole: Dataset = many(steps, one)
    return whole._replace(final_obs=many(episodes, obs))


def dataset_problems(data: Dataset, observation_space: Space, action_space: Space) -> list[str]:
    """Lists why ``data`` are not episodes in these spaces, a line each.

    Problems are arrays of another shape or dtype, flags that do not mark episodes, and numbers outside of the spaces.
    """
    steps, episodes = len(data.reward), next((len(x) for x in jax.tree.leaves(data.final_obs)), 0)
    expected = struct(observation_space, action_space, steps, episodes)
    structure: Any = jax.tree.structure(expected)
    if structure != jax.tree.structure(data):
        return ["observations or actions are of another structure than the environment's"]
    problems = [
        f"{jax.tree_util.keystr(path, simple=True, separator='.')} is {x.dtype}{list(x.shape)}, expected "
        f"{like.dtype}{list(like.shape)}"
        for (path, x), like in zip(jax.tree.leaves_with_path(data), jax.tree.leaves(expected), strict=True)
        if (x.shape, x.dtype) != (like.shape, like.dtype)
    ]
    if problems or not steps:
        return problems or ["has no steps"]
    if np.any(data.terminated & data.truncated):
        problems.append("a step is both terminated and truncated")
    if np.sum(data.last) != episodes:
        problems.append(f"{np.sum(data.last)} steps end an episode, expected {episodes}")
    if not data.last[-1]:
        problems.append("the last step ends no episode")
    floats = {"reward": data.reward, "obs": data.obs, "final_obs": data.final_obs, "action": data.action}
    problems += [f"{name}: has numbers that are not finite" for name, tree in floats.items() if not _finite(tree)]
    spaces_of = spaces.leaves(observation_space), spaces.leaves(action_space)
    for name, leaves in (("obs", data.obs), ("final_obs", data.final_obs), ("action", data.action)):
        for space, x in zip(spaces_of[name == "action"], jax.tree.leaves(leaves), strict=True):
            low, high = spaces.bounds(space)
            counted = not isinstance(space, spaces.Box) or (name == "action" and spaces.is_whole(space))
            if counted and (np.any(x < low) or np.any(x > high)):
                problems.append(f"{name}: has numbers that are not in its {spaces.kind(space)} space")
    return problems


def unchecked_problems(data: Dataset | Held, observation_space: Space, action_space: Space) -> list[str]:
    """Lists the `dataset_problems` of what is not checked yet: a `Dataset`, or the parts of a `Streamed`."""
    if isinstance(data, Stored) or (isinstance(data, Streamed) and data.checked):
        return []
    parts = data.parts if isinstance(data, Streamed) else (data,)
    name = lambda number: f"part {number}: " if len(parts) > 1 else ""
    each = [dataset_problems(part, observation_space, action_space) for part in parts]
    return [f"{name(number)}{line}" for number, lines in enumerate(each) for line in lines]


def _finite(tree: PyTree) -> bool:
    """Returns whether all floats of a tree of numpy arrays are finite."""
    return all(x.dtype.kind != "f" or bool(np.isfinite(x).all()) for x in jax.tree.leaves(tree))
