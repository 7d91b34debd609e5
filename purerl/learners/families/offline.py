"""Learning a policy from recorded play alone: what algorithms with critics, and those without, share.

Nothing is explored, so the actor acts as it is evaluated. Observations are standardised by the mean and the standard
deviation of the whole dataset, which are computed once and saved with the policy (Fujimoto & Gu 2021, arXiv 2106.06860,
section 5). An algorithm's file has its targets and its losses.
"""

import functools
from collections.abc import Callable
from typing import TypedDict

import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import spaces, trees
from purerl.learners.families import off_policy_gradients
from purerl.learners.families.off_policy_gradients import Acting, CriticAgent, CriticsConfig
from purerl.learners.parts import from_data, normalize, settings
from purerl.learners.parts.from_data import DataConfig
from purerl.networks.critics import ActorAndCritics
from purerl.replay.fixed import Held
from purerl.types import Array, Dataset, Env, Key, Learner, Metrics, PyTree, Sample, Trainer, Transition, Updated

UNCLIPPED = 1e6
"""A norm of gradients that is hardly reached: the papers clip none."""


@cfg.config(
    learning_rate=3e-4, actor_learning_rate=3e-4, hidden_sizes=(256, 256), max_grad_norm=UNCLIPPED, policy_delay=1
)
class OfflineConfig(DataConfig, CriticsConfig):
    """Settings of an actor with critics that learn from recorded play. The defaults are the sizes of the papers."""

    gamma: cfg.Fraction = 0.99
    """Discount factor per step."""
    tau: cfg.Fraction = 0.005
    """Fraction by which target networks move towards the online networks at each of their updates."""
    normalize_obs: bool = False
    """Standardise observations by the mean and standard deviation of the dataset, which are saved with the policy."""


class OfflineParts(TypedDict, total=False):
    """Parts that every algorithm takes: arguments of `make_agent`."""

    optimiser: optax.GradientTransformation | None


def problems(config: OfflineConfig, env: Env | None, kinds: tuple[type, ...] = (spaces.Box,)) -> list[str]:
    """Returns the reasons why ``config`` cannot train on play in ``env`` (None: not known), a line each.

    Args:
        config: Settings of the algorithm.
        env: The environment.
        kinds: Types of action spaces that the algorithm can act in. A Box must be bounded.
    """
    return settings.torso_problems(config, env) + from_data.problems(config, env, kinds)


def acting(exploit: Callable[[PyTree, PyTree], Array]) -> Acting:
    """Makes the acting of an actor without a distribution, which explores nothing: ``exploit(actor, obs)`` is all."""
    return Acting(
        noise=lambda key, shape: (),
        explore=lambda actor, updated, obs, carry, noise: (exploit(actor, obs), carry),
        exploit=exploit,
    )


def box_actor(env: Env, network: ActorAndCritics) -> tuple[Callable[[PyTree, PyTree], Array], Acting]:
    """Makes a deterministic actor of actions in the box of ``env``.

    Returns:
        ``act(actor, obs)``, the actions ``[..., D]`` in [-1, 1], 0 in dimensions that are constants; and how it acts.
    """
    to_box, _ = off_policy_gradients.units(env.action_space)
    free = off_policy_gradients.free_dimensions(env.action_space)

    def act(actor: PyTree, obs: PyTree) -> Array:
        action = jnp.tanh(network.act(actor, obs))
        return action if free is None else jnp.where(trees.like(free, action), action, 0.0)

    return act, acting(lambda actor, obs: to_box(act(actor, obs)))


def make_agent(
    config: OfflineConfig,
    acting: Acting,
    target_networks: tuple[str, ...],
    optimiser: optax.GradientTransformation | None = None,
) -> CriticAgent:
    """Makes the agent of an algorithm with critics, whose loss is the squared TD error.

    Args:
        config: Settings of the algorithm.
        acting: How it acts.
        target_networks: Names of the parameters that have slowly moving copies.
        optimiser: As for `off_policy_gradients.make_agent`.
    """
    squared: Callable[[Array, OfflineConfig], Array] = lambda error, config: jnp.square(error)
    agent = off_policy_gradients.make_agent(config, acting, target_networks, config.tau, squared, optimiser)
    return agent._replace(normalizer=normalize.held(agent.normalizer))


def make_learner(
    config: OfflineConfig,
    agent: CriticAgent,
    init_params: Callable[[Key, PyTree], dict[str, PyTree]],
    update: Callable[[PyTree, Sample, Key], Updated],
    kept: tuple[str, ...] = ("critic",),
) -> Learner:
    """Makes the `Learner` of an agent; the last three arguments are those of `CriticAgent.learner`."""
    return agent.learner(init_params, update, kept=kept)._replace(observe=standardising(config.normalize_obs))


def standardising(normalize_obs: bool) -> Callable[[PyTree, Transition, Key], tuple[PyTree, Metrics]]:
    """Makes `Learner.observe`, which takes the moments of all recorded observations into ``state.obs_moments``.

    ``normalize_obs``: whether observations are standardised; if not, the state stays as it is.
    """
    normalizer = normalize.running() if normalize_obs else normalize.identity()

    def observe(state: PyTree, play: Transition, key: Key) -> tuple[PyTree, Metrics]:
        return state._replace(obs_moments=normalizer.update(state.obs_moments, play.obs)), {}

    return observe


def make_trainer(config: OfflineConfig, env: Env, learner: Learner, data: Dataset | Held) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from ``data``."""
    begin = functools.partial(off_policy_gradients.at_beginning, config)
    return from_data.make_trainer(config, env, learner, data, config.gamma, begin)
