"""Learning with several agents: what is ignored moves no policy, targets by hand, parameters of each."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import compiled, for_bits

from purerl import draw, trees
from purerl.algos import impala, ippo, iql, mappo, masac, qmix, vdn
from purerl.envs.episodic import no_noise
from purerl.networks import mixers
from purerl.replay.views import Cut
from purerl.spaces import Box, Discrete
from purerl.types import Env, Outcome, Sample, Situation, Step, Transition

M, A, GAMMA = 2, 3, 0.9
KEY = jax.random.key(0)


def probe(legal=True):
    """Two agents, who see two numbers, which of three actions are legal, and whether they act. The team is paid for
    equal actions; episodes end after three steps."""

    def observe(time):
        count = jnp.full((M, 1), time, jnp.float32)
        may = jnp.stack([jnp.ones(A, bool), jnp.arange(A) != time % A])
        return {"x": jnp.concatenate([count, jnp.eye(M)[:, :1]], -1), "may": may, "turn": time % M == jnp.arange(M)}

    def step(noise, time, action):
        last = jnp.full(M, time == 2)
        reward = jnp.full(M, (action[0] == action[1]).astype(jnp.float32))
        return time + 1, Step(observe(time + 1), reward, last, jnp.zeros(M, bool))

    return Env(
        "probe/pair",
        lambda key, shape: (0.5 * draw.uniform(key, shape)).astype(jnp.int32),  # 0, which XLA does not take for granted
        lambda first: (first, observe(first)),
        no_noise,
        step,
        {"x": Box(-9, 9, (2,), jnp.float32), "may": Box(False, True, (A,), bool), "turn": Box(False, True, (), bool)},
        Discrete(A),
        (lambda obs: obs["may"]) if legal else None,
        M,
        acting=lambda obs: obs["turn"],
        ends_together=True,
    )


def seen(rng, *lead):
    """Random observations; some action is always legal, and somebody acts."""
    may = rng.random((*lead, A)) < 0.5
    may[..., 0] |= ~may.any(-1)
    return {
        "x": jnp.asarray(rng.normal(size=(*lead, 2)), jnp.float32),
        "may": jnp.asarray(may),
        "turn": jnp.asarray(rng.random(lead) < 0.5),
    }


def joint(obs):
    """Observations of all agents as `agents.joint` makes them."""
    return {"agents": obs, "legal": obs["may"], "acting": obs["turn"]}


def chosen(rng, legal):
    """A legal action of each."""
    return np.argmax(np.where(legal, rng.random(legal.shape), -1.0), axis=-1).astype(np.int32)


def scattered(tree, seed):
    """Other parameters of these shapes."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(0.5 * rng.normal(size=x.shape), jnp.float32), tree)


def equal(a, b):
    return jax.tree.leaves(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


NETWORK = {"hidden_sizes": (4,), "max_grad_norm": 1e9}
ROWS = {
    "ippo": (ippo.ippo, ippo.IPPOConfig(**NETWORK, num_envs=2, num_steps=6, num_epochs=1, num_minibatches=2)),
    "impala": (impala.impala, impala.ImpalaConfig(**NETWORK, num_envs=2, num_steps=6, normalize_reward=False)),
}


@pytest.fixture(scope="module", params=ROWS)
def rows(request):
    """A learner of rows, its state and update, and experience in which the last row never acts."""
    algo, config = ROWS[request.param]
    env = algo.view(config, probe(legal=False))
    learner, rng = algo.own_learner(config, env), np.random.default_rng(1)

    def observed():
        obs = seen(rng, 6, 2 * M)
        obs["turn"] = obs["turn"].at[:, 3].set(False)
        if algo is impala.impala:
            return obs
        return {"obs": obs, "id": jnp.broadcast_to(jnp.tile(jnp.eye(M), (2, 1)), (6, 2 * M, M))}

    obs, next_obs = observed(), observed()
    state = jax.jit(learner.init)(KEY, trees.take(obs, 0))
    extras = jax.eval_shape(
        lambda s, o: learner.explore(learner.behaviour(s), Situation(o, ()), learner.noise(KEY, (2 * M,)))[2],
        state,
        trees.take(obs, 0),
    )
    extras = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=(6, *x.shape)), jnp.float32), extras)
    reward, flag = rng.normal(size=(6, 2 * M)), np.repeat(rng.random((6, 2)) < 0.3, M, axis=1)
    data = Transition(
        obs,
        jnp.asarray(rng.integers(A, size=(6, 2 * M)), jnp.int32),
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(flag),
        jnp.zeros((6, 2 * M), bool),
        next_obs,
        extras,
    )
    return state, jax.jit(learner.update), data, np.asarray(env.acting(obs))


