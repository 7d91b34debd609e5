"""MuZero by hand: targets at ends, the loss of an unrolling and its gradient, signs of two agents, who is refused.

Some rebuild what was reported of other libraries: a reward of the wrong player (muzero-general pull request 108),
targets beyond the end of an episode (alf pull request 1237, treeqn issue 3), weights that the loss ignores (alf pull
request 1233).
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from commands import own_module, run
from hand_games import on_device

from purerl import envs, muzero
from purerl.algos import muzero as module
from purerl.algos.alphazero import AlphaZeroPolicy, Extras
from purerl.errors import ConfigError
from purerl.formulas import td_errors
from purerl.learners.parts import normalize
from purerl.networks.world_models import WorldModel
from purerl.types import Recorded, Sample, Transition

CARTPOLE, GAME = envs.make("CartPole-v1"), envs.make("TicTacToe-v0")
GAMMA, ATOMS = 0.9, 5
CONFIG = muzero.Config(
    total_steps=10_000,
    gamma=GAMMA,
    unroll_steps=3,
    n_step=2,
    num_atoms=ATOMS,
    v_min=-10.0,
    v_max=20.0,
    value_coef=0.25,
    reward_coef=0.5,
    simulations=8,
    hidden_sizes=(4,),
    model_sizes=(4,),
    state_size=3,
    warmup_steps=2048,
)
STEPS, ACTIONS = CONFIG.sample_rows, 2
ENDS = {"none": {}, "terminated": {1: "t"}, "cut": {1: "c"}, "cut at once": {0: "c"}, "twice": {0: "t", 2: "c"}}
ENDS |= {"late": {STEPS - 2: "t"}, "cut late": {STEPS - 3: "c"}, "last": {STEPS - 1: "t"}}


def sequences(seed=0):
    """A sequence for each of `ENDS`, with everything else drawn."""
    rng, shape = np.random.default_rng(seed), (STEPS, len(ENDS))
    ends = {kind: np.zeros(shape, bool) for kind in "tc"}
    for i, places in enumerate(ENDS.values()):
        for row, kind in places.items():
            ends[kind][row, i] = True
    searched = Extras(rng.dirichlet(np.ones(ACTIONS), shape), rng.normal(size=shape), np.ones(shape, bool))
    items = Transition(
        obs=rng.normal(size=(*shape, 4)).astype(np.float32),
        action=rng.integers(0, ACTIONS, shape).astype(np.int32),
        reward=rng.normal(size=shape),
        terminated=ends["t"],
        truncated=ends["c"],
        next_obs=(),
        extras=Recorded((), searched),
    )
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32) if x.dtype == np.float64 else jnp.asarray(x), items)


def by_hand(items, i, turn):
    """What states of sequence ``i`` learn, one after another: ``(reward, value)``, None where nothing is known."""
    reward, value, over, cut = (
        np.asarray(x)[:, i].tolist()
        for x in (items.reward, items.extras.every.value, items.terminated, items.truncated)
    )
    end = next((t for t in range(STEPS) if over[t] or cut[t]), STEPS)

    def state(k):
        paid = reward[k - 1] if k - 1 <= end else 0.0 if over[end] else None
        if k > end:
            return paid, 0.0 if over[end] else None
        total, factor = 0.0, 1.0
        for t in range(k, k + CONFIG.n_step):
            if cut[t]:
                return paid, total + factor * value[t]
            total += factor * reward[t]
            if over[t]:
                return paid, total
            factor *= turn * GAMMA
        return paid, total + factor * value[k + CONFIG.n_step]

    return [(None, state(0)[1]), *(state(k) for k in range(1, CONFIG.unroll_steps + 1))]


@pytest.mark.parametrize("turn", [1.0, -1.0])
def test_targets_by_hand(turn):
    """Among them are rewards in the middle of a game: each is that of who moved, and counts against the other."""
    items = sequences()
    targets = jax.tree.map(np.asarray, jax.jit(module.make_targets, static_argnums=(0, 1))(CONFIG, turn, items))
    for i in range(len(ENDS)):
        for k, (reward, value) in enumerate(by_hand(items, i, turn)):
            assert (bool(targets.paid[k, i]), bool(targets.known[k, i])) == (reward is not None, value is not None)
            assert reward is None or abs(targets.reward[k, i] - reward) < 1e-6
            assert value is None or abs(targets.value[k, i] - value) < 1e-5
    first = {name: min(places, default=STEPS) for name, places in ENDS.items()}
    rows = np.arange(CONFIG.unroll_steps + 1)[:, None]
    assert np.array_equal(targets.chosen, rows <= np.array(list(first.values()))[None])
    assert np.array_equal(targets.policy, items.extras.every.policy[: CONFIG.unroll_steps + 1])


def test_targets_of_numbers_are_exact_in_expectation():
    outputs = module.make_outputs(CONFIG)
    ends = np.asarray(td_errors.rescale(jnp.array([CONFIG.v_min, CONFIG.v_max])), np.float64)
    atoms = np.linspace(*ends, ATOMS)
    out, numbers = np.random.default_rng(1).normal(size=(9, ATOMS)), np.linspace(-12.0, 22.0, 9)
    h = lambda x: np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x
    log_p = out - np.log(np.sum(np.exp(out), axis=-1, keepdims=True))
    place = np.interp(h(numbers), atoms, np.arange(ATOMS))  # what is beyond the atoms counts as the nearest
    low = np.minimum(place.astype(int), ATOMS - 2)
    share = np.zeros((9, ATOMS))
    share[np.arange(9), low], share[np.arange(9), low + 1] = low + 1 - place, place - low
    loss = outputs.loss(jnp.asarray(out, jnp.float32), jnp.asarray(numbers, jnp.float32))
    np.testing.assert_allclose(loss, -np.sum(share * log_p, axis=-1), rtol=1e-4, atol=1e-5)
    read = outputs.number(jnp.log(jnp.asarray(share, jnp.float32) + 1e-12))
    np.testing.assert_allclose(read, np.clip(numbers, CONFIG.v_min, CONFIG.v_max), atol=1e-3)


def small_model(actions=ACTIONS, atoms=ATOMS, size=3):
    """Matrices alone, with a bend in the dynamics."""
    shapes = {"r": (4, size), "d": (size + actions, size), "u": (size + actions, atoms), "p": (size, actions)}
    shapes["v"] = (size, atoms)

    def init(key, obs):
        keys = jax.random.split(key, len(shapes))
        return {name: jax.random.normal(k, shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}

    def advance(params, state, action):
        x = jnp.concatenate([state, jax.nn.one_hot(action, actions)], axis=-1)
        return jnp.tanh(x @ params["d"]), x @ params["u"]

    return WorldModel(
        init,
        lambda params, obs: jnp.tanh(obs @ params["r"]),
        advance,
        lambda params, state: (state @ params["p"], state @ params["v"]),
    )


def plain_loss(network, params, items, weight):
    """The loss of `CONFIG` as a sum over samples and steps, with the targets of `by_hand`."""
    h = lambda x: np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x
    atoms, total = np.linspace(h(CONFIG.v_min), h(CONFIG.v_max), ATOMS), 0.0

    def cross_entropy(out, x):
        place = np.interp(h(x), atoms, np.arange(ATOMS))
        low = min(int(place), ATOMS - 2)
        log_p = jax.nn.log_softmax(out)
        return -(low + 1 - place) * log_p[low] - (place - low) * log_p[low + 1]

    for i in range(len(ENDS)):
        state, reward_out, one = network.represent(params, items.obs[0, i]), None, 0.0
        end = min(list(ENDS.values())[i], default=STEPS)
        for k, (reward, value) in enumerate(by_hand(items, i, 1.0)):
            logits, out = network.predict(params, state)
            term = 0.0 if value is None else CONFIG.value_coef * cross_entropy(out, value)
            if reward is not None:
                term += CONFIG.reward_coef * cross_entropy(reward_out, reward)
            if k <= end:
                term -= jnp.sum(items.extras.every.policy[k, i] * jax.nn.log_softmax(logits))
            one += term / (1 if k == 0 else CONFIG.unroll_steps)
            state, reward_out = network.advance(params, halved(state), items.action[k, i])
        total += weight[i] * one / len(ENDS)
    return total


@jax.custom_vjp
def halved(state):
    return state


halved.defvjp(lambda state: (state, None), lambda _, gradient: (gradient / 2,))


def test_updates_equal_those_of_a_plain_loop():
    """Two steps of plain descent, with weights that differ, one of them 0."""
    network, items = small_model(), sequences(3)
    learner = muzero.make_learner(CONFIG, CARTPOLE, network=network, optimiser=optax.sgd(0.3))
    weight = jnp.asarray(np.linspace(0.0, 2.0, len(ENDS)), jnp.float32)
    state = learner.init(jax.random.key(2), items.obs[0])
    expected, update = state.params, jax.jit(learner.update)
    for _ in range(2):
        value = module.make_outputs(CONFIG).number(network.predict(expected, network.represent(expected, items.obs))[1])
        every = items.extras.every._replace(value=value)
        seen = items._replace(extras=items.extras._replace(every=every))
        error = value[0] - jnp.array([by_hand(seen, i, 1.0)[0][1] for i in range(len(ENDS))])
        loss, slope = jax.jit(jax.value_and_grad(lambda params, seen=seen: plain_loss(network, params, seen, weight)))(
            expected
        )
        expected = jax.tree.map(lambda x, g: x - 0.3 * g, expected, slope)
        updated = update(state, Sample(items, weight, weight, weight), jax.random.key(0))
        state = updated.state
        np.testing.assert_allclose(updated.metrics["loss"], loss, rtol=1e-5)
        np.testing.assert_allclose(updated.scores, np.abs(error), rtol=1e-4, atol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-4), state.params, expected)


def test_gradients_of_states_are_halved_at_each_step():
    """Of states that a step leaves as they are, whose value is their sum."""
    same = WorldModel(
        lambda key, obs: (),
        lambda params, obs: obs,
        lambda params, state, action: (state, state),
        lambda params, state: (state, state),
    )
    value = lambda state, k: jnp.sum(module.unroll(same, (), state, jnp.zeros((3, 1), jnp.int32))[1][k])
    for k in range(4):
        np.testing.assert_array_equal(jax.grad(value)(jnp.ones((1, 2)), k), np.full((1, 2), 0.5**k))


@pytest.mark.parametrize("bootstrap_from", ["network", "search"])
def test_reanalysis_changes_some_sequences_and_no_others(bootstrap_from):
    """The others have the network's values or those that were recorded."""
    seen = []
    evaluate = lambda policy, obs: ((), 3 * jnp.sum(obs, axis=-1))

    def search(policy, obs, key, explores):
        seen.append((len(obs), explores))
        rows = jnp.sum(obs, axis=-1)
        return module.Planned((), jnp.stack([rows, -rows], axis=-1), 2 * rows, ())

    items = sequences()
    planner = module.Planner((), evaluate, search)
    made_by = lambda every: module.reanalysed(
        module.MuZeroConfig(reanalyse_every=every, bootstrap_from=bootstrap_from), planner, (), items, jax.random.key(0)
    )
    made, rows, old = made_by(3), np.sum(items.obs, axis=-1), items.extras.every
    value = 3 * rows if bootstrap_from == "network" else old.value
    chosen = np.arange(len(ENDS)) % 3 == 0
    assert seen == [(STEPS * 3, True)]
    np.testing.assert_allclose(made.extras.every.value, np.where(chosen[None], 2 * rows, value), rtol=1e-5)
    policy = np.where(chosen[None, :, None], np.stack([rows, -rows], axis=-1), old.policy)
    np.testing.assert_allclose(made.extras.every.policy, policy, rtol=1e-5)
    np.testing.assert_allclose(made_by(0).extras.every.value, value, rtol=1e-5)
    np.testing.assert_array_equal(made_by(0).extras.every.policy, old.policy)


