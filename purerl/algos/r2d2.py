"""R2D2: recurrent replay distributed DQN, with its many actors in one program.

Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning", ICLR.

Sequences are replayed with the carry that the network had at their first step; the first steps only warm the carry up.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import draw, networks, replay
from purerl.algos.algorithm import Algorithm
from purerl.formulas import exploration, td_errors
from purerl.learners.families import action_values
from purerl.learners.families.action_values import ActionValueBehaviour, ActionValueState
from purerl.learners.parts import sequences, settings
from purerl.learners.parts.joint_actions import joint_actions
from purerl.networks import recurrent
from purerl.networks.given import given_or_own
from purerl.networks.value_networks import Streams
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Situation, Trainer, Updated


@cfg.config(
    num_envs=16,
    num_steps=16,
    num_updates=16,
    batch_size=32,
    target_period=60,
    dueling=True,
    prioritised=True,
    priority_exponent=0.9,
    importance_exponent=0.6,
    importance_exponent_end=0.6,
    epsilon_start=0.4,
    epsilon_end=0.4,
    epsilon_ladder=7.0,
    hidden_sizes=(64, 64),
)
class R2D2Config(settings.Recall, sequences.Sequences, action_values.ActionValueConfig):
    """Settings of R2D2."""

    priority_mix: Annotated[cfg.Fraction, settings.WITH_PRIORITIES] = 0.9
    """Weight of the largest TD error in a sequence's priority. The mean TD error has the remaining weight."""
    rescale_epsilon: cfg.Positive = 1e-3
    """Epsilon of the value rescaling h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x."""
    memory: Literal["gru", "lstm", "lru", "gtrxl"] = "lstm"
    """Recurrent layer between the torso and the head."""


def problems(config: R2D2Config, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete.
    """
    return action_values.problems(config, env) + sequences.problems(config, config.num_steps)


def make_network(config: R2D2Config, env: Env) -> recurrent.Recurrent:
    """Makes a torso, a recurrent cell, and streams to the action values."""
    torso = settings.make_torso(config, env, config.hidden_sizes[:-1])
    memory = settings.make_memory(config)
    activation = networks.ACTIVATIONS[config.activation]
    head = Streams(joint_actions(env).num, config.hidden_sizes[-1], activation, config.dueling)
    return recurrent.recurrent(torso, memory, head)


def make_learner(
    config: R2D2Config,
    env: Env,
    *,
    network: recurrent.Recurrent | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes R2D2's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `recurrent.Recurrent` whose output is ``[B, A]``; None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    actions = joint_actions(env)
    network = given_or_own(network, make_network(config, env), env.observation_space)
    if env.legal:
        network = recurrent.legal_only(network, actions.legal)
    learning = action_values.q_learning(config, env, optimiser)
    replayed = sequences.ReplayedSequences(config, network)

    def init(key: Key, obs: PyTree) -> ActionValueState:
        return learning.init_state(network.init(key, obs))

    def explore(behaviour: ActionValueBehaviour, here: Situation, noise: Array):
        q, following = network.step(behaviour.params, here.obs, here.carry)
        epsilon = learning.epsilons(behaviour, q.shape[0])
        number = exploration.epsilon_greedy(q, epsilon, noise, actions.legal(here.obs))
        return actions.action(number), following, here.carry

    def exploit(policy: PyTree, here: Situation, key: Key):
        q, carry = network.step(policy, here.obs, here.carry)
        return actions.action(jnp.argmax(q, axis=-1).astype(jnp.int32)), carry

    def best_value(chooser: Array, target_q: Array) -> Array:
        """Returns the target network's value, no longer rescaled, of the action that ``chooser`` values most."""
        q = jnp.take_along_axis(target_q, jnp.argmax(chooser, axis=-1)[..., None], axis=-1)[..., 0]
        return td_errors.unrescale(q, config.rescale_epsilon)

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        items, weight, target_q = batch
        q = replayed.unroll(params, items)  # of the steps [L, N, A], and after the cut [N, A]
        chooser = jax.lax.stop_gradient(q) if config.double else target_q
        value, after_cut = jax.tree.map(best_value, chooser, target_q)
        target, learned = replayed.targets(items, value, after_cut, config.gamma, config.n_step)
        target = td_errors.rescale(target, config.rescale_epsilon)
        action = items.action[config.burn_in :]
        taken = jnp.take_along_axis(q[0], actions.number(action)[..., None], axis=-1)[..., 0]
        total, priority, td_error = sequences.squared(config.priority_mix, target - taken, learned, weight)
        most = td_errors.unrescale(jnp.max(q[0], axis=-1), config.rescale_epsilon)
        return total, (priority, {"value": jnp.mean(most), "td_error": td_error})

    def update(state: ActionValueState, sample: Sample, key: Key) -> Updated:
        target_q = replayed.unroll(state.target_params, sample.items)
        batch = sample.items, sample.weight, target_q
        return learning.step(loss, state, batch)

    return Learner(
        init=init,
        init_carry=network.init_carry,
        noise=lambda key, shape: draw.uniform(key, (*shape, 2)),
        behaviour=lambda state: learning.behaviour(state.params, state.updates),
        explore=explore,
        policy=lambda state: state.params,
        exploit=exploit,
        update=update,
    )


def make_trainer(config: R2D2Config, env: Env, learner: Learner) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from sequences."""
    view = replay.sequences(config.sample_rows, config.period)
    return action_values.make_trainer(config, env, learner, view=view)


SEED_RL = {
    "total_steps": 10_000_000,
    "num_envs": 85,
    "num_steps": 80,
    "num_updates": 1,
    "batch_size": 64,
    "capacity": 400_000,
    "warmup_steps": 40_000,
    "burn_in": 40,
    "unroll": 81,
    "period": 80,
    "gamma": 0.997,
    "target_period": 100,
    "learning_rate": 1e-4,
    "learning_rate_decay": 0.0,
    "max_grad_norm": 1.0,
    "memory_size": 128,
    "hidden_sizes": (128, 128),
    "activation": "relu",
}
"""Settings of SEED RL for Atari (Espeholt et al. 2020, arXiv 1910.06591, section A.3.1;
github.com/google-research/seed_rl at 0e1e0ac, gcp/train_atari.sh, agents/r2d2/learner.py and atari/r2d2_main.py):
a batch of 64 sequences for every 85 new ones, which is its replay ratio of 0.75. Its loss is a sum over 80 steps
where ours is a mean, so its bound of 80 for gradients is 1 here. Scaled down: 85 environments instead of 610
actors; a replay of 5,000 sequences instead of 100,000, with the first update after 500 instead of 5,000; a target
of 100 updates instead of 2500; an LSTM and streams of 128 units instead of 512; and 1e7 steps instead of 1.25e10.
Its Adam has an epsilon of 1e-3. The torso depends on the task; the original has three convolutions."""


r2d2 = Algorithm(
    "r2d2",
    R2D2Config,
    problems,
    make_learner,
    make_trainer,
    presets={"seed-rl": SEED_RL},
)
