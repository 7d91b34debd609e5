"""Searches through environments against a recursion by hand, for one agent and for two; what is legal; the noise."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import search_oracle

from purerl import trees
from purerl.algos.alphazero import alphazero
from purerl.envs import seats
from purerl.formulas import exploration
from purerl.learners.parts import planning
from purerl.networks.heads import shared_actor_critic
from purerl.spaces import Box, Discrete
from purerl.types import Env, Situation, Step

A, DEPTH, ROOTS, GAMMA = 3, 3, 12, 0.9
SIMULATIONS = 24
KEY = jax.random.key(0)


def forest(num_agents):
    """``ROOTS`` trees of depth 3 as tables by position: who moves, what follows each action, and what it pays agent 0.

    After a move it is often the same agent's turn. The last positions are terminal or truncated, and some before.
    """
    rng = np.random.default_rng(num_agents)
    size = ROOTS * (A ** (DEPTH + 1) - 1) // (A - 1)
    depth = np.concatenate([np.full(ROOTS * A**d, d) for d in range(DEPTH + 1)])
    inner = np.flatnonzero(depth < DEPTH)
    child = np.zeros((size, A), int)
    child[inner] = ROOTS + np.arange(len(inner) * A).reshape(-1, A)
    end = np.where(depth == DEPTH, 1.0, np.where(depth > 0, 0.3, 0.0)) > rng.random(size)
    cut = end & (rng.random(size) < 0.5)
    legal = rng.random((size, A)) < 0.8
    legal[np.arange(size), rng.integers(A, size=size)] = True
    reward = np.where(rng.random((size, A)) < 0.5, rng.normal(size=(size, A)), 0.0)
    return SimpleNamespace(
        child=child,
        mover=rng.integers(num_agents, size=size),
        reward=np.where(legal, reward, 1000.0).astype(np.float32).astype(float),
        legal=legal,
        terminated=end & ~cut,
        truncated=cut,
        logits=rng.normal(size=(size, 2, A)).astype(np.float32),
        value=rng.normal(size=(size, 2)).astype(np.float32),
        gamma=GAMMA,
    )


def tree_game(game, num_agents, apart):
    """The tables as an `Env` that sees its position; ``apart``: it does not promise that agents end together."""
    tables = jax.tree.map(jnp.asarray, vars(game) | {"gamma": 0.0})
    several, agents = num_agents > 1, np.arange(num_agents)

    def observe(place):
        acting = tables["mover"][place] == agents
        obs = {
            "place": 2 * place + agents[:, None],
            "legal": tables["legal"][place][None] | ~acting[:, None],
            "acting": acting,
        }
        return obs if several else trees.take(obs, 0)

    def step(noise, place, action):
        taken = action[tables["mover"][place]] if several else action
        after = tables["child"][place, taken].astype(jnp.int32)
        reward = tables["reward"][place, taken].astype(jnp.float32) * jnp.array([1.0, -1.0])[:num_agents]
        ends = [jnp.broadcast_to(tables[name][after], (num_agents,)) for name in ("terminated", "truncated")]
        made = reward, *ends
        return after, Step(observe(after), *(made if several else (x[0] for x in made)))

    return Env(
        "trees",
        levels=lambda key, shape: jax.random.randint(key, shape, 0, ROOTS),
        begin=lambda level: (level, observe(level)),
        noise=lambda key, shape: (),
        step=step,
        observation_space={
            "place": Box(0, 2 * len(game.child), (1,), jnp.dtype("int32")),
            "legal": Box(False, True, (A,), jnp.dtype(bool)),
            "acting": Box(False, True, (), jnp.dtype(bool)),
        },
        action_space=Discrete(A),
        legal=lambda obs: obs["legal"],
        num_agents=num_agents,
        acting=lambda obs: obs["acting"] if several else jnp.ones(obs["acting"].shape, bool),
        zero_sum=several,
        ends_together=not apart,
    )


def looked_up(game):
    """A network that is a table by position and agent."""

    def apply(params, obs):
        place = obs["place"][..., 0]
        return params["logits"][place], params["value"][place]

    tables = {"logits": jnp.asarray(game.logits.reshape(-1, A)), "value": jnp.asarray(game.value.reshape(-1))}
    return shared_actor_critic(lambda key, obs: tables, apply)


def searches(monkeypatch, num_agents, apart=False, agent=None, **settings):
    """The game, config and noise, and of all roots what training and evaluation do, with what `planning.plan` found.

    With ``agent``: instead of the evaluation what training does in that agent's rows alone.
    """
    game, plan = forest(num_agents), planning.plan
    env, found = tree_game(game, num_agents, apart), []
    config = alphazero.Config(simulations=SIMULATIONS, gamma=GAMMA, **settings)
    learner = alphazero.make_learner(config, env, network=looked_up(game))

    def spy(*given):
        found.append(plan(*given))
        return found[-1]

    monkeypatch.setattr(planning, "plan", spy)
    noise = learner.noise(jax.random.key(7), (ROOTS * num_agents,))

    @jax.jit
    def run():
        env_state, obs = jax.vmap(seats.seated(env).begin)(jnp.arange(ROOTS))
        here = Situation(trees.merge(obs, 2) if num_agents > 1 else obs, (), env_state)
        policy = learner.policy(learner.init(KEY, here.obs))
        action, _, extras = learner.explore(policy, here, noise)
        explored = action, extras, found[0]
        if agent is None:
            return explored, (learner.exploit(policy, here, KEY)[0], found[1])
        own = jax.tree.map(lambda x: x[agent::num_agents], here.obs)
        here = here._replace(obs=own, agents=np.full(ROOTS, agent))
        action, _, extras = learner.explore(policy, here, noise)
        return explored, (action, extras, found[1])

    return game, config, noise, *run()


def check(planned, place, policy, visits, value):
    np.testing.assert_array_equal(planned.visits[place], visits)
    np.testing.assert_allclose(planned.policy[place], policy, atol=1e-5)
    np.testing.assert_allclose(planned.value[place], value, atol=1e-5)


def check_recorded(game, num_agents, action, extras, planned):
    """Rows of the mover have its action, policy and value; another row of its game has the opposite value. With epsilon
    0.5 half of the actions are random ones, and legal."""
    for place in range(ROOTS):
        for agent in range(num_agents):
            row, mine = place * num_agents + agent, game.mover[place] == agent
            assert extras.acts[row] == mine and extras.drawn[row] == extras.drawn[place * num_agents]
            assert game.legal[place, action[row]]
            if not extras.drawn[row]:
                assert action[row] == planned.action[place]
            np.testing.assert_array_equal(extras.policy[row], planned.policy[place])
            np.testing.assert_array_equal(extras.value[row], planned.value[place] * (1 if mine else -1))


GUMBEL = {1: {}, 2: {"considered_actions": 2, "value_scale": 0.03, "rescale_values": False, "epsilon": 0.5}}
"""Settings by number of agents."""


@pytest.mark.parametrize("num_agents", [pytest.param(1, marks=pytest.mark.rest), 2])
def test_gumbel_by_hand(monkeypatch, num_agents):
    """Policies, visits, values and actions, with the noise of training and without."""
    game, config, noise, explored, exploited = searches(monkeypatch, num_agents, apart=True, **GUMBEL[num_agents])
    action, extras, planned = explored
    drawn = jax.random.gumbel(jax.random.split(planning.key_of(noise.search))[1], (ROOTS, A))
    settings = SIMULATIONS, config.considered_actions, (config.value_scale, config.rescale_values)
    for place in range(ROOTS):
        *by_hand, best = search_oracle.gumbel(search_oracle.Node(game, place), *settings, np.float64(drawn[place]))
        check(planned, place, *by_hand)
        assert planned.action[place] == best
        *by_hand, best = search_oracle.gumbel(search_oracle.Node(game, place), *settings, 0.0)
        check(exploited[1], place, *by_hand)
        assert exploited[1].action[place] == best
    assert np.any(planned.visits != exploited[1].visits)
    assert 0.2 < np.mean(extras.drawn) < 0.8 if config.epsilon else not np.any(extras.drawn)
    np.testing.assert_array_equal(exploited[0], np.repeat(exploited[1].action, num_agents))
    check_recorded(game, num_agents, action, extras, planned)


@pytest.mark.rest
def test_rows_of_one_agent(monkeypatch):
    """Rows of agent 0 alone, as in a league: the search of a turn of its own is the same. In a turn of the other it is
    the other's search, so that its value counts against agent 0."""
    game, config, noise, acted, rows = searches(monkeypatch, 2, agent=0, **GUMBEL[2])
    drawn = jax.random.gumbel(jax.random.split(planning.key_of(noise.search))[1], (ROOTS, A))
    settings = SIMULATIONS, config.considered_actions, (config.value_scale, config.rescale_values)
    _, extras, planned = rows
    for place in range(ROOTS):
        if game.mover[place] == 0:
            check(planned, place, *(getattr(acted[2], name)[place] for name in ("policy", "visits", "value")))
        else:
            root = search_oracle.seen_by_the_other(game, place)
            *by_hand, _ = search_oracle.gumbel(root, *settings, np.float64(drawn[place]))
            check(planned, place, *by_hand)
        assert extras.acts[place] == (game.mover[place] == 0)
        np.testing.assert_allclose(extras.value[place], planned.value[place] * (1, -1)[game.mover[place]])


