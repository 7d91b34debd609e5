"""MuZero (Schrittwieser et al. 2020, arXiv 1911.08265): planning with a model that is learned.

Before each action a tree is searched in which nothing but the network says what follows: its states are numbers of its
own, which need to predict rewards, values and what the search prefers, and nothing else. The network is unrolled over
sequences of a replay, along the actions that were taken. Unlike `alphazero` it needs no copies of the environment.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import config as cfg
from purerl import replay, trees
from purerl.algos import alphazero
from purerl.algos.algorithm import Algorithm
from purerl.algos.alphazero import AlphaZeroPolicy, AlphaZeroState, Searched
from purerl.errors import ConfigError
from purerl.formulas import distributions, exploration, losses, return_distributions, returns, td_errors
from purerl.formulas.return_distributions import Atoms
from purerl.learners.parts import checks, from_replay, gradients, joint_actions, normalize, planning, settings
from purerl.learners.parts.planning import Following, Node, Planned
from purerl.networks import ACTIVATIONS, world_models
from purerl.networks.given import given_or_own
from purerl.networks.world_models import WorldModel
from purerl.replay.views import View
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import (
    Array,
    Env,
    Key,
    Learner,
    Metrics,
    PyTree,
    Recorded,
    Sample,
    Situation,
    Trainer,
    Transition,
    Updated,
)


@cfg.config(
    num_envs=16,
    num_steps=8,
    num_updates=8,
    batch_size=128,
    capacity=200_000,
    warmup_steps=2_000,
    simulations=16,
    learning_rate=1e-3,
    learning_rate_decay=0.0,
    max_grad_norm=5.0,
    hidden_sizes=(128,),
    activation="relu",
)
class MuZeroConfig(planning.PlannerSettings, from_replay.ReplayConfig, settings.Torso, settings.Adam):
    """Settings of MuZero."""

    unroll_steps: cfg.Count = 5
    """Number of steps over which the model is unrolled while learning."""
    n_step: cfg.Count = 10
    """Number of rewards that a target of the value sums before it bootstraps."""
    bootstrap_from: Literal["network", "search"] = "network"
    """Value after n_step rewards. network: that of the network as it is now. search: that of the search when the step
    was taken, as in the paper; it costs nothing, and is as old as the step."""
    state_size: cfg.Count = 64
    """Number of numbers that are a state of the model."""
    model_sizes: tuple[cfg.Count, ...] = (128,)
    """Widths of the dense layers of the model's dynamics and predictions; hidden_sizes are those of the torso."""
    num_atoms: Annotated[int, cfg.Range(2)] = 101
    """Number of atoms over which rewards and values are distributions, evenly spaced after rescaling."""
    v_min: float = -1000.0
    """Reward or return at the lowest atom; lower ones are clipped to it."""
    v_max: float = 1000.0
    """Reward or return at the highest atom; higher ones are clipped to it."""
    value_coef: cfg.NonNegative = 0.25
    """Weight of the value loss."""
    reward_coef: cfg.NonNegative = 1.0
    """Weight of the reward loss."""
    reanalyse_every: cfg.NonNegativeCount = 0
    """One in so many sequences of each batch has its policies and values searched for anew with the newest parameters.
    1: all; 0: none."""
    normalize_obs: bool = False
    """Normalise observations by the running mean and standard deviation of the observations learned from."""

    @property
    def sample_rows(self) -> int:
        """Number of consecutive rows that one sample spans."""
        return self.unroll_steps + self.n_step + 1


class Targets(NamedTuple):
    """What the network learns for the ``K + 1`` states of its unrolling, ``[K + 1, N]``.

    ``reward[k]`` is that of the action that led there, and ``paid`` tells where it is known; there is none for
    ``k = 0``. ``known`` tells where the value is, and ``chosen`` where there was a search, whose ``policy`` is
    ``[K + 1, N, A]``.
    """

    reward: Array
    value: Array
    policy: Array
    paid: Array
    known: Array
    chosen: Array


