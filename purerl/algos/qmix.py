"""QMIX (Rashid et al. 2018, arXiv 1803.11485): a team's value is a monotonic function of its agents' action values.

The function's weights depend on the state. Because it is monotonic, the agents' greedy actions together are the team's
greedy action. The agents share one network, in which each sees its own observations, which agent it is and its previous
action. They act epsilon-greedily, each by its own values, and learn as DQN does, from sequences (section 4 and appendix
C). Environments are those of `agents.joint`. Independent Q-learning and value decomposition networks are the same with
another mixer.

``M`` agents, ``A`` actions of each, ``G`` values of a mixer.
"""

from typing import TypedDict, Unpack

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import draw, networks, replay, trees
from purerl.algos.algorithm import Algorithm
from purerl.envs import agents
from purerl.formulas import exploration
from purerl.learners.families import action_values
from purerl.learners.families.action_values import ActionValueBehaviour, ActionValueState
from purerl.learners.parts import checks, from_replay, many_agents, sequences, settings
from purerl.networks import mixers, recurrent
from purerl.networks.given import given_or_own
from purerl.networks.mixers import Mixer
from purerl.networks.recurrent import Recurrent
from purerl.networks.value_networks import Streams
from purerl.spaces import Discrete
from purerl.types import Array, Env, Key, Learner, Metrics, PyTree, Sample, Situation, Trainer, Transition, Updated


@cfg.config(
    num_steps=16,
    num_updates=4,
    batch_size=32,
    burn_in=0,
    n_step=1,
    target_period=200,
    learning_rate=5e-4,
    memory="gru",
    hidden_sizes=(64, 64),
)
class TeamConfig(many_agents.Numbers, settings.Recall, sequences.Sequences, action_values.ActionValueConfig):
    """Settings of a team that learns action values."""

    last_action: bool = True
    """Add each agent's last action to its observation."""


@cfg.config
class QMIXConfig(TeamConfig):
    """Settings of QMIX."""

    mixer_size: cfg.Count = 32
    """Width of the hidden layer of the mixer."""
    hyper_size: cfg.NonNegativeCount = 64
    """Width of the hidden layer of the networks that compute the mixer's weights. 0: no hidden layer."""


def view(config: TeamConfig, env: Env) -> Env:
    """Returns ``env`` with all agents as one (`agents.joint`).

    With ``last_action`` its observations hold the agents' previous actions.
    """
    return agents.joint(env, previous=config.last_action)


