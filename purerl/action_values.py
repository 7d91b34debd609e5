"""Learning action values from replay: what DQN and its descendants share.

The loop of Mnih et al. 2015 (Nature 518, Algorithm 1): act epsilon-greedily, draw a batch, take one step towards
targets by a network of older parameters. An algorithm says what its network gives and how that is learned.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import config as cfg
from purerl import distributions, draw, loops, replay, update
from purerl.types import Array, Discrete, Env, Key, Learner, Metrics, Outcome, PyTree, Replay, Sample, Trainer
from purerl.value_networks import ValueNetwork


@cfg.config
class Config:
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    total_steps: cfg.Frames = 500_000
    """Environment steps in all, of one agent, warm-up included. Rounded down to whole iterations."""
    num_envs: cfg.Count = 8
    """Environments that step side by side."""
    num_steps: cfg.Count = 8
    """Steps in each environment between two rounds of updates."""
    num_updates: cfg.Count = 4
    """Updates of an iteration."""
    batch_size: cfg.Count = 64
    """Transitions of an update."""
    capacity: cfg.Count = 100_000
    """Transitions that are kept; rounded up to whole iterations."""
    store_next_obs: bool = False
    """Keep each next observation as well. Without it, steps at which a time limit cuts an episode are not learned
    from."""
    warmup_steps: cfg.Count = 5_000
    """Environment steps before the first iteration; rounded up to whole iterations."""
    n_step: cfg.Count = 3
    """Rewards that a target adds up before it bootstraps; 1 is Mnih et al.'s."""
    double: bool = True
    """Choose the next action by the online network instead of the target network."""
    dueling: bool = False
    """Separate streams for the value and the advantages."""
    prioritised: bool = False
    """Draw transitions by their priority instead of uniformly."""
    priority_exponent: cfg.Fraction = 0.6
    """Power of the priority that a transition's chance is proportional to."""
    importance_exponent: cfg.Fraction = 0.4
    """Power of the correction for unequal chances, at the start."""
    importance_exponent_end: cfg.Fraction = 1.0
    """The same at the end."""
    target_period: cfg.Count = 125
    """Updates from one refresh of the target network to the next."""
    lag: cfg.NonNegativeCount = 0
    """Updates by which the parameters that a gradient is taken at are older than those that it changes."""
    max_lag: cfg.NonNegativeCount = 1_000
    """Largest lag at which a gradient still counts; a larger lag is refused."""
    learning_rate: cfg.Positive = 1e-3
    """Adam's step size at the start."""
    learning_rate_decay: cfg.Fraction = 1.0
    """Part of the learning rate that linear annealing takes away by the end; 0 keeps it constant."""
    gamma: cfg.Fraction = 0.99
    """Discount of the return, a step."""
    epsilon_start: cfg.Fraction = 1.0
    """Chance of a random action at the start."""
    epsilon_end: cfg.Fraction = 0.05
    """Chance of a random action after exploration."""
    exploration_fraction: Annotated[float, cfg.Range(0, 1, open_low=True, open_high=False)] = 0.1
    """Part of all updates over which the chance falls in a straight line."""
    epsilon_ladder: cfg.NonNegative = 0.0
    """Exponent that spreads the chance: of B environments, number i has chance ** (1 + ladder * i / (B - 1))."""
    max_grad_norm: cfg.Positive = 10.0
    """Global norm that gradients are clipped to."""
    hidden_sizes: tuple[cfg.Count, ...] = (128, 128)
    """Widths of the dense layers; the last one belongs to the head or, of two streams, to each."""
    activation: Literal["tanh", "relu", "silu", "gelu", "elu"] = "relu"
    """Activation of the dense layers."""

    @property
    def sample_rows(self) -> int:
        """Rows that a sample spans."""
        return self.n_step + 1

    @property
    def sample_stride(self) -> int:
        """Rows of which one begins a sample."""
        return 1

    @property
    def warmup_rows(self) -> int:
        """Steps of each environment before the first update."""
        return _round_up(self.warmup_steps, self.num_envs * self.num_steps) // self.num_envs

    @property
    def capacity_rows(self) -> int:
        """Steps of each environment that are kept."""
        return _round_up(self.capacity, self.num_envs * self.num_steps) // self.num_envs

    @property
    def num_iterations(self) -> int:
        """Iterations after the warm-up."""
        return (self.total_steps - self.num_envs * self.warmup_rows) // (self.num_envs * self.num_steps)

    @property
    def total_updates(self) -> int:
        """Gradient steps of the whole training."""
        return self.num_iterations * self.num_updates


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


