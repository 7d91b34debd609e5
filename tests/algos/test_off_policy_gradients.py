"""DDPG, TD3 and SAC beyond what every algorithm owes: gradients, delays, targets, units of actions, normalisation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import compiled

from purerl import config as cfg
from purerl import counters, ddpg, envs, jaxprs, sac, sac_discrete, td3
from purerl.algos.ddpg import make_network
from purerl.algos.sac import make_network as make_sac_network
from purerl.errors import ConfigError
from purerl.learners.families import off_policy_gradients
from purerl.learners.parts.normalize import Moments
from purerl.spaces import Box
from purerl.types import Outcome, Sample, Situation

SMALL = {
    "total_steps": 64 * 4,
    "num_envs": 4,
    "num_steps": 4,
    "num_updates": 2,
    "warmup_steps": 64,
    "batch_size": 8,
    "capacity": 256,
    "hidden_sizes": (8,),
}
PENDULUM = envs.make("Pendulum-v1", max_steps=10)


def make_learner(algo, config, env=PENDULUM, **parts):
    """The learner of an algorithm, compiled."""
    return compiled(algo.make_learner(config, env, **parts), "init", "explore", "exploit", "update")


@pytest.fixture(scope="module")
def sample():
    keys = jax.random.split(jax.random.key(0), 4)
    obs, next_obs = (jax.random.normal(key, (8, 3)) for key in keys[:2])
    action = jax.random.uniform(keys[2], (8, 1), minval=-2.0, maxval=2.0)
    slots = jnp.zeros(8, jnp.int32)
    items = Outcome(obs, action, jax.random.normal(keys[3], (8,)), jnp.full(8, 0.9), next_obs, (), ())
    return Sample(items, slots, slots, jnp.linspace(0.0, 1.0, 8))


@pytest.mark.rest
def test_actor_climbs_by_the_chain_rule(sample):
    """Silver et al. 2014: dQ/da times da/dparams, each by itself; nothing of it moves the critics."""
    config = ddpg.Config(**SMALL)
    learner = make_learner(ddpg, config, optimiser=optax.sgd(1.0))
    state = learner.init(jax.random.key(1), sample.items.obs)
    after, _, _ = learner.update(state, sample, jax.random.key(2))
    network = make_network(config, PENDULUM)
    act = lambda actor: jnp.tanh(network.act(actor, sample.items.obs))
    q = lambda a: jnp.sum(sample.weight * network.q_values(after.params["critic"], sample.items.obs, a)[:, 0])
    action, back = jax.vjp(act, state.params["actor"])
    (climb,) = back(jax.grad(q)(action) / len(sample.weight))
    moved = jax.tree.map(jnp.subtract, after.params["actor"], state.params["actor"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), moved, climb)


@pytest.mark.rest
@pytest.mark.parametrize("algo", [td3, sac], ids=lambda algo: algo.name)
def test_target_by_hand(algo, sample):
    """The TD error of the first update: targets by the smaller critic, TD3's at disturbed actions, SAC's less what the
    action's log-density costs."""
    config = algo.Config(**SMALL)
    learner = make_learner(algo, config)
    state = learner.init(jax.random.key(1), sample.items.obs)
    state = state._replace(target_params=jax.tree.map(lambda x: 1.5 * x + 0.1, state.target_params))
    _, metrics, priority = learner.update(state, sample, jax.random.key(2))
    noise = jax.random.split(jax.random.key(2))[0]
    network = (make_network if algo is td3 else make_sac_network)(config, PENDULUM)
    items, bonus = sample.items, 0.0
    if algo is td3:
        normal = learner.noise(noise, (8,))[0]
        action = jnp.tanh(network.act(state.target_params["actor"], items.next_obs))
        action = np.clip(action + np.clip(0.2 * normal, -0.5, 0.5), -1.0, 1.0)
    else:
        mean, log_std = jnp.split(network.act(state.params["actor"], items.next_obs), 2, axis=-1)
        u = np.float64(mean) + np.exp(np.float64(log_std)) * np.float64(learner.noise(noise, (8,)))
        action, z = np.tanh(u), (u - mean) / np.exp(log_std)
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) / np.exp(log_std) / (1 - action**2)
        bonus = -np.log(density)[:, 0]
    q = network.q_values(state.target_params["critic"], items.next_obs, jnp.float32(action))
    target = items.reward + items.discount * (np.min(q, axis=-1) + bonus)
    error = target[:, None] - network.q_values(state.params["critic"], items.obs, items.action / 2)
    np.testing.assert_allclose(priority, np.mean(np.abs(error), axis=-1), rtol=1e-4)
    loss = np.mean(sample.weight * np.sum(0.5 * np.square(error), axis=-1))
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-4)


