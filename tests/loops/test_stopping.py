"""Early stopping, on a training that counts, against a walk in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import counters, loops
from purerl.envs.fleet import Fleet
from purerl.loops import stopping
from purerl.types import Trainer, TrainState

RETURNS = np.random.default_rng(0).normal(size=(3, 20)).astype(np.float32).round(2)
ENDED = np.random.default_rng(1).integers(0, 4, size=(3, 20)).astype(np.int32)
"""Returns and numbers of the episodes of three members in 20 iterations."""


def counting(member, dies=99):
    """A trainer whose learner is the number of times that it learned, with the metrics of one of the members."""

    returns, ended = jnp.asarray(RETURNS)[member], jnp.asarray(ENDED)[member]

    def collect(behaviour, actors, key):
        mean = jnp.where(ended > 0, returns, jnp.nan)[actors]
        return actors + 1, (), {"episode_return": mean, "episodes": ended[actors]}

    def learn(state, trajectory, key):
        at = state.actors - 1
        after, alive = state.learner + 1, state.alive & (at < dies)
        state = state._replace(learner=after, iteration=counters.increment(state.iteration), alive=alive)
        return state, {"loss": jnp.zeros(()), "alive": alive}

    def init(key):
        zero = jnp.zeros((), jnp.int32)
        return TrainState(zero, zero, (), counters.of(), jnp.ones((), bool), key)

    learner = type("Learner", (), {"behaviour": staticmethod(lambda state: state)})
    return Trainer(init, collect, learn, learner, Fleet(1, 1, None, None, None), num_steps=1)


def walk(member, target, episodes):
    """The iteration after which a member stops, by the definition."""
    total, ended = 0.0, 0
    for iteration, (value, count) in enumerate(zip(RETURNS[member], ENDED[member], strict=True), 1):
        total, ended = total + float(value) * int(count), ended + int(count)
        if ended >= episodes:
            if total / ended >= target:
                return iteration
            total, ended = 0.0, 0
    return None


def trained(target, episodes, dies=99):
    run = lambda member: loops.train(stopping.stop_at(counting(member, dies), target, episodes), 20)(jax.random.key(0))
    return jax.jit(jax.vmap(run))(jnp.arange(3))


@pytest.mark.parametrize(("target", "episodes"), [(0.5, 1), (0.3, 5), (0.1, 8), (9.0, 1)])
def test_each_member_stops_where_the_walk_does(target, episodes):
    state, metrics = trained(target, episodes)
    expected = [walk(member, target, episodes) for member in range(3)]
    assert stopping.iterations(state.stopping) == expected
    assert state.learner.tolist() == [at or 20 for at in expected]  # it learned up to there, and no more
    np.testing.assert_array_equal(metrics["stopped"].sum(axis=1), [20 - at + 1 if at else 0 for at in expected])
    assert state.iteration.low.tolist() == [20] * 3


def test_the_walks_differ():
    assert len({walk(member, 0.3, 5) for member in range(3)}) == 3 and walk(0, 9.0, 1) is None


def test_what_has_stopped_does_not_die_any_more():
    state, metrics = trained(0.5, 1, dies=15)
    expected = [walk(member, 0.5, 1) for member in range(3)]
    assert max(expected) < 15 and state.alive.all() and metrics["alive"].all()
    assert not trained(9.0, 1, dies=15)[0].alive.any()


def test_stopping_from_outside():
    """Without a target nothing is looked at; who is told to stop learns no more."""
    trainer = stopping.stop_at(counting(0), None)
    state = jax.jit(lambda key: loops.train(trainer, 4)(key).state)(jax.random.key(0))
    everyone = jax.tree.map(lambda x: jnp.stack([x] * 3), state)
    stopping_state = stopping.stopped_by(everyone.stopping, np.array([False, True, False]), 2**32 + 4)
    assert stopping.iterations(stopping_state) == [None, 2**32 + 4, None]
    again = stopping.stopped_by(stopping_state, np.array([True, True, False]), 2**32 + 5)
    assert stopping.iterations(again) == [2**32 + 5, 2**32 + 4, None]
    after, metrics = jax.jit(jax.vmap(trainer.step))(everyone._replace(stopping=stopping_state))
    assert after.learner.tolist() == [5, 4, 5] and metrics["stopped"].tolist() == [False, True, False]
