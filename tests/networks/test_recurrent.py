"""Memories: one unroll is the steps by hand, nothing crosses the end of an episode, and each is what its paper says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import compiled

from purerl import networks
from purerl.networks import memory, recurrent
from purerl.networks.memory.lru import linear
from purerl.spaces import Box

T, B, SIZE, WINDOW = 7, 3, 4, 3
LAST = np.zeros((T, B), bool)
LAST[2, 0] = LAST[3, 0] = LAST[4, 1] = LAST[T - 1, 2] = True


def make(kind, torso=None, head=None):
    layer = memory.make(kind, SIZE, WINDOW)
    head = head or networks.Head(networks.MLP((6,)), 2, 1.0)
    return compiled(recurrent.recurrent(torso or networks.MLP((5,)), layer, head), "step", "unroll")


def random(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.6 * rng.normal(size=leaf.shape), jnp.float32), shapes)


def made(network):
    """Random parameters, observations ``[T, B, 2]`` and a carry in mid-episode."""
    obs = random(jnp.zeros((T, B, 2)))
    params, carry = random((jax.eval_shape(network.init, jax.random.key(0), obs[0]), network.init_carry(B)), 1)
    if isinstance(carry, tuple) and carry[-1].shape == (B, WINDOW):  # a window of steps, and which of them there were
        carry = carry[0], jnp.ones((B, WINDOW))
    return params, obs, carry


def assert_close(a, b, **options):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **{"atol": 2e-5, **options}), a, b)


@pytest.mark.rest
@pytest.mark.parametrize("kind", memory.MEMORIES)
def test_unroll_is_the_steps_by_hand(kind):
    """Its carries are those that the steps leave, also at the end of an episode, after which the next one begins."""
    network = make(kind)
    params, obs, carry = made(network)
    result = network.unroll(params, obs, carry, LAST)
    outs, carries = [], []
    for t in range(T):
        out, carry = network.step(params, obs[t], carry)
        outs.append(out)
        carries.append(carry)
        carry = jax.tree.map(lambda x, ended=LAST[t]: np.stack([x[b] * (not ended[b]) for b in range(B)]), carry)
    assert_close(result, (np.stack(outs), jax.tree.map(lambda *x: np.stack(x), *carries), carry))
    assert all(np.all(x[2] == 0) and np.any(x[:2] != 0) for x in jax.tree.leaves(result[2]))


@pytest.mark.rest
@pytest.mark.parametrize("kind", memory.MEMORIES)
def test_nothing_crosses_the_end_of_an_episode(kind):
    """No output depends on an observation, or on the carry, from before the episode's start; nor from beyond the window
    of one that has a window."""
    network = make(kind)
    params, obs, carry = made(network)
    reach = WINDOW if kind == "gtrxl" else T

    def outputs(obs, carry):
        return jnp.sum(network.unroll(params, obs, carry, LAST)[0], axis=-1)  # [T, B]

    by_obs, by_carry = jax.jit(jax.jacrev(outputs, argnums=(0, 1)))(obs, carry)
    by_obs = np.any(by_obs != 0, axis=-1)  # [T, B, T, B]
    leaves = jax.tree.leaves(by_carry)[: 1 if kind == "gtrxl" else None]
    by_carry = [np.any(x != 0, axis=tuple(range(3, x.ndim))) for x in leaves]  # [T, B, B]
    for t in range(T):
        for b in range(B):
            first = max((s + 1 for s in range(t) if LAST[s, b]), default=0)
            expected = np.zeros((T, B), bool)
            expected[max(first, t - reach) : t + 1, b] = True
            np.testing.assert_array_equal(by_obs[t, b], expected)
            for influence in by_carry:
                np.testing.assert_array_equal(influence[t, b], (np.arange(B) == b) & (first == 0) & (t < reach))


@pytest.mark.rest
@pytest.mark.weekly("gtrxl", "lru")
@pytest.mark.parametrize("kind", memory.MEMORIES)
def test_two_halves_are_the_whole(kind):
    network = make(kind)
    params, obs, carry = made(network)
    unroll = network.unroll
    whole = unroll(params, obs, carry, LAST)
    for half in (2, 3):  # mid-episode, and at the end of one
        first, early, middle = unroll(params, obs[:half], carry, LAST[:half])
        second, late, end = unroll(params, obs[half:], middle, LAST[half:])
        joined = jax.tree.map(lambda x, y: np.concatenate([x, y]), (first, early), (second, late))
        assert_close((*joined, end), whole)


@pytest.mark.rest
@pytest.mark.parametrize("kind", memory.MEMORIES)
def test_a_cut_carry_is_no_memory(kind):
    """If every step ends an episode, the network is one of a single step from the start."""
    network = make(kind)
    params, obs, _ = made(network)
    result, _, carry = network.unroll(params, obs, network.init_carry(B), np.ones((T, B), bool))
    alone = jnp.reshape(obs, (T * B, -1))
    expected, _ = network.step(params, alone, network.init_carry(T * B))
    assert_close(result.reshape(T * B, -1), expected)
    assert_close(carry, network.init_carry(B))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gates(params, x, h):
    """What input and memory bring to each gate, by its letter, in float64."""

    def linear(layer, x):
        return x @ layer["kernel"] + layer.get("bias", 0.0)

    letters = sorted({name[-1] for name in params})
    return {g: (linear(params["i" + g], x), linear(params["h" + g], h)) for g in letters}


def gru(params, x, carry):
    """Cho et al. 2014, eq. 5 to 8, with the reset gate on the recurrent product and the update gate turned round."""
    gate = gates(params, x, carry)
    reset, keep = sigmoid(sum(gate["r"])), sigmoid(sum(gate["z"]))
    candidate = np.tanh(gate["n"][0] + reset * gate["n"][1])
    new = keep * carry + (1 - keep) * candidate
    return new, new


def lstm(params, x, carry):
    """Gers et al. 2000: the cell forgets, takes in, and lets out."""
    c, h = carry
    gate = {g: sum(pair) for g, pair in gates(params, x, h).items()}
    c = sigmoid(gate["f"]) * c + sigmoid(gate["i"]) * np.tanh(gate["g"])
    return (c, sigmoid(gate["o"]) * np.tanh(c)), sigmoid(gate["o"]) * np.tanh(c)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_cell_by_hand(kind):
    """Without torso and head."""
    network = make(kind, networks.MLP(()), networks.MLP(()))
    params, obs, carry = made(network)
    hand = jax.tree.map(np.float64, params["memory"]["params"])
    expected, out = {"gru": gru, "lstm": lstm}[kind](hand, np.float64(obs[0]), jax.tree.map(np.float64, carry))
    assert_close(network.step(params, obs[0], carry), (out, expected))


def float64(params):
    return jax.tree.map(np.float64, params["memory"]["params"])


def normalised(x, layer):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * layer["scale"] + layer["bias"]


def affine(x, layer):
    return x @ layer["kernel"] + layer["bias"]


def test_linear_recurrent_unit_by_hand():
    """Orvieto et al. 2023, eq. 6 and 7, in complex128, one step after another."""
    network = make("lru", networks.MLP(()), networks.MLP(()))
    params, obs, carry = made(network)
    p, x, carry = float64(params), np.float64(obs), np.float64(carry)
    state = carry[:, 0] + 1j * carry[:, 1]
    eigenvalue = np.exp(-np.exp(p["log_nu"]) + 1j * np.exp(p["log_theta"]))
    result, _, _ = jax.jit(network.unroll)(params, obs, jnp.float32(carry), LAST)
    for t in range(T):
        embedded = affine(x[t], p["embed"])
        u = normalised(embedded, p["norm"])
        state = eigenvalue * state + np.exp(p["log_gamma"]) * (u @ (p["into_real"] + 1j * p["into_imag"]))
        y = np.real(state @ (p["out_real"] + 1j * p["out_imag"])) + p["direct"] * u
        y = np.float64(jax.nn.gelu(y))
        expected = embedded + affine(y, p["value"]) * sigmoid(affine(y, p["gate"]))
        np.testing.assert_allclose(result[t], expected, rtol=1e-4, atol=1e-4)
        state = state * ~LAST[t][:, None]


def test_linear_recurrent_unit_remembers_at_the_start(key):
    """Its eigenvalues begin in the ring between 0.9 and 0.999, and gamma makes up for what they add up to."""
    params = float64({"memory": linear(64).init(key, jnp.zeros((1, 3)))})
    size = np.exp(-np.exp(params["log_nu"]))
    assert 0.9 < size.min() < 0.93 and 0.98 < size.max() < 0.999
    np.testing.assert_allclose(np.exp(2 * params["log_gamma"]), 1 - size**2, rtol=1e-4)
    assert 0 < np.exp(params["log_theta"]).max() < np.pi / 10


def gate(x, y, layer):
    """Parisotto et al. 2020, section 3.2, "Gated-Recurrent-Unit-type gating"."""
    kernel = lambda name: layer[name]["kernel"]
    r = sigmoid(y @ kernel("reset_y") + x @ kernel("reset_x"))
    z = sigmoid(y @ kernel("update_y") + x @ kernel("update_x") - layer["bias"])
    return (1 - z) * x + z * np.tanh(y @ kernel("new_y") + (r * x) @ kernel("new_x"))


def test_gated_transformer_by_hand():
    """One step over a window of which the oldest input is missing, in loops over heads and inputs."""
    network = make("gtrxl", networks.MLP(()), networks.MLP(()))
    params, obs, (past, there) = made(network)
    there = there.at[:, 0].set(0.0)
    p = float64(params)
    result, (kept, _) = network.step(params, obs[0], (past, there))
    heads, parts = p["position_bias"].shape
    for b in range(B):
        embedded = affine(np.float64(obs[0, b]), p["embedding"])
        window = np.stack([*np.float64(past[b]), embedded])
        normed = normalised(window, p["norm"])
        mixed = []
        for h in range(heads):
            query, keys, values = (
                x @ p[name]["kernel"][:, h] + p[name]["bias"][h]
                for x, name in ((normed[-1], "query"), (normed, "key"), (normed, "value"))
            )
            score = np.full(WINDOW + 1, -np.inf)
            for w in range(1, WINDOW + 1):
                score[w] = (query @ keys[w] + (query + p["position_bias"][h]) @ p["position"][w, h]) / np.sqrt(parts)
            chance = np.exp(score - score.max())
            mixed.append(chance / chance.sum() @ values)
        y = gate(embedded, np.maximum(affine(np.concatenate(mixed), p["mix"]), 0), p["gate"])
        hidden = np.maximum(affine(normalised(y, p["norm_out"]), p["hidden"]), 0)
        expected = gate(y, np.maximum(affine(hidden, p["out"]), 0), p["gate_out"])
        np.testing.assert_allclose(result[b], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(kept[b], window[1:], rtol=1e-5, atol=1e-5)


@pytest.mark.weekly("gtrxl", "lru", "lstm")
@pytest.mark.parametrize("kind", memory.MEMORIES)
def test_vmapped_initialiser(kind):
    """No LAPACK, which hangs there; recurrent kernels of cells are orthogonal."""
    network = make(kind)
    init = jax.jit(jax.vmap(network.init, in_axes=(0, None)))
    args = jax.random.split(jax.random.key(0), 3), jnp.zeros((B, 2))
    text = init.lower(*args).as_text()
    assert "lapack" not in text and "qr" not in text.lower().replace("sqrt", "")
    if kind in ("gru", "lstm"):
        params = init(*args)["memory"]["params"]
        for name in (name for name in params if name.startswith("h")):
            for kernel in np.asarray(params[name]["kernel"]):
                np.testing.assert_allclose(kernel.T @ kernel, np.eye(SIZE), atol=1e-5)


@pytest.mark.parametrize("kind", memory.MEMORIES)
def test_carry_at_the_start(kind):
    for leaf in jax.tree.leaves(make(kind).init_carry(B)):
        assert leaf.shape[0] == B and leaf.dtype == jnp.float32
        np.testing.assert_array_equal(leaf, np.zeros(leaf.shape))


def test_images(key):
    """The shapes of an unroll under vmap, of image observations."""
    space = Box(0, 1, (5, 5, 2), np.bool_)
    network = make("lstm", networks.torso(space, (8,), "relu"))

    def agent(key, obs):
        params = network.init(key, obs[0])
        return network.unroll(params, obs, network.init_carry(B), LAST)

    keys, obs = jax.random.split(key, 2), jnp.zeros((2, T, B, *space.shape), space.dtype)
    out, _, carry = jax.eval_shape(jax.jit(jax.vmap(agent)), keys, obs)
    assert out.shape == (2, T, B, 2) and all(leaf.shape == (2, B, SIZE) for leaf in carry)


@pytest.mark.parametrize("kind", memory.MEMORIES)
def test_last_must_fit(kind):
    network = make(kind)
    params, obs, carry = made(network)
    with pytest.raises(AssertionError):
        network.unroll(params, obs, carry, LAST[:, :1])
