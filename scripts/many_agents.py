"""Acceptance experiments of many agents, each against a threshold that a wrong build misses.

    python scripts/many_agents.py two-step|permutation|logit|landmarks|tic-tac-toe|smax [--seeds S]

Prints figures a line for each seed, and whether each claim holds; the exit status is 1 if one fails.
"""

import argparse
from typing import Any

import claims
import jax
import jax.numpy as jnp
import numpy as np
from claims import claim, population, show

from purerl import envs, ippo, iql, mappo, masac, ppo, qmix, vdn
from purerl.algos.masac import make_network as make_networks
from purerl.algos.qmix import make_network as make_team_network
from purerl.envs import agents
from purerl.learners.parts import many_agents
from purerl.loops.evaluation import evaluate, player, random_player, versus
from purerl.networks import mixers
from purerl.types import Situation

TWO_STEP = {
    "total_steps": 20_512,
    "num_envs": 4,
    "num_steps": 4,
    "num_updates": 8,
    "unroll": 3,
    "period": 2,
    "capacity": 10_000,
    "warmup_steps": 512,
    "batch_size": 32,
    "memory": "none",
    "last_action": False,
    "hidden_sizes": (64,),
    "epsilon_end": 1.0,
    "target_period": 100,
    "learning_rate_decay": 0.0,
    "gamma": 0.99,
}
"""About 10,000 episodes of uniformly random play, and as many updates."""
SMAX = {"num_envs": 32, "num_steps": 64, "learning_rate": 2e-3, "max_grad_norm": 0.25, "hidden_sizes": (128, 128)}
ON_POLICY = {"num_envs": 64, "num_steps": 16, "learning_rate": 5e-3}


def two_step(seeds: int) -> None:
    """IQL and VDN take the 7 of the two-step game, QMIX the 8; and the tables of values that VDN and QMIX learn."""
    env = envs.make("TwoStep-v0")
    for algo, best, mixer in (
        (iql, 7, mixers.apart()),
        (vdn, 7, mixers.summed()),
        (qmix, 8, mixers.monotonic(8, 64)),
    ):
        size = {"mixer_size": 8} if algo is qmix else {}
        config = algo.Config(**TWO_STEP, **size)
        joint = qmix.view(config, env)
        network, team = make_team_network(config, joint), many_agents.team(joint)

        def read(key, config, algo=algo, joint=joint, network=network, team=team, mixer=mixer):
            state = algo.make_train(config, env)(key).state.learner
            learner = algo.make_trainer(config, env).learner
            _, obs_first = jax.vmap(joint.reset)(jax.random.split(key, 1))
            env_state, _ = joint.reset(key)
            total, tables, obs = 0.0, [], obs_first
            for _ in range(2):
                action, _ = learner.exploit(learner.policy(state), Situation(obs, learner.init_carry(1)), key)
                env_state, step = joint.step(joint.noise(key, ()), env_state, action[0])
                total, obs = total + step.reward, jax.tree.map(lambda x: x[None], step.next_obs)
            env_state, _ = joint.reset(key)
            _, risky = joint.step(joint.noise(key, ()), env_state, jnp.array([1, 0]))
            for at in (jax.tree.map(lambda x: x[None], risky.next_obs), obs_first):
                q, _ = network.step(state.params["agents"], at, network.init_carry(1))
                pairs = jnp.stack(jnp.meshgrid(*q[0], indexing="ij"), axis=-1)[None]
                tables.append(mixer.mix(state.params["mixer"], pairs, jnp.broadcast_to(team.state(at), (1, 2, 2, 3))))
            return total, jnp.stack(tables)

        result, tables = population(lambda config, read=read: lambda key: read(key, config), config, seeds)
        show(f"{algo.name}, greedy return", result)
        claim(f"{algo.name}: {best} on every seed", np.all(result == best))
        if algo is not iql:
            show(f"{algo.name}, Q_tot after the risky choice", tables[:, 0])
            show(f"{algo.name}, Q_tot at the start", tables[:, 1])


