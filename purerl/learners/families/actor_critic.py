"""What the actor-critics share: the agent, with a network, a memory and normalised inputs, and its learner.

An algorithm's file has its settings, its loss, its estimates and its steps. It makes an `Agent`, and writes
``update(state, steps, key)``, which learns from the `Steps` of a trajectory; `Agent.learner` does the rest.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl import networks, spaces, trees
from purerl.envs import agents, seats
from purerl.formulas import distributions, losses
from purerl.formulas.returns import Columns, Estimate
from purerl.learners.parts import checks, gradients, normalize, reuse, settings, stale_actors
from purerl.learners.parts.normalize import Normalizer, RewardScaler
from purerl.learners.parts.reuse import ReuseSettings
from purerl.learners.parts.stale_actors import StaleActorSettings
from purerl.names import tell_once
from purerl.networks import ActorCritic, recurrent
from purerl.networks.given import Fitting, given_or_own
from purerl.networks.heads import PolicyAndValue, SharedTorso, shared_actor_critic
from purerl.networks.torsos import OnPart
from purerl.types import (
    Array,
    Distribution,
    Env,
    Key,
    Learner,
    PyTree,
    Situation,
    Transition,
    Updated,
)


@cfg.config
class ActorCriticConfig(
    StaleActorSettings, ReuseSettings, settings.Recall, settings.Torso, settings.Adam, settings.OnPolicy
):
    """Settings of an actor and its critic."""

    offers: ClassVar[tuple[str, ...]] = (settings.LOG_RATIOS,)
    adam_epsilon: ClassVar[float] = 1e-5
    value_coef: cfg.NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: cfg.NonNegative = 0.01
    """Weight of the entropy bonus."""
    normalize_obs: bool = False
    """Normalise observations by their running mean and standard deviation."""
    normalize_reward: bool = False
    """Scale rewards by the running standard deviation of the discounted return."""
    hidden_sizes: tuple[cfg.Count, ...] = (64, 64)
    """Widths of the dense layers of actor and critic. With a memory, the last layer follows it."""
    shared_torso: Annotated[bool, settings.WITHOUT_MEMORY] = False
    """Use one torso for actor and critic, with a linear layer for each, instead of one torso for each."""

    @property
    def total_updates(self) -> int:
        """Number of gradient steps of the whole training: one an iteration, if an algorithm takes no epochs."""
        return self.num_iterations


class ActorCriticState(NamedTuple):
    """The learner's state; ``reward_scale`` is ``()`` without a scale."""

    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: PyTree


class PolicyGradientPolicy(NamedTuple):
    """What acting and the evaluated policy need: parameters, and the moments of observations."""

    params: PyTree
    obs_moments: PyTree


class Extras(NamedTuple):
    """What is recorded while acting: parameters of the distribution, and the carry with which the step began."""

    policy: Array
    carry: PyTree


class Steps(NamedTuple):
    """A trajectory ``[T, B]`` as it is learned from: observations normalised, rewards scaled.

    ``log_prob`` is that of the action under the policy that took it, ``carry`` the one before each step, and
    ``acted_by`` the parameters of that policy. ``acting`` is False where the action was ignored, and ``present`` where
    there is nothing to learn from at all; each is ``()`` if it is True everywhere.
    """

    obs: PyTree
    action: PyTree
    log_prob: Array
    carry: PyTree
    reward: Array
    discount: Array
    last: Array
    next_obs: PyTree
    acted_by: PyTree = ()
    acting: Array | tuple[()] = ()
    present: Array | tuple[()] = ()


class Batch(NamedTuple):
    """Samples ``[N, ...]`` to learn from, or sequences ``[N, L, ...]`` with the ``carry`` ``[N]`` that they begin with.

    Ratios of probabilities refer to ``log_prob``; ``value`` is the critic's before the update; ``acting`` and
    ``present`` are those of `Steps`; ``policy`` are parameters of an older policy, where an algorithm compares them.
    """

    obs: PyTree
    action: PyTree
    last: Array
    carry: PyTree
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    acting: Array | tuple[()]
    present: Array | tuple[()]
    policy: PyTree = ()


ValueLoss = Callable[[Array, Array, Array, Any], Array]
"""A function ``(value, old_value, target, config)`` that the critic minimises, elementwise; ``old_value`` is the
critic's value before the update."""
Objective = Callable[[Array, Array, Any], Array]
"""A function ``(log_ratio, advantage, config)`` that is maximised, elementwise."""


