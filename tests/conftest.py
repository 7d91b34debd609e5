"""Settings for every test: no silent broadcasting, and programs shared between tests."""

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def key():
    return jax.random.key(0)
