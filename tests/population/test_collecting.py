"""Rollouts that are collected ahead, without environments."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from purerl.population.collecting import SHARES, Closed, Collector


class Acting:
    """Waits in each rollout until it is let go."""

    def __init__(self):
        self.begun, self.go_on, self.count = threading.Event(), threading.Event(), 0
        self.breakable = contextlib.nullcontext()

    def collect(self, behaviour, version, key):
        self.count += 1
        self.begun.set()
        assert self.go_on.wait(10)
        return SimpleNamespace(next_key=key, version=version, seconds=dict.fromkeys(SHARES, 0.0))


def test_a_collector_that_is_closed_ends_its_rollout_and_begins_no_other():
    actor = Acting()
    collector = Collector(actor, "behaviour", 0, "key", 9, ahead=3)
    assert actor.begun.wait(10)
    closing = threading.Thread(target=collector.close)
    closing.start()
    while not collector.closed:
        pass
    actor.go_on.set()
    closing.join(10)
    assert not closing.is_alive() and actor.count == 1
    assert collector.next().version == 0
    with pytest.raises(Closed):
        collector.next()


def test_no_more_is_collected_than_was_asked_for():
    actor = Acting()
    actor.go_on.set()
    collector = Collector(actor, "behaviour", 0, "key", 3, ahead=1)
    versions = []
    for version in (1, 2, 3):
        versions.append(collector.next().version)
        collector.learned("behaviour", version)
    collector.close()
    assert versions == [0, 0, 1] and actor.count == 3
