"""A bonus for novel observations, added to the rewards of any learner."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import trees
from purerl.curricula.settings import CurriculumSettings
from purerl.learners.parts import normalize, novelty, settings
from purerl.learners.parts.novelty import Distillation, Distilled
from purerl.learners.wrappers.wrapper import Wrapper, inside
from purerl.types import Array, Env, Key, Learner, PyTree, Sample, Transition, Updated

WITH_BONUS = cfg.Needs("an intrinsic reward", lambda config: config.intrinsic != "none")
WITH_SUM = cfg.Needs(
    "an intrinsic reward on policy",
    lambda config: config.intrinsic != "none" and isinstance(config, settings.OnPolicy),
)


@cfg.config
class IntrinsicSettings:
    """A bonus for novel observations, added to the rewards of the environment."""

    intrinsic: Literal["none", "rnd"] = "none"
    """Intrinsic reward for novel observations, added to every reward. rnd: random network distillation."""
    intrinsic_coef: Annotated[cfg.NonNegative, WITH_BONUS] = 1.0
    """Weight of the intrinsic reward. It is divided by the running standard deviation of its discounted sum or, if the
    algorithm has a replay, of the intrinsic reward itself."""
    intrinsic_gamma: Annotated[cfg.Fraction, WITH_SUM] = 0.99
    """Discount factor of the sum of intrinsic rewards that normalises them. The sum continues across episodes. With 1
    the normalised reward tends to 0."""
    intrinsic_learning_rate: Annotated[cfg.Positive, WITH_BONUS] = 3e-3
    """Adam's learning rate for the predictor network of the distillation."""
    intrinsic_size: Annotated[cfg.Count, WITH_BONUS] = 32
    """Number of outputs of the predictor network and of its random target."""


class IntrinsicState(NamedTuple):
    """The states of the learner and of the distillation; ``scale`` is that of the scaler of the bonus."""

    learner: Any
    distilled: Distilled
    scale: PyTree

    @property
    def params(self) -> PyTree:
        """The parameters of the learner."""
        return self.learner.params


def problems(config: IntrinsicSettings, env: Env | None) -> list[str]:
    """Returns a line if levels are scored by values that have the bonus in them."""
    if not isinstance(config, CurriculumSettings) or not config.scores_by_returns:
        return []
    return [
        f"curriculum = {config.curriculum!r}: level_score = 'max-mc' compares returns with values, which have the "
        f"bonus of intrinsic = {config.intrinsic!r}; give level_score = 'positive-value' or intrinsic = 'none'"
    ]


def wrap(config: IntrinsicSettings, env: Env, learner: Learner) -> Learner:
    """Returns ``learner`` with the bonus that ``config`` describes; see `curious`."""
    if TYPE_CHECKING:
        assert isinstance(config, settings.Torso)
    torso = lambda sizes: settings.make_torso(config, env, sizes)
    distillation = novelty.distillation(torso, config.intrinsic_size, config.intrinsic_learning_rate)
    return curious(config, distillation, learner)


def curious(config: IntrinsicSettings, distillation: Distillation, learner: Learner) -> Learner:
    """Returns ``learner`` with a bonus for each step's next observation, and with an `IntrinsicState` around its own.

    Burda et al. 2018 (arXiv 1810.12894), section 2: the bonus is the error of distillation on normalised observations,
    divided by the running deviation of its discounted sum, which continues across episodes. There are two differences.
    They have a second critic for the bonus, whose returns also continue across episodes; here one critic estimates the
    sum of both rewards, and a termination ends it. Their distillation learns from a part of each minibatch; here one
    gradient step an iteration uses the whole trajectory.

    For a sample of a replay the bonus is computed again at each update, and the distillation learns from the sample, as
    in Laskin et al. 2021 (arXiv 2110.15191, appendix B). A sample has no order in time, so errors are divided by their
    own running deviation. A next observation that the sample does not contain, because an episode or the sample ended,
    has no bonus. A transition over several steps has the bonus of its last observation.
    """
    scaler = normalize.running_reward()

    def init(key: Key, obs: PyTree) -> IntrinsicState:
        key_learner, key_bonus = jax.random.split(key)
        scale = scaler.init(trees.length(obs))
        return IntrinsicState(learner.init(key_learner, obs), distillation.init(key_bonus, obs), scale)

    def of_trajectory(state: IntrinsicState, trajectory: Transition) -> tuple[PyTree, PyTree, PyTree, Array, Array]:
        next_obs = trees.merge(trajectory.next_obs, 2)
        error = distillation.error(state.distilled.judge, next_obs).reshape(trajectory.reward.shape)
        endless = jnp.zeros_like(trajectory.last)
        scale, bonus = scaler.scale(state.scale, error, endless, config.intrinsic_gamma)
        there = trajectory.present
        weight = jnp.ones(error.size) if isinstance(there, tuple) else there.reshape(-1).astype(jnp.float32)
        return rewarded(trajectory, bonus), scale, next_obs, weight, bonus

    def of_sample(state: IntrinsicState, sample: Sample) -> tuple[PyTree, PyTree, PyTree, Array, Array]:
        items, judge = sample.items, state.distilled.judge
        if isinstance(items, Transition):
            next_obs = jax.tree.map(lambda x: jnp.concatenate([x[1:], x[:1]]), items.obs)
            shown = ~items.last  # so that none is shown of an agent that is out of the game
            next_obs, shown = trees.merge((next_obs, shown.at[-1].set(False)), 2)
        else:
            next_obs, shown = items.next_obs, jnp.ones(items.reward.shape, bool)
        weight = shown * jnp.broadcast_to(sample.weight, items.reward.shape).reshape(-1)
        bonus = distillation.error(judge, next_obs) / jnp.sqrt(judge.errors.var + 1e-12)
        bonus = jnp.where(shown, bonus, 0.0).reshape(items.reward.shape)
        return sample._replace(items=rewarded(items, bonus)), state.scale, next_obs, weight, bonus

    def rewarded(items: Any, bonus: Array) -> Any:
        return items._replace(reward=items.reward + config.intrinsic_coef * bonus)

    def update(state: IntrinsicState, given: Transition | Sample, key: Key) -> Updated:
        paid = of_sample(state, given) if isinstance(given, Sample) else of_trajectory(state, given)
        given, scale, next_obs, weight, bonus = paid
        learned, metrics, scores = learner.update(state.learner, given, key)
        distilled, more = distillation.update(state.distilled, next_obs, weight)
        more["intrinsic_reward"] = jnp.mean(bonus)
        return Updated(IntrinsicState(learned, distilled, scale), {**metrics, **more}, scores)

    return inside(learner, init=init, update=update)


intrinsic = Wrapper(
    "intrinsic reward",
    IntrinsicSettings,
    "intrinsic",
    "none",
    wrap=wrap,
    problems=problems,
    needs=(settings.TORSO,),
)