@pytest.mark.rest
def test_ignored_actions_move_nothing(rows):
    state, update, data, acting = rows
    result, metrics, _ = update(state, data, KEY)
    other = (data.action + 1) % A
    again, same, _ = update(state, data._replace(action=jnp.where(acting, data.action, other)), KEY)
    assert all(equal(result, again)) and all(equal(metrics, same))
    assert not all(equal(result, update(state, data._replace(action=other), KEY)[0]))


@pytest.mark.rest
def test_who_never_acts_moves_no_policy(rows):
    """Its rewards, and what it sees, move the critic."""
    state, update, data, acting = rows
    result, *_ = update(state, data, KEY)
    part = data.obs.get("obs", data.obs)
    blurred = {**part, "x": part["x"].at[:, 3].add(0.5)}
    other_obs = {**data.obs, "obs": blurred} if "obs" in data.obs else blurred
    assert not acting[:, 3].any()
    for change in ({"reward": data.reward.at[:, 3].add(3.0)}, {"obs": other_obs}):
        again, *_ = update(state, data._replace(**change), KEY)
        assert all(equal(result.params["actor"], again.params["actor"]))
        assert not all(equal(result.params["critic"], again.params["critic"]))
    moved, *_ = update(state, data._replace(reward=data.reward.at[:, 2].add(np.arange(6.0))), KEY)
    assert not any(equal(result.params["actor"], moved.params["actor"]))


L, BURN_IN, N, STEPS = 5, 1, 4, 2
FACTORED = {
    "hidden_sizes": (4,),
    "memory": "none",
    "last_action": False,
    "burn_in": BURN_IN,
    "unroll": L - BURN_IN,
    "n_step": STEPS,
    "gamma": GAMMA,
    "target_period": 2,
}
FACTORS = {
    "iql": (iql.iql, qmix.TeamConfig(**FACTORED), mixers.apart()),
    "vdn": (vdn.vdn, qmix.TeamConfig(**FACTORED, double=False), mixers.summed()),
    "qmix": (qmix.qmix, qmix.QMIXConfig(**FACTORED, mixer_size=3, hyper_size=4), mixers.monotonic(3, 4)),
}


@pytest.fixture(scope="module", params=FACTORS)
def factored(request):
    """A learner, its network and mixer, a state whose target is not its network, and a sample: the second sequence
    terminates, the third and the fourth are truncated, and only of the third is known what followed."""
    algo, config, mixer = FACTORS[request.param]
    env = algo.view(config, probe())
    learner, rng = compiled(algo.own_learner(config, env), "init", "update"), np.random.default_rng(2)
    obs, after = joint(seen(rng, L, N, M)), joint(seen(rng, N, M))
    state = learner.init(KEY, trees.take(obs, 0))
    state = state._replace(params=scattered(state.params, 3), target_params=scattered(state.params, 4))
    terminated, truncated = np.zeros((2, L, N), bool)
    terminated[2, 1] = truncated[3, 2] = truncated[2, 3] = True
    items = Transition(
        obs,
        jnp.asarray(chosen(rng, np.asarray(obs["legal"]))),
        jnp.asarray(rng.normal(size=(L, N)), jnp.float32),
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        Cut(jnp.array([-1, -1, 3, -1], jnp.int32), after),
        (),
    )
    sample = Sample(items, jnp.zeros(N, jnp.int32), jnp.zeros(N, jnp.int32), jnp.asarray([1.0, 0.5, 2.0, 1.0]))
    network = compiled(qmix.make_network(config, env), "step")
    return config, learner, network, mixer, state, sample, learner.update