def problems(config: MuZeroConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete; two agents must act in turn.
    """
    searched = ["simulations = 0: must be at least 1 in training"] if config.simulations == 0 else []
    return (
        searched
        + settings.torso_problems(config, env)
        + settings.support_problems(config.v_min, config.v_max)
        + from_replay.problems(config, env)
        + checks.space_problems(env, (Discrete, MultiDiscrete))
        + joint_actions.problems(env)
        + alphazero.turn_problems(env)
    )


def make_network(config: MuZeroConfig, env: Env) -> WorldModel:
    """Makes the model's networks for ``A`` joint actions and ``num_atoms`` atoms."""
    num_actions, activation = joint_actions.joint_actions(env).num, ACTIVATIONS[config.activation]
    shape = num_actions, config.num_atoms, config.model_sizes, activation
    return world_models.world_model(
        world_models.Representation(settings.make_torso(config, env), config.state_size),
        world_models.Dynamics(*shape),
        world_models.Prediction(*shape),
    )


class Outputs(NamedTuple):
    """How outputs ``[..., J]`` describe numbers ``[...]``: distributions over atoms, even after `td_errors.rescale`."""

    number: Callable[[Array], Array]
    loss: Callable[[Array, Array], Array]  # (outputs, numbers) -> the cross-entropies [...]


def make_outputs(config: MuZeroConfig) -> Outputs:
    """Makes the meaning of the outputs for rewards and values.

    A number is the inverse of the rescaling at the mean of its distribution. A target is split between the two atoms
    beside it, so that their mean is the target exactly (arXiv 1911.08265, appendix F).
    """
    ends = td_errors.rescale(jnp.array([config.v_min, config.v_max]))
    family = return_distributions.categorical(td_errors.support(ends[0], ends[1], config.num_atoms))

    def loss(out: Array, target: Array) -> Array:
        one = lambda out, x: family.loss(out, Atoms(td_errors.rescale(x)[None], jnp.ones(1)))[0]
        return jnp.vectorize(one, signature="(j),()->()")(out, target)

    return Outputs(lambda out: td_errors.unrescale(family.atoms(out).mean), loss)


def sign(env: Env) -> float:
    """Returns the sign that a value has one step later: two agents alternate, and what one gains the other loses."""
    return -1.0 if env.num_agents > 1 else 1.0


class Planner(NamedTuple):
    """What the networks give for observations ``[N, ...]``.

    - ``represent(policy, obs)``: states of the model, ``[N, S]``.
    - ``evaluate(policy, obs)``: logits ``[N, A]`` and values ``[N]``, without a search.
    - ``search(policy, obs, key, explores)``: a search from each of them; consumes its key.
    """

    represent: Callable[[AlphaZeroPolicy, PyTree], Array]
    evaluate: alphazero.Evaluate
    search: Callable[[AlphaZeroPolicy, PyTree, Key, bool], Planned]


def make_planner(config: MuZeroConfig, env: Env, network: WorldModel, normalizer: normalize.Normalizer) -> Planner:
    """Makes the search in the model that is learned.

    Actions that are illegal are excluded at the root alone: the model does not know of them (arXiv 1911.08265, appendix
    A). Nor does it know of ends; it learns that nothing is paid after them.
    """
    outputs, legal = make_outputs(config), joint_actions.joint_actions(env).legal

    def represent(policy: AlphaZeroPolicy, obs: PyTree) -> Array:
        return network.represent(policy.params, normalizer.apply(policy.obs_moments, obs))

    def node(policy: AlphaZeroPolicy, state: Array) -> Node:
        logits, value = network.predict(policy.params, state)
        return Node(logits, outputs.number(value), state)

    def model(policy: AlphaZeroPolicy, key: Key, action: Array, state: Array) -> Following:
        after, reward = network.advance(policy.params, state, action)
        return Following(outputs.number(reward), jnp.full(len(action), sign(env) * config.gamma), node(policy, after))

    def root(policy: AlphaZeroPolicy, obs: PyTree) -> Node:
        of = node(policy, represent(policy, obs))
        return of._replace(logits=exploration.masked(of.logits, legal(obs)))

    def search(policy: AlphaZeroPolicy, obs: PyTree, key: Key, explores: bool) -> Planned:
        return planning.plan(config, model, policy, key, root(policy, obs), legal(obs), explores)

    return Planner(represent, lambda policy, obs: root(policy, obs)[:2], search)


def make_targets(config: MuZeroConfig, turn: float, items: Transition) -> Targets:
    """Computes what the ``K + 1`` states of an unrolling learn from sequences ``[L, N]``.

    A value is the sum of ``n_step`` rewards and the value of ``items`` after them (arXiv 1911.08265, section 3), in
    which each step later counts by ``turn * gamma``. An episode that terminated goes on for ever with rewards and
    values of 0. Of one that was cut off the last reward is learned, and a value that would reach beyond is that of its
    last step; after that nothing is known.
    """
    every, count = items.extras.every, config.unroll_steps + 1
    n_step = functools.partial(returns.stored_n_step, n=config.n_step)
    discount = turn * config.gamma * (1 - items.terminated)
    columns = items.reward, every.value, discount, items.truncated, every.value
    value = jax.vmap(n_step, in_axes=1, out_axes=1)(*columns)
    later = lambda x: jnp.pad(x, ((1, 0), (0, 0)))[:count]
    ended = jnp.cumsum(later(items.last), axis=0) > 0  # before the state
    first = jnp.argmax(items.last, axis=0)[None]
    over = ended & jnp.take_along_axis(items.terminated, first, axis=0)
    return Targets(
        reward=jnp.where(later(over), 0.0, later(items.reward)),
        value=jnp.where(over, 0.0, value[:count]),
        policy=every.policy[:count],
        paid=later(~ended | over),
        known=~ended | over,
        chosen=~ended,
    )


def unroll(network: WorldModel, params: PyTree, state: Array, numbers: Array) -> tuple[Array, Array, Array]:
    """Unrolls the model from states ``[N, S]`` along actions ``[K, N]``, by number.

    The gradient of each state is halved on its way back through the dynamics (arXiv 1911.08265, appendix G).

    Returns:
        Logits ``[K + 1, N, A]``, and outputs ``[K + 1, N, J]`` for values and rewards; the first reward is 0.
    """

    def step(state: Array, action: Array) -> tuple[Array, tuple[Array, ...]]:
        half = 0.5 * state + 0.5 * jax.lax.stop_gradient(state)
        after, reward = network.advance(params, half, action)
        return after, (*network.predict(params, after), reward)

    _, following = jax.lax.scan(step, state, numbers)
    logits, value = network.predict(params, state)
    first = logits, value, jnp.zeros_like(following[2][0])
    return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first, tuple(following))


