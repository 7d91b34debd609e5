"""DiscoRL's agent: what it stores, what it is told of the ends of episodes, and what it never does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import disco, envs, replay
from purerl.algos.disco import make_network, read
from purerl.learned import sockets
from purerl.learners.parts import all_action_rules as rules
from purerl.learners.parts.joint_actions import joint_actions
from purerl.replay.views import Cut
from purerl.spaces import Discrete
from purerl.types import Recorded, Sample, Situation, Transition

SIZES = {"num_envs": 2, "num_steps": 8, "unroll": 7, "period": 4, "num_updates": 1, "batch_size": 4}
CONFIG = disco.Config(
    **SIZES, capacity=64, warmup_steps=16, total_steps=64, hidden_sizes=(8,), head_size=8, learning_rate=1e-3
)


def steps_of(terminated, truncated):
    """Rows ``[T, 1]`` whose observation is their number, and whose next one is 100 more."""
    count = len(terminated)
    obs = jnp.arange(count, dtype=jnp.float32).reshape(count, 1, 1)
    ends = (jnp.asarray(x, bool)[:, None] for x in (terminated, truncated))
    logits = jnp.arange(2 * count, dtype=jnp.float32).reshape(count, 1, 2)
    action = (jnp.arange(count) % 2).astype(jnp.int32)[:, None]
    return Transition(obs, action, obs[..., 0], *ends, obs + 100, Recorded((), logits))


@pytest.mark.rest
@pytest.mark.parametrize(
    ("truncated", "known", "last_row"),
    [
        ([0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], None),
        ([0, 0, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], 102),
        ([0, 1, 0, 0, 1, 0, 0, 0], [1, 0, 1, 1, 1, 1], 104),
    ],
)
def test_what_followed_a_truncation(truncated, known, last_row):
    """The last row is the true last observation of the last truncated step; of an earlier one it is not known."""
    trajectory = steps_of([0, 0, 0, 1, 0, 0, 0, 0], truncated)
    view = replay.sequences(7, 4)
    ring = replay.uniform(num_rows=16, num_envs=1, batch_size=1, view=view)
    item = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), trajectory)
    state = ring.add(ring.init(item), trajectory)
    items, _ = view.read(state.items, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), 1)
    rows, steps = read(items, joint_actions(envs.make("CartPole-v1")))
    np.testing.assert_array_equal(rows[:7, 0, 0], np.arange(7))
    np.testing.assert_array_equal(steps.known[:, 0], np.array(known, bool))
    np.testing.assert_array_equal(steps.terminated[:, 0], np.arange(6) == 3)
    np.testing.assert_array_equal(steps.behaviour[:, 0, 1], 2 * np.arange(6) + 1)
    if last_row is None:
        assert not np.any(steps.cut)
    else:
        assert rows[-1, 0, 0] == last_row
        np.testing.assert_array_equal(steps.cut[:, 0], np.arange(6) == last_row - 100)
        following = rules.following(rows, steps)[:, 0, 0]
        after = np.where(steps.known[:, 0], np.arange(6) + 1, np.arange(6))
        np.testing.assert_array_equal(following, np.where(steps.cut[:, 0], last_row, after))


@pytest.fixture(scope="module")
def started():
    """A training on CartPole at its beginning."""
    trainer = disco.make_trainer(CONFIG, envs.make("CartPole-v1"))
    return trainer, jax.jit(trainer.init)(jax.random.key(0))


def test_the_ring_holds_logits_alone():
    """72 bytes of every step for 18 actions, and nothing for where sequences begin."""
    env = envs.make("CartPole-v1")._replace(action_space=Discrete(18))
    stored = jax.eval_shape(disco.make_trainer(CONFIG, env).init, jax.random.key(0)).replay.items
    rows = stored.reward.shape
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(stored.extras)] == [((*rows, 18), jnp.float32)]
    each = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(stored.extras)) / np.prod(rows)
    assert each == 72


@pytest.mark.rest
def test_what_has_no_weight_teaches_nothing(started):
    trainer, state = started
    items = steps_of([0] * 8, [0] * 8)
    obs = jnp.broadcast_to(items.obs, (8, 2, 4))
    wide = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=1), items._replace(obs=(), next_obs=()))
    cut = Cut(jnp.full(2, -1), obs[0])
    here = wide._replace(obs=obs, next_obs=cut)
    sample = lambda weight: Sample(here, jnp.zeros(2, jnp.int32), jnp.arange(2), jnp.full(2, weight))
    learn = jax.jit(lambda weight: trainer.learner.update(state.learner, sample(weight), jax.random.key(1)))
    before, still, moved = state.learner.params, learn(0.0).state.params, learn(1.0).state.params
    jax.tree.map(np.testing.assert_array_equal, still, before)
    assert any(np.any(a != b) for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(before), strict=True))


@pytest.mark.weekly
@pytest.mark.parametrize("learned", [True, False])
def test_illegal_actions_have_no_probability(learned):
    env = envs.make("probe/illegal-actions")
    config = disco.Config(**SIZES, capacity=64, warmup_steps=16, total_steps=16 * 6, hidden_sizes=(8,), head_size=8)
    rule = sockets.disco().parts(jax.jit(sockets.disco().init)(jax.random.key(2)), config) if learned else {}
    result = jax.jit(disco.make_train(config, env, **rule))(jax.random.key(0))
    assert np.all(np.abs(result.metrics["policy_target"]) < 1e3)
    assert np.all(result.metrics["alive"]) and np.all(np.isfinite(result.metrics["loss"]))
    stored = result.state.replay.items
    legal = np.asarray(env.legal(replay.storage.read(stored.obs, *np.indices(stored.reward.shape))))
    chances = np.asarray(jax.nn.softmax(stored.extras.every))
    assert np.any(~legal) and np.all(chances[~legal] == 0)
    taken = np.take_along_axis(legal, np.asarray(stored.action)[..., None], axis=-1)
    assert np.all(taken)


@pytest.mark.rest
def test_a_rule_of_ones_own(started):
    """One that asks for the first action alone is what the policy becomes."""

    def targets(seen, state):
        logits = jnp.zeros_like(seen.steps.behaviour).at[..., 0].set(20.0)
        blank = jnp.zeros((*seen.steps.reward.shape, 3))
        return rules.Targets(logits, blank, blank), state + 1

    rule = rules.Rule(3, lambda: jnp.zeros((), jnp.int32), targets)
    config = disco.Config(**SIZES, capacity=64, warmup_steps=16, total_steps=16 * 60, hidden_sizes=(8,), head_size=8)
    env = envs.make("CartPole-v1")
    state = jax.jit(disco.make_train(config, env, rule=rule))(jax.random.key(0)).state.learner
    learner = disco.make_learner(config, env, rule=rule)
    action, _ = learner.exploit(learner.policy(state), Situation(jnp.ones((5, 4)), ()), jax.random.key(1))
    assert state.rule == 59 and not np.any(action)
    out = make_network(config, env, 3).apply(state.params, jnp.zeros((1, 4)))
    assert out.y.shape == (1, 3) and out.z.shape == (1, 2, 3)


def test_actions_of_a_box_are_refused():
    [line] = disco.problems(disco.Config(), envs.make("Pendulum-v1"))
    assert "has Box actions; the algorithm needs Discrete or MultiDiscrete" in line
