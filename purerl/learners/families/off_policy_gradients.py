"""Learning a policy from replay by critics of its actions: what DDPG, TD3 and SAC share.

The loop is that of Lillicrap et al. 2016 (arXiv 1509.02971, Algorithm 1): act with noise, draw a batch, move critics
towards targets by slowly moving copies of the networks, move the policy towards actions that the critics value more. An
algorithm's file has how it acts, what a next state is worth, and what its critics and its actor minimise; `make_agent`
makes the rest.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import config as cfg
from purerl import counters, networks, replay, spaces, trees
from purerl.counters import Count
from purerl.errors import ConfigError
from purerl.formulas import return_distributions, td_errors
from purerl.formulas.return_distributions import Atoms, Family
from purerl.learners.parts import (
    checks,
    from_replay,
    gradients,
    network_resets,
    normalize,
    running_statistics,
    settings,
)
from purerl.learners.parts.normalize import Normalizer
from purerl.learners.parts.target_networks import polyak
from purerl.networks import critics, torsos
from purerl.networks.batch_renorm import STATISTICS
from purerl.networks.critics import ActorAndCritics
from purerl.replay.fixed import Stored
from purerl.types import (
    Array,
    Dataset,
    Env,
    Key,
    Learner,
    Metrics,
    Outcome,
    PyTree,
    Sample,
    Scalar,
    Situation,
    Trainer,
    Updated,
    unmoved,
)

DROPPING = zlib.crc32(b"dropout")
"""Separates the keys of dropout from those of an update's noise."""
OF_VALUES = cfg.Needs("critic = 'scalar'", lambda config: config.critic == "scalar")
OF_ATOMS = cfg.Needs("critic = 'categorical'", lambda config: config.critic == "categorical")
OF_QUANTILES = cfg.Needs("critic = 'quantile'", lambda config: config.critic == "quantile")


@cfg.config(learning_rate_decay=0.0, max_grad_norm=40.0, activation="relu")
class CriticsConfig(settings.Torso, settings.Adam):
    """Settings of an actor with critics, whatever their targets and losses, and whatever they learn from."""

    num_critics: cfg.Count = 2
    """Number of critics; targets use their smallest value. 1 tends to overestimate."""
    policy_delay: cfg.Count = 1
    """Number of critic updates for each update of the actor and of the target networks."""
    learning_rate: cfg.Positive = 1e-3
    """Adam's learning rate for the critics at the start."""
    actor_learning_rate: cfg.Positive = 1e-3
    """Adam's learning rate for the actor at the start."""
    normalize_obs: bool = False
    """Normalise observations by the running mean and standard deviation of the observations learned from."""
    hidden_sizes: tuple[cfg.Count, ...] = (64, 64)
    """Widths of the dense layers of the actor and of each critic."""
    critic_hidden_sizes: tuple[cfg.Count, ...] = ()
    """Widths of the dense layers of each critic. Empty: hidden_sizes."""

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        """Widths of the dense layers of each critic."""
        return self.critic_hidden_sizes or self.hidden_sizes


@cfg.config
class TargetNoise:
    """Settings of noise on the actions of targets (`exploration.disturbed`)."""

    target_noise: cfg.NonNegative = 0.2
    """Standard deviation of the noise on target actions, for actions scaled to [-1, 1]."""
    target_noise_clip: cfg.NonNegative = 0.5
    """Upper clip of the magnitude of the noise on target actions."""


@cfg.config(num_envs=4, num_steps=4, num_updates=16, capacity=1_000_000, warmup_steps=1_000)
class ReplayedCriticsConfig(from_replay.DemoSettings, from_replay.ReplayConfig, CriticsConfig):
    """Settings of an actor with critics that learn from replay, whatever their targets and losses."""

    n_step: cfg.Count = 1
    """Number of rewards that a target sums before it bootstraps."""
    reset_every: cfg.NonNegativeCount = 0
    """Number of updates after which all networks and their optimisers begin anew, at the next iteration. The replay and
    the normalisation of observations stay. 0: never."""

    @property
    def sample_rows(self) -> int:
        """Number of consecutive rows that one sample spans."""
        return self.n_step + 1


@cfg.config
class OffPolicyGradientConfig(ReplayedCriticsConfig):
    """Settings of an actor with critics that learn values from replay, by slowly moving copies of the networks."""

    tau: cfg.Fraction = 0.005
    """Fraction by which target networks move towards the online networks at each of their updates."""
    huber_delta: cfg.Positive = 1e4
    """Magnitude of the TD error above which the critics' loss is linear instead of quadratic."""


