"""Fleets: agents as rows, equal to the bit to lone environments; and memories that outlive an episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import for_bits

from purerl import dqn, envs, evaluate, ppo
from purerl.envs import resets
from purerl.envs.episodic import EpisodeState, box, episodic
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.loops.rollout import init_actors, rollout
from purerl.spaces import Discrete

LONE = envs.make("CartPole-v1", max_steps=20, theta_threshold=1e3, x_threshold=1e3)
DRAW = LONE.levels
LONE = LONE._replace(levels=lambda key, shape: DRAW(key, shape) if shape else jnp.zeros(4))
"""Poles that never fall, because the episodes of agents end together, and first episodes, whose levels fleets draw one
by one, that begin alike."""


def apart(env, num_agents):
    """``num_agents`` agents in one environment who never meet: each has a copy of ``env``."""
    return env._replace(
        name=f"{num_agents} x {env.name}",
        levels=lambda key, shape: env.levels(key, (*shape, num_agents)) if shape else jnp.zeros((num_agents, 4)),
        begin=jax.vmap(env.begin),
        noise=lambda key, shape: env.noise(key, (*shape, num_agents)),
        step=jax.vmap(env.step, in_axes=(None, 0, 0)),
        num_agents=num_agents,
        ends_together=True,
    )


def pair(env):
    """Two agents who have a copy of ``env`` each, and begin in one level."""
    both = lambda level: jax.tree.map(lambda x: jnp.stack([x, x]), env.begin(level))
    step = jax.vmap(env.step, in_axes=(None, 0, 0))
    return env._replace(begin=both, step=step, num_agents=2, ends_together=True)


SMALL = {"num_steps": 16, "hidden_sizes": (8,), "learning_rate": 1e-2}
RING = {"num_updates": 2, "batch_size": 8, "prioritised": True, "epsilon_ladder": 2.0}


@pytest.mark.weekly
@pytest.mark.parametrize("algo", [ppo, dqn], ids=lambda algo: algo.name)
def test_agents_who_do_not_meet_are_lone_environments(algo):
    """An unmodified algorithm: two agents of three copies against six lone environments, bit for bit."""

    def run(env, num_envs):
        sizes = {**SMALL, "num_envs": num_envs, "total_steps": num_envs * 16 * 12}
        ring = RING | {"capacity": num_envs * 64, "warmup_steps": num_envs * 16}
        config = algo.Config(**sizes, **({"num_minibatches": 2} if algo is ppo else ring))
        train = jax.jit(algo.make_train(config, env), compiler_options=for_bits())
        return train(jax.random.key(2))

    lone, pairs = run(LONE, 6), run(apart(LONE, 2), 3)
    jax.tree.map(np.testing.assert_array_equal, lone.state.learner, pairs.state.learner)
    jax.tree.map(np.testing.assert_array_equal, lone.metrics, pairs.metrics)
    assert np.nansum(lone.metrics["episodes"]) > 10


@pytest.mark.rest
def test_rows_of_a_fleet():
    rows = fleet(apart(LONE, 2), 3)
    assert (rows.size, rows.env_steps) == (6, 3)
    env_state, obs = rows.reset(jax.random.key(0))
    assert obs.shape == (6, 4)
    action = jnp.array([0, 1, 0, 1, 0, 1])
    _, seen, step = rows.step(rows.noise(jax.random.key(1), ()), env_state, action)
    assert step.reward.shape == (6,) and np.all(seen[::2, 1] < 0) and np.all(seen[1::2, 1] > 0)
    np.testing.assert_array_equal(step.next_obs, seen)
    learner = ppo.make_learner(ppo.Config(), apart(LONE, 2))
    policy = learner.policy(learner.init(jax.random.key(0), obs))
    assert evaluate(jax.random.key(3), apart(LONE, 2), learner, policy, num_episodes=5).episode_return.shape == (10,)


@pytest.mark.rest
def test_a_learner_decides_what_its_carry_keeps():
    """A count of steps that begins anew with each episode, beside one of steps and rewards that goes on."""
    learner = ppo.make_learner(ppo.Config(), LONE)._replace(
        init_carry=lambda num_envs: (jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs, jnp.int32)),
        restart=lambda carry, step: (jnp.where(step.last, 0, carry[0]), carry[1] + (step.reward > 0)),
    )
    explore = learner.explore

    def counting(behaviour, here, noise):
        action, _, _ = explore(behaviour, here._replace(carry=()), noise)
        return action, jax.tree.map(lambda x: x + 1, here.carry), here.carry

    learner = learner._replace(explore=counting)
    actors = init_actors(jax.random.key(0), fleet(LONE, 3), learner)
    state = learner.init(jax.random.key(1), actors.obs)
    after, trajectory, _ = rollout(jax.random.key(2), fleet(LONE, 3), learner, learner.behaviour(state), actors, 50)
    episode, life = trajectory.extras
    assert np.all(life == 2 * np.arange(50)[:, None]) and np.all(after.carry[1] == 100)
    began = np.concatenate([np.ones((1, 3), bool), np.asarray(trajectory.last)[:-1]])
    assert np.all((episode == 0) == began) and np.sum(began) > 3


# How episodes begin. An episode shows its number, uniform in [0, 1), and the steps that are left; the action ends it.

WAYS = ["every", "pool:5", "few", "few:1", "few:2", "few:3", "few:100"]
LAST = np.array([[0, 0, 0, 0, 0], [1, 0, 0, 1, 0], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 0, 1]], bool)
"""Steps of five environments at which more, as many and fewer end than begin at a time."""


def numbered(way, **fields):
    """Nothing is random but the number of an episode, which begins with its level."""
    env = episodic(
        "numbered",
        levels=jax.random.uniform,
        initial=lambda level: level[None],
        dynamics=lambda number, action: (number, number[0], action == 1),
        observe=lambda number: number,
        time_limit=1000,
        observation_space=box((0.0,), (1.0,)),
        action_space=Discrete(2),
    )
    return env._replace(resets=way, **fields)


def renewed(env, last=LAST, seed=0):
    """What is seen at first and after steps that end where ``last`` ``[T, B]`` says, the states, and Steps."""
    rows = fleet(env, last.shape[1])

    def run(key):
        key_reset, key_noise = jax.random.split(key)

        def one(env_state, given):
            env_state, obs, made = rows.step(given[0], env_state, given[1])
            return env_state, (obs[..., 0], env_state, made)

        env_state, obs = rows.reset(key_reset)
        actions = jnp.repeat(jnp.asarray(last, jnp.int32), rows.size // last.shape[1], axis=1)
        return obs[..., 0], *jax.lax.scan(one, env_state, (rows.noise(key_noise, (len(last),)), actions))[1]

    return jax.jit(run)(jax.random.key(seed))


@pytest.mark.parametrize("way", WAYS)
def test_episodes_begin_where_one_ended_and_nowhere_else(way):
    """Steps tell what they led to; a new episode has a time of 0, and no other environment has its level, but for a
    pool's."""
    first, seen, states, made = renewed(numbered(way))
    np.testing.assert_array_equal(made.terminated, LAST)
    before = np.concatenate([first[None], seen[:-1]])
    np.testing.assert_array_equal(made.next_obs[..., 0], before)
    np.testing.assert_array_equal(seen[~LAST], before[~LAST])
    np.testing.assert_array_equal(states.physical[..., 0], seen)
    np.testing.assert_array_equal(states.t == 0, LAST)
    start = np.concatenate([first, seen[LAST]])
    if way == "pool:5":
        assert set(start.tolist()) <= set(first_of_pool(5))
    else:
        assert len(set(start.tolist())) == start.size and np.all(seen[LAST] != before[LAST])


