"""The length of the chunks of a program, by a clock that a program moves."""

import pytest

from purerl.runs.running import run_loop

STEPS = 3000


def chunks(monkeypatch, fixed, of_step):
    """The steps and seconds of each chunk of a program that takes ``fixed`` seconds, and ``of_step`` for each step."""
    clock = [0.0]

    def program(state, length):
        clock[0] += fixed + of_step * int(length)
        return state, {}

    monkeypatch.setattr(run_loop.time, "perf_counter", lambda: clock[0])
    paced = run_loop.advance(program, 0, 0, STEPS, capacity=256, chunk_seconds=0.25)
    return [(chunk.length, chunk.seconds) for chunk in paced]


def test_a_copy_of_a_large_replay_for_each_chunk_costs_little(monkeypatch):
    """With chunks of a quarter of a second it took 780 s: each chunk was a copy and one step."""
    made = chunks(monkeypatch, fixed=0.25, of_step=0.01)
    assert sum(length for length, _ in made) == STEPS
    assert sum(seconds for _, seconds in made) < 1.2 * STEPS * 0.01
    assert max(seconds for _, seconds in made) <= run_loop.LONGER * 0.25


@pytest.mark.parametrize(("of_step", "length"), [(0.001, 250), (0.01, 25), (0.3, 1), (9.0, 1)])
def test_without_one_a_chunk_takes_a_quarter_of_a_second(monkeypatch, of_step, length):
    made = chunks(monkeypatch, fixed=0.0, of_step=of_step)
    assert {steps for steps, _ in made[5:-1]} <= {length, max(length - 1, 1)}  # sums of floats are rounded
    assert max(steps for steps, _ in made) <= max(length, 2)
