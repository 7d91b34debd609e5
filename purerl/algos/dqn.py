"""Deep Q-learning (Mnih et al. 2015, Nature 518) with double Q-learning's target (van Hasselt et al. 2016)."""

from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from purerl import config as cfg
from purerl import distributions, draw, loops, losses, networks, replay, update
from purerl.types import Array, Discrete, Env, Key, Learner, Metrics, PyTree, Sample, Trainer


@cfg.config
class Config:
    """Every float may be traced, swept and evolved; the rest shapes the program."""

    total_steps: cfg.Count = 500_000
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
    warmup_steps: cfg.Count = 5_000
    """Environment steps before the first update; rounded up to whole iterations."""
    target_period: cfg.Count = 125
    """Updates from one refresh of the target network to the next."""
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
    huber_delta: cfg.Positive = 10.0
    """Error beyond which the loss is a straight line."""
    max_grad_norm: cfg.Positive = 10.0
    """Global norm that gradients are clipped to."""
    hidden_sizes: tuple[cfg.Count, ...] = (128, 128)
    """Widths of the dense layers."""
    activation: Literal["tanh", "relu", "silu", "gelu", "elu"] = "relu"
    """Activation of the dense layers."""

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
    updates: Array
    target_age: Array


class Batch(NamedTuple):
    """Transitions ``[N]`` to learn from, and the next observations' action values ``[N, A]`` by both networks."""

    obs: PyTree
    action: Array
    reward: Array
    discount: Array
    next_q_online: Array
    next_q_target: Array
    weight: Array


def problems(config: Config, env: Env | None) -> list[str]:
    """Why ``config`` cannot train on ``env`` (None: not known), a line each. Actions must be Discrete."""
    return cfg.problems(config) + cfg.replay_problems(config) + cfg.space_problems(env, (Discrete,))


def make_network(config: Config, env: Env) -> nn.Module:
    """A torso and a value for each action."""
    torso = networks.torso(env.observation_space, config.hidden_sizes, config.activation)
    return networks.Head(torso, env.action_space.n, scale=0.01)


def make_optimiser(config: Config) -> optax.GradientTransformation:
    schedule = update.linear_decay(config.learning_rate, config.learning_rate_decay, config.total_updates)
    return optax.chain(update.clip_by_norm(config.max_grad_norm), optax.adam(schedule))


def make_learner(
    config: Config, env: Env, *, network=None, td_error=losses.double_q_learning, optimiser=None
) -> Learner:
    """DQN as a `Learner`.

    ``network`` is a Flax module ``obs [..., *obs] -> q [..., A]``, ``td_error`` has the arguments of
    `losses.q_learning`, ``optimiser`` is any optax transformation.
    """
    network = network or make_network(config, env)
    optimiser = optimiser or make_optimiser(config)
    annealing = config.exploration_fraction * float(config.total_updates)

    def epsilon(state: State) -> Array:
        return update.anneal(config.epsilon_start, config.epsilon_end, state.updates / annealing)

    def init(key: Key, obs: PyTree) -> State:
        params, zero = network.init(key, obs), jnp.zeros((), jnp.int32)
        return State(params, params, update.init_optimiser(optimiser, params), zero, zero)

    def explore(state: State, obs: PyTree, carry: PyTree, noise: Array):
        return distributions.epsilon_greedy(network.apply(state.params, obs), epsilon(state), noise), carry, ()

    def exploit(policy: PyTree, obs: PyTree, carry: PyTree, key: Key):
        return jnp.argmax(network.apply(policy, obs), axis=-1).astype(jnp.int32), carry

    def estimate(state: State, sample: Sample) -> Batch:
        """The first transition of each sequence ``[2, N]``."""
        now, later = (jax.tree.map(lambda x, i=i: x[i], sample.items) for i in range(2))
        return Batch(
            obs=now.obs,
            action=now.action,
            reward=now.reward,
            discount=config.gamma * (1 - now.terminated),
            next_q_online=network.apply(state.params, later.obs),
            next_q_target=network.apply(state.target_params, later.obs),
            weight=sample.weight,
        )

    def loss(params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        q = network.apply(params, batch.obs)
        error = jax.vmap(td_error)(
            q, batch.action, batch.reward, batch.discount, batch.next_q_online, batch.next_q_target
        )
        metrics = {"value": jnp.mean(jnp.max(q, axis=-1)), "td_error": jnp.mean(batch.weight * jnp.abs(error))}
        return jnp.mean(batch.weight * losses.huber(error, config.huber_delta)), metrics

    def learn(state: State, sample: Sample, key: Key) -> tuple[State, Metrics]:
        params, opt_state, metrics = update.gradient_step(
            loss, optimiser, state.params, state.opt_state, estimate(state, sample)
        )
        target_age = (state.target_age + 1) % config.target_period
        target_params = jax.tree.map(lambda new, old: jnp.where(target_age == 0, new, old), params, state.target_params)
        metrics["epsilon"] = epsilon(state)
        return State(params, target_params, opt_state, optax.safe_increment(state.updates), target_age), metrics

    return Learner(
        init=init,
        init_carry=lambda num_envs: (),
        noise=lambda key, shape: draw.uniform(key, (*shape, 2)),
        explore=explore,
        policy=lambda state: state.params,
        exploit=exploit,
        update=learn,
    )


def make_trainer(config: Config, env: Env, **parts: Any) -> Trainer:
    """One iteration of DQN as a `Trainer`; ``parts`` are those of `make_learner`."""
    return loops.off_policy(
        env,
        make_learner(config, env, **parts),
        replay.uniform(num_rows=config.capacity_rows, num_envs=config.num_envs, length=2, batch_size=config.batch_size),
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        num_updates=config.num_updates,
        warmup=config.warmup_rows,
    )


def make_train(config: Config, env: Env, **parts: Any):
    """The whole training, ``train(key) -> Result``; ``parts`` are those of `make_learner`."""
    return loops.train(make_trainer(config, env, **parts), config.num_iterations)
