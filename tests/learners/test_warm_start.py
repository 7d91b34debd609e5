"""Warm starts: what begins with another training's policy, and what is new."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import at_random, core
from jax.flatten_util import ravel_pytree

from purerl import ConfigError, counters, cql, dqn, envs, implicit_q, ppo, sac, td3, td3_bc
from purerl.algos import ALGORITHMS
from purerl.envs.fleet import fleet
from purerl.learners.parts import warm_start

CARTPOLE, PENDULUM, TEAM = (envs.make(name) for name in ("CartPole-v1", "Pendulum-v1", "TwoStep-v0"))
TEAMS = "qmix", "vdn", "iql", "masac"
BOXES = "sac", "td3", "ddpg"
SMALL = {"hidden_sizes": (8,), "num_envs": 4}


def seen(env, config):
    """First observations of the environments."""
    return jax.eval_shape(lambda key: fleet(env, config.num_envs).reset(key)[1], jax.random.key(0))


@pytest.mark.weekly(*sorted(set(ALGORITHMS) - {"ppo", "dqn", "sac", "pqn", "r2d2"}))
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_begins_with_a_policy(name):
    """As shapes: every leaf of its policies is one of its state, so that it can be put there."""
    algo = ALGORITHMS[name]
    env = TEAM if name in TEAMS else PENDULUM if name in BOXES else CARTPOLE
    config = algo.Config()
    learner, obs = algo.make_learner(config, env), seen(algo.view(config, env), config)
    begin = lambda key, obs, policy: algo.warm_start(policy).make_learner(config, env).init(key, obs)
    given = jax.random.key(0), obs
    anew, policy = jax.eval_shape(lambda *given: (state := learner.init(*given), learner.policy(state)), *given)
    assert jax.eval_shape(begin, *given, policy) == anew


@pytest.mark.parametrize(
    ("algo", "names"),
    [(cql, {"critic", "log_temperature"}), (implicit_q, {"critic", "value"}), (td3_bc, {"critic"})],
    ids=lambda x: getattr(x, "name", ""),
)
def test_what_is_kept_of_recorded_play(algo, names):
    """What another training can begin with beside the actor."""
    learner = algo.make_learner(algo.Config(hidden_sizes=(8,)), PENDULUM)
    state = jax.eval_shape(learner.init, jax.random.key(0), jnp.zeros((1, 3)))
    assert set(learner.critics(state)) == names


@pytest.mark.rest
@pytest.mark.parametrize(
    ("algo", "env", "more", "alike"),
    [
        (ppo, CARTPOLE, {"max_lag": 2, "normalize_obs": True}, ("acting",)),
        (dqn, CARTPOLE, {}, ("params", "target_params")),
        (sac, PENDULUM, {}, ()),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_what_begins_with_it_and_what_is_new(key, algo, env, more, alike):
    config = algo.Config(**SMALL, **more)
    learner, shapes = algo.make_learner(config, env), seen(env, config)
    obs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    policy = at_random(lambda key: learner.policy(learner.init(key, obs)), key)

    @jax.jit
    def begin(key, policy):
        made = algo.warm_start(policy).make_learner(config, env)
        state = made.init(key, obs)
        return state, made.policy(state), learner.init(key, obs)

    state, own, anew = begin(key, policy)
    jax.tree.map(np.testing.assert_array_equal, own, policy)
    expected = ravel_pytree(getattr(policy, "params", policy))[0]
    for name in alike:
        np.testing.assert_array_equal(ravel_pytree(getattr(state, name))[0], expected)
    if algo is ppo:
        np.testing.assert_array_equal(state.history.versions, np.broadcast_to(expected, (3, len(expected))))
        np.testing.assert_array_equal(ravel_pytree(core(state).params)[0], expected)
        np.testing.assert_array_equal(core(state).obs_moments.moments.mean, policy.obs_moments.mean)
    if algo is sac:  # the actor's policy; critics are new, as none are given
        jax.tree.map(np.testing.assert_array_equal, state.params["critic"], anew.params["critic"])
        assert counters.number(state.updates) == 0
    state, anew = core(state), core(anew)
    names = [name for name in state._fields if name.endswith("opt_state")]
    assert names
    for name in names:
        jax.tree.map(np.testing.assert_array_equal, getattr(state, name), getattr(anew, name))


@pytest.mark.rest("td3")
@pytest.mark.parametrize("algo", [sac, td3], ids=lambda algo: algo.name)
def test_critics_and_target_networks_begin_with_those_of_before(key, algo):
    """In TD3's own code target networks began at random beside critics that were loaded (sfujim/TD3, issue 20)."""
    config = algo.Config(**SMALL)
    learner, obs = algo.make_learner(config, PENDULUM), jnp.zeros((4, 3))
    policy = at_random(lambda key: learner.policy(learner.init(key, obs)), key)
    critics = at_random(lambda key: learner.critics(learner.init(key, obs)), key)

    @jax.jit
    def begin(key, policy, critics):
        return algo.warm_start(policy, critics).make_learner(config, PENDULUM).init(key, obs), learner.init(key, obs)

    state, anew = begin(key, policy, critics)
    jax.tree.map(np.testing.assert_array_equal, {"actor": policy.params, **critics}, state.params)
    expected = {name: state.params[name] for name in state.target_params}
    jax.tree.map(np.testing.assert_array_equal, state.target_params, expected)
    assert set(critics) == {"critic"} | ({"log_temperature"} if algo is sac else set())
    assert counters.number(state.updates) == 0
    for name in ("critic_opt_state", "actor_opt_state"):
        jax.tree.map(np.testing.assert_array_equal, getattr(state, name), getattr(anew, name))


