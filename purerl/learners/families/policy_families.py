"""A family of policies in one network: from one that seeks reward alone to one that seeks what is new.

Never Give Up (Badia et al. 2020, arXiv 2002.06038) and Agent57 (arXiv 2003.13350) share this: which actor plays which
policy, the network's inputs beside the observation, the bonus for novelty, and learning what is new. An algorithm
defines how it reads the network's output as action values and how these are learned. There are ``N`` policies; number 0
seeks no novelty and is the one that is evaluated.

The novelty of an observation is computed when it is acted upon, one step after the reward that it comes with. So the
last observation of an episode, upon which no actor acts, has no bonus.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import config as cfg
from purerl import draw, networks, shards, trees
from purerl.formulas import exploration, td_errors
from purerl.learners.families import action_values, family_novelty
from purerl.learners.families.family_novelty import Judges
from purerl.learners.parts import sequences, settings
from purerl.learners.parts.joint_actions import joint_actions
from purerl.networks import recurrent
from purerl.networks.recurrent import Recurrent
from purerl.networks.torsos import Informed
from purerl.networks.value_networks import Streams
from purerl.replay.views import Cut
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env, Key, Learner, PyTree, Recorded, Sample, Situation, Step, Transition, Updated


class NetworkInputs(NamedTuple):
    """The network's inputs beside an observation, all ``[...]``.

    They are the number of the action that led there (-1 where an episode begins), the extrinsic and the intrinsic
    reward that came with it, and the number of the policy that acts (int32).
    """

    action: Array
    extrinsic: Array
    intrinsic: Array
    policy: Array


class PolicyFamilyCarry(NamedTuple):
    """What an actor carries from step to step.

    ``memory`` is that of its network, ``told`` the network's next inputs. ``episode`` holds what it remembers of the
    episode (`novelty.Episode`, or ``()``), and ``control`` is the controller's state. ``begins`` says whether an
    episode begins, and ``total`` ``[B]`` is the sum of rewards since then.
    """

    memory: PyTree
    told: NetworkInputs
    episode: PyTree
    control: PyTree
    begins: Array
    total: Array


class PolicyFamilyState(NamedTuple):
    """The learner's state: action values, and the states of `novelty.Embedding` and `novelty.Distilled`, or ``()``."""

    values: action_values.ActionValueState
    embedding: PyTree
    distilled: PyTree

    @property
    def params(self) -> PyTree:
        """The parameters of the action values."""
        return self.values.params


class PolicyFamilyPolicy(NamedTuple):
    """What the evaluated policy needs."""

    params: PyTree
    judges: Judges


class PolicyFamilyBehaviour(NamedTuple):
    """What acting needs: how the action values act, and what recognises novelty."""

    values: action_values.ActionValueBehaviour
    judges: Judges


class Controller(NamedTuple):
    """The choice of each actor's policy, as pure functions.

    ``record`` is called at the end of an episode, and ``choose`` where one begins.
    """

    init: Callable[[int], PyTree]  # (num_envs) -> control
    choose: Callable[[PyTree, Array, Array], Array]  # (control, noise [B, 2], number of the actor [B]) -> policy [B]
    record: Callable[[PyTree, Array, Array, Array], PyTree]  # (control, policy, total reward, last) -> control


class Experience(NamedTuple):
    """A sample as it is learned from.

    The network sees ``(obs, NetworkInputs)`` of ``items`` ``[L, N]``. The other fields are those of the steps after the
    burn-in: the number of the action, the intrinsic reward and the policy.
    """

    items: Transition
    number: Array
    intrinsic: Array
    policy: Array


Read = Callable[[PyTree, Array], Array]
"""A function ``(out [..., A, ...], policy [...]) -> q [..., A]``: the values by which a policy chooses."""
Learn = Callable[[action_values.ActionValueState, Experience, Array], Updated]
"""A function of ``(values, experience, weight [N])`` that returns values, metrics and priorities ``[N]``."""