class State(NamedTuple):
    """``updates`` counts all updates, up to 2^31 - 1, and ``target_age`` those since the target's refresh (int32)."""

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    past: update.Past | tuple[()]
    updates: Array
    target_age: Array


class Values(NamedTuple):
    """How what a network gives is read as action values, and learned.

    ``mean(out)`` are action values ``[..., A]``. ``loss`` is for one transition, and callers vmap it: ``out`` of the
    online network for its observation, ``target_out`` of the target network for the same, ``next_out`` of the target
    network for the next observation, ``chooser`` ``[A]`` the values by which the next action is chosen. It returns the
    loss and an error, both scalars; the size of the error is the transition's priority.
    """

    mean: Callable[[PyTree], Array]
    loss: Callable[..., tuple[Array, Array]]
    # (out, target_out, action, reward, discount, chooser, next_out) -> (loss, error)


def problems(config: Config, env: Env | None) -> list[str]:
    """Why ``config`` cannot train on ``env`` (None: not known), a line each. Actions must be Discrete."""
    found = cfg.problems(config)
    if config.hidden_sizes == ():
        found.append("hidden_sizes = (): must have the width of the head")
    if cfg.sound(config, "lag", "max_lag") and config.lag > config.max_lag:
        found.append(f"lag = {config.lag}: no gradient would count, for max_lag = {config.max_lag}")
    return found + _replay_problems(config, env) + cfg.space_problems(env, (Discrete,))


def _replay_problems(config: Config, env: Env | None) -> list[str]:
    """What ``config`` asks for that cannot be: less than one iteration, a ring too small or too large."""
    counts = [field.name for field in dataclasses.fields(config) if isinstance(field.default, int)]
    if not cfg.sound(config, *counts):
        return []
    found = []
    least = replay.least_rows(config.sample_rows, config.sample_stride, env.num_frames if env else 1)
    if config.num_iterations < 1:
        frames = config.num_envs * (config.warmup_rows + config.num_steps)
        found.append(f"total_steps = {config.total_steps}: must be at least the warm-up and one iteration, {frames}")
    for name, rows in {"capacity": config.capacity_rows, "warmup_steps": config.warmup_rows}.items():
        if rows < least:
            frames = least * config.num_envs
            found.append(f"{name} = {getattr(config, name)}: must hold {least} steps of each environment, {frames}")
    if config.capacity_rows * config.num_envs >= 2**31:
        found.append(f"capacity = {config.capacity}: must lie below {2**31} when rounded up to whole iterations")
    return found


def make_optimiser(config: Config, *change: optax.GradientTransformation) -> optax.GradientTransformation:
    """Adam behind clipping, its step size falling linearly. ``change`` is done to Adam's direction, before its size."""
    schedule = update.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    adam = optax.scale_by_adam(), *change, optax.scale_by_learning_rate(schedule)
    return optax.chain(update.clip_by_norm(config.max_grad_norm), *adam)


def epsilons(config: Config, updates: Array, num_envs: int) -> Array:
    """The chance of a random action in each of ``B`` environments after so many updates. ``[B]``."""
    annealing = config.exploration_fraction * float(config.total_updates)
    epsilon = update.anneal(config.epsilon_start, config.epsilon_end, updates / annealing)
    return distributions.epsilon_ladder(epsilon, config.epsilon_ladder, num_envs)


def init_state(config: Config, optimiser: optax.GradientTransformation, params: PyTree) -> State:
    """The state before the first update."""
    opt_state, zero = update.init_optimiser(optimiser, params), jnp.zeros((), jnp.int32)
    return State(params, params, opt_state, update.past(params, config.lag), zero, zero)


def descend(
    config: Config,
    optimiser: optax.GradientTransformation,
    loss: Callable[[PyTree, PyTree], tuple[Array, tuple[Array, Metrics]]],
    state: State,
    batch: PyTree,
) -> tuple[State, Array, Metrics]:
    """One update down ``loss(params, batch) -> (loss, (priority [N], metrics))``, and what follows from it.

    The gradient is taken at the parameters of ``config.lag`` updates ago, and dropped if that is more than
    ``config.max_lag``, as the asynchronous learners of Nair et al. 2015 (arXiv 1507.04296, section 3) do: ``K`` of them
    that take turns have a lag of ``K - 1``. Returns the new state, the priorities and the metrics.
    """

    def scaled(params, batch):
        value, (priority, metrics) = loss(params, batch)
        return value * (config.lag <= config.max_lag), {"priority": priority, **metrics}

    stale, past = update.delay(state.past, state.params, config.lag)
    params, opt_state, metrics = update.gradient_step(scaled, optimiser, state.params, state.opt_state, batch, at=stale)
    target_params, target_age = update.refresh(params, state.target_params, state.target_age, config.target_period)
    metrics["epsilon"] = jnp.mean(epsilons(config, state.updates, config.num_envs))
    priority, updates = metrics.pop("priority"), optax.safe_increment(state.updates)
    return State(params, target_params, opt_state, past, updates, target_age), priority, metrics


