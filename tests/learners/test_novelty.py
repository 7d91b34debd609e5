"""Bundles that pay for what is new, the wrapper that adds it to rewards, and who plays what in a family of policies."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from exploration import cells_seen

from purerl import agent57, envs, ngu
from purerl.algos.agent57 import make_controller
from purerl.algos.ngu import fixed_controller, prepare
from purerl.envs.fleet import fleet
from purerl.formulas import bandits, returns, td_errors
from purerl.learners.parts import novelty
from purerl.learners.wrappers.intrinsic import IntrinsicSettings, curious
from purerl.loops.rollout import init_actors, rollout
from purerl.networks import MLP
from purerl.replay.views import Cut
from purerl.types import Learner, Situation, Transition, Updated

KEY = jax.random.key(0)


def torso(sizes):
    return MLP(sizes)


def test_an_episode_pays_before_it_remembers():
    """Two environments, whose episodes end at different times, against lists; more is shown than the memory holds."""
    capacity, num, epsilon, cluster = 6, 3, 0.01, 0.05
    bundle = novelty.episodic(capacity, 2, num, epsilon, cluster)
    rng = np.random.default_rng(0)
    shown, last = rng.normal(size=(30, 2, 2)), rng.uniform(size=(30, 2)) < [0.1, 0.2]

    def step(episode, inputs):
        bonus, episode = bundle.pay(episode, inputs[0])
        return bundle.begin(episode, inputs[1]), bonus

    result = jax.jit(lambda *xs: jax.lax.scan(step, bundle.init(2), xs))(jnp.float32(shown), last)[1]
    for env in range(2):
        memory, distances, expected = [], [], []
        for x, ends in zip(shown[:, env], last[:, env], strict=True):
            distances += sorted(np.sum((x - y) ** 2) for y in memory[-capacity:])[:num]
            mean = np.mean(distances) if distances else 1.0
            expected.append(oracles.episodic_bonus(memory[-capacity:], x, num, mean, epsilon, cluster))
            memory = [] if ends else [*memory, x]
        np.testing.assert_allclose(result[:, env], expected, rtol=1e-3)
    assert last.sum() > 3 and np.flatnonzero(last[:, 0])[0] > capacity


def test_distillation_pays_for_what_was_not_shown():
    """Both networks see normalised observations: their scale and shift change nothing."""
    bundle = novelty.distillation(torso, 8, 3e-3)
    rng = np.random.default_rng(0)
    often, never = (jnp.float32(rng.normal(size=(64, 4)) * [1, 1, 0.1, 1] + [0, 0, at, 0]) for at in (-1.0, 1.0))

    @jax.jit
    def run(scale):
        state = bundle.init(KEY, often * scale + scale)
        learn = lambda s, _: (bundle.update(s, often * scale + scale, jnp.ones(64))[0], None)
        state = jax.lax.scan(learn, state, None, 300)[0]
        errors = [bundle.error(state.judge, x * scale + scale) for x in (often, never)]
        return *errors, bundle.alpha(state.judge, never * scale + scale), state.judge.errors

    (seen, new, alpha, moments), (seen_far, new_far, *_) = run(1.0), run(100.0)
    assert np.mean(new) > 5 * np.mean(seen)
    np.testing.assert_allclose([np.mean(seen), np.mean(new)], [np.mean(seen_far), np.mean(new_far)], rtol=0.05)
    np.testing.assert_allclose(alpha, 1 + (new - moments.mean) / np.sqrt(moments.var), rtol=1e-4)


@pytest.mark.rest
def test_an_embedding_keeps_what_actions_change():
    """One number follows the action, another is noise: distances come to be those of the first. Steps of weight 0,
    whose actions say the opposite, are not learned from."""
    bundle = novelty.inverse_dynamics(torso, 4, 2, 3e-3)

    @jax.jit
    def run():
        def learn(state, key):
            place, noise, following = jax.random.normal(key, (3, 128))
            action = (noise > 0).astype(jnp.int32)
            moved = place + jnp.where(action == 1, 1.0, -1.0)
            labels = jnp.where(jnp.arange(128) < 64, action, 1 - action)
            obs, after = jnp.stack([place, noise[::-1]], -1), jnp.stack([moved, following], -1)
            return bundle.update(state, obs, after, labels, (jnp.arange(128) < 64) * 0.5)

        state, metrics = jax.lax.scan(learn, bundle.init(KEY, jnp.zeros((1, 2))), jax.random.split(KEY, 800))
        ends = jnp.array([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
        one, other = (bundle.embed(state.params, ends[:, i]) for i in range(2))
        return jnp.sum(jnp.square(one - other), axis=-1), metrics["inverse_loss"]

    (controlled, noise), loss = run()
    assert loss[-1] < 0.1 < 0.5 < loss[0] and controlled > 20 * noise


class Given(NamedTuple):
    params: Any
    reward: Any


@pytest.mark.rest
def test_a_bonus_is_added_to_every_reward():
    """Errors over the deviation of their discounted sum, which no end of an episode interrupts."""
    steps, rows, gamma, coef = 5, 3, 0.9, 0.7
    inner = Learner(
        init=lambda key, obs: Given(jnp.zeros(()), jnp.zeros((steps, rows))),
        init_carry=lambda num: (),
        noise=lambda key, shape: jnp.zeros(shape),
        behaviour=lambda state: (),
        explore=lambda behaviour, here, noise: (here.obs, here.carry, ()),
        policy=lambda state: state.params,
        exploit=lambda policy, here, key: (here.obs, here.carry),
        update=lambda state, given, key: Updated(Given(state.params + 1, given.reward), {"loss": jnp.zeros(())}, ()),
    )
    config = IntrinsicSettings(intrinsic="rnd", intrinsic_coef=coef, intrinsic_gamma=gamma)
    distillation = novelty.distillation(torso, 4, 1e-3)
    learner = curious(config, distillation, inner)
    rng = np.random.default_rng(0)
    obs, reward = jnp.float32(rng.normal(size=(steps, rows, 2))), jnp.float32(rng.normal(size=(steps, rows)))
    last = jnp.ones((steps, rows), bool)
    state = jax.jit(learner.init)(KEY, obs[0])
    error = np.asarray(distillation.error(state.distilled.judge, obs.reshape(-1, 2)), np.float64).reshape(steps, rows)
    after, metrics, _ = jax.jit(learner.update)(
        state, Transition(-obs, reward, reward, last, ~last, obs, ()), jax.random.key(1)
    )
    sums = np.array([sum(gamma ** (t - k) * error[k] for k in range(t + 1)) for t in range(steps)])
    np.testing.assert_allclose(after.learner.reward, reward + coef * error / np.std(sums), rtol=1e-4)
    np.testing.assert_allclose(metrics["intrinsic_reward"], np.mean(error / np.std(sums)), rtol=1e-4)
    assert after.params == learner.policy(after) == 1


SMALL = {
    "total_steps": 1024,
    "num_envs": 4,
    "num_steps": 8,
    "warmup_steps": 32,
    "capacity": 1024,
    "num_policies": 4,
    "memory_size": 4,
    "hidden_sizes": (8,),
    "episode_memory": 16,
    "embedding_size": 4,
}


@pytest.fixture(scope="module")
def played():
    """Agent57 in CartPole, its first 96 steps in 4 environments: the config, the trajectory, and the last carry."""
    env, config = envs.make("CartPole-v1", max_steps=9), agent57.Config(**SMALL, bandit_epsilon=0.0)
    learner = agent57.make_learner(config, env)

    @jax.jit
    def run():
        actors = init_actors(KEY, fleet(env, 4), learner)
        state = learner.init(KEY, actors.obs)
        after, trajectory, _ = rollout(KEY, fleet(env, 4), learner, learner.behaviour(state), actors, 96)
        return trajectory, after.carry

    return config, *jax.device_get(run())


@pytest.mark.weekly
def test_what_a_network_is_told_happened_one_step_before(played):
    _, trajectory, _ = played
    inputs, begins = trajectory.extras.every, np.concatenate([np.ones((1, 4), bool), trajectory.last[:-1]])
    before = lambda x, first: np.where(begins, first, np.concatenate([x[:1], x[:-1]]))
    np.testing.assert_array_equal(inputs.action, before(trajectory.action, -1))
    np.testing.assert_array_equal(inputs.extrinsic, before(trajectory.reward, 0))
    assert np.all(inputs.intrinsic[begins] > 30) and np.mean(inputs.intrinsic[~begins]) < 30
    carry = trajectory.extras.first
    assert all(not np.any(x[begins]) for x in jax.tree.leaves(carry))


@pytest.mark.weekly
def test_a_bandit_hears_of_returns_and_decides_where_an_episode_begins(played):
    config, trajectory, carry = played
    policy, last = trajectory.extras.every.policy, trajectory.last
    for row in range(4):
        ends = np.flatnonzero(last[:, row])
        totals = [x.sum() for x in np.split(trajectory.reward[:, row], ends + 1)][: len(ends)]
        arms = policy[ends, row]
        assert np.all(policy[:-1, row][~last[:-1, row]] == policy[1:, row][~last[:-1, row]])
        np.testing.assert_array_equal(arms[:4], (row + np.arange(4)) % 4)
        pulls = jax.tree.map(lambda x, row=row: x[row], carry.control)
        assert pulls.number == len(ends) > 8
        np.testing.assert_array_equal(pulls.arm[: len(ends)], arms)
        np.testing.assert_array_equal(pulls.reward[: len(ends)], totals)
        first = bandits.init(config.bandit_window)
        for arm, total, following in zip(arms[:-1], totals, arms[1:], strict=False):
            first = bandits.record(first, arm, total)
            if first.number >= 4:
                assert following == np.argmax(bandits.bounds(first, 4, config.bandit_width))


@pytest.mark.weekly
def test_novelty_is_the_reward_of_the_step_that_led_there(played):
    """It comes with the next observation, and not across the end of an episode."""
    config, trajectory, _ = played
    short = dataclasses.replace(config, burn_in=2)
    cut = trajectory._replace(next_obs=Cut(np.array([3, -1, 0, 5]), np.zeros((4, 4))))
    result = prepare(short, lambda action: action, jax.tree.map(jnp.asarray, cut))
    following = np.append(trajectory.extras.every.intrinsic[1:], np.zeros((1, 4)), axis=0)
    np.testing.assert_array_equal(result.intrinsic, np.where(trajectory.last, 0, following)[2:])
    obs, after = result.items.next_obs.obs
    assert obs.shape == (4, 4)
    for row, step in enumerate([3, 0, 0, 5]):
        assert after.intrinsic[row] == trajectory.extras.every.intrinsic[step, row]
        assert after.action[row] == trajectory.action[step, row]
        assert after.extrinsic[row] == trajectory.reward[step, row]


def test_actors_of_ngu_keep_their_policies():
    controller = fixed_controller(3)
    chosen = controller.choose(controller.init(7), jnp.zeros((7, 2)), jnp.arange(7))
    np.testing.assert_array_equal(chosen, [0, 1, 2, 0, 1, 2, 0])
    learner = ngu.make_learner(ngu.Config(**SMALL), envs.make("CartPole-v1"))
    carry = learner.init_carry(4)
    assert carry.episode.embedded.shape == (4, 16, 4) and carry.control == ()
    assert make_controller(agent57.Config(**SMALL)).init(4).arm.shape == (4, 90)


@pytest.mark.rest
@pytest.mark.parametrize("algo", [agent57, pytest.param(ngu, marks=pytest.mark.weekly)])
def test_actors_that_act_apart_from_others_play_their_own_policies(algo):
    """The second half of six, as where the host steps the halves by turns."""
    env = envs.make("CartPole-v1")
    learner = algo.make_learner(algo.Config(**{**SMALL, "num_policies": 6}), env)
    obs = fleet(env, 3).reset(KEY)[1]
    noise = jax.tree.map(lambda x: x[3:], learner.noise(KEY, (6,)))
    behaviour = learner.behaviour(learner.init(KEY, obs))
    _, _, recorded = learner.explore(behaviour, Situation(obs, learner.init_carry(3)), noise)
    np.testing.assert_array_equal(recorded.every.policy, [3, 4, 5])


@pytest.mark.weekly
def test_cells_of_a_grid_are_counted_for_each_policy():
    """As `scripts/exploration.py` counts them, under policies that walk right."""
    env = envs.make("NoisyGrid-v0")
    learner = ngu.make_learner(ngu.Config(**SMALL, memory="none", burn_in=0), env)
    walk = learner.explore

    def right(behaviour, here, noise):
        action, carry, recorded = walk(behaviour, here, noise)
        return jnp.full_like(action, 3), carry, recorded

    behaviour = learner.behaviour(learner.init(KEY, fleet(env, 2).reset(KEY)[1]))
    seen = cells_seen(KEY, env, learner._replace(explore=right), behaviour, 6, rows=2)
    np.testing.assert_array_equal(seen, 7)


def test_two_values_sum_to_that_of_the_sum():
    """Five states in a row and two actions: the values of both rewards, learned apart along Retrace's traces under one
    policy and joined, are those of one reward, which value iteration finds."""
    beta, gamma, rng = 0.4, 0.8, np.random.default_rng(0)
    following = np.stack([np.maximum(np.arange(5) - 1, 0), np.minimum(np.arange(5) + 1, 4)], axis=1)
    rewards = rng.uniform(size=(2, 5, 2))
    truth = np.zeros((5, 2))
    for _ in range(200):
        truth = rewards[0] + beta * rewards[1] + gamma * truth.max(axis=1)[following]
    state, walk = 0, []
    for action in rng.integers(2, size=64):
        walk.append((state, action))
        state = following[state, action]
    place, action = np.array(walk).T
    paid = jnp.float32(rewards[:, place, action])

    def sweep(q, _):
        choose = lambda q: td_errors.joined(q[0], q[1], beta, 0.0)
        best = jnp.argmax(choose(q), axis=-1)[place]
        plain = td_errors.unrescale(q, 0.0)

        def target(reward, values):
            taken, value = values[place, action], values[place, best]
            trace = 0.95 * (best == action)
            return returns.stored_retrace(trace, reward, taken, value, jnp.full(64, gamma), jnp.zeros(64, bool), taken)

        expected = td_errors.rescale(jax.vmap(target)(paid, plain), 0.0)
        count = jnp.zeros((5, 2)).at[place[:-1], action[:-1]].add(1)
        error = (expected - q[:, place, action])[:, :-1]
        total = jnp.zeros((2, 5, 2)).at[:, place[:-1], action[:-1]].add(error)
        return q + 0.5 * total / jnp.maximum(count, 1)[None], None

    q = jax.jit(lambda: jax.lax.scan(sweep, jnp.zeros((2, 5, 2)), None, 400)[0])()
    joined = td_errors.joined(q[0], q[1], beta, 0.0)
    np.testing.assert_allclose(td_errors.unrescale(joined, 0.0), truth, atol=1e-3)
