"""Settings for every test: no silent broadcasting, eight devices to shard over, quick compiling, shared programs, and
which tests ``pytest`` runs, and which it leaves to ``pytest --rest`` and ``pytest --weekly``."""

import contextlib
import ctypes
import gc
import os
import tempfile
from pathlib import Path

import compiling

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share that of the process that starts them
    CACHE = tempfile.TemporaryDirectory()  # of compiled programs, gone with the tests: not the one in a person's home
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ.get("PURERL_TEST_PROGRAMS", CACHE.name)
    os.environ["XLA_FLAGS"] = compiling.flags()
    os.environ["XDG_STATE_HOME"] = str(Path(CACHE.name) / "state")  # what tests trust

if not Path("/dev/nvidia0").exists():  # where JAX's CUDA plugin may be installed all the same, to compile with
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # also for the processes that tests start

import jax  # noqa: E402
import psutil  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 8)


LONG = (
    "conformance",
    "population",
    "search",
    "minatar",
    "policy_gradients",
    "documentation",
    "cli",
    "spaces",
    "resume",
    "gymnax",
    "sockets",
    "meta_gradient",
    "evolution",
    "growing",
    "wrappers",
    "value_based",
    "envs",
    "replay",
    "shaping",
    "record",
    "programs",
    "networks",
    "fleet",
)
"""Files that take long: these come first, so that no process is left with one of them at the end."""


LEFT_OUT = "weekly", "rest"
"""Markers of tests that ``pytest`` leaves out. What has both is weekly."""

MOST_BYTES = 6 * 2**27
"""Memory of a process beyond which it forgets programs."""


def pytest_addoption(parser):
    parser.addoption("--rest", action="store_true", help="run only the tests with the marker rest")
    parser.addoption("--weekly", action="store_true", help="run only the tests with the marker weekly")
    parser.addoption("--all-tests", action="store_true", help="run all tests")


def pytest_configure(config):
    for name in LEFT_OUT:
        line = f"{name}(*parts): is left to `pytest --{name}`, or where its id has one of the parts"
        config.addinivalue_line("markers", line)
    config.addinivalue_line("markers", "xdist_group: of pytest-xdist, which need not be there")


def group(item):
    """Tests that share compiled programs, run by one process: those of a file, or of one of its algorithms."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return f"{item.path.stem}-{params.get('row', params.get('everyone'))}"


def left_to(item):
    """The option by which a test runs, ``rest`` or ``weekly``, or none if ``pytest`` runs it. What takes long is left
    out, if others like it are not."""
    name = item.callspec.id if hasattr(item, "callspec") else ""
    for marker in filter(None, map(item.get_closest_marker, LEFT_OUT)):
        if not marker.args or any(part in name for part in marker.args):
            return marker.name
    return ""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config, items):
    """Leaves out what is not asked for, and puts long files first."""
    named = any("::" in arg for arg in config.args)
    if not named and not config.getoption("all_tests"):
        asked = next(filter(config.getoption, LEFT_OUT), "")
        out = [item for item in items if left_to(item) != asked]
        items[:] = [item for item in items if left_to(item) == asked]
        config.hook.pytest_deselected(items=out)
    rank = {f"test_{name}": i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONG)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))


def pytest_collection_finish():
    """What is imported by now stays, so the garbage collector need not look at it over and over."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 100)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Forgets the programs of a group with its last test once the process is large, so that a laptop can run two."""
    over = nextitem is None or group(item) != group(nextitem)
    if over and psutil.Process().memory_info().rss > MOST_BYTES:
        for value in vars(item.module).values():
            if callable(getattr(value, "cache_clear", None)):
                value.cache_clear()
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(AttributeError):  # which not every C library has
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def key():
    return jax.random.key(0)


@pytest.fixture
def as_shipped(monkeypatch):
    """What is compiled ahead of time is compiled as a user's programs are: for claims about their bits."""
    compile_quickly = jax.stages.Lowered.compile

    def compile(lowered, compiler_options=None, **options):
        return compile_quickly(lowered, compiling.AS_SHIPPED | (compiler_options or {}), **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile)