@cfg.config
class CriticKindConfig(OffPolicyGradientConfig):
    """Settings of critics that learn the value of an action, or the distribution of its return."""

    critic: Literal["scalar", "categorical", "quantile"] = "scalar"
    """What critics learn. scalar: values. categorical: distributions of the return over fixed atoms, as D4PG. quantile:
    its quantiles, as QR-DQN. Of several critics, targets use the one whose value or mean is smallest."""
    huber_delta: Annotated[cfg.Positive, OF_VALUES] = 1e4
    """Magnitude of the TD error above which the critics' loss is linear instead of quadratic."""
    num_atoms: Annotated[int, cfg.Range(2), OF_ATOMS] = 51
    """Number of atoms of the return's distribution, evenly spaced from v_min to v_max."""
    v_min: Annotated[float, OF_ATOMS] = -10.0
    """Return at the lowest atom; lower returns are clipped to it."""
    v_max: Annotated[float, OF_ATOMS] = 10.0
    """Return at the highest atom; higher returns are clipped to it."""
    num_quantiles: Annotated[cfg.Count, OF_QUANTILES] = 50
    """Number of quantiles of the return to learn, at the midpoints of equal parts of [0, 1]."""
    kappa: Annotated[cfg.Positive, OF_QUANTILES] = 1.0
    """Magnitude of the TD error above which the quantile loss is linear instead of quadratic."""
    critic_dropout: Annotated[float | int, cfg.Range(0, 1)] = 0.0
    """Probability with which a unit of a critic's dense layers is dropped while learning, in targets and losses. 0: no
    dropout."""


class OffPolicyGradientState(NamedTuple):
    """The learner's state.

    ``params`` are ``{"actor", "critic"}``, and what else the actor's loss moves. ``waited`` (int32) counts updates
    since the actor's last one. ``resets`` are the `network_resets.Resets`, if there are any.
    """

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    critic_opt_state: PyTree
    actor_opt_state: PyTree
    obs_moments: PyTree
    updates: Count
    waited: Array
    resets: PyTree = ()


class OffPolicyGradientPolicy(NamedTuple):
    """What the evaluated policy needs."""

    params: PyTree
    obs_moments: PyTree


class OffPolicyGradientBehaviour(NamedTuple):
    """What acting needs: an `OffPolicyGradientPolicy`, and whether there has been an update (bool ``[]``)."""

    policy: OffPolicyGradientPolicy
    updated: Array


class Dropout(NamedTuple):
    """The keys of the units that critics drop in the target, in their own loss and in the actor's; ``()``: none."""

    target: Key | tuple[()] = ()
    critic: Key | tuple[()] = ()
    actor: Key | tuple[()] = ()


NO_DROPOUT = Dropout()


class Batch(NamedTuple):
    """A sample ``[N]`` of transitions to learn from; of a team of ``M`` agents, actions and targets are ``[N, M]``.

    Observations are normalised, actions in the environment's units. ``reward`` is the sum of the rewards of ``n_step``
    steps, and ``discount`` multiplies the value of the next observation. ``noise`` is that of the actor's step, and
    ``target`` what the critics learn, once it is known: of critics that learn distributions its atoms ``[N, J]``, with
    their ``probabilities [N, J]``, or ``()`` if they are equal. ``dropout`` are the keys of critics' dropout.
    """

    obs: PyTree
    action: Array
    reward: Array
    discount: Array
    next_obs: PyTree
    weight: Array
    noise: PyTree
    target: Array | tuple[()] = ()
    probabilities: Array | tuple[()] = ()
    dropout: Dropout = NO_DROPOUT


class Acting(NamedTuple):
    """How an algorithm acts. Observations are normalised, actions in the environment's units.

    - ``noise(key, shape)``: the randomness of ``shape`` many actions.
    - ``explore(actor, updated, obs, carry, noise)``: returns ``(action, carry)``; ``updated`` tells whether there has
      been an update. None: it samples.
    - ``exploit(actor, obs)``: returns the most likely action.
    - ``sample(actor, obs, noise)``: returns an action drawn from the policy; None: it has no distribution.
    """

    noise: Callable[[Key, tuple[int, ...]], PyTree]
    explore: Callable[[PyTree, Array, PyTree, PyTree, PyTree], tuple[Array, PyTree]] | None
    exploit: Callable[[PyTree, PyTree], Array]
    init_carry: Callable[[int], PyTree] = lambda num_envs: ()
    sample: Callable[[PyTree, PyTree, PyTree], Array] | None = None


