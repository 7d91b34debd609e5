"""Precisions: what products and layers compute in, with kernels and without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import backend, kernels, networks
from purerl.cli.machine import prepared
from purerl.runs.describing import config_file
from purerl.runs.describing.options import TrainOptions

PRODUCTS = {"auto": "None", "float32": "HIGHEST", "tf32": "HIGH", "bfloat16": "None"}


def network():
    """A policy network, its parameters and observations."""
    head = networks.Head(networks.MLP((32, 32)), 3, 1.0)
    obs = jax.random.normal(jax.random.key(1), (48, 4))
    return head, head.init(jax.random.key(0), obs), obs


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


def test_a_kernel_rounds_as_the_plain_program_does():
    """In bfloat16, outputs and gradients of float32 parameters; and they are near those of float32."""
    head, params, obs = network()

    def step(params, obs):
        loss = lambda params: jnp.mean(jnp.square(head.apply(params, obs)))
        value, gradient = jax.value_and_grad(loss)(params)
        return gradient, (value, head.apply(params, obs))

    def computed(precision, setting):
        with backend.precise(precision), kernels.using(setting):
            return jax.jit(lambda *args: kernels.fuse(step, "step")(*args))(params, obs)

    exact, plain = computed("float32", kernels.OFF), computed("bfloat16", kernels.OFF)
    ours = computed("bfloat16", kernels.INTERPRETED)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(ours))
    apart = lambda a, b: max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.abs(x - y).max()), a, b)))
    assert 0 < apart(exact, plain) < 0.05 and apart(plain, ours) < 0.02


def test_runs_record_it(tmp_path):
    options = TrainOptions(env="CartPole-v1", precision="bfloat16", kernels="off", compilation_cache="off")
    with prepared(options):
        assert backend.activations() == jnp.bfloat16
        with kernels.for_devices("gpu"):
            assert kernels.setting() == kernels.OFF
    assert backend.activations() is None
    assert {"precision", "kernels"} <= set(config_file.RECORDED)
