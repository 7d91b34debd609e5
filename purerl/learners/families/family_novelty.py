"""What a family of policies seeks: the intrinsic reward of Never Give Up and Agent57.

The settings of the reward, and all of it in one bundle, made of the bundles of `novelty`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax

from purerl import config as cfg
from purerl.formulas import novelty as formulas
from purerl.learners.parts import novelty, settings
from purerl.learners.parts.joint_actions import joint_actions
from purerl.types import Array, Env, Key, Metrics, PyTree

EPISODIC = cfg.Needs("an episodic novelty", lambda config: config.novelty != "lifelong")


@cfg.config
class NoveltySettings:
    """Settings of novelty and of the family."""

    num_policies: cfg.Count = 8
    """Number of policies, with intrinsic rewards from none to the largest weight. The actors alternate between them."""
    intrinsic_scale: cfg.NonNegative = 0.3
    """Largest weight (beta) of the intrinsic reward, that of the last policy. The episodic reward is at most about 30,
    as for an episode's first observation; lifelong novelty multiplies it by up to 5."""
    novelty: Literal["both", "episodic", "lifelong"] = "both"
    """Intrinsic reward. episodic: for observations new in the episode. lifelong: for observations new in the training.
    both: their product."""
    embedding: Annotated[Literal["inverse", "observations"], EPISODIC] = "inverse"
    """Space in which distances between observations are measured. inverse: an embedding learned by predicting the
    action between two observations. observations: the observations themselves."""
    embedding_size: Annotated[cfg.Count, EPISODIC] = 32
    """Size of the embedding."""
    episode_memory: Annotated[cfg.Count, EPISODIC] = 1_000
    """Number of latest observations of an episode that each actor stores."""
    neighbours: Annotated[cfg.Count, EPISODIC] = 10
    """Number of nearest neighbours from which an observation's novelty is computed."""
    kernel_epsilon: Annotated[cfg.Positive, EPISODIC] = 1e-4
    """Epsilon of the kernel. With a larger epsilon similarity falls more slowly with distance."""
    cluster_distance: Annotated[cfg.NonNegative, EPISODIC] = 8e-3
    """Distances below this multiple of the mean distance count as 0."""
    novelty_learning_rate: cfg.Positive = 5e-4
    """Adam's learning rate for the embedding and the distillation."""
    novelty_steps: cfg.Count = 5
    """Number of last steps of each sequence that the embedding and the distillation learn from. If it is less than
    period and all episode lengths are multiples of period, some steps are never used."""


class Judges(NamedTuple):
    """What recognises novelty: an embedding's parameters and a `novelty.Judge`, each of which may be ``()``."""

    embedding: PyTree
    distilled: PyTree


class Novelty(NamedTuple):
    """The intrinsic reward that `NoveltySettings` describe, as pure functions."""

    init: Callable[[Key, PyTree], tuple[PyTree, PyTree]]  # (key, obs [B, ...]) -> (embedding, distilled)
    init_episode: Callable[[int], PyTree]
    pay: Callable[[Judges, PyTree, PyTree], tuple[Array, PyTree]]  # (judges, obs, episode) -> (reward [B], episode)
    begin: Callable[[PyTree, Array], PyTree]
    update: Callable[..., tuple[PyTree, PyTree, Metrics]]
    # (embedding, distilled, obs [F, ...], next_obs, number [F], used [F], weight [F])


def make_novelty(config: Any, env: Env) -> Novelty:
    """Makes the intrinsic reward that ``config`` describes."""
    torso = lambda sizes: settings.make_torso(config, env, sizes)
    rate, size = config.novelty_learning_rate, config.embedding_size
    learned = config.novelty != "lifelong" and config.embedding == "inverse"
    distils = config.novelty != "episodic"
    inverse = novelty.inverse_dynamics(torso, size, joint_actions(env).num, rate)
    distillation = novelty.distillation(torso, size, rate)
    width = size if learned else novelty.width(env)
    kernel = novelty.episodic(
        config.episode_memory, width, config.neighbours, config.kernel_epsilon, config.cluster_distance
    )

    def init(key: Key, obs: PyTree) -> tuple[PyTree, PyTree]:
        key_embedding, key_distillation = jax.random.split(key)
        return (
            inverse.init(key_embedding, obs) if learned else (),
            distillation.init(key_distillation, obs) if distils else (),
        )

    def pay(judges: Judges, obs: PyTree, episode: PyTree) -> tuple[Array, PyTree]:
        if config.novelty == "lifelong":
            return formulas.lifelong_bonus(distillation.alpha(judges.distilled, obs)), episode
        embedded = inverse.embed(judges.embedding, obs) if learned else novelty.flat(obs)
        bonus, episode = kernel.pay(episode, embedded)
        return formulas.modulated(bonus, distillation.alpha(judges.distilled, obs)) if distils else bonus, episode

    def update(embedding, distilled, obs, next_obs, number, used, weight):
        metrics: Metrics = {}
        if learned:
            embedding, more = inverse.update(embedding, obs, next_obs, number, used)
            metrics |= more
        if distils:
            distilled, more = distillation.update(distilled, obs, weight)
            metrics |= more
        return embedding, distilled, metrics

    remembers = config.novelty != "lifelong"
    return Novelty(
        init,
        kernel.init if remembers else lambda num_envs: (),
        pay,
        kernel.begin if remembers else lambda episode, last: episode,
        update,
    )
