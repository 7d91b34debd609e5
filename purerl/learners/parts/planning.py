"""Searching a tree of what may follow before each action, by mctx: what AlphaZero and MuZero share.

``N`` searches run side by side, ``A`` actions each.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl.formulas import exploration
from purerl.types import Array, Key, PyTree

BY_GUMBEL = cfg.Needs("planner = 'gumbel'", lambda config: config.planner == "gumbel")
BY_PUCT = cfg.Needs("planner = 'puct'", lambda config: config.planner == "puct")


@cfg.config
class PlannerSettings:
    """Settings of the search."""

    in_env: ClassVar[bool] = False
    """Whether the environment itself is the model, whose state learners then need (`Situation.env_state`)."""

    planner: Literal["gumbel", "puct"] = "gumbel"
    """How the search chooses what to try. gumbel: sequential halving of actions sampled without replacement, which
    improves the policy however few the simulations. puct: AlphaZero's upper confidence bounds."""
    simulations: cfg.NonNegativeCount = 32
    """Number of simulations of a search before each action. 0, in evaluations alone: the network acts without one."""
    considered_actions: Annotated[cfg.Count, BY_GUMBEL] = 16
    """Largest number of actions that the search tries at its root."""
    value_scale: Annotated[cfg.Positive, BY_GUMBEL] = 0.1
    """Scale of values beside logits (c_scale), times 50 plus the largest number of visits of an action."""
    rescale_values: Annotated[bool, BY_GUMBEL] = True
    """Whether the values of a situation's actions are brought to [0, 1] before they are scaled, for rewards of any
    size. Without it actions that are worth about the same keep about their probabilities, so that training goes on to
    try them all."""
    dirichlet_fraction: Annotated[cfg.Fraction, BY_PUCT] = 0.25
    """Share of Dirichlet noise in the probabilities of the root's actions while training."""
    dirichlet_alpha: Annotated[cfg.Positive, BY_PUCT] = 0.3
    """Concentration of the Dirichlet noise; about 10 divided by the usual number of legal actions."""
    search_temperature: Annotated[cfg.Positive, BY_PUCT] = 1.0
    """Temperature at which actions are drawn from the visits of a search while training: proportional to visits to the
    power of its inverse."""


def simulations(config: Any) -> int | None:
    """Returns the number of simulations of a search before each action; None: learners of ``config`` do not search."""
    return config.simulations if isinstance(config, PlannerSettings) else None


TINY = np.finfo(np.float32).tiny


class Node(NamedTuple):
    """What a search needs to know of ``N`` situations.

    ``logits`` ``[N, A]`` are the policy's, those of illegal actions `exploration.ILLEGAL`; ``value`` ``[N]`` is the
    estimated return from there; ``embedding`` ``[N, ...]`` is what the model goes on from.
    """

    logits: Array
    value: Array
    embedding: PyTree


class Following(NamedTuple):
    """What followed an action: the reward ``[N]``, the factor ``[N]`` of the value of the new situation, and that.

    The factor is negative where the opponent moves next.
    """

    reward: Array
    discount: Array
    node: Node


Model = Callable[[PyTree, Key, Array, PyTree], Following]
"""A function ``(params, key, action [N], embedding [N, ...])``, which consumes its key."""


class Planned(NamedTuple):
    """The result of a search: the action ``[N]``, the improved policy ``[N, A]``, and the value of the root ``[N]``.

    ``visits`` ``[N, A]`` is how often the search tried each action at its root. The value is the improved policy's,
    over the actions that were tried; with PUCT it is the mean of all simulations. Halving also tries actions that turn
    out bad, so that the mean of all its simulations is the value of a worse policy.
    """

    action: Array
    policy: Array
    value: Array
    visits: Array


def plan(
    config: PlannerSettings, model: Model, params: PyTree, key: Key, root: Node, legal: Array | None, explores: bool
) -> Planned:
    """Searches ``N`` trees by mctx.

    Danihelka et al. 2022, Policy improvement by planning with Gumbel; for PUCT Silver et al. 2017, Nature 550.

    Args:
        config: Settings, with at least one simulation.
        model: The model of what follows.
        params: Its parameters.
        key: Consumed.
        root: Where the searches begin.
        legal: Which actions are legal there, ``[N, A]``; None: all.
        explores: Whether to act as while training, with noise; otherwise the best action is taken.
    """
    import mctx

    impl = jax.random.key_impl(key)
    in_words, of_words = keys_as_words(root.embedding)

    def recurrent(params: PyTree, words: Array, action: Array, embedding: PyTree) -> Any:
        key = jax.random.wrap_key_data(words, impl=impl)
        reward, discount, node = model(params, key, action, of_words(embedding))
        out = mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=node.logits, value=node.value)
        return out, in_words(node.embedding)

    logits = exploration.masked(root.logits, legal)
    begin = mctx.RootFnOutput(prior_logits=logits, value=root.value, embedding=in_words(root.embedding))
    illegal = jnp.zeros_like(root.logits) if legal is None else (~legal).astype(root.logits.dtype)
    given = {
        "params": params,
        "root": begin,
        "recurrent_fn": recurrent,
        "num_simulations": config.simulations,
        "invalid_actions": illegal,
    }
    # As words: JAX's check of keys takes the selections that vmap makes of mctx's loops for a second use of a key.
    with jax.default_prng_impl(impl):
        if config.planner == "gumbel":
            return by_gumbel(config, key, given, explores)
        return by_puct(config, key, given, legal, explores)


