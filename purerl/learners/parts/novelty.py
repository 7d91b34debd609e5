"""Bonuses for what is new within an episode and for what is new at all, as bundles of pure functions.

`episodic` remembers the observations of an episode and pays for new ones that differ from them (Badia et al. 2020,
arXiv 2002.06038, section 2). `inverse_dynamics` learns the respects in which observations count as different: those
that actions can change. `distillation` pays for observations on which a network does not yet agree with a random one,
its target (Burda et al. 2018, arXiv 1810.12894). ``B`` environments, ``M`` places of a memory, ``D`` numbers of an
embedding.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl import networks, spaces, trees
from purerl.formulas import losses, novelty
from purerl.learners.parts import gradients, normalize
from purerl.learners.parts.normalize import Moments
from purerl.types import Array, Env, Key, Metrics, PyTree, Scalar

DISTANCES = 10_000
"""Number of distances beyond which old ones leave the running mean exponentially."""
ERRORS = 50_000
"""The same number for errors of distillation."""
ADAM_EPSILON = 1e-4
Torso = Callable[[Sequence[int]], nn.Module]
"""A function ``hidden_sizes ->`` a module from observations to features."""


class Episode(NamedTuple):
    """The memories of ``B`` episodes.

    ``embedded`` ``[B, M, D]`` are embeddings, ``length`` ``[B]`` (int32) the number of observations so far. The running
    ``mean`` of squared distances ``[B]`` and their number ``distances`` ``[B]`` (int32) outlast an episode.
    """

    embedded: Array
    length: Array
    mean: Array
    distances: Array


class Episodic(NamedTuple):
    """A memory of episodes, as pure functions.

    ``pay`` computes the bonus of an observation before it is remembered, so that it is not its own neighbour.
    """

    init: Callable[[int], Episode]  # (num_envs)
    pay: Callable[[Episode, Array], tuple[Array, Episode]]  # (episode, embedding [B, D]) -> (bonus [B], episode)
    begin: Callable[[Episode, Array], Episode]  # (episode, last [B]) -> episode, reset where last


class Embedding(NamedTuple):
    """A network whose parameters are ``params`` ``["embed"]`` and ``["guess"]``, and its optimiser's state."""

    params: PyTree
    opt_state: PyTree


class InverseDynamics(NamedTuple):
    """An embedding that learns, as pure functions.

    ``update`` learns from those of ``N`` steps whose weights ``[N]`` are above 0; their size does not matter.
    """

    init: Callable[[Key, PyTree], Embedding]  # (key, obs [N, ...])
    embed: Callable[[PyTree, PyTree], Array]  # (params, obs [N, ...]) -> [N, D]
    update: Callable[[Embedding, PyTree, PyTree, Array, Array], tuple[Embedding, Metrics]]
    # (embedding, obs [N, ...], next_obs, action number [N], weight [N])


class Judge(NamedTuple):
    """The parameters of the network that learns and of its random target, and moments of observations and of errors."""

    params: PyTree
    target: PyTree
    obs_moments: PyTree
    errors: Moments


class Distilled(NamedTuple):
    """A `Judge` and its optimiser's state."""

    judge: Judge
    opt_state: PyTree


class Distillation(NamedTuple):
    """Random network distillation as pure functions.

    ``error`` returns squared distances to the target's outputs. Both networks see normalised observations.
    """

    init: Callable[[Key, PyTree], Distilled]  # (key, obs [N, ...])
    error: Callable[[Judge, PyTree], Array]  # (judge, obs [N, ...]) -> [N]
    alpha: Callable[[Judge, PyTree], Array]  # (judge, obs [N, ...]) -> modulator of `formulas.novelty` [N]
    update: Callable[[Distilled, PyTree, Array], tuple[Distilled, Metrics]]  # (distilled, obs [N, ...], weight [N])


def episodic(capacity: int, size: int, neighbours: int, epsilon: Scalar, cluster: Scalar) -> Episodic:
    """Makes a memory of the latest embeddings of each episode, and the bonus that follows from it.

    The bonus is `formulas.novelty.episodic_bonus` of the distances to the nearest neighbours. Distances enter the
    running mean before they are divided by it.

    Args:
        capacity: ``M``, the number of embeddings that are remembered of each episode.
        size: ``D``, the numbers of an embedding.
        neighbours: How many nearest neighbours count, at most ``M``.
        epsilon: Argument of `formulas.novelty.episodic_bonus`.
        cluster: Argument of `formulas.novelty.episodic_bonus`.
    """

    def init(num_envs: int) -> Episode:
        nothing = jnp.zeros(num_envs, jnp.int32)
        return Episode(jnp.zeros((num_envs, capacity, size)), nothing, jnp.zeros(num_envs), nothing)

    def pay_one(episode: Episode, x: Array) -> tuple[Array, Episode]:
        present = jnp.arange(capacity) < episode.length
        distance, real = novelty.nearest(episode.embedded, present, x, neighbours)
        num = jnp.sum(real, dtype=jnp.int32)
        count = jnp.minimum(episode.distances, max(DISTANCES - neighbours, 0)) + num
        shift = (jnp.sum(distance) - num * episode.mean) / jnp.maximum(count, 1)
        mean = episode.mean + shift
        bonus = novelty.episodic_bonus(distance, real, mean, epsilon, cluster)
        embedded = episode.embedded.at[episode.length % capacity].set(x)
        return bonus, Episode(embedded, episode.length + 1, mean, count)

    def begin(episode: Episode, last: Array) -> Episode:
        return episode._replace(length=jnp.where(last, 0, episode.length))

    return Episodic(init, jax.vmap(pay_one), begin)


