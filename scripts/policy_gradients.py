"""Acceptance experiments of the policy gradients, each against a threshold that a wrong build misses.

    python scripts/policy_gradients.py workers|vtrace|appo|reuse|uses|memory|velocity [--seeds S]

Prints figures a line for each seed, and whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, population, show, sized

from purerl import a2c, appo, envs, evaluate, impala, ppo, train_population
from purerl.display import plots
from purerl.types import Env

LAGS = 0, 8, 32, 64
CATCH = {
    "num_envs": 32,
    "num_steps": 20,
    "learning_rate": 1e-3,
    "learning_rate_decay": 0.0,
    "max_grad_norm": 0.5,
    "max_lag": max(LAGS),
}
OTHERS = {"learning_rate": 1e-3, "max_lag": max(LAGS)}
"""IMPALA's own settings but for a smaller step size: what old parameters do grows with it."""
UPDATES = 1000


def returns(algo: Any, config: Any, env: Env, seeds: int) -> np.ndarray:
    """The mean return of all episodes that ended in each eighth of the training, ``[S, 8]``."""
    metrics = population(lambda config: lambda key: algo.make_train(config, env)(key).metrics, config, seeds)
    return eighths(metrics)


def eighths(metrics: dict[str, np.ndarray]) -> np.ndarray:
    """Mean returns ``[..., 8]`` of the episodes behind metrics ``[..., iterations]``."""
    length = metrics["episodes"].shape[-1] // 8 * 8
    count, mean = (metrics[name][..., :length] for name in ("episodes", "episode_return"))
    total = np.where(count > 0, mean, 0.0) * count
    parts = [x.reshape(*x.shape[:-1], 8, -1).sum(axis=-1) for x in (total, count)]
    return parts[0] / parts[1]


def workers(seeds: int) -> None:
    """A2C, and the asynchronous workers of A3C that take turns, at the same number of frames of Catch."""
    env = envs.make("Catch-bsuite")
    steps = {
        "total_steps": 320_000,
        "num_steps": 5,
        "learning_rate": 5e-4,
        "learning_rate_decay": 0.0,
        "max_grad_norm": 0.5,
    }
    for title, change, least in (
        ("A2C, 32 environments", {"num_envs": 32, "learning_rate": 1e-3}, 0.9),
        ("A3C, 8 workers of 4 environments", {"num_envs": 4, "lag": 7.0, "max_lag": 7}, 0.95),
        ("A3C, 32 workers of 4 environments", {"num_envs": 4, "lag": 31.0, "max_lag": 31}, 0.8),
    ):
        result = returns(a2c, a2c.Config(**steps | change), env, seeds)
        show(f"{title}, return in each eighth", result)
        claim(f"{title}: in the last eighth at least {least} on every seed", result[:, -1].min() >= least)


def lag_sweep(algo: Any, env: Env, config: Any, lags: tuple[int, ...], seeds: int) -> np.ndarray:
    """Returns in each eighth ``[lags, S, 8]``, all in one program."""
    shape = len(lags), seeds, 8
    keys = jnp.tile(jax.vmap(jax.random.key)(jnp.arange(seeds)), len(lags))
    lags = np.repeat(np.array(lags, np.float32), seeds)
    config = dataclasses.replace(sized(config), lag=jnp.asarray(lags))
    make_train = lambda config: lambda key: algo.make_train(config, env)(key).metrics
    metrics = jax.tree.map(np.asarray, train_population(make_train, config, keys))
    np.testing.assert_array_equal(metrics["lag"], np.broadcast_to(lags[:, None], metrics["lag"].shape))
    return eighths(metrics).reshape(shape)