def paying():
    """A world whose parameters are rewards ``[T, 2]``: the first action decides which of the two each step pays."""

    def advance(rewards, state, action):
        depth, first = state[..., 0], state[..., 1]
        first = jnp.where(depth == 0, action, first)
        paid = rewards[jnp.minimum(depth.astype(int), len(rewards) - 1), first.astype(int)]
        return jnp.stack([depth + 1, first], axis=-1), 40 * jnp.stack([-paid, paid], axis=-1)

    nothing = lambda state: (jnp.zeros((*state.shape[:-1], 2)), jnp.zeros((*state.shape[:-1], 2)))
    return WorldModel(lambda key, obs: (), lambda params, obs: obs, advance, lambda params, state: nothing(state))


@pytest.mark.parametrize("planner", ["gumbel", pytest.param("puct", marks=pytest.mark.rest)])
def test_searches_alternate_signs_of_two_agents(planner):
    """1 is paid to who moves: at the second step to the other, at the third to the first again."""
    config = muzero.Config(simulations=16, gamma=1.0, planner=planner, num_atoms=2, v_min=-1.0, v_max=1.0)
    second, third = np.zeros((2, 4, 2), np.float32)
    second[1], third[2] = [1, -1], [1, -1]

    def best(env):
        search = jax.jit(module.make_planner(config, env, paying(), normalize.identity()).search, static_argnums=3)
        at = lambda rewards: search(AlphaZeroPolicy(rewards, ()), jnp.zeros((1, 2)), jax.random.key(0), False)
        return [np.argmax(at(rewards).policy[0]) for rewards in (second, third)]

    assert best(CARTPOLE) == [0, 0] and best(CARTPOLE._replace(num_agents=2)) == [1, 0]


