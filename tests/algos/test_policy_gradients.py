"""What the policy gradients owe one another: equal where they must be, stale as declared, memories that line up."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import core, for_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from purerl import a2c, appo, dpo, envs, impala, ippo, mappo, ppo, reinforce, trees
from purerl.envs.fleet import fleet
from purerl.errors import ConfigError
from purerl.formulas import losses, returns
from purerl.learners.families import actor_critic
from purerl.learners.parts import gradients, stale_actors
from purerl.loops.rollout import rollout
from purerl.networks import memory

ENV = envs.make("CartPole-v1", max_steps=10, theta_threshold=0.1)
SIZES = {"total_steps": 8 * 16 * 4, "num_envs": 8, "num_steps": 16, "hidden_sizes": (8,), "learning_rate": 1e-2}
SGD = {"optimiser": optax.sgd(0.1)}


def jit(function):
    """Compiled fast, with the same bits in every program."""
    return jax.jit(function, compiler_options=for_bits())


def close(a, b, **options):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **{"atol": 1e-5, **options}), a, b)


@functools.cache
def program(algo, config):
    """A training by plain gradient descent, of any lag."""
    return jit(lambda lag, key: algo.make_train(dataclasses.replace(config, lag=lag), ENV, **SGD)(key))


def trained(algo, config, key, lag=0.0):
    """The parameters at its end."""
    return core(program(algo, config)(lag, key).state).params


@pytest.mark.weekly
def test_vtrace_of_fresh_experience_is_actor_critic(key):
    """Without a lag IMPALA is A2C with lambda 1, and so it is uncorrected, and REINFORCE; with a lag neither."""
    plain = {**SIZES, "normalize_reward": False}  # REINFORCE's returns are of whole episodes, before they are scaled
    stale = {**plain, "max_lag": 1}
    configs = [
        (a2c, a2c.Config(**stale)),
        (impala, impala.Config(**stale)),
        (impala, impala.Config(**stale, corrected=False)),
    ]
    expected, *fresh = [trained(algo, config, key) for algo, config in configs]
    for params in (trained(reinforce, reinforce.Config(**plain), key), *fresh):
        close(params, expected)
    results = [trained(algo, config, key, lag=1.0) for algo, config in configs]
    flat = [np.concatenate([x.ravel() for x in jax.tree.leaves(params)]) for params in (expected, *results)]
    assert all(np.abs(x - y).max() > 1e-4 for i, x in enumerate(flat) for y in flat[:i])


@pytest.mark.weekly
@pytest.mark.parametrize("kind", ["none", "gru"])
def test_appo_of_fresh_experience_is_ppo(key, kind):
    """With no lag, lambda 1, and a target network that follows at once."""
    sizes = {**SIZES, "num_epochs": 2, "num_minibatches": 2, "memory": kind, "sequence_length": 4}
    sizes["normalize_reward"] = False
    result = trained(appo, appo.Config(**sizes), key)
    close(result, trained(ppo, ppo.Config(**sizes, gae_lambda=1.0), key))
    slow = trained(appo, appo.Config(**sizes, target_period=3), key)
    assert max(jax.tree.leaves(jax.tree.map(lambda x, y: np.abs(x - y).max(), result, slow))) > 1e-4


@pytest.mark.weekly
def test_no_lag_costs_no_bits(key):
    """A lag of 0 in a program that could have one is a program without. Who acts then: `test_actors_lag`."""
    plain, able = (trained(a2c, a2c.Config(**SIZES, max_lag=n), key) for n in (0, 1))
    jax.tree.map(np.testing.assert_array_equal, able, plain)


@pytest.mark.rest
def test_a_gradient_is_the_mean_of_its_workers(key):
    """One step of A2C on W workers' environments is the mean of the steps on each worker's, of rewards as they are."""
    config = a2c.Config(**SIZES, normalize_reward=False)
    learner = a2c.make_learner(config, ENV, **SGD)
    trainer = a2c.make_trainer(config, ENV, **SGD)
    state = jit(trainer.init)(key)
    _, trajectory, _ = jit(
        lambda: rollout(key, fleet(ENV, 8), learner, learner.behaviour(state.learner), state.actors, 16)
    )()
    learn = jit(learner.update)
    whole = learn(state.learner, trajectory, key)[0].params
    parts = [learn(state.learner, jax.tree.map(lambda x, w=w: x[:, w::4], trajectory), key)[0].params for w in range(4)]
    mean = jax.tree.map(lambda *x: sum(x) / 4, *parts)
    moved = jax.tree.map(lambda x, y: np.abs(x - y).max(), whole, state.learner.params)
    assert min(jax.tree.leaves(moved)) > 0
    for result, expected in zip(jax.tree.leaves(whole), jax.tree.leaves(mean), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.fixture(scope="module")
def lagging():
    """An IMPALA with room for four older versions, and one iteration of it for any lag."""
    config = impala.Config(**SIZES, max_lag=4)

    @jit
    def run(key, lag):
        trainer = impala.make_trainer(dataclasses.replace(config, lag=lag), ENV, **SGD)

        def step(state, _):
            following, metrics = trainer.step(state)
            return following, (state.learner.learner.params, state.learner.acting, metrics["lag"])

        return jax.lax.scan(step, trainer.init(key), None, 12)

    return config, run


@pytest.mark.rest
@pytest.mark.parametrize("lag", [0, 1, 3, 4])
def test_actors_lag(lagging, lag, key):
    """Who acts in iteration i learned last in iteration i - lag, and the first parameters act until then."""
    _, run = lagging
    _, (params, acting, reported) = run(key, float(lag))
    then = np.maximum(np.arange(12) - lag, 0)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[then], y), params, acting)
    kernel = params["actor"]["params"]["Dense_0"]["kernel"]
    assert all(np.any(kernel[i] != kernel[i + 1]) for i in range(11))
    np.testing.assert_array_equal(reported, lag)


@pytest.mark.rest
def test_too_old_experience_moves_nothing(lagging, key):
    """Which only a traced lag can be; a lag that can be looked at is refused."""
    config, run = lagging
    _, (params, _, _) = run(key, 5.0)
    jax.tree.map(lambda x: np.testing.assert_array_equal(x, np.broadcast_to(x[0], x.shape)), params)
    for lag in (5.0, 1.5):
        [problem] = impala.problems(dataclasses.replace(config, lag=lag), ENV)
        assert problem.startswith(f"lag = {lag}:")


@pytest.mark.weekly
def test_recorded_policy_is_that_of_its_version(lagging, key):
    """The log-probabilities that V-trace takes for the actor's are those of the parameters that acted."""
    config = dataclasses.replace(lagging[0], lag=2.0)
    trainer = impala.make_trainer(config, ENV, **SGD)
    network = actor_critic.make_agent(config, ENV).network
    state, step = jit(trainer.init)(key), jit(trainer.step)
    versions = []
    for i in range(5):
        versions.append(state.learner.learner.params)
        _, trajectory, _ = rollout(
            key, fleet(ENV, 8), trainer.learner, trainer.learner.behaviour(state.learner), state.actors, 16
        )
        expected, _, _ = network.unroll(versions[max(i - 2, 0)], trajectory.obs, (), trajectory.last)
        close(trajectory.extras.policy, expected, atol=1e-6)
        state, _ = step(state)


