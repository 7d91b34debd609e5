"""Bandits whose levels are not seen: what each curriculum must come to is known in closed form."""

import functools

import jax
import jax.numpy as jnp
import optax

from purerl import loops
from purerl.curricula import replay, sfl
from purerl.curricula.training import curriculum_trainer
from purerl.envs import episodic, fleet
from purerl.spaces import Box, Discrete
from purerl.types import Design, Learner, Scores, Updated

NUM_ENVS, PULLS = 16, 16
TRAPS, NUM_LEVELS = 10, 100
SAFE = 0.6


def bandit(name, payoff, draw, solved=None):
    """An environment of single steps. ``payoff(level, action, chance) -> reward`` of a level that ``draw(key, shape)``
    gives, of which nothing is seen."""
    env = episodic(
        name,
        levels=draw,
        initial=lambda level: level,
        dynamics=lambda level, action, chance: (level, payoff(level, action, chance), True),
        observe=lambda level: jnp.zeros(1),
        time_limit=1,
        observation_space=Box(0.0, 1.0, (1,), jnp.float32),
        action_space=Discrete(3),
        noise=jax.random.uniform,
    )
    design = Design(lambda key, level: draw(key, ()), (2,), lambda key, choices: draw(key, ()), solved)
    return env._replace(design=design)


def minimax_regret():
    """Action 0 pays 1 in 90 levels, 1 pays 1 in the other 10, and 2 pays 0.6 in all: the policy whose regret in its
    worst level is least always takes the last, and has a regret of 0.4."""
    payoff = lambda level, action, _: jnp.where(action == 2, SAFE, (action == (level < TRAPS)).astype(jnp.float32))
    return bandit("minimax regret", payoff, lambda key, shape: jax.random.randint(key, shape, 0, NUM_LEVELS))


def learnability():
    """Every pull of a level pays 1 with a probability of its own, uniform in [0, 1), whatever is done.

    A level that paid at half of ``n`` pulls has, by Bayes, a probability of Beta(n / 2 + 1, n / 2 + 1): its
    learnability is 1/4 - 1 / (4 (n + 3)) on average. That is the most that can be found, and 1/6 what is drawn.
    """
    pays = lambda level, action, chance: (chance < level).astype(jnp.float32)
    return bandit("learnability", pays, jax.random.uniform, solved=0.5)


MOST_LEARNABLE = 1 / 4 - 1 / (4 * (PULLS + 3))


def worst_regret(policy):
    """Of a policy ``[3]`` in its worst level of `minimax_regret`."""
    return 1 - jnp.min(policy[:2]) - SAFE * policy[2]


def softmax_learner(learning_rate=0.3, entropy=0.02, fixed=False):
    """REINFORCE of three logits, with the mean reward as baseline; one that is ``fixed`` never learns."""
    optimiser = optax.sgd(0.0 if fixed else learning_rate)

    def explore(logits, here, noise):
        return jnp.argmax(logits[None] + noise, axis=-1).astype(jnp.int32), (), ()

    def update(logits, trajectory, key):
        baseline = jnp.mean(trajectory.reward)

        def loss(logits):
            log = jax.nn.log_softmax(logits)
            gain = jnp.mean((trajectory.reward - baseline) * log[trajectory.action])
            return -gain + entropy * jnp.sum(jnp.exp(log) * log)

        value, grads = jax.value_and_grad(loss)(logits)
        after = optax.apply_updates(logits, optimiser.update(grads, optimiser.init(logits))[0])
        of_each = Scores(jnp.broadcast_to(baseline, trajectory.reward.shape), trajectory.reward - baseline)
        return Updated(after, {"loss": value, "policy": jax.nn.softmax(after)}, of_each)

    return Learner(
        init=lambda key, obs: jnp.zeros(3),
        init_carry=lambda num_envs: (),
        noise=lambda key, shape: jax.random.gumbel(key, (*shape, 3)),
        behaviour=lambda logits: logits,
        explore=explore,
        policy=lambda logits: logits,
        exploit=lambda logits, here, key: (jnp.argmax(jnp.broadcast_to(logits, (here.obs.shape[0], 3)), -1), ()),
        update=update,
    )


def of_returns(sign=1.0):
    """The score of the bandits: the best return seen in a level less the mean return now."""
    return lambda of, best: sign * (best - of.mean)


def replaying(env, *, score=None, temperature=0.3, staleness=0.3, robust=False, capacity=NUM_LEVELS, share=0.8):
    """A training by prioritised replay."""
    curriculum = replay(
        env,
        NUM_ENVS,
        capacity=capacity,
        share=share,
        staleness=staleness,
        temperature=temperature,
        score=score or of_returns(),
        robust=robust,
    )
    return curriculum_trainer(fleet(env, NUM_ENVS), env, softmax_learner(), curriculum, num_steps=PULLS)


def randomised(env):
    """A training in random levels."""
    return loops.on_policy(fleet(env, NUM_ENVS), softmax_learner(), num_steps=PULLS)


def learnable(env, **settings):
    """A training by sampling for learnability."""
    return curriculum_trainer(
        fleet(env, NUM_ENVS), env, softmax_learner(fixed=True), sfl(env, NUM_ENVS, **settings), num_steps=PULLS
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def policies(trainer, num_iterations, keys):
    """The mean policy ``[S, 3]`` of the second half of a training, over iterations that learned, and its last state,
    for each key ``[S]``."""

    def run(key):
        result = loops.train(trainer, num_iterations)(key)
        return jnp.nanmean(result.metrics["policy"][num_iterations // 2 :], axis=0), result.state

    return jax.lax.map(run, keys)