def problems(config: TeamConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions must be Discrete.
    """
    problems = checks.space_problems(env, (Discrete,))
    joint = None if problems or env is None else view(config, env)
    problems += settings.with_head_problems(config) + settings.torso_problems(config, joint)
    problems += action_values.lag_problems(config)
    return problems + from_replay.problems(config, joint) + sequences.problems(config, config.num_steps)


def make_network(config: TeamConfig, env: Env) -> Recurrent:
    """Makes the agents' network.

    It reads joint observations and returns action values ``[..., M, A]``, with carries ``[..., M, ...]``.
    """
    team = many_agents.team(env)
    space, inputs = many_agents.inputs(env, config.agent_ids, config.last_action)
    torso = settings.make_torso(config, env._replace(observation_space=space), config.hidden_sizes[:-1])
    activation = networks.ACTIVATIONS[config.activation]
    head = Streams(team.num_actions, config.hidden_sizes[-1], activation, config.dueling)
    network = recurrent.recurrent(torso, settings.make_memory(config), head)
    return recurrent.legal_only(recurrent.rows(network, inputs, team.num_agents), team.legal)


class TeamParts(TypedDict, total=False):
    """Parts of a team's learner: arguments of `make_team_learner`."""

    network: Recurrent | None
    optimiser: optax.GradientTransformation | None


def make_learner(config: QMIXConfig, env: Env, **parts: Unpack[TeamParts]) -> Learner:
    """Makes QMIX's `Learner` of a joint environment; the parts are those of `make_team_learner`."""
    return make_team_learner(config, env, mixers.monotonic(config.mixer_size, config.hyper_size), **parts)


def make_team_learner(
    config: TeamConfig,
    env: Env,
    mixer: Mixer,
    *,
    network: Recurrent | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes a `Learner` of a joint environment.

    Args:
        config: Settings of the algorithm.
        env: A joint environment.
        mixer: Computes the team's values from those of its agents.
        network: A `recurrent.Recurrent` of joint observations whose output is ``[B, M, A]``; None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    network = given_or_own(network, make_network(config, env), env.observation_space)
    learning = action_values.q_learning(config, env, optimiser)
    replayed = sequences.ReplayedSequences(config, network)
    team = many_agents.team(env)

    def init(key: Key, obs: PyTree) -> ActionValueState:
        key_agents, key_mixer = jax.random.split(key)
        q = jnp.zeros((trees.length(obs), team.num_agents))
        params = {"agents": network.init(key_agents, obs), "mixer": mixer.init(key_mixer, q, team.state(obs))}
        return learning.init_state(params)

    def explore(behaviour: ActionValueBehaviour, here: Situation, noise: Array):
        q, following = network.step(behaviour.params, here.obs, here.carry)
        epsilon = learning.epsilons(behaviour, q.shape[0])[:, None]
        return exploration.epsilon_greedy(q, epsilon, noise, team.legal(here.obs)), following, here.carry

    def exploit(policy: PyTree, here: Situation, key: Key):
        q, carry = network.step(policy, here.obs, here.carry)
        return jnp.argmax(q, axis=-1).astype(jnp.int32), carry

    def values(params: PyTree, items: Transition) -> tuple[Array, Array]:
        return replayed.unroll(params["agents"], items)

    def mixed(params: PyTree, q: Array, obs: PyTree) -> Array:
        """Returns the values ``[..., G]`` of the team, to which an agent that is out of the game adds nothing."""
        q = jnp.where(team.present(obs), q, 0.0) if team.present else q
        return mixer.mix(params["mixer"], q, team.state(obs))

    def counted(action: Array, obs: PyTree) -> Array:
        """Returns actions ``[..., M]`` with the first legal one in place of those that are ignored.

        Where an agent does not act, it has one value, which it learns like others, so that its earlier actions
        bootstrap from it.
        """
        if team.acting is None:
            return action
        legal = team.legal(obs)
        first = jnp.zeros_like(action) if legal is None else jnp.argmax(legal, axis=-1).astype(action.dtype)
        return jnp.where(team.acting(obs), action, first)

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        items, weight, target_params, target_q = batch
        q = values(params, items)
        obs = jax.tree.map(lambda x: x[config.burn_in :], items.obs)
        chooser, observations = jax.lax.stop_gradient(q) if config.double else target_q, (obs, items.next_obs.obs)
        value, after_cut = (
            mixed(target_params, _at(of, counted(jnp.argmax(by, axis=-1), obs)), obs)
            for by, of, obs in zip(chooser, target_q, observations, strict=True)
        )
        target, learned = jax.vmap(
            lambda value, after: replayed.targets(items, value, after, config.gamma, config.n_step),
            in_axes=-1,
            out_axes=-1,
        )(value, after_cut)  # [L, N, G]
        taken = mixed(params, _at(q[0], counted(items.action[config.burn_in :], obs)), obs)
        if team.present and taken.shape[-1] > 1:
            learned &= team.present(obs)
        error = jnp.where(learned, target - taken, 0.0)
        mean_size = jnp.sum(jnp.abs(error), axis=(0, 2)) / jnp.maximum(jnp.sum(learned, axis=(0, 2)), 1)
        each = jnp.sum(jnp.mean(jnp.square(error), axis=0), axis=-1)
        metrics = {"value": jnp.mean(taken), "td_error": jnp.mean(weight * mean_size)}
        return jnp.mean(weight * 0.5 * each), (mean_size, metrics)

    def update(state: ActionValueState, sample: Sample, key: Key) -> Updated:
        target_q = values(state.target_params, sample.items)
        batch = sample.items, sample.weight, state.target_params, target_q
        return learning.step(loss, state, batch)

    return Learner(
        init=init,
        init_carry=network.init_carry,
        noise=lambda key, shape: draw.uniform(key, (*shape, team.num_agents, 2)),
        behaviour=lambda state: learning.behaviour(state.params["agents"], state.updates),
        explore=explore,
        policy=lambda state: state.params["agents"],
        exploit=exploit,
        update=update,
    )


def _at(q: Array, action: Array) -> Array:
    """Picks the values ``[...]`` of actions ``[...]`` from ``[..., A]``."""
    return jnp.take_along_axis(q, action[..., None], axis=-1)[..., 0]


def make_trainer(config: TeamConfig, env: Env, learner: Learner) -> Trainer:
    """Makes one iteration as a `Trainer` that learns from sequences."""
    return action_values.make_trainer(config, env, learner, view=replay.sequences(config.sample_rows, config.period))


qmix = Algorithm(
    "qmix",
    QMIXConfig,
    problems,
    make_learner,
    make_trainer,
    view=view,
)
