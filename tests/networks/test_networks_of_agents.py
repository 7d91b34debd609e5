"""Networks of several agents: a network for each, several rows with a memory each, two memories side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import compiled

from purerl import networks
from purerl.networks import memory, recurrent
from purerl.networks.heads import PolicyAndValue, one_each

N, T, B, SIZE, WINDOW = 3, 6, 4, 3, 2
LAST = np.zeros((T, B), bool)
LAST[1, 0] = LAST[2, 0] = LAST[3, 2] = LAST[T - 1, 1] = True
KEY = jax.random.key(0)


def random(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.6 * rng.normal(size=leaf.shape), jnp.float32), shapes)


def assert_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5), a, b)


def made(kind, head):
    layer = memory.make(kind, SIZE, WINDOW) if kind != "none" else memory.forgetful()
    return recurrent.recurrent(networks.MLP((5,)), layer, head)


def anew(carry, last):
    return jax.tree.map(lambda x: np.asarray(x) * ~last.reshape(-1, *[1] * (x.ndim - 1)), carry)


def stepped(step, params, obs, carry):
    """What the steps give, one by one, each beginning anew where an episode ended: results, and carries as they leave
    them."""
    results, carries = [], []
    for t in range(T):
        out, carry = step(params, jax.tree.map(lambda x, t=t: x[t], obs), carry)
        results.append(out)
        carries.append(carry)
        carry = anew(carry, LAST[t])
    return *(jax.tree.map(lambda *x: np.stack(x), *result) for result in (results, carries)), carry


@pytest.mark.rest
@pytest.mark.rest
@pytest.mark.rest("gtrxl")
@pytest.mark.parametrize("kind", ["none", *memory.MEMORIES])
def test_rows(kind):
    """``M`` rows at a time are ``M`` networks with the same parameters, step by step and unrolled over resets."""
    inner = made(kind, networks.Head(networks.MLP((4,)), 2, 1.0))
    network = compiled(recurrent.rows(inner, lambda obs: obs["seen"], N), "step", "unroll")
    obs = {"seen": random(jnp.zeros((T, B, N, 2))), "other": jnp.zeros((T, B))}
    params = random(jax.eval_shape(network.init, KEY, jax.tree.map(lambda x: x[0], obs)), 1)
    carry = jax.tree.map(jnp.zeros_like, network.init_carry(B))
    assert all(x.shape[:2] == (B, N) for x in jax.tree.leaves(carry))
    result = network.unroll(params, obs, carry, LAST)
    assert result[0].shape == (T, B, N, 2)
    assert_close(result, stepped(network.step, params, obs, carry))
    middle = anew(jax.tree.map(lambda x: x[2], result[1]), LAST[2])
    assert_close(network.unroll(params, jax.tree.map(lambda x: x[3:], obs), middle, LAST[3:])[0][0], result[0][3])
    alone = jax.jit(inner.unroll)
    for row in range(N):
        one = alone(params, obs["seen"][:, :, row], inner.init_carry(B), LAST)
        assert_close(result[0][:, :, row], one[0])
        assert_close(jax.tree.map(lambda x, row=row: x[:, row], result[2]), one[2])


@pytest.fixture(scope="module")
def apart():
    """An actor with a GRU and a critic with an LRU, which share nothing."""
    actor = made("gru", networks.Head(networks.MLP((4,)), 2, 1.0))
    critic = made("lru", networks.Head(networks.MLP((4,)), 1, 1.0))
    network = compiled(recurrent.separate(actor, critic), "act", "value", "unroll")
    obs = random(jnp.zeros((T, B, 2)))
    return network, random(jax.eval_shape(network.init, KEY, obs[0]), 1), obs


@pytest.mark.rest
def test_separate(apart):
    """Acting step by step leaves both memories as unrolling does, and values are the critic's at its own."""
    network, params, obs = apart
    policy, value, carries = network.unroll(params, obs, network.init_carry(B), LAST)
    assert policy.shape == (T, B, 2) and value.shape == (T, B)
    policies, left, _ = stepped(network.act, params, obs, network.init_carry(B))
    assert_close(policy, policies)
    assert_close(carries, left)
    before = anew(jax.tree.map(lambda x: x[3], carries), LAST[3])
    assert_close(network.value(params, obs[4], before), value[4])
    total = lambda p: [jnp.sum(x) for x in network.unroll(p, obs, network.init_carry(B), LAST)[:2]]
    by_actor, by_critic = jax.jit(jax.jacrev(total))(params)
    assert all(np.all(x == 0) for x in jax.tree.leaves((by_actor["critic"], by_critic["actor"])))
    assert all(np.any(x != 0) for x in jax.tree.leaves((by_actor["actor"]["head"], by_critic["critic"]["head"])))