def vtrace(seeds: int, env: str = "Catch-bsuite", png: str = "") -> None:
    """IMPALA with V-trace and without, at several lags; with its own settings where it is not Catch. ``png`` writes the
    curves."""
    sizes = CATCH if env == "Catch-bsuite" else OTHERS
    config = impala.Config(total_steps=32 * 20 * UPDATES, **sizes)
    results = {}
    for name, corrected in (("V-trace", True), ("no correction", False)):
        changed = dataclasses.replace(config, corrected=corrected)
        results[name] = lag_sweep(impala, envs.make(env), changed, LAGS, seeds)
        for lag, rows in zip(LAGS, results[name], strict=True):
            show(f"{env}, lag {lag}, {name}, return in each eighth", rows)
    for lag, *rows in zip(LAGS, *results.values(), strict=True):
        means = [f"{name} {x[:, -1].mean():.2f} ({x[:, -1].min():.2f})" for name, x in zip(results, rows, strict=True)]
        print(f"{env}, lag {lag}, last eighth, mean (worst seed): " + ", ".join(means))
    if png:
        frames = config.total_steps / 8 * np.arange(1, 9)
        curves = {f"{name}, lag {lag}": x for name, rows in results.items() for lag, x in zip(LAGS, rows, strict=True)}
        plots.curves(Path(png), frames, curves, title=env)
    corrected, plain = (x[LAGS.index(32), :, -1] for x in results.values())
    if env == "Catch-bsuite":
        claim("at lag 32 V-trace has at least 0.95 on every seed", corrected.min() >= 0.95)
        claim("at lag 32 no correction has at most 0.5 on average", plain.mean() <= 0.5)
    claim("at lag 32 V-trace is the better on average", corrected.mean() > plain.mean())


def asynchronous(seeds: int) -> None:
    """APPO on old experience, and PPO on the same."""
    env = envs.make("Catch-bsuite")
    sizes = {**CATCH, "total_steps": 32 * 20 * UPDATES, "lag": 32.0, "num_epochs": 1, "num_minibatches": 1}
    result = returns(appo, appo.Config(**sizes), env, seeds)
    show("APPO, lag 32, return in each eighth", result)
    claim("APPO: in the last eighth at least 0.95 on every seed", result[:, -1].min() >= 0.95)
    show("PPO, lag 32, return in each eighth", returns(ppo, ppo.Config(**sizes), env, seeds))


def reuse(seeds: int) -> None:
    """OpenAI Five's recipe on Catch: how often experience is used, and how old the parameters are that act."""
    env, lags = envs.make("Catch-bsuite"), (0, 1, 8, 32)
    smaller = {"num_envs": 32, "num_steps": 32, "num_minibatches": 4, "memory_size": 32, "hidden_sizes": (32, 32)}
    config = dataclasses.replace(ppo.preset("openai-five"), total_steps=32 * 32 * 500, max_lag=32, **smaller)
    for epochs in (1, 2, 4):
        result = lag_sweep(ppo, env, dataclasses.replace(config, num_epochs=epochs), lags, seeds)
        for lag, rows in zip(lags, result, strict=True):
            show(f"used {epochs} times, lag {lag}, return in each eighth", rows)
            if epochs == 1 and lag <= 8:
                claim(f"used once, lag {lag}: in the last eighth at least 0.9 on every seed", rows[:, -1].min() >= 0.9)


def first_frames(metrics: dict[str, np.ndarray], frames: int, level: float, window: int = 8) -> np.ndarray:
    """Frames after which the episodes of ``window`` iterations in a row, each of ``frames``, have a mean return of
    ``level``, ``[S]``; nan where they never have."""
    count = metrics["episodes"]
    total = np.where(count > 0, metrics["episode_return"], 0.0) * count
    total, count = (np.apply_along_axis(np.convolve, 1, x, np.ones(window), "valid") for x in (total, count))
    reached = total >= level * count
    return np.where(reached.any(axis=1), (reached.argmax(axis=1) + window) * frames, np.nan)