def test_sequences_of_two_agents_are_those_of_who_moves():
    """Two games of four rows: agents alternate, and the second game is one that agent 1 begins."""
    rows, acts = CONFIG.sample_rows, np.zeros((CONFIG.sample_rows, 4), bool)
    acts[0::2, [0, 3]], acts[1::2, [1, 2]] = True, True
    number = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    none = np.zeros((rows, 4), bool)
    every = Extras(number[..., None], number, acts)
    whole = Transition(number[..., None], number.astype(np.int32), number, none, none, (), Recorded((), every))
    stored = jax.tree.map(jnp.asarray, whole)
    view = module.moves(CONFIG, GAME, None)
    items, usable = view.read(stored, jnp.zeros(4, jnp.int32), jnp.arange(4), 1)
    expected = np.sum(np.where(acts, number, 0.0).reshape(rows, 2, 2), axis=-1)[:, [0, 0, 1, 1]]
    assert np.all(usable) and np.array_equal(items.reward, expected) and np.array_equal(items.action, expected)
    assert np.array_equal(items.obs[..., 0], expected) and np.array_equal(items.extras.every.value, expected)
    again = acts.copy()
    again[3:] = ~acts[3:]  # agent 0 of the first game and agent 1 of the second, who moved last, move again
    ended = none.copy()
    ended[2, 2:] = True
    twice = whole._replace(terminated=ended, extras=Recorded((), every._replace(acts=again)))
    usable = view.read(jax.tree.map(jnp.asarray, twice), jnp.zeros(4, jnp.int32), jnp.arange(4), 1)[1]
    assert usable.tolist() == [False, False, True, True]
    alone = module.moves(CONFIG, GAME, np.array([0, 1, 2]))
    usable = alone.read(jax.tree.map(lambda x: x[:, :3], stored), jnp.zeros(3, jnp.int32), jnp.arange(3), 1)[1]
    assert usable.tolist() == [True, True, False]
    with pytest.raises(ConfigError, match="^past_games = num_envs: leaves no game of which both sides are recorded"):
        module.moves(CONFIG, GAME, np.array([0, 2]))


