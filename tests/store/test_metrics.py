"""Lines of metrics beside `json.dumps`, and what a person watches beside sums in numpy."""

import json

import numpy as np
import pytest

from purerl.store import metrics


@pytest.fixture
def made():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 4)).astype(np.float32) * 10.0 ** rng.integers(-30, 30, size=(3, 4))
    ended = np.array([[0, 2, 1, 0], [0, 1, 3, 0], [0, 0, 2, 1]], np.int32)
    returns = np.where(ended > 0, values.clip(-1e3, 1e3), np.nan).astype(np.float32)
    values[1, 2], values[2, 0] = np.inf, -np.inf
    alive = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]], bool)
    return {"episode_return": returns, "episodes": ended, "loss %": values.astype(np.float32), "alive": alive}


def test_lines_hold_every_bit(made):
    """In order, each a JSON object of its own; null for what is no number; a float32 read back is what it was."""
    labels = [{"config": 0, "seed": s} for s in (7, 8, 9, 10)]
    text = "".join(metrics.rows(made, [2**40, 2**40 + 8, 2**40 + 16], 2**33, labels))
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == 12
    for k, row in enumerate(rows):
        i, m = divmod(k, 4)
        head = {"iteration": 2**33 + i, "config": 0, "seed": 7 + m, "env_steps": 2**40 + 8 * i}
        assert list(row) == [*head, *made] and {name: row[name] for name in head} == head
        assert row["alive"] is bool(made["alive"][i, m]) and row["episodes"] == made["episodes"][i, m]
        for name in ("episode_return", "loss %"):
            value = made[name][i, m]
            assert (np.float32(row[name]) == value) if np.isfinite(value) else row[name] is None


def test_means(made):
    """Returns count as often as episodes ended; other metrics where they exist; a sum of episodes; who lives now."""
    result, ended = metrics.means(made), made["episodes"]
    total = np.nansum(made["episode_return"].astype(np.float64) * ended)
    np.testing.assert_allclose(result["episode_return"], total / ended.sum())
    loss = made["loss %"].astype(np.float64)
    np.testing.assert_allclose(result["loss %"], loss[np.isfinite(loss)].mean())
    assert result["episodes"] == 10 and result["alive"] == 3
    each = [np.nansum(made["episode_return"][:, m] * ended[:, m]) / ended[:, m].sum() for m in (1, 2, 3)]
    np.testing.assert_allclose(metrics.returns(made), [np.nan, *each], rtol=1e-6)
    np.testing.assert_allclose(result["episode_return_0.5"], np.median(each), rtol=1e-6)
    lone = metrics.means({name: x[:, :1] for name, x in made.items()})
    assert np.isnan(lone["episode_return"]) and "episode_return_0.5" not in lone
