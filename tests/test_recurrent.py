"""Recurrent networks: one unroll is the steps by hand, and no memory crosses the end of an episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import networks, recurrent
from purerl.types import Box

T, B, SIZE = 7, 3, 4
CELLS = list(recurrent.CELLS)
LAST = np.zeros((T, B), bool)
LAST[2, 0] = LAST[3, 0] = LAST[4, 1] = LAST[T - 1, 2] = True


def make(cell, torso=None):
    return recurrent.recurrent(torso or networks.MLP((5,)), cell, SIZE, networks.Head(networks.MLP((6,)), 2, 1.0))


def made(network):
    """Random parameters, observations ``[T, B, 2]`` and a carry in mid-episode."""
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(T, B, 2)), jnp.float32)
    shapes = jax.eval_shape(network.init, jax.random.key(0), obs[0]), network.init_carry(B)
    params, carry = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), shapes)
    return params, obs, carry


def assert_close(a, b, **options):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **{"atol": 2e-5, **options}), a, b)


@pytest.mark.parametrize("cell", CELLS)
def test_unroll_is_the_steps_by_hand(cell):
    network = make(cell)
    params, obs, carry = made(network)
    out, end = jax.jit(network.unroll)(params, obs, carry, LAST)
    outs, step = [], jax.jit(network.step)
    for t in range(T):
        step_out, carry = step(params, obs[t], carry)
        outs.append(step_out)
        carry = jax.tree.map(lambda x, ended=LAST[t]: np.stack([x[b] * (not ended[b]) for b in range(B)]), carry)
    assert_close(out, np.stack(outs))
    assert_close(end, carry)
    assert all(np.all(x[2] == 0) and np.all(x[:2] != 0) for x in jax.tree.leaves(end))


@pytest.mark.parametrize("cell", CELLS)
def test_nothing_crosses_the_end_of_an_episode(cell):
    """No output depends on an observation, or on the carry, from before the episode's start."""
    network = make(cell)
    params, obs, carry = made(network)

    def outputs(obs, carry):
        return jnp.sum(network.unroll(params, obs, carry, LAST)[0], axis=-1)  # [T, B]

    by_obs, by_carry = jax.jit(jax.jacrev(outputs, argnums=(0, 1)))(obs, carry)
    by_obs = np.any(by_obs != 0, axis=-1)  # [T, B, T, B]
    by_carry = [np.any(x != 0, axis=-1) for x in jax.tree.leaves(by_carry)]  # [T, B, B]
    for t in range(T):
        for b in range(B):
            first = max((s + 1 for s in range(t) if LAST[s, b]), default=0)
            expected = np.zeros((T, B), bool)
            expected[first : t + 1, b] = True
            np.testing.assert_array_equal(by_obs[t, b], expected)
            for influence in by_carry:
                np.testing.assert_array_equal(influence[t, b], (np.arange(B) == b) & (first == 0))


@pytest.mark.parametrize("cell", CELLS)
def test_two_halves_are_the_whole(cell):
    network = make(cell)
    params, obs, carry = made(network)
    unroll = jax.jit(network.unroll)
    whole = unroll(params, obs, carry, LAST)
    for half in (2, 3):  # mid-episode, and at the end of one
        first, middle = unroll(params, obs[:half], carry, LAST[:half])
        second, end = unroll(params, obs[half:], middle, LAST[half:])
        assert_close((np.concatenate([first, second]), end), whole)


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


@pytest.mark.parametrize("cell", CELLS)
def test_cell_by_hand(cell):
    """Without torso and head."""
    network = recurrent.recurrent(networks.MLP(()), cell, SIZE, networks.MLP(()))
    params, obs, carry = made(network)
    hand = jax.tree.map(np.float64, params["cell"]["params"])
    expected, out = {"gru": gru, "lstm": lstm}[cell](hand, np.float64(obs[0]), jax.tree.map(np.float64, carry))
    assert_close(network.step(params, obs[0], carry), (out, expected))


@pytest.mark.parametrize("cell", CELLS)
def test_vmapped_initialiser(cell):
    """No LAPACK, which hangs there; recurrent kernels are orthogonal."""
    network = make(cell)
    init = jax.jit(jax.vmap(network.init, in_axes=(0, None)))
    args = jax.random.split(jax.random.key(0), 3), jnp.zeros((B, 2))
    text = init.lower(*args).as_text()
    assert "lapack" not in text and "qr" not in text.lower().replace("sqrt", "")
    params = init(*args)["cell"]["params"]
    for name in (name for name in params if name.startswith("h")):
        for kernel in np.asarray(params[name]["kernel"]):
            np.testing.assert_allclose(kernel.T @ kernel, np.eye(SIZE), atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_carry_at_the_start(cell):
    network = make(cell)
    for leaf in jax.tree.leaves(network.init_carry(B)):
        np.testing.assert_array_equal(leaf, np.zeros((B, SIZE), np.float32))


def test_images(key):
    """The shapes of an unroll under vmap, of image observations."""
    space = Box(0, 1, (5, 5, 2), np.bool_)
    network = make("lstm", networks.torso(space, (8,), "relu"))

    def agent(key, obs):
        params = network.init(key, obs[0])
        return network.unroll(params, obs, network.init_carry(B), LAST)

    keys, obs = jax.random.split(key, 2), jnp.zeros((2, T, B, *space.shape), space.dtype)
    out, carry = jax.eval_shape(jax.jit(jax.vmap(agent)), keys, obs)
    assert out.shape == (2, T, B, 2) and all(leaf.shape == (2, B, SIZE) for leaf in carry)


def test_last_must_fit():
    network = make("gru")
    params, obs, carry = made(network)
    with pytest.raises(AssertionError):
        network.unroll(params, obs, carry, LAST[:, :1])