@pytest.mark.rest
@pytest.mark.weekly("qmix")
def test_targets_of_teams(factored):
    """Sums of two rewards and the team's value of greedy actions, one by one in numpy. Agents that do not act have the
    value of their first legal action, at which they learn, too."""
    config, _, network, mixer, state, sample, update = factored
    items = jax.device_get(sample.items)

    def values(params, obs):
        q = np.asarray(network.step(params["agents"], obs, ())[0])
        assert np.all((q == -1e9) == ~np.asarray(obs["legal"]))
        return q

    def mixed(params, q, obs):
        state_seen = np.concatenate(
            [np.asarray(obs["agents"][name], np.float32).reshape(*q.shape[:-1], -1) for name in ("may", "turn", "x")],
            -1,
        )
        return np.asarray(mixer.mix(params["mixer"], jnp.asarray(q), jnp.asarray(state_seen)))

    def pick(q, action, obs):
        action = np.where(obs["acting"], action, np.argmax(obs["legal"], axis=-1))
        return np.take_along_axis(q, action[..., None], axis=-1)[..., 0]

    def best(obs):
        online, target = values(state.params, obs), values(state.target_params, obs)
        greedy = np.argmax(online if config.double else target, axis=-1)
        return mixed(state.target_params, pick(target, greedy, obs), obs)

    value, after = best(items.obs), best(items.next_obs.obs)
    taken = mixed(state.params, pick(values(state.params, items.obs), items.action, items.obs), items.obs)
    errors, sizes = np.zeros((N, *value.shape[2:])), np.zeros(N)
    for n in range(N):
        learned = []
        for t in range(BURN_IN, L):
            cut = t == items.next_obs.step[n]
            if (items.truncated[t, n] or t == L - 1) and not cut:
                continue
            total, discount, at = 0.0, 1.0, t
            for _ in range(STEPS):
                if at == items.next_obs.step[n]:
                    total, discount = total + discount * (items.reward[at, n] + GAMMA * after[n]), 0.0
                if at == L - 1 or items.truncated[at, n]:
                    break
                total += discount * items.reward[at, n]
                discount *= GAMMA * (1 - items.terminated[at, n])
                at += 1
            learned.append(total + discount * value[at, n] - taken[t, n])
        sizes[n] = np.mean(np.abs(learned))
        errors[n] = np.sum(np.square(learned), axis=0) / (L - BURN_IN)
    _, metrics, priority = update(state, sample, KEY)
    np.testing.assert_allclose(priority, sizes, rtol=1e-4)
    loss = np.mean(np.asarray(sample.weight) * 0.5 * errors.sum(axis=1))
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-4)


@pytest.mark.rest
def test_ignored_actions_of_teams_move_nothing(factored):
    *_, state, sample, update = factored
    items, rng = sample.items, np.random.default_rng(5)
    result = update(state, sample, KEY)
    other = chosen(rng, np.asarray(items.obs["legal"]))
    ignored = items._replace(action=jnp.where(items.obs["acting"], items.action, other))
    assert np.any(ignored.action != items.action)
    assert all(equal(result, update(state, sample._replace(items=ignored), KEY)))
    assert not all(equal(result, update(state, sample._replace(items=items._replace(action=jnp.asarray(other))), KEY)))


@pytest.mark.rest
def test_targets_copy_the_mixer_with_the_agents(factored):
    *_, state, sample, update = factored
    once, *_ = update(state, sample, KEY)
    assert all(equal(once.target_params, state.target_params)) and not any(equal(once.params, state.params))
    twice, *_ = update(once, sample, KEY)
    assert all(equal(twice.target_params, twice.params))


