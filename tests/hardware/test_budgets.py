"""What one iteration of every algorithm takes on a GPU, held to a table: `scripts/budgets.py` writes it."""

import json

import jax
import pytest
from budgets import TABLE, TARGET, usage

from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.hardware import absent

BUDGETS = json.loads(TABLE.read_text())
MEASURED = (0, 10)
"""The version of jax whose compiler the table was measured with."""


@pytest.fixture(scope="module")
def target():
    """Something that compiles for GPUs, or a reason to skip."""
    try:
        return absent.device(TARGET)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_stays_within_its_budget(algo, target):
    """It compiles, and takes no more than the table says; nor much less, so that the table stays true."""
    now, budget = usage(algo), BUDGETS[algo]
    if jax.__version_info__[:2] == MEASURED:
        assert all(0.9 * budget[name] <= now[name] <= 1.02 * budget[name] for name in budget), (now, budget)
