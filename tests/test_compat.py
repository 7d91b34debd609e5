"""What differs between versions of jax."""

import jax
import pytest

from purerl import backend, compat, compiler_options, quick_options


def test_options_are_those_that_the_compiler_knows():
    device = jax.devices()[0]
    assert compat.has_compiler_option(device, "xla_backend_optimization_level", 1)
    assert not compat.has_compiler_option(device, "xla_of_another_version", 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_backend_optimization_level"):
        compat.has_compiler_option(device, "xla_backend_optimization_level", "many")
    assert jax.jit(lambda x: x + 1, compiler_options=compiler_options())(1) == 2


def test_quick_options_are_those_that_the_compiler_knows():
    """Asked for alone, they are the programs' of a command, unless these are for another device."""
    assert quick_options()["xla_backend_optimization_level"] == 0
    assert jax.jit(lambda x: x + 1, compiler_options=quick_options())(1) == 2
    assert backend.compiler_options() is None
    with backend.compiling("quick"):
        assert backend.compiler_options() == quick_options()
        with backend.tracing_for("gpu"):
            assert backend.compiler_options() is None
    with backend.compiling("full"):
        assert backend.compiler_options() is None


def test_unknown_options_are_left_out(monkeypatch):
    # as another jaxlib has it
    monkeypatch.setattr(compat, "has_compiler_option", lambda device, name, value: "llvm" not in name)
    assert "xla_llvm_disable_expensive_passes" not in quick_options() and len(quick_options()) == 3