def first_of_pool(size):
    keys = jax.random.split(jax.random.key(resets.POOL_SEED), size)
    return [float(jax.random.uniform(key)) for key in keys]


def test_a_pool_is_the_same_in_every_run():
    """All of its states come up, under any seed and in any fleet."""
    last = np.ones((40, 4), bool)
    for seed in (1, 2):
        first, seen, *_ = renewed(numbered("pool:3"), last, seed)
        assert set(np.unique(seen)) == set(np.float32(first_of_pool(3))) and set(np.unique(first)) <= set(
            np.unique(seen)
        )
    assert renewed(numbered("pool:3"), last, 1)[1].tolist() != seen.tolist()


@pytest.mark.parametrize("way", WAYS)
def test_levels_have_the_distribution_of_the_environment(way):
    """Means and spreads of uniform numbers, of 512 environments of which a third ends at each step."""
    last = np.random.default_rng(0).uniform(size=(40, 512)) < 1 / 3
    seen = np.asarray(renewed(numbered(way if way != "pool:5" else "pool:4096"), last)[1])[last]
    share = np.histogram(seen, bins=8, range=(0, 1))[0] / seen.size
    np.testing.assert_allclose(share, 1 / 8, atol=0.03)
    assert abs(np.corrcoef(seen[:-1], seen[1:])[0, 1]) < 0.05


