"""Acting with policies as plain functions, and trainings in chunks from Python."""

import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import at_random, for_bits

from purerl import ConfigError, a2c, envs, loops, td3, train_in_chunks
from purerl.runs.reading import loading
from purerl.runs.reading.choosing import Choice
from purerl.runs.running import device_program
from purerl.runs.running.from_python import Acting
from purerl.spaces import Discrete
from purerl.types import Situation

CARTPOLE, PENDULUM = envs.make("CartPole-v1"), envs.make("Pendulum-v1")
SMALL = {"hidden_sizes": (8,), "num_envs": 2, "num_steps": 8, "total_steps": 160}


def agent(env, config, key, algo=a2c):
    """An agent of a run, with a policy at random, and its learner."""
    learner = algo.make_learner(config, env)
    _, obs = jax.eval_shape(jax.vmap(env.reset), jax.random.split(key, 2))
    obs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), obs)
    policy = at_random(lambda key: learner.policy(learner.init(key, obs)), key)
    return loading.Agent({"algo": "a2c"}, {}, {}, env, learner, policy, "", Choice(Path(), 0, (Path(), 0), "0"))


def test_a_memory_goes_on_and_is_reset(key):
    """Row by row what the learner does, its carry handed on; a lone row has the actions of its row in the batch."""
    of = agent(CARTPOLE, a2c.Config(**SMALL, memory="gru", memory_size=8), key)
    act, alone = Acting(of), Acting(of)
    inputs = np.random.default_rng(0).normal(size=(12, 3, 4)) * 3
    carry, result = of.learner.init_carry(3), []
    exploit = jax.jit(of.learner.exploit)
    for i, obs in enumerate(inputs):
        if i == 6:
            act.reset([False, True, False])
            carry = jax.tree.map(lambda x: x.at[1].set(0.0), carry)
        action, carry = exploit(of.policy, Situation(jnp.asarray(obs, jnp.float32), carry), key)
        result.append(act(obs))
        np.testing.assert_array_equal(result[-1], action)
        assert alone(obs[0]) == action[0] and np.ndim(result[-1]) == 1
    with pytest.raises(ConfigError, match=r"obs: 2 rows, but the memory has 3; call reset\(\)"):
        act(inputs[0, :2])
    act.reset()
    np.testing.assert_array_equal(act(inputs[0]), result[0])


def test_what_only_exploring_remembers_does_not_bind_the_rows(key):
    """Such as the size of an environment's noise: of any batch the actions are those of its rows alone."""
    config = td3.Config(hidden_sizes=(8,), noise_deviation=0.1, noise_deviation_max=0.5)
    act, obs = Acting(agent(PENDULUM, config, key, td3)), np.eye(3)
    several = act(obs)
    np.testing.assert_allclose([act(row) for row in obs], several, rtol=1e-6)


def test_dicts_of_observations_and_wrong_shapes(key):
    space = {"image": envs.make("Breakout-MinAtar").observation_space, "hint": Discrete(3)}
    env = CARTPOLE._replace(
        observation_space=space,
        begin=lambda level: ((), {"image": jnp.zeros((10, 10, 4), bool), "hint": jnp.zeros((), jnp.int32)}),
    )
    act = Acting(agent(env, a2c.Config(**SMALL), key))
    one = {"image": np.zeros((10, 10, 4)), "hint": 1}
    many = {"image": np.zeros((5, 10, 10, 4)), "hint": np.arange(5) % 3}
    assert act(one) in (0, 1) and act(one).shape == () and act(many).shape == (5,)
    for bad, line in (
        ({"image": one["image"]}, "obs: must be PyTreeDef"),
        ({**one, "image": np.zeros((9, 10, 4))}, r"obs.image: must be \[10, 10, 4\] or a batch"),
        ({**many, "hint": np.zeros(4)}, r"obs\.image: must be \[10, 10, 4\]"),
        ({**many, "image": np.zeros((2, 5, 10, 10, 4))}, "obs.image: must be"),
    ):
        with pytest.raises(ConfigError, match=line):
            act(bad)
    with pytest.raises(ConfigError, match=r"obs: must be \[4\] or a batch of these"):
        Acting(agent(CARTPOLE, a2c.Config(**SMALL), key))(np.zeros(3))


@pytest.mark.weekly
def test_chunks_are_the_scan(key, monkeypatch):
    """In every bit, however they are cut; and a callback may end them."""
    trainer = a2c.make_trainer(a2c.Config(**SMALL), CARTPOLE)
    compiled = types.SimpleNamespace(jit=lambda f, **more: jax.jit(f, **more, compiler_options=for_bits()))
    monkeypatch.setattr("purerl.runs.running.from_python.jax", types.SimpleNamespace(jit=compiled.jit))
    whole = compiled.jit(loops.train(trainer, 10))(key)
    seen = []
    result = train_in_chunks(trainer, key, 10, lambda state, metrics: seen.append(len(metrics["loss"])), every=4)
    assert sum(seen) == 10 and {4, 8} <= set(np.cumsum(seen).tolist())
    jax.tree.map(np.testing.assert_array_equal, result.metrics, whole.metrics)
    data = lambda x: jax.random.key_data(x) if x.dtype == key.dtype else x
    same = lambda a, b: np.testing.assert_array_equal(data(a), data(b))
    jax.tree.map(same, result.state, whole.state)
    assert len(train_in_chunks(trainer, key, 10, lambda *_: True).metrics["loss"]) == 1 and device_program.CAPACITY > 10
