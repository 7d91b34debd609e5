"""Wrappers of learners: which algorithm has which, what does not go together, and what they do to rings and samples."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import config as cfg
from purerl import dqn, envs, networks, ppo, pqn, r2d2
from purerl.algos import ALGORITHMS
from purerl.cli import parsing
from purerl.curricula.settings import CurriculumSettings
from purerl.errors import ConfigError
from purerl.learners.parts import novelty
from purerl.learners.wrappers import TABLE, Wrapper, inside
from purerl.learners.wrappers.intrinsic import IntrinsicSettings, curious
from purerl.learners.wrappers.past import seats
from purerl.runs.describing.options import TrainOptions
from purerl.types import Learner, Outcome, Sample, Transition, Updated

KEY = jax.random.key(0)
KUHN = envs.make("KuhnPoker-v0")
NAMES = {each.name: {field.name for field in dataclasses.fields(each.Settings)} for each in TABLE}


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_who_has_which_settings(name):
    """An algorithm's settings are its own, and those of wrappers whose needs it meets come after them."""
    algorithm = ALGORITHMS[name]
    own, every = ({field.name for field in dataclasses.fields(x)} for x in (algorithm.own_config, algorithm.Config))
    assert not any(own & settings for settings in NAMES.values())
    plays = "data" not in algorithm.required
    on_policy, probable = hasattr(algorithm.Config, "batch_size") and "batch_size" not in own, "entropy_coef" in own
    has = {
        "curriculum": on_policy,
        "intrinsic reward": plays,
        "opponents": plays,
        "league": on_policy,
        "reference policy": probable,
    }
    assert every == own.union(*(NAMES[wrapper] for wrapper in NAMES if has[wrapper]))


def test_few_settings_of_its_own():
    """Beside those of curricula: 25 when the settings of wrappers left, and six that have come since."""
    of_curricula = {name for name in vars(CurriculumSettings)["__annotations__"] if name != "heading"}
    names = {field.name for field in dataclasses.fields(ppo.own_config)} - of_curricula
    since = {"target_kl", "convolutions", "max_uses", "adapt_learning_rate", "shared_torso", "weight_decay"}
    assert since <= names and len(names - since) <= 25


@pytest.mark.parametrize(
    ("algorithm", "settings", "lines"),
    [
        (
            ppo,
            {"opponents": "past", "reference_period": 3, "num_envs": 8, "num_minibatches": 1},
            ["reference_period = 3:"],
        ),
        (dqn, {"opponents": "league"}, ["opponents = 'league': needs whole trajectories"]),
        (ppo, {"opponents": "past", "intrinsic": "rnd", "max_lag": 1, "num_envs": 8, "num_minibatches": 1}, []),
        (dqn, {"opponents": "prioritised", "intrinsic": "rnd"}, []),
        (pqn, {"opponents": "league", "num_envs": 24, "num_minibatches": 4}, []),
    ],
)
def test_what_goes_together(algorithm, settings, lines):
    problems = algorithm.problems(algorithm.Config(**settings), KUHN)
    assert len(problems) == len(lines) and all(map(str.startswith, problems, lines)), problems


@cfg.config
class Twice:
    gamma: cfg.Fraction = 0.5
    """Another one."""


def test_no_setting_twice():
    twice = Wrapper("twice", Twice, "gamma", 0.5, lambda config, env, learner: learner)
    with pytest.raises(ConfigError, match="its settings gamma are also settings of the algorithm or another wrapper"):
        dqn.wrapped(twice).Config()
    with pytest.raises(ConfigError, match="its settings seed are also options of the command; rename them"):
        parsing.grouped(TrainOptions, dqn.wrapped(twice._replace(Settings=Seed)))


@cfg.config
class Seed:
    seed: cfg.NonNegative = 0.0
    """As an option is called."""


class Given(NamedTuple):
    params: Any
    given: Any


def keeping():
    """A learner that keeps what it was last given to learn from."""
    return Learner(
        init=lambda key, obs: Given(jnp.zeros(()), ()),
        init_carry=lambda num: (),
        noise=lambda key, shape: (),
        behaviour=lambda state: state.params,
        explore=lambda behaviour, here, noise: (here.obs, here.carry, ()),
        policy=lambda state: state.params,
        exploit=lambda policy, here, key: (here.obs, here.carry),
        update=lambda state, given, key: Updated(Given(state.params + 1, given), {}, given.weight),
    )


@pytest.fixture(scope="module")
def bonus():
    """A bonus around a learner that keeps what it is given, its state, and the errors of its distillation."""
    distillation = novelty.distillation(lambda sizes: networks.MLP(sizes), 4, 1e-3)
    learner = curious(IntrinsicSettings(intrinsic="rnd", intrinsic_coef=0.7), distillation, keeping())
    state = learner.init(KEY, jnp.ones((2, 3)))
    errors = state.distilled.judge.errors._replace(var=jnp.float32(0.25))
    state = state._replace(distilled=state.distilled._replace(judge=state.distilled.judge._replace(errors=errors)))
    return learner, state, lambda obs: np.asarray(distillation.error(state.distilled.judge, obs))


