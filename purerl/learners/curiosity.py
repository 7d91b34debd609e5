"""A bonus for what is new, added to the rewards of any learner on policy."""

from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import trees
from purerl.learners import normalize, novelty, settings
from purerl.learners.novelty import Distillation, Distilled
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Transition

WITH_BONUS = cfg.Needs("an intrinsic reward", lambda config: config.intrinsic != "none")


@cfg.config
class Settings:
    """Settings of the bonus."""

    intrinsic: Literal["none", "rnd"] = "none"
    """Bonus for what is new, added to every reward. rnd: random network distillation."""
    intrinsic_coef: Annotated[cfg.NonNegative, WITH_BONUS] = 1.0
    """Weight of the bonus, which is divided by the running standard deviation of its discounted sum."""
    intrinsic_gamma: Annotated[cfg.Fraction, WITH_BONUS] = 0.99
    """Discount factor of that sum, which goes on beyond the end of an episode. With 1 the bonus fades."""
    intrinsic_learning_rate: Annotated[cfg.Positive, WITH_BONUS] = 3e-3
    """Adam's step size of the network that learns what is no longer new."""
    intrinsic_size: Annotated[cfg.Count, WITH_BONUS] = 32
    """Outputs of that network and of its random target."""


class State(NamedTuple):
    """``scale`` is that of the bonus."""

    learner: Any
    distilled: Distilled
    scale: PyTree

    @property
    def params(self) -> PyTree:
        """Those of the learner."""
        return self.learner.params


def problems(config: Any) -> list[str]:
    """Why there can be no bonus, a line each."""
    if config.intrinsic == "none" or config.opponents == "latest":
        return []
    return [
        f"intrinsic = {config.intrinsic!r}: must be 'none' with opponents = {config.opponents!r}, where rewards say "
        "who won a game"
    ]


def make_distillation(config: Any, env: Env) -> Distillation | None:
    """What ``config`` asks for."""
    if config.intrinsic == "none":
        return None
    torso = lambda sizes: settings.make_torso(config, env, sizes)
    return novelty.distillation(torso, config.intrinsic_size, config.intrinsic_learning_rate)


def curious(config: Any, distillation: Distillation, learner: Learner) -> Learner:
    """``learner``, on policy, to whose rewards is added what the step's next observation is worth, with a `State`
    around its own.

    Burda et al. 2018 (arXiv 1810.12894), section 2: errors of distillation on normalised observations, divided by the
    running deviation of their discounted sum, which does not end with an episode. Theirs has a second critic for the
    bonus, whose returns do not end with an episode either; here one critic estimates the sum of both, and what comes
    after a termination counts for nothing. Theirs also learns from a part of each minibatch; here one gradient step an
    iteration takes in all of it.
    """
    scaler = normalize.running_reward()

    def init(key: Key, obs: PyTree) -> State:
        key_learner, key_bonus = jax.random.split(key)
        scale = scaler.init(trees.length(obs))
        return State(learner.init(key_learner, obs), distillation.init(key_bonus, obs), scale)

    def explore(state: State, obs: PyTree, carry: PyTree, noise: PyTree) -> tuple[Array, PyTree, PyTree]:
        return learner.explore(state.learner, obs, carry, noise)

    def update(state: State, trajectory: Transition, key: Key) -> tuple[State, Metrics]:
        seen = trees.merge(trajectory.next_obs, 2)
        error = distillation.error(state.distilled.judge, seen).reshape(trajectory.reward.shape)
        endless = jnp.zeros_like(trajectory.last)
        scale, bonus = scaler.scale(state.scale, error, endless, config.intrinsic_gamma)
        rewarded = trajectory._replace(reward=trajectory.reward + config.intrinsic_coef * bonus)
        learned, metrics = learner.update(state.learner, rewarded, key)
        distilled, more = distillation.update(state.distilled, seen, jnp.ones(error.size))
        more["intrinsic_reward"] = jnp.mean(bonus)
        return State(learned, distilled, scale), {**metrics, **more}

    return learner._replace(
        init=init, explore=explore, policy=lambda state: learner.policy(state.learner), update=update
    )
