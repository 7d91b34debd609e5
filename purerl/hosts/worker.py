"""A process that steps environments for another: ``python -m purerl.hosts.worker JSON``. Needs no JAX.

It reads commands of one byte from a pipe (`messages.command`) and answers each on the pipe of its group, with one byte
or with a line. Arrays lie in shared memory. It ends when the pipe does, and at once when the process that started it is
gone. What environments print goes to the standard error.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import threading
import time
from typing import Any, NoReturn

from purerl.hosts.messages import (
    CLOSING,
    DONE,
    ENDED,
    HUNG,
    INTERRUPT,
    INVALID,
    MAP,
    RAISED,
    READY,
    REFUSED,
    TOLD,
    Share,
)


class _Hung(BaseException):
    """An interruption, raised wherever the worker is when it has taken too long."""


def main() -> None:
    """Makes the environments, and steps them until there is nothing left to read."""
    share = Share(**json.loads(sys.argv[1]))
    end_with(share.life)
    for fd in (share.memory, share.inbox, *share.replies):
        os.set_inheritable(fd, False)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(INTERRUPT, _interrupt)
    with contextlib.suppress(BrokenPipeError, _Hung):  # the parent process is gone
        _serve(share)


def _serve(share: Share) -> None:
    # slow imports, so after `end_with`
    from purerl.errors import ConfigError, one_line, own_code
    from purerl.hosts import copies, memory
    from purerl.hosts.making import found, make

    try:
        with own_code(), copies.remembering():
            if share.scout:
                with copies.planned(share.scout):
                    described = _described(found(share.name, share.params))
                os.write(share.replies[0], READY + json.dumps(described).encode() + b"\n")
                order = _line(share.inbox)
                if not order:
                    copies.close_all()
                    return
                share = share._replace(**json.loads(order))
            sizes = [stop - start for start, stop in share.rows]
            with copies.planned(sizes[0]):
                env = make(share.name, share.params)
            batches = [env.batch(size) for size in sizes]
            layout = _layout(env)
    except ConfigError as error:
        _end(share.replies[0], REFUSED, str(error))
    except BaseException as error:
        _end(share.replies[0], RAISED, one_line(error))
    os.write(share.replies[0], READY + json.dumps(layout).encode() + b"\n")
    if os.read(share.inbox, 1) == MAP:
        shared = memory.mapped(share.memory, layout, share.sizes, share.workers, share.games[0])
        _step(share, batches, shared)
    os.write(share.replies[0], CLOSING)
    for batch in batches:
        with contextlib.suppress(Exception):  # of a user's own `HostEnv`
            batch.close()
    copies.close_all()


def _described(environment: Any) -> dict[str, Any]:
    """Returns the fields of a `HostEnv` of which there are copies, for JSON; none for anything else."""
    from purerl.hosts import told

    if getattr(environment, "copies", None) is None:
        return {}
    fields = {each: getattr(environment, each) for each in told.FIELDS}
    return fields | {each: told.words(getattr(environment, each)) for each in told.SPACES}


def _line(inbox: int) -> bytes:
    """Reads a line; empty if the pipe ends."""
    line = b""
    while not line.endswith(b"\n"):
        if not (more := os.read(inbox, 1)):
            return b""
        line += more
    return line


def _layout(env: Any) -> Any:
    """Returns the `memory.Layout` of a `HostEnv`, given by its spaces."""
    from purerl.hosts.leaves import flat, wire
    from purerl.hosts.memory import Layout

    agents = (env.num_agents,) if env.num_agents > 1 else ()
    shape, dtype = wire(env.action_space)
    obs = tuple(((*agents, *leaf.shape), leaf.dtype.str) for leaf in flat(env.observation_space))
    obs += ((agents, "|b1"),) if env.seats else ()
    return Layout(((*agents, *shape), dtype), agents, obs)


def _step(share: Share, batches: list[Any], shared: Any) -> None:
    """Executes commands until the inbox ends."""
    import numpy as np

    from purerl.errors import one_line, place
    from purerl.hosts.sound import InvalidData, sound_obs, sound_turn, who

    time_of = [0] * len(batches)
    groups = [
        type(group)(*(_rows(x, slice(*rows)) for x in group))
        for group, rows in zip(shared.groups, share.rows, strict=True)
    ]
    while order := os.read(share.inbox, 1):
        number, slot, begins = order[0] >> 2, order[0] >> 1 & 1, order[0] & 1
        shared.began[share.worker] = time.monotonic()
        own, batch, first, answer = groups[number], batches[number], share.first[number], DONE
        time_of[number] = 0 if begins else time_of[number] + 1
        try:
            if begins:
                seeds, (count, limit) = own.seeds.copy(), share.games
                obs = sound_obs(batch.play(seeds, limit) if count else batch.reset(seeds), own.obs[slot], first)
            else:
                turn = sound_turn(batch.step(own.action.copy()), own.reward.shape, own.obs[slot], first)
                obs, last = turn.obs, turn.last
                own.reward[:], own.terminated[:], own.truncated[:] = turn.reward, turn.terminated, turn.truncated
                if share.games[0] or np.count_nonzero(last):  # a limit ends an episode without a flag
                    answer, which = ENDED, last.reshape(len(last), -1).any(axis=1) | bool(share.games[0])
                    for x, y in zip(own.next_obs, turn.next_obs, strict=True):
                        x[which] = y[which]
                    if turn.told:
                        answer = TOLD + json.dumps(turn.told).encode() + b"\n"
            for x, y in zip(own.obs[slot], obs, strict=True):
                x[...] = y
        except _Hung as error:
            _end(share.replies[number], HUNG, place(error) or place(error, installed=True))
        except InvalidData as error:
            _end(share.replies[number], INVALID, f"{error.after(first)}{_when(time_of[number])}")
        except BaseException as error:
            _end(share.replies[number], RAISED, f"{one_line(error)} in {who(error, first)}{_when(time_of[number])}")
        os.write(share.replies[number], answer)


def _when(time: int) -> str:
    return f" at step {time}" if time else " in reset"


def _rows(x: Any, rows: slice) -> Any:
    """Returns the rows of an array, or of each in a tuple."""
    return tuple(_rows(each, rows) for each in x) if isinstance(x, tuple) else x[rows]


def _end(reply: int, kind: bytes, text: str) -> NoReturn:
    """Tells why the worker ends, and ends it. Unless it hangs it closes its environments first."""
    if kind != HUNG:
        from purerl.hosts import copies

        copies.close_all()
    with contextlib.suppress(BrokenPipeError):
        os.write(reply, kind + json.dumps(text).encode() + b"\n")
    os._exit(1)


def _interrupt(*_: Any) -> None:
    raise _Hung


def end_with(life: int) -> None:
    """Ends this process, which leads its group, once the other end of a socket is closed.

    On Linux the kernel ends it, whatever the process does at that moment, and with it the processes that it has
    started.
    """
    os.set_inheritable(life, False)
    if not hasattr(fcntl, "F_SETSIG"):
        threading.Thread(target=lambda: (os.read(life, 1), os._exit(1)), daemon=True).start()
        return
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:  # the parent closed it already
        os._exit(1)


if __name__ == "__main__":
    from purerl.hosts import worker

    worker.main()  # under the module's own name, by which `place` recognises its frames
