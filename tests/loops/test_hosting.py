"""Trainings in environments of the host, against loops in plain Python and against those in a program."""

from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl.config as cfg
from purerl import dqn, envs, impala, population, ppo, r2d2, trees
from purerl.errors import ConfigError
from purerl.hosts import local
from purerl.hosts.opening import How
from purerl.population import collecting, hosting
from purerl.population.hosting import check_groups, programs
from purerl.runs.running.host_program import HostProgram, seeds

NUM_ENVS, NUM_STEPS = 4, 64
SIZES = {"num_envs": NUM_ENVS, "num_steps": NUM_STEPS, "hidden_sizes": (8,), "learning_rate": 1e-2}
CONFIG = impala.Config(**SIZES, total_steps=NUM_ENVS * NUM_STEPS * 6, normalize_reward=False)
ENV = envs.make("gymnasium/CartPole-v1", vector=0)
IN_THIS_PROCESS = How("none", "off")


def make_trainer(config):
    return impala.make_trainer(config, ENV)


@pytest.fixture(scope="module")
def members():
    return population.members(cfg.with_lengths(CONFIG), jax.random.split(jax.random.key(0), 2))


@pytest.fixture(scope="module")
def made(members):
    """Programs of two members for one group, and for two."""
    return {groups: programs(make_trainer, members, groups) for groups in (1, 2)}


class Slow:
    """A batch that is stepped in this thread, and remembers what it was sent."""

    def __init__(self, size):
        self.batch, self.sent, self.turns = ENV.host.batch(size), [], []

    def send(self, action):
        self.sent.append(action.copy())

    def receive(self):
        self.turns.append(self.batch.step(self.sent[-1]))
        return self.turns[-1]

    @property
    def reset(self):
        return self.batch.reset


def collected(made, members, groups, steppers, rollouts=1):
    """The first rollouts of the members, by the parameters that they begin with."""
    actor = collecting.Actor(made[groups], hosting.leaves(members.given), steppers, ENV, NUM_STEPS)
    actor.reset(seeds(members.keys, NUM_ENVS, groups, 0))
    state = made[groups].begin(hosting.leaves(members.given), members.keys)
    behaviour, key, result = made[groups].behave(state, hosting.leaves(members.given)), state.key, []
    for _ in range(rollouts):
        result.append(actor.collect(behaviour, 0, key))
        key = result[-1].next_key
    return state, behaviour, result


@pytest.fixture(scope="module")
def single(made, members):
    stepper = Slow(2 * NUM_ENVS)
    return stepper, *collected(made, members, 1, [stepper], rollouts=2)


@pytest.mark.rest
def test_a_trajectory_is_that_of_a_plain_loop(single, members):
    """Under the same actions, bit for bit, with two ends and more in one lane."""
    stepper, _, _, rollouts = single
    rows = [jax.tree.map(np.asarray, rollout.rows[0]) for rollout in rollouts]
    (drawn,) = seeds(members.keys, NUM_ENVS, 1, 0)
    most = 0
    for lane, seed in enumerate(drawn.tolist()):
        env, (member, place) = gymnasium.make("CartPole-v1"), divmod(lane, NUM_ENVS)
        obs, _ = env.reset(seed=seed)
        for row in rows:
            ends = 0
            for at in range(NUM_STEPS):
                took = jax.tree.map(lambda x, at=at, member=member, place=place: x[member, at, place], row)
                np.testing.assert_array_equal(took.obs, obs)
                obs, reward, terminated, truncated, _ = env.step(int(took.action))
                np.testing.assert_array_equal(took.next_obs, obs)
                assert (took.reward, took.terminated, took.truncated) == (reward, terminated, truncated)
                if terminated or truncated:
                    obs, _ = env.reset()
                    ends += 1
            most = max(most, ends)
    assert most >= 2


@pytest.mark.rest
def test_log_probabilities_are_those_of_the_version_that_acted(single, members):
    """Computed anew from the stored observations, by the network's own forward pass over whole trajectories."""
    _, _, behaviour, rollouts = single
    network = impala.make_learner(CONFIG, ENV)
    for member in range(2):
        row = jax.tree.map(lambda x, member=member: x[member], rollouts[1].rows[0])
        ratio = network.log_ratio(row, jax.tree.map(lambda x, member=member: x[member], behaviour))
        np.testing.assert_allclose(ratio, 0.0, atol=1e-6)
    assert rollouts[1].versions.tolist() == [0] * NUM_STEPS


@pytest.mark.rest
def test_double_buffering_is_its_halves_one_after_another(made, members, single):
    """Bit for bit whoever steps them, and within rounding what the whole batch is inferred to do."""
    plain = [Slow(NUM_ENVS), Slow(NUM_ENVS)]
    _, _, (one, other) = collected(made, members, 2, plain, rollouts=2)
    threads = [local.threaded(lambda: ENV.host.batch(NUM_ENVS)) for _ in range(2)]
    _, _, again = collected(made, members, 2, threads, rollouts=2)
    for stepper in threads:
        stepper.close()
    for mine, theirs in zip((one, other), again, strict=True):
        jax.tree.map(np.testing.assert_array_equal, mine.rows, theirs.rows)
    whole = single[3]
    for halves, rollout in zip((one, other), whole, strict=True):
        beside = jax.tree.map(lambda *x: np.concatenate(x, axis=2), *halves.rows)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), beside, rollout.rows[0])


