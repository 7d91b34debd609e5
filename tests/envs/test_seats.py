"""Agents that end before the others, or begin after them: each has its own ends, lengths and returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.envs import agents, fleet, seats
from purerl.envs.check_env import examine
from purerl.envs.episodic import no_noise, one_level
from purerl.loops.evaluation import Player, play
from purerl.loops.recording import record
from purerl.loops.rollout import init_actors, rollout
from purerl.spaces import Box, Discrete
from purerl.types import Env, Step

LENGTH = 4


def dying(haunt=0.0, over=False):
    """Agent 0 is paid 2 and dies in its first of four steps; agent 1 is paid 1 a step, and the time limit ends it.

    What agent 0 sees and is paid after its death is ``haunt``.
    """
    eye = jnp.eye(2, dtype=jnp.float32)

    def begin(level):
        return jnp.zeros((), jnp.int32), eye

    def step(noise, t, action):
        seen = eye.at[0].set(jnp.where(t > 0, haunt, eye[0]))
        reward = jnp.stack([jnp.where(t == 0, 2.0, haunt), jnp.ones(())]).astype(jnp.float32)
        cut = jnp.stack([jnp.zeros((), bool), t + 1 >= LENGTH])
        info = {"time": t.astype(jnp.float32), "share": jnp.array([0.25, 0.75])}
        given = {"over": jnp.broadcast_to(t + 1 >= LENGTH, (2,))} if over else {}
        return t + 1, Step(seen, reward, jnp.stack([t == 0, jnp.zeros((), bool)]), cut, info=info, **given)

    space = Box(-np.inf, np.inf, (2,), jnp.float32)
    env = Env("dying", one_level, begin, no_noise, step, space, Discrete(2), num_agents=2)
    return env._replace(info_names=("time", "share"))


def coming(back=True):
    """Agent 0 is there at times 0 to 2 of 10, and comes ``back`` at 6; agent 1 begins at 3. Both are paid 1 a step."""
    there = lambda t: jnp.stack([(t < 3) | ((t >= 6) & back), t >= 3]) & (t < 10)

    def step(noise, t, action):
        after = t + 1
        return after, Step(jnp.zeros((2, 1)), jnp.ones(2), there(t) & ~there(after), jnp.zeros(2, bool))

    begin = lambda level: (jnp.zeros((), jnp.int32), jnp.zeros((2, 1)))
    env = Env("coming", one_level, begin, no_noise, step, Box(0, 1, (1,), jnp.float32), Discrete(2), num_agents=2)
    return env._replace(present=there)


def lines(env):
    return examine(env, num_steps=50).problems


def still(env):
    """A player that does nothing."""
    act = lambda here, key: (jnp.zeros(here.obs.shape[0], jnp.int32), here.carry)
    return Player(act, lambda num_envs: ())


def rolled(env, steps):
    config = purerl.ppo.Config(num_envs=2, num_steps=steps, num_minibatches=1, hidden_sizes=(4,))
    learner, rows = purerl.ppo.make_learner(config, env), fleet(env, 2)
    actors = init_actors(jax.random.key(0), rows, learner)
    state = learner.init(jax.random.key(0), actors.obs)
    return rollout(jax.random.key(1), rows, learner, learner.behaviour(state), actors, steps)


@pytest.mark.rest
@pytest.mark.parametrize("over", [False, True], ids=["found", "given"])
def test_each_agent_has_its_own_end(over):
    """Two copies side by side, for two games and a half: flags, who is there, returns, lengths, info."""
    _, trajectory, metrics = rolled(dying(7.0, over), 2 * LENGTH + 2)
    first, second = (np.asarray(x)[:, 2:].T for x in (trajectory.terminated, trajectory.truncated))
    games = np.arange(2 * LENGTH + 2) % LENGTH
    np.testing.assert_array_equal(trajectory.present[:, 2:].T, [games == 0, games >= 0])
    np.testing.assert_array_equal(first, [games >= 0, games < 0])  # where it is not there, it ends again and again
    np.testing.assert_array_equal(second, [games < 0, games == LENGTH - 1])
    np.testing.assert_array_equal(trajectory.ended[:, 2:].T, [games == 0, games == LENGTH - 1])
    np.testing.assert_array_equal(trajectory.reward[:, 2], np.where(games == 0, 2.0, 0.0))
    assert metrics["episodes"] == 8 and metrics["episode_return"] == (2 + 4) / 2
    assert metrics["episode_length"] == (1 + 4) / 2
    ends = np.array([0] * 3 + [3] * 2)  # of agent 0 three, of agent 1 two
    assert metrics["info/time"] == pytest.approx(ends.mean())
    assert metrics["info/share"] == pytest.approx((0.25 * 3 + 0.75 * 2) / 5)


@pytest.mark.rest
def test_agents_that_come_later_and_come_back():
    """A return is what an agent earned in the game while it was there, whenever that was."""
    _, trajectory, metrics = rolled(coming(), 20)
    there = np.asarray(trajectory.present)[:10, :2].T
    np.testing.assert_array_equal(there[0], [True] * 3 + [False] * 3 + [True] * 4)
    np.testing.assert_array_equal(there[1], [False] * 3 + [True] * 7)
    np.testing.assert_array_equal(np.asarray(trajectory.game_over)[:, 0], np.arange(20) % 10 == 9)
    assert metrics["episodes"] == 8 and metrics["episode_length"] == 7
    assert metrics["episode_return"] == 8  # both are also paid in the step in which they come


def test_evaluation_and_recording_count_what_training_counts():
    env = dying(7.0)
    played = jax.jit(lambda key: play(key, env, still(env), 3, 100))(jax.random.key(0))
    assert played.episode_return.tolist() == [2.0, 4.0] * 3 and played.episode_length.tolist() == [1, 4] * 3
    assert played.finished.all()
    assert played.info["time"].tolist() == [0, 3] * 3 and played.info["share"].tolist() == [0.25, 0.75] * 3
    data = record(jax.random.key(0), env, still(env), 2, 100)
    assert data.reward.tolist() == [2.0, 1.0, 1.0, 1.0, 1.0] * 2
    assert data.terminated.sum() == data.truncated.sum() == 2


def test_a_team_ends_with_its_last_agent():
    """The joint view tells who is there; those whom the time limit cut off have a value, the dead have none."""
    env = agents.joint(dying(7.0))
    state, obs = env.begin(jnp.zeros(()))
    seen, ends, rewards = [obs["present"].tolist()], [], []
    for _ in range(LENGTH):
        state, step = env.step((), state, jnp.zeros(2, jnp.int32))
        seen.append(step.next_obs["present"].tolist())
        ends.append((bool(step.terminated), bool(step.truncated)))
        rewards.append(float(step.reward))
    assert seen == [[True, True]] + [[False, True]] * 4
    assert ends == [(False, False)] * 3 + [(False, True)]
    assert rewards == [1.5, 4.0, 4.0, 4.0]  # the team's is the mean of all, whoever is left
    assert (
        not seats.apart(env) and "present" not in agents.joint(dying()._replace(ends_together=True)).observation_space
    )


def test_check_env_knows_such_agents():
    assert lines(dying()) == lines(coming()) == []
    promised = lines(dying()._replace(ends_together=True))
    assert promised == ["terminated, truncated: ends_together, but they differ between agents, first at step 1"]
    assert lines(dying()._replace(info_names=("time", "luck"))) == ["info: lacks 'luck', which is among info_names"]


SMALL = {"num_envs": 2, "num_steps": 8, "hidden_sizes": (8,)}
RING = {**SMALL, "num_updates": 1, "batch_size": 8, "capacity": 64, "warmup_steps": 32, "total_steps": 96}
ON = {**SMALL, "total_steps": 64}
SEQUENCES = {**RING, "batch_size": 4, "unroll": 4, "period": 2, "hidden_sizes": (8, 8)}
LEARNERS = {
    "ppo": {**ON, "num_minibatches": 2, "normalize_obs": True, "normalize_reward": True},
    "dqn": {**RING, "prioritised": True},
    "a2c": {**ON, "max_uses": 2},
    "impala": ON,
    "v-mpo": {**ON, "num_minibatches": 2},
    "ippo": {**ON, "num_minibatches": 2, "share_parameters": False},
    "pqn": {**ON, "num_minibatches": 2},
    "c51": RING,
    "r2d2": {**SEQUENCES, "burn_in": 2},
    "sac-discrete": RING,
    "mpo": RING,
    "disco": {**RING, "batch_size": 4, "unroll": 4, "period": 2, "hidden_sizes": (8, 8)},
    "vdn": SEQUENCES,
    "iql": SEQUENCES,
}
"""Settings of learners of several agents; the algorithms of one family share what they do with the absent."""


@pytest.mark.rest
@pytest.mark.weekly(*[name for name in LEARNERS if name not in ("ppo", "dqn")])
@pytest.mark.parametrize("name", LEARNERS)
def test_nothing_is_learned_from_the_dead(name):
    """What an agent sees and is paid after its death changes no bit of what is learned.

    Teams are paid for all, so that for them only what the dead see is changed.
    """
    algo = getattr(purerl, name.replace("-", "_"))

    def env(haunt):
        made = dying(haunt)

        def step(noise, state, action):
            state, step = made.step(noise, state, action)
            return state, step._replace(reward=jnp.minimum(step.reward, 2.0))

        return made._replace(step=step) if name in ("vdn", "iql") else made

    @jax.jit
    def learned(haunt):
        result = algo.make_train(algo.Config(**LEARNERS[name]), env(haunt))(jax.random.key(3))
        learner = result.state.learner
        learner = learner._replace(queue=()) if hasattr(learner, "queue") else learner  # trajectories as they were
        return learner, result.metrics["episode_return"]

    for one, other in zip(jax.tree.leaves(learned(2.0)), jax.tree.leaves(learned(5.0)), strict=True):
        np.testing.assert_array_equal(one, other)
