"""Critics of continuous actions beyond one value: distributions, by hand and on Pendulum."""

import critic_oracle
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import compiled, for_bits

from purerl import config as cfg
from purerl import counters, crossq, ddpg, envs, sac, shards, td3, tqc, trees
from purerl.algos import ALGORITHMS
from purerl.algos.sac import make_network as sac_networks
from purerl.algos.sac import squashed_policy
from purerl.errors import ConfigError
from purerl.formulas import return_distributions
from purerl.formulas.return_distributions import Atoms
from purerl.learners.families import off_policy_gradients
from purerl.learners.parts import normalize
from purerl.learners.parts.gradients import Descent
from purerl.networks import MLP
from purerl.networks.batch_renorm import BatchRenorm
from purerl.spaces import Box
from purerl.types import Outcome, Sample, Situation

PENDULUM = envs.make("Pendulum-v1", max_steps=10)
SMALL = {
    "total_steps": 64 * 4,
    "num_envs": 4,
    "num_steps": 4,
    "num_updates": 2,
    "warmup_steps": 64,
    "batch_size": 8,
    "capacity": 256,
    "hidden_sizes": (4,),
}
BY_HAND = {**SMALL, "activation": "tanh", "tau": 0.1, "initial_temperature": 0.3}
RATE = 0.02
ONCE = (td3, "quantile"), (sac, "categorical")
"""Pairs that try each kind of distribution and each way to act once."""
KINDS = {
    "scalar": {},
    "categorical": {"num_atoms": 5, "v_min": -3.0, "v_max": 3.0},
    "quantile": {"num_quantiles": 4, "kappa": 0.5},
}


def samples(seed):
    """A batch of transitions of Pendulum's shapes, by weight."""
    keys = jax.random.split(jax.random.key(seed), 4)
    obs, next_obs = (jax.random.normal(key, (8, 3)) for key in keys[:2])
    action = jax.random.uniform(keys[2], (8, 1), minval=-2.0, maxval=2.0)
    slots = jnp.zeros(8, jnp.int32)
    discount = jnp.where(jnp.arange(8) == 3, 0.0, 0.9)
    items = Outcome(obs, action, jax.random.normal(keys[3], (8,)), discount, next_obs, (), ())
    return Sample(items, slots, slots, jnp.linspace(0.2, 1.0, 8))


def assert_by_hand(learner, oracle, state, target_entropy=-1.0):
    """Ten updates of a learner beside ten of the oracle: losses, priorities, and all that was learned."""
    for i in range(10):
        sample, key = samples(i), jax.random.key(100 + i)
        key_next, key_actor = jax.random.split(key)
        noises = [np.float64(learner.noise(k, (8,))) for k in (key_next, key_actor)]
        state, metrics, priority = learner.update(state, sample, key)
        items = critic_oracle.in_double(
            {name: getattr(sample.items, name) for name in ("obs", "action", "reward", "discount", "next_obs")}
        )
        items["action"] = items["action"] / 2  # torques reach from -2 to 2
        loss, size = oracle.update(items, np.float64(sample.weight), *noises, target_entropy)
        np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-4)
        np.testing.assert_allclose(priority, size, rtol=1e-4, atol=1e-5)
    assert_close(state.params["log_temperature"], oracle.log_temperature["log"])
    return state


def assert_close(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), a, b)


def assert_as_sac(learner, oracle, state):
    """`assert_by_hand`, and the networks and their slow copies after it."""
    state = assert_by_hand(learner, oracle, state)
    assert_close(state.params["critic"]["params"], oracle.critic)
    assert_close(state.params["actor"]["params"], oracle.actor)
    assert_close(state.target_params["critic"]["params"], oracle.slow)


@pytest.mark.parametrize("kind", [pytest.param("scalar", marks=pytest.mark.rest), "categorical", "quantile"])
def test_updates_by_hand(kind):
    config = sac.Config(**BY_HAND, critic=kind, **KINDS[kind])
    learner = compiled(sac.make_learner(config, PENDULUM, optimiser=optax.sgd(RATE)), "init", "update")
    state = learner.init(jax.random.key(1), samples(0).items.obs)
    support = np.linspace(config.v_min, config.v_max, config.num_atoms)
    oracle = critic_oracle.SoftActorCritic(state, kind, RATE, 0.1, support, config.kappa)
    assert_by_hand(learner, oracle, state)