@pytest.mark.rest
def test_what_is_learned_is_what_a_program_would_learn(made, members, single):
    """From the same trajectory, with V-trace's targets of the stored probabilities."""
    _, state, _, rollouts = single
    rollout = rollouts[0]
    alone = trees.take(state, 0)
    trainer = impala.make_trainer(CONFIG, envs.make("CartPole-v1"))
    trajectory = jax.tree.map(lambda x: x[0], rollout.rows[0])
    expected, _ = jax.jit(trainer.learn)(alone, trajectory, rollout.key_learn[0])
    keys = rollout.next_key, rollout.key_learn
    result, metrics = made[1].learn(
        jax.tree.map(jnp.copy, state), hosting.leaves(members.given), *keys, rollout.lanes, rollout.rows
    )
    close = lambda x, y: np.testing.assert_allclose(x[0], y, atol=1e-6)
    jax.tree.map(close, result.learner.params, expected.learner.params)
    assert metrics["episodes"].tolist() == np.asarray(rollout.rows[0].terminated).sum(axis=(1, 2)).tolist()


@pytest.mark.rest
@pytest.mark.parametrize("algo", [ppo, impala, dqn, r2d2], ids=lambda algo: algo.name)
def test_learning_is_the_same_program(algo):
    """Of environments of the host and of native ones, to the letter."""
    sizes = {"num_envs": 2, "num_steps": 8, "total_steps": 1024, "hidden_sizes": (8,)}
    small = {"batch_size": 4, "capacity": 512, "warmup_steps": 128} if algo in (dqn, r2d2) else {}
    config, key = algo.Config(**sizes, **small), jax.random.key(0)

    def text(env):
        trainer = algo.make_trainer(config, env)
        state = jax.eval_shape(trainer.begin or trainer.init, key)
        actors, trajectory, _ = jax.eval_shape(
            trainer.collect, jax.eval_shape(trainer.learner.behaviour, state.learner), state.actors, key
        )
        return (
            jax.jit(lambda *args: trainer.learn(args[0]._replace(actors=()), *args[1:]))
            .lower(state, trajectory, key)
            .as_text()
        )

    assert text(ENV._replace(name="CartPole-v1")) == text(envs.make("CartPole-v1"))


@pytest.mark.rest
def test_a_single_agent_learns_without_a_copy_of_its_replay():
    """Removing the axis of members within `learn` copied it twice, in each iteration."""
    config = cfg.with_lengths(dqn.Config(num_envs=1, num_steps=1, hidden_sizes=(8,), batch_size=4, capacity=2**14))
    one = population.members(config, jax.random.split(jax.random.key(0), 1))
    single = programs(lambda config: dqn.make_trainer(config, ENV), one, 1)
    assert single.like.replay.position.shape == (1,)
    size = trees.nbytes(single.like.replay)
    for program in (single.enter, single.leave, single.fill, single.learn):
        memory = program.memory_analysis()
        assert memory.alias_size_in_bytes >= size and memory.temp_size_in_bytes < 0.1 * size


def trained(members, how=IN_THIS_PROCESS, ahead=0, iterations=4):
    """The state after some iterations, and their metrics."""
    program = HostProgram(make_trainer, members, how, ahead)
    try:
        state, rows = program.begin(members), []
        for chunk in program.chunks(members, state, 0, iterations):
            state = chunk.state
            rows.append(chunk.metrics)
    finally:
        program.close()
    return jax.device_get(state.learner), {name: np.concatenate([x[name] for x in rows]) for name in rows[0]}


@pytest.mark.weekly
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_lag_is_what_was_asked_for(members, ahead):
    """Whatever is faster: so a training is the same each time."""
    learner, metrics = trained(members, ahead=ahead)
    expected = np.minimum(np.arange(4), ahead)
    for name in ("lag_least", "lag_mean", "lag_largest"):
        assert metrics[name][:, 0].tolist() == expected.tolist()
    again, _ = trained(members, ahead=ahead)
    jax.tree.map(np.testing.assert_array_equal, learner, again)
    shares = sum(metrics[name] for name in metrics if name.startswith("share_"))
    np.testing.assert_allclose(shares, 1.0, atol=1e-5)


@pytest.mark.weekly
def test_who_steps_changes_nothing(members):
    """Workers, or this process: an environment is its seed and its actions."""
    plain, _ = trained(members, How("none", "on"))
    workers, _ = trained(members, How("2", "on"))
    jax.tree.map(np.testing.assert_array_equal, plain, workers)


@pytest.mark.parametrize(("double_buffering", "groups"), [("auto", 1), ("on", 2)])
def test_rows_of_opponents_are_halved_only_where_that_is_asked_for(members, monkeypatch, double_buffering, groups):
    """And are refused then, where the programs are made."""
    results = []
    monkeypatch.setattr(hosting, "programs", lambda *args: results.append(args[2]) or SimpleNamespace(chunk=None))

    def make(config):
        trainer = make_trainer(config)
        return trainer._replace(learner=trainer.learner._replace(rows=np.arange(2)))

    HostProgram(make, members, How("2", double_buffering), ahead=0)
    with pytest.raises(ConfigError, match="rows of their own"):
        check_groups(make(CONFIG), 2)
    assert results == [groups]
