"""What every algorithm owes. A new algorithm is one more row of `ROWS`."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import compiler_options, envs, evaluate, loops
from purerl import config as cfg
from purerl.algos import a2c, apex, appo, c51, dpo, dqn, impala, iqn, ppo, pqn, qr_dqn, r2d2, rainbow, reinforce
from purerl.formulas import distributions, td_errors
from purerl.learners import policy_gradients
from purerl.types import Env

GAMMA = 0.9


class Row(NamedTuple):
    """An algorithm, a config that trains in seconds, and how to read V(obs) off its state.

    ``free`` are changes to the config with which the value may move as far as it needs to; ``idle`` are floats that
    this config does not use; ``rtol`` is how near the value of steps that are cut must come.
    """

    algo: Any
    config: Any
    value: Any
    free: dict[str, Any] = {}
    idle: tuple[str, ...] = ()
    rtol: float = 0.01


def critic(config, env, state, obs):
    """One after another, for networks that remember: in the probes an observation of 0 goes on to the next one, and any
    other ends the episode."""
    network = policy_gradients.make_network(config, env, distributions.for_space(env.action_space))
    last = obs[:, None, 0] != 0
    return network.unroll(state.params, obs[:, None], network.init_carry(1), last)[1][:, 0]


def read(mean, make_network):
    """The largest of the action values that ``mean`` reads off what a network of values gives."""

    def value(config, env, state, obs):
        network = make_network(config, env)
        out = network.apply(state.params, obs, network.still(obs.shape[:1]))
        return jnp.max(mean(config, out), axis=-1)

    return value


def categorical_mean(config, logits):
    return jax.nn.softmax(logits) @ jnp.linspace(config.v_min, config.v_max, config.num_atoms)


def r2d2_value(config, env, state, obs):
    network = r2d2.make_network(config, env)
    q, _ = network.step(state.params, obs, network.init_carry(len(obs)))
    return td_errors.unrescale(q.max(axis=-1), config.rescale_epsilon)


ON_POLICY = {
    "total_steps": 8 * 16 * 60,
    "num_envs": 8,
    "num_steps": 16,
    "learning_rate": 1e-2,
    "gamma": GAMMA,
    "hidden_sizes": (16,),
}
SURROGATE = {**ON_POLICY, "num_minibatches": 2}
ONE_STEP = {**ON_POLICY, "max_grad_norm": 0.5, "total_steps": 8 * 4 * 800, "num_steps": 4, "lag": 2.0, "max_lag": 2}
REPLAY = {
    "total_steps": 8 * 16 * 60,
    "num_envs": 8,
    "num_steps": 16,
    "num_updates": 8,
    "batch_size": 32,
    "capacity": 8 * 16 * 20,
    "warmup_steps": 8 * 16,
    "target_period": 5,
    "learning_rate": 1e-2,
    "gamma": GAMMA,
    "epsilon_start": 1.0,
    "epsilon_end": 0.2,
    "exploration_fraction": 0.5,
    "max_grad_norm": 0.1,
    "hidden_sizes": (16,),
}
PRIORITIES = "priority_exponent", "importance_exponent", "importance_exponent_end"
ROWS = {
    "ppo": Row(ppo.ppo, ppo.Config(**SURROGATE), critic, free={"clip_epsilon": 10.0}, idle=("lag",)),
    "ppo-gru": Row(
        ppo.ppo,
        ppo.Config(**SURROGATE, memory="gru", memory_size=8, sequence_length=8),
        critic,
        free={"clip_epsilon": 10.0},
        idle=("lag",),
    ),
    "dpo": Row(dpo.dpo, dpo.Config(**SURROGATE), critic, free={"clip_epsilon": 10.0}, idle=("lag",)),
    "a2c": Row(a2c.a2c, a2c.Config(**ONE_STEP), critic),
    "reinforce": Row(
        reinforce.reinforce, reinforce.Config(**ONE_STEP | {"lag": 0.0, "max_lag": 0}), critic, idle=("lag",)
    ),
    "impala": Row(impala.impala, impala.Config(**ONE_STEP, memory="lru", memory_size=8), critic),
    "appo": Row(
        appo.appo,
        appo.Config(**SURROGATE, lag=2.0, max_lag=2, memory="lstm", memory_size=8, target_period=2),
        critic,
        free={"clip_epsilon": 10.0},
    ),
    "pqn": Row(
        pqn.pqn,
        pqn.Config(**SURROGATE, epsilon_end=0.2, exploration_fraction=0.5, max_grad_norm=0.5),
        lambda config, env, state, obs: pqn.make_network(config, env).apply(state.params, obs).max(axis=-1),
    ),
    "dqn": Row(
        dqn.dqn,
        dqn.Config(**REPLAY, huber_delta=1.0),
        read(lambda config, q: q, dqn.make_network),
        free={"huber_delta": 100.0},
        idle=PRIORITIES,
    ),
    "c51": Row(
        c51.c51,
        c51.Config(**REPLAY, num_atoms=21, v_min=-5.0, v_max=15.0, prioritised=True),
        read(categorical_mean, c51.make_network),
    ),
    "qr-dqn": Row(
        qr_dqn.qr_dqn,
        qr_dqn.Config(**REPLAY, num_quantiles=8),
        read(lambda config, quantiles: jnp.mean(quantiles, axis=-1), qr_dqn.make_network),
        idle=PRIORITIES,
    ),
    "iqn": Row(
        iqn.iqn,
        iqn.Config(**REPLAY | {"total_steps": 8 * 16 * 120}, num_quantiles=16, num_cosines=8, kappa=0.05),
        read(lambda config, out: jnp.mean(out[0], axis=-1), iqn.make_network),
        idle=PRIORITIES,
    ),
    "rainbow": Row(
        rainbow.rainbow,
        rainbow.Config(**REPLAY, num_atoms=21, v_min=-5.0, v_max=15.0),
        read(categorical_mean, lambda config, env: c51.make_network(config, env, noisy=True)),
    ),
    "apex": Row(
        apex.apex,
        apex.Config(**REPLAY, huber_delta=1.0, importance_exponent_end=1.0),
        read(lambda config, q: q, dqn.make_network),
        free={"huber_delta": 100.0},
    ),
    "r2d2": Row(
        r2d2.r2d2,
        r2d2.Config(**REPLAY, memory_size=8, burn_in=2, unroll=6, period=4, importance_exponent_end=1.0),
        r2d2_value,
        rtol=0.03,  # no step is learned from at the carry that a cut leaves: its value is extrapolated
    ),
}


def jit(function):
    """Compiled so that lanes have the bits of lone runs, which also compiles fastest."""
    return jax.jit(function, compiler_options=compiler_options())


KEYS = jax.random.split(jax.random.key(7), 3)


@pytest.fixture(scope="module", params=ROWS)
def row(request):
    return ROWS[request.param]


@pytest.fixture(scope="module")
def short(row):
    """CartPole for a few iterations: cheap, with episodes that end."""
    trainer = row.algo.make_trainer(row.config, envs.make("CartPole-v1"))
    return dataclasses.replace(row.config, total_steps=trainer.warmup_steps + trainer.env_steps * 6)


@pytest.fixture(scope="module")
def cartpole(row, short):
    """The short training, compiled for one key and for three."""
    train = row.algo.make_train(short, envs.make("CartPole-v1", max_steps=20))
    return jit(train), jit(jax.vmap(train))


@pytest.fixture(scope="module")
def runs(cartpole):
    alone, together = cartpole
    return [alone(key) for key in KEYS], together(KEYS)


def data(tree):
    """A tree with keys turned into the words they hold, so that numpy can compare."""
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x), tree)


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, data(a), data(b))


def test_lane_equals_lone_run_bit_for_bit(runs):
    alone, together = runs
    for i, run in enumerate(alone):
        assert_equal(run, jax.tree.map(lambda x, i=i: x[i], together))


def test_chunks_equal_one_scan_bit_for_bit(row, short, runs):
    trainer = row.algo.make_trainer(short, envs.make("CartPole-v1", max_steps=20))
    chunk = jit(loops.chunk(trainer, 4))
    state, metrics = jit(trainer.init)(KEYS[0]), []
    for length in (1, 3, 2):
        state, rows = chunk(state, length)
        metrics.append(jax.tree.map(lambda m, length=length: m[:length], rows))
    assert_equal(state, runs[0][0].state)
    assert_equal(jax.tree.map(lambda *m: jnp.concatenate(m), *metrics), runs[0][0].metrics)
    assert chunk._cache_size() == 1


def test_second_call_does_not_retrace(cartpole, runs):
    for train in cartpole:
        assert train._cache_size() == 1
    cartpole[0](jax.random.key(99))
    assert cartpole[0]._cache_size() == 1


def test_seeds_differ_from_the_first_parameter_on(row, short):
    trainer = row.algo.make_trainer(short, envs.make("CartPole-v1"))
    first = jit(jax.vmap(trainer.init))(KEYS)
    kernels = [x for x in jax.tree.leaves(trainer.learner.policy(first.learner)) if x.ndim > 2]
    kernels = [x for x in kernels if np.ptp(x[0])]  # the others begin as a constant: deviations of noisy layers
    assert kernels and all(np.all(np.any(x[0] != x[1])) for x in kernels)
    assert np.any(first.actors.obs[0] != first.actors.obs[1])


def test_every_parameter_learns(row, short, runs):
    trainer = row.algo.make_trainer(short, envs.make("CartPole-v1", max_steps=20))
    before = jit(trainer.init)(KEYS[0])
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), before.learner.params, runs[0][0].state.learner.params)
    assert all(jax.tree.leaves(moved)), moved


def test_state_is_closed_and_strongly_typed(row, short):
    """A step returns exactly the types it was given, none of them weak."""
    trainer = row.algo.make_trainer(short, envs.make("CartPole-v1"))
    before = jax.eval_shape(trainer.init, KEYS[0])
    after, metrics = jax.eval_shape(trainer.step, before)
    types = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)  # noqa: E731
    assert types(before) == types(after)
    assert not any(x.weak_type for x in jax.tree.leaves((after, metrics)))
    assert all(m.shape == () for m in metrics.values())


def test_every_float_is_traced_and_matters(row, short):
    """One program over a batch in which lane i changes field i alone: lane 0 is the config as it was."""
    names = cfg.traced_fields(short)
    values = {}
    for i, name in enumerate(names):
        base = getattr(short, name)
        values[name] = jnp.full(len(names) + 1, base).at[i + 1].set(base * 0.5 if base else 0.5)
    batch, axes = cfg.sweep(short, **values)
    train = lambda config: row.algo.make_train(config, envs.make("CartPole-v1", max_steps=20))(KEYS[0])  # noqa: E731
    params = jit(jax.vmap(train, in_axes=(axes,)))(batch).state.learner.params
    flat = np.concatenate([np.asarray(x).reshape(len(names) + 1, -1) for x in jax.tree.leaves(params)], axis=1)
    assert np.all(np.isfinite(flat))
    idle = [name for i, name in enumerate(names) if np.array_equal(flat[0], flat[i + 1])]
    assert idle == [name for name in names if name in row.idle]


def test_no_key_is_used_twice(row, short):
    """Under jax's own check, which is seen to catch a reuse first."""
    with jax.debug_key_reuse(True):
        with pytest.raises(jax.errors.KeyReuseError):
            jax.jit(lambda key: jax.random.normal(key) + jax.random.normal(key))(jax.random.key(3))
        result = jax.jit(row.algo.make_train(short, envs.make("CartPole-v1")))(jax.random.key(3))
    assert result.state.iteration == 6


