"""Levels and agents that evolve together: the paired open-ended trailblazer by purerl's public functions.

    NPROC=1 python scripts/poet.py [--pairs P] [--rounds R] [--iterations I] [--seed SEED]

A round of Wang et al. 2019 (POET, arXiv 1901.01753, algorithm 2), on CartPole with drawn parameters: every agent learns
in its own level; levels are changed, and those that enter which the agent they come from finds neither too easy nor too
hard (the minimal criterion), in place of the oldest; then each level gets the agent that is best there. All agents
learn in one program, and meet all levels in another. Prints a line for each round, and at the end how the agents do in
random levels, beside agents that learned in random levels for as many frames.
"""

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scales

import purerl
from purerl import envs, evaluate, ppo, trees
from purerl.types import Array, Env, Key, PyTree

ENV = "CartPole-v1", {"randomise": "length:0.1:2.0,masspole:0.05:1.0,force_mag:3:12"}
CONFIG = {"num_envs": 8, "num_steps": 128, "learning_rate": 1e-3, "learning_rate_decay": 0.0}
LOW, HIGH = 40.0, 450.0
"""The minimal criterion: returns between which a changed level is neither too hard nor too easy."""
EPISODES = 16


def in_level(env: Env, level: PyTree) -> Env:
    """An environment whose episodes all begin in ``level``."""
    return env._replace(
        levels=lambda key, shape: jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, *x.shape)), level)
    )


def programs(config: Any, env: Env, iterations: int) -> tuple[Any, Any, Any]:
    """``begin(key [P])``, ``learn(levels [P], agents [P])`` and ``meet(keys [P], agents [P], levels [L]) -> [P, L]``,
    the returns of all agents in all levels."""
    plain = ppo.make_trainer(config, env)

    def learn(level: PyTree, agent: PyTree) -> PyTree:
        trainer = ppo.make_trainer(config, in_level(env, level))
        return jax.lax.fori_loop(0, iterations, lambda i, now: trainer.step(now)[0], agent)

    def meet(key: Key, agent: PyTree, level: PyTree) -> Array:
        policy = plain.learner.policy(agent.learner)
        return jnp.mean(evaluate(key, in_level(env, level), plain.learner, policy, EPISODES, 500).episode_return)

    everybody = jax.vmap(jax.vmap(meet, (None, None, 0)), (0, 0, None))
    return jax.jit(jax.vmap(plain.init)), jax.jit(jax.vmap(learn)), jax.jit(everybody)


def entered(levels: PyTree, children: PyTree, places: np.ndarray, which: np.ndarray) -> PyTree:
    """The levels, with those children at ``places``."""
    return jax.tree.map(lambda old, new: old.at[places].set(new[which]), levels, children)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"pairs": 8, "rounds": 12, "iterations": 20, "seed": 0}.items():
        result.add_argument(f"--{name}", type=int, default=default)
    scales.add(result, pairs=2, rounds=1, iterations=1)
    return result


def main() -> None:
    """Runs the search that the command line asks for."""
    args = parser().parse_args()
    env, pairs = envs.make(ENV[0], **ENV[1]), args.pairs
    config = ppo.Config(**CONFIG, total_steps=2**20)
    begin, learn, meet = programs(config, env, args.iterations)
    split = lambda key, number=pairs: jax.random.split(key, number)
    keys = iter(split(jax.random.key(args.seed), 8 * args.rounds + 8))
    change = jax.jit(jax.vmap(env.design.change))
    levels, age = env.levels(next(keys), (pairs,)), np.zeros(pairs, int)
    agents = begin(split(next(keys)))
    for number in range(args.rounds):
        agents = learn(levels, agents)
        children = change(split(next(keys)), levels)
        result = np.asarray(meet(split(next(keys)), agents, children))
        fit = np.flatnonzero((np.diag(result) >= LOW) & (np.diag(result) <= HIGH))
        places = np.argsort(-age, kind="stable")[: len(fit) // 2]
        levels = entered(levels, children, places, fit[: len(places)])
        age = age + 1
        age[places] = 0
        result = np.asarray(meet(split(next(keys)), agents, levels))
        own = np.arange(pairs)
        best = np.where(np.max(result, axis=0) > np.diag(result), np.argmax(result, axis=0), own)
        agents = trees.take(agents, best)  # a copy of the best agent of each level goes on there
        moved, returns = int(np.sum(best != own)), result[best, own]
        print(
            f"round {number + 1}: {len(places)} levels entered, {moved} agents moved, returns {returns.min():.0f} to "
            f"{returns.max():.0f}, lengths {levels[0]['length'].min():.2f} to {levels[0]['length'].max():.2f}",
            flush=True,
        )
    random = env.levels(jax.random.key(args.seed + 1), (64,))
    step = jax.vmap(ppo.make_trainer(config, env).step)
    randomised = jax.jit(partial(jax.lax.fori_loop, 0, args.rounds * args.iterations, lambda i, now: step(now)[0]))
    trained = randomised(begin(split(next(keys))))
    frames = args.rounds * args.iterations * config.batch_size
    for name, those in {"levels that evolved": agents, "random levels": trained}.items():
        scores = np.asarray(meet(split(next(keys)), those, random))
        print(f"{frames:,} frames in {name}: mean return in 64 random levels {scores.mean(axis=1).round(1).tolist()}")


if __name__ == "__main__":
    purerl.use_cpu_cores()
    main()
