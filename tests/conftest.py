"""Settings for every test: no silent broadcasting, eight devices to shard over, quick compiling, shared programs."""

import gc
import os
import tempfile
from pathlib import Path

import compiling

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share that of the process that starts them
    CACHE = tempfile.TemporaryDirectory()  # of compiled programs, gone with the tests: not the one in a person's home
    os.environ["JAX_COMPILATION_CACHE_DIR"] = CACHE.name
    os.environ["XLA_FLAGS"] = compiling.flags()

if not Path("/dev/nvidia0").exists():  # where JAX's CUDA plugin may be installed all the same, to compile with
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # also for the processes that tests start

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 8)


LONG = (
    "population",
    "search",
    "cli",
    "documentation",
    "resume",
    "spaces",
    "conformance",
    "sockets",
    "policy_gradients",
    "evolution",
    "meta_gradient",
    "record",
    "value_based",
    "networks",
    "many_agents",
    "check_env",
    "exports",
    "drawings",
)
"""Files that take long: these come first, so that no process is left with one of them at the end."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Keeps tests that share compiled programs in one process: those of a file, or of one of its algorithms."""
    rank = {f"test_{name}": i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONG)))
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        algorithm = params.get("row", params.get("everyone"))
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{algorithm}"))


def pytest_collection_finish():
    """What is imported by now stays, so the garbage collector need not look at it over and over."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 100)


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