@pytest.fixture(scope="module", params=["none", "gru"])
def each(request):
    """A network for each of three agents, a plain one, and parameters; observations ``[T, B]`` of agents by number."""
    if request.param == "none":
        head = networks.Head(networks.MLP((4,)), 2, 1.0)
        plain = networks.actor_critic(head, networks.Head(networks.MLP((4,)), 1, 1.0))
    else:
        plain = recurrent.actor_critic(made("gru", PolicyAndValue(4, 2, 0, networks.ACTIVATIONS["tanh"])))
    inner = plain._replace(
        init=lambda key, obs: plain.init(key, obs["x"]),
        act=lambda params, obs, carry: plain.act(params, obs["x"], carry),
        unroll=lambda params, obs, carry, last: plain.unroll(params, obs["x"], carry, last),
        value=lambda params, obs, carry: plain.value(params, obs["x"], carry),
    )
    names = "init", "act", "unroll", "value"
    inner = compiled(inner, *names)
    network = compiled(one_each(inner, N, lambda obs: obs["id"]), *names)
    obs = {"x": random(jnp.zeros((T, B, 2))), "id": jnp.broadcast_to(jnp.eye(N)[jnp.array([1, 0, 2, 1])], (T, B, N))}
    params = random(jax.eval_shape(network.init, KEY, jax.tree.map(lambda x: x[0], obs)), 1)
    return network, inner, params, obs


WHO = [1, 0, 2, 1]


@pytest.mark.rest
def test_each_observation_takes_its_own_agents_network(each):
    network, inner, params, obs = each
    carry = network.init_carry(B)
    first, unrolled = jax.tree.map(lambda x: x[0], obs), network.unroll(params, obs, carry, LAST)
    acted, valued = network.act(params, first, carry), network.value(params, first, carry)
    for row, agent in enumerate(WHO):
        own = jax.tree.map(lambda x, agent=agent: x[agent], params)
        expected = inner.unroll(own, obs, carry, LAST)
        at = lambda tree, axis, row=row: jax.tree.map(lambda x: np.take(np.asarray(x), row, axis), tree)
        assert_close(at(unrolled, 1), at(expected, 1))
        assert_close(at(acted, 0), at(inner.act(own, first, carry), 0))
        assert_close(valued[row], inner.value(own, first, carry)[row])


def test_agents_by_number(each):
    """Agents that change places with their numbers change places in what comes out; without these they do not."""
    network, _, params, obs = each
    unroll = network.unroll
    order, carry = np.array([2, 3, 1, 0]), network.init_carry(B)
    moved = jax.tree.map(lambda x: x[:, order], obs)
    policy, value, _ = unroll(params, obs, carry, LAST[:, :1].repeat(B, axis=1))
    again = unroll(params, moved, carry, LAST[:, :1].repeat(B, axis=1))
    assert_close(again[:2], (policy[:, order], value[:, order]))
    kept = unroll(params, {**moved, "id": obs["id"]}, carry, LAST[:, :1].repeat(B, axis=1))[0]
    same = np.array([WHO[i] for i in order]) == np.array(WHO)
    assert np.all(np.abs(kept - policy[:, order]).max(axis=(0, 2)) > 1e-3, where=~same)


@pytest.mark.rest
def test_each_agents_gradient_is_of_its_own_parameters(each):
    network, _, params, obs = each

    def loss(params, row):
        policy, value, _ = network.unroll(params, obs, network.init_carry(B), LAST)
        return jnp.sum(policy[:, row]) + jnp.sum(value[:, row])

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    for row, agent in list(enumerate(WHO))[:3]:
        moved = [np.any(np.asarray(x).reshape(N, -1) != 0, axis=1) for x in jax.tree.leaves(gradient(params, row))]
        assert not np.any(np.stack(moved)[:, np.arange(N) != agent])
        assert np.mean(np.stack(moved)[:, agent]) > 0.7


@pytest.mark.rest
def test_agents_begin_with_different_parameters(each):
    network, _, _, obs = each
    params = network.init(KEY, jax.tree.map(lambda x: x[0], obs))
    kernels = [x for x in jax.tree.leaves(params) if x.ndim == 3]
    assert kernels and all(np.any(x[0] != x[1]) and np.any(x[1] != x[2]) for x in kernels)