def perhaps_mistaken(env: Env, mistaken: Any) -> Env:
    """The same environment, with its time limit taken for an end if ``mistaken``."""

    def step(noise, state, action):
        state, step = env.step(noise, state, action)
        cut = step.truncated & mistaken
        return state, step._replace(terminated=step.terminated | cut, truncated=step.truncated & ~cut)

    return env._replace(step=step)


def learned_value(row, config, env, obs):
    state = row.algo.make_train(config, env)(KEYS[0]).state.learner
    return row.value(config, env, state, jnp.asarray(obs))


def test_truncation_in_closed_form(row):
    """Reward 1 a step, cut every 5: worth 1 / (1 - gamma) = 10. Taken for an end, the same steps are worth far less."""
    env = envs.make("probe/constant-reward", max_steps=5)
    config = dataclasses.replace(row.config, total_steps=row.config.total_steps * 5, **row.free)
    value = jit(jax.vmap(lambda mistaken: learned_value(row, config, perhaps_mistaken(env, mistaken), [[1.0]])))
    [[right], [wrong]] = value(jnp.array([False, True]))
    np.testing.assert_allclose(right, 1 / (1 - GAMMA), rtol=row.rtol)
    assert wrong < 0.5 / (1 - GAMMA)


@pytest.mark.parametrize(
    ("probe", "obs", "value"),
    [
        ("obs-dependent-reward", [[-1.0], [1.0]], [-1.0, 1.0]),
        ("discount-two-steps", [[0.0], [1.0]], [GAMMA, 1.0]),
    ],
)
def test_values_of_probes(row, probe, obs, value):
    found = jit(lambda: learned_value(row, row.config, envs.make(f"probe/{probe}"), obs))()
    np.testing.assert_allclose(found, value, atol=0.03)


@pytest.mark.parametrize(("probe", "best"), [("obs-action-match", 1.0), ("target-action", 0.0)])
def test_policies_of_probes(row, probe, best):
    env = envs.make(f"probe/{probe}")
    if row.algo.problems(row.config, env):
        pytest.skip("does not act in this space")
    result = jit(row.algo.make_train(row.config, env))(KEYS[0])
    learner = row.algo.make_learner(row.config, env)
    found = evaluate(jax.random.key(1), env, learner, learner.policy(result.state.learner), num_episodes=32)
    np.testing.assert_allclose(np.mean(found.episode_return), best, atol=0.01)
