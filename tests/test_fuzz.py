"""A short run of scripts/fuzz.py; a release has a long one."""

import fuzz
import pytest

from purerl.errors import ConfigError
from purerl.store import guards


@pytest.mark.rest
def test_mutated_files():
    result = fuzz.fuzz(fuzz.LOADERS, 240, seed=0)
    assert not result.wrong, result.wrong[0]
    assert sum(result.counts.values()) == 240
    for loader in fuzz.LOADERS:
        assert result.counts[loader.name, "refused"] > 0
    assert sum(count for (_, outcome), count in result.counts.items() if outcome == "read") > 10


def careless(directory):
    file, size = guards.opened(directory / "summary.json")
    with file:
        return repr(file.read(size))


def crashing(directory):
    text = careless(directory)
    if "ppo" not in text:
        raise ConfigError("refused")
    return str(1 / ("512" in text))


@pytest.mark.parametrize(("load", "fault"), [(careless, "read as another value"), (crashing, "ZeroDivisionError")])
def test_faults_are_found(load, fault):
    """A loader that takes everything, and one that divides."""
    loader = fuzz.Loader("x", ("summary.json",), fuzz.make_summary, load, seal=lambda directory: None)
    assert any(fault in line for line in fuzz.fuzz([loader], 200, seed=0).wrong)