@pytest.fixture(scope="module")
def soft():
    """MASAC: its networks, parameters with another target, and a sample of a bandit and of steps that go on."""
    config = masac.MASACConfig(hidden_sizes=(4,), gamma=GAMMA, initial_temperature=0.3)
    env = masac.masac.view(config, probe())
    network = masac.make_network(config, env)
    learner, rng = compiled(masac.masac.own_learner(config, env), "init", "update"), np.random.default_rng(6)
    obs, next_obs = joint(seen(rng, N, M)), joint(seen(rng, N, M))
    next_obs["acting"] = jnp.array([[True, False], [False, True], [True, True], [True, False]])
    state = learner.init(KEY, obs)
    params = {**scattered(state.params, 7), "log_temperature": state.params["log_temperature"]}
    state = state._replace(params=params, target_params=scattered(state.target_params, 8))
    items = Outcome(
        obs,
        jnp.asarray(chosen(rng, np.asarray(obs["legal"]))),
        jnp.asarray(rng.normal(size=N), jnp.float32),
        jnp.array([0.0, GAMMA, GAMMA, GAMMA**2], jnp.float32),
        next_obs,
        (),
        (),
    )
    sample = Sample(items, jnp.zeros(N, jnp.int32), jnp.zeros(N, jnp.int32), jnp.ones(N))
    return config, env, network, learner, state, sample


def of_policy(network, actor, critic, obs):
    """Of each agent: the expected least value, and the entropy."""
    logits = np.where(obs["legal"], np.float64(network.act(actor, obs)), -np.inf)
    probability = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probability /= probability.sum(axis=-1, keepdims=True)
    q = np.asarray(network.q_values(critic, obs)).min(axis=-2)
    log = np.log(np.where(probability > 0, probability, 1.0))
    return np.sum(probability * q, axis=-1), -np.sum(probability * log, axis=-1)


@pytest.mark.rest
def test_targets_of_soft_teams(soft):
    """The team's reward and each agent's own soft value, entropies of agents that act alone; by hand."""
    _, _, network, learner, state, sample = soft
    items = jax.device_get(sample.items)
    value, entropy = of_policy(network, state.params["actor"], state.target_params["critic"], items.next_obs)
    worth = value + 0.3 * np.where(items.next_obs["acting"], entropy, 0.0)
    target = items.reward[:, None] + items.discount[:, None] * worth  # [N, M]
    q = np.asarray(network.q_values(state.params["critic"], items.obs))  # [N, M, K, A]
    assert q.shape == (N, M, 2, A)
    taken = np.take_along_axis(q, items.action[..., None, None], axis=-1)[..., 0]
    error = target[..., None] - taken
    _, metrics, priority = learner.update(state, sample, KEY)
    np.testing.assert_allclose(priority, np.mean(np.abs(error), axis=(1, 2)), rtol=1e-4)
    np.testing.assert_allclose(metrics["loss"], np.mean(0.5 * np.sum(error**2, axis=(1, 2))), rtol=1e-4)


@pytest.mark.rest
def test_the_soft_actors_loss(soft):
    """The mean over agents that act; the temperature aims at a fraction of the entropy of the legal actions."""
    config, _, network, learner, state, sample = soft
    obs = jax.device_get(sample.items.obs)
    after, metrics, _ = learner.update(state, sample, KEY)  # the actor's loss is by the critics after their step
    value, entropy = of_policy(network, state.params["actor"], after.params["critic"], obs)
    aim = config.target_entropy * np.log(obs["legal"].sum(axis=-1))
    each = -(value + 0.3 * entropy) + 0.3 * (entropy - aim)
    expected = np.where(obs["acting"], each, 0).sum(axis=1) / np.maximum(obs["acting"].sum(axis=1), 1)
    np.testing.assert_allclose(metrics["policy_loss"], expected.mean(), rtol=1e-4, atol=1e-6)
    assert obs["acting"].any() and not obs["acting"].all() and metrics["policy_grad_norm"] > 0
    nobody = sample.items._replace(obs={**obs, "acting": np.zeros_like(obs["acting"])})
    assert learner.update(state, sample._replace(items=nobody), KEY).metrics["policy_grad_norm"] == 0