class AgentParts(TypedDict, total=False):
    """Parts that every actor-critic takes: arguments of `make_agent`."""

    network: ActorCritic | nn.Module | Fitting | None
    optimiser: optax.GradientTransformation | None
    scaler: RewardScaler | None
    num_predictions: int


class Agent(NamedTuple):
    """An actor and a critic, what they see, and how they are optimised.

    - ``acting(obs)``: where an action counts; None: everywhere.
    - ``may_leave``: whether agents may end before the others of their environment.
    - ``own``: that of `Learner`; None with a network that is given, whose policy may read all.
    """

    config: ActorCriticConfig
    network: ActorCritic
    distribution: Distribution
    optimiser: optax.GradientTransformation
    normalizer: Normalizer
    scaler: RewardScaler
    acting: Callable[[PyTree], Array] | None
    may_leave: bool
    own: Callable[[PyTree], PyTree] | None = None

    def prepare(self, state: Any, trajectory: Transition, present: Array | tuple[()] = (), acted_by: Any = ()) -> Steps:
        """Prepares a trajectory ``[T, B]`` with scaled rewards for learning.

        Args:
            state: The learner's state.
            trajectory: The trajectory.
            present: Where there is something to learn from (`reuse.reusing`), bool ``[T, B]``; ``()``: everywhere that
                an agent was in the game.
            acted_by: The parameters that acted.
        """
        policy, carry = trajectory.extras
        present = losses.both(present, trajectory.present)
        acting = losses.both(present, self.acting(trajectory.obs) if self.acting else ())
        return Steps(
            obs=self.normalizer.apply(state.obs_moments, trajectory.obs),
            action=trajectory.action,
            log_prob=self.distribution.log_prob(policy, trajectory.action),
            carry=carry,
            reward=trajectory.reward,
            discount=self.config.gamma * (1 - trajectory.terminated),
            last=trajectory.last,
            next_obs=self.normalizer.apply(state.obs_moments, trajectory.next_obs),
            acted_by=acted_by,
            acting=acting,
            present=present,
        )

    def evaluate(self, params: PyTree, steps: Steps) -> tuple[Array, Array, Array]:
        """Computes policies and values of the steps, and values of their true next observations, all ``[T, B, ...]``.

        The bootstrap value after a truncated step uses the carry from after that step.
        """
        carry = jax.tree.map(lambda x: x[0], steps.carry)
        policy, value, carries = self.network.unroll(params, steps.obs, carry, steps.last)
        return policy, value, self.network.value(params, steps.next_obs, carries)

    def advantages_and_targets(
        self,
        estimate: Estimate,
        steps: Steps,
        log_prob: Array,
        value: Array,
        next_value: Array,
    ) -> tuple[Array, Array]:
        """Estimates advantages ``[T, B]`` and the targets of values, one environment at a time.

        Args:
            estimate: The estimate of one environment. Ignored actions have a ratio of 1.
            steps: The trajectory.
            log_prob: Log-probabilities of the actions under the policy that learns ``[T, B]``.
            value: Values of the observations, ``[T, B]`` or ``[T, B, K]``.
            next_value: Values of the next observations, of the same shape.
        """
        log_ratio = log_prob - steps.log_prob
        if not isinstance(steps.acting, tuple):
            log_ratio = jnp.where(steps.acting, log_ratio, 0.0)
        columns = Columns(log_prob, log_ratio, steps.reward, value, next_value, steps.discount, steps.last)
        return jax.vmap(estimate, in_axes=1, out_axes=1)(columns)

    def samples(
        self,
        steps: Steps,
        length: int,
        *,
        log_prob: Array,
        value: Array,
        advantage: Array,
        target: Array,
        policy: PyTree = (),
    ) -> Batch:
        """Cuts a trajectory into samples or, for a network with a memory, into sequences.

        Args:
            steps: The trajectory ``[T, B]``.
            length: Steps of a sequence, a divisor of ``T``.
            log_prob: What ratios of probabilities refer to ``[T, B]``.
            value: The critic's values before the update ``[T, B]``.
            advantage: Advantages ``[T, B]``.
            target: What values learn ``[T, B]``.
            policy: Parameters of an older policy ``[T, B, ...]``; ``()``: not needed.
        """
        remembers = self.remembers(steps)
        length = length if remembers else 1

        def cut(x: Array) -> Array:
            if not remembers:
                return x.reshape(-1, *x.shape[2:])
            x = x.reshape(-1, length, *x.shape[1:])  # [T / L, L, B, ...]
            return jnp.swapaxes(x, 1, 2).reshape(-1, length, *x.shape[3:])

        obs, action, last, acting, present, policy = jax.tree.map(
            cut, (steps.obs, steps.action, steps.last, steps.acting, steps.present, policy)
        )
        carry = jax.tree.map(lambda x: x[::length].reshape(-1, *x.shape[2:]), steps.carry)
        estimates = cut(log_prob), cut(value), cut(advantage), cut(target)
        return Batch(obs, action, last, carry, *estimates, acting, present, policy)

    def remembers(self, steps: Steps | Batch) -> bool:
        """Tells whether the network has a memory."""
        return bool(jax.tree.leaves(steps.carry))

    def unroll(self, params: PyTree, batch: Batch) -> tuple[Array, Array, Batch]:
        """Computes policies and values of a minibatch.

        Returns them and the minibatch, all with one axis: that of samples ``[N]``, or of the steps of all sequences.
        """
        if not self.remembers(batch):
            policy, value, _ = self.network.unroll(params, batch.obs, batch.carry, batch.last)
            return policy, value, batch
        carry, rest = batch.carry, batch._replace(carry=())
        steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rest)
        policy, value, _ = self.network.unroll(params, steps.obs, carry, steps.last)
        return trees.merge((policy, value, steps), 2)

    def log_ratio(self, trajectory: Transition, policy: PolicyGradientPolicy) -> Array:
        """Computes `Learner.log_ratio` ``[T, B]``.

        With a memory ``policy`` begins the trajectory with the carry of the policy that acted.
        """
        acted, carry = trajectory.extras
        obs = self.normalizer.apply(policy.obs_moments, trajectory.obs)
        start = jax.tree.map(lambda x: x[0], carry)
        other, _, _ = self.network.unroll(policy.params, obs, start, trajectory.last)
        log_prob = self.distribution.log_prob
        ratio = log_prob(acted, trajectory.action) - log_prob(other, trajectory.action)
        counts = losses.both(trajectory.present, self.acting(trajectory.obs) if self.acting else ())
        return ratio if isinstance(counts, tuple) else jnp.where(counts, ratio, 0.0)

    def scale(self, state: Any, trajectory: Transition) -> tuple[Any, Transition]:
        """Returns the state with a new scale of rewards, and the trajectory ``[T, B]`` with scaled rewards."""
        given = trajectory.reward, trajectory.last, self.config.gamma, trajectory.present
        reward_scale, reward = self.scaler.scale(state.reward_scale, *given)
        return state._replace(reward_scale=reward_scale), trajectory._replace(reward=reward)

    def act(self, policy: PolicyGradientPolicy, here: Situation) -> tuple[Array, PyTree]:
        """Computes the parameters ``[B, ...]`` of the distribution of actions, and the carry after them."""
        obs = self.normalizer.apply(policy.obs_moments, here.obs)
        return self.network.act(policy.params, obs, here.carry)

    def learner(
        self,
        update: Callable[[Any, Steps, Key], Updated],
        begin: Callable[[ActorCriticState], Any] = lambda state: state,
    ) -> Learner:
        """Makes the `Learner`, with what the settings ask for around it: reuse of trajectories, and stale actors.

        Args:
            update: ``update(state, steps, key)`` learns from `Steps`.
            begin: Makes the algorithm's own state from an initial one, whose fields it has too.
        """
        config, network, distribution, normalizer = self.config, self.network, self.distribution, self.normalizer

        def explore(policy: PolicyGradientPolicy, here: Situation, noise: PyTree):
            chosen, following = self.act(policy, here)
            return distribution.sample(chosen, noise), following, Extras(chosen, here.carry)

        def exploit(policy: PolicyGradientPolicy, here: Situation, key: Key):
            chosen, carry = self.act(policy, here)
            return distribution.mode(chosen), carry

        def sample(policy: PolicyGradientPolicy, here: Situation, key: Key):
            chosen, carry = self.act(policy, here)
            return distribution.sample(chosen, distribution.noise(key, (trees.length(here.obs),))), carry

        def init(key: Key, obs: PyTree) -> Any:
            params = network.init(key, obs)
            opt_state = gradients.init_optimiser(self.optimiser, params)
            moments = normalizer.init(trees.take(obs, 0))
            return begin(ActorCriticState(params, opt_state, moments, self.scaler.init(trees.length(obs))))

        def learn(state: Any, newest: Transition, scaled: Transition, present: Any, key: Key, acted_by: Any) -> Updated:
            """Learns from ``scaled``, whose rewards are, and which may have older columns after the ``newest``."""
            acted_by = state.params if acted_by is None else acted_by
            learned, metrics, scores = update(state, self.prepare(state, scaled, present, acted_by), key)
            obs_moments = normalizer.update(state.obs_moments, newest.obs, newest.present)
            of_newest = jax.tree.map(lambda x: x[:, : newest.reward.shape[1]], scores)
            return Updated(learned._replace(obs_moments=obs_moments), metrics, of_newest)

        def learn_once(state: Any, trajectory: Transition, key: Key, acted_by: PyTree = None) -> Updated:
            state, scaled = self.scale(state, trajectory)
            return learn(state, trajectory, scaled, (), key, acted_by)

        learner = Learner(
            init=init,
            init_carry=network.init_carry,
            noise=distribution.noise,
            behaviour=lambda state: PolicyGradientPolicy(state.params, state.obs_moments),
            explore=explore,
            policy=lambda state: PolicyGradientPolicy(state.params, normalize.settled(state.obs_moments)),
            exploit=exploit,
            update=learn_once,
            log_ratio=self.log_ratio,
            sample=sample,
            own=self.own,
        )
        if config.max_uses > 1:
            num_steps, may_leave = config.num_steps, self.may_leave
            learner = reuse.reusing(config, learner, self.scale, learn, num_steps=num_steps, may_leave=may_leave)
        return stale_actors.delayed(config, learner) if config.max_lag else learner