def permutation(seeds: int) -> None:
    """Three agents who see the same must do different things: with and without numbers."""
    env = envs.make("Permutation-v0")
    for algo in (ippo, mappo):
        for ids, holds, requirement in (
            (True, lambda x: x >= 0.98, ">= 0.98"),
            (False, lambda x: x <= 0.25, "<= 0.25"),
        ):
            config = algo.Config(**ON_POLICY, total_steps=64 * 16 * 80, agent_ids=ids)
            train = lambda config, algo=algo: lambda key: algo.make_train(config, env)(key).metrics
            result = population(train, config, seeds)["episode_return"][:, -8:].mean(axis=1)
            title = f"{algo.name} {'with' if ids else 'without'} numbers, return"
            show(title, result)
            claim(f"{title} {requirement} on every seed", np.all(holds(result)))


EQUILIBRIA = {
    0.3: ((0.001, 0.78, 0.22), (0.0, 0.47, 0.53)),
    1.0: ((0.16, 0.39, 0.45), (0.14, 0.29, 0.57)),
}
"""Policies of both agents in the climbing game by temperature, reached from uniform ones."""


def logit_equilibrium(temperature: float) -> np.ndarray:
    """Each agent's softmax of its expected pay-off over the temperature, iterated from uniform policies ``[2, 3]``."""
    payoff = np.array([[11, -30, 0], [-30, 7, 6], [0, 0, 5]]) / 10
    policies = np.full((2, 3), 1 / 3)
    for _ in range(20_000):
        responses = []
        for values in (payoff @ policies[1], policies[0] @ payoff):
            powers = np.exp((values - values.max()) / temperature)
            responses.append(powers / powers.sum())
        policies += 0.01 * (np.array(responses) - policies)
    return policies


def logit(seeds: int) -> None:
    """MASAC of a fixed temperature in the climbing game, beside its logit equilibrium."""
    env = envs.make("MatrixGame-v0", game="climbing")
    for temperature, printed in EQUILIBRIA.items():
        config = masac.Config(
            total_steps=400_000,
            num_envs=64,
            num_steps=1,
            num_updates=1,
            capacity=4096,
            warmup_steps=1024,
            hidden_sizes=(32,),
            learning_rate=3e-3,
            actor_learning_rate=1e-3,
            learning_rate_decay=1.0,
            initial_temperature=temperature,
            learn_temperature=False,
            tau=1.0,
        )
        joint = masac.view(config, env)
        network = make_networks(config, joint)
        _, obs = joint.reset(jax.random.key(0))

        def policies(config, network=network, obs=obs):
            def train(key: Any) -> Any:
                state = masac.make_train(config, env)(key).state.learner
                return jax.nn.softmax(network.act(state.params["actor"], obs))

            return train

        result, exact = population(policies, config, seeds), logit_equilibrium(temperature)
        show(f"temperature {temperature}, policies", result)
        claim(
            f"the equilibrium printed and computed agree, temperature {temperature}",
            np.abs(exact - printed).max() < 0.01,
        )
        distance = 0.5 * np.abs(result - exact).sum(axis=-1).max(axis=-1)
        show(f"temperature {temperature}, total variation", distance)
        claim(f"temperature {temperature}: total variation at most 0.02 on every seed", distance.max() <= 0.02)


def landmarks(seeds: int) -> None:
    """MASAC: two agents on two landmarks, in either order, with ways seen instead of cells."""
    env = envs.make("Landmarks-v0", ways=1)
    config = masac.Config(
        total_steps=96_000,
        num_envs=16,
        num_steps=1,
        num_updates=1,
        capacity=100_000,
        warmup_steps=1024,
        store_next_obs=True,
        hidden_sizes=(64, 64),
        learning_rate=1e-3,
        actor_learning_rate=1e-3,
        initial_temperature=0.1,
        gamma=0.9,
    )
    metrics = population(lambda config: lambda key: masac.make_train(config, env)(key).metrics, config, seeds)
    result = np.nanmean(metrics["episode_return"][:, -400:], axis=1)
    show("return", result)
    claim("return at least 5 on two thirds of the seeds", np.mean(result >= 5) >= 2 / 3)


