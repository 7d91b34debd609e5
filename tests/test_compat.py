"""What differs between versions of jax."""

import jax
import pytest

from purerl import compat, compiler_options


def test_options_are_those_that_the_compiler_knows():
    device = jax.devices()[0]
    assert compat.has_compiler_option(device, "xla_backend_optimization_level", 1)
    assert not compat.has_compiler_option(device, "xla_of_another_version", 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_backend_optimization_level"):
        compat.has_compiler_option(device, "xla_backend_optimization_level", "many")
    assert jax.jit(lambda x: x + 1, compiler_options=compiler_options())(1) == 2