def make_agent(
    config: ActorCriticConfig,
    env: Env,
    network: ActorCritic | nn.Module | Fitting | None = None,
    optimiser: optax.GradientTransformation | None = None,
    scaler: RewardScaler | None = None,
    num_predictions: int = 1,
) -> Agent:
    """Makes the agent of an algorithm, with the parts that are given.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        network: Actor and critic, or one Flax Linen module of both (`heads.as_actor_critic`); None: `make_network`.
        optimiser: An optax transformation; None: the one that ``config`` describes.
        scaler: Scales rewards; None: as ``config`` says.
        num_predictions: How many values the critic of `make_network` gives. More than one requires an estimate and a
            loss that are written for several.
    """
    distribution = distributions.for_space(env.action_space)
    numbers = distribution.num_params - sum(spaces.choices(env.action_space))
    own = make_network(config, env, distribution, num_predictions)
    made = given_or_own(network, own, env.observation_space)
    whose = "network" if isinstance(network, nn.Module) else "shared_torso = True"
    if (isinstance(network, nn.Module) or shares_torso(config)) and config.normalize_reward is False:
        tell_once(
            f"hint: {whose}: policy and value share it; where returns are large, normalize_reward = True keeps the "
            "gradient of the value's loss from outweighing the policy's"
        )
    return Agent(
        config,
        networks.legal_only(made, env.legal, numbers) if env.legal else made,
        distribution,
        optimiser or gradients.make_optimiser(config),
        normalize.running() if config.normalize_obs else normalize.identity(),
        scaler or (normalize.running_reward() if config.normalize_reward else normalize.identity_reward()),
        env.acting,
        seats.apart(env),
        agents.OWN if agents.critic_sees_more(env) and network is None else None,
    )


