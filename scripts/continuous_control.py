"""Acceptance experiments of DDPG, TD3 and SAC, each against a threshold that a wrong build misses.

    python scripts/continuous_control.py pendulum|broken|regulator|soft|entropy [--seeds S]

Prints figures a line for each seed, and whether each claim holds; the exit status is 1 if one fails.
"""

import math
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, main, population, show
from scipy.optimize import brentq

from purerl import ddpg, envs, sac, sac_discrete, td3
from purerl.algos.sac import make_network
from purerl.algos.sac_discrete import make_network as make_table
from purerl.envs.episodic import box, episodic
from purerl.formulas import soft
from purerl.learners.families import off_policy_gradients
from purerl.spaces import Box, Discrete
from purerl.types import Env, Situation

SMALL = {
    "total_steps": 20_000,
    "num_envs": 4,
    "num_steps": 1,
    "num_updates": 4,
    "batch_size": 64,
    "hidden_sizes": (64, 64),
}
"""Of 20,000 steps, with an update a step."""
RATES = {"learning_rate": 1e-3, "actor_learning_rate": 1e-3}


def tenth_of_the_reward(env: Env) -> Env:
    """``env``, paying a tenth."""

    def step(noise, state, action):
        state, step = env.step(noise, state, action)
        return state, step._replace(reward=0.1 * step.reward)

    return env._replace(step=step)


