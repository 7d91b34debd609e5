"""Settings for every test: no silent broadcasting, eight devices to shard over, and programs shared between tests."""

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="session")
def key():
    return jax.random.key(0)