@pytest.mark.rest
def test_epochs_end_at_the_target_kl(key):
    """The first minibatch is that of the policy that acted, so one step is taken, as if there were no others; without a
    target nothing looks."""
    config = ppo.Config(**{**SIZES, "total_steps": 8 * 16}, num_epochs=2, num_minibatches=2, learning_rate_decay=0.0)
    results = [
        jit(ppo.make_train(dataclasses.replace(config, target_kl=limit), ENV, **SGD))(key) for limit in (1e-12, 1e9, 0)
    ]
    few, all_of_them, plain = results
    assert few.metrics["updates_taken"] == 0.25 and all_of_them.metrics["updates_taken"] == 1.0
    assert "updates_taken" not in plain.metrics
    close(all_of_them.state.learner.params, plain.state.learner.params)
    moved, whole = (ravel_pytree(x.state.learner.params)[0] for x in (few, plain))
    start = ravel_pytree(jit(ppo.make_trainer(config, ENV, **SGD).init)(key).learner.params)[0]
    assert 0 < np.linalg.norm(moved - start) < np.linalg.norm(whole - start)


@pytest.mark.rest
def test_each_agent_has_its_own_adaptive_learning_rate(key):
    """Of two that begin with tiny steps: every minibatch multiplies but the first, which measures nothing. Then one
    goes its own way."""
    config = ppo.Config(**{**SIZES, "total_steps": 8 * 16 * 8}, num_epochs=4, adapt_learning_rate=0.01)
    begun = np.array([1e-5, 2e-5])
    train = lambda rate, key: ppo.make_train(dataclasses.replace(config, learning_rate=rate), ENV)(key)
    result = jit(jax.vmap(train))(jnp.asarray(begun, jnp.float32), jnp.stack([key, key]))
    rates = np.asarray(result.metrics["learning_rate"], np.float64).T  # [iterations, agents]
    np.testing.assert_allclose(rates[0], begun * 1.5**15, rtol=1e-5)
    assert np.all(rates <= 1.001e-2) and np.all(np.any(rates[1:] != rates[:-1], axis=0))
    np.testing.assert_array_equal(
        rates[-1], np.asarray(gradients.adapted_step_size(core(result.state).opt_state), np.float64)
    )


