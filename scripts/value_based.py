"""Acceptance experiments of the value-based algorithms, each against a threshold that a wrong build misses.

    python scripts/value_based.py catch|apex|cliffwalk|returns|memory [--seeds S]

Prints figures a line for each seed, and whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
import dataclasses
import itertools
import statistics
from collections.abc import Callable
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, population, show

from purerl import apex, c51, dqn, draw, envs, evaluate, iqn, qr_dqn, r2d2, replay
from purerl.algos.c51 import make_network as make_c51_network
from purerl.algos.iqn import make_network as make_iqn_network
from purerl.algos.qr_dqn import make_network as make_qr_dqn_network
from purerl.formulas import td_errors
from purerl.spaces import Box, Discrete
from purerl.types import Array, Env, Key, PyTree, Step, Transition


def watched(algo: Any, config: Any, env: Env, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Trains in eighths. Returns each actor's mean return in each of them ``[S, 8, B]``, read off a ring that keeps
    everything (an episode pays at its end only), and greedy play's after each of them ``[S, 8]``."""

    def make_train(config):
        trainer = algo.make_trainer(config, env)

        def train(key):
            key_train, key_play = jax.random.split(key)

            def eighth(state, key):
                state, _ = jax.lax.scan(lambda s, _: trainer.step(s), state, None, config.num_iterations // 8)
                played = evaluate(key, env, trainer.learner, trainer.learner.policy(state.learner), 500)
                return state, jnp.mean(played.episode_return)

            state, greedy = jax.lax.scan(eighth, trainer.init(key_train), jax.random.split(key_play, 8))
            items = (state.replay.ring if config.prioritised else state.replay).items
            reward, ends = (x.reshape(8, -1, config.num_envs).sum(axis=1) for x in (items.reward, items.terminated))
            return reward / ends, greedy

        return train

    return population(make_train, config, seeds)


CATCH = {
    "total_steps": 61_440,
    "num_envs": 16,
    "num_steps": 4,
    "num_updates": 4,
    "capacity": 61_440,
    "warmup_steps": 1_024,
    "target_period": 200,
    "learning_rate_decay": 0.0,
    "hidden_sizes": (64, 64),
    "huber_delta": 1.0,
}


def catch(seeds: int) -> None:
    """DQN; with a target network that never follows; and with gradients as old as those of 8 learners in turn."""
    env = envs.make("Catch-bsuite")
    for title, change, text, holds in (
        ("DQN", {}, "at least 0.85 on every seed", lambda x: x.min() >= 0.85),
        ("target frozen", {"target_period": 10**6}, "below 0.5 on every seed", lambda x: x.max() < 0.5),
        ("lag 7", {"lag": 7}, "at least 0.8 on every seed", lambda x: x.min() >= 0.8),
    ):
        acted, _ = watched(dqn, dqn.Config(**CATCH | change, n_step=1, double=False), env, seeds)
        show(f"{title}, return in each eighth", acted.mean(axis=2))
        claim(f"{title}: in the last eighth {text}", holds(acted[:, -1].mean(axis=1)))


def ape_x(seeds: int) -> None:
    """Ape-X beside DQN."""
    env = envs.make("Catch-bsuite")
    shared = CATCH | {"target_period": 50}
    acted, greedy = watched(apex, apex.Config(**shared, n_step=3), env, seeds)
    careful = acted[:, :, 8:].mean(axis=2)
    show("Ape-X, return of the 8 smallest epsilons in each eighth", careful)
    show("Ape-X, greedy return after each eighth", greedy)
    acted, greedy = watched(dqn, dqn.Config(**shared, n_step=1, double=False), env, seeds)
    show("DQN, return in each eighth", acted.mean(axis=2))
    show("DQN, greedy return after each eighth", greedy)
    claim("Ape-X: at least 0.9 in the second eighth on every seed", careful[:, 1].min() >= 0.9)
    claim("Ape-X: at least 0.98 in the last eighth on every seed", careful[:, -1].min() >= 0.98)


def walks(n: int, seed: int) -> Transition:
    """All ``2^n`` walks on a cliff of ``n`` states, end to end in random order, as ``[T, 1]``; the last row is idle.

    The right step leads on and the last of them pays 1; a wrong one ends the walk (Schaul et al. 2016, section 3.1).
    """
    rows = []
    for walk in np.random.default_rng(seed).permutation(2**n):
        for place in range(n):
            right = walk >> place & 1
            end = not right or place == n - 1
            rows.append((place, right, float(right and end), end))
            if end:
                break
    rows.append((0, 0, 0.0, True))
    kinds = jnp.int32, jnp.int32, jnp.float32, bool
    obs, action, reward, end = (
        jnp.asarray(column, kind)[:, None] for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    )
    return Transition(obs, action, reward, end, jnp.zeros_like(end), obs, ())


def updates_needed(n: int, prioritise: bool, seeds: int, limit: int = 10**6) -> np.ndarray:
    """Updates of one transition each until tabular Q-learning on the blind cliff walk has a squared error below 1e-3.

    Schaul et al. 2016 (arXiv 1511.05952), appendix B.1. ``[S]``.
    """
    gamma, num_rows = 1 - 1 / n, 2 ** (n + 1) - 1
    shape = {"num_rows": num_rows, "num_envs": 1, "batch_size": 1, "view": replay.transitions(1, gamma), "next_obs": 0}
    buffer = replay.prioritised(**shape, alpha=1.0, beta=0.0, beta_end=0.0) if prioritise else replay.uniform(**shape)
    truth = jnp.stack([jnp.zeros(n), gamma ** jnp.arange(n - 1, -1, -1.0)], axis=1)

    def run(given: tuple[Transition, Key]) -> Array:
        stored, key = given
        key_q, key_sample = jax.random.split(key)
        memory = buffer.add(buffer.init(jax.tree.map(lambda x: x[0, 0], stored)), stored)

        def unlike(state):
            q, _, updates = state
            return (jnp.mean(jnp.square(q - truth)) >= 1e-3) & (updates < limit)

        def learn(state):
            q, memory, updates = state
            sample = buffer.sample(memory, jax.random.fold_in(key_sample, updates))
            items = sample.items
            now, following = q[items.obs], q[items.next_obs]
            error = jax.vmap(td_errors.q_learning)(
                now, now, items.action, items.reward, items.discount, following, following
            )
            q = q.at[items.obs, items.action].add(0.25 * sample.weight * error)
            return q, buffer.update(memory, sample, error), updates + 1

        q = 0.1 * draw.normal(key_q, (n, 2))
        return jax.lax.while_loop(unlike, learn, (q, memory, jnp.zeros((), jnp.int32)))[2]

    stored = jax.tree.map(lambda *x: jnp.stack(x), *(walks(n, seed) for seed in range(seeds)))
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    return np.asarray(jax.jit(lambda *given: jax.lax.map(run, given))(stored, keys))


def cliffwalk(seeds: int, n: int = 10) -> None:
    """Replay by priority needs a fraction of the updates, on a cliff of ``n`` states."""
    needed = {name: updates_needed(n, name == "proportional", seeds) for name in ("uniform", "proportional")}
    for seed, (a, b) in enumerate(zip(*needed.values(), strict=True)):
        print(f"n = {n}, seed {seed}: uniform {a}, proportional {b}")
    uniform, proportional = map(np.median, needed.values())
    print(f"median: uniform {uniform:.0f}, proportional {proportional:.0f}")
    claim("proportional needs at most a fifth of uniform's updates", proportional <= uniform / 5)
    if n == 10:
        claim("proportional needs at most 5000 updates", proportional <= 5000)


def gamble(length: int, safe: Callable, risky: Callable) -> Env:
    """A chain of ``length`` steps, observed as one of ``length``; both actions lead on. Action 0 pays ``safe(coin, z)``
    and action 1 ``risky(coin, z)``, of a fair coin (bool) and a standard normal number."""

    def observe(place):
        return jax.nn.one_hot(place, length)

    def noise(key, shape):
        key_coin, key_normal = jax.random.split(key)
        return draw.uniform(key_coin, shape) < 0.5, draw.normal(key_normal, shape)

    def step(noise, place, action):
        reward = jnp.where(action > 0, risky(*noise), safe(*noise))
        end = place == length - 1
        return place + 1, Step(observe(place + 1), reward, end, jnp.zeros_like(end))

    def begin(level):
        return jnp.zeros((), jnp.int32), observe(0)

    seen = Box(0.0, 1.0, (length,), jnp.float32)
    return Env(f"gamble-{length}", lambda key, shape: jnp.zeros(shape), begin, noise, step, seen, Discrete(2))


def three_or_minus_one(coin: Array, z: Array) -> Array:
    """The pay of a coin, of mean 1."""
    return jnp.where(coin, 3.0, -1.0)


def coins(length: int) -> np.ndarray:
    """The returns of ``length`` such coins, equally likely."""
    return np.array([sum(pays) for pays in itertools.product((3.0, -1.0), repeat=length)])


def normals(length: int) -> np.ndarray:
    """A thousand quantiles of the sum of ``length`` normal numbers of mean 1 and variance 1."""
    sum_of_them = statistics.NormalDist(length, length**0.5)
    return np.array([sum_of_them.inv_cdf((i + 0.5) / 1000) for i in range(1000)])


def wasserstein(x: np.ndarray, p: np.ndarray, y: np.ndarray) -> float:
    """The area between the distribution functions of ``x``, with probabilities ``p``, and of ``y``, equally likely."""
    points = np.sort(np.concatenate([x, y]))[:, None]
    below = np.sum(p[None] * (x[None] <= points), axis=1) - np.mean(y[None] <= points, axis=1)
    return float(np.sum(np.abs(below[:-1]) * np.diff(points[:, 0])))


GAMBLE = {
    "num_envs": 8,
    "num_steps": 8,
    "num_updates": 4,
    "batch_size": 32,
    "capacity": 20_000,
    "warmup_steps": 1_000,
    "n_step": 1,
    "gamma": 1.0,
    "target_period": 50,
    "learning_rate": 2e-3,
    "epsilon_end": 1.0,
    "hidden_sizes": (32, 32),
}


NETWORKS = {"c51": make_c51_network, "qr-dqn": make_qr_dqn_network, "iqn": make_iqn_network}


def learned_returns(algo: Any, config: Any, env: Env, seeds: int) -> tuple[np.ndarray, np.ndarray, PyTree]:
    """Values and probabilities of the first state's returns ``[S, A, K]``, and the parameters ``[S]``."""
    params = population(
        lambda config: lambda key: algo.make_train(config, env)(key).state.learner.params, config, seeds
    )
    network, obs = NETWORKS[algo.name](config, env), jnp.eye(1, env.observation_space.shape[0])
    fractions = (jnp.arange(100)[None] + 0.5) / 100
    out = jax.vmap(lambda p: network.apply(p, obs, fractions if algo is iqn else ()))(params)
    values = np.asarray(out[0] if algo is iqn else out)[:, 0]
    if algo is c51:
        support = np.linspace(config.v_min, config.v_max, config.num_atoms)
        return np.broadcast_to(support, values.shape), np.asarray(jax.nn.softmax(values)), params
    return values, np.full(values.shape, 1 / values.shape[-1]), params


def distances(values: np.ndarray, probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """How far action 1's returns are from the ``truth``, ``[S]``."""
    return np.array([wasserstein(x[1], p[1], truth) for x, p in zip(values, probabilities, strict=True)])


def returns(seeds: int) -> None:
    """Distributions of the return in a chain of three gambles, and choices by risk in a single one.

    IQN is smooth in the fraction and rounds the jumps of several coins off, so its chain pays normal numbers.
    """
    half, normal = lambda coin, z: 0.5, lambda coin, z: 1 + z
    by_coin, by_normal = gamble(3, half, three_or_minus_one), gamble(3, half, normal)
    steps = {"total_steps": 100_000}
    for name, algo, config, env, truth in (
        ("C51", c51, c51.Config(**GAMBLE | steps, v_min=-3.0, v_max=9.0, num_atoms=25), by_coin, coins(3)),
        ("QR-DQN", qr_dqn, qr_dqn.Config(**GAMBLE | steps, num_quantiles=16, kappa=0.05), by_coin, coins(3)),
        ("IQN", iqn, iqn.Config(**GAMBLE | steps, num_quantiles=32, kappa=0.05), by_normal, normals(3)),
    ):
        values, probabilities, _ = learned_returns(algo, config, env, seeds)
        far, mean = distances(values, probabilities, truth), np.sum(values * probabilities, axis=2)
        show(f"{name}, three gambles, distance", far)
        claim(f"{name}: distance at most 0.15", far.max() <= 0.15)
        claim(f"{name}: action 1 has the larger mean", np.all(mean[:, 1] > mean[:, 0]))
    bandit = gamble(1, lambda coin, z: 0.9 + 0.05 * z, three_or_minus_one)
    config = iqn.Config(**GAMBLE, total_steps=65_000, num_quantiles=8, kappa=0.05)
    values, probabilities, params = learned_returns(iqn, config, bandit, seeds)
    far = distances(values, probabilities, coins(1))
    show("IQN, one gamble, distance", far)
    claim("IQN, one gamble: distance at most 0.15", far.max() <= 0.15)
    for level, best in ((1.0, 1), (0.25, 0)):
        learner = iqn.make_learner(dataclasses.replace(config, risk_level=level), bandit)
        play = jax.vmap(lambda p, play=learner.exploit: play(p, jnp.ones((1, 1)), (), jax.random.key(0))[0][0])
        chosen = np.asarray(play(params))
        claim(f"IQN, one gamble: at risk level {level} the action is {best}: {chosen}", np.all(chosen == best))


MEMORY = {
    "num_envs": 16,
    "num_updates": 1,
    "batch_size": 32,
    "n_step": 3,
    "target_period": 50,
    "hidden_sizes": (32, 32),
}


def memory(seeds: int) -> None:
    """R2D2 where DQN sees nothing to go by; and stored carries where a sequence is too short to hold cue and answer."""
    env = envs.make("MemoryChain-bsuite", memory_length=10)
    steps = 16 * 16 * 400
    shared = {**MEMORY, "total_steps": steps + 1_024, "capacity": steps + 1_024, "warmup_steps": 1_024}
    _, recurrent = watched(r2d2, r2d2.Config(**shared, memory="gru", memory_size=32), env, seeds)
    show("R2D2, greedy return after each eighth", recurrent)
    claim("R2D2: at least 0.95 on every seed", recurrent[:, -1].min() >= 0.95)
    _, blind = watched(dqn, dqn.Config(**shared, num_steps=16), env, seeds)
    show("DQN, greedy return after each eighth", blind)
    claim("DQN: within 0.15 of 0 on every seed", np.abs(blind[:, -1]).max() <= 0.15)
    short = {**MEMORY, "burn_in": 3, "unroll": 6, "period": 3, "num_steps": 18, "memory": "gru", "memory_size": 32}
    steps = 16 * 18 * 600
    short |= {"total_steps": steps + 1_152, "capacity": steps + 1_152, "warmup_steps": 1_152}
    final = {}
    for stored in (True, False):
        _, result = watched(r2d2, r2d2.Config(**short, stored_carry=stored), env, seeds)
        show(f"R2D2, short sequences, {'stored' if stored else 'zero'} carry, greedy return after each eighth", result)
        final[stored] = result[:, -1]
    claim("stored carry: at least 0.95 on every seed", final[True].min() >= 0.95)
    gap = final[True].mean() - final[False].mean()
    claim(f"stored carry: on average at least 0.1 above zero carry: {gap:.2f}", gap >= 0.1)


EXPERIMENTS = {
    "catch": (catch, 3),
    "apex": (ape_x, 3),
    "cliffwalk": (cliffwalk, 10),
    "returns": (returns, 5),
    "memory": (memory, 3),
}
"""What runs, and on how many seeds."""


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS)


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
