"""Files that were written before, one of each format in ``written/``, are read."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.errors import ConfigError
from purerl.learned import artefacts
from purerl.store import card_files, checkpoint, policies

WRITTEN = Path(__file__).parent / "written"


def test_each_format_has_its_file():
    formats = f"checkpoint-{checkpoint.FORMAT}", f"policy-{policies.FORMAT}", f"artefact-{artefacts.FORMAT}.json"
    refused = {"checkpoint-3"}
    assert {*formats, f"dataset-{card_files.FORMAT}.safetensors"} | refused == {path.name for path in WRITTEN.iterdir()}


def test_checkpoint():
    like = {
        "mean": jnp.zeros(5),
        "words": jnp.zeros(3, jnp.uint32),
        "count": (jnp.int32(0), jnp.bool(0)),
        "key": jax.random.key(0),
        "keys": jax.random.split(jax.random.key(0), 3),
        "nothing": jnp.zeros((0, 3)),
        "half": jnp.zeros(2, jnp.bfloat16),
        "none": None,
    }
    step = checkpoint.newest(WRITTEN / "checkpoint-5", strict=True)
    state = checkpoint.read(step, like)
    np.testing.assert_array_equal(state["mean"], np.arange(5.0) + 12)
    assert jnp.all(jax.random.key_data(state["key"]) == jax.random.key_data(jax.random.key(12)))
    assert step.about["frames"] == 10**11 + 7 and bool(state["count"][1]) and state["half"][0] == 12


def test_older_checkpoints_are_refused():
    """In a line, and not as damaged."""
    with pytest.raises(
        ConfigError, match="12: format 3, expected 5; resume it by the version that saved it$"
    ) as raised:
        checkpoint.newest(WRITTEN / "checkpoint-3")
    assert not isinstance(raised.value, checkpoint.Damaged)


def test_policy():
    like = {"torso": jnp.zeros((2, 3)), "count": jnp.zeros(2, jnp.int32), "empty": jnp.zeros((2, 0))}
    document = policies.load_description(WRITTEN / "policy-3")
    policy = policies.load_policy(WRITTEN / "policy-3", document, like)
    np.testing.assert_array_equal(policy["torso"], np.arange(6.0).reshape(2, 3))
    assert document["sizes"] == [4, 4]


def test_artefact():
    result = artefacts.load(WRITTEN / "artefact-1.json")
    assert result.socket == "vtrace-weight" and result.card == {"algo": "impala", "note": "fixture"}
    np.testing.assert_allclose(
        sum(jnp.sum(jnp.abs(x)) for x in jax.tree.leaves(result.meta_params)), 54.133007, rtol=1e-6
    )
