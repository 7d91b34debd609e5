"""Agents in shards: against the same shards as lanes of one device, on any number of devices; what they exchange."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from purerl import config as cfg
from purerl import envs, shards
from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.formulas import losses
from purerl.population import Members, layout, splitting
from purerl.population.layouts import spread
from purerl.population.splitting import Split
from purerl.types import Updated

SHARDS = 4
SHORT = {"num_envs": 8, "num_steps": 8}
PPO = {**SHORT, "num_minibatches": 2, "num_epochs": 2, "hidden_sizes": (8,)}
REPLAY = {
    **SHORT,
    "num_steps": 4,
    "batch_size": 16,
    "capacity": 512,
    "warmup_steps": 64,
    "num_updates": 4,
    "hidden_sizes": (8, 8),
}
CASES = {
    "ppo": ("ppo", "CartPole-v1", PPO),
    "recurrent ppo with moments": (
        "ppo",
        "Pendulum-v1",
        {
            **PPO,
            "memory": "gru",
            "memory_size": 4,
            "sequence_length": 4,
            "normalize_obs": True,
            "normalize_reward": True,
        },
    ),
    "v-mpo": ("v-mpo", "CartPole-v1", PPO),
    "prioritised dqn": ("dqn", "CartPole-v1", {**REPLAY, "prioritised": True, "epsilon_ladder": 3.0}),
    "dqn": ("dqn", "CartPole-v1", REPLAY),
    "alphazero": ("alphazero", "TicTacToe-v0", {**REPLAY, "n_step": 4, "simulations": 4}),
    "muzero": (
        "muzero",
        "TicTacToe-v0",
        {
            **REPLAY,
            "n_step": 3,
            "unroll_steps": 2,
            "simulations": 4,
            "rescale_values": False,
            "value_scale": 1e-3,  # values at the start differ by rounding alone, and must not choose
            "model_sizes": (8,),
            "state_size": 4,
            "num_atoms": 11,
        },
    ),
}
ITERATIONS = {"ppo": 3, "v-mpo": 3, "recurrent ppo with moments": 3, "prioritised dqn": 3, "alphazero": 3, "muzero": 3}
"""So many have at least ten updates."""


class Case:
    """The trainings of a case by plain gradient descent, so that no rounding is blown up."""

    def __init__(self, name):
        algo, env, settings = CASES[name]
        self.algo, self.env, self.iterations = ALGORITHMS[algo], envs.make(env), ITERATIONS.get(name, 0)
        self.config = self.algo.Config(**settings)
        self.key = jax.random.key(3)

    def trainer(self, config):
        return self.algo.make_trainer(config, self.env, optimiser=optax.sgd(0.01))

    def policy(self, state):
        return self.trainer(self.config).learner.policy(state.learner)

    def lanes(self):
        """Policies after each iteration, and its metrics, by `jax.vmap` over the shards."""
        trainer = self.trainer(splitting.share(self.config, SHARDS))
        mapped = {"axis_name": shards.AXIS, "axis_size": SHARDS}
        state = jax.jit(jax.vmap(lambda _: trainer.init(self.key), **mapped))(jnp.arange(SHARDS))
        step = jax.jit(jax.vmap(trainer.step, **mapped))
        results = []
        for _ in range(self.iterations):
            state, metrics = step(state)
            results.append(jax.device_get((self.policy(state), metrics)))
        return results

    def program(self, devices, exact=False):
        """What makes the state on so many devices, and what goes on with it for an iteration."""
        split = Split(SHARDS, devices, exact)
        members = Members({"config": cfg.with_lengths(self.config)}, self.key[None])
        given = jax.tree.map(lambda x: jnp.asarray(x)[None], members.given)
        one = Members(jax.tree.map(lambda x: x[0], given), self.key)
        agent = splitting.agent(lambda config: self.trainer(config), one, split.cut)
        place = layout(1, jax.devices()[:devices], per_agent=devices)
        options = {"compiler_options": split.compiler_options(jax.devices()[0])}
        start = spread(lambda m, _: ((), agent.init(m)), place, (False, agent.differs))
        step = spread(lambda given, state: agent.chunk(given, state, 1, 1), place, (agent.differs, False))
        init = jax.jit(lambda: start(Members(given, self.key[None]), ())[1], **options)
        return init, jax.jit(lambda state: step(given, state), **options)

    def run(self, devices, exact=False):
        init, step = self.program(devices, exact)
        state, result = init(), []
        for _ in range(self.iterations):
            state, metrics = step(state)
            result.append(jax.device_get((jax.vmap(self.policy)(state), metrics)))
        return result


@pytest.fixture(scope="module", params=ITERATIONS)
def case(request):
    made = Case(request.param)
    made.expected = made.lanes()
    return made


def worst(result, expected):
    """The largest difference of any parameter of the whole agent to that of each lane."""
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
    return max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max() for a, b in pairs)


def compare(result, expected):
    """Asserts that iterations are those of the lanes, which all are alike."""
    for (policy, metrics), (of_lanes, of_all) in zip(result, expected, strict=True):
        assert worst(policy, of_lanes) < 1e-5
        np.testing.assert_array_equal(metrics["episodes"][0, 0], of_all["episodes"])
    first = result[0][1]["grad_norm"][0, 0], expected[0][1]["grad_norm"]
    np.testing.assert_allclose(first[0], first[1], rtol=1e-6)


@pytest.mark.rest
@pytest.mark.weekly("moments", "dqn", "v-mpo", "alphazero", "muzero")
def test_as_lanes_of_one_device(case):
    compare(case.run(2), case.expected)


@pytest.mark.weekly
@pytest.mark.parametrize("devices", [1, 4])
def test_as_lanes_of_one_device_on_more_and_fewer(case, devices):
    compare(case.run(devices), case.expected)


@pytest.mark.rest
def test_a_gradient_that_is_added_up_is_found(monkeypatch):
    """The mistake of others: a sum over devices in place of a mean."""
    made = Case("ppo")
    expected = made.lanes()
    plain = shards.mean
    is_gradient = lambda tree: any(x.ndim for x in jax.tree.leaves(tree))
    monkeypatch.setattr(shards, "mean", lambda tree: shards.total(tree) if is_gradient(tree) else plain(tree))
    with pytest.raises(AssertionError):
        compare(made.run(2), expected)


EXACT = [("ppo", (1, 2)), pytest.param("prioritised dqn", (1, 2, 4), marks=pytest.mark.weekly)]


@pytest.mark.rest
@pytest.mark.parametrize(("name", "devices"), EXACT)
def test_exact_sums_have_the_same_bits_on_any_devices(name, devices):
    first, *others = (Case(name).run(number, exact=True) for number in devices)
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, first, other)


def collectives(text):
    """Kinds and shapes of what the collectives of a compiled program take, by the computation that they are in."""
    results = {}
    for part in re.split(r"\n(?=(?:ENTRY )?%[\w.-]+ \()", text):
        for shapes, kind in re.findall(r"= (\([^)]*\)|\S+) (all-\w+|collective-\w+|reduce-scatter)\(", part):
            shapes = re.findall(r"\w+\[[\d,]*\]", shapes)
            results.setdefault(part.split(" (")[0], []).extend((kind, shape) for shape in shapes)
    return results


def exchanged(name):
    """What the shards exchange in the loop of updates of an iteration, and outside of all loops."""
    made = Case(name)
    init, step = made.program(2)
    result = collectives(step.lower(jax.eval_shape(init)).compile().as_text())
    entry = next((key for key in result if key.startswith("ENTRY")), None)
    inside = [result[key] for key in result if key != entry]
    assert len(inside) == 1  # none in the rollout
    size = sum(
        x.size for x in jax.tree.leaves(jax.eval_shape(lambda: made.policy(made.trainer(made.config).init(made.key))))
    )
    return sorted(inside[0]), f"f32[{size}]", result[entry]


@pytest.mark.rest
def test_what_the_shards_of_ppo_exchange():
    """In a gradient step one sum, of the gradient, and the moments of the advantages; outside of them sums of episodes
    and metrics. The compiled loop has two steps."""
    inside, gradient, outside = exchanged("ppo")
    assert inside == [("all-gather", "f32[4,3]")] * 2 + [("all-reduce", gradient)] * 2
    assert len(outside) < 10


@pytest.mark.rest
def test_what_the_shards_of_a_replay_exchange():
    """In a gradient step one sum, of the gradient, and with priorities two numbers: the largest weight, and the largest
    priority."""
    inside, gradient, _ = exchanged("prioritised dqn")
    assert sorted(inside) == sorted([("all-reduce", "f32[]")] * 4 + [("all-reduce", gradient)] * 2)
    inside, gradient, _ = exchanged("dqn")
    assert inside == [("all-reduce", gradient)] * 2


def test_an_agent_that_is_whole_exchanges_nothing():
    step = jax.jit(Case("ppo").trainer(Case("ppo").config).step)
    state = jax.eval_shape(Case("ppo").trainer(Case("ppo").config).init, jax.random.key(0))
    assert collectives(step.lower(state).compile().as_text()) == {}


def test_what_must_be_alike_is_refused_if_it_is_not():
    """An algorithm that forgets to join what it learns would have another policy on each device."""
    made = Case("ppo")
    plain = made.trainer

    def forgetful(config):
        trainer = plain(config)

        def update(state, trajectory, key):
            result = trainer.learner.update(state, trajectory, key)
            drift = jnp.mean(trajectory.obs)
            return Updated(state._replace(params=jax.tree.map(lambda x: x + drift, state.params)), *result[1:])

        return trainer._replace(learn=learn_of(trainer, update))

    def learn_of(trainer, update):
        def learn(state, trajectory, key):
            updated = update(state.learner, trajectory, key)
            return state._replace(learner=updated.state), {"loss": shards.mean(updated.metrics["loss"])}

        return learn

    member = Members({"config": cfg.with_lengths(made.config)}, made.key)
    with pytest.raises(ConfigError, match="what is learned would differ"):
        splitting.agent(forgetful, member, Split(SHARDS, 2).cut)


def test_shares_make_up_the_whole():
    """Iterations, updates and rows of a shard are those of the agent, however the sizes are rounded."""
    for algo, settings in (
        ("ppo", {"total_steps": 10_007, "num_envs": 8}),
        ("dqn", {"warmup_steps": 1001, "capacity": 9001}),
    ):
        config = ALGORITHMS[algo].Config(**settings)
        part = splitting.share(config, 4)
        for name in ("num_iterations", "total_updates", "warmup_rows", "capacity_rows"):
            assert getattr(part, name, None) == getattr(config, name, None), name
        assert part.num_envs * 4 == config.num_envs


@pytest.fixture(scope="module")
def numbers():
    """Numbers of 4 shards, and which of them count: in each a number of its own."""
    x = jax.random.normal(jax.random.key(0), (4, 32)) * 3 + 5
    return x, jnp.arange(32)[None] < jnp.array([[3], [32], [17], [0]])


def lanes(function, *args):
    return jax.vmap(function, axis_name=shards.AXIS)(*args)


@pytest.mark.rest
def test_joined_moments_and_masked_means(numbers):
    x, counts = numbers
    every, some = np.asarray(x, np.float64), np.asarray(x, np.float64)[np.asarray(counts)]
    mean, variance = lanes(losses.moments, x)
    np.testing.assert_allclose([mean, variance], np.array([[every.mean()] * 4, [every.var()] * 4]), rtol=1e-5)
    mean, variance = lanes(losses.moments, x, counts)
    np.testing.assert_allclose([mean, variance], np.array([[some.mean()] * 4, [some.var()] * 4]), rtol=1e-5)
    np.testing.assert_allclose(np.mean(lanes(losses.mean, x, counts)), some.mean(), rtol=1e-5)
    np.testing.assert_allclose(lanes(losses.standardise, x), (every - every.mean()) / every.std(), rtol=1e-4, atol=1e-5)
    target = x + jnp.cos(x)
    expected = losses.explained_variance(x.reshape(-1), target.reshape(-1), counts.reshape(-1))
    np.testing.assert_allclose(lanes(losses.explained_variance, x, target, counts), [expected] * 4, rtol=1e-5)


def test_sums_and_numbers_over_shards(numbers):
    x, counts = numbers
    tree = {"a": x, "b": counts.astype(jnp.int32), "c": x[:, 0]}
    for name, result in lanes(shards.total, tree).items():
        np.testing.assert_allclose(result, np.broadcast_to(np.sum(tree[name], 0), tree[name].shape), rtol=1e-6)
        assert result.dtype == tree[name].dtype
    np.testing.assert_allclose(lanes(shards.mean, x)[0], np.mean(x, 0), rtol=1e-5)
    np.testing.assert_array_equal(lanes(shards.largest, x)[1], np.max(x, 0))
    np.testing.assert_array_equal(lanes(lambda c: shards.every(jnp.any(c)), counts), [False] * 4)
    np.testing.assert_array_equal(lanes(lambda c: shards.every(jnp.any(c) | True), counts), [True] * 4)
    np.testing.assert_array_equal(lanes(lambda _: shards.numbers(3), x), np.arange(12).reshape(4, 3))
    keys = jax.random.key_data(lanes(lambda _: shards.own(jax.random.key(0)), x))
    assert len(np.unique(keys, axis=0)) == 4


def test_alone_everything_is_what_it_was(numbers):
    x, _ = numbers
    key = jax.random.key(1)
    assert shards.count() == 1 and shards.index() == 0 and shards.own(key) is key
    assert all(function(x) is x for function in (shards.total, shards.mean, shards.largest, shards.every))
