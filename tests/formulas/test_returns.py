"""Returns against their definitions in float64, and against the limits in which they must agree with each other."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from purerl.formulas import returns

T, GAMMA = 23, 0.9
ENDS = [(), (0,), (T - 1,), (7,), (7, 8), (0, 5, 11, T - 1), tuple(range(T))]


def trajectory(seed, terminated=(), truncated=()):
    """Random float64 arrays ``[T]``; a step's next value is the next step's value unless the episode ended."""
    rng = np.random.default_rng(seed)
    flags = {name: np.isin(np.arange(T), at) for name, at in (("terminated", terminated), ("truncated", truncated))}
    last = flags["terminated"] | flags["truncated"]
    value, elsewhere = rng.normal(size=T), rng.normal(size=T)
    next_value = np.where(last, elsewhere, np.append(value[1:], rng.normal()))
    return {
        "reward": rng.normal(size=T),
        "value": value,
        "next_value": next_value,
        "discount": GAMMA * (1 - flags["terminated"]),
        "last": last,
        "truncated": flags["truncated"],
        "log_ratio": rng.normal(size=T),
        "q_value": rng.normal(size=T),
        "trace": rng.uniform(size=T),
    }


def call(formula, data, names, *args):
    arrays = [jnp.asarray(data[name], bool if name in ("last", "truncated") else jnp.float32) for name in names]
    return jax.jit(formula, static_argnums=tuple(range(len(names), len(names) + len(args))))(*arrays, *args)


CASES = {
    "gae": (returns.gae, oracles.gae, ("reward", "value", "next_value", "discount", "last"), (0.7,)),
    "lambda_returns": (
        returns.lambda_returns,
        oracles.lambda_returns,
        ("reward", "next_value", "discount", "last"),
        (0.7,),
    ),
    "n_step": (returns.n_step, oracles.n_step, ("reward", "next_value", "discount", "last"), (5,)),
    "stored_n_step": (
        returns.stored_n_step,
        oracles.stored_n_step,
        ("reward", "value", "discount", "truncated", "next_value"),
        (5,),
    ),
    "vtrace": (
        returns.vtrace,
        oracles.vtrace,
        ("log_ratio", "reward", "value", "next_value", "discount", "last"),
        (0.8, 1.1, 0.9),
    ),
    "retrace": (
        returns.retrace,
        oracles.retrace,
        ("log_ratio", "reward", "value", "next_value", "discount", "last"),
        (0.8,),
    ),
    "stored_retrace": (
        returns.stored_retrace,
        oracles.stored_retrace,
        ("trace", "reward", "q_value", "value", "discount", "truncated", "next_value"),
        (),
    ),
}


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
@pytest.mark.parametrize("name", CASES)
def test_against_definition(name, kind):
    formula, oracle, names, args = CASES[name]
    for seed, ends in enumerate(ENDS):
        data = trajectory(seed, **{kind: ends})
        expected = oracle(*(data[n] for n in names), *args)
        np.testing.assert_allclose(call(formula, data, names, *args), expected, rtol=2e-5, atol=2e-5)


def test_gae_limits():
    data = trajectory(1, truncated=(9,))
    names = ("reward", "value", "next_value", "discount", "last")
    one_step = data["reward"] + data["discount"] * data["next_value"] - data["value"]
    np.testing.assert_allclose(call(returns.gae, data, names, 0.0), one_step, atol=1e-5)
    monte_carlo = call(returns.lambda_returns, data, ("reward", "next_value", "discount", "last"), 1.0) - data["value"]
    np.testing.assert_allclose(call(returns.gae, data, names, 1.0), monte_carlo, atol=1e-5)


def test_n_step_longer_than_trajectory_is_lambda_one():
    data = trajectory(2, terminated=(5,), truncated=(12,))
    names = ("reward", "next_value", "discount", "last")
    np.testing.assert_allclose(
        call(returns.n_step, data, names, T), call(returns.lambda_returns, data, names, 1.0), atol=1e-5
    )


def test_stored_n_step_by_hand():
    """Rewards 1, 2, 4, .. and values 100, 200, ..: step 1 terminates, step 4 is truncated; gamma is a half. What stops
    is worth 10 a step."""
    names = ("reward", "value", "discount", "truncated", "stopped")
    data = {
        "reward": 2.0 ** np.arange(7),
        "value": 100.0 * np.arange(1, 8),
        "discount": [0.5, 0, 0.5, 0.5, 0.5, 0.5, 0.5],
        "truncated": np.arange(7) == 4,
        "stopped": 10.0 * np.arange(1, 8),
    }
    expected = [1 + 0.5 * 2, 2, 4 + 0.5 * 8 + 0.25 * 500, 8 + 0.5 * 50, 50, 32 + 0.5 * 70, 70]
    np.testing.assert_allclose(call(returns.stored_n_step, data, names, 2), expected)
    np.testing.assert_array_equal(call(returns.stored_n_step, data, names, 0), data["value"])


def test_stored_n_step_is_n_step_where_nothing_is_missing():
    """Terminations only: all but the last row are those of a trajectory that ends one row earlier."""
    data = trajectory(5, terminated=(3, 10))
    data["next_value"][:-1] = data["value"][1:]
    stored = call(returns.stored_n_step, data, ("reward", "value", "discount", "truncated", "value"), 4)
    shorter = {name: x[:-1] for name, x in data.items()}
    whole = call(returns.n_step, shorter, ("reward", "next_value", "discount", "last"), 4)
    np.testing.assert_allclose(stored[:-1], whole, atol=1e-5)
    assert stored[-1] == np.float32(data["value"][-1])


def test_vtrace_on_policy_is_lambda_returns():
    data = trajectory(3, terminated=(4,), truncated=(13,))
    data["log_ratio"] = np.zeros(T)
    advantage, target = call(returns.vtrace, data, CASES["vtrace"][2], 1.0, 1.0, 1.0)
    expected = call(returns.lambda_returns, data, ("reward", "next_value", "discount", "last"), 1.0)
    np.testing.assert_allclose(target, expected, atol=1e-5)
    np.testing.assert_allclose(advantage, expected - data["value"], atol=1e-5)


def test_retrace_without_traces_is_one_step():
    data = trajectory(4, truncated=(6,))
    one_step = data["reward"] + data["discount"] * data["next_value"]
    np.testing.assert_allclose(call(returns.retrace, data, CASES["retrace"][2], 0.0), one_step, atol=1e-5)


def test_stored_retrace_is_retrace_where_nothing_is_missing():
    """Terminations only; the last row bootstraps as the end of a trajectory that is one row shorter."""
    data = trajectory(5, terminated=(3, 10))
    data["next_value"][:-1] = data["value"][1:]
    data["trace"] = 0.7 * np.minimum(1.0, np.exp(data["log_ratio"]))
    names = ("trace", "reward", "q_value", "value", "discount", "truncated", "q_value")
    shorter = {name: x[:-1] for name, x in data.items()}
    whole = oracles.retrace(
        *(shorter[n] for n in ("log_ratio", "reward", "q_value", "next_value", "discount", "last")), 0.7
    )
    np.testing.assert_allclose(call(returns.stored_retrace, data, names)[:-1], whole, atol=1e-5)


def test_truncation_is_worth_what_the_infinite_process_is():
    """Constant reward, cut every 7 steps, with the true value: no advantage anywhere. Terminated, there is one."""
    worth = np.full(T, 1 / (1 - GAMMA))
    data = trajectory(0, truncated=range(6, T, 7))
    data.update(reward=np.ones(T), value=worth, next_value=worth)
    names = ("reward", "value", "next_value", "discount", "last")
    np.testing.assert_allclose(call(returns.gae, data, names, 0.95), np.zeros(T), atol=1e-5)
    data["discount"] = GAMMA * (1 - data["last"])
    assert np.all(np.asarray(call(returns.gae, data, names, 0.95))[:21] < -1)


def test_scalars_only_in_time():
    with pytest.raises(AssertionError):
        returns.gae(*[jnp.zeros((3, 2))] * 5, 0.9)
