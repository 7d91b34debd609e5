"""Programs as they are traced for a GPU compute what those for a CPU do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import for_bits

from purerl import a2c, backend, dqn, envs, ppo, r2d2, trees
from purerl.errors import ConfigError
from purerl.learned import sockets
from purerl.learners.parts import gradients
from purerl.store import checkpoint

SMALL = {"num_envs": 4, "num_steps": 8, "hidden_sizes": (8,)}
REPLAY = {**SMALL, "total_steps": 32 * 6, "capacity": 128, "warmup_steps": 64, "batch_size": 8, "num_updates": 2}
TRAININGS = {
    "ppo": (ppo, ppo.Config(**SMALL, total_steps=32 * 4, num_minibatches=2, num_epochs=2), {}),
    "a2c": (a2c, a2c.Config(**SMALL, total_steps=32 * 4, memory="lstm", memory_size=8), {}),
    "dqn": (dqn, dqn.Config(**REPLAY), {}),
    "r2d2": (r2d2, r2d2.Config(**REPLAY, unroll=4, burn_in=2, period=2, memory_size=8), {}),
    "optimiser": (a2c, a2c.Config(**SMALL, total_steps=32 * 4), sockets.optimiser()),
}


def trained(name, platform):
    algo, config, socket = TRAININGS[name]
    parts = socket.parts(socket.init(jax.random.key(1)), config) if socket else {}
    with backend.tracing_for(platform):
        train = jax.jit(algo.make_train(config, envs.make("CartPole-v1"), **parts), compiler_options=for_bits())
        return train(jax.random.key(0))


@pytest.mark.rest
@pytest.mark.weekly("r2d2", "a2c", "dqn", "optimiser")
@pytest.mark.parametrize("name", TRAININGS)
def test_trainings_agree(name):
    """What happens is the same, and parameters are, but for the order of sums."""
    ours, theirs = trained(name, "cpu"), trained(name, "gpu")
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)
    jax.tree.map(close, ours.state.learner.params, theirs.state.learner.params)
    jax.tree.map(close, ours.metrics, theirs.metrics)
    jax.tree.map(close, ours.state.actors, theirs.state.actors)
    assert jax.tree.structure(ours.state.learner.opt_state) != jax.tree.structure(theirs.state.learner.opt_state)


def test_checkpoints_of_the_other_kind_of_device_are_refused(tmp_path):
    """Their optimisers have another state; none of it is read as something else."""
    params = {"w": jnp.ones((1, 3)), "b": jnp.ones((1, 2))}

    def state(platform):
        with backend.tracing_for(platform):
            return gradients.init_optimiser(gradients.chain(optax.scale_by_adam()), params)

    checkpoint.save(tmp_path, 1, jax.tree.map(lambda x: x.reshape(1, -1), state("gpu")), {})
    step = checkpoint.newest(tmp_path)
    with pytest.raises(ConfigError):
        checkpoint.read(step, jax.tree.map(lambda x: x.reshape(1, -1), state("cpu")), np.asarray)


def test_packing_rounds_nothing():
    """Odd bits come back, of every type, also with more axes in front."""
    words = jnp.array([[0x7FC00001, 0xFFFFFFFF], [0x80000000, 1]], jnp.uint32)
    tree = {
        "floats": jax.lax.bitcast_convert_type(words, jnp.float32),
        "words": words[:, :1],
        "counts": jnp.array([-1, 2**31 - 1]),
        "flags": jnp.array([True, False]),
        "image": jnp.arange(2 * 3 * 3).reshape(2, 3, 3) % 2 == 0,
        "bytes": jnp.arange(8, dtype=jnp.uint8).reshape(2, 4),
        "key": jax.random.split(jax.random.key(0)),
        "empty": jnp.zeros((2, 0)),
        "large": jnp.ones((2, trees.LARGE + 1)),
        "longer": jnp.arange(3.0),  # as an environment's state beside the observations of its agents
    }
    packed, unpack = trees.pack(tree)
    assert len(jax.tree.leaves(packed)) == 6  # words of 2 and of 3 rows, bools, bytes, keys, what is large
    data = lambda x: np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.extended) else x)

    def same(a, b):
        assert a.dtype == b.dtype and a.shape == b.shape and data(a).tobytes() == data(b).tobytes()

    jax.tree.map(same, tree, unpack(packed))
    again = jax.tree.map(lambda x: jnp.stack([x, x]), (tree, packed))
    jax.tree.map(same, again[0], unpack(again[1]))


def test_the_platform_is_that_of_the_default_device():
    assert backend.is_cpu() == (jax.default_backend() == "cpu")
    with backend.tracing_for("gpu"):
        assert not backend.is_cpu()
    assert backend.is_cpu() == (jax.default_backend() == "cpu")
