"""What MuZero's model knows, and what its searches are worth.

    python scripts/world_model.py errors --run RUN             of the first agent of a run
    python scripts/world_model.py errors [--seeds S] [--env ENV] [--preset PRESET] [--frames N]
                                                               of trainings: errors of rewards and values over 5 steps
    python scripts/world_model.py control [--seeds S] [--env ENV] [--preset PRESET] [--frames N]
                                                               trainings with and without searches worth the name

On MinAtar: ``errors --seeds 1 --env Breakout-MinAtar --preset image --frames 500000``, and ``control`` with the same
words. Prints whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, few, population, show, sized

from purerl import envs, load, trees
from purerl.algos import muzero as module
from purerl.algos.muzero import muzero
from purerl.errors import ConfigError
from purerl.learners.parts import normalize
from purerl.loops.evaluation import evaluate, player
from purerl.loops.recording import record
from purerl.types import Dataset, Env, Key, PyTree

STEPS = 5
"""Over which the model is unrolled."""


class Errors(NamedTuple):
    """Mean sizes of errors after 0 to `STEPS` steps of the model ``[K + 1]``, and those of a constant.

    ``reward`` are those of rewards, from the first step on (nan before), ``value`` those of values beside the
    discounted returns that followed, and ``drift`` those beside the values of the true observations. ``plain_reward``
    and ``plain_value`` are those of the mean reward and the mean return.
    """

    reward: np.ndarray
    value: np.ndarray
    drift: np.ndarray
    plain_reward: float
    plain_value: float


class Windows(NamedTuple):
    """``W`` sequences of recorded play: observations and actions, rewards and returns at `STEPS` steps and the end.

    ``obs`` ``[K + 1, W, ...]``, ``action`` ``[K, W]``, ``reward`` ``[K, W]``, and ``value`` ``[K + 1, W]``, what
    followed. ``over`` ``[K + 1, W]``: the episode has ended, so that the observation is none and the value 0.
    """

    obs: PyTree
    action: Any
    reward: Any
    value: Any
    over: Any


def windows(data: Dataset, gamma: float) -> Windows:
    """All sequences of `STEPS` steps within episodes that terminated."""
    ends = np.flatnonzero(data.last)
    begins = np.concatenate([[0], ends[:-1] + 1])
    value = np.zeros(len(data.reward) + 1)
    starts: list[int] = []
    for begin, end in zip(begins, ends, strict=True):
        following = 0.0
        for t in range(end, begin - 1, -1):
            following = value[t] = data.reward[t] + gamma * following
        if data.terminated[end]:
            starts += range(begin, end + 2 - STEPS)
    rows = np.array(starts, int) + np.arange(STEPS + 1)[:, None]
    over = np.zeros(rows.shape, bool)
    over[-1] = data.last[rows[-2]] if rows.size else False
    rows = np.minimum(rows, len(data.reward) - 1)
    steps = rows[:-1]
    of = lambda rows: jax.tree.map(lambda x: x[rows], data.obs)
    return Windows(of(rows), data.action[steps], data.reward[steps], np.where(over, 0.0, value[rows]), over)


def errors_of(config: Any, env: Env, policy: PyTree, data: Dataset) -> Errors:
    """Compares what the model of ``policy`` says with what happened in recorded play."""
    seen = windows(data, float(config.gamma))
    if not seen.over.size:
        raise ConfigError(f"no episode of {STEPS} steps terminated")
    network = module.make_network(config, env)
    normalizer = normalize.running() if config.normalize_obs else normalize.identity()
    planner, outputs = module.make_planner(config, env, network, normalizer), module.make_outputs(config)
    numbers = module.joint_actions.joint_actions(env).number

    @jax.jit
    def said(policy: PyTree, seen: Windows) -> tuple[Any, Any, Any]:
        state = planner.represent(policy, trees.take(seen.obs, 0))
        _, value, reward = module.unroll(network, policy.params, state, numbers(seen.action))
        flat = planner.evaluate(policy, trees.merge(seen.obs, 2))[1]
        return outputs.number(value), outputs.number(reward), flat.reshape(seen.over.shape)

    value, reward, true = (np.asarray(x, float) for x in said(policy, jax.tree.map(jnp.asarray, seen)))
    apart = np.where(seen.over, np.nan, np.abs(value - true))
    return Errors(
        reward=np.concatenate([[np.nan], np.abs(reward[1:] - seen.reward).mean(axis=1)]),
        value=np.abs(value - seen.value).mean(axis=1),
        drift=np.nanmean(apart, axis=1) if not seen.over.all(axis=1).any() else np.full(STEPS + 1, np.nan),
        plain_reward=float(np.abs(seen.reward - seen.reward.mean()).mean()),
        plain_value=float(np.abs(seen.value - seen.value.mean()).mean()),
    )


def told(who: str, found: Errors) -> None:
    """Prints errors as rows, and whether the model beats a constant at each step."""
    row = lambda numbers: " ".join(f"{x:.4f}" for x in numbers)
    print(f"{who}, reward after 1 to {STEPS} steps: {row(found.reward[1:])}; a constant {found.plain_reward:.4f}")
    print(f"{who}, value after 0 to {STEPS} steps: {row(found.value)}; a constant {found.plain_value:.4f}")
    print(f"{who}, value beside that of the true observation: {row(found.drift)}", flush=True)
    if found.plain_reward:
        claim(f"{who}: rewards are foreseen better than by a constant", (found.reward[1:] < found.plain_reward).all())
    claim(f"{who}: values are foreseen better than by a constant", (found.value < found.plain_value).all())


def configured(env: str, preset: str, frames: int) -> tuple[Any, Env]:
    """The settings of a training of so many frames, and its environment."""
    config = muzero.preset(preset) if preset else muzero.Config()
    return dataclasses.replace(config, total_steps=frames), envs.make(env)


def trained(config: Any, env: Env, seeds: int) -> list[PyTree]:
    """Trains, and returns the policy of each seed."""
    learner = muzero.make_learner(config, env)

    def make_train(config: Any) -> Callable[[Key], PyTree]:
        return lambda key: learner.policy(muzero.make_train(config, env)(key).state.learner)

    return [trees.take(population(make_train, config, seeds), seed) for seed in range(seeds)]


def errors(
    seeds: int, run: str = "", env: str = "Catch-bsuite", preset: str = "", frames: int = 100_000, episodes: int = 100
) -> None:
    """Errors of the model's rewards and values over 5 steps, in episodes of the agent that searches."""
    if run:
        loaded = load(run, playing=True).only(0)
        if loaded.saved["algo"] != muzero.name or loaded.env.host or loaded.env.num_agents > 1:
            raise ConfigError(f"{run}: must be a run of muzero, of one agent on the device")
        config, made, policies = loaded.setup.config, loaded.env, [trees.take(loaded.policy, 0)]
    else:
        config, made = configured(env, preset, frames)
        config = sized(config)
        policies = trained(config, made, seeds)
    learner = muzero.make_learner(config, made)
    for seed, policy in enumerate(policies):
        data = record(jax.random.key(seed), made, player(learner, policy), few(episodes, 4))
        told(run or f"seed {seed}", errors_of(config, made, policy, data))


