"""How long programs took to compile the last time."""

import jax
import pytest

from purerl import backend
from purerl.runs.describing import machine


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def test_the_latest_are_remembered(folder, monkeypatch):
    monkeypatch.setattr(machine, "MOST", 2)  # a bound that a test can reach
    assert machine.last_compile_time("a") is None
    for digest, seconds in (("a", 1.0), ("b", 2.0), ("a", 3.04), ("c", 4.0)):
        machine.note_compile_time(digest, seconds)
    assert [machine.last_compile_time(digest) for digest in "abc"] == [3.0, None, 4.0]


def test_quick_programs_have_times_of_their_own(folder):
    machine.note_compile_time("a", 9.0)
    with backend.compiling("quick"):
        assert machine.last_compile_time("a") is None
        machine.note_compile_time("a", 2.0)
        assert machine.last_compile_time("a") == 2.0
    assert machine.last_compile_time("a") == 9.0


@pytest.mark.parametrize("content", ["", "[1]", '{"a": "long"}', '{"a": true}'])
def test_what_is_damaged_is_nothing(folder, content):
    (folder / machine.COMPILE_TIMES).write_text(content)
    assert machine.last_compile_time("a") is None
    machine.note_compile_time("b", 1.0)
    assert machine.last_compile_time("b") == 1.0


def test_nothing_is_written_where_no_programs_are_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    for place in (None, str(tmp_path / "none")):
        jax.config.update("jax_compilation_cache_dir", place)
        machine.note_compile_time("a", 1.0)
        assert machine.last_compile_time("a") is None
    jax.config.update("jax_compilation_cache_dir", before)
    assert list(tmp_path.iterdir()) == []
