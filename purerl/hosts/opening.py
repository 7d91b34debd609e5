"""How the environments of a run are stepped: by this process, a thread of it, or workers."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from purerl.errors import ConfigError
from purerl.hosts import copies, local, pool, processes
from purerl.hosts.bundle import HostEnv, Stepper

WORTH_SECONDS = 2e-3
"""The least seconds of a step of all environments for which workers gain more than their messages cost."""
TRIED = 4
"""How many steps are timed, after one that warms up."""


class How(NamedTuple):
    """How environments of the host are stepped, as a user asks for it.

    ``workers`` is "auto", "none" or a number of processes, ``double_buffering`` "auto", "on" or "off"; a worker may
    take ``worker_timeout`` seconds for a step, and ``worker_restarts`` of them may be restarted.
    """

    workers: str = "auto"
    double_buffering: str = "auto"
    worker_timeout: float = 60.0
    worker_restarts: int = 10


class Decided(NamedTuple):
    """The number of worker processes, 0 for none, and the number of groups in which environments are stepped."""

    workers: int
    groups: int


def problems(how: How) -> list[str]:
    """Returns a line for each setting of ``how`` that is not possible."""
    if how.workers in ("auto", "none") or (how.workers.isascii() and how.workers.isdecimal() and int(how.workers) > 0):
        return []
    return [f"workers = {how.workers!r}: must be auto, none or a number of processes"]


def decided(host: HostEnv, num_envs: int, each: int, how: How) -> Decided:
    """Decides how ``num_envs`` environments are stepped.

    With ``workers`` "auto" workers step them, one for each core, if a step of all takes `WORTH_SECONDS` in this
    process. With ``double_buffering`` "auto" workers step two groups, if the environments of an agent can be halved
    and each worker that the user asks for has a copy in either half.

    Args:
        host: The environment.
        num_envs: The number of all environments.
        each: The number of environments of one agent.
        how: What the user asks for.

    Raises:
        ConfigError: If environments cannot be made.
        HostError: If one fails in a step that is timed.
    """
    workers, here = 0, host.here or ("" if host.recipe.name else "it has no name that workers could import")
    if how.workers.isdecimal():
        if here:
            raise ConfigError(f"workers = {how.workers!r}: env = {host.name!r}: {here}; or use --workers none")
        workers = min(int(how.workers), num_envs)
    elif how.workers == "auto" and not (host.threaded or here) and num_envs > 1 and (cores := processes.cores()) > 1:
        with copies.keeping():
            slow = seconds_of_step(host, num_envs) >= WORTH_SECONDS
        workers = min(cores, num_envs) if slow else 0
    if workers and host.copies is not None:
        host.copies.close_spare()
    alone = how.workers.isdecimal() and workers > num_envs // 2  # halves would leave workers without a copy
    halves = how.double_buffering == "on"
    if how.double_buffering == "auto":
        halves = each % 2 == 0 and workers > 0 and not alone
    return Decided(workers, 2 if halves else 1)


def seconds_of_step(host: HostEnv, num_envs: int) -> float:
    """Estimates the seconds that a step of ``num_envs`` environments takes in this process.

    Of environments that are stepped one after another a single one is tried, in more steps. Raises `HostError` as
    `local.inline` does.
    """
    from purerl.hosts import moves  # imports Gymnasium

    alone = host.copies is not None and not host.copies.whole
    tried = 1 if alone else num_envs if host.copies is not None else min(num_envs, 4)
    times, draws = 4 * TRIED if alone else TRIED, np.random.default_rng(0)
    stepper = local.inline(host.batch(tried))
    try:
        obs, spent = stepper.reset(np.arange(tried)), 0.0
        for count in range(times + 1):
            before = time.perf_counter()
            stepper.send(moves.random(host, draws, obs))
            obs = stepper.receive().obs
            spent += time.perf_counter() - before if count else 0.0
    finally:
        stepper.close()
    return spent / times * num_envs / tried


@contextlib.contextmanager
def opened(
    host: HostEnv,
    num_envs: int,
    how: How,
    who: Decided,
    warn: Callable[[str], None],
    games: tuple[int, int] = (0, 0),
    elsewhere: bool = False,
) -> Iterator[tuple[Stepper, ...]]:
    """Opens ``num_envs`` environments within the context, and gives a `Stepper` for each group.

    Args:
        host: The environment.
        num_envs: The number of all environments.
        how: Timeout and restarts of workers.
        who: How many workers and groups there are.
        warn: ``warn(line)`` is called for each restart of a worker.
        games: The number of episodes of each environment and their limit, if they are to `Batch.play`.
        elsewhere: Whether another thread than this one steps them.

    Raises:
        ConfigError: As `pool.open` does.
    """
    if who.workers:
        with pool.open(
            host.recipe,
            num_envs,
            num_workers=who.workers,
            groups=who.groups,
            timeout=how.worker_timeout,
            max_restarts=how.worker_restarts,
            warn=warn,
            games=games,
        ) as workers:
            yield workers.steppers
        return
    with contextlib.ExitStack() as stack:
        threads, apart = who.groups > 1 or elsewhere, None
        hosts: list[Stepper] = []
        if threads and host.copies is not None:
            host.copies.close_spare()  # of this thread
            apart, host.copies.apart = host.copies.apart, None
        for size in pool.spread(num_envs, who.groups):
            make = functools.partial(host.batch, size)
            hosts.append(local.threaded(make, None if hosts else apart) if threads else local.inline(make()))
            stack.callback(hosts[-1].close)
        yield tuple(hosts)
