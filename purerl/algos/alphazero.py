"""AlphaZero (Silver et al. 2017, arXiv 1712.01815): a policy and a value learned from a search through the environment.

Before each action a tree of what may follow is searched, with the environment itself as the model: its state is copied
into the search, and random steps draw noise of the search's own. The policy learns what the search prefers, and the
value how games go on. By default the search is that of Danihelka et al. 2022 (Policy improvement by planning with
Gumbel, ICLR), which needs few simulations.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl import replay, trees
from purerl.algos.algorithm import Algorithm
from purerl.envs import chance, seats
from purerl.formulas import distributions, exploration, losses, td_errors
from purerl.learners.parts import checks, from_replay, gradients, joint_actions, normalize, planning, settings
from purerl.learners.parts.planning import Following, Node, Planned
from purerl.networks import ACTIVATIONS, ActorCritic
from purerl.networks.given import given_or_own
from purerl.networks.heads import PolicyAndValue, SharedTorso, shared_actor_critic
from purerl.replay import storage
from purerl.replay.views import View
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import (
    Array,
    Env,
    Key,
    Learner,
    Metrics,
    Outcome,
    PyTree,
    Sample,
    Situation,
    Trainer,
    Transition,
    Updated,
)

BY_STEPS = cfg.Needs("value_targets = 'n-step'", lambda config: config.value_targets == "n-step")


@cfg.config(
    num_envs=64,
    num_steps=8,
    num_updates=4,
    batch_size=256,
    capacity=50_000,
    learning_rate=1e-3,
    learning_rate_decay=0.0,
    max_grad_norm=10.0,
    hidden_sizes=(128, 128),
    activation="relu",
)
class AlphaZeroConfig(planning.PlannerSettings, from_replay.ReplayConfig, settings.Torso, settings.Adam):
    """Settings of AlphaZero."""

    in_env: ClassVar[bool] = True
    value_targets: Literal["search", "n-step"] = "n-step"
    """What the value learns. search: the value of the root after the search. n-step: the rewards of n_step steps, and
    the value of the root after them; with n_step at least the length of an episode its outcome, as in the paper."""
    n_step: Annotated[cfg.Count, BY_STEPS] = 32
    """Number of rewards that a target of the value sums before it bootstraps. It ends with the episode."""
    epsilon: cfg.Fraction = 0.0
    """Chance that a turn in training takes a random legal action instead of the search's, so that positions are seen
    which the policy avoids. Targets of the value end before such a turn, at the value of its search."""
    value_coef: cfg.NonNegative = 1.0
    """Weight of the value loss."""
    normalize_obs: bool = False
    """Normalise observations by the running mean and standard deviation of the observations learned from."""

    @property
    def reward_steps(self) -> int:
        """Number of rewards that are read for a target of the value."""
        return self.n_step if self.value_targets == "n-step" else 1

    @property
    def sample_rows(self) -> int:
        """Number of consecutive rows that one sample spans."""
        return self.reward_steps + 1


class AlphaZeroState(NamedTuple):
    """The learner's state."""

    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree


class AlphaZeroPolicy(NamedTuple):
    """What acting and the evaluated policy need: parameters, and the moments of observations."""

    params: PyTree
    obs_moments: PyTree


class Extras(NamedTuple):
    """What is recorded of a search: the improved policy ``[B, A]``, and the value of its root for the agent of the row.

    ``acts`` says whether it was that agent's turn, and ``drawn`` whether the turn's action was a random one, ``[B]``;
    ``()``: none is.
    """

    policy: Array
    value: Array
    acts: Array
    drawn: Any = ()


class Noise(NamedTuple):
    """What training draws for each row: words ``[B, 2]`` for its search (`planning.search_noise`), and of its own turn.

    ``turn`` ``[B, 2]``, uniform in [0, 1), makes the turn of the row's agent random, if it is that agent's. So whoever
    searches for a row knows which turns of a game are random, also those that a past self plays.
    """

    search: Array
    turn: Array


class Position(NamedTuple):
    """A situation in the tree: the environment's state, whose turn it is (int32), and whether the episode is over.

    ``value`` is that of a position in which it is over: 0, or where it was cut off the network's. All ``[N]``.
    """

    env_state: PyTree
    mover: Array
    over: Array
    value: Array