Loss = Callable[[PyTree, tuple[PyTree, Transition, Array, Targets]], tuple[Array, tuple[Array, Metrics]]]


def make_loss(config: MuZeroConfig, env: Env, network: WorldModel, represent: Callable[..., Array]) -> Loss:
    """Makes the loss of parameters, given moments, sequences ``[L, N]``, their weights ``[N]`` and `Targets`.

    It is the sum of three cross-entropies over the states of an unrolling (arXiv 1911.08265, equation 1), where the
    first state counts once and each of the ``K`` others by ``1 / K`` (appendix G). Beside it are the priorities
    ``[N]``, the sizes of the first states' errors of value, and metrics.
    """
    outputs = make_outputs(config)
    actions = joint_actions.joint_actions(env)

    def loss(params: PyTree, given: tuple[PyTree, Transition, Array, Targets]) -> tuple[Array, tuple[Array, Metrics]]:
        moments, items, weight, target = given
        state = represent(AlphaZeroPolicy(params, moments), trees.take(items.obs, 0))
        numbers = actions.number(items.action[: config.unroll_steps])
        logits, value, reward = unroll(network, params, state, numbers)
        of_policy = jnp.where(target.chosen, -jnp.sum(target.policy * jax.nn.log_softmax(logits), axis=-1), 0.0)
        of_value = jnp.where(target.known, outputs.loss(value, target.value), 0.0)
        of_reward = jnp.where(target.paid, outputs.loss(reward, target.reward), 0.0)
        each = of_policy + config.value_coef * of_value + config.reward_coef * of_reward  # [K + 1, N]
        share = jnp.ones(len(each)).at[1:].set(1 / config.unroll_steps)
        guess = outputs.number(value)
        error = jnp.abs(guess - target.value)
        counts = weight > 0
        mean = lambda x: losses.mean(x, counts)
        mean_where = lambda x, where: losses.mean(x, where & counts[None])
        return jnp.mean(weight * jnp.sum(share[:, None] * each, axis=0)), (
            error[0],
            {
                "policy_loss": mean(of_policy[0]),
                "value_loss": mean(of_value[0]),
                "reward_loss": mean_where(of_reward, target.paid),
                "entropy": mean(distributions.categorical(actions.num).entropy(logits[0])),
                "value": mean(guess[0]),
                "value_error": mean_where(error, target.known),
                "reward_error": mean_where(jnp.abs(outputs.number(reward) - target.reward), target.paid),
            },
        )

    return loss


