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
    """Policies, from one that seeks reward alone to one that seeks what is new; the actors take turns."""
    intrinsic_scale: cfg.NonNegative = 0.3
    """Largest weight (beta) of the intrinsic reward, that of the last policy. What is unlike anything in the episode,
    as its first observation is, pays about 30, and up to five times as much with what is new at all."""
    novelty: Literal["both", "episodic", "lifelong"] = "both"
    """What the intrinsic reward pays for: what is new to the episode, multiplied by what is new at all, or one of the
    two."""
    embedding: Annotated[Literal["inverse", "observations"], EPISODIC] = "inverse"
    """Where distances between observations are taken. inverse: in an embedding from which the action between two of
    them can be told. observations: between the observations themselves."""
    embedding_size: Annotated[cfg.Count, EPISODIC] = 32
    """Numbers in an embedding."""
    episode_memory: Annotated[cfg.Count, EPISODIC] = 1_000
    """Observations of an episode that each actor remembers, the last ones."""
    neighbours: Annotated[cfg.Count, EPISODIC] = 10
    """Nearest neighbours of an observation by which it is judged."""
    kernel_epsilon: Annotated[cfg.Positive, EPISODIC] = 1e-4
    """Epsilon of the kernel: how slowly similarity falls with distance."""
    cluster_distance: Annotated[cfg.NonNegative, EPISODIC] = 8e-3
    """Distances below so many mean ones count as none."""
    novelty_learning_rate: cfg.Positive = 5e-4
    """Adam's step size of the embedding and of the distillation."""
    novelty_steps: cfg.Count = 5
    """Last steps of each sequence from which these two learn. If they are fewer than period, and all episodes last a
    multiple of period, some steps of the episodes are never learned from."""


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
