"""Networks that are looked at learn the same, and what is seen is what a forward pass by hand gives."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs, ippo, ppo
from purerl.algos import ALGORITHMS
from purerl.formulas import activations
from purerl.learners.wrappers import diagnostics
from purerl.networks import MLP, Head
from purerl.types import Learner, Outcome, Sample, Situation, Transition, Updated

SMALL = {"num_envs": 2, "num_steps": 8, "total_steps": 1024, "hidden_sizes": (16, 8)}
REPLAY = {**SMALL, "capacity": 512, "warmup_steps": 256, "batch_size": 8}
CONFIGS = {
    "a2c": {**SMALL, "memory": "gru"},
    "dqn": REPLAY,
    "r2d2": {**REPLAY, "unroll": 5, "burn_in": 0, "period": 4},
}


@pytest.mark.rest
@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_can_be_looked_at(name):
    """Traced: two more metrics, and a state of the same shapes."""
    algo, env = ALGORITHMS[name], envs.make("CartPole-v1")
    looked = algo.wrapped(diagnostics.diagnostics)

    def traced(algo):
        trainer = algo.make_trainer(algo.Config(**CONFIGS[name]), env)
        return jax.eval_shape(trainer.step, jax.eval_shape(trainer.init, jax.random.key(0)))

    (plain, before), (state, metrics) = traced(algo), traced(looked)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), plain) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert set(metrics) == {*before, "dormant_units", "feature_rank"}


@pytest.mark.rest
def test_what_is_learned_stays(key):
    """A learner of one layer, half of whose units are dead, on policy and off policy."""
    network = Head(MLP((4,), nn.relu), size=2, scale=1.0)
    params = network.init(key, jnp.zeros((1, 3)))
    kernel = params["params"]["torso"]["Dense_0"]["kernel"].at[:, :2].set(0.0)
    params["params"]["torso"]["Dense_0"]["kernel"] = kernel
    exploit = lambda policy, here, key: (network.apply(policy, here.obs), here.carry)
    parts = lambda update: Learner(None, lambda num: (), None, None, None, lambda state: state, exploit, update)
    obs = jax.random.normal(key, (5, 6, 3))
    trajectory = Transition(obs, *[jnp.zeros((5, 6))] * 4, (), ())
    on = diagnostics.diagnosed(parts(lambda *_: Updated(params, {"loss": 1}, ())))
    state, metrics, _ = on.update(None, trajectory, key)
    assert state is params and metrics["loss"] == 1 and metrics["dormant_units"] == 0.5
    features = np.maximum(np.asarray(obs).reshape(-1, 3) @ np.asarray(kernel), 0)
    np.testing.assert_allclose(metrics["feature_rank"], activations.effective_rank(jnp.asarray(features)), rtol=1e-5)
    sample = Sample(Outcome(obs[0], *[jnp.zeros(6)] * 6), *[jnp.zeros(6)] * 3)
    off = diagnostics.diagnosed(parts(lambda *_: Updated(params, {}, "priority")))
    state, metrics, priority = off.update(None, sample, key)
    assert state is params and priority == "priority" and metrics["dormant_units"] == 0.5


def test_layers_of_an_actor_are_those_of_a_walk_by_hand():
    learner = ppo.make_learner(ppo.Config(hidden_sizes=(16, 8)), envs.make("CartPole-v1"))
    obs = jax.random.normal(jax.random.key(1), (5, 4))
    state = learner.init(jax.random.key(0), obs)
    forward = lambda: learner.exploit(learner.policy(state), Situation(obs, ()), jax.random.key(2))
    result = diagnostics.hidden(forward, 5)
    torso = state.params["actor"]["params"]["torso"]
    x, expected = np.asarray(obs, np.float64), []
    for name in ("Dense_0", "Dense_1"):
        x = np.tanh(x @ np.asarray(torso[name]["kernel"], np.float64) + np.asarray(torso[name]["bias"]))
        expected.append(x)
    assert [layer.shape for layer in result] == [(5, 16), (5, 8)]
    for layer, by_hand in zip(result, expected, strict=True):
        np.testing.assert_allclose(layer, by_hand, rtol=1e-4, atol=1e-6)
    dead = jnp.concatenate([result[1][:, :4], jnp.zeros((5, 4))], axis=1)
    assert activations.dormant(dead).sum() == 4


def test_one_network_for_all_agents():
    assert diagnostics.problems(ppo.Config(), None) == []

    [line] = diagnostics.problems(ippo.Config(share_parameters=False), None)
    assert line.startswith("diagnostics = True:")
