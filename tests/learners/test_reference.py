"""A reference policy: what a decision costs, who gets it, and when the reference is replaced."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import a2c, envs, trees
from purerl.envs.fleet import fleet
from purerl.learners.families import actor_critic
from purerl.learners.families.actor_critic import PolicyGradientPolicy
from purerl.learners.wrappers.reference import problems, regularised, transformed
from purerl.loops.rollout import rollout
from purerl.types import Learner, Situation, Transition, Updated

CONFIG = a2c.Config(
    total_steps=4 * 3 * 8,
    num_envs=4,
    num_steps=3,
    hidden_sizes=(5,),
    reference_period=3,
    learning_rate=0.05,
)
KEY = jax.random.key(0)
ENV = envs.make("KuhnPoker-v0")


@pytest.mark.parametrize("num_agents", [2, 3])
def test_what_one_pays_the_others_get(num_agents):
    rng = np.random.default_rng(num_agents)
    reward, ratio = rng.normal(size=(2, 5, 4 * num_agents)).astype(np.float32)
    result = np.asarray(transformed(jnp.asarray(reward), jnp.asarray(ratio), 0.3, num_agents))
    for t in range(5):
        for row in range(4 * num_agents):
            first = row // num_agents * num_agents
            others = [ratio[t, i] for i in range(first, first + num_agents) if i != row]
            expected = reward[t, row] - 0.3 * ratio[t, row] + 0.3 * sum(others) / (num_agents - 1)
            np.testing.assert_allclose(result[t, row], expected, atol=1e-6)
    games = lambda x: x.reshape(5, 4, num_agents).sum(axis=-1)
    np.testing.assert_allclose(games(result), games(reward), atol=1e-6)
    assert not np.allclose(result, reward, atol=0.01)


class Held(NamedTuple):
    """A learner that is its number of updates, and remembers the rewards that it was last given."""

    params: Any
    reward: Any


def test_rewards_and_references():
    """The learner is given transformed rewards, and the reference becomes the newest at every third iteration."""
    learner = regularised(
        CONFIG,
        2,
        Learner(
            init=lambda key, obs: Held(jnp.int32(7), jnp.zeros((3, 4))),
            init_carry=lambda size: (),
            noise=lambda key, shape: jnp.zeros(shape),
            behaviour=lambda state: state.params,
            explore=lambda params, here, noise: (params + here.obs, here.carry, ()),
            policy=lambda state: state.params,
            exploit=lambda policy, here, key: (here.obs, here.carry),
            update=lambda state, given, key: Updated(Held(state.params + 1, given.reward), {"loss": jnp.zeros(())}, ()),
            log_ratio=lambda trajectory, reference: trajectory.action * reference,
        ),
    )
    rng = np.random.default_rng(0)
    reward, action = jnp.asarray(rng.normal(size=(2, 3, 4)), jnp.float32)
    given, state, update = (
        Transition(*[action] * 2, reward, *[action] * 4),
        learner.init(KEY, action),
        jax.jit(learner.update),
    )
    for age, reference in enumerate((7, 7, 7, 10, 10, 10, 13)):
        assert state.reference == reference and learner.policy(state) == 7 + age
        assert learner.explore(learner.behaviour(state), Situation(100, ()), 0)[0] == 107 + age
        state, metrics, _ = update(state, given, KEY)
        expected = transformed(reward, action * reference, 0.2, 2)
        np.testing.assert_allclose(state.learner.reward, expected, rtol=1e-5)
        np.testing.assert_allclose(metrics["reference_divergence"], jnp.mean(action) * reference, rtol=1e-5)


@pytest.fixture(scope="module", params=["none", "gru"])
def trained(request):
    """A few iterations of A2C, with and without a memory: its parts, its state, and a trajectory."""
    memory = {"memory": "gru", "memory_size": 4} if request.param == "gru" else {}
    config = dataclasses.replace(CONFIG, **memory)
    assert a2c.problems(config, ENV) == []
    trainer, parts = a2c.make_trainer(config, ENV), actor_critic.make_agent(config, ENV)
    state, metrics = jax.jit(lambda key: jax.lax.scan(lambda s, _: trainer.step(s), trainer.init(key), None, 8))(KEY)
    rows = fleet(ENV, config.num_envs)
    _, trajectory, _ = jax.jit(
        lambda s: rollout(KEY, rows, trainer.learner, trainer.learner.behaviour(s.learner), s.actors, 3)
    )(state)
    return parts, state, metrics, trajectory


@pytest.mark.rest
@pytest.mark.weekly("gru")
def test_trained(trained):
    """The reference is as old as it should be, and moving away from it was paid for."""
    _, state, metrics, _ = trained
    assert np.all(metrics["alive"]) and state.learner.age == 2
    divergence = np.asarray(metrics["reference_divergence"])
    np.testing.assert_allclose(divergence[[0, 3, 6]], 0.0, atol=1e-6)
    assert np.all(np.abs(divergence[[1, 2, 4, 5, 7]]) > 1e-5)


@pytest.mark.rest
def test_log_ratio(trained):
    """Of the recorded logits to those of the reference, step by step; 0 to the policy that acted, and who waits."""
    parts, state, _, trajectory = trained
    learned, log_ratio = state.learner.learner, jax.jit(parts.log_ratio)
    acts = np.asarray(ENV.acting(trajectory.obs))
    assert 0 < acts.sum() < acts.size
    np.testing.assert_allclose(log_ratio(trajectory, PolicyGradientPolicy(learned.params, ())), 0.0, atol=1e-6)
    reference, carry = state.learner.reference, jax.tree.map(lambda x: x[0], trajectory.extras.carry)
    result = np.asarray(log_ratio(trajectory, reference))
    for t in range(3):
        logits, carry = parts.network.act(reference.params, trajectory.obs[t], carry)
        carry = trees.restart(carry, parts.network.init_carry(8), trajectory.last[t])
        both = np.stack([np.asarray(trajectory.extras.policy[t]), np.asarray(logits)]).astype(np.float64)
        chance = np.exp(both) / np.exp(both).sum(axis=-1, keepdims=True)
        taken = chance[:, np.arange(8), np.asarray(trajectory.action[t])]
        np.testing.assert_allclose(result[t], np.where(acts[t], np.log(taken[0] / taken[1]), 0.0), atol=1e-5)


def test_without_a_period_there_is_no_reference():
    learner = a2c.make_learner(dataclasses.replace(CONFIG, reference_period=0), ENV)
    state = jax.eval_shape(learner.init, KEY, jnp.zeros((8, 9), bool))
    assert isinstance(state, actor_critic.ActorCriticState)


def test_one_agent_has_nobody_to_pay():
    assert problems(CONFIG, ENV) == []
    [line] = problems(a2c.Config(reference_period=3), envs.make("CartPole-v1"))
    assert line.startswith("reference_period = 3:")