def test_truncated_updates_by_hand():
    """TQC's: two of four quantiles left out for each of three critics."""
    config = tqc.Config(**BY_HAND, num_critics=3, num_quantiles=4, dropped_quantiles=2, kappa=0.5)
    learner = compiled(tqc.make_learner(config, PENDULUM, optimiser=optax.sgd(RATE)), "init", "update")
    state = learner.init(jax.random.key(1), samples(0).items.obs)
    assert_as_sac(learner, critic_oracle.SoftActorCritic(state, "quantile", RATE, 0.1, kappa=0.5, left=6), state)


@pytest.fixture(scope="module")
def crossing():
    """CrossQ with statistics that correct from the fifth of its updates on, compiled, and its first state."""
    sizes = {name: value for name, value in BY_HAND.items() if name != "tau"}
    config = crossq.Config(**sizes, critic_hidden_sizes=(4,), policy_delay=2, renorm_warmup=4)
    learner = crossq.make_learner(config, PENDULUM, optimiser=optax.sgd(RATE))
    learner = compiled(learner, "init", "explore", "exploit", "update")
    return learner, learner.init(jax.random.key(1), samples(0).items.obs)


def test_updates_without_targets_by_hand(crossing):
    """CrossQ's: a joint batch, statistics of both halves, and an actor that waits. Nothing moves them but batches."""
    learner, state = crossing
    assert state.target_params == {}
    oracle = critic_oracle.CrossQ(state, RATE, 4, 2)
    after = assert_by_hand(learner, oracle, state)
    stacked = lambda name: jax.tree.map(lambda *x: np.stack(x), *(getattr(one, name) for one in oracle.critics))
    assert_close(after.params["critic"]["params"], stacked("params"))
    assert_close(after.params["actor"]["params"], oracle.actor.params)
    of = {"critic": stacked("statistics"), "actor": oracle.actor.statistics}
    for name, statistics in of.items():
        own = trees.named_leaves(after.params[name]["batch_stats"])
        for leaf, expected in trees.named_leaves(statistics).items():
            counted = np.minimum(expected, 4)  # as far as it matters
            assert_close(own[leaf], counted if "batches" in leaf else expected)


def test_what_acts_does_not_depend_on_its_batch(crossing):
    """A report that other libraries got: an evaluation of one observation was normalised by itself."""
    learner, state = crossing
    for i in range(4):
        state = learner.update(state, samples(i), jax.random.key(i))[0]
    obs = samples(9).items.obs
    policy = learner.policy(state)
    exploit = lambda obs: np.asarray(learner.exploit(policy, Situation(obs, ()), jax.random.key(0))[0])
    together = exploit(obs)
    np.testing.assert_allclose(together, np.concatenate([exploit(obs[i : i + 1]) for i in range(8)]), atol=1e-6)
    assert np.ptp(together) > 0


def test_statistics_of_shards_are_those_of_the_whole_batch():
    """The output, the running statistics and the gradient of four shards beside those of one batch."""
    module, x = BatchRenorm(warmup=0), 2.0 + 3.0 * jax.random.normal(jax.random.key(0), (16, 3))
    params = module.init(jax.random.key(1), x)

    def loss(weights, x):
        out, moved = module.apply({**params, "params": weights}, x, mutable=["batch_stats"])
        return jnp.mean(jnp.sin(out)), (out, moved["batch_stats"])

    graded = jax.grad(loss, has_aux=True)
    grads, (out, moved) = graded(params["params"], x)
    of_shards = jax.vmap(lambda x: shards.mean(graded(params["params"], x)[0]), axis_name=shards.AXIS)
    outs, statistics = jax.vmap(lambda x: loss(params["params"], x)[1], axis_name=shards.AXIS)(x.reshape(4, 4, 3))
    assert_close(outs.reshape(16, 3), out)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[2], b, rtol=1e-5), statistics, moved)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[2], b, atol=1e-6), of_shards(x.reshape(4, 4, 3)), grads)