def nothing(q: Array, action: Array) -> tuple[()]:
    """Records nothing while acting."""
    return ()


def make_learner(
    config: Config,
    env: Env,
    network: ValueNetwork,
    values: Values,
    optimiser: optax.GradientTransformation | None = None,
    record: Callable[[Array, Array], PyTree] = nothing,
) -> Learner:
    """A `Learner` of action values. ``record(q [B, A], action [B])`` is kept in the replay, as ``extras``."""
    optimiser = optimiser or make_optimiser(config)

    def init(key: Key, obs: PyTree) -> State:
        return init_state(config, optimiser, network.init(key, obs))

    def noise(key: Key, shape: tuple[int, ...]) -> PyTree:
        key_network, key_epsilon = jax.random.split(key)
        return network.acting_noise(key_network, shape), draw.uniform(key_epsilon, (*shape, 2))

    def explore(state: State, obs: PyTree, carry: PyTree, noise: PyTree):
        network_noise, epsilon_noise = noise
        q = values.mean(network.apply(state.params, obs, network_noise))
        action = distributions.epsilon_greedy(q, epsilons(config, state.updates, q.shape[0]), epsilon_noise)
        return action, carry, record(q, action)

    def exploit(policy: PyTree, obs: PyTree, carry: PyTree, key: Key):
        num_envs = jax.tree.leaves(obs)[0].shape[0]
        q = values.mean(network.apply(policy, obs, network.still((num_envs,))))
        return jnp.argmax(q, axis=-1).astype(jnp.int32), carry

    def loss(params: PyTree, batch: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        items, weight, noise, chooser_noise, target_params, target_out, next_out = batch
        out = network.apply(params, items.obs, noise)
        choosing = jax.lax.stop_gradient(params) if config.double else target_params
        chooser = values.mean(network.apply(choosing, items.next_obs, chooser_noise))
        each, error = jax.vmap(values.loss)(
            out, target_out, items.action, items.reward, items.discount, chooser, next_out
        )
        size = jnp.abs(error)
        q = values.mean(out)
        metrics = {"value": jnp.mean(jnp.max(q, axis=-1)), "td_error": jnp.mean(weight * size)}
        return jnp.mean(weight * each), (size, metrics)

    def learn(state: State, sample: Sample, key: Key) -> tuple[State, Array, Metrics]:
        items: Outcome = sample.items
        shape, keys = sample.slot.shape, jax.random.split(key, 4)
        noises = network.noise(keys[3], shape), network.acting_noise(keys[0], shape)
        next_out = network.apply(state.target_params, items.next_obs, network.noise(keys[1], shape))
        target_out = network.apply(state.target_params, items.obs, network.noise(keys[2], shape))
        batch = items, sample.weight, *noises, state.target_params, target_out, next_out
        return descend(config, optimiser, loss, state, batch)

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=noise,
        explore=explore,
        policy=lambda state: state.params,
        exploit=exploit,
        update=learn,
    )


def make_replay(
    config: Config, env: Env, view: replay.View, initial: Callable[[PyTree], Array] | None = None
) -> Replay:
    """The ring that ``config`` asks for. ``initial`` gives new samples their priorities; None: the largest so far."""
    shape = {
        "num_rows": config.capacity_rows,
        "num_envs": config.num_envs,
        "batch_size": config.batch_size,
        "view": view,
        "num_frames": env.num_frames,
        "next_obs": config.store_next_obs,
    }
    if not config.prioritised:
        return replay.uniform(**shape)
    return replay.prioritised(
        **shape,
        alpha=config.priority_exponent,
        beta=config.importance_exponent,
        beta_end=config.importance_exponent_end,
        num_updates=config.total_updates,
        initial=initial,
    )


def make_trainer(config: Config, env: Env, learner: Learner, **ring: Any) -> Trainer:
    """One iteration as a `Trainer`, with transitions over ``n_step`` steps; ``ring`` goes to `make_replay`."""
    ring = {"view": replay.transitions(config.n_step, config.gamma), **ring}
    return loops.off_policy(
        env,
        learner,
        make_replay(config, env, **ring),
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        num_updates=config.num_updates,
        warmup=config.warmup_rows,
    )
