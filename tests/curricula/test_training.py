"""Trainings in levels that a curriculum chooses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs, loops, ppo, trees
from purerl.algos import ALGORITHMS
from purerl.curricula import on_policy
from purerl.errors import ConfigError
from purerl.types import Design

ENV = envs.make("CartPole-v1", randomise="length:0.25:1.0,gravity:5:15")
SMALL = {
    "num_envs": 4,
    "num_steps": 64,
    "num_epochs": 1,
    "num_minibatches": 1,
    "hidden_sizes": (8,),
    "total_steps": 16 * 256,
    "level_capacity": 8,
}
KEY = jax.random.key(0)


def config(curriculum, **changes):
    given = {**SMALL, "curriculum": curriculum, "level_period": 10, **changes}
    if curriculum == "paired":
        given |= {"level_capacity": 4000, "level_period": 100}
    return ppo.Config(**given)


@pytest.fixture(scope="module")
def steps():
    """Of each curriculum a trainer, its first state, and one iteration as a program."""
    made = {}

    def of(curriculum):
        if curriculum not in made:
            trainer = ppo.make_trainer(config(curriculum), ENV)
            made[curriculum] = trainer, jax.jit(trainer.init)(KEY), jax.jit(trainer.step)
        return made[curriculum]

    return of


def run(step, state, times):
    rows = []
    for _ in range(times):
        state, metrics = step(state)
        rows.append(metrics)
    return state, jax.tree.map(lambda *x: np.stack(x), *rows)


def same(one, other):
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(*map(_leaves, (one, other)), strict=True))


def _leaves(tree):
    keys = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return [np.asarray(jax.random.key_data(x) if keys(x) else x) for x in jax.tree.leaves(tree)]


@pytest.mark.rest
@pytest.mark.parametrize("curriculum", ["robust-plr", "accel"])
def test_robust_curricula_learn_from_replayed_levels_alone(steps, curriculum):
    _, state, step = steps(curriculum)
    learned = []
    for _ in range(12):
        after, metrics = step(state)
        assert same(state.learner, after.learner) == (not metrics["replayed"])
        assert np.isnan(metrics["loss"]) == (not metrics["replayed"]) and metrics["alive"]
        learned.append(bool(metrics["replayed"]))
        state = after
    assert set(learned) == {False, True}


@pytest.mark.rest
def test_replay_learns_from_new_levels_too(steps):
    _, state, step = steps("plr")
    after, metrics = step(state)
    assert not metrics["replayed"] and not same(state.learner, after.learner)


@pytest.mark.rest
@pytest.mark.weekly("sfl", "paired")
@pytest.mark.parametrize("curriculum", ["plr", "sfl", "paired"])
def test_goes_on_with_the_same_bits(steps, curriculum):
    """From a state that was taken to the host and back, as checkpoints are."""
    trainer, state, step = steps(curriculum)
    whole = run(step, state, 3)[0]
    half = jax.tree.map(jnp.asarray, jax.device_get(step(state)[0]))
    assert same(whole, run(step, half, 2)[0])
    assert same(whole, jax.jit(lambda s: loops.chunk(trainer, 3)(s, 3))(state)[0])


@pytest.mark.rest
def test_each_iteration_begins_in_the_levels_of_its_plan(steps):
    trainer, state, step = steps("plr")
    state, _ = run(step, state, 4)
    given = trainer.acts_by(state)
    _, lesson, metrics = jax.jit(trainer.collect)(given, state.actors, KEY)
    first = jax.vmap(ENV.begin)(lesson.plan.levels)[1]
    trajectory = lesson.trajectory
    np.testing.assert_array_equal(trajectory.obs[0], first)
    t, b = np.nonzero(trajectory.last[:-1])
    assert t.size and metrics["episodes"] == trajectory.last.sum()
    np.testing.assert_array_equal(trajectory.obs[t + 1, b], first[b])  # and again after each end


@pytest.mark.rest
def test_levels_without_an_end_are_told():
    """Four steps end no episode: nothing has a score, and nothing enters the buffer."""
    trainer = ppo.make_trainer(config("plr", num_steps=4), ENV)
    _, metrics = run(jax.jit(trainer.step), jax.jit(trainer.init)(KEY), 3)
    assert np.all(metrics["unfinished"] == 1) and np.all(metrics["levels"] == 0) and np.all(metrics["alive"])


def test_frames_are_those_of_all_rollouts():
    for curriculum, rollouts in {"none": 1, "dr": 1, "robust-plr": 1, "accel": 2, "sfl": 2, "paired": 2}.items():
        settings = config(curriculum)
        trainer = ppo.make_trainer(settings, ENV)
        assert trainer.env_steps == settings.iteration_frames == 256 * rollouts
        assert settings.num_iterations == 16 // rollouts and trainer.frames(3) == 768 * rollouts


@pytest.mark.rest
def test_random_levels_are_the_plain_training(steps):
    _, state, step = steps("dr")
    plain = ppo.make_trainer(config("none"), ENV)
    assert same(run(step, state, 2), run(jax.jit(plain.step), plain.init(KEY), 2))


@pytest.mark.rest
def test_what_is_scored_is_what_was_replayed_with_changes(steps):
    trainer, state, step = steps("accel")
    while True:
        state, metrics = step(state)
        if metrics["replayed"]:
            break
    curriculum = on_policy.make_curriculum(config("accel"), ENV, ENV.design)
    plan = curriculum.plan(state.curriculum, KEY)._replace(replayed=jnp.array(True))
    changed, fresh = (
        curriculum.probe(state.curriculum, plan._replace(replayed=jnp.array(replayed)), KEY)
        for replayed in (True, False)
    )
    reach = 5 * 0.1 * np.array([0.75, 10.0]) + 1e-5
    for name, most in zip(("length", "gravity"), reach, strict=True):
        assert np.all(np.abs(changed[0][name] - plan.levels[0][name]) <= most)
        assert np.max(np.abs(fresh[0][name] - plan.levels[0][name])) > most
    assert not same(changed, plan.levels)


@pytest.mark.rest
def test_most_learnable_levels_take_over_after_their_period(steps):
    _, state, step = steps("sfl")
    state, metrics = run(step, state, 8)
    assert np.all(metrics["levels"] == 0) and not metrics["replayed"].any()
    state, metrics = run(step, state, 3)
    assert metrics["levels"].tolist() == [0, 4, 4] and metrics["replayed"].tolist() == [0, 0, 1]
    assert state.curriculum.age == 1


@pytest.mark.rest
def test_seeds_and_floats_may_be_mapped():
    """Each member of a population is the training that it is alone."""
    rates = jnp.array([0.2, 0.9])
    keys = jax.random.split(KEY, 2)

    def train(share, key):
        settings = dataclasses.replace(config("robust-plr"), level_share=share)
        return loops.train(ppo.make_trainer(settings, ENV), 8)(key).metrics

    together = jax.jit(jax.vmap(train))(rates, keys)
    alone = jax.jit(train)(rates[1], keys[1])
    for name in ("replayed", "levels", "episode_return"):
        np.testing.assert_allclose(together[name][1], alone[name], rtol=1e-5)
    assert together["replayed"].mean(axis=1)[0] < together["replayed"].mean(axis=1)[1]


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("algo", "curriculum"),
    [("a2c", "plr"), ("a2c", "paired"), ("impala", "accel"), ("pqn", "sfl"), ("pqn", "paired"), ("ppo", "robust-plr")],
)
def test_every_algorithm_on_policy_can_be_taught(algo, curriculum):
    algorithm = ALGORITHMS[algo]
    given = (
        dict(SMALL) if algo in ("ppo", "pqn") else {k: v for k, v in SMALL.items() if "num_" not in k or "envs" in k}
    )
    given |= {"memory": "gru", "memory_size": 8} if algo in ("ppo", "impala") else {}
    given |= {"curriculum": curriculum, "level_period": 10, "level_score": "positive-value", "total_steps": 4096}
    trainer = algorithm.make_trainer(algorithm.Config(**given), ENV)
    state, metrics = run(jax.jit(trainer.step), jax.jit(trainer.init)(KEY), 4)
    assert np.all(metrics["alive"]) and (np.all(metrics["regret"] >= 0) if curriculum == "paired" else True)


@pytest.mark.rest
def test_agents_of_one_environment_are_taught_together():
    env = envs.make("Landmarks-v0")
    draws = lambda key, level: env.levels(key, ())
    taught = env._replace(design=Design(draws, (2,), draws))
    trainer = ppo.make_trainer(config("plr"), taught)
    state, metrics = run(jax.jit(trainer.step), trainer.init(KEY), 2)
    assert np.all(metrics["alive"]) and trees.length(state.curriculum.buffer.levels) == 8


@pytest.mark.rest
def test_a_teacher_is_new_where_an_agent_begins_with_a_policy(steps):
    trainer, state, _ = steps("paired")
    policy = trainer.learner.policy(state.learner)
    warm = ppo.warm_start(policy).make_trainer(config("paired"), ENV)
    start = jax.jit(warm.init)(jax.random.key(5))
    others = start.curriculum
    assert same(start.learner.params, state.learner.params) and same(others.antagonist.params, state.learner.params)
    assert not same(others.teacher.params, state.curriculum.teacher.params)


@pytest.mark.parametrize(
    ("changes", "env", "line"),
    [
        ({"curriculum": "plr"}, "CartPole-v1", "has no levels to choose from; give parameters to be drawn, as in"),
        ({"curriculum": "dr"}, "CartPole-v1", "--env-params randomise=gravity:4.9:19.6"),
        ({"curriculum": "plr", "normalize_reward": True}, None, "level_score = 'max-mc' compares returns with values"),
        (
            {"curriculum": "accel", "intrinsic": "rnd"},
            None,
            "which have the bonus of intrinsic = 'rnd'; give level_score",
        ),
        ({"curriculum": "plr", "level_capacity": 3, "num_envs": 4}, None, "level_capacity = 3:"),
        ({"curriculum": "sfl", "level_period": 2}, None, "curriculum = 'sfl': keeps 1 levels"),
        ({"curriculum": "plr", "opponents": "past"}, None, "it needs the decisions of all agents"),
        ({"curriculum": "paired", "total_steps": 16}, None, "must be at least one iteration, 2 * num_envs * num_steps"),
    ],
)
def test_what_cannot_be_is_refused(changes, env, line):
    made = envs.make(env) if env else ENV
    with pytest.raises(ConfigError, match=line.replace("*", r"\*").replace("[", r"\[")):
        ppo.make_trainer(ppo.Config(**changes), made)