@pytest.mark.parametrize("num_updates", [2, 3], ids=["across iterations", "in step"])
def test_delay_and_slow_targets(sample, num_updates):
    """The critics move at each update, actor and targets at every third; targets by ``tau`` of the way."""
    config = td3.Config(**{**SMALL, "num_updates": num_updates}, policy_delay=3, tau=0.25)
    learner = make_learner(td3, config)
    states = [learner.init(jax.random.key(1), sample.items.obs)]
    for i in range(6):
        states.append(learner.update(states[-1], sample, jax.random.key(i))[0])
    first = lambda tree: np.asarray(jax.tree.leaves(tree)[1])
    for i, (old, new) in enumerate(zip(states, states[1:], strict=False), 1):
        assert np.any(first(old.params["critic"]) != first(new.params["critic"]))
        due = i % 3 == 0
        assert np.any(first(old.params["actor"]) != first(new.params["actor"])) == due
        slow = first(old.target_params) + due * 0.25 * (first(new.params["actor"]) - first(old.target_params))
        np.testing.assert_allclose(first(new.target_params), slow, atol=1e-6)


def choices(jaxpr):
    """The number of choices between branches in a program."""
    below = sum(choices(inner) for eqn in jaxpr.eqns for inner in jaxprs.inside(eqn))
    return below + sum(eqn.primitive.name == "cond" for eqn in jaxpr.eqns)


@pytest.mark.parametrize("num_updates", [2, 3])
def test_members_compute_an_update_of_the_actor_where_it_is_due(num_updates):
    """By a choice that is one for all members; where iterations begin anywhere in the delay, all compute both."""
    config = td3.Config(**{**SMALL, "num_updates": num_updates}, policy_delay=3)
    trainer = td3.make_trainer(config, PENDULUM)
    states = jax.eval_shape(jax.vmap(trainer.init), jax.random.split(jax.random.key(0), 2))
    program = jax.make_jaxpr(jax.vmap(trainer.step))(states)
    assert choices(program.jaxpr) == (num_updates == 3)


def test_actions_begin_at_random_and_fill_the_box(sample):
    config = ddpg.Config(**SMALL)
    box = Box((-1.0, 0.0), (3.0, 0.5), (2,), jnp.float32)
    learner = make_learner(ddpg, config, PENDULUM._replace(action_space=box))
    obs = jnp.zeros((512, 3))
    state, noise = learner.init(jax.random.key(1), obs), learner.noise(jax.random.key(2), (512,))
    action, _, _ = learner.explore(learner.behaviour(state), Situation(obs, ()), noise)
    np.testing.assert_allclose(np.min(action, axis=0), [-1.0, 0.0], atol=0.05)
    np.testing.assert_allclose(np.max(action, axis=0), [3.0, 0.5], atol=0.05)
    np.testing.assert_allclose(np.mean(action, axis=0), [1.0, 0.25], atol=0.2)
    learned = state._replace(updates=state.updates._replace(low=jnp.uint32(1)))
    narrow, _, _ = learner.explore(learner.behaviour(learned), Situation(obs, ()), noise)
    assert np.all(np.std(narrow, axis=0) < 0.5 * np.std(action, axis=0))


def test_units_of_actions():
    to_box, to_unit = off_policy_gradients.units(
        Box(np.array([[-2.0], [5.0]]), np.array([[2.0], [5.0]]), (2, 1), jnp.float32)
    )
    action = to_box(jnp.array([[0.5, 0.3], [-1.0, 1.0]]))
    np.testing.assert_allclose(action[..., 0], [[1.0, 5.0], [-2.0, 5.0]])
    np.testing.assert_allclose(to_unit(action), [[0.5, 0.0], [-1.0, 0.0]])