def tic_tac_toe(seeds: int) -> None:
    """PPO's self-play against uniformly random moves, with half of the games against past selves; and its collapse."""
    env = agents.own(envs.make("TicTacToe-v0"))
    for title, changes in (
        ("half against past selves", {"opponents": "past", "past_games": 128}),
        ("a fifth against past selves", {"opponents": "past", "past_games": 52}),
        ("prioritised, half", {"opponents": "prioritised", "past_games": 128}),
        ("latest, entropy 0.02", {"entropy_coef": 0.02}),
    ):
        settings = {
            "total_steps": 256 * 9 * 400,
            "num_envs": 256,
            "num_steps": 9,
            "num_minibatches": 4,
            "hidden_sizes": (128, 128),
            "learning_rate": 1e-3,
            "entropy_coef": 0.3,
            "gamma": 1.0,
        }
        config = ppo.Config(**{**settings, **changes})

        def play(config):
            def train(key: Any) -> Any:
                state = ppo.make_train(config, env)(key).state.learner
                learner = ppo.make_trainer(config, env).learner
                mine = player(learner, learner.policy(state))
                result = versus(jax.random.fold_in(key, 1), env, mine, random_player(env), 1024).episode_return
                return jnp.stack([jnp.mean(result > 0), jnp.mean(result == 0), jnp.mean(result < 0)])

            return train

        result = population(play, config, seeds)
        show(f"{title}: won, drawn, lost of 1024 games against random moves", result)
        if config.entropy_coef > 0.05:
            claim(f"{title}: at most 2 % lost on every seed", result[:, 2].max() <= 0.02)
            claim(f"{title}: at least 75 % won on every seed", result[:, 0].min() >= 0.75)


def smax(seeds: int, map: str = "3m", frames: int = 204_800) -> None:
    """IPPO and MAPPO on a map of JaxMARL's SMAX: returns while they learn, and battles that their greedy policies win.

    A battle is won if the return of an agent that survived is above 1: the harm done adds up to 1 if all enemies die,
    which earns another.
    """
    env = envs.make(f"jaxmarl/SMAX/{map}")
    for algo in (ippo, mappo):
        config = algo.Config(**SMAX, total_steps=frames)

        def play(config, algo=algo):
            def train(key: Any) -> Any:
                result = algo.make_train(config, env)(key)
                learner, view = algo.make_trainer(config, env).learner, algo.view(config, env)
                policy = learner.policy(result.state.learner)
                actual = evaluate(jax.random.fold_in(key, 1), view, learner, policy, 256).episode_return
                return result.metrics["episode_return"], jnp.mean(jnp.max(actual.reshape(-1, env.num_agents), 1) > 1)

            return train

        curves, won = population(play, config, seeds)
        eighths = np.array_split(curves, 8, axis=1)
        show(f"{algo.name}, return in each eighth", np.stack([np.nanmean(x, axis=1) for x in eighths], axis=1))
        show(f"{algo.name}, share of 256 battles won", won)
        claim(f"{algo.name}: wins at least half of its battles on every seed", won.min() >= 0.5)


EXPERIMENTS = {
    "two-step": (two_step, 10),
    "permutation": (permutation, 8),
    "logit": (logit, 3),
    "landmarks": (landmarks, 3),
    "tic-tac-toe": (tic_tac_toe, 2),
    "smax": (smax, 2),
}


def parser() -> argparse.ArgumentParser:
    return claims.command_line(__doc__, EXPERIMENTS, {"smax": "jaxmarl"})


if __name__ == "__main__":
    claims.main(parser(), EXPERIMENTS)