def uses(seeds: int) -> None:
    """PPO off policy on Catch, by how often each trajectory is used; beside it, as many gradient steps on policy.

    Prints the frames to a mean return of 0.9, and the mean return of all episodes of the training.
    """
    env = envs.make("Catch-bsuite")
    sizes = {"total_steps": 16 * 16 * 256, "num_envs": 16, "num_steps": 16, "num_epochs": 2, "learning_rate": 1e-3}
    mean = {}
    for title, change in {
        "used once": {},
        "used twice": {"max_uses": 2},
        "used 4 times": {"max_uses": 4},
        "used twice, minibatches of one size": {"max_uses": 2, "num_minibatches": 8},
        "used 4 times, minibatches of one size": {"max_uses": 4, "num_minibatches": 16},
        "used once, twice the epochs": {"num_epochs": 4},
        "used once, 4 times the epochs": {"num_epochs": 8},
    }.items():
        config = ppo.Config(**{**sizes, **change})
        metrics = population(lambda config: lambda key: ppo.make_train(config, env)(key).metrics, config, seeds)
        frames = first_frames(metrics, config.batch_size, 0.9)
        episodes = metrics["episodes"]
        whole = np.nansum(metrics["episode_return"] * episodes, axis=1) / episodes.sum(axis=1)
        show(f"{title}, frames to 0.9 and mean return", np.stack([frames, whole], axis=1))
        mean[title] = frames.mean()
        for name, x in (("frames to 0.9", frames), ("mean return", whole)):
            print(f"{title}, {name}: on average {x.mean():.3f}, deviation {x.std(ddof=1):.3f}", flush=True)
    for title in list(mean)[1:5]:
        claim(f"{title}: sooner than once, and on every seed", mean[title] < mean["used once"])


def greedy(config: ppo.Config, env: Env, seeds: int) -> np.ndarray:
    """Mean returns of 500 episodes after training, ``[S]``."""

    def make_train(config: ppo.Config):
        def train(key):
            key_train, key_play = jax.random.split(key)
            learner = ppo.make_learner(config, env)
            state = ppo.make_train(config, env)(key_train).state.learner
            return jnp.mean(evaluate(key_play, env, learner, learner.policy(state), 500).episode_return)

        return train

    return population(make_train, config, seeds)


KINDS = "none", "gru", "lstm", "lru", "gtrxl"


def memory(seeds: int, length: int = 10) -> None:
    """PPO on MemoryChain, whose answer depends on what was seen ``length`` steps before."""
    env = envs.make("MemoryChain-bsuite", memory_length=length)
    sizes = {"num_envs": 16, "num_steps": 32, "learning_rate": 2e-3, "hidden_sizes": (32, 32), "memory_size": 32}
    for kind in KINDS:
        result = greedy(
            ppo.Config(total_steps=16 * 32 * 400, **sizes, memory=kind, sequence_length=32, entropy_coef=0.02),
            env,
            seeds,
        )
        show(f"memory {kind}, greedy return", result[:, None])
        if kind == "none":
            claim("without a memory: within 0.15 of 0 on every seed", np.abs(result).max() <= 0.15)
        else:
            claim(f"{kind}: at least 0.95 on every seed", result.min() >= 0.95)


def velocity(seeds: int) -> None:
    """PPO on CartPole whose velocities are hidden."""
    env = envs.make("CartPole-v1", hide_velocity=1)
    sizes = {"num_envs": 16, "num_steps": 128, "learning_rate": 1e-3, "total_steps": 10**6}
    for kind in KINDS:
        result = greedy(ppo.Config(**sizes, memory=kind, sequence_length=32), env, seeds)
        show(f"memory {kind}, greedy return", result[:, None])
        if kind == "none":
            claim("without a memory: below 200 on every seed", result.max() < 200)
        else:
            claim(f"{kind}: at least 475 on average", result.mean() >= 475)


EXPERIMENTS = {
    "workers": (workers, 3),
    "vtrace": (vtrace, 4),
    "appo": (asynchronous, 4),
    "reuse": (reuse, 2),
    "uses": (uses, 8),
    "memory": (memory, 3),
    "velocity": (velocity, 3),
}
"""What runs, and on how many seeds."""


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS)


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