def test_truncation_leaves_out_the_largest_of_all():
    """Whichever critics they are of, one that is far too high loses all its atoms; equal ones count each."""
    out = jnp.array([[1.0, 2.0, 3.0], [9.0, 8.0, 7.0], [3.0, 0.0, 3.0]])
    np.testing.assert_array_equal(return_distributions.truncated(out, 1), [0.0, 1.0, 2.0, 3.0, 3.0, 3.0])
    np.testing.assert_array_equal(return_distributions.truncated(out, 0), np.sort(np.ravel(out)))


def test_the_target_of_an_end_is_the_reward_alone():
    """All atoms of the next state fall on the reward where nothing follows: nothing of them leaks into the target."""
    family = off_policy_gradients.family_of(sac.Config(critic="categorical", num_atoms=5, v_min=-2.0, v_max=2.0))
    ended = Atoms(jnp.full(5, 1.0), jnp.array([0.1, 0.2, 0.4, 0.2, 0.1]))
    loss, divergence = family.loss(jnp.array([-50.0, -50.0, -50.0, 50.0, -50.0]), ended)
    np.testing.assert_allclose([loss, divergence], 0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("algo", "kind"),
    [
        pytest.param(algo, kind, marks=pytest.mark.rest if (algo, kind) in ONCE else pytest.mark.weekly)
        for algo in (ddpg, td3, sac)
        for kind in ("categorical", "quantile")
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_distributions_learn_the_return_of_a_policy(algo, kind):
    """Reward 1 a step, cut every 5 steps, with n steps and priorities: worth 1 / (1 - 0.9) = 10 in the mean."""
    kinds = {**KINDS, "categorical": {"num_atoms": 21, "v_min": 0.0, "v_max": 20.0}}
    probe = envs.make("probe/constant-reward", max_steps=5)
    step = lambda noise, state, action: probe.step(noise, state, jnp.int32(0))
    env = probe._replace(action_space=Box(-1.0, 1.0, (1,), jnp.float32), step=step)
    more = {"initial_temperature": 1e-6, "learn_temperature": False} if algo is sac else {}
    sizes = {**SMALL, "total_steps": 64 + 16 * 300, "num_updates": 8, "hidden_sizes": (16,), "gamma": 0.9, "tau": 0.2}
    config = algo.Config(**sizes, **more, critic=kind, **kinds[kind], learning_rate=1e-2, n_step=2, prioritised=True)
    train = jax.jit(algo.make_train(config, env), compiler_options=for_bits())
    metrics = train(jax.random.key(0)).metrics
    np.testing.assert_allclose(metrics["value"][-1], 10.0, rtol=0.05)
    assert metrics["td_error"][-1] < 0.5


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"critic": "categorical", "v_min": 1.0, "v_max": 1.0}, "v_min = 1.0: must be below v_max = 1.0"),
        ({"critic": "quantile", "num_quantiles": 0}, "num_quantiles = 0: must lie in"),
        ({"critic": "huge"}, "critic = 'huge': must be one of 'scalar', 'categorical', 'quantile'"),
    ],
)
def test_settings_that_do_not_fit_are_told(changes, line):
    with pytest.raises(ConfigError, match=line):
        sac.make_trainer(sac.Config(**SMALL, **changes), PENDULUM)
    with pytest.raises(ConfigError, match="^dropped_quantiles = 9: must be below num_quantiles = 9$"):
        tqc.make_trainer(tqc.Config(**SMALL, num_quantiles=9, dropped_quantiles=9), PENDULUM)


def test_a_loss_of_errors_is_refused_by_critics_without_them():
    config = ddpg.Config(**SMALL, critic="quantile")
    with pytest.raises(ConfigError, match="^td_loss: is of errors of values"):
        ddpg.make_trainer(config, PENDULUM, td_loss=lambda error, config: jnp.abs(error))


