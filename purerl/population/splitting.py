"""One agent over several devices: its training is cut into shards.

Each shard has its part of the environments, of the replay and of every minibatch. The shards take every gradient step
together, from the mean of their gradients, so that all learn the same. The number of shards shapes the results; the
number of devices that they lie over does not, but for the order in which sums are added.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from purerl import compat, loops
from purerl.errors import ConfigError
from purerl.population import collectives, tracing
from purerl.population.collectives import Cut
from purerl.population.layouts import DATA
from purerl.population.membership import Members
from purerl.types import Array, Metrics, PyTree, Trainer, TrainState


class Split(NamedTuple):
    """How agents are to be cut: into ``shards``, over ``devices``, whose number divides that of the shards.

    ``exact`` is that of `collectives.Cut`.
    """

    shards: int = 1
    devices: int = 1
    exact: bool = False

    @property
    def cut(self) -> Cut | None:
        """The part of an agent that a device computes; None: all of it."""
        if self.shards == 1:
            return None
        return Cut(self.shards, self.shards // self.devices, DATA if self.devices > 1 else None, self.exact)

    def compiler_options(self, device: jax.Device) -> dict[str, Any]:
        """Returns the options that programs for ``device`` are compiled with.

        On a CPU some optimisations depend on the number of devices: with ``exact`` they are off.
        """
        return compat.exact_options(device) if self.exact and device.platform == "cpu" else {}


WHOLE = Split()
"""The split of agents that are not cut."""
SHARED_OUT = "num_envs", "batch_size"
"""Settings of an agent that its shards share in equal parts."""
ROUNDED_UP = "capacity", "warmup_steps"
"""Settings of an agent of which each shard has its part, rounded up as the agent itself rounds them."""


def share(config: Any, count: int) -> Any:
    """Returns the config of one of ``count`` shards: its part of environments, samples and frames.

    It has as many iterations and updates as the agent.
    """
    known = {field.name for field in dataclasses.fields(config)}
    part = {name: getattr(config, name) // count for name in SHARED_OUT if name in known}
    part |= {name: -(-getattr(config, name) // count) for name in ROUNDED_UP if name in known}
    whole = config.total_steps
    return dataclasses.replace(config, **part, total_steps=whole // count if isinstance(whole, int) else whole / count)


class Agent(NamedTuple):
    """The training of an agent, for `layouts.spread`.

    ``init(member, data)`` makes its state, ``whole(member, data)`` one of the shapes that a device holds of it, and
    ``chunk(given, state, length, capacity, data)`` goes on with it, as `loops.chunk` does. ``data`` are the datasets
    that all agents share; None: there are none. Leaves of the state that ``differs`` (bools; False: none) between its
    shards lead with those of the device ``[S / D]``, and outside of `layouts.spread` with all ``[S]``. ``meetings`` are
    the collectives of an iteration.
    """

    init: Callable[..., TrainState]
    chunk: Callable[..., tuple[TrainState, Metrics]]
    whole: Callable[..., TrainState]
    differs: PyTree = False
    meetings: tuple[tracing.Meeting, ...] = ()


class Steps(NamedTuple):
    """The part of a `Trainer` that `loops.chunk` needs."""

    step: Callable[[Any], tuple[Any, Metrics]]


def agent(make_trainer: Callable[..., Trainer], member: Members, cut: Cut | None = None) -> Agent:
    """Returns the training ``make_trainer(**given)`` of a ``member`` (arrays or shapes), cut into shards by ``cut``.

    One that is not cut takes its datasets as an argument, ``make_trainer(**given, data=data)``, if there are any.

    Raises:
        ConfigError: The training cannot be cut, because its policy would come to differ between shards.
    """
    if cut is None:
        made = lambda given, data: make_trainer(**given, **({} if data is None else {"data": data}))
        advance = lambda given, state, length, most, data=None: loops.chunk(made(given, data), most)(state, length)
        start = jax.jit(lambda m, data=None: made(m.given, data).init(m.keys), inline=True)  # traced once
        return Agent(start, advance, start)

    def part(given: dict[str, Any]) -> Trainer:
        return make_trainer(**{**given, "config": share(given["config"], cut.shards)})

    begin = tracing.trace(lambda m: part(m.given).init(m.keys), cut.shards, member)
    step = tracing.trace(lambda given, state: part(given).step(state), cut.shards, member.given, begin.shapes)
    alike = [False] * len(jax.tree.leaves(member.given))
    differs, now = tracing.differing(begin, alike, False), None
    while differs != now:
        now = differs
        after, of_metrics = tracing.differing(step, alike, now)
        differs = jax.tree.map(lambda a, b: a or b, now, after)
    policy_of = lambda given, state: part(given).learner.policy(state.learner)
    policy = tracing.trace(policy_of, cut.shards, member.given, begin.shapes)
    results = tracing.differing(policy, alike, differs), of_metrics, differs.alive, differs.key, differs.stopping
    if any(jax.tree.leaves(results)):
        raise ConfigError(f"shards = {cut.shards}: what is learned would differ between the shards of an agent")

    def init(member: Members, data: PyTree = None, cut: Cut = cut) -> TrainState:
        return collectives.together(collectives.run(begin, cut, member), differs, cut)

    def chunk(
        given: dict[str, Any], state: TrainState, length: Array, capacity: int, data: PyTree = None
    ) -> tuple[TrainState, Metrics]:
        steps = Steps(lambda state: collectives.run(step, cut, given, state))
        state, metrics = loops.chunk(steps, capacity)(collectives.apart(state, differs, cut), length)
        return collectives.together(state, differs, cut), metrics

    whole = lambda member, data=None: init(member, data, cut._replace(axis=None))
    return Agent(init, chunk, whole, differs, tuple(tracing.meetings(step)))


def sent(meetings: Sequence[tracing.Meeting], split: Split) -> float:
    """Returns the bytes that a device sends to others in an iteration of an agent, if it passes them on in a ring.

    Of a sum it sends twice as much as of what is gathered (Patarasuk & Yuan 2009, section 3).
    """
    others, here = (split.devices - 1) / split.devices, split.shards // split.devices
    total = 0.0
    for meeting in meetings:
        summed = meeting.kind == "pmax" or (meeting.kind == "psum" and not split.exact)
        total += meeting.times * meeting.nbytes * others * (2 if summed else split.devices * here)
    return total
