"""The training loop for environments of the host, iteration after iteration.

It has the methods of `device_program.RunProgram`, whose environments are compiled.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import interrupts, population, trees
from purerl.errors import HostError, own_code
from purerl.hosts import opening, pool
from purerl.hosts.opening import How
from purerl.interrupts import Interrupted, breakable
from purerl.population import hosting
from purerl.population.collecting import Actor, Collector, Rollout, Told
from purerl.runs.running import device_program
from purerl.runs.running.run_loop import Chunk
from purerl.store import checkpoint
from purerl.types import Key, PyTree, Trainer, TrainState

CLOSE_SECONDS = 1.0
"""Seconds that a rollout which workers step has to end by itself, before they are closed."""


class Iterated(NamedTuple):
    """An iteration: metrics on the device, the seconds of its parts, numbers of the host, what episodes told."""

    metrics: PyTree
    seconds: dict[str, float]
    numbers: dict[str, float]
    told: Told


class HostProgram:
    """The training of a batch of members at once, between steps of the host's environments.

    It has the methods of `device_program.RunProgram`. `begin` opens the environments of one batch of members, and
    closes those of the batch before; `close` closes them.
    """

    def __init__(
        self,
        make_trainer: Callable[..., Trainer],
        members: population.Members,
        how: How,
        ahead: int,
        batch_size: int | str = "auto",
        lanes: int | None = None,
        stage: Callable[[str], None] = lambda name: None,
        algo: str = "",
        warn: Callable[[str], None] = pool.to_stderr,
    ):
        start, size = time.perf_counter(), members.size if batch_size == "auto" else min(int(batch_size), members.size)
        self._how, self._ahead, self._warn = how, ahead, warn
        self._trainer = make_trainer(**trees.take(members.given, 0))
        each = self._trainer.fleet.env_steps
        # Rows of opponents cannot be halved.
        if self._trainer.learner.rows is not None and how.double_buffering == "auto":
            how = how._replace(double_buffering="off")
        with breakable:
            self.who = opening.decided(self._trainer.fleet.env.host, each * size, each, how)
        with own_code(algo):
            batch = trees.take(members, slice(0, size))
            self._made = hosting.programs(make_trainer, batch, self.who.groups, lanes, stage)
        self.chunk, self.compile_seconds = self._made.chunk, time.perf_counter() - start
        self._open = contextlib.ExitStack()
        self._collector: Collector | None = None
        self._names: dict[str, None] = {}
        self._actor: Actor | None = None

    @property
    def batch_size(self) -> int:
        """The number of members that are trained at once."""
        return self.chunk.batch_size

    @property
    def peak_bytes(self) -> int:
        """The most memory that the training holds, in bytes, over all devices together."""
        return self.chunk.peak_bytes

    def close(self) -> None:
        """Closes the environments."""
        self._open.close()
        self._collector = self._actor = None

    def begin(self, members: population.Members, step: checkpoint.CheckpointStep | None = None) -> TrainState:
        """Opens the environments of a batch of members and makes its state. Episodes begin anew at a checkpoint.

        Raises:
            HostError: The environments failed.
            Interrupted: A signal came before all is ready.
        """
        self.close()
        made, size = self._made, members.size
        self._size = size
        filled = trees.fill(members, self.chunk.batch_size)
        self._given = jax.device_put(hosting.leaves(filled.given), self.chunk.layout.sharding)
        done, elsewhere = step.number if step else 0, self._ahead > 0
        host, num_envs = self._trainer.fleet.env.host, self._trainer.fleet.env_steps
        copies = num_envs * self.chunk.batch_size
        with breakable:
            opened = opening.opened(host, copies, self._how, self.who, self._warn, elsewhere=elsewhere)
            steppers = self._open.enter_context(opened)
        actor = Actor(made, self._given, steppers, self._trainer.fleet.env, self._trainer.num_steps, breakable)
        with breakable:
            actor.reset(seeds(filled.keys, num_envs, self.who.groups, done))
        interrupts.renew()
        self._filled, self._done, self._ended, self._cut, self._actor = 0, done, 0, 0, actor
        if step is None:
            state = self._warmed_up(made.begin(self._given, filled.keys), actor)
        else:
            state = device_program.saved(step, size, made.like, self.chunk.layout)
            actors = state.actors
            rows = self._trainer.fleet.size // num_envs  # rows per environment
            self._cut = int(np.sum(np.asarray(actors.episode_length)[:size] > 0)) // rows
            zeros = jax.tree.map(jnp.zeros_like, (actors.episode_return, actors.episode_length))
            state = state._replace(actors=actors._replace(episode_return=zeros[0], episode_length=zeros[1]))
        self._filled = self._warmup
        return state

    @property
    def _warmup(self) -> int:
        """The number of rollouts of the warm-up."""
        return self._trainer.warmup_steps // self._trainer.env_steps if self._made.fill else 0

    def under_way(self) -> tuple[int, str]:
        """Returns how many frames of all members the unfinished iteration has, and in words what goes on.

        Any thread may call it. The frames of a warm-up do not count.
        """
        if self._actor is None:
            return 0, "environments are opened"
        ends, whole = list(self._actor.ends), self._trainer.env_steps * self._size
        steps = sum(len(terminated) for terminated, _ in ends) * self._size // self.chunk.batch_size
        ended = self._ended + _count(ends)
        episodes = f"{ended:,} episode{'s'[: ended != 1]} ended"
        if self._filled < self._warmup:
            return 0, f"warm-up: {self._filled * whole + steps:,} of {self._warmup * whole:,} steps, {episodes}"
        return steps, f"iteration {self._done + 1:,}: {steps:,} of {whole:,} steps, {episodes}"

    def _warmed_up(self, state: TrainState, actor: Actor) -> TrainState:
        """Returns ``state`` with the rows of the warm-up in its replay."""
        if self._made.fill is None:
            return state
        key: Key = jax.vmap(lambda key: jax.random.fold_in(key, WARMUP))(state.key)
        state = self._made.enter(state)
        behaviour = self._made.behave(state, self._given)
        for _ in range(self._warmup):
            collected = actor.collect(behaviour, 0, key)
            self._filled, self._ended = self._filled + 1, self._ended + _count(actor.ends)
            key, self._cut = collected.next_key, self._cut + collected.cut
            state, _nothing = self._made.fill(state, self._given, collected.lanes, collected.rows)
        return self._made.leave(state)

    def chunks(
        self, members: population.Members, state: TrainState, done: int, num_iterations: int, every: int = 0
    ) -> Iterator[Chunk]:
        """Trains a batch of members, for which `begin` was called, as `RunProgram.chunks` does.

        Raises:
            HostError: The environments failed. The iterations before that are yielded first.
            Interrupted: A signal ended an iteration, of which nothing is kept. Those before are yielded first.
        """
        failed: BaseException | None = None
        while done < num_iterations:
            start, iterations = time.perf_counter(), []
            key = jnp.copy(state.key)
            state = self._made.enter(state)
            if self._collector is None:
                assert self._actor is not None
                behaviour = self._made.behave(state, self._given)
                self._collector = Collector(self._actor, behaviour, done, key, num_iterations - done, self._ahead)
                close = functools.partial(self._collector.close, CLOSE_SECONDS if self.who.workers else None)
                self._open.callback(close)
            while True:
                try:
                    state, made = self._iterate(state, done)
                except (HostError, Interrupted, KeyboardInterrupt) as error:
                    failed = error
                    break
                done += 1
                self._done = done
                iterations.append(made)
                full = time.perf_counter() - start >= device_program.CHUNK_SECONDS
                if full or done == num_iterations or (every and done % every == 0):
                    break
            if failed and not iterations:
                raise failed
            state = self._made.leave(state)
            rows = [self._row(made, members.size) for made in iterations]
            nothing = np.full(members.size, np.nan, np.float32)  # of what no episode had told before
            stacked = {name: np.stack([row.get(name, nothing) for row in rows]) for name in rows[-1]}
            self._ended += int(stacked["episodes"].sum())
            yield Chunk(state, done, len(rows), stacked, time.perf_counter() - start)
            if failed:
                raise failed

    def _iterate(self, state: TrainState, done: int) -> tuple[TrainState, Iterated]:
        """Runs one iteration."""
        assert self._collector is not None
        interrupts.renew()
        rollout: Rollout = self._collector.next()
        before = time.perf_counter()
        groups = rollout.lanes, rollout.rows
        state, metrics = self._made.learn(state, self._given, rollout.next_key, rollout.key_learn, *groups)
        self._collector.learned(self._made.behave(state, self._given), done + 1)
        jax.block_until_ready(metrics)
        rollout.seconds["learning"] += time.perf_counter() - before
        lag = done - rollout.versions
        numbers = {"lag_least": lag.min(), "lag_mean": lag.mean(), "lag_largest": lag.max()}
        cut, self._cut = rollout.cut + self._cut, 0
        return state, Iterated(metrics, rollout.seconds, {**numbers, "episodes_cut": cut}, rollout.told)

    def _row(self, made: Iterated, size: int) -> dict[str, np.ndarray]:
        """Joins the metrics ``[members]`` of an iteration, including the share of its time of each part."""
        whole = sum(made.seconds.values())
        shares = {f"share_{name}": value / whole for name, value in made.seconds.items()}
        own = {name: np.full(size, value, np.float32) for name, value in {**made.numbers, **shares}.items()}
        of_device = {name: np.asarray(values)[:size] for name, values in made.metrics.items()}
        return of_device | own | self._told(made.told, size)

    def _told(self, told: Told, size: int) -> dict[str, np.ndarray]:
        """Returns ``info/NAME``, the means ``[size]`` of what each member's episodes told, of all names so far.

        A mean is nan where no episode told it.
        """
        self._names.update(dict.fromkeys(name for _, numbers in told for name in numbers))
        sums, counts = (np.zeros((len(self._names), self.chunk.batch_size)) for _ in range(2))
        places = {name: i for i, name in enumerate(self._names)}
        for member, numbers in told:
            for name, number in numbers.items():
                sums[places[name], member] += number
                counts[places[name], member] += 1
        means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0).astype(np.float32)
        return {f"info/{name}": means[i, :size] for name, i in places.items()}


def _count(ends: Sequence[tuple[np.ndarray, np.ndarray]]) -> int:
    """Counts the episodes that ended in some turns, from the flags ``(terminated, truncated)`` of each."""
    ended = [(terminated | truncated).reshape(len(terminated), -1) for terminated, truncated in ends]
    return sum(int(np.count_nonzero(last.all(axis=1))) * last.shape[1] for last in ended)


WARMUP = 2**31 + 4
"""Folded into a member's key for choosing actions during its warm-up."""


def seeds(keys: Key, num_envs: int, groups: int, done: int) -> list[np.ndarray]:
    """Draws the seeds of the environments of each group.

    They differ for each member's key ``[P]``, which is not consumed, each of its ``num_envs`` environments, and each
    number of finished iterations that a training continues from.

    Returns:
        For each group its seeds ``[P * num_envs // groups]``, int64, member after member.
    """
    words = np.asarray(jax.random.key_data(keys)).reshape(len(keys), -1).tolist()
    drawn = [np.random.SeedSequence([*each, done]).generate_state(num_envs) for each in words]
    rows = np.stack(drawn).astype(np.int64) >> 1  # [P, B]
    part = num_envs // groups
    return [rows[:, group * part : (group + 1) * part].reshape(-1) for group in range(groups)]
