"""A plugin for GPUs where there is none is not loaded."""

import os
import subprocess
import sys

import jax
import pytest

from purerl.cli import machine
from purerl.hardware import drivers
from purerl.population import devices
from purerl.runs.describing.options import MachineOptions


@pytest.mark.parametrize(
    ("plugin", "driver", "chosen", "lacks", "only_cpu"),
    [
        (True, False, False, True, True),
        (True, True, False, False, False),
        (True, False, True, False, True),
        (True, True, True, False, True),
        (False, False, False, False, True),
    ],
)
def test_a_plugin_without_a_gpu_is_not_asked_for_devices(
    plugin, driver, chosen, lacks, only_cpu, monkeypatch, tmp_path
):
    monkeypatch.setattr(drivers, "CUDA_PLUGINS", ("json",) if plugin else ("no_such_plugin",))
    monkeypatch.setattr(drivers, "DRIVERS", (tmp_path if driver else tmp_path / "none",))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu") if chosen else monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert (drivers.lacks_gpu(), drivers.has_only_cpu()) == (lacks, only_cpu)


@pytest.mark.parametrize(
    ("only_cpu", "options", "target", "one"),
    [
        (True, {}, "", True),
        (False, {"device": "cpu"}, "", True),
        (False, {}, "", False),
        (False, {"threads": "one"}, "", True),
        (True, {}, "h200", False),
    ],
    ids=["a CPU", "a CPU beside a GPU", "a GPU", "a GPU and one thread", "a GPU that is not there"],
)
def test_all_threads_compile_for_a_gpu(only_cpu, options, target, one, monkeypatch):
    called = []
    for name in ("use_one_thread", "use_cpu_cores"):
        monkeypatch.setattr(devices, name, lambda name=name: called.append(name))
    monkeypatch.setattr(drivers, "has_only_cpu", lambda: only_cpu)
    machine.choose_devices(MachineOptions(**options), target, small=True)
    assert called == ["use_one_thread" if one else "use_cpu_cores"]


def test_programs_for_an_absent_gpu_are_not_kept():
    """JAX would write them, and warn of each that it cannot read them back."""
    before = jax.config.jax_enable_compilation_cache
    try:
        with machine.prepared(MachineOptions(), target="h200"):
            assert not jax.config.jax_enable_compilation_cache
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


@pytest.mark.rest
def test_a_command_loads_no_plugin_without_a_driver(tmp_path):
    """One that would say so is there, but is not imported; what the command asks JAX for is the CPU."""
    (tmp_path / "jax_cuda12_plugin").mkdir()
    (tmp_path / "jax_cuda12_plugin" / "__init__.py").write_text("raise SystemExit('imported')")
    code = (
        "import pathlib; from purerl.hardware import drivers; drivers.DRIVERS = (pathlib.Path('none'),)\n"
        "from purerl.cli import entry; entry(['check-env', 'Catch-bsuite', '--steps', '1', '--device', 'cpu'])"
    )
    env = {name: x for name, x in os.environ.items() if name != "JAX_PLATFORMS"}
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "") and "passes all checks" in result.stdout