def reanalysed(
    config: MuZeroConfig, planner: Planner, policy: AlphaZeroPolicy, items: Transition, key: Key
) -> Transition:
    """Returns sequences ``[L, N]`` with the values from which targets bootstrap as ``policy`` sees them.

    They are those of the network or remain as they are, by ``bootstrap_from``. One sequence in ``reanalyse_every`` has
    instead what a search says of its steps, policies and values. The search has noise, as the one had that it replaces
    (arXiv 1911.08265, appendix H). Consumes ``key``.
    """
    every = items.extras.every
    if config.bootstrap_from == "network":
        value = planner.evaluate(policy, trees.merge(items.obs, 2))[1]
        every = every._replace(value=value.reshape(every.value.shape))
    if config.reanalyse_every:
        chosen = slice(None), slice(None, None, config.reanalyse_every)
        planned = planner.search(policy, trees.merge(trees.take(items.obs, chosen), 2), key, True)
        weights, value = trees.split((planned.policy, planned.value), every.value[chosen].shape)
        every = every._replace(policy=every.policy.at[chosen].set(weights), value=every.value.at[chosen].set(value))
    return items._replace(extras=items.extras._replace(every=every))


def make_search(env: Env, planner: Planner) -> alphazero.Search:
    """Makes the search in the rows where an agent acts."""

    def search(policy: AlphaZeroPolicy, here: Situation, key: Key, explores: bool) -> tuple[Planned, Searched]:
        of = alphazero.searched(env, here)
        return planner.search(policy, of.obs, key, explores), of

    return search