def make_network(
    config: ActorCriticConfig, env: Env, distribution: Distribution, num_predictions: int = 1
) -> ActorCritic:
    """Makes actor and critic with a torso each, or with a torso for both, which a memory may follow.

    A Gaussian's standard deviations are free parameters. Actor and critic share nothing where they see different things
    (`agents.critic_sees_more`).

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in, as the algorithm sees it.
        distribution: That of actions.
        num_predictions: How many values the critic gives, K. The first of several is equal in all bits to the value of
            a critic of one.
    """
    if agents.critic_sees_more(env):
        on = lambda part: lambda sizes: OnPart(part, settings.make_torso(config, _only(env, part), sizes))
        return separate_networks(config, distribution, on(agents.OWN), on(agents.STATE), num_predictions)
    if shares_torso(config) or config.memory != "none":
        return _with_one_torso(config, env, distribution, num_predictions)
    torso = functools.partial(settings.make_torso, config, env)
    return separate_networks(config, distribution, torso, torso, num_predictions)


def _only(env: Env, part: Callable[[PyTree], PyTree]) -> Env:
    """Returns ``env`` with a part of its observation space, for the torso of that part."""
    return env._replace(observation_space=part(env.observation_space))


def _with_one_torso(
    config: ActorCriticConfig, env: Env, distribution: Distribution, num_predictions: int
) -> ActorCritic:
    """Makes an actor and a critic of the features of one torso, or of a memory after it; see `make_network`."""
    size, free = distribution.num_params - distribution.num_free, distribution.num_free
    activation = networks.ACTIVATIONS[config.activation]
    if config.memory == "none":
        heads = PolicyAndValue(0, size, free, activation, num_predictions)
        shared = SharedTorso(settings.make_torso(config, env), heads)
        return shared_actor_critic(shared.init, shared.apply)
    *widths, width = config.hidden_sizes
    head = PolicyAndValue(width, size, free, activation, num_predictions)
    torso = settings.make_torso(config, env, widths)
    return recurrent.actor_critic(recurrent.recurrent(torso, settings.make_memory(config), head))