@pytest.mark.rest
def test_observations_are_normalised(sample):
    """By the moments of what was learned from, which policies hold."""
    config = sac.Config(**SMALL, normalize_obs=True)
    learner = make_learner(sac, config)
    far = sample._replace(items=sample.items._replace(obs=100 + 10 * sample.items.obs))
    state = learner.init(jax.random.key(1), far.items.obs)
    state, _, _ = learner.update(state, far, jax.random.key(2))
    policy = learner.policy(state)
    assert isinstance(policy.obs_moments, Moments)
    np.testing.assert_allclose(policy.obs_moments.mean, np.mean(np.asarray(far.items.obs), axis=0), rtol=1e-5)
    plain = make_learner(sac, dataclasses.replace(config, normalize_obs=False))
    seen = np.asarray(far.items.obs)
    seen = (seen - np.mean(seen, axis=0)) / np.std(seen, axis=0)
    by_hand, _ = plain.exploit(policy._replace(obs_moments=()), Situation(jnp.float32(seen), ()), jax.random.key(3))
    result, _ = learner.exploit(policy, Situation(far.items.obs, ()), jax.random.key(3))
    np.testing.assert_allclose(result, by_hand, atol=1e-5)


@pytest.mark.rest
def test_noise_that_remembers_begins_anew():
    """The process of an environment is its own, and starts from 0 with each episode."""
    config = ddpg.Config(**SMALL, noise="ornstein-uhlenbeck")
    trainer = ddpg.make_trainer(config, PENDULUM)
    state = jax.jit(trainer.init)(jax.random.key(0))
    assert state.actors.carry.shape == (4, 1)
    assert len(np.unique(state.actors.carry)) == 4
    learner = make_learner(ddpg, config)
    noise = learner.noise(jax.random.key(1), (4,))
    _, carry, _ = learner.explore(
        learner.behaviour(state.learner), Situation(state.actors.obs, jnp.ones((4, 1))), noise
    )
    np.testing.assert_allclose(carry, 0.85 + 0.2 * noise.normal, rtol=1e-6)


RANGED = {"noise_deviation": 0.1, "noise_deviation_max": 0.5}


@pytest.mark.parametrize("algo", [ddpg, td3], ids=lambda algo: algo.name)
def test_environments_draw_the_size_of_their_noise(algo):
    """By hand: uniform between the ends, kept over steps, and drawn anew for those that begin an episode alone."""
    learner, size = make_learner(algo, algo.Config(**SMALL, **RANGED)), 4096
    obs = jnp.ones((size, 3))
    state = learner.init(jax.random.key(1), obs)
    behaviour = learner.behaviour(state._replace(updates=counters.increment(state.updates)))
    mean = np.asarray(learner.exploit(learner.policy(state), Situation(obs, ()), jax.random.key(0))[0]) / 2
    noises = [learner.noise(jax.random.key(i), (size,)) for i in range(2)]
    carry = learner.init_carry(size)
    action, carry, _ = learner.explore(behaviour, Situation(obs, carry), noises[0])
    deviation = 0.1 + 0.4 * np.asarray(noises[0].size, np.float64)
    np.testing.assert_allclose(carry, deviation, rtol=1e-6)
    assert (
        abs(deviation.mean() - 0.3) <= 4 * 0.4 / np.sqrt(12 * size) and deviation.min() < 0.11 < 0.49 < deviation.max()
    )
    by_hand = np.clip(mean + deviation[:, None] * np.asarray(noises[0].normal, np.float64), -1.0, 1.0)
    np.testing.assert_allclose(np.asarray(action) / 2, by_hand, atol=1e-6)
    ended = np.arange(size) % 3 == 0
    begun = jnp.where(ended, learner.init_carry(size), carry)  # as `rollout.restart` does
    _, after, _ = learner.explore(behaviour, Situation(obs, begun), noises[1])
    anew = 0.1 + 0.4 * np.asarray(noises[1].size, np.float64)
    np.testing.assert_allclose(after, np.where(ended, anew, deviation), rtol=1e-6)
    for x, y in ((noises[0].size, noises[0].normal[:, 0]), (noises[0].size, noises[1].size)):  # draws of their own
        assert abs(np.corrcoef(x, y)[0, 1]) <= 4 / np.sqrt(size)


def test_sizes_of_noise_are_of_independent_noise():
    """In a sweep of both kinds of noise the other one has its own process."""
    learner = make_learner(ddpg, ddpg.Config(**SMALL, **RANGED, noise="ornstein-uhlenbeck"))
    assert learner.init_carry(4).shape == (4, 1)