def test_an_adaptive_learning_rate_needs_adams_own():
    config = ppo.Config(adapt_learning_rate=0.01)
    with pytest.raises(ConfigError, match=r"^adapt_learning_rate = 0.01: must be 0 with an optimiser that is given"):
        ppo.make_learner(config, ENV, **SGD)


@pytest.mark.rest
@pytest.mark.weekly("gtrxl-4", "lru-4", "gru-0", "lstm-4")
@pytest.mark.parametrize(("kind", "length"), [("gru", 0), *((kind, 4) for kind in memory.MEMORIES)])
def test_memories_line_up(key, kind, length):
    """Before the first update every ratio is 1, to the last step of each sequence: sequences begin with the carry that
    the actor had, and begin anew where an episode ended. The value of what followed is the next step's."""
    sizes = {**SIZES, "num_epochs": 1, "num_minibatches": 1, "sequence_length": length}
    config = ppo.Config(**sizes, memory=kind, memory_size=8, memory_window=3)
    agent = actor_critic.make_agent(config, ENV)
    network = agent.network._replace(init=lambda k, obs: louder(agent.network.init(k, obs)))
    trainer = ppo.make_trainer(config, ENV, network=network)

    @jit
    def run(key):
        state = trainer.init(key)
        act = lambda actors, _: rollout(
            key, fleet(ENV, 8), trainer.learner, trainer.learner.behaviour(state.learner), actors, config.num_steps
        )[:2]
        both = jax.lax.scan(act, state.actors, None, length=2)[1]  # twice, so that carries are not zeros
        trajectory = jax.tree.map(lambda x: x[1], both)
        seen = actor_critic.Steps(
            trajectory.obs,
            trajectory.action,
            trajectory.reward,
            trajectory.extras.carry,
            trajectory.reward,
            trajectory.reward,
            trajectory.last,
            trajectory.next_obs,
        )
        result = agent.evaluate(state.learner.params, seen)
        return trajectory, result, trainer.learner.update(state.learner, trajectory, key)[1]

    trajectory, (policy, value, next_value), metrics = run(key)
    assert np.any(trajectory.terminated) and np.any(trajectory.truncated) and np.std(value) > 0.01
    assert abs(metrics["approximate_kl"]) < 1e-6 and metrics["clip_fraction"] == 0
    np.testing.assert_allclose(policy, trajectory.extras.policy, atol=2e-5)
    goes_on = ~np.asarray(trajectory.last)[:-1]
    np.testing.assert_allclose(next_value[:-1][goes_on], value[1:][goes_on], rtol=1e-4, atol=1e-4)
    assert np.all(np.abs(next_value[:-1] - value[1:])[~goes_on] > 1e-4)


@pytest.mark.weekly
@pytest.mark.parametrize("algo", [a2c, appo, dpo, impala, ippo, mappo, reinforce], ids=lambda algo: algo.name)
def test_ratios_begin_at_one(key, algo):
    """With a memory, of every algorithm, in the second rollout, in which episodes end: what learns gives the actions
    the probabilities that they had, as its update sees them, and others if ends of episodes were not seen.
    One of PPO's: `test_memories_line_up`."""
    sizes = {**SIZES, "num_epochs": 1, "num_minibatches": 1, "sequence_length": 4}
    names = [field.name for field in dataclasses.fields(algo.Config)]
    config = algo.Config(**{name: x for name, x in sizes.items() if name in names}, memory="gru", memory_size=8)
    trainer = algo.make_trainer(config, ENV)

    @jit
    def run(key):
        state = trainer.init(key)
        params = louder(state.learner.params)
        networks = [name for name in ("params", "target_params") if hasattr(state.learner, name)]
        learner = state.learner._replace(**dict.fromkeys(networks, params))
        behaviour = trainer.learner.behaviour(learner)
        act = lambda actors, _: trainer.collect(behaviour, actors, key)[:2]
        trajectory = trees.take(jax.lax.scan(act, state.actors, None, length=2)[1], 1)
        ratio = trainer.learner.log_ratio(trajectory, behaviour)
        endless = trajectory._replace(terminated=trajectory.last & False, truncated=trajectory.last & False)
        unseen = trainer.learner.log_ratio(endless, behaviour)
        return trajectory.last, ratio, unseen, trainer.learner.update(learner, trajectory, key).metrics

    last, ratio, unseen, metrics = run(key)
    assert np.any(last[:-1]) and np.any(np.abs(unseen) > 1e-3)
    np.testing.assert_allclose(ratio, 0.0, atol=2e-5)
    assert abs(metrics["approximate_kl"]) < 1e-6


