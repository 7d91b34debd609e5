"""Meta-gradients: a search like any other, whose steps follow the slope of what agents do after they have learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import a2c, disco, dqn, envs, impala, loops, ppo
from purerl.errors import ConfigError
from purerl.learned import sockets
from purerl.meta import judges, meta_gradient

SIZES = {"total_steps": 4 * 8 * 6, "num_envs": 4, "num_steps": 8, "hidden_sizes": (8,), "learning_rate": 0.02}
CONFIG = ppo.Config(**SIZES, num_epochs=2, num_minibatches=1)
ENV = envs.make("probe/obs-action-match")


@pytest.fixture(scope="module")
def search():
    return meta_gradient.make_search(sockets.make("policy-drift"), ppo, CONFIG, [ENV], num_agents=3, num_iterations=2)


@pytest.mark.weekly
def test_is_a_search(search):
    """Finite steps that move the meta-parameters; lives end and begin; chunks of any length end in the same bits."""
    start = jax.jit(search.init)(jax.random.key(0))
    chunk = jax.jit(loops.chunk(search, 4))
    whole, metrics = chunk(start, 4)
    first, _ = chunk(start, 1)
    again, _ = chunk(first, 3)
    jax.tree.map(np.testing.assert_array_equal, search.mean(again), search.mean(whole))
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), search.mean(start), search.mean(whole))
    assert all(jax.tree.leaves(moved))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(search.mean(whole)))
    assert np.all(metrics["alive"] == 1) and whole.generation == 4
    np.testing.assert_array_equal(whole.agents.iteration.low, [2] * 3)  # 6 iterations are a life: 2, 4, 0, 2
    assert search.frames == 3 * (2 + 1) * 32


@pytest.mark.parametrize(
    ("socket", "algo", "config", "environments"),
    [
        ("td-loss", dqn, dqn.Config(), [ENV]),
        ("optimiser", ppo, CONFIG, [ENV]),
        ("lpg", a2c, a2c.Config(**SIZES), [ENV]),
        ("value-loss", ppo, CONFIG, [ENV, ENV]),
        ("cheap-talk", ppo, CONFIG, [ENV]),
    ],
)
def test_problems(socket, algo, config, environments):
    with pytest.raises(ConfigError, match="^strategy = 'meta_gradient': needs a policy gradient of one agent"):
        meta_gradient.make_search(sockets.make(socket), algo, config, environments, num_agents=2)


def test_a_bonus_is_refused():
    """Beside what else is wrong, and before anything is made."""
    curious = ppo.Config(**SIZES, intrinsic="rnd", num_minibatches=1)
    for socket, num_lines in (("policy-drift", 1), ("optimiser", 2)):
        with pytest.raises(ConfigError, match="^(.*\n)?intrinsic = 'rnd':") as error:
            meta_gradient.make_search(sockets.make(socket), ppo, curious, [ENV], num_agents=2)
        assert len(str(error.value).splitlines()) == num_lines


@pytest.mark.weekly
def test_unused_meta_parameters_stay(search):
    """What no loss depends on has no slope, and Adam leaves it where it is."""
    idle = sockets.Socket("idle", lambda key: jnp.ones(3), lambda meta_params, config: {})
    flat = meta_gradient.make_search(idle, ppo, CONFIG, [ENV], num_agents=2)
    start = flat.init(jax.random.key(0))
    state, _ = jax.jit(flat.step)(start)
    np.testing.assert_array_equal(flat.mean(state), flat.mean(start))


@pytest.mark.weekly
def test_an_agent_that_dies_is_left_out(search):
    """The others' slopes still move the meta-parameters, and it begins anew."""
    start = search.init(jax.random.key(0))
    broken = jax.tree.map(lambda x: x.at[1].set(1e30) if x.ndim > 1 else x, start.agents.learner.params)
    agents = start.agents._replace(learner=start.agents.learner._replace(params=broken))
    state, metrics = jax.jit(search.step)(start._replace(agents=agents))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(search.mean(state)))
    assert any(
        np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (search.mean(state), search.mean(start))), strict=True)
    )
    assert metrics["alive"] < 1 and np.all(state.agents.alive) and state.agents.iteration.low.tolist() == [2, 0, 2]