def make_learner(
    config: MuZeroConfig,
    env: Env,
    *,
    network: WorldModel | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes MuZero's `Learner`, which searches in its own model before each action.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `world_models.WorldModel` for ``A`` joint actions, whose rewards and values have ``num_atoms``
            outputs; None: `make_network`.
        optimiser: An optax transformation; None: Adam.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    optimiser = gradients.given_or_made(optimiser, config)
    normalizer = normalize.running() if config.normalize_obs else normalize.identity()
    planner = make_planner(config, env, network, normalizer)
    search = make_search(env, planner)
    acting = alphazero.make_acting(config, env, search, planner.evaluate)
    loss = make_loss(config, env, network, planner.represent)

    def explore(policy: AlphaZeroPolicy, here: Situation, noise: Array) -> tuple[PyTree, PyTree, Recorded]:
        planned, of = search(policy, here, planning.key_of(noise), True)
        action, extras = alphazero.recorded(env, here, of, planned, planned.action)
        return action, here.carry, Recorded(first=(), every=extras)

    def init(key: Key, obs: PyTree) -> AlphaZeroState:
        params = network.init(key, obs)
        opt_state = gradients.init_optimiser(optimiser, params)
        return AlphaZeroState(params, opt_state, normalizer.init(trees.take(obs, 0)))

    def update(state: AlphaZeroState, sample: Sample, key: Key) -> Updated:
        policy = AlphaZeroPolicy(state.params, state.obs_moments)
        items = reanalysed(config, planner, policy, sample.items, key)
        given = state.obs_moments, items, sample.weight, make_targets(config, sign(env), items)
        params, opt_state, (priority, more), metrics = gradients.gradient_step(
            loss, optimiser, state.params, state.opt_state, given
        )
        moments = normalizer.update(state.obs_moments, trees.take(items.obs, 0))
        learned = AlphaZeroState(params, opt_state, moments)
        return Updated(learned, {**more, **metrics}, priority)

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=planning.search_noise,
        behaviour=lambda state: AlphaZeroPolicy(state.params, state.obs_moments),
        explore=explore,
        policy=lambda state: AlphaZeroPolicy(state.params, normalize.settled(state.obs_moments)),
        exploit=acting.exploit,
        update=update,
        sample=acting.sample,
        search=acting.search,
    )


def moves(config: MuZeroConfig, env: Env, rows: np.ndarray | None) -> View:
    """Makes a view of sequences; of two agents in turn each step is that of the one whose turn it is.

    A sequence is usable if both agents of its game are stored, and alternate in each episode.

    Args:
        config: Settings.
        env: Environment to learn in.
        rows: Rows of the fleet that are stored; None: all.

    Raises:
        ConfigError: No game has both.
    """
    whole = replay.sequences(config.sample_rows)
    if env.num_agents == 1:
        return whole
    other = alphazero.opponents(config, env, rows)
    if not np.any(other != np.arange(len(other))):
        raise ConfigError("past_games = num_envs: leaves no game of which both sides are recorded; must be fewer")

    def read(items: Transition, row: Array, env: Array, frames: PyTree) -> tuple[Transition, Array]:
        one, usable = whole.read(items, row, env, frames)
        two, _ = whole.read(items, row, jnp.asarray(other)[env], frames)
        of_one, of_two = one.extras.every.acts, two.extras.every.acts
        steps = lambda sequence: sequence._replace(next_obs=())
        chosen = jax.tree.map(
            lambda x, y: jnp.where(of_one.reshape(*of_one.shape, *[1] * (x.ndim - 2)), x, y), steps(one), steps(two)
        )
        twice = (of_one[1:] == of_one[:-1]) & ~chosen.last[:-1]
        return chosen, usable & jnp.all(of_one | of_two, axis=0) & ~jnp.any(twice, axis=0)

    return whole._replace(read=read)


def make_trainer(config: MuZeroConfig, env: Env, learner: Learner) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from sequences."""
    return from_replay.make_trainer(config, env, learner, view=moves(config, env, learner.rows))


IMAGE = {
    "total_steps": 500_000,
    "torso": "resnet",
    "convolutions": ("16",),
    "n_step": 5,
    "bootstrap_from": "search",
    "value_scale": 0.02,
    "capacity": 100_000,
    "learning_rate": 5e-4,
    "state_size": 128,
    "v_min": -100.0,
    "v_max": 100.0,
}
"""Settings for images of MinAtar's size: a small residual network, and atoms that are closer together."""

muzero = Algorithm(
    "muzero",
    MuZeroConfig,
    problems,
    make_learner,
    make_trainer,
    sockets=("optimiser",),
    presets={"image": IMAGE},
)