def by_gumbel(config: PlannerSettings, key: Key, given: dict[str, Any], explores: bool) -> Planned:
    """Searches as `plan` does, by sequential halving; ``given`` are mctx's arguments. Consumes ``key``."""
    import mctx

    scaled = functools.partial(
        mctx.qtransform_completed_by_mix_value, value_scale=config.value_scale, rescale_values=config.rescale_values
    )
    found = mctx.gumbel_muzero_policy(
        rng_key=jax.random.key_data(key),
        **given,
        qtransform=scaled,
        max_num_considered_actions=config.considered_actions,
        gumbel_scale=1.0 if explores else 0.0,
    )
    summary = found.search_tree.summary()
    weights = jnp.where(summary.visit_counts > 0, found.action_weights, 0.0)
    value = jnp.sum(weights * summary.qvalues, axis=-1) / jnp.maximum(jnp.sum(weights, axis=-1), TINY)
    return Planned(found.action, found.action_weights, value, summary.visit_counts)


def by_puct(config: PlannerSettings, key: Key, given: dict[str, Any], legal: Array | None, explores: bool) -> Planned:
    """Searches as `plan` does, by upper confidence bounds; ``given`` are mctx's arguments. Consumes ``key``."""
    import mctx

    key_search, key_noise, key_draw = jax.random.split(key, 3)
    root = given["root"]
    if explores:
        root = root.replace(prior_logits=with_noise(config, key_noise, root.prior_logits, legal))
    tree = mctx.search(
        rng_key=jax.random.key_data(key_search),
        **given | {"root": root},
        root_action_selection_fn=functools.partial(mctx.muzero_action_selection, depth=0),
        interior_action_selection_fn=mctx.muzero_action_selection,
    )
    summary = tree.summary()
    action = jnp.argmax(summary.visit_counts, axis=-1)
    if explores:  # what was never tried has no chance at any temperature
        action = jax.random.categorical(key_draw, jnp.log(summary.visit_counts) / config.search_temperature)
    return Planned(action.astype(jnp.int32), summary.visit_probs, summary.value, summary.visit_counts)


def with_noise(config: PlannerSettings, key: Key, logits: Array, legal: Array | None) -> Array:
    """Mixes Dirichlet noise into the probabilities of legal actions, and returns logits of the mixture ``[N, A]``.

    ``P(a) = (1 - fraction) p(a) + fraction eta(a)``, ``eta`` drawn over the legal actions alone (Silver et al. 2017,
    Nature 550, Methods). Consumes ``key``.
    """
    drawn = jax.random.loggamma(key, config.dirichlet_alpha, logits.shape)
    noise = jax.nn.softmax(exploration.masked(drawn, legal))
    mixed = (1 - config.dirichlet_fraction) * jax.nn.softmax(logits) + config.dirichlet_fraction * noise
    return exploration.masked(jnp.log(jnp.maximum(mixed, TINY)), legal)


def keys_as_words(like: PyTree) -> tuple[Callable[[PyTree], PyTree], Callable[[PyTree], PyTree]]:
    """Returns functions that make words of the typed keys of trees like ``like``, and keys of the words.

    mctx makes arrays of zeros of each leaf's type, which typed keys do not have.
    """
    impls = [
        jax.random.key_impl(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else None for x in jax.tree.leaves(like)
    ]

    def each(convert: Callable[[Any, Any], Any], tree: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(tree)
        changed = [x if impl is None else convert(x, impl) for x, impl in zip(leaves, impls, strict=True)]
        return jax.tree.unflatten(structure, changed)

    return (
        lambda tree: each(lambda x, _: jax.random.key_data(x), tree),
        lambda tree: each(lambda x, impl: jax.random.wrap_key_data(x, impl=impl), tree),
    )


def key_of(noise: Array) -> Key:
    """Returns the key of the searches of ``N`` rows, from the words ``[N, 2]`` drawn for them (`search_noise`)."""
    return jax.random.wrap_key_data(noise[0], impl="threefry2x32")


def search_noise(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws what the searches of ``shape`` many rows begin their keys with: words ``[*shape, 2]``. Consumes ``key``."""
    return jax.random.bits(key, (*shape, 2))