@pytest.mark.rest
@pytest.mark.parametrize("algo", [ippo, mappo, iql, masac])
def test_illegal_actions_are_never_taken(algo):
    """By chance or by choice."""
    made = getattr(algo, algo.__name__.rpartition(".")[2])
    config = made.Config(hidden_sizes=(4,), memory="none") if algo is not masac else made.Config(hidden_sizes=(4,))
    env, count = made.view(config, probe()), 400
    learner, rng = compiled(made.own_learner(config, env), "init", "explore", "exploit"), np.random.default_rng(9)
    like = jax.eval_shape(env.reset, KEY)[1]
    together = env.num_agents == 1
    own = seen(rng, count, M)
    if together:
        obs, legal, size = {**joint(own), "previous": jnp.zeros((count, M), jnp.int32)}, own["may"], count
        obs = {name: x for name, x in obs.items() if name in like}
    else:
        ids = jnp.broadcast_to(jnp.eye(M), (count, M, M))
        obs = {"obs": own, "id": ids}
        obs = {"own": obs, "state": jnp.zeros((count, *like["state"].shape))} if algo is mappo else obs
        obs, legal, size = trees.merge(obs, 2), own["may"].reshape(-1, A), count * M
    state, carry = learner.init(KEY, obs), learner.init_carry(size)
    explored = learner.explore(learner.behaviour(state), Situation(obs, carry), learner.noise(KEY, (size,)))[0]
    exploited = learner.exploit(learner.policy(state), Situation(obs, carry), KEY)[0]
    for action in (explored, exploited):
        assert np.all(np.take_along_axis(np.asarray(legal), np.asarray(action)[..., None], axis=-1))
    assert len(np.unique(explored)) == A


@pytest.mark.rest
@pytest.mark.weekly("gru")
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_parameters_that_are_not_shared(memory):
    """An agent's policy and value depend on its own parameters alone."""
    config = mappo.IPPOConfig(hidden_sizes=(4,), share_parameters=False, agent_ids=False, memory=memory, memory_size=3)
    env = mappo.mappo.view(config, probe())
    learner, rng = compiled(mappo.mappo.own_learner(config, env), "init"), np.random.default_rng(10)
    own = {"obs": seen(rng, 3 * M), "id": jnp.tile(jnp.eye(M), (3, 1))}
    like = jax.eval_shape(env.reset, KEY)[1]["state"]
    obs = {"own": own, "state": jnp.asarray(rng.normal(size=(3 * M, like.shape[-1])), jnp.float32)}
    state, carry = learner.init(KEY, obs), learner.init_carry(3 * M)
    params = scattered(state.params, 11)
    other = jax.tree.map(lambda x, y: x.at[1].set(y[1]), params, scattered(state.params, 12))
    assert all(x.shape[0] == M for x in jax.tree.leaves(params))
    acts = jax.jit(
        lambda params: learner.explore(
            learner.behaviour(state._replace(params=params)), Situation(obs, carry), learner.noise(KEY, (6,))
        )
    )
    (_, following, extras), (_, following_too, extras_too) = acts(params), acts(other)
    same = np.all(np.asarray(extras.policy == extras_too.policy), axis=-1)
    np.testing.assert_array_equal(same, [True, False] * 3)
    for x, y in zip(jax.tree.leaves(following), jax.tree.leaves(following_too), strict=True):
        np.testing.assert_array_equal(np.all(np.asarray(x == y), axis=-1), [True, False] * 3)


@pytest.mark.weekly
def test_a_team_among_members_is_bit_for_bit_as_alone():
    """Three trainings with step sizes of their own, beside one another and each by itself."""
    config = ippo.IPPOConfig(**NETWORK, num_envs=2, num_steps=6, total_steps=24, num_epochs=2, num_minibatches=2)

    def train(learning_rate, key):
        changed = dataclasses.replace(config, learning_rate=learning_rate)
        return ippo.ippo.make_train(changed, probe())(key)

    rates, keys = jnp.array([1e-3, 3e-3, 1e-2]), jax.random.split(KEY, 3)
    alone = jax.jit(train, compiler_options=for_bits())
    together = jax.jit(jax.vmap(train), compiler_options=for_bits())(rates, keys)
    for i in range(3):
        one = alone(rates[i], keys[i])
        params = one.state.learner.params
        assert all(equal(params, jax.tree.map(lambda x, i=i: x[i], together.state.learner.params)))
        jax.tree.map(np.testing.assert_array_equal, one.metrics, jax.tree.map(lambda x, i=i: x[i], together.metrics))
        assert one.metrics["alive"].all()
