"""Never Give Up (Badia et al. 2020, arXiv 2002.06038): recurrent action values of a family of policies.

Each of ``N`` policies adds a bonus for novelty to its rewards, with a weight of its own, from none (policy 0, which is
evaluated) to the largest. So exploring never ends. Sequences are replayed as in R2D2, and targets are Retrace's,
rescaled (appendix E).

The novelty of an observation is computed when it is acted upon, one step after the reward that it comes with. So the
last observation of an episode, upon which no actor acts, has no bonus.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import config as cfg
from purerl import draw, networks, shards, trees
from purerl.algos import r2d2
from purerl.algos.algorithm import Algorithm
from purerl.formulas import exploration, td_errors
from purerl.formulas import novelty as formulas
from purerl.learners.families import action_values
from purerl.learners.families.action_values import ActionValueState, QLearning
from purerl.learners.parts import novelty, sequences, settings
from purerl.learners.parts.joint_actions import joint_actions
from purerl.networks import recurrent
from purerl.networks.given import given_or_own
from purerl.networks.recurrent import Recurrent
from purerl.networks.torsos import Informed
from purerl.networks.value_networks import Streams
from purerl.replay.views import Cut
from purerl.spaces import Box, Discrete, Space
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
    Step,
    Transition,
    Updated,
)

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


RETRACE = cfg.Needs("targets over n steps, which these are not: see trace_lambda", lambda config: False)


@cfg.config
class NGUConfig(NoveltySettings, r2d2.R2D2Config):
    """Settings of Never Give Up."""

    gamma: Annotated[float, cfg.Range(0, 1)] = 0.997
    """Discount factor per step of the policy without an intrinsic reward; below 1."""
    gamma_end: Annotated[float, cfg.Range(0, 1)] = 0.99
    """Discount factor per step of the policy with the largest intrinsic reward; below 1."""
    trace_lambda: cfg.Fraction = 0.95
    """Trace parameter (lambda) of Retrace's targets."""
    n_step: Annotated[cfg.Count, RETRACE] = 5
    """Not used: Retrace's targets have no fixed number of steps."""
    memory: Literal["none", "gru", "lstm", "lru", "gtrxl"] = "lstm"  # type: ignore[assignment]  # wider than R2D2's
    """Recurrent layer between the torso and the head."""


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

    ``memory`` is that of its network, ``inputs`` the network's next inputs. ``episode`` holds what it remembers of the
    episode (`novelty.Episode`, or ``()``), and ``control`` is the controller's state. ``begins`` says whether an
    episode begins, and ``total`` ``[B]`` is the sum of rewards since then.
    """

    memory: PyTree
    inputs: NetworkInputs
    episode: PyTree
    control: PyTree
    begins: Array
    total: Array


class PolicyFamilyState(NamedTuple):
    """The learner's state: action values, and the states of `novelty.Embedding` and `novelty.Distilled`, or ``()``."""

    values: ActionValueState
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
Learn = Callable[[ActionValueState, Experience, Array], Updated]
"""A function of ``(values, experience, weight [N])`` that returns values, metrics and priorities ``[N]``."""