CriticLoss = Callable[[PyTree, Batch], tuple[Array, tuple[Array, Metrics]]]
"""A function ``(critic, batch) -> (loss, (priority [N], metrics))``."""
ActorLoss = Callable[[dict[str, PyTree], PyTree, Batch], tuple[Array, Metrics]]
"""A function ``(params, critic, batch) -> (loss, metrics)``, where ``params`` are all parameters but the critic's."""


def problems(config: ReplayedCriticsConfig, env: Env | None, kinds: tuple[type, ...] = (spaces.Box,)) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each.

    Actions of a Box must be bounded.

    Args:
        config: Settings of the algorithm.
        env: The environment.
        kinds: Types of action spaces that the algorithm can act in.
    """
    problems = settings.torso_problems(config, env) + from_replay.problems(config, env)
    return problems + checks.bounded_space_problems(env, kinds)


def kind_problems(config: CriticKindConfig, env: Env | None) -> list[str]:
    """Returns `problems` of an algorithm whose critics may learn distributions, and may have dropout."""
    atoms = settings.support_problems(config.v_min, config.v_max) if config.critic == "categorical" else []
    if config.critic_dropout and config.torso == "simba":
        atoms.append(f"critic_dropout = {config.critic_dropout}: torso = 'simba' has no dropout")
    return problems(config, env) + atoms


def dropout(config: CriticKindConfig, key: Key) -> Dropout:
    """Returns the keys of an update's dropout; does not consume ``key``, but another that is folded from it."""
    if not config.critic_dropout:
        return NO_DROPOUT
    return Dropout(*jax.random.split(jax.random.fold_in(key, DROPPING), 3))


def family_of(config: CriticKindConfig) -> Family | None:
    """Returns the family of the distributions that critics learn; None: they learn values."""
    if config.critic == "categorical":
        return return_distributions.categorical(td_errors.support(config.v_min, config.v_max, config.num_atoms))
    return return_distributions.quantiles(config.num_quantiles, config.kappa) if config.critic == "quantile" else None


def networks_for_box(
    config: CriticsConfig,
    env: Env,
    outputs: int,
    family: Family | None = None,
    critic_dropout: float = 0.0,
) -> ActorAndCritics:
    """Makes networks for actions in a Box, with an actor of ``outputs`` numbers for each dimension.

    Critics give values, or what describes the distributions of ``family``.
    """
    size = math.prod(env.action_space.shape)
    activation = networks.ACTIVATIONS[config.activation]
    joint = torsos.dense_layers(config.torso, config.critic_sizes, activation, config.layer_norm, critic_dropout)
    torso = settings.make_torso(config, env)
    features = settings.make_torso(config, env, ())
    critic_outputs = family.size if family else 0
    return critics.for_box(size, outputs * size, config.num_critics, torso, features, joint, critic_outputs)


def free_dimensions(box: spaces.Box) -> np.ndarray | None:
    """Returns which dimensions ``[D]`` of ``box`` are no constants, whose bounds are equal; None: all."""
    scale = spaces.unit(box)[1]
    return None if isinstance(scale, jax.Array) or np.all(scale > 0) else np.ravel(scale) > 0