def problems(config: AlphaZeroConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete or MultiDiscrete, and one agent or two in turn must see all that matters.
    """
    searched = ["simulations = 0: must be at least 1 in training"] if config.simulations == 0 else []
    return (
        searched
        + settings.torso_problems(config, env)
        + from_replay.problems(config, env)
        + checks.space_problems(env, (Discrete, MultiDiscrete))
        + joint_actions.problems(env)
        + env_problems(env)
    )


def env_problems(env: Env | None) -> list[str]:
    """Returns the reasons why an environment cannot be the model of a search, at most one line."""
    if env is None:
        return []
    reason = ""
    if env.host:
        reason = "is a host environment, whose state a search cannot copy"
    elif env.partly_observed or env.hidden or env.own:
        reason = "hides what matters, which a search in the environment would see"
    elif lines := turn_problems(env):
        return lines
    elif keys := chance.plain_keys(env):
        reason = f"holds what looks like a key, env_state{keys[0]}; a search needs Env.redraw, not to know the future"
    return [f"env = {env.name!r}: {reason}"] if reason else []


def turn_problems(env: Env | None) -> list[str]:
    """Returns the reasons why a search cannot be for the agents of an environment, at most one line."""
    if env is None or env.num_agents == 1:
        return []
    reason = ""
    if env.num_agents > 2 or not env.zero_sum:
        reason = f"has {env.num_agents} agents; a search is for one, or for two whose rewards add up to 0"
    elif env.acting is None:
        reason = "has two agents that act at the same time; a search is for those that act in turn"
    return [f"env = {env.name!r}: {reason}"] if reason else []


def make_network(config: AlphaZeroConfig, env: Env) -> ActorCritic:
    """Makes a torso with a layer for the logits of ``A`` joint actions and one for the value."""
    heads = PolicyAndValue(0, joint_actions.joint_actions(env).num, 0, ACTIVATIONS[config.activation])
    shared = SharedTorso(settings.make_torso(config, env), heads)
    return shared_actor_critic(shared.init, shared.apply)


class Searched(NamedTuple):
    """Rows of which a search is made, ``[N, ...]``: observations, states of the environment, and whose turn it is.

    ``rows`` ``[N]`` are their places among all rows, and ``spread`` turns results of searches ``[N, ...]`` into those
    of all rows ``[B, ...]``.
    """

    obs: PyTree
    env_state: PyTree
    mover: Array
    rows: Array
    spread: Callable[[PyTree], PyTree]


def searched(env: Env, here: Situation) -> Searched:
    """Returns the rows of which searches are made: of two agents in turn the one whose turn it is.

    In a waiting agent's own row the search is the other's, begun by what the network says of the waiting agent's view.
    Where no states tell which rows are of one game a search is made of each.
    """
    alike = lambda mover: Searched(here.obs, here.env_state, mover, jnp.arange(len(mover)), lambda tree: tree)
    rows = trees.length(here.obs)
    if env.num_agents == 1 or not jax.tree.leaves(here.env_state):
        return alike(jnp.zeros(rows, jnp.int32))
    if not isinstance(here.agents, tuple):  # rows of a part of the agents, each with an environment of its own
        agents = jnp.asarray(here.agents, jnp.int32)
        return alike(jnp.where(turns(env, here.obs), agents, 1 - agents))
    mover = jnp.argmax(turns(env, here.obs).reshape(-1, env.num_agents), axis=-1).astype(jnp.int32)
    own = jnp.arange(rows // env.num_agents) * env.num_agents + mover
    spread = lambda tree: jax.tree.map(lambda x: jnp.repeat(x, env.num_agents, axis=0), tree)
    return Searched(trees.take(here.obs, own), here.env_state, mover, own, spread)


def turns(env: Env, obs: PyTree) -> Array:
    """Tells in which observations ``[...]`` it is the agent's turn."""
    return env.acting(obs) if env.acting else jnp.ones(jax.tree.leaves(obs)[0].shape[:1], bool)


Evaluate = Callable[[AlphaZeroPolicy, PyTree], tuple[Array, Array]]
"""Computes the logits ``[N, A]`` and the values ``[N]`` of observations ``[N, ...]``."""


def make_model(config: AlphaZeroConfig, env: Env, evaluate: Evaluate) -> planning.Model:
    """Makes the model of a search: the environment itself, by chance of the search's own.

    An episode that is over stays so, at its value.
    """
    actions = joint_actions.joint_actions(env)
    game = seats.seated(env)
    several = env.num_agents > 1

    def model(policy: AlphaZeroPolicy, key: Key, number: Array, now: Position) -> Following:
        size = len(number)
        rows = jnp.arange(size)
        action = actions.action(number)
        if several:  # what the other does is ignored
            action = jnp.repeat(action[:, None], env.num_agents, axis=1)
        key_future, key_noise = jax.random.split(key)
        redrawn = lambda key, env_state: chance.redrawn(game, key, env_state)
        env_state = jax.vmap(redrawn)(jax.random.split(key_future, size), now.env_state)
        env_state, made = jax.vmap(game.step)(env.noise(key_noise, (size,)), env_state, action)
        if several:
            mover = jnp.argmax(turns(env, made.next_obs), axis=-1).astype(jnp.int32)
            obs = jax.tree.map(lambda x: x[rows, mover], made.next_obs)
            made = jax.tree.map(lambda x: x[rows, now.mover], made._replace(next_obs=(), info=()))
        else:
            mover, obs = now.mover, made.next_obs
        logits, value = evaluate(policy, obs)
        sign = jnp.where(mover == now.mover, 1.0, -1.0)
        value = jnp.where(made.terminated, 0.0, value)
        after = Position(env_state, mover, made.game_over, value)
        following = Following(made.reward, config.gamma * sign * (1 - made.terminated), Node(logits, value, after))
        over = Following(jnp.zeros(size), jnp.ones(size), Node(jnp.zeros_like(logits), now.value, now))
        return trees.restart(following, over, now.over)

    return model


Loss = Callable[[PyTree, tuple[AlphaZeroState, Sample, Array]], tuple[Array, tuple[Array, Metrics]]]


def make_loss(config: AlphaZeroConfig, evaluate: Evaluate) -> Loss:
    """Makes the loss of parameters, given the state, a sample and the targets ``[N]`` of its values.

    It is the cross-entropy from the search's policy and a Huber loss of the value (arXiv 1712.01815, equation 1, which
    has the squared error). Beside it are the size of the errors ``[N]``, which are the priorities, and metrics.
    """

    def loss(params: PyTree, given: tuple[AlphaZeroState, Sample, Array]) -> tuple[Array, tuple[Array, Metrics]]:
        state, sample, target = given
        items: Outcome = sample.items
        logits, value = evaluate(AlphaZeroPolicy(params, state.obs_moments), items.obs)
        log_policy = jax.nn.log_softmax(logits)
        wanted = items.extras.policy
        policy_loss = -jnp.sum(wanted * log_policy, axis=-1)
        error = target - value
        each = policy_loss + config.value_coef * td_errors.huber(error, 1.0)
        mean = lambda x: losses.mean(x, sample.weight > 0)
        return jnp.mean(sample.weight * each), (
            jnp.abs(error),
            {
                "policy_loss": mean(policy_loss),
                "value_loss": mean(td_errors.huber(error, 1.0)),
                "entropy": mean(distributions.categorical(logits.shape[-1]).entropy(logits)),
                "search_entropy": mean(-jnp.sum(jax.scipy.special.xlogy(wanted, wanted), axis=-1)),
                "value": mean(value),
            },
        )

    return loss


Search = Callable[[AlphaZeroPolicy, Situation, Key, bool], tuple[Planned, Searched]]
"""Searches where an agent acts, with the noise of training or without. Returns the results, and the rows of which they
are. Consumes its key."""


def make_search(config: AlphaZeroConfig, env: Env, evaluate: Evaluate) -> Search:
    """Makes the search through copies of the environment."""
    actions = joint_actions.joint_actions(env)
    model = make_model(config, env, evaluate)

    def search(policy: AlphaZeroPolicy, here: Situation, key: Key, explores: bool) -> tuple[Planned, Searched]:
        of = searched(env, here)
        logits, value = evaluate(policy, of.obs)
        begin = Position(of.env_state, of.mover, jnp.zeros(len(value), bool), jnp.zeros(len(value)))
        root = Node(logits, jnp.where(turns(env, of.obs), value, -value), begin)
        return planning.plan(config, model, policy, key, root, actions.legal(of.obs), explores), of

    return search


def recorded(
    env: Env, here: Situation, of: Searched, planned: Planned, number: Array, drawn: PyTree = ()
) -> tuple[PyTree, Extras]:
    """Returns the actions of all rows ``[B]``, by ``number`` ``[N]`` after a search, and what is recorded of it."""
    actions = joint_actions.joint_actions(env)
    number, weights, value, drawn = of.spread((number, planned.policy, planned.value, drawn))
    acts = turns(env, here.obs)
    return actions.action(number), Extras(weights, jnp.where(acts, value, -value), acts, drawn)


Explore = Callable[[AlphaZeroPolicy, Situation, Noise], tuple[PyTree, PyTree, Extras]]


def make_explore(config: AlphaZeroConfig, env: Env, search: Search) -> Explore:
    """Makes the function that acts while training, as `Learner.explore`."""
    actions = joint_actions.joint_actions(env)

    def explore(policy: AlphaZeroPolicy, here: Situation, noise: Noise) -> tuple[PyTree, PyTree, Extras]:
        planned, of = search(policy, here, planning.key_of(noise.search), True)
        uniform = noise.turn[of.rows]
        best = jax.nn.one_hot(planned.action, actions.num)
        number = exploration.epsilon_greedy(best, config.epsilon, uniform, actions.legal(of.obs))
        action, extras = recorded(env, here, of, planned, number, uniform[:, 0] < config.epsilon)
        return action, here.carry, extras

    return explore


def draw_noise(key: Key, shape: tuple[int, ...]) -> Noise:
    """Draws the `Noise` of ``shape`` many rows. Consumes ``key``."""
    key_search, key_turn = jax.random.split(key)
    return Noise(planning.search_noise(key_search, shape), jax.random.uniform(key_turn, (*shape, 2)))


class Acting(NamedTuple):
    """How an agent that plans is evaluated: the functions of a `Learner` of these names."""

    exploit: Callable[[AlphaZeroPolicy, Situation, Key], tuple[PyTree, PyTree]]
    sample: Callable[[AlphaZeroPolicy, Situation, Key], tuple[PyTree, PyTree]]
    search: Callable[[AlphaZeroPolicy, Situation, Key, bool], tuple[PyTree, PyTree, Planned]] | None


def make_acting(config: planning.PlannerSettings, env: Env, search: Search, evaluate: Evaluate) -> Acting:
    """Makes functions that act by a search, or with no simulations by the network alone.

    So does a search in the environment where there are no states.
    """
    actions = joint_actions.joint_actions(env)

    def by_search(policy: AlphaZeroPolicy, here: Situation, key: Key, sample: bool) -> tuple[PyTree, PyTree, Planned]:
        key_search, key_draw = jax.random.split(key) if sample else (key, key)
        planned, of = search(policy, here, key_search, False)
        if sample:
            number = jax.random.categorical(key_draw, of.spread(jnp.log(planned.policy)))
        else:
            number = of.spread(planned.action)
        return actions.action(number), here.carry, planned

    def act(policy: AlphaZeroPolicy, here: Situation, key: Key, sample: bool) -> tuple[PyTree, PyTree]:
        if config.simulations and (jax.tree.leaves(here.env_state) or not config.in_env):
            return by_search(policy, here, key, sample)[:2]
        logits = evaluate(policy, here.obs)[0]
        if sample:
            return actions.action(jax.random.categorical(jax.random.split(key)[1], logits)), here.carry
        return actions.action(jnp.argmax(logits, axis=-1)), here.carry

    return Acting(
        exploit=functools.partial(act, sample=False),
        sample=functools.partial(act, sample=True),
        search=by_search if config.simulations else None,
    )


def make_learner(
    config: AlphaZeroConfig,
    env: Env,
    *,
    network: ActorCritic | nn.Module | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes AlphaZero's `Learner`, which searches before each action where it is given the environment's state.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in, which is also the model of the search.
        network: An `ActorCritic` with logits of ``A`` joint actions, or one Flax Linen module of both; None:
            `make_network`.
        optimiser: An optax transformation; None: Adam.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    optimiser = gradients.given_or_made(optimiser, config)
    actions = joint_actions.joint_actions(env)
    normalizer = normalize.running() if config.normalize_obs else normalize.identity()

    def evaluate(policy: AlphaZeroPolicy, obs: PyTree) -> tuple[Array, Array]:
        """Computes the logits ``[N, A]`` and the values ``[N]`` of observations."""
        seen = normalizer.apply(policy.obs_moments, obs)
        logits, value, _ = network.unroll(policy.params, seen, (), jnp.zeros(()))
        return exploration.masked(logits, actions.legal(obs)), value

    search = make_search(config, env, evaluate)
    acting = make_acting(config, env, search, evaluate)
    loss = make_loss(config, evaluate)

    def init(key: Key, obs: PyTree) -> AlphaZeroState:
        params = network.init(key, obs)
        opt_state = gradients.init_optimiser(optimiser, params)
        return AlphaZeroState(params, opt_state, normalizer.init(trees.take(obs, 0)))

    def update(state: AlphaZeroState, sample: Sample, key: Key) -> Updated:
        items: Outcome = sample.items
        target = items.extras.value
        if config.value_targets == "n-step":
            target = items.reward + items.discount * items.next_extras.value
        params, opt_state, (priority, more), metrics = gradients.gradient_step(
            loss, optimiser, state.params, state.opt_state, (state, sample, target)
        )
        learned = AlphaZeroState(params, opt_state, normalizer.update(state.obs_moments, items.obs))
        return Updated(learned, {**more, **metrics}, priority)

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=draw_noise,
        behaviour=lambda state: AlphaZeroPolicy(state.params, state.obs_moments),
        explore=make_explore(config, env, search),
        policy=lambda state: AlphaZeroPolicy(state.params, normalize.settled(state.obs_moments)),
        exploit=acting.exploit,
        update=update,
        sample=acting.sample,
        search=acting.search,
    )


def positions(config: AlphaZeroConfig, env: Env, rows: np.ndarray | None) -> View:
    """Makes a view of transitions at which the agent of the row acts: of two agents of a game the one whose turn it is.

    A transition ends before a step that truncated its episode, or that was drawn at random, at the value of the search
    that was made there; one that begins with such a step has that value alone.

    Args:
        config: Settings.
        env: Environment to learn in.
        rows: Rows of the fleet that are stored; None: all.
    """
    whole = replay.transitions(config.reward_steps, config.gamma)
    other = opponents(config, env, rows)

    def read(items: Transition, row: Array, env: Array, frames: PyTree) -> tuple[Outcome, Array]:
        items = items._replace(next_obs=(), truncated=items.truncated | items.extras.drawn)
        acts = lambda env: storage.read(items.extras.acts, row, env)
        env = jnp.where(acts(env), env, jnp.asarray(other)[env])
        present = storage.present(items, row, env)
        return whole.read(items, row, env, frames)[0], acts(env) & (True if isinstance(present, tuple) else present)

    return whole._replace(read=read)


def opponents(config: from_replay.ReplayConfig, env: Env, rows: np.ndarray | None) -> np.ndarray:
    """Returns for each stored row the place of the row of the other agent; its own if there is none that is stored.

    Arguments are those of `positions`.
    """
    stored = np.arange(config.num_envs * env.num_agents) if rows is None else np.asarray(rows)
    place = {int(row): i for i, row in enumerate(stored)}
    partner = (lambda row: row ^ 1) if env.num_agents > 1 else (lambda row: row)
    return np.array([place.get(partner(int(row)), i) for i, row in enumerate(stored)], np.int32)


def make_trainer(config: AlphaZeroConfig, env: Env, learner: Learner) -> Trainer:
    """Makes one iteration as a `Trainer`."""
    return from_replay.make_trainer(config, env, learner, view=positions(config, env, learner.rows))


BOARD = {"gamma": 1.0, "n_step": 64, "epsilon": 0.1, "rescale_values": False}
"""For games of two that end with a reward of 1, 0 or -1, whose outcome the value learns.

Random turns and values as they are keep training from always playing the same of many drawn games.
"""

alphazero = Algorithm(
    "alphazero",
    AlphaZeroConfig,
    problems,
    make_learner,
    make_trainer,
    sockets=("optimiser",),
    presets={"board": BOARD},
)