def separate_networks(
    config: ActorCriticConfig,
    distribution: Distribution,
    actor_torso: Callable[[Sequence[int]], nn.Module],
    critic_torso: Callable[[Sequence[int]], nn.Module],
    num_predictions: int = 1,
) -> ActorCritic:
    """Makes separate networks of the actor and the critic, each with a memory if ``config`` has one.

    Args:
        config: Settings of the algorithm.
        distribution: That of actions.
        actor_torso: Makes the actor's torso with dense layers of some widths.
        critic_torso: Makes the critic's.
        num_predictions: How many values the critic gives, as in `make_network`.
    """
    size, free = distribution.num_params - distribution.num_free, distribution.num_free
    if config.memory == "none":
        return networks.actor_critic(
            networks.Head(actor_torso(config.hidden_sizes), size, scale=0.01, free=free),
            networks.Head(critic_torso(config.hidden_sizes), 1, scale=1.0, beside=num_predictions - 1),
        )
    *sizes, width = config.hidden_sizes
    hidden = networks.MLP((width,), networks.ACTIVATIONS[config.activation])
    policy = networks.Head(hidden, size, scale=0.01, free=free)
    value = networks.Head(hidden, 1, scale=1.0, beside=num_predictions - 1)
    return recurrent.separate(
        recurrent.recurrent(actor_torso(sizes), settings.make_memory(config), policy),
        recurrent.recurrent(critic_torso(sizes), settings.make_memory(config), value),
    )


def shares_torso(config: ActorCriticConfig) -> bool:
    """Tells whether actor and critic have one torso because ``config`` asks for it."""
    return config.shared_torso and config.memory == "none"


def problems(config: ActorCriticConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions are Discrete, MultiDiscrete or Box, of numbers or of bounded integers, or a tree of these.
    """
    problems = stale_actors.problems(config) + reuse.problems(config, config.batch_size)
    if config.memory != "none" and config.hidden_sizes == ():
        problems.append(
            "hidden_sizes = (): must not be empty with a memory; the last width is that of the layer after it"
        )
    problems += settings.torso_problems(config, env)
    if config.normalize_obs and env is not None and env.legal and spaces.is_leaf(env.observation_space):
        problems.append(
            f"normalize_obs = True: the observation array of {env.name} contains its mask of legal actions, which "
            "cannot be normalised; put the mask in a separate leaf"
        )
    if config.scores_by_returns and config.normalize_reward:
        problems.append(
            f"curriculum = {config.curriculum!r}: level_score = 'max-mc' compares returns with values, which "
            "normalize_reward = True scales; give level_score = 'positive-value' or normalize_reward = False"
        )
    if config.shared_torso and env is not None and agents.critic_sees_more(env):
        problems.append(f"shared_torso = True: must be False; in {env.name} the critic sees more than the policy")
    problems += checks.iteration_problems(config)
    return problems + checks.space_problems(env)