@pytest.mark.weekly
@pytest.mark.parametrize("socket", ["value-loss", "policy-drift"])
def test_has_a_slope(socket):
    """A value loss is felt through the advantages of the second iteration, a drift at once."""
    config = ppo.Config(
        total_steps=4 * 16 * 8, num_envs=4, num_steps=16, num_epochs=2, num_minibatches=1, hidden_sizes=(8,)
    )
    env = envs.make("CartPole-v1")
    start = meta_gradient.make_search(sockets.make(socket), ppo, config, [env], num_agents=1).init(jax.random.key(1))
    judge = judges.by_own_critic(config, env)
    live = meta_gradient.lookahead(meta_gradient.trainers(sockets.make(socket), ppo, config, env, judge), 2, judge)
    agent = jax.tree.map(lambda x: x[0], start.agents)
    slope, _ = jax.jit(jax.grad(live, has_aux=True))(start.meta_params, agent, (), jax.random.key(2))
    leaves = jax.tree.leaves(slope)
    assert all(np.all(np.isfinite(x)) for x in leaves)
    assert sum(bool(np.any(x != 0)) for x in leaves) >= len(leaves) - 1  # a constant added to a loss has none


@pytest.mark.rest
def test_judges_by_what_the_critic_knows():
    """Rewards are on the critic's scale, and the newest parameters act where there are older ones."""
    config = impala.Config(**SIZES, lag=2.0, max_lag=2, normalize_reward=True)
    socket = sockets.make("vtrace-weight")
    start = meta_gradient.make_search(socket, impala, config, [ENV], num_agents=1).init(jax.random.key(1))
    agent = jax.tree.map(lambda x: x[0], start.agents)
    by_critic = judges.by_own_critic(config, ENV)
    trainer = meta_gradient.trainers(socket, impala, config, ENV, by_critic)(start.meta_params)
    judge = jax.jit(lambda agent: by_critic.loss(trainer, agent, {}, (), jax.random.key(3))[0])
    learner = agent.learner
    acting = jax.tree.map(lambda x: x + 1.0, learner.acting)
    acted_by_older = judge(agent._replace(learner=learner._replace(acting=acting)))
    np.testing.assert_array_equal(acted_by_older, judge(agent))
    own = learner.learner
    moments = own.reward_scale.moments._replace(count=jnp.int32(10**6), var=jnp.float32(100.0))
    scaled = own._replace(reward_scale=own.reward_scale._replace(moments=moments))
    assert judge(agent._replace(learner=learner._replace(learner=scaled))) != judge(agent)


@pytest.mark.weekly
def test_a_rule_of_disco():
    """Every array of the rule moves, but those of predictions that no later update has read yet; the value network that
    judges an agent learns, and its advantages are followed."""
    sizes = {"num_envs": 2, "num_steps": 4, "unroll": 5, "period": 4, "num_updates": 1, "batch_size": 2}
    config = disco.Config(
        **sizes, capacity=32, warmup_steps=16, total_steps=160, hidden_sizes=(8,), head_size=8, learning_rate=0.01
    )
    search = meta_gradient.make_search(sockets.make("disco"), disco, config, [ENV], num_agents=2, num_iterations=2)
    start = jax.jit(search.init)(jax.random.key(0))
    state, metrics = jax.jit(search.step)(start)
    moved = {name: bool(np.any(x != start.meta_params[name])) for name, x in search.mean(state).items()}
    assert all(moved.values()), [name for name in moved if not moved[name]]
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((search.mean(state), state.judging)))
    before, after = start.judging, state.judging
    for one, other in zip(jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True):
        assert np.any(one != other)
    np.testing.assert_allclose(after.advantages.decays, 0.99)
    assert np.all(metrics["alive"] == 1) and search.frames == 2 * 2 * (2 * 4 + 8)
