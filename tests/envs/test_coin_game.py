"""CoinGame-v0 against its rules in plain Python, and the value of random play by a chain of places."""

import itertools

import numpy as np
import pytest
from fleets import play

from purerl import envs

MOVES = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}


def cells(obs):
    """Of an observation ``[36]``: the agent, the other, the agent's coin, the other's, each as ``(row, column)``."""
    assert obs.reshape(4, 9).sum(axis=1).tolist() == [1] * 4
    return [divmod(int(i), 3) for i in obs.reshape(4, 9).argmax(axis=1)]


def test_step_by_step():
    env = envs.make("CoinGame-v0", stolen=3.0)
    first, _, actions, seen, made = play(env, 48, 40)
    respawned, both = set(), 0
    for b in range(48):
        mine, theirs, coin, other = cells(first[b, 0])
        for t in range(40):
            at, coins, reward = [mine, theirs], [coin, other], [0, 0]
            for i in (0, 1):
                at[i] = tuple((x + d) % 3 for x, d in zip(at[i], MOVES[int(actions[t, b, i])], strict=True))
            taken = [[at[i] == coins[j] for j in (0, 1)] for i in (0, 1)]
            for i, j in itertools.product((0, 1), repeat=2):
                if taken[i][j]:
                    reward[i] += 1
                    reward[j] -= 3 if i != j else 0
            np.testing.assert_array_equal(made.reward[t, b], reward)
            now = cells(made.next_obs[t, b, 0])
            assert now[:2] == at
            for j in (0, 1):
                if any(taken[i][j] for i in (0, 1)):
                    respawned.add(now[2 + j])
                    both += all(taken[i][j] for i in (0, 1))
                else:
                    assert now[2 + j] == coins[j]
            assert cells(made.next_obs[t, b, 1]) == [now[1], now[0], now[3], now[2]]
            assert (made.truncated[t, b] == (t % 16 == 15)).all() and not made.terminated[t, b].any()
            mine, theirs, coin, other = cells(seen[t, b, 0])
    assert len(respawned) == 9 and both


@pytest.mark.rest
def test_what_random_play_is_worth():
    """A coin and the places of both agents relative to it are a chain of 81 states."""
    shifts = [3 * (dr % 3) + dc % 3 for dr, dc in MOVES.values()]
    move = np.zeros((9, 9))
    for cell, shift in itertools.product(range(9), shifts):
        row, column = (cell // 3 + shift // 3) % 3, (cell % 3 + shift % 3) % 3
        move[cell, 3 * row + column] += 1 / 4
    both = np.kron(move, move)
    place, own, other = np.full(81, 1 / 81), 0.0, 0.0
    hit = np.array([[a == 0, b == 0] for a in range(9) for b in range(9)])  # the coin lies in cell 0
    for _ in range(16):
        place = place @ both
        own, other = own + place @ hit[:, 0], other + place @ hit[:, 1]
        after = np.zeros(81)
        for (a, b), p in zip(itertools.product(range(9), repeat=2), place, strict=True):
            if a and b:
                after[9 * a + b] += p
                continue
            for r, c in itertools.product(range(3), repeat=2):  # the coin moves, and all places with it
                at = [3 * ((x // 3 - r) % 3) + (x % 3 - c) % 3 for x in (a, b)]
                after[9 * at[0] + at[1]] += p / 9
        place = after
    for stolen, expected in ((0.0, own + other), (2.0, own + other - 2 * other)):
        made = play(envs.make("CoinGame-v0", stolen=stolen), 4096, 16)[-1]
        total = made.reward[..., 0].sum(axis=0)
        assert abs(total.mean() - expected) < 4 * total.std() / 64