def inverse_dynamics(torso: Torso, size: int, num_actions: int, learning_rate: Scalar) -> InverseDynamics:
    """Makes embeddings from two of which a classifier predicts the action between them.

    Pathak et al. 2017 (arXiv 1705.05363, eq. 2); Badia et al. 2020 (figure 3).

    Args:
        torso: Makes the embedding network's torso.
        size: ``D``, the numbers of an embedding.
        num_actions: The number of actions.
        learning_rate: Adam's step size.
    """
    embedder = networks.Head(torso((64,)), size, scale=1.0)
    guesser = networks.Head(networks.MLP((64,), nn.relu), num_actions, scale=1.0)
    optimiser = _adam(learning_rate)

    def init(key: Key, obs: PyTree) -> Embedding:
        key_embed, key_guess = jax.random.split(key)
        embedded, embed = embedder.init_with_output(key_embed, obs)
        both: Array = jnp.concatenate([embedded, embedded], axis=-1)
        params = {"embed": embed, "guess": guesser.init(key_guess, both)}
        return Embedding(params, gradients.init_optimiser(optimiser, params))

    def apply(params: PyTree, obs: PyTree) -> Array:
        out: Any = embedder.apply(params["embed"], obs)
        return out

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, tuple[()]]:
        obs, next_obs, number, used = batch
        both = jnp.concatenate([apply(params, obs), apply(params, next_obs)], axis=-1)
        logits: Any = guesser.apply(params["guess"], both)
        likelihood = jnp.take_along_axis(jax.nn.log_softmax(logits), number[:, None], axis=-1)[:, 0]
        return -jnp.sum(used * likelihood) / losses.at_least_one(jnp.sum(used)), ()

    def update(embedding: Embedding, obs: PyTree, next_obs: PyTree, number: Array, weight: Array):
        batch = obs, next_obs, number, (weight > 0).astype(jnp.float32)
        params, opt_state, _, metrics = gradients.gradient_step(
            loss, optimiser, embedding.params, embedding.opt_state, batch
        )
        return Embedding(params, opt_state), {"inverse_loss": metrics["loss"]}

    return InverseDynamics(init, apply, update)


def distillation(torso: Torso, size: int, learning_rate: Scalar) -> Distillation:
    """Makes random network distillation; the target has one hidden layer, the network that learns has two.

    Args:
        torso: Makes a network's torso.
        size: ``D``, the number of outputs.
        learning_rate: Adam's step size.
    """
    target, learning = (networks.Head(torso(widths), size, scale=1.0) for widths in ((64,), (64, 64)))
    normalizer = normalize.running(bound=5.0)
    optimiser = _adam(learning_rate)

    def init(key: Key, obs: PyTree) -> Distilled:
        key_target, key_params = jax.random.split(key)
        params = learning.init(key_params, obs)
        moments = normalizer.init(trees.take(obs, 0)), normalize.init_moments(())
        judge = Judge(params, target.init(key_target, obs), *moments)
        return Distilled(judge, gradients.init_optimiser(optimiser, params))

    def error_of(params: PyTree, judge: Judge, obs: PyTree) -> Array:
        normalized = normalizer.apply(judge.obs_moments, obs)
        learned: Any = learning.apply(params, normalized)
        target_features: Any = target.apply(judge.target, normalized)
        return jnp.sum(jnp.square(learned - target_features), axis=-1)

    def error(judge: Judge, obs: PyTree) -> Array:
        return error_of(judge.params, judge, obs)

    def alpha(judge: Judge, obs: PyTree) -> Array:
        deviation = jnp.sqrt(judge.errors.var + 1e-12)
        return novelty.modulator(error(judge, obs), judge.errors.mean, deviation)

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, Array]:
        judge, obs, used = batch
        errors = error_of(params, judge, obs)
        return jnp.sum(used * errors) / losses.at_least_one(jnp.sum(used)), errors

    def update(distilled: Distilled, obs: PyTree, weight: Array) -> tuple[Distilled, Metrics]:
        judge = distilled.judge._replace(obs_moments=normalizer.update(distilled.judge.obs_moments, obs))
        batch = judge, obs, (weight > 0).astype(jnp.float32)
        params, opt_state, errors, metrics = gradients.gradient_step(
            loss, optimiser, judge.params, distilled.opt_state, batch
        )
        moments = normalize.update_moments(judge.errors, errors, ERRORS)
        judge = judge._replace(params=params, errors=moments)
        return Distilled(judge, opt_state), {"distillation_error": metrics["loss"]}

    return Distillation(init, error, alpha, update)


def flat(obs: PyTree) -> Array:
    """Concatenates all numbers of observations ``[B, ...]`` to ``[B, width]`` in float32."""
    leaves = [x.astype(jnp.float32).reshape(x.shape[0], -1) for x in jax.tree.leaves(obs)]
    return jnp.concatenate(leaves, axis=-1)


def width(env: Env) -> int:
    """Returns the number of numbers that `flat` makes of an observation of ``env``."""
    return sum(math.prod(x.shape) for x in jax.tree.leaves(spaces.struct(env.observation_space)))


def _adam(learning_rate: Scalar) -> gradients.Elementwise:
    """Makes Adam with a constant step size."""
    return gradients.chain(optax.scale_by_adam(eps=ADAM_EPSILON), optax.scale(-learning_rate))