def louder(params):
    """Parameters with which no output is near a constant."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(8), len(leaves))
    return tree.unflatten([x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


DPO = dpo.Config()


def drift(log_ratio, advantage):
    """What the objective takes from ``ratio * advantage``: in float64 by the paper's formula, and as it is here."""
    ratio = np.exp(np.float64(log_ratio))
    if advantage >= 0:
        x = (ratio - 1) * advantage
        exact = max(x - 2 * np.tanh(x / 2), 0)
    else:
        x = log_ratio * advantage
        exact = max(x - 0.6 * np.tanh(x / 0.6), 0)
    return exact, ratio * advantage - losses.discovered_policy(jnp.float32(log_ratio), jnp.float32(advantage), DPO)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(-3, 3, width=32), st.floats(-4, 4, width=32))
def test_drift_of_dpo(log_ratio, advantage):
    """By the formula, and so never negative."""
    exact, result = drift(log_ratio, advantage)
    assert exact >= 0
    np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-4 * (1 + abs(advantage) * np.exp(log_ratio)))


@pytest.mark.parametrize("advantage", [-3.0, -0.5, 0.0, 0.5, 3.0])
def test_drift_is_flat_at_ratio_one(advantage):
    """There the objective has the value and the slope of the plain policy gradient."""
    value, slope = jax.value_and_grad(lambda x: losses.discovered_policy(x, jnp.float32(advantage), DPO))(0.0)
    np.testing.assert_allclose((value, slope), advantage, rtol=1e-6)


@pytest.mark.parametrize("algo", [a2c, reinforce, impala, ppo, appo, dpo])
def test_defaults_are_sound(algo):
    assert algo.problems(algo.Config(), ENV) == [] and algo.problems(algo.Config(), envs.make("Pendulum-v1")) == []


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"lag": 1.0}, ["lag = 1.0:"]),
        ({"memory": "gru", "hidden_sizes": ()}, ["hidden_sizes = ():"]),
        ({"torso": "resnet"}, ["torso = 'resnet':"]),
        ({"memory": "gru", "sequence_length": 3}, ["sequence_length = 3: must divide num_steps = 16"]),
        (
            {"memory": "gru", "num_minibatches": 16},
            ["num_minibatches = 16: must divide the number of sequences, num_envs * num_steps / 16 = 8; "],
        ),
        ({"memory": "gru", "num_minibatches": 16, "sequence_length": 8}, []),
        ({"num_minibatches": 3}, ["num_minibatches = 3: must divide num_envs * num_steps = 128; nearest valid: 2, 4"]),
        ({"memory": "rnn"}, ["memory = 'rnn':"]),
        ({"gamma": 2.0, "lag": 1.0}, ["gamma = 2.0:", "lag = 1.0"]),
        ({"num_steps": "16", "lag": 1.0}, ["num_steps = '16':"]),
    ],
)
def test_problems(change, lines):
    problems = ppo.problems(dataclasses.replace(ppo.Config(**SIZES), **change), ENV)
    assert len(problems) == len(lines) and all(a.startswith(b) for a, b in zip(problems, lines, strict=True)), problems


def test_history_of_a_traced_lag():
    """Any lag up to the largest, of a ring that was written over; the lag may differ along a vmap."""

    def run(lag):
        history = stale_actors.begin({"a": jnp.zeros(2)}, 3)
        results = []
        for i in range(1, 9):
            old, history = stale_actors.lagged(history, {"a": jnp.full(2, float(i))}, lag)
            results.append(old["a"][0])
        return jnp.stack(results)

    result = jax.vmap(run)(jnp.arange(4.0))
    np.testing.assert_array_equal(result, np.maximum(np.arange(1, 9)[None] - np.arange(4)[:, None], 0))


@pytest.mark.weekly
def test_an_estimate_of_ones_own_is_what_ppo_and_a2c_learn_by(key):
    """GAE as a part, with another lambda than the config's."""
    for algo, sizes in ((ppo, {**SIZES, "num_epochs": 1, "num_minibatches": 1}), (a2c, SIZES)):
        given = algo.Config(**sizes, gae_lambda=0.9)
        own = jit(algo.make_train(given, ENV, estimate=returns.by_gae(0.3), **SGD))(key).state.learner.params
        close(own, trained(algo, algo.Config(**sizes, gae_lambda=0.3), key))
        flat = [ravel_pytree(params)[0] for params in (own, trained(algo, given, key))]
        assert np.max(np.abs(flat[0] - flat[1])) > 1e-3
