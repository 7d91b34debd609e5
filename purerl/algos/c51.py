"""C51: categorical distributions of the return (Bellemare et al. 2017, arXiv 1707.06887, Algorithm 1)."""

from typing import Annotated, Any

import jax
import jax.numpy as jnp

from purerl import action_values, loops, losses, value_networks
from purerl import config as cfg
from purerl.types import Env, Learner, Trainer


@cfg.config
class Config(action_values.Config):
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    double: bool = False
    """Choose the next action by the online network instead of the target network."""
    num_atoms: Annotated[int, cfg.Range(2)] = 51
    """Returns that a distribution tells apart, evenly spaced."""
    v_min: float = -10.0
    """The smallest of them."""
    v_max: float = 10.0
    """The largest of them."""


def problems(config: Config, env: Env | None) -> list[str]:
    """Why ``config`` cannot train on ``env`` (None: not known), a line each. Actions must be Discrete."""
    return action_values.problems(config, env) + cfg.order_problems(config, "v_min", "v_max")


def make_network(config: Config, env: Env, *, noisy: bool = False) -> value_networks.ValueNetwork:
    """A torso and the logits of a distribution for each action."""
    return value_networks.q_network(
        env.observation_space,
        env.action_space.n,
        config.hidden_sizes,
        config.activation,
        dueling=config.dueling,
        num_atoms=config.num_atoms,
        noisy=noisy,
    )


def make_learner(config: Config, env: Env, *, network=None, optimiser=None) -> Learner:
    """C51 as a `Learner`. ``network`` is a `value_networks.ValueNetwork` whose output is ``[N, A, num_atoms]``."""
    support = config.v_min + (config.v_max - config.v_min) * jnp.linspace(0.0, 1.0, config.num_atoms)

    def loss(logits, target_logits, action, reward, discount, chooser, next_logits):
        return losses.categorical_q_learning(logits, action, reward, discount, chooser, next_logits, support)

    def mean(logits):
        return jnp.sum(jax.nn.softmax(logits) * jnp.broadcast_to(support, logits.shape), axis=-1)

    values = action_values.Values(mean=mean, loss=loss)
    return action_values.make_learner(config, env, network or make_network(config, env), values, optimiser)


def make_trainer(config: Config, env: Env, **parts: Any) -> Trainer:
    """One iteration of C51 as a `Trainer`; ``parts`` are those of `make_learner`."""
    return action_values.make_trainer(config, env, make_learner(config, env, **parts))


def make_train(config: Config, env: Env, **parts: Any):
    """The whole training, ``train(key) -> Result``; ``parts`` are those of `make_learner`."""
    return loops.train(make_trainer(config, env, **parts), config.num_iterations)