@pytest.mark.rest
def test_a_fleet_keeps_the_sizes_until_an_episode_ends():
    trainer = td3.make_trainer(td3.Config(**SMALL, **RANGED), PENDULUM)  # whose episodes have 10 steps
    state, sizes = jax.jit(trainer.init)(jax.random.key(0)), []
    step = jax.jit(trainer.step)
    for _ in range(5):
        sizes.append(np.asarray(state.actors.carry))
        state, _ = step(state)
    before, ended, begun, within, anew = sizes  # after 16, 20, 24, 28 and 32 steps: episodes ended at 10, 20 and 30
    assert np.all(ended == 0)
    np.testing.assert_array_equal(begun, within)
    for x, y in ((before, begun), (within, anew)):
        assert len(np.unique([*x, *y])) == 8 and np.all((x >= 0.1) & (x < 0.5))


def test_a_range_of_noise_has_its_ends_in_order():
    (line,) = td3.problems(td3.Config(**SMALL, noise_deviation=0.4, noise_deviation_max=0.2), PENDULUM)
    assert line == "noise_deviation_max = 0.2: must be 0 or at least noise_deviation = 0.4"
    drifting = ddpg.Config(**SMALL, noise="ornstein-uhlenbeck", noise_deviation_max=0.5)
    assert "noise_deviation_max" in cfg.unused([drifting], ddpg.Config())[0]


def test_step_sizes_decay_to_nothing_together(sample):
    """Also of an actor that moves less often: with two updates left to decay over, the fourth moves neither."""
    config = td3.Config(**SMALL | {"total_steps": 64 + 16 * 2}, learning_rate_decay=1.0)
    assert config.total_updates == 4
    learner = make_learner(td3, config)
    state = learner.init(jax.random.key(1), sample.items.obs)
    for i in range(4):
        state, _, _ = learner.update(state, sample, jax.random.key(i))
    after, _, _ = learner.update(state, sample, jax.random.key(4))
    after, _, _ = learner.update(after, sample, jax.random.key(5))
    jax.tree.map(np.testing.assert_array_equal, after.params, state.params)


def test_bounds_may_be_traced_or_huge():
    """A torque that is swept; and bounds that float32 cannot span, which count as none."""
    config = ddpg.Config(**SMALL)

    def act(max_torque):
        env = envs.make("Pendulum-v1", max_torque=max_torque)
        learner = ddpg.make_learner(config, env)
        state = learner.init(jax.random.key(0), jnp.ones((4, 3)))
        return learner.explore(
            learner.behaviour(state), Situation(jnp.ones((4, 3)), ()), learner.noise(jax.random.key(1), (4,))
        )[0]

    actions = jax.jit(jax.vmap(act))(jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(actions[1], 3 * actions[0], rtol=1e-6)
    huge = PENDULUM._replace(action_space=Box(-3e38, 3e38, (1,), jnp.float32))
    assert "without bounds" in ddpg.problems(config, huge)[0]
    broken = PENDULUM._replace(action_space=Box(None, "1", (1,), jnp.float32))
    assert "action_space" in ddpg.problems(config, broken)[0]


def test_discrete_policies_take_legal_actions_only():
    env = envs.make("probe/illegal-actions")
    learner = make_learner(sac_discrete, sac_discrete.Config(**SMALL), env)
    obs = jax.vmap(lambda key: env.reset(key)[1])(jax.random.split(jax.random.key(0), 256))
    state = learner.init(jax.random.key(1), obs)
    action, _, _ = learner.explore(
        learner.behaviour(state), Situation(obs, ()), learner.noise(jax.random.key(2), (256,))
    )
    assert np.all(np.take_along_axis(np.asarray(env.legal(obs)), np.asarray(action)[:, None], axis=1))


@pytest.mark.parametrize(
    ("algo", "env", "line"),
    [
        (sac, PENDULUM._replace(action_space=Box(-np.inf, 1.0, (1,), jnp.float32)), "needs a bounded Box"),
        (sac, envs.make("CartPole-v1"), "the algorithm needs Box"),
        (sac_discrete, PENDULUM, "the algorithm needs Discrete or MultiDiscrete"),
        (td3, None, None),
    ],
)
def test_problems(algo, env, line):
    config = algo.Config(**SMALL)
    if line is None:
        assert algo.problems(config, env) == []
        return
    with pytest.raises(ConfigError, match=line):
        algo.make_trainer(config, env)