def test_a_setting_of_another_kind_of_critic_is_told():
    usual = sac.Config()
    assert cfg.unused([sac.Config(v_min=-5.0)], usual) == ["v_min = -5.0: has no effect without critic = 'categorical'"]
    assert cfg.unused([sac.Config(critic="quantile", huber_delta=1.0)], usual) == [
        "huber_delta = 1.0: has no effect without critic = 'scalar'"
    ]


def test_critics_have_widths_of_their_own():
    for algo in (sac, td3):
        config = algo.Config(**SMALL, critic_hidden_sizes=(6, 5))
        params = jax.eval_shape(algo.make_learner(config, PENDULUM).init, jax.random.key(0), jnp.zeros((4, 3))).params
        assert params["critic"]["params"]["joint"]["Dense_1"]["kernel"].shape == (2, 6, 5)
        assert params["actor"]["params"]["torso"]["Dense_0"]["kernel"].shape == (3, 4)


@pytest.mark.parametrize("name", ["ppo", "impala", "dqn", "iqn", "r2d2", "qmix", "sac", "td3", "tqc", "masac"])
def test_residual_blocks_are_a_torso_of_every_algorithm(name):
    """The network before the heads, also behind the concatenation of observation and action. Nothing is computed."""
    algo, teams = ALGORITHMS[name], name in ("qmix", "masac")
    env = PENDULUM if name in ("sac", "td3", "tqc") else envs.make("TwoStep-v0" if teams else "CartPole-v1")
    config = algo.Config(torso="simba", hidden_sizes=(8, 8))
    assert algo.problems(config, env) == []
    trainer = algo.make_trainer(config, env)
    leaves = trees.named_leaves(jax.eval_shape(trainer.init, jax.random.key(0)).learner.params)
    assert any("LayerNorm_1" in leaf for leaf in leaves)
    if env is PENDULUM:
        assert leaves["critic.params.joint.Dense_1.kernel"].shape[-2:] == (8, 32)
        assert leaves["critic.params.joint.Dense_0.kernel"].shape[-2] == 3 + 1


def test_blocks_are_of_one_width():
    for config, line in (
        (sac.Config(torso="simba", critic_hidden_sizes=(8, 4)), "critic_hidden_sizes = (8, 4): must be one width"),
        (sac.Config(torso="simba", layer_norm=True), "layer_norm = True: simba has its own"),
    ):
        assert [problem.startswith(line) for problem in sac.problems(config, PENDULUM)] == [True]
    for changes in ({"torso": "simba"}, {"layer_norm": True}):
        assert "batch renormalisation" in crossq.problems(crossq.Config(**changes), PENDULUM)[0]


@pytest.fixture(scope="module")
def dropping():
    """SAC whose critics drop a quarter of their units, compiled, and its first state."""
    config = sac.Config(**SMALL | {"hidden_sizes": (64,)}, critic_dropout=0.25, layer_norm=True)
    learner = compiled(sac.make_learner(config, PENDULUM), "init", "update")
    return config, learner, learner.init(jax.random.key(1), samples(0).items.obs)


@pytest.mark.rest
def test_dropout_is_of_critics_that_learn(dropping):
    """In the target and both losses, other units of each critic and sample; evaluation and a lone call drop none."""
    config, learner, state = dropping
    network, items = sac_networks(config, PENDULUM), samples(0).items
    q = lambda **key: network.q_values(state.params["critic"], items.obs, items.action / 2, **key)
    dropped = np.stack([q(dropout=key) for key in jax.random.split(jax.random.key(5), 400)])
    assert len(np.unique(dropped[:, 0, 0])) == 400
    np.testing.assert_array_equal(q(), q())
    keys = off_policy_gradients.dropout(config, jax.random.key(2))
    loss = learner.update(state, samples(0), jax.random.key(2))[1]["loss"]
    noise = learner.noise(jax.random.split(jax.random.key(2))[0], (8,))
    policy = squashed_policy(config, PENDULUM, network)
    action, log_prob = policy.draw(state.params["actor"], items.next_obs, noise)
    next_q = network.q_values(state.params["critic"], items.next_obs, action, dropout=keys.target)
    target = items.reward + items.discount * (next_q.min(axis=-1) - log_prob)
    error = target[:, None] - q(dropout=keys.critic)
    np.testing.assert_allclose(loss, np.mean(samples(0).weight * np.sum(0.5 * error**2, axis=-1)), rtol=1e-4)