def problems(config: NGUConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each."""
    problems = action_values.problems(config, env) + sequences.problems(config, config.num_steps)
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


def input_space(config: NGUConfig, env: Env) -> Space:
    """Returns the space of what the network sees: ``(obs, NetworkInputs)``."""
    reward = Box(-np.inf, np.inf, (), jnp.float32)
    action = Box(-1, joint_actions(env).num - 1, (), jnp.int32)
    return env.observation_space, NetworkInputs._make([action, reward, reward, Discrete(config.num_policies)])


def make_network(config: NGUConfig, env: Env) -> Recurrent:
    """Makes R2D2's network with more inputs beside the torso's features.

    These are the action, the rewards (rescaled) and the policy's number (`NetworkInputs`).
    """
    num_actions = joint_actions(env).num

    def describe(inputs: NetworkInputs) -> Array:
        rewards = td_errors.rescale(jnp.stack([inputs.extrinsic, inputs.intrinsic], axis=-1), config.rescale_epsilon)
        numbers = jax.nn.one_hot(inputs.action, num_actions), jax.nn.one_hot(inputs.policy, config.num_policies)
        return jnp.concatenate([*numbers, rewards], axis=-1)

    torso = Informed(settings.make_torso(config, env, config.hidden_sizes[:-1]), describe)
    activation = networks.ACTIVATIONS[config.activation]
    head = Streams(num_actions, config.hidden_sizes[-1], activation, config.dueling)
    network = recurrent.recurrent(torso, settings.make_memory(config), head)
    legal = env.legal
    return recurrent.legal_only(network, lambda seen: joint_actions(env).legal(seen[0])) if legal else network


def make_learner(
    config: NGUConfig,
    env: Env,
    *,
    network: Recurrent | None = None,
    optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """Makes Never Give Up's `Learner`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A `recurrent.Recurrent` of ``(obs, NetworkInputs)`` whose output is ``[B, A]``; None:
            `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
    """
    network = given_or_own(network, make_network(config, env), input_space(config, env))
    learning = action_values.q_learning(config, env, optimiser)
    replayed = sequences.ReplayedSequences(config, network)

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        experience, weight, target_q = batch
        items = experience.items
        q = replayed.unroll(params, items)
        chooser = jax.lax.stop_gradient(q) if config.double else target_q
        best, best_after_cut = (jnp.argmax(x, axis=-1) for x in chooser)
        value = at(config, target_q[0], best)
        after_cut = at(config, target_q[1], best_after_cut)
        beta = formulas.betas(config.num_policies, config.intrinsic_scale)[experience.policy]
        gamma = formulas.gammas(config.num_policies, config.gamma, config.gamma_end)[experience.policy]
        target, learned = replayed.retrace_targets(
            items,
            reward=items.reward[config.burn_in :] + beta * experience.intrinsic,
            discount=gamma * (1 - items.terminated[config.burn_in :]),
            taken=at(config, target_q[0], experience.number),
            value=value,
            after_cut=after_cut,
            trace=config.trace_lambda * (best == experience.number),
        )
        taken = jnp.take_along_axis(q[0], experience.number[..., None], axis=-1)[..., 0]
        error = td_errors.rescale(target, config.rescale_epsilon) - taken
        total, priority, td_error = sequences.squared(config.priority_mix, error, learned, weight)
        most = td_errors.unrescale(jnp.max(q[0], axis=-1), config.rescale_epsilon)
        return total, (priority, {"value": jnp.mean(most), "td_error": td_error})

    def learn(values: ActionValueState, experience: Experience, weight: Array):
        target_q = replayed.unroll(values.target_params, experience.items)
        return learning.step(loss, values, (experience, weight, target_q))

    controller = fixed_controller(config.num_policies)
    return make_family_learner(config, env, network, learning, lambda q, policy: q, learn, controller)


def at(config: NGUConfig, q: Array, number: Array) -> Array:
    """Returns the values ``[...]`` of actions ``[...]``, undoing the rescaling of the action values ``[..., A]``."""
    return td_errors.unrescale(jnp.take_along_axis(q, number[..., None], axis=-1)[..., 0], config.rescale_epsilon)


def fixed_controller(num_policies: int) -> Controller:
    """Makes a controller by which each actor keeps one policy: actor ``i`` has number ``i % N``."""
    return Controller(
        init=lambda num_envs: (),
        choose=lambda control, noise, actor: actor % num_policies,
        record=lambda control, policy, total, last: control,
    )


def make_family_learner(
    config: NGUConfig,
    env: Env,
    network: Recurrent,
    learning: QLearning,
    read: Read,
    learn: Learn,
    controller: Controller,
) -> Learner:
    """Makes the `Learner` of Never Give Up and of what extends it.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: A recurrent network of ``(obs, NetworkInputs)``.
        learning: How the action values are acted by and learned.
        read: Reads the network's output as action values.
        learn: Takes an update of the action values.
        controller: Chooses the actors' policies.
    """
    actions = joint_actions(env)
    new = make_novelty(config, env)

    def init_carry(num_envs: int) -> PolicyFamilyCarry:
        zeros = jnp.zeros(num_envs)
        numbers = jnp.full(num_envs, -1, jnp.int32), zeros, zeros, jnp.zeros(num_envs, jnp.int32)
        return PolicyFamilyCarry(
            memory=network.init_carry(num_envs),
            inputs=NetworkInputs(*numbers),
            episode=new.init_episode(num_envs),
            control=controller.init(num_envs),
            begins=jnp.ones(num_envs, bool),
            total=zeros,
        )

    def init(key: Key, obs: PyTree) -> PolicyFamilyState:
        key_values, key_novelty = jax.random.split(key)
        seen = obs, init_carry(trees.length(obs)).inputs
        values = learning.init_state(network.init(key_values, seen))
        return PolicyFamilyState(values, *new.init(key_novelty, obs))

    def step(
        policy: PolicyFamilyPolicy, here: Situation, which: Array
    ) -> tuple[Array, NetworkInputs, PolicyFamilyCarry]:
        """Returns action values, the `NetworkInputs`, and the carry, which lacks the action."""
        carry: PolicyFamilyCarry = here.carry
        intrinsic, episode = new.pay(policy.judges, here.obs, carry.episode)
        inputs = carry.inputs._replace(intrinsic=intrinsic, policy=which)
        out, memory = network.step(policy.params, (here.obs, inputs), carry.memory)
        following = carry._replace(memory=memory, inputs=inputs, episode=episode, begins=jnp.zeros_like(carry.begins))
        return read(out, which), inputs, following

    def noise(key: Key, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Draws uniform numbers, and adds the row's number among all actors, of which a call may hold only a part."""
        return draw.uniform(key, (*shape, 4)), jnp.broadcast_to(shards.numbers(shape[-1]), shape)

    def explore(behaviour: PolicyFamilyBehaviour, here: Situation, noise: tuple[Array, Array]):
        carry: PolicyFamilyCarry = here.carry
        drawn, actor = noise
        which = jnp.where(carry.begins, controller.choose(carry.control, drawn[:, 2:], actor), carry.inputs.policy)
        q, inputs, following = step(PolicyFamilyPolicy(behaviour.values.params, behaviour.judges), here, which)
        epsilon = learning.epsilons(behaviour.values, q.shape[0])
        number = exploration.epsilon_greedy(q, epsilon, drawn[:, :2], actions.legal(here.obs))
        following = following._replace(inputs=following.inputs._replace(action=number))
        return actions.action(number), following, Recorded(carry.memory, inputs)

    def exploit(policy: PolicyFamilyPolicy, here: Situation, key: Key):
        q, _, following = step(policy, here, jnp.zeros_like(here.carry.inputs.policy))
        number = jnp.argmax(q, axis=-1).astype(jnp.int32)
        return actions.action(number), following._replace(inputs=following.inputs._replace(action=number))

    def restart(carry: PolicyFamilyCarry, step: Step) -> PolicyFamilyCarry:
        last, total = step.last, carry.total + step.reward
        ended = last if isinstance(step.present, tuple) else last & step.present
        inputs = carry.inputs._replace(
            action=jnp.where(last, -1, carry.inputs.action), extrinsic=jnp.where(last, 0.0, step.reward)
        )
        return PolicyFamilyCarry(
            memory=trees.restart(carry.memory, network.init_carry(len(last)), last),
            inputs=inputs,
            episode=new.begin(carry.episode, last),
            control=controller.record(carry.control, inputs.policy, total, ended),
            begins=last,
            total=jnp.where(last, 0.0, total),
        )

    def judges(state: PolicyFamilyState) -> Judges:
        embedding = state.embedding.params if state.embedding else ()
        return Judges(embedding, state.distilled.judge if state.distilled else ())

    def behaviour(state: PolicyFamilyState) -> PolicyFamilyBehaviour:
        return PolicyFamilyBehaviour(learning.behaviour(state.params, state.values.updates), judges(state))

    def update(state: PolicyFamilyState, sample: Sample, key: Key) -> Updated:
        experience = prepare(config, actions.number, sample.items)
        values, metrics, priority = learn(state.values, experience, sample.weight)
        tail = novelty_batch(config, actions.number, sample)
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


def prepare(config: NGUConfig, number_of: Callable[[Array], Array], items: Transition) -> Experience:
    """Prepares the items of a sample for learning.

    The novelty of the observation after a `Cut` was never computed. There the network gets the inputs of the step
    before, and the intrinsic reward is 0.

    Args:
        config: Settings of the algorithm.
        number_of: Converts actions to their numbers.
        items: Sequences of a replay ``[L, N]``.
    """
    inputs: NetworkInputs = items.extras.every
    number, last = number_of(items.action), items.last
    following = jnp.concatenate([inputs.intrinsic[1:], jnp.zeros_like(inputs.intrinsic[:1])])
    at = jnp.maximum(items.next_obs.step, 0), jnp.arange(last.shape[1])
    after = NetworkInputs(number[at], items.reward[at], inputs.intrinsic[at], inputs.policy[at])
    changed = items._replace(
        obs=(items.obs, inputs),
        next_obs=Cut(items.next_obs.step, (items.next_obs.obs, after)),
        extras=items.extras.first,
    )
    learned = (number, jnp.where(last, 0.0, following), inputs.policy)
    return Experience(changed, *(x[config.burn_in :] for x in learned))


def novelty_batch(config: NGUConfig, number_of: Callable[[Array], Array], sample: Sample) -> tuple[PyTree, ...]:
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


def make_novelty(config: NGUConfig, env: Env) -> Novelty:
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


ngu = Algorithm(
    "ngu",
    NGUConfig,
    problems,
    make_learner,
    r2d2.make_trainer,
)