def test_some_critics_are_enough_and_others_are_refused():
    """A temperature that is not learned is that of the settings."""

    def begun(algo, critics, **more):
        made = lambda policy, critics: algo.warm_start(policy, critics).make_learner(
            algo.Config(**SMALL, **more), PENDULUM
        )
        init = lambda key, *given: made(*given).init(key, jnp.zeros((4, 3)))
        jax.eval_shape(init, jax.random.key(0), _shapes(algo, "policy"), critics)

    of_sac = _shapes(sac, "critics")
    begun(sac, {"critic": of_sac["critic"]})
    with pytest.raises(ConfigError, match="^log_temperature: is in it, and not in the critics of this training"):
        begun(sac, of_sac, learn_temperature=False)
    with pytest.raises(ConfigError, match=r"^critic\.params.*is float32\[2, 8, 1\] in it, and float32\[2, 6, 1\] in"):
        begun(td3, _shapes(td3, "critics"), critic_hidden_sizes=(6,))


def _shapes(algo, what):
    learner = algo.make_learner(algo.Config(**SMALL), PENDULUM)
    return jax.eval_shape(lambda key: getattr(learner, what)(learner.init(key, jnp.zeros((4, 3)))), jax.random.key(0))


def test_the_first_leaf_that_differs_is_named():
    f = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    own = {"a": f(2), "b": {"c": f(3, 4)}}
    assert warm_start.problem(own, own) == ""
    assert warm_start.problem(own, {"a": f(2), "b": {"c": f(3, 8)}}) == (
        "b.c: is float32[3, 8] in it, and float32[3, 4] in this training"
    )
    assert warm_start.problem(own, {"a": f(2), "b": {}}) == "b.c: is missing in it"
    assert warm_start.problem(own, {**own, "d": f()}).startswith("d: is in it, and not in")
    assert "another kind" in warm_start.problem([f(2)], (f(2),))


def test_a_policy_of_another_kind_is_refused():
    small, large = ppo.Config(hidden_sizes=(8,)), ppo.Config(hidden_sizes=(16,))
    trainer = ppo.make_trainer(small, CARTPOLE)
    policy = jax.eval_shape(lambda key: trainer.learner.policy(trainer.init(key).learner), jax.random.key(0))
    with pytest.raises(ConfigError, match=r"kernel: is float32\[8, 2\] in it, and float32\[16, 2\]"):
        jax.eval_shape(ppo.warm_start(policy).make_train(large, CARTPOLE), jax.random.key(0))