def test_units_are_dropped_with_their_probability_and_scaled():
    """A layer of 4,000 units: a quarter are 0, the others 4/3 of what they are without, before the layer norm."""
    module = MLP((4000,), lambda x: x, dropout=0.25)
    x = jnp.ones((1, 3))
    params = module.init(jax.random.key(0), x)
    plain = np.ravel(module.apply(params, x))
    out = np.ravel(module.apply(params, x, rngs={"dropout": jax.random.key(1)}))
    assert abs(np.mean(out == 0) - 0.25) < 0.03
    np.testing.assert_allclose(out[out != 0], plain[out != 0] / 0.75, rtol=1e-5)


@pytest.mark.rest
def test_networks_begin_anew_and_the_replay_stays():
    """After four updates, two an iteration: at the third iteration all that learns is another, optimisers
    included, each time by another key; counts, moments and the replay go on."""
    config = sac.Config(**SMALL, reset_every=4, normalize_obs=True, learning_rate_decay=0.5)
    trainer = sac.make_trainer(config, PENDULUM)
    step, state = jax.jit(trainer.step), jax.jit(trainer.init)(jax.random.key(0))
    kernel = lambda state: np.asarray(state.learner.params["actor"]["params"]["Dense_0"]["kernel"])
    weights, since = [], []
    for _ in range(7):
        state, _ = step(state)
        weights.append(kernel(state))
        since.append(int(state.learner.resets.since))
    assert since == [2, 4, 2, 4, 2, 4, 2]
    jumps = [np.max(np.abs(b - a)) for a, b in zip(weights, weights[1:], strict=False)]
    assert min(jumps[1::2]) > 3e-3 >= max(jumps[::2])  # two updates of Adam by 1e-3
    assert counters.number(state.learner.updates) == 14
    descents = jax.tree.leaves(state.learner.critic_opt_state, is_leaf=lambda x: isinstance(x, Descent))
    assert [counters.number(x.updates) for x in descents if isinstance(x, Descent)] == [14]
    adam = [x for x in descents if getattr(x, "dtype", None) == jnp.int32 and x.ndim == 0]
    assert [int(x) for x in adam] == [2]
    assert int(normalize.settled(state.learner.obs_moments).count) == 14 * config.batch_size


def test_without_resets_a_state_has_nothing_of_them():
    state = jax.eval_shape(sac.make_learner(sac.Config(**SMALL), PENDULUM).init, jax.random.key(0), jnp.zeros((4, 3)))
    assert state.resets == ()


def test_no_key_of_dropout_or_of_resets_is_used_twice():
    """Tracing raises where one is, as it does for the function that draws twice by one key."""
    config = sac.Config(**SMALL, critic_dropout=0.1, reset_every=4)
    twice = lambda key: jax.random.normal(key) + jax.random.uniform(key)
    with jax.debug_key_reuse(True):
        with pytest.raises(jax.errors.KeyReuseError):
            jax.jit(twice).trace(jax.random.key(3))
        traced = jax.jit(sac.make_train(config, PENDULUM)).trace(jax.random.key(3))
    assert traced.out_info.state.learner.resets.number.shape == ()


@pytest.mark.weekly
def test_lanes_begin_anew_as_lone_runs_do():
    config = sac.Config(**SMALL, reset_every=3, critic_dropout=0.1)
    train, keys = sac.make_train(config, PENDULUM), jax.random.split(jax.random.key(0), 2)
    together = jax.jit(jax.vmap(train))(keys).state.learner.params
    alone = jax.jit(train)(keys[1]).state.learner.params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-4, atol=1e-6), together, alone)