@pytest.mark.rest
def test_a_bonus_of_transitions(bonus):
    """Where each leads, by what is new now, over the deviation of errors; the sample itself stays as it was."""
    learner, state, error = bonus
    obs, next_obs = jax.random.normal(KEY, (2, 5, 3))
    reward, slot = jnp.arange(5.0), jnp.zeros(5, jnp.int32)
    sample = Sample(Outcome(obs, slot, reward, reward, next_obs, (), ()), slot, slot, jnp.ones(5))
    updated = learner.update(state, sample, KEY)
    result = updated.state.learner.given.items
    np.testing.assert_allclose(result.reward, reward + 0.7 * error(next_obs) / 0.5, rtol=1e-5)
    np.testing.assert_allclose(updated.metrics["intrinsic_reward"], np.mean(error(next_obs) / 0.5), rtol=1e-5)
    assert result.obs is obs and result.next_obs is next_obs and updated.scores is sample.weight


@pytest.mark.rest
def test_a_bonus_of_sequences(bonus):
    """That of the next row, and none where the sequence does not show what followed."""
    learner, state, error = bonus
    obs, reward = jax.random.normal(KEY, (4, 2, 3)), jnp.arange(8.0).reshape(4, 2)
    terminated = jnp.zeros((4, 2), bool).at[1, 0].set(True)
    truncated = jnp.zeros((4, 2), bool).at[2, 1].set(True)
    items = Transition(obs, reward, reward, terminated, truncated, (), ())
    sample = Sample(items, *[jnp.zeros(2, jnp.int32)] * 2, jnp.array([1.0, 0.0]))
    result = learner.update(state, sample, KEY).state.learner.given.items.reward
    paid = np.zeros((4, 2))
    paid[:3] = error(obs[1:].reshape(-1, 3)).reshape(3, 2) / 0.5
    paid[1, 0] = paid[2, 1] = 0.0
    np.testing.assert_allclose(result, reward + 0.7 * paid, rtol=1e-5)


SMALL = {"hidden_sizes": (4,), "num_envs": 8, "total_steps": 4_000, "capacity": 256, "num_updates": 1}
REPLAYED = {
    "dqn": (dqn, dqn.Config(**SMALL, num_steps=4, warmup_steps=64, batch_size=4, opponents="past", intrinsic="rnd")),
    "r2d2": (
        r2d2,
        r2d2.Config(**SMALL, num_steps=8, warmup_steps=128, unroll=9, burn_in=0, batch_size=4, opponents="past"),
    ),
}


@pytest.mark.rest
@pytest.mark.weekly("r2d2")
@pytest.mark.parametrize("name", REPLAYED)
def test_past_selves_off_policy(name):
    """Their rows enter no ring and move nothing; rewards are stored without a bonus; the record is of games."""
    algorithm, config = REPLAYED[name]
    trainer = algorithm.make_trainer(config, KUHN)
    where = seats(config, config.num_envs, KUHN.num_agents)
    np.testing.assert_array_equal(trainer.learner.rows, where.learned)
    state = jax.jit(trainer.init)(KEY)
    behaviour = trainer.learner.behaviour(state.learner)
    _, trajectory, _ = jax.jit(trainer.collect)(behaviour, state.actors, jax.random.key(1))
    theirs = np.isin(np.arange(trajectory.reward.shape[1]), where.theirs)
    other = jax.tree.map(
        lambda x: jnp.where(theirs.reshape(-1, *[1] * (x.ndim - 2)), jnp.roll(x, 1, axis=0), x), trajectory
    )
    assert np.any(other.obs != trajectory.obs)
    learn = jax.jit(trainer.learn)
    (after, metrics), (same, _) = (learn(state, x, jax.random.key(2)) for x in (trajectory, other))
    jax.tree.map(np.testing.assert_array_equal, after.replay, same.replay)
    jax.tree.map(np.testing.assert_array_equal, after.learner, same.learner)
    stored = next(x for x in jax.tree.leaves(after.replay) if x.shape[1:] == (where.learned.size,))
    assert stored.shape[1] == where.learned.size < theirs.size
    rewards = [x for x in jax.tree.leaves(after.replay) if x.dtype == jnp.float32 and x.ndim == 2]
    assert any(set(np.unique(x)) <= {-2.0, -1.0, 0.0, 1.0, 2.0} and np.any(x) for x in rewards)
    assert metrics["past_selves"] == 1 and np.sum(after.learner.games) == trajectory.last[:, where.ours].sum() > 0


@cfg.config
class Nothing:
    """No settings."""


class Counting(NamedTuple):
    learner: Any
    seen: Any


@pytest.mark.rest
def test_what_is_inside_observes_too():
    """A wrapper of somebody's own, which counts rewards as they were collected, inside of past selves."""

    def counted(config, env, learner):
        def observe(state, trajectory, key):
            inner, metrics = learner.observe(state.learner, trajectory, key)
            return Counting(inner, jnp.sum(trajectory.reward != 0)), {**metrics, "told": jnp.ones(())}

        def update(state, given, key):
            updated = learner.update(state.learner, given, key)
            return updated._replace(state=Counting(updated.state, state.seen))

        init = lambda key, obs: Counting(learner.init(key, obs), jnp.zeros((), jnp.int32))
        return inside(learner, init=init, update=update, observe=observe)

    mine = Wrapper("mine", Nothing, "mine", False, counted, on=(False,))
    algorithm = ppo._replace(wrappers=(mine, *ppo.wrappers))
    config = algorithm.Config(hidden_sizes=(4,), num_envs=8, num_steps=4, num_minibatches=1, opponents="past")
    trainer = algorithm.make_trainer(config, KUHN)
    state, metrics = jax.jit(lambda key: trainer.step(trainer.init(key)))(KEY)
    assert state.learner.learner.seen > 0 and metrics["told"] == 1 and metrics["past_selves"] == 1