@pytest.mark.rest
@pytest.mark.parametrize("num_agents", [1, 2])
def test_puct_by_hand(monkeypatch, num_agents):
    """Without noise at the root in training, which `test_noise_is_of_legal_actions` looks at."""
    game, _, _, explored, exploited = searches(monkeypatch, num_agents, planner="puct", dirichlet_fraction=0.0)
    action, extras, planned = explored
    for place in range(ROOTS):
        by_hand = search_oracle.puct(game, place, SIMULATIONS)
        check(planned, place, *by_hand)
        check(exploited[1], place, *by_hand)
        assert by_hand[1][exploited[1].action[place]] == max(by_hand[1])
    check_recorded(game, num_agents, action, extras, planned)


def test_trees_have_all_that_can_happen():
    """A control: ends of both kinds below the roots, moves after which the same agent moves, and illegal actions."""
    for num_agents in (1, 2):
        game = forest(num_agents)
        inner = game.child[:, 0] > 0
        again = game.mover[game.child[inner]] == game.mover[inner][:, None]
        assert game.terminated[inner].any() and game.truncated[inner].any() and again.any()
        assert again.all() == (num_agents == 1) and not game.legal[inner].all()


NOISY = planning.PlannerSettings(planner="puct", dirichlet_fraction=0.4, dirichlet_alpha=0.7, search_temperature=50.0)


def test_noise_is_of_legal_actions():
    """Over the actions that are legal it is Dirichlet's: its means and variances, however few they are."""
    number, probs = 4000, np.array([0.2, 0.0, 0.3, 0.0, 0.5])
    legal = jnp.asarray(np.broadcast_to(probs > 0, (number, 5)))
    logits = exploration.masked(jnp.log(jnp.broadcast_to(jnp.float32(probs), (number, 5))), legal)
    mixed = jax.nn.softmax(planning.with_noise(NOISY, KEY, logits, legal))
    np.testing.assert_array_equal(mixed[:, probs == 0], 0.0)
    noise = (np.asarray(mixed, float) - 0.6 * probs) / 0.4
    np.testing.assert_allclose(noise.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(noise[:, probs > 0].mean(axis=0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(noise[:, probs > 0].var(axis=0), (1 / 3) * (2 / 3) / (3 * 0.7 + 1), rtol=0.1)