def late_returns(algo: Any, config: Any, env: Env, seeds: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Mean return of the episodes that ended after the first two fifths of a training ``[S]``, and its metrics, means
    over the last tenth ``[S]``."""
    metrics = population(lambda config: lambda key: algo.make_train(config, env)(key).metrics, config, seeds)
    late = metrics["episode_return"][:, config.num_iterations * 2 // 5 :]
    return np.nanmean(late, axis=1), {
        name: np.mean(x[:, -(config.num_iterations // 10) :], axis=1) for name, x in metrics.items()
    }


def pendulum(seeds: int) -> None:
    """DDPG, TD3 and SAC in 20,000 steps of Pendulum with a tenth of the reward."""
    env = tenth_of_the_reward(envs.make("Pendulum-v1"))
    for title, algo, config, least in (
        ("DDPG", ddpg, ddpg.Config(**SMALL, **RATES), -250),
        ("TD3", td3, td3.Config(**SMALL, **RATES), -250),
        ("SAC", sac, sac.Config(**SMALL, **RATES), -200),
    ):
        result, last = late_returns(algo, config, env, seeds)
        show(f"{title}, return from step 8,000 on", 10 * result)
        claim(f"{title}: at least {least} on every seed", (10 * result).min() >= least)
    show("SAC, temperature at the end", last["temperature"])
    claim("SAC: temperature below 0.05 on every seed", last["temperature"].max() < 0.05)


def uncorrected(params, noise):
    """`soft.squashed_sample` with the density before the squashing."""
    mean, log_std = jnp.split(params, 2, axis=-1)
    log_std = jnp.clip(log_std, *soft.LOG_STD_RANGE)
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
    return jnp.tanh(mean + jnp.exp(log_std) * noise), jnp.sum(log_normal, axis=-1)


def greatest(q, log_prob, temperature):
    """`soft.soft_value` with the largest of the critics."""
    return jnp.max(q, axis=-1) - temperature * log_prob


def against_the_target(log_temperature, entropy, target_entropy):
    """`soft.temperature_loss` with the wrong sign."""
    return -jnp.exp(log_temperature) * (jax.lax.stop_gradient(entropy) - target_entropy)


def overestimate(config: Any, env: Env, seeds: int) -> np.ndarray:
    """How much more SAC's critics promise in the first states of 64 episodes than they then bring, means ``[S]``.

    Both are discounted. What lies beyond the 200 steps of an episode, nothing where the pendulum stands, is left out.
    """
    learner = sac.make_learner(config, env)
    judge = make_network(config, env).judge
    to_unit = off_policy_gradients.units(env.action_space)[1]

    def excess(state: Any, key: Any) -> Any:
        key_start, key_noise = jax.random.split(key)
        start, obs = env.reset(key_start)

        def move(carry, noise):
            env_state, obs = carry
            action = learner.exploit(learner.policy(state), Situation(obs[None], ()), key)[0][0]
            env_state, step = env.step(noise, env_state, action)
            return (env_state, step.next_obs), (judge(state.params["critic"], obs, to_unit(action)).mean(), step.reward)

        _, (promised, reward) = jax.lax.scan(move, (start, obs), env.noise(key_noise, (200,)))
        return promised[0] - jnp.sum(reward * config.gamma ** jnp.arange(200))

    def make_train(config):
        def train(key):
            state = sac.make_train(config, env)(key).state.learner
            return jnp.mean(jax.vmap(excess, (None, 0))(state, jax.random.split(key, 64)))

        return train

    return population(make_train, config, seeds)


def broken(seeds: int) -> None:
    """SAC with one mistake at a time, as in the experiment ``pendulum``.

    What the largest of the critics does wrong is seen in what they promise rather than in the return.
    """
    env = tenth_of_the_reward(envs.make("Pendulum-v1"))
    for title, name, wrong in (
        ("as it should be", "soft_value", soft.soft_value),
        ("without the correction for tanh", "squashed_sample", uncorrected),
        ("temperature the wrong way", "temperature_loss", against_the_target),
    ):
        with mock.patch.object(soft, name, wrong):
            result, last = late_returns(sac, sac.Config(**SMALL, **RATES), env, seeds)
        show(f"SAC {title}, return from step 8,000 on", 10 * result)
        show(f"SAC {title}, entropy and value at the end", np.stack([last["entropy"], last["value"]], axis=1))
        if wrong is not soft.soft_value:
            claim(f"SAC {title}: below -200 on some seed", np.isnan(result).any() or (10 * result).min() < -200)
    config = sac.Config(**SMALL, **RATES)
    right = overestimate(config, env, seeds)
    with mock.patch.object(soft, "soft_value", greatest):
        wrong = overestimate(config, env, seeds)
    for title, excess in (("as it should be", right), ("largest of the critics", wrong)):
        show(f"SAC {title}, promised more than brought", excess)
    claim("SAC as it should be: promises at most 2.5 more than it brings on every seed", right.max() <= 2.5)
    claim("SAC largest of the critics: promises over 2.5 more than it brings on every seed", wrong.min() > 2.5)


def regulator(seeds: int) -> None:
    """DDPG on a linear system with quadratic costs, beside the solution of the Riccati equation."""
    a, b, cost, gamma = 0.95, 0.5, 0.1, 0.9
    worth = 1.0
    for _ in range(1000):
        gain = gamma * a * b * worth / (cost + gamma * b * b * worth)
        worth = 1 + cost * gain**2 + gamma * worth * (a - b * gain) ** 2

    def dynamics(x, action):
        return a * x + b * action, -(x[0] ** 2 + cost * action[0] ** 2), False

    env = episodic(
        "regulator",
        noise=lambda key, shape: jax.random.uniform(key, (*shape, 1), minval=-0.6, maxval=0.6),
        initial=lambda noise: noise,
        dynamics=dynamics,
        observe=lambda x: x,
        time_limit=10,
        observation_space=box((-5.0,), (5.0,)),
        action_space=Box(-1.0, 1.0, (1,), jnp.float32),
    )
    config = ddpg.Config(**SMALL, **RATES, learning_rate_decay=1.0, gamma=gamma, tau=0.02)
    places = jnp.linspace(-0.5, 0.5, 11)[:, None]

    def make_train(config):
        def train(key):
            learner = ddpg.make_learner(config, env)
            policy = learner.policy(ddpg.make_train(config, env)(key).state.learner)
            return learner.exploit(policy, Situation(places, ()), key)[0][:, 0]

        return train

    result = population(make_train, config, seeds)
    error = np.abs(result + gain * np.asarray(places)[:, 0])
    show(f"DDPG, actions at -0.5 to 0.5 (optimum {-gain:.3f} x)", result)
    claim("DDPG: within 0.05 of the optimum on average on every seed", error.mean(axis=1).max() <= 0.05)


def soft_optimum(seeds: int) -> None:
    """Discrete SAC with a table in place of networks, on a small process, beside soft value iteration."""
    rng, num_states, num_actions, gamma, temperature = np.random.default_rng(0), 5, 3, 0.9, 0.5
    following, reward = (
        rng.integers(0, num_states, (num_states, num_actions)),
        rng.normal(size=(num_states, num_actions)),
    )
    q = np.zeros((num_states, num_actions))
    for _ in range(1000):
        soft_value = temperature * np.log(np.sum(np.exp(q / temperature), axis=1))
        q = reward + gamma * soft_value[following]
    best = np.exp(q / temperature) / np.sum(np.exp(q / temperature), axis=1, keepdims=True)

    def dynamics(state, action):
        return jnp.asarray(following)[state, action], jnp.asarray(reward, jnp.float32)[state, action], False

    env = episodic(
        "process",
        noise=lambda key, shape: jax.random.randint(key, shape, 0, num_states),
        initial=lambda noise: noise,
        dynamics=dynamics,
        observe=lambda state: jax.nn.one_hot(state, num_states),
        time_limit=50,
        observation_space=box([0.0] * num_states, [1.0] * num_states),
        action_space=Discrete(num_actions),
    )
    config = sac_discrete.Config(
        **SMALL | {"total_steps": 60_000, "batch_size": 256, "hidden_sizes": (), "learning_rate_decay": 1.0},
        learning_rate=3e-2,
        actor_learning_rate=1e-2,
        tau=0.05,
        gamma=gamma,
        num_critics=1,
        learn_temperature=False,
        initial_temperature=temperature,
    )

    def make_train(config):
        def train(key):
            params = sac_discrete.make_train(config, env)(key).state.learner.params
            network, obs = make_table(config, env), jnp.eye(num_states)
            return jax.nn.softmax(network.act(params["actor"], obs)), network.judge(params["critic"], obs)[:, 0]

        return train

    policy, values = population(make_train, config, seeds)
    policy_error, value_error = (np.abs(x - y).max(axis=(1, 2)) for x, y in ((policy, best), (values, q)))
    show("Discrete SAC, largest error of a probability", policy_error)
    show("Discrete SAC, largest error of a value", value_error)
    claim("Discrete SAC: probabilities within 1e-3 on every seed", policy_error.max() <= 1e-3)


def entropy(seeds: int) -> None:
    """Episodes of one step: the entropy ends at its target, and the temperature is what the target makes it.

    The best soft policy is ``exp(reward / temperature)``: of the reward ``-(a - 0.5)^2`` a Gaussian of variance
    ``temperature / 2``; of the rewards -1 and 1 probabilities whose log-ratio is ``2 / temperature``.
    """
    half = 0.5 * math.log(2)
    rare = brentq(lambda p: -p * math.log(p) - (1 - p) * math.log(1 - p) - half, 1e-6, 0.5)
    for title, algo, config, probe, target, temperature in (
        ("SAC", sac, sac.Config(target_entropy=-1.5, **SMALL, **RATES), "target-action", -1.5, math.exp(-4) / math.pi),
        (
            "Discrete SAC",
            sac_discrete,
            sac_discrete.Config(**SMALL, **RATES),
            "action-dependent-reward",
            half,
            2 / math.log(1 / rare - 1),
        ),
    ):
        last = late_returns(algo, config, envs.make(f"probe/{probe}"), seeds)[1]
        for name, aim in (("entropy", target), ("temperature", temperature)):
            show(f"{title}, {name} at the end ({aim:.4f})", last[name])
            claim(f"{title}: {name} within 5 % of {aim:.4f} on every seed", np.abs(last[name] / aim - 1).max() <= 0.05)


if __name__ == "__main__":
    main(
        __doc__,
        {
            "pendulum": (pendulum, 3),
            "broken": (broken, 3),
            "regulator": (regulator, 3),
            "soft": (soft_optimum, 3),
            "entropy": (entropy, 3),
        },
    )