def control(seeds: int, env: str = "CartPole-v1", preset: str = "", frames: int = 100_000, episodes: int = 100) -> None:
    """Returns of agents trained with the settings' number of simulations and with one, played with 0, 1, 16 and 50.

    A search of one simulation looks at one action and no further, so that the policy learns from its value alone.
    """
    config, made = configured(env, preset, frames)
    means = {}
    for simulations in (config.simulations, 1):
        of = sized(dataclasses.replace(config, simulations=simulations))
        policies = trained(of, made, seeds)
        for played in sorted({0, 1, 16, 50, config.simulations}):
            learner = muzero.make_learner(dataclasses.replace(of, simulations=played), made)
            play = jax.jit(lambda key, policy, learner=learner: evaluate(key, made, learner, policy, few(episodes, 4)))
            returns = [play(jax.random.key(seed), policy).episode_return for seed, policy in enumerate(policies)]
            means[simulations, played] = np.mean(returns, axis=1)
            show(f"trained with {simulations} simulations, played with {played}: return", means[simulations, played])
    as_trained = [means[n, n].mean() for n in (config.simulations, 1)]
    claim(f"searches of {config.simulations} simulations learn more than those of one", as_trained[0] > as_trained[1])


EXPERIMENTS = {"errors": (errors, 3), "control": (control, 3)}


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS)


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
