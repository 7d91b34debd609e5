"""Precisions: what products and layers compute in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import backend, networks
from purerl.cli.machine import prepared
from purerl.networks.batch_renorm import STATISTICS, RenormMLP
from purerl.runs.describing import config_file
from purerl.runs.describing.options import TrainOptions

PRODUCTS = {"auto": "None", "float32": "HIGHEST", "tf32": "HIGH", "bfloat16": "None"}


def network():
    """A policy network, its parameters and observations."""
    head = networks.Head(networks.MLP((32, 32)), 3, 1.0)
    obs = jax.random.normal(jax.random.key(1), (48, 4))
    return head, head.init(jax.random.key(0), obs), obs


@pytest.mark.rest
@pytest.mark.parametrize("precision", PRODUCTS)
def test_what_a_program_computes_in(precision):
    head, params, obs = network()
    with backend.precise(precision):
        made = jax.make_jaxpr(head.apply)(params, obs)
        result = str([eqn.params["precision"] for eqn in made.eqns if eqn.primitive.name == "dot_general"][0])
    assert PRODUCTS[precision] in result and ("HIGHEST" in result) == (precision == "float32")
    assert made.out_avals[0].dtype == jnp.float32  # heads stay as they are
    assert ("bf16" in str(made)) == (precision == "bfloat16")
    assert str(jax.make_jaxpr(head.apply)(params, obs)) == str(jax.make_jaxpr(lambda *x: head.apply(*x))(params, obs))


@pytest.mark.rest
def test_bfloat16_rounds_outputs_and_gradients_of_float32_parameters():
    head, params, obs = network()

    def computed(precision):
        loss = lambda params: jnp.mean(jnp.square(head.apply(params, obs)))
        with backend.precise(precision):
            return jax.jit(lambda params: (head.apply(params, obs), jax.grad(loss)(params)))(params)

    exact, rounded = computed("float32"), computed("bfloat16")
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(rounded))
    assert 0 < max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.abs(x - y).max()), exact, rounded))) < 0.05


def test_statistics_of_layers_in_bfloat16_are_float32():
    module, obs = RenormMLP((32,), jax.nn.relu, 0), jax.random.normal(jax.random.key(1), (48, 4))
    params = module.init(jax.random.key(0), obs)

    def computed(precision):
        with backend.precise(precision):
            return jax.jit(lambda params: module.apply(params, obs, mutable=[STATISTICS]))(params)

    exact, rounded = computed("float32"), computed("bfloat16")
    assert [x.dtype for x in jax.tree.leaves(rounded)] == [x.dtype for x in jax.tree.leaves(exact)]
    assert 0 < float(np.abs(exact[0] - rounded[0]).max()) < 0.05


def test_runs_record_it():
    with prepared(TrainOptions(env="CartPole-v1", precision="bfloat16", compilation_cache="off")):
        assert backend.activations() == jnp.bfloat16
    assert backend.activations() is None
    assert "precision" in config_file.RECORDED