def units(box: spaces.Box) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Returns ``(to_box, to_unit)``, which convert actions from the units of networks to those of ``box``, and back.

    ``to_box`` turns vectors ``[..., D]`` in [-1, 1] into actions ``[..., *shape]`` of ``box``. Dimensions that are
    constants are 0 in the units of networks.
    """
    centre, scale = spaces.unit(box)
    divisor = scale + (scale == 0)

    def to_box(x: Array) -> Array:
        x = x.reshape(*x.shape[:-1], *box.shape)
        return trees.like(centre, x) + trees.like(scale, x) * x

    def to_unit(action: Array) -> Array:
        x = (action - trees.like(centre, action)) / trees.like(divisor, action)
        return x.reshape(*x.shape[: x.ndim - len(box.shape)], -1)

    return to_box, to_unit


class CriticParts(TypedDict, total=False):
    """Parts that every algorithm takes: arguments of `make_agent`."""

    td_loss: Callable[[Array, Any], Array]
    optimiser: optax.GradientTransformation | None


class CriticAgent(NamedTuple):
    """An actor and critics that learn from replay: what they see, how they act and how they are optimised.

    ``target_networks`` names the parameters that have slowly moving copies, which follow by ``tau``. ``family`` is that
    of the distributions which critics learn; None: they learn values.
    """

    config: CriticsConfig
    acting: Acting
    normalizer: Normalizer
    critic_optimiser: optax.GradientTransformation
    actor_optimiser: optax.GradientTransformation
    td_loss: Callable[[Array, Any], Array]
    target_networks: tuple[str, ...]
    tau: Scalar
    family: Family | None = None

    def batch(
        self, state: OffPolicyGradientState, sample: Sample, noise: PyTree, dropout: Dropout = NO_DROPOUT
    ) -> Batch:
        """Prepares a sample for learning, with the ``noise`` of the actor's step and the keys of critics' dropout."""
        items: Outcome = sample.items
        obs, next_obs = (self.normalizer.apply(state.obs_moments, x) for x in (items.obs, items.next_obs))
        columns = obs, items.action, items.reward, items.discount, next_obs, sample.weight
        return Batch(*columns, noise, dropout=dropout)

    def values(self, out: Array) -> Array:
        """Returns the values ``[N, K]`` that outputs of critics say: themselves, or the means of distributions."""
        return self.family.atoms(out).mean if self.family else out

    def least(self, out: Array) -> Atoms:
        """Returns what the most pessimistic of ``K`` critics says: a value ``[N]``, or the atoms ``[N, J]``.

        Args:
            out: Outputs ``[N, K]`` of critics that learn values, or ``[N, K, J]``.
        """
        return self.family.least(out) if self.family else Atoms(td_errors.least(out))

    def with_target(self, batch: Batch, next_value: Array, probabilities: Array | tuple[()] = ()) -> Batch:
        """Returns a batch with targets, by the values of the next observations.

        Args:
            batch: The batch.
            next_value: ``[N]``, of a team ``[N, M]``, or the atoms ``[N, J]`` of distributions.
            probabilities: Those of the atoms ``[N, J]``; ``()``: equal ones.
        """
        columns = batch.reward, batch.discount
        reward, discount = (x.reshape(x.shape + (1,) * (next_value.ndim - 1)) for x in columns)
        target = jax.lax.stop_gradient(reward + discount * next_value)
        return batch._replace(target=target, probabilities=probabilities)

    def critic_loss(
        self, q: Array, batch: Batch, counts: Array | tuple[()] = ()
    ) -> tuple[Array, tuple[Array, Metrics]]:
        """Computes the loss of ``K`` critics, the sum of theirs, the priorities ``[N]`` and metrics.

        Args:
            q: Values of the actions ``[N, K]``, of a team ``[N, M, K]``; or outputs ``[N, K, J]``.
            batch: The batch, with targets.
            counts: Where the values of an agent of a team are learned, bool ``[N, M]``; ``()``: everywhere.
        """
        target = jnp.asarray(batch.target)
        if self.family:
            of_critics = jax.vmap(self.family.loss, in_axes=(0, None))
            losses, error = jax.vmap(of_critics)(q, Atoms(target, batch.probabilities))
        else:
            error = target[..., None] - q
            if not isinstance(counts, tuple):
                error = jnp.where(counts[..., None], error, 0.0)
            losses = self.td_loss(error, self.config)
        axes = tuple(range(1, error.ndim))
        size = jnp.mean(jnp.abs(error), axis=axes)
        each = jnp.sum(losses, axis=axes)
        metrics = {"value": jnp.mean(self.values(q)), "td_error": jnp.mean(batch.weight * size)}
        return jnp.mean(batch.weight * each), (size, metrics)

    def step(
        self,
        state: OffPolicyGradientState,
        sample: Sample,
        batch: Batch,
        critic_loss: CriticLoss,
        actor_loss: ActorLoss,
    ) -> Updated:
        """Takes a step of the critics, then one of the actor against the new critics; and moves the target networks.

        With a ``policy_delay`` the actor and the target networks wait for so many updates. The observations of
        ``sample``, which are not normalised, enter the normaliser's moments. Running statistics of networks are not
        the optimisers': a loss that moves some returns its parameters with the new ones, among its metrics, as
        `STATISTICS`.
        """
        old = state.params["critic"]
        critic, critic_opt_state, (priority, more), metrics = gradients.gradient_step(
            lambda critic, batch: critic_loss(running_statistics.restored(critic, old), batch),
            self.critic_optimiser,
            running_statistics.without(old),
            state.critic_opt_state,
            batch,
        )
        critic = running_statistics.restored(critic, more.pop(STATISTICS, old))
        before = without_critic(state.params)
        waited = (state.waited + 1) % self.config.policy_delay

        def moved() -> tuple[tuple[PyTree, PyTree, PyTree], Metrics]:
            actor, actor_opt_state, of_actor, metrics = gradients.gradient_step(
                lambda params, batch: actor_loss(running_statistics.restored(params, before), critic, batch),
                self.actor_optimiser,
                running_statistics.without(before),
                state.actor_opt_state,
                batch,
            )
            actor = running_statistics.restored(actor, of_actor.pop(STATISTICS, before))
            newest = {name: x for name, x in {**actor, "critic": critic}.items() if name in self.target_networks}
            told = {"policy_loss": metrics["loss"], "policy_grad_norm": metrics["grad_norm"], **of_actor}
            return (actor, actor_opt_state, polyak(newest, state.target_params, self.tau)), told

        (actor, actor_opt_state, target_params), of_policy = self._delayed(
            moved, (before, state.actor_opt_state, state.target_params), waited
        )
        learned = OffPolicyGradientState(
            {**actor, "critic": critic},
            target_params,
            critic_opt_state,
            actor_opt_state,
            self.normalizer.update(state.obs_moments, sample.items.obs),
            counters.increment(state.updates),
            waited,
            state.resets and network_resets.count(state.resets),
        )
        return Updated(learned, {**more, **of_policy, **metrics}, priority)

    def _delayed(
        self, moved: Callable[[], tuple[PyTree, Metrics]], old: PyTree, waited: Array
    ) -> tuple[PyTree, Metrics]:
        """Returns what ``moved`` returns once every ``policy_delay`` updates, and ``old`` while it is waited.

        If the delay is `in_step`, nothing is computed meanwhile.
        """
        if self.config.policy_delay == 1:
            return moved()
        if not in_step(self.config):
            new, told = moved()
            return jax.tree.map(lambda new, old: jnp.where(waited == 0, new, old), new, old), told
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(moved)[1])
        new, told = jax.lax.cond(waited == 0, moved, lambda: (old, nothing))
        return new, {name: self.config.policy_delay * x for name, x in told.items()}  # so that means are of all moves

    def learner(
        self,
        init_params: Callable[[Key, PyTree], dict[str, PyTree]],
        update: Callable[[Any, Sample, Key], Updated],
        begin: Callable[[OffPolicyGradientState], Any] = lambda state: state,
        kept: tuple[str, ...] = ("critic",),
    ) -> Learner:
        """Makes the `Learner`.

        Args:
            init_params: ``init_params(key, obs)`` makes the parameters, ``"actor"`` and ``"critic"`` among them.
            update: ``update(state, sample, key)`` is the algorithm's update.
            begin: Makes the algorithm's own state from an initial one, whose fields it has too.
            kept: Names of the parameters that another training can begin with beside the actor (`Learner.critics`).
        """
        normalizer, acting, draw = self.normalizer, self.acting, cast(Any, self.acting.sample)
        reset_every = self.config.reset_every if isinstance(self.config, ReplayedCriticsConfig) else 0

        def init(key: Key, obs: PyTree) -> Any:
            params = init_params(key, obs)
            first = OffPolicyGradientState(
                params,
                {name: params[name] for name in self.target_networks},
                gradients.init_optimiser(self.critic_optimiser, running_statistics.without(params["critic"])),
                gradients.init_optimiser(self.actor_optimiser, running_statistics.without(without_critic(params))),
                normalizer.init(trees.take(obs, 0)),
                counters.of(),
                jnp.zeros((), jnp.int32),
                network_resets.init(key) if reset_every else (),
            )
            return begin(first)

        def behaviour(state: OffPolicyGradientState) -> OffPolicyGradientBehaviour:
            policy = OffPolicyGradientPolicy(state.params["actor"], state.obs_moments)
            return OffPolicyGradientBehaviour(policy, counters.reached(state.updates, 1))

        def explore(behaviour: OffPolicyGradientBehaviour, here: Situation, noise: PyTree):
            obs = normalizer.apply(behaviour.policy.obs_moments, here.obs)
            return *cast(Any, acting.explore)(behaviour.policy.params, behaviour.updated, obs, here.carry, noise), ()

        def exploit(policy: OffPolicyGradientPolicy, here: Situation, key: Key):
            return acting.exploit(policy.params, normalizer.apply(policy.obs_moments, here.obs)), here.carry

        def sample(policy: OffPolicyGradientPolicy, here: Situation, key: Key):
            noise = acting.noise(key, (trees.length(here.obs),))
            return draw(policy.params, normalizer.apply(policy.obs_moments, here.obs), noise), here.carry

        return Learner(
            init=init,
            init_carry=acting.init_carry,
            noise=acting.noise,
            behaviour=behaviour,
            explore=explore,
            policy=lambda state: OffPolicyGradientPolicy(state.params["actor"], normalize.settled(state.obs_moments)),
            exploit=exploit,
            update=update,
            observe=observing(self.config, network_resets.resetting(reset_every, init) if reset_every else unmoved),
            sample=sample if draw else None,
            critics=lambda state: {name: state.params[name] for name in kept},
        )


def make_agent(
    config: CriticsConfig,
    acting: Acting,
    target_networks: tuple[str, ...] = (),
    tau: Scalar = 0.0,
    td_loss: Callable[[Array, Any], Array] = td_errors.huber_loss,
    optimiser: optax.GradientTransformation | None = None,
    family: Family | None = None,
) -> CriticAgent:
    """Makes the agent of an algorithm.

    Args:
        config: Settings of the algorithm.
        acting: How it acts.
        target_networks: Names of the parameters that have slowly moving copies.
        tau: Fraction by which these move towards the parameters.
        td_loss: ``td_loss(error, config)``, elementwise.
        optimiser: Moves the critics and, with a state of its own, the actor; None: Adam. Adam and those of optax by
            name (`gradients.named`) have a step size for each.
        family: The family of the distributions that critics learn; None: they learn values.

    Raises:
        ConfigError: There is a loss of errors of values, and critics that learn none.
    """
    if family and td_loss is not td_errors.huber_loss:
        raise ConfigError("td_loss: is of errors of values; critics that learn distributions have a loss of their own")
    if acting.explore is None:
        draw = cast(Any, acting.sample)
        acting = acting._replace(explore=lambda actor, updated, obs, carry, noise: (draw(actor, obs, noise), carry))
    actor_config = dataclasses.replace(config, learning_rate=config.actor_learning_rate)
    return CriticAgent(
        config,
        acting,
        normalize.running() if config.normalize_obs else normalize.identity(),
        optimiser or gradients.make_optimiser(config),
        gradients.given_or_made(optimiser, actor_config, period=config.policy_delay),
        td_loss,
        target_networks,
        tau,
        family,
    )


def in_step(config: Any) -> bool:
    """Returns whether there is a ``policy_delay``, and each iteration begins with its first update."""
    return config.policy_delay > 1 and config.num_updates % config.policy_delay == 0


def at_beginning(config: Any, state: Any) -> Any:
    """Returns a learner's state before the first update of an iteration.

    If the delay is `in_step`, the count of it is a constant there: all members of a population share it, so that even
    their program computes the actor's update only where it is due.
    """
    return state._replace(waited=jnp.zeros((), jnp.int32)) if in_step(config) else state


def observing(config: CriticsConfig, observe: Callable[..., tuple[Any, Metrics]]) -> Callable[..., tuple[Any, Metrics]]:
    """Makes a `Learner.observe` that does as ``observe``, and makes the state one that is `at_beginning`."""

    def both(*given: Any) -> tuple[Any, Metrics]:
        state, metrics = observe(*given)
        return at_beginning(config, state), metrics

    return both


def without_critic(params: dict[str, PyTree]) -> dict[str, PyTree]:
    """Returns the parameters that the actor's loss moves."""
    return {name: x for name, x in params.items() if name != "critic"}


def make_trainer(
    config: ReplayedCriticsConfig, env: Env, learner: Learner, demos: Dataset | Stored | None = None
) -> Trainer:
    """Makes one iteration as a `Trainer`, with transitions over ``n_step`` steps, also of ``demos`` (None: none)."""
    view = replay.transitions(config.n_step, config.gamma)
    return from_replay.make_trainer(config, env, learner, view=view, demos=demos)
