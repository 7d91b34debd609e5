"""How long programs took to compile the last time."""

import jax
import pytest

from purerl import backend
from purerl.runs.running import compile_times


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def test_the_latest_are_remembered(folder, monkeypatch):
    monkeypatch.setattr(compile_times, "MOST", 2)  # a bound that a test can reach
    assert compile_times.last("a") is None
    for digest, seconds in (("a", 1.0), ("b", 2.0), ("a", 3.04), ("c", 4.0)):
        compile_times.note(digest, seconds)
    assert [compile_times.last(digest) for digest in "abc"] == [3.0, None, 4.0]


def test_quick_programs_have_times_of_their_own(folder):
    compile_times.note("a", 9.0)
    with backend.compiling("quick"):
        assert compile_times.last("a") is None
        compile_times.note("a", 2.0)
        assert compile_times.last("a") == 2.0
    assert compile_times.last("a") == 9.0


@pytest.mark.parametrize("content", ["", "[1]", '{"a": "long"}', '{"a": true}'])
def test_what_is_damaged_is_nothing(folder, content):
    (folder / compile_times.NAME).write_text(content)
    assert compile_times.last("a") is None
    compile_times.note("b", 1.0)
    assert compile_times.last("b") == 1.0


def test_nothing_is_written_where_no_programs_are_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    for place in (None, str(tmp_path / "none")):
        jax.config.update("jax_compilation_cache_dir", place)
        compile_times.note("a", 1.0)
        assert compile_times.last("a") is None
    jax.config.update("jax_compilation_cache_dir", before)
    assert list(tmp_path.iterdir()) == []