@pytest.mark.rest
@pytest.mark.rest
@pytest.mark.rest("few-4")
@pytest.mark.parametrize(("way", "rounds"), [("few", 4), ("few:1", 11), ("few:2", 7), ("few:3", 5), ("few:100", 4)])
def test_rounds_of_resets_are_counted(way, rounds):
    metrics = fleet(numbered(way), 5).metrics(jnp.asarray(LAST))
    assert metrics.keys() == {"reset_rounds"} and np.isclose(metrics["reset_rounds"], rounds / 5)
    assert fleet(numbered("every"), 5).metrics(LAST) == fleet(numbered("pool:2"), 5).metrics(LAST) == {}
    learner = ppo.make_learner(ppo.Config(), numbered(way))
    actors = init_actors(jax.random.key(0), fleet(numbered(way), 5), learner)
    state = learner.init(jax.random.key(1), actors.obs)
    _, trajectory, measured = rollout(
        jax.random.key(2), fleet(numbered(way), 5), learner, learner.behaviour(state), actors, 8
    )
    assert measured["reset_rounds"] == fleet(numbered(way), 5).metrics(trajectory.last)["reset_rounds"] > 0


@pytest.mark.rest
@pytest.mark.parametrize("way", ["pool:50", "few", "few:2"])
def test_agents_begin_together(way):
    """All agents of an environment begin in one level, and another environment in another."""
    env = pair(numbered(way))
    rounds = fleet(env, 5).metrics(jnp.repeat(jnp.asarray(LAST), 2, axis=1))
    _, seen, states, made = renewed(env)
    assert seen.shape == made.reward.shape == (5, 10) and states.t.shape == (5, 5, 2)
    np.testing.assert_array_equal(seen[:, ::2], seen[:, 1::2])
    np.testing.assert_array_equal(states.t[..., 0] == 0, LAST)
    for row, last in zip(seen[:, ::2], LAST, strict=True):
        assert way.startswith("pool") or len(set(row[last].tolist())) == last.sum()
    assert way.startswith("pool") or rounds == fleet(numbered(way), 5).metrics(jnp.asarray(LAST))


@pytest.mark.parametrize("way", ["every", "few:2"])
def test_ways_to_begin_can_be_vmapped(way):
    """A lane is what it is alone, though the rounds of all lanes are those of the one that takes most."""
    lasts = np.stack([LAST, LAST[::-1], LAST * False])

    def run(last):
        rows = fleet(numbered(way), 5)
        env_state, _ = rows.reset(jax.random.key(0))
        step = lambda state, given: (lambda after, obs, made: (after, obs))(*rows.step(given[0], state, given[1]))
        return jax.lax.scan(step, env_state, (rows.noise(jax.random.key(1), (5,)), last))[1]

    together = jax.jit(jax.vmap(run))(jnp.asarray(lasts, jnp.int32))
    for lane, last in zip(together, lasts, strict=True):
        np.testing.assert_array_equal(lane, jax.jit(run)(jnp.asarray(last, jnp.int32)))


@pytest.mark.parametrize("way", WAYS)
def test_a_new_episode_keeps_what_it_is_told_to(way):
    """Here the time, which goes on over the ends of episodes."""
    keep = lambda before, start: EpisodeState(start.physical, before.t)
    _, _, states, _ = renewed(numbered(way, keep=keep))
    np.testing.assert_array_equal(states.t, np.broadcast_to(np.arange(1, 6)[:, None], (5, 5)))


@pytest.mark.parametrize(
    "text", ["pool", "pool:0", "few:-1", "few:x", "every:2", "many", "", f"pool:{2**20 + 1}", "few:", 3]
)
def test_ways_that_cannot_be(text):
    with pytest.raises(ConfigError, match="^env = 'numbered': resets = .*:"):
        fleet(numbered(text), 2)