def problems(config: Any, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each."""
    problems = action_values.problems(config, env) + sequences.problems(config)
    if not cfg.sound(config, "num_policies", "neighbours", "episode_memory", "novelty_steps", "burn_in", "unroll"):
        return problems
    if config.num_policies < 2:
        problems.append(f"num_policies = {config.num_policies}: must be at least 2")
    if config.novelty != "lifelong" and config.neighbours > config.episode_memory:
        problems.append(f"neighbours = {config.neighbours}: must be at most episode_memory = {config.episode_memory}")
    if config.novelty_steps >= config.sample_rows:
        problems.append(
            f"novelty_steps = {config.novelty_steps}: must be below burn_in + unroll = {config.sample_rows}, "
            "since each needs its next observation"
        )
    return problems


def input_space(config: Any, env: Env) -> Space:
    """Returns the space of what the network sees: ``(obs, NetworkInputs)``."""
    reward = Box(-np.inf, np.inf, (), jnp.float32)
    action = Box(-1, joint_actions(env).num - 1, (), jnp.int32)
    return env.observation_space, NetworkInputs._make([action, reward, reward, Discrete(config.num_policies)])


def make_network(config: Any, env: Env) -> Recurrent:
    """Makes R2D2's network with more inputs beside the torso's features.

    These are the action, the rewards (rescaled) and the policy's number (`NetworkInputs`).
    """
    num_actions = joint_actions(env).num

    def describe(told: NetworkInputs) -> Array:
        rewards = td_errors.rescale(jnp.stack([told.extrinsic, told.intrinsic], axis=-1), config.rescale_epsilon)
        numbers = jax.nn.one_hot(told.action, num_actions), jax.nn.one_hot(told.policy, config.num_policies)
        return jnp.concatenate([*numbers, rewards], axis=-1)

    torso = Informed(settings.make_torso(config, env, config.hidden_sizes[:-1]), describe)
    activation = networks.ACTIVATIONS[config.activation]
    head = Streams(num_actions, config.hidden_sizes[-1], activation, config.dueling)
    network = recurrent.recurrent(torso, settings.make_memory(config), head)
    legal = env.legal
    return recurrent.legal_only(network, lambda inputs: joint_actions(env).legal(inputs[0])) if legal else network


def fixed(num_policies: int) -> Controller:
    """Makes a controller by which each actor keeps one policy: actor ``i`` has number ``i % N``."""
    return Controller(
        init=lambda num_envs: (),
        choose=lambda control, noise, actor: actor % num_policies,
        record=lambda control, policy, total, last: control,
    )


def make_learner(
    config: Any, env: Env, network: Recurrent, optimiser: Any, read: Read, learn: Learn, controller: Controller
) -> Learner:
    """Makes a `Learner` of a family.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A recurrent network of ``(obs, NetworkInputs)``.
        optimiser: An optax transformation for the action values.
        read: Reads the network's output as action values.
        learn: Takes an update of the action values.
        controller: Chooses the actors' policies.
    """
    actions, new = joint_actions(env), family_novelty.make_novelty(config, env)

    def init_carry(num_envs: int) -> PolicyFamilyCarry:
        zeros = jnp.zeros(num_envs)
        numbers = jnp.full(num_envs, -1, jnp.int32), zeros, zeros, jnp.zeros(num_envs, jnp.int32)
        return PolicyFamilyCarry(
            memory=network.init_carry(num_envs),
            told=NetworkInputs(*numbers),
            episode=new.init_episode(num_envs),
            control=controller.init(num_envs),
            begins=jnp.ones(num_envs, bool),
            total=zeros,
        )

    def init(key: Key, obs: PyTree) -> PolicyFamilyState:
        key_values, key_novelty = jax.random.split(key)
        inputs = obs, init_carry(trees.length(obs)).told
        values = action_values.init_state(config, optimiser, network.init(key_values, inputs))
        return PolicyFamilyState(values, *new.init(key_novelty, obs))

    def step(
        policy: PolicyFamilyPolicy, here: Situation, which: Array
    ) -> tuple[Array, NetworkInputs, PolicyFamilyCarry]:
        """Returns action values, the `NetworkInputs`, and the carry, which lacks the action."""
        carry: PolicyFamilyCarry = here.carry
        intrinsic, episode = new.pay(policy.judges, here.obs, carry.episode)
        told = carry.told._replace(intrinsic=intrinsic, policy=which)
        out, memory = network.step(policy.params, (here.obs, told), carry.memory)
        following = carry._replace(memory=memory, told=told, episode=episode, begins=jnp.zeros_like(carry.begins))
        return read(out, which), told, following

    def noise(key: Key, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Draws uniform numbers, and adds the row's number among all actors, of which a call may hold only a part."""
        return draw.uniform(key, (*shape, 4)), jnp.broadcast_to(shards.numbers(shape[-1]), shape)

    def explore(behaviour: PolicyFamilyBehaviour, here: Situation, noise: tuple[Array, Array]):
        carry: PolicyFamilyCarry = here.carry
        drawn, actor = noise
        which = jnp.where(carry.begins, controller.choose(carry.control, drawn[:, 2:], actor), carry.told.policy)
        q, told, following = step(PolicyFamilyPolicy(behaviour.values.params, behaviour.judges), here, which)
        epsilon = action_values.epsilons(config, behaviour.values, q.shape[0])
        number = exploration.epsilon_greedy(q, epsilon, drawn[:, :2], actions.legal(here.obs))
        following = following._replace(told=following.told._replace(action=number))
        return actions.action(number), following, Recorded(carry.memory, told)

    def exploit(policy: PolicyFamilyPolicy, here: Situation, key: Key):
        q, _, following = step(policy, here, jnp.zeros_like(here.carry.told.policy))
        number = jnp.argmax(q, axis=-1).astype(jnp.int32)
        return actions.action(number), following._replace(told=following.told._replace(action=number))

    def restart(carry: PolicyFamilyCarry, step: Step) -> PolicyFamilyCarry:
        last, total = step.last, carry.total + step.reward
        ended = last if isinstance(step.present, tuple) else last & step.present
        told = carry.told._replace(
            action=jnp.where(last, -1, carry.told.action), extrinsic=jnp.where(last, 0.0, step.reward)
        )
        return PolicyFamilyCarry(
            memory=trees.restart(carry.memory, network.init_carry(len(last)), last),
            told=told,
            episode=new.begin(carry.episode, last),
            control=controller.record(carry.control, told.policy, total, ended),
            begins=last,
            total=jnp.where(last, 0.0, total),
        )

    def judges(state: PolicyFamilyState) -> Judges:
        embedding = state.embedding.params if state.embedding else ()
        return Judges(embedding, state.distilled.judge if state.distilled else ())

    def behaviour(state: PolicyFamilyState) -> PolicyFamilyBehaviour:
        return PolicyFamilyBehaviour(action_values.behaviour(config, state.params, state.values.updates), judges(state))

    def update(state: PolicyFamilyState, sample: Sample, key: Key) -> Updated:
        experience = experienced(config, actions.number, sample.items)
        values, metrics, priority = learn(state.values, experience, sample.weight)
        tail = _tail(config, actions.number, sample)
        embedding, distilled, more = new.update(state.embedding, state.distilled, *tail)
        more["intrinsic_reward"] = jnp.mean(experience.intrinsic)
        return Updated(PolicyFamilyState(values, embedding, distilled), {**metrics, **more}, priority)

    return Learner(
        init=init,
        init_carry=init_carry,
        noise=noise,
        behaviour=behaviour,
        explore=explore,
        policy=lambda state: PolicyFamilyPolicy(state.params, judges(state)),
        exploit=exploit,
        update=update,
        restart=restart,
    )


def experienced(config: Any, number_of: Callable[[Array], Array], items: Transition) -> Experience:
    """Prepares the items of a sample for learning.

    The novelty of the observation after a `Cut` was never computed. There the network gets the inputs of the step
    before, and the intrinsic reward is 0.

    Args:
        config: Settings of the algorithm.
        number_of: Converts actions to their numbers.
        items: Sequences of a replay ``[L, N]``.
    """
    told: NetworkInputs = items.extras.every
    number, last = number_of(items.action), items.last
    following = jnp.concatenate([told.intrinsic[1:], jnp.zeros_like(told.intrinsic[:1])])
    at = jnp.maximum(items.next_obs.step, 0), jnp.arange(last.shape[1])
    after = NetworkInputs(number[at], items.reward[at], told.intrinsic[at], told.policy[at])
    changed = items._replace(
        obs=(items.obs, told),
        next_obs=Cut(items.next_obs.step, (items.next_obs.obs, after)),
        extras=items.extras.first,
    )
    learned = (number, jnp.where(last, 0.0, following), told.policy)
    return Experience(changed, *(sequences.late(config, x) for x in learned))


def _tail(config: Any, number_of: Callable[[Array], Array], sample: Sample) -> tuple[PyTree, ...]:
    """Returns the last steps of each sequence as one batch ``[F]``.

    It holds observations, the next observations, numbers of actions, weights that are 0 where the next observation is
    of another episode, and weights.
    """
    items, num = sample.items, config.novelty_steps
    cut = lambda tree, start, end: jax.tree.map(lambda x: x[start:end], tree)
    weight = jnp.broadcast_to(sample.weight[None], (num, len(sample.weight)))
    if not isinstance(items.present, tuple):
        weight = weight * cut(items.present, -num - 1, -1)
    last, action = cut((items.last, items.action), -num - 1, -1)
    steps = cut(items.obs, -num - 1, -1), cut(items.obs, -num, None), number_of(action), jnp.where(last, 0, weight)
    return trees.merge((*steps, weight), 2)
