"""What members are given, on several devices."""

import jax
import jax.numpy as jnp
import pytest

from purerl.population import layouts


@pytest.mark.parametrize("per_agent", [1, 2])
def test_empty_arrays_on_several_devices(per_agent):
    """Of members, of their states, whole and in shards, and of all: jaxlib 0.11.2 crashes on operands of `shard_map`
    that are empty."""

    def function(given, state, shared):
        count, nothing, shard = state
        return (count + given["by"] + shared.size, nothing, shard), jnp.concatenate([given["none"], shared])

    layout = layouts.layout(4, jax.devices()[:4], per_agent=per_agent)
    given = {"by": jnp.arange(4), "none": jnp.zeros((4, 0, 2))}
    state = jnp.arange(4), jnp.zeros((4, 3, 0)), jnp.zeros((4, per_agent, 0), jnp.int8)
    place = lambda tree: jax.tree.map(lambda x: jax.device_put(x, layout.sharding), tree)
    spread = layouts.spread(function, layout, ((False, False, True), False))
    after, out = jax.jit(spread)(place(given), place(state), jnp.zeros((0, 2)))
    assert after[0].tolist() == [0, 2, 4, 6]
    assert [(x.shape, x.dtype) for x in after[1:]] == [(x.shape, x.dtype) for x in state[1:]]
    assert out.shape == (4, 0, 2)
