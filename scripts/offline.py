"""Acceptance experiments of learning from recorded play alone, on three datasets of Pendulum made by our own SAC.

    python scripts/offline.py pendulum|conservative|penalised|online [--seeds S]

- *replay*: the 20,000 steps that SAC learned from while it learned.
- *mix*: 90 episodes of random play and 10 of what SAC had learned in the end.
- *medium*: 100 episodes of SAC, whose actions are disturbed by noise of 0.3, from when they return -500 or more.

Rewards are divided by 10 to learn from; returns that are told are Pendulum's own. Prints figures a line for each seed,
and whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
import dataclasses
import functools
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, few, population, show

from purerl import bc, cql, envs, evaluate, implicit_q, rebrac, record, sac, td3, td3_bc
from purerl.algos.algorithm import Algorithm
from purerl.loops.evaluation import Player, player, random_player
from purerl.replay.fixed import joined
from purerl.types import Array, Dataset, Key, Learner, PyTree, Situation

ENV = envs.make("Pendulum-v1")
STEPS = 20_000
PLAYED = sac.Config(
    total_steps=STEPS,
    num_envs=1,
    num_steps=4,
    num_updates=4,
    capacity=STEPS,
    warmup_steps=1_000,
    batch_size=128,
    hidden_sizes=(128, 128),
    store_next_obs=True,
)
MEDIUM = -500.0
"""The mean return from which the player of *medium* learns no more. Iterations would say less: how fast SAC learns
depends on rounding, and so on the number of cores."""
NOISE = 0.3
"""Standard deviation of its noise, for actions scaled to [-1, 1]."""
SCALE = 0.1
UPDATES = 10_000
EVERY = 500
"""Steps in the environment between two evaluations of what goes on there."""
POINTS = 10
BEFORE = 5_000
"""Updates before that."""
FALL = 1.1
"""How much below the first evaluation another may be: 100 episodes have a standard error of about 5 %."""


def disturbed(learner: Learner, policy: PyTree) -> Player:
    """A player by the most likely actions, to which noise is added."""

    def act(here: Situation, key: Key) -> tuple[Array, PyTree]:
        key_act, key_noise = jax.random.split(key)
        action, carry = learner.exploit(policy, here, key_act)
        noise = NOISE * ENV.action_space.high * jax.random.normal(key_noise, action.shape)
        return jnp.clip(action + noise, ENV.action_space.low, ENV.action_space.high), carry

    return Player(act, learner.init_carry)


@functools.cache
def datasets() -> dict[str, Dataset]:
    """The datasets by name; a line tells the mean return of each."""
    config: Any = claims.sized(PLAYED)
    trainer = sac.make_trainer(config, ENV)
    advance = jax.jit(lambda state, count: jax.lax.fori_loop(0, count, lambda _, s: trainer.step(s)[0], state))
    state = jax.jit(trainer.init)(jax.random.key(0))
    late = advance(state, config.num_iterations)
    policy = lambda state: trainer.learner.policy(state.learner)
    keys = jax.random.split(jax.random.key(1), 3)
    noisy = lambda state: record(keys[2], ENV, disturbed(trainer.learner, policy(state)), few(100, 4))
    state = advance(state, few(500, 1))
    medium = noisy(state)
    while mean_return(medium) < MEDIUM and claims.scale != "tiny":
        state = advance(state, 20)
        medium = noisy(state)
    most = record(keys[0], ENV, random_player(ENV), few(90, 9))
    best = record(keys[1], ENV, player(trainer.learner, policy(late)), few(10, 1))
    made = {
        "replay": of_ring(late.replay),
        "mix": joined([most, best]),
        "medium": medium,
    }
    for name, data in made.items():
        print(f"{name}: {len(data.reward)} steps, mean return {mean_return(data):.0f}", flush=True)
    return made


def of_ring(ring: Any) -> Dataset:
    """What a ring of one environment holds, as episodes; the last one is cut off where the ring ends."""
    filled = int(ring.filled)
    items = jax.tree.map(lambda x: np.asarray(x)[:filled, 0], ring.items)
    truncated = items.truncated.copy()
    truncated[-1] |= not items.terminated[-1]
    last = items.terminated | truncated
    return Dataset(items.obs, items.action, items.reward, items.terminated, truncated, items.next_obs[last])


def mean_return(data: Dataset) -> float:
    """The mean return of the episodes of a dataset."""
    return float(np.sum(data.reward) / np.sum(data.last))


def scaled(data: Dataset) -> Dataset:
    """The dataset as it is learned from."""
    return data._replace(reward=(SCALE * data.reward).astype(np.float32))


def played(learner: Learner, policy: PyTree, key: Key) -> Array:
    """The mean return of 100 episodes by a policy."""
    return jnp.mean(evaluate(key, ENV, learner, policy, few(100, 2)).episode_return)


def returns(algo: Algorithm, config: Any, data: Dataset, seeds: int) -> np.ndarray:
    """What is `played` by the policies that are learned from a dataset ``[S]``."""

    def make_train(config: Any) -> Any:
        train, learner = algo.make_train(config, ENV, data=scaled(data)), algo.make_learner(config, ENV)

        def run(key: Key) -> Array:
            key_train, key_play = jax.random.split(key)
            policy = learner.policy(train(key_train).state.learner)
            return played(learner, policy, key_play)

        return run

    return np.asarray(population(make_train, dataclasses.replace(config, total_steps=UPDATES), seeds))


def told(title: str, algo: Algorithm, config: Any, seeds: int) -> dict[str, np.ndarray]:
    """`returns` by dataset, which are printed."""
    result = {}
    for name, data in datasets().items():
        result[name] = returns(algo, config, data, seeds)
        show(f"{title} on {name}", result[name])
    return result


def pendulum(seeds: int) -> None:
    """Behaviour cloning, TD3+BC, implicit Q-learning, and TD3 without cloning."""
    cloned = told("bc", bc, bc.Config(), seeds)["mix"]
    mean = mean_return(datasets()["mix"])
    claim(f"bc on mix: within 15 % of {mean:.0f}", np.all(abs(cloned - mean) <= 0.15 * abs(mean)))
    told("td3-bc", td3_bc, td3_bc.Config(), seeds)
    implicit = told("implicit-q", implicit_q, implicit_q.Config(), seeds)
    claim("implicit-q on replay: at least -160 on every seed", implicit["replay"].min() >= -160)
    claim("implicit-q on mix: at least -230 on every seed", implicit["mix"].min() >= -230)
    alone = told("td3-bc without cloning", td3_bc, td3_bc.Config(cloning=0.0), seeds)
    claim("td3-bc without cloning on medium: below -1000 on every seed", alone["medium"].max() < -1000)


CONSERVATIVE = cql.Config(conservatism=0.1, action_samples=4, hidden_sizes=(128, 128))
"""CQL as it was tuned on *replay*, where 0.5 learned less; small, for its updates take long."""


def conservative(seeds: int, conservatism: float = CONSERVATIVE.conservatism) -> None:
    """Conservative Q-learning."""
    config = dataclasses.replace(CONSERVATIVE, conservatism=conservatism)
    told(f"cql, conservatism {conservatism:g}", cql, config, seeds)


def penalised(seeds: int, cloning: float = 0.01, critic: float = 0.01) -> None:
    """ReBRAC, of sizes like those of the others."""
    sizes = {"batch_size": 256, "learning_rate": 3e-4, "actor_learning_rate": 3e-4, "hidden_sizes": (256, 256)}
    config = rebrac.Config(cloning=cloning, critic_cloning=critic, **sizes)
    told(f"rebrac, {cloning:g} and {critic:g}", rebrac, config, seeds)


Setting = tuple[Algorithm, Any]  # and its config


def went_on(before: Setting, after: Setting, data: Dataset, seeds: int) -> np.ndarray:
    """What is `played` by what was learned from a dataset, and each `EVERY` steps of going on in the environment with
    the dataset as demonstrations: with its critics, and with new ones ``[S, 2, 1 + POINTS]``."""
    play = scaled(data)
    world = ENV._replace(step=of_scaled_reward)
    learner = before[0].make_learner(before[1], ENV)
    each = few(EVERY, after[1].num_steps) // after[1].num_steps

    def curve(policy: PyTree, critics: dict[str, PyTree], keys: Key) -> Array:
        online = after[0].warm_start(policy, critics).make_trainer(after[1], world, demos=play)

        def point(state: Any, key: Key) -> tuple[Any, Array]:
            state = jax.lax.fori_loop(0, each, lambda _, now: online.step(now)[0], state)
            return state, played(online.learner, online.learner.policy(state.learner), key)

        later = jax.lax.scan(point, online.init(keys[0]), keys[2:])[1]
        return jnp.append(played(learner, policy, keys[1]), later)

    def make_train(config: Any) -> Any:
        train = before[0].make_train(config, ENV, data=play)

        def run(key: Key) -> Array:
            keys = jax.random.split(key, 3 + few(POINTS, 1))
            learned = train(keys[0]).state.learner
            policy = learner.policy(learned)
            return jnp.stack([curve(policy, critics, keys[1:]) for critics in (learner.critics(learned), {})])

        return run

    return np.asarray(population(make_train, dataclasses.replace(before[1], total_steps=BEFORE), seeds))


def of_scaled_reward(*given: Any) -> Any:
    """A step whose reward is divided by 10."""
    state, step = ENV.step(*given)
    return state, step._replace(reward=SCALE * step.reward)


def online(seeds: int, conservatism: float = 2.0, warmup: int = 128, rate: float = 3e-4) -> None:
    """On in the environment from what was learned from *medium*, sac from cql and td3 from TD3+BC; also with new
    critics. The actor has the learning rate ``rate`` there."""
    steps = {"num_envs": 1, "num_steps": 4, "num_updates": 4, "warmup_steps": warmup, "batch_size": 256}
    rates = {"learning_rate": 3e-4, "actor_learning_rate": rate, "demo_ratio": 0.5}
    total = {"total_steps": EVERY * POINTS + warmup, "capacity": EVERY * POINTS + warmup}
    of_cql = dataclasses.replace(CONSERVATIVE, conservatism=conservatism)
    for before, after in (((cql, of_cql), (sac, sac.Config)), ((td3_bc, td3_bc.Config()), (td3, td3.Config))):
        same = {name: getattr(before[1], name) for name in ("hidden_sizes", "normalize_obs")}
        made = after[1](**steps, **rates, **total, **same)
        name = f"{after[0].name} from {before[0].name}"
        curves = went_on(before, (after[0], made), datasets()["medium"], seeds)
        show(name, curves[:, 0])
        show(f"{name}, with new critics", curves[:, 1])
        least = curves[:, 0].min(axis=1) >= curves[:, 0, 0] * FALL
        claim(f"{name}: never below {FALL:g} times the return it began with, on every seed", np.all(least))


EXPERIMENTS = {
    "pendulum": (pendulum, 3),
    "conservative": (conservative, 3),
    "penalised": (penalised, 3),
    "online": (online, 3),
}
"""What runs, and on how many seeds."""


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS)


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