REFUSED = {
    "at once": (
        lambda: envs.make("MatrixGame-v0", game="matching-pennies"),
        {},
        "env = 'MatrixGame-v0': has two agents that act at the same time; a search is for those that act in turn",
    ),
    "three": (
        lambda: on_device("two_of_three"),
        {},
        "env = 'two_of_three': has 3 agents; a search is for one, or for two whose rewards add up to 0",
    ),
    "no zero sum": (
        lambda: envs.make("CoinGame-v0"),
        {},
        "env = 'CoinGame-v0': has 2 agents; a search is for one, or for two whose rewards add up to 0",
    ),
    "no search": (lambda: CARTPOLE, {"simulations": 0}, "simulations = 0: must be at least 1 in training"),
    "support": (lambda: CARTPOLE, {"v_min": 5.0, "v_max": 5.0}, "v_min = 5.0: must be below v_max = 5.0"),
    "span": (lambda: CARTPOLE, {"n_step": 200}, "warmup_steps = 2000: must hold 206 steps of each environment, 3296"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_who_is_refused(name):
    make, changes, line = REFUSED[name]
    assert module.problems(muzero.Config(**changes), make()) == [line]


@pytest.mark.parametrize("make", [lambda: envs.make("KuhnPoker-v0"), lambda: envs.make("CartPole-v1", hide_velocity=1)])
def test_what_hides_something_is_searched_all_the_same(make):
    assert module.problems(muzero.Config(), make()) == []


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param("CartPole-v1", {}, marks=pytest.mark.rest),
        ("Breakout-MinAtar", {"torso": "resnet", "convolutions": ("2",)}),
        pytest.param("TicTacToe-v0", {}, marks=pytest.mark.rest),
    ],
)
def test_vectors_images_and_boards_are_represented(name, settings):
    """By shapes alone, of a whole iteration."""
    env = envs.make(name)
    config = muzero.Config(**settings, hidden_sizes=(4,), model_sizes=(4,), state_size=3, simulations=2)
    state = jax.eval_shape(muzero.make_trainer(config, env).init, jax.random.key(0))
    kernels = [x.ndim for x in jax.tree.leaves(state.learner.params["representation"])]
    assert (4 in kernels) == ("torso" in settings)
    after, metrics = jax.eval_shape(muzero.make_trainer(config, env).step, state)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert {"policy_loss", "value_loss", "reward_loss", "value_error", "reward_error"} <= metrics.keys()


GUESSING = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Guess(gymnasium.Env):
    observation_space, action_space = spaces.Box(0.0, 1.0, (2,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.show(), {}

    def show(self):
        self.bit = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.bit]

    def step(self, action):
        self.time += 1
        right = float(action == self.bit)
        return self.show(), right, self.time >= 5, False, {}
"""
SMALL = (
    "--total-steps 4096 --warmup-steps 256 --capacity 4096 --num-envs 8 --num-steps 8 --num-updates 4 --batch-size 32 "
    "--unroll-steps 2 --n-step 2 --simulations 4 --hidden-sizes 16 --model-sizes 16 --state-size 8 --learning-rate 1e-2"
)


@pytest.mark.rest
def test_an_environment_of_gymnasium_whose_state_nobody_copies_is_learned(tmp_path, monkeypatch):
    """Each of five steps pays 1 for naming the bit that is shown, and guesses are worth 2.5."""
    with own_module(tmp_path, monkeypatch, "guessing", GUESSING):
        run("train", "muzero", "--env", "guessing:Guess", *SMALL.split(), "--eval-episodes", "8", "--out", "run")
        assert json.loads((tmp_path / "run/summary.json").read_text())["return_mean"] > 4
