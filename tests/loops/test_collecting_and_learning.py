"""An iteration in two halves, collecting and learning, which may be two processes."""

import pickle
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from purerl import dqn, envs, ppo

ENV = envs.make("CartPole-v1", max_steps=11)
SMALL = {"hidden_sizes": (8,), "num_envs": 4, "num_steps": 8, "total_steps": 4_000}
TRAININGS = {
    "ppo": (ppo, ppo.Config(**SMALL, memory="gru", memory_size=4, sequence_length=4, num_minibatches=2)),
    "dqn": (dqn, dqn.Config(**SMALL, capacity=256, warmup_steps=64, batch_size=8, num_updates=2, prioritised=True)),
}
LEARNING = """
import pickle, sys
import jax
import test_collecting_and_learning

name, path = sys.argv[1:]
algorithm, config = test_collecting_and_learning.TRAININGS[name]
trainer = algorithm.make_trainer(config, test_collecting_and_learning.ENV)
state = jax.jit(trainer.init)(jax.random.key(0))
with open(path, "rb") as file:
    trajectory = pickle.load(file)
_, _, key_learn = jax.random.split(state.key, 3)
state, metrics = jax.jit(trainer.learn)(state._replace(actors=()), trajectory, key_learn)
with open(path, "wb") as file:
    pickle.dump(jax.device_get((state.learner, state.replay, metrics)), file)
"""


@pytest.mark.rest
@pytest.mark.weekly("dqn")
@pytest.mark.parametrize("name", TRAININGS)
def test_learned_from_in_another_process(name, tmp_path):
    """A trajectory that was collected here, without what learns: the same bits as one iteration in one piece."""
    algorithm, config = TRAININGS[name]
    trainer = algorithm.make_trainer(config, ENV)
    state = jax.jit(trainer.init)(jax.random.key(0))
    behaviour = jax.device_get(trainer.learner.behaviour(state.learner))
    _, key_collect, _ = jax.random.split(state.key, 3)
    actors, trajectory, _ = jax.jit(trainer.collect)(behaviour, state.actors, key_collect)
    path = tmp_path / "trajectory"
    path.write_bytes(pickle.dumps(jax.device_get(trajectory)))
    subprocess.run(
        [sys.executable, "-c", LEARNING, name, str(path)], check=True, cwd=Path(__file__).parent, timeout=300
    )
    learner, replay, metrics = pickle.loads(path.read_bytes())
    after, whole = jax.jit(trainer.step)(state)
    same = lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    jax.tree.map(same, (learner, replay), jax.device_get((after.learner, after.replay)))
    jax.tree.map(same, metrics, {name: whole[name] for name in metrics})
    jax.tree.map(same, actors, after.actors)
