"""Policies by evolution: the best one of a probe, and what a candidate's fitness is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.loops.evaluation import play
from purerl.meta import of_policies, policies


@pytest.mark.rest
def test_the_best_policy_of_a_probe_is_found():
    """It must look at the observation, which is worth 1; all that do not are worth 0."""
    env = envs.make("probe/obs-action-match")
    network = policies.make_network(env, (4,))
    options = {"sigma": 0.5, "sigma_limit": 0.1, "learning_rate": 0.1, "momentum": 0.9}
    search = of_policies(env, network, population=16, num_episodes=32, max_steps=1, **options)

    @jax.jit
    def run(key):
        start = search.init(key)
        state, metrics = jax.lax.scan(lambda state, _: search.step(state), start, None, 40)
        judge = lambda state: play(key, env, policies.player(env, network, search.mean(state)), 64, 1).episode_return
        return metrics, judge(start), judge(state), network.apply(search.mean(state), jnp.array([[-1.0], [1.0]]))

    metrics, before, after, logits = jax.vmap(run)(jax.random.split(jax.random.key(0), 6))
    assert np.mean(before) < 0.9 and np.all(after == 1)
    np.testing.assert_array_equal(np.argmax(logits, axis=2), [[0, 1]] * 6)
    fitness = np.asarray(metrics["fitness"])
    assert fitness[:, -1].min() > 0.9 > fitness[:, 0].max() and np.all(metrics["fitness_best"][:, -1] == 1)
