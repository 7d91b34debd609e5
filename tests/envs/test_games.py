"""Games of several agents against rules written out here, enumeration and closed forms; what `check_env` finds of
agents."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fleets import alone, play

from purerl import envs, trees
from purerl.catalogue import NATIVE
from purerl.envs.check_env import examine
from purerl.errors import ConfigError
from purerl.spaces import Box

GAMES = [name for name, place in NATIVE.items() if ".games." in place]
DILEMMA = {"CC": (-1, -1), "CD": (-3, 0), "DC": (0, -3), "DD": (-2, -2)}


def stepper(env):
    """A jitted step of a fleet, from a level and actions as numbers, to the state, what is seen and a `Step`."""
    step = jax.jit(alone(env))

    def one(level, env_state, *action):
        env_state, obs, made = step(((), level), env_state, jnp.array(action, jnp.int32))
        return env_state, *jax.device_get((obs, made))

    return one


def rows(obs):
    """A row of bits for each environment ``[K, D]``, of all agents' observations ``[K, N, ...]``."""
    return np.concatenate([x.reshape(len(x), -1) for x in jax.tree.leaves(obs)], axis=1)


def test_every_game_is_here():
    known = "MatrixGame TwoStep Landmarks Permutation TicTacToe KuhnPoker CoinGame"
    assert [f"{name}-v0" for name in known.split()] == GAMES


@pytest.mark.parametrize("name", GAMES)
def test_episodes_end_together_and_begin_anew(name):
    env = envs.make(name, **({"rounds": 3} if name.startswith("Matrix") else {}))
    first, _, _, seen, made = play(env, 64, 40)
    last = made.terminated | made.truncated
    assert made.reward.shape == last.shape == (40, 64, env.num_agents) and made.reward.dtype == np.float32
    np.testing.assert_array_equal(last, np.broadcast_to(last[..., :1], last.shape))
    by_limit = name in ("Landmarks-v0", "CoinGame-v0")
    np.testing.assert_array_equal(made.terminated, np.zeros_like(last) if by_limit else last)
    obs, next_obs = (rows(trees.merge(tree, 2)) for tree in (seen, made.next_obs))
    over = last[..., 0].reshape(-1)
    assert over.any()
    np.testing.assert_array_equal(obs[~over], next_obs[~over])
    if name in ("TicTacToe-v0", "KuhnPoker-v0", "MatrixGame-v0"):
        start = {tuple(row) for row in rows(first)}
        assert {tuple(row) for row in obs[over]} == start and not {tuple(row) for row in next_obs[over]} & start


# MatrixGame


@pytest.mark.parametrize(
    ("game", "rewards"),
    [
        ("prisoners-dilemma", [[(-1, -1), (-3, 0)], [(0, -3), (-2, -2)]]),
        ("matching-pennies", [[(1, -1), (-1, 1)], [(-1, 1), (1, -1)]]),
        (
            "rock-paper-scissors",
            [[(0, 0), (-1, 1), (1, -1)], [(1, -1), (0, 0), (-1, 1)], [(-1, 1), (1, -1), (0, 0)]],
        ),
        ("coordination", [[(1, 1), (0, 0)], [(0, 0), (1, 1)]]),
        (
            "climbing",
            [[(1.1, 1.1), (-3, -3), (0, 0)], [(-3, -3), (0.7, 0.7), (0.6, 0.6)], [(0, 0), (0, 0), (0.5, 0.5)]],
        ),
    ],
)
def test_matrix_games_of_one_round(game, rewards):
    env = envs.make("MatrixGame-v0", game=game)
    step, num_actions = stepper(env), len(rewards)
    env_state, obs = env.reset(jax.random.key(0))
    start = np.arange(num_actions**2 + 1) == num_actions**2
    np.testing.assert_array_equal(obs, [start, start])
    for row, column in itertools.product(range(num_actions), repeat=2):
        env_state, obs, made = step(env.levels(jax.random.key(1), ()), env_state, row, column)
        np.testing.assert_allclose(made.reward, rewards[row][column], rtol=1e-6)
        assert made.terminated.all() and not made.truncated.any()
        np.testing.assert_array_equal(obs, [start, start])
        seen = [row * num_actions + column, column * num_actions + row]
        np.testing.assert_array_equal(made.next_obs, np.eye(num_actions**2 + 1, dtype=bool)[seen])


def test_a_repeated_dilemma_is_seen_from_each_side():
    env = envs.make("MatrixGame-v0", rounds=4)
    step, level = stepper(env), env.levels(jax.random.key(1), ())
    env_state, _ = env.reset(jax.random.key(0))
    for t, both in enumerate(["CD", "DD", "DC", "CC", "DC", "CD", "CC", "DD"]):
        env_state, obs, made = step(level, env_state, *("CD".index(one) for one in both))
        seen = ["CC", "CD", "DC", "DD", "start"]
        np.testing.assert_array_equal(made.reward, DILEMMA[both])
        np.testing.assert_array_equal(made.next_obs, [[s == both for s in seen], [s == both[::-1] for s in seen]])
        np.testing.assert_array_equal(made.terminated, [t % 4 == 3] * 2)
        if t % 4 == 3:
            np.testing.assert_array_equal(obs, [[False] * 4 + [True]] * 2)


def test_payoffs_can_be_given_and_traced():
    def rewards(best):
        env = envs.make("MatrixGame-v0", payoffs=jnp.stack([jnp.full((3, 3), best), jnp.eye(3)]))
        env_state, _ = env.reset(jax.random.key(0))
        return env.step(env.noise(jax.random.key(1), ()), env_state, jnp.array([2, 2]))[1].reward

    np.testing.assert_array_equal(jax.jit(jax.vmap(rewards))(jnp.array([2.0, 5.0])), [[2, 1], [5, 1]])
    env = envs.make("MatrixGame-v0", payoffs=(((1, 2), (3, 4)), ((5, 6), (7, 8))), rounds=2)
    *_, made = stepper(env)(jnp.zeros(()), env.reset(jax.random.key(0))[0], 1, 0)
    np.testing.assert_array_equal(made.reward, [3, 7])
    envs.check_env(env, num_steps=8, num_envs=4)


# TwoStep and Permutation


def test_the_two_step_game():
    """Every play of it; and what random play is worth."""
    env = envs.make("TwoStep-v0")
    step, level, values = stepper(env), env.levels(jax.random.key(1), ()), []
    paid = [[[7, 7], [7, 7]], [[0, 1], [1, 8]]]
    for branch, other in itertools.product((0, 1), repeat=2):
        for pair in itertools.product((0, 1), repeat=2):
            env_state, obs = env.reset(jax.random.key(0))
            np.testing.assert_array_equal(obs, [[True, False, False]] * 2)
            env_state, after, made = step(level, env_state, branch, other)
            assert not made.reward.any() and not made.terminated.any()
            np.testing.assert_array_equal(after, [[False, branch == 0, branch == 1]] * 2)
            np.testing.assert_array_equal(env.state(after), after)
            _, after, made = step(level, env_state, *pair)
            np.testing.assert_array_equal(made.reward, [paid[branch][pair[0]][pair[1]]] * 2)
            assert made.terminated.all() and not made.truncated.any() and not made.next_obs.any()
            np.testing.assert_array_equal(after, obs)
            values.append(made.reward[0])
    assert np.mean(values) == 4.75
    other = envs.make("TwoStep-v0", safe=2.0, best=5.0)
    after = [stepper(other)(level, other.reset(jax.random.key(0))[0], branch, 0)[0] for branch in (0, 1)]
    assert [stepper(other)(level, each, 1, 1)[-1].reward[0] for each in after] == [2, 5]


@pytest.mark.parametrize("num_agents", [2, 3, 4])
def test_permutations(num_agents):
    """Of all actions, those that differ are paid: ``N! / N**N`` of them."""
    env = envs.make("Permutation-v0", num_agents=num_agents)
    actions = np.array(list(itertools.product(range(num_agents), repeat=num_agents)))
    env_state, obs = env.reset(jax.random.key(0))
    assert obs.all() and obs.shape == (num_agents, 1)
    made = jax.jit(jax.vmap(lambda action: env.step(env.noise(jax.random.key(1), ()), env_state, action)[1]))(actions)
    differ = [len(set(row)) == num_agents for row in actions.tolist()]
    np.testing.assert_array_equal(made.reward, np.repeat(np.array(differ, np.float32)[:, None], num_agents, axis=1))
    assert made.terminated.all() and sum(differ) == math.factorial(num_agents)


# Landmarks


def places(obs):
    """Cells ``[..., 4, 2]`` of the agent, the other, and both landmarks, or of both agents and both landmarks."""
    return np.asarray(obs).reshape(*obs.shape[:-1], 4, 2, 5).argmax(axis=-1)


def test_landmarks_step_by_step():
    env = envs.make("Landmarks-v0")
    first, _, actions, seen, made = play(env, 64, 60)
    moves = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
    paid = 0
    for b in range(64):
        now = places(first["state"][b, 0])
        for t in range(60):
            agents = [
                [min(max(x + d, 0), 4) for x, d in zip(now[i], moves[actions[t, b, i]], strict=True)] for i in (0, 1)
            ]
            marks = now[2:].tolist()
            assert marks[0] != marks[1]
            occupied = sorted(agents) == sorted(marks)
            paid += occupied
            np.testing.assert_allclose(made.reward[t, b], [occupied - 0.05] * 2, rtol=1e-6)
            np.testing.assert_array_equal(places(made.next_obs["state"][t, b]), [agents + marks] * 2)
            np.testing.assert_array_equal(places(made.next_obs["own"][t, b]), [agents + marks, agents[::-1] + marks])
            assert (made.truncated[t, b] == (t % 12 == 11)).all()
            now = places(seen["state"][t, b, 0])
    assert paid > 0


def test_landmarks_seen_as_ways():
    """The same episodes, and each number by hand from the cells."""
    (*_, shown), (*_, after, seen) = (play(envs.make("Landmarks-v0", ways=ways), 64, 24) for ways in (0, 1))
    np.testing.assert_array_equal(shown.reward, seen.reward)
    at = places(shown.next_obs["state"][..., 0, :]).astype(float)  # [T, B, 4, 2]: agents, landmarks
    np.testing.assert_array_equal(seen.next_obs["state"][..., 1, :], (at.reshape(24, 64, 8) - 2) / 2)
    for i in (0, 1):
        me, other, marks = at[:, :, i], at[:, :, 1 - i], at[:, :, 2:]
        parts = [me - 2, other - me, marks[:, :, 0] - me, marks[:, :, 1] - me]
        parts += [marks[:, :, 0] - other, marks[:, :, 1] - other]
        np.testing.assert_array_equal(seen.next_obs["own"][..., i, :], np.concatenate(parts, axis=-1) / 2)
        assert np.abs(after["own"]).max() <= 2


@pytest.mark.rest
def test_what_landmarks_are_worth():
    """Random agents stay spread evenly over the cells, since borders stop them: the value of random play is exact."""
    env = envs.make("Landmarks-v0")
    made = play(env, 20000, 12)[-1]
    total = made.reward[..., 0].sum(axis=0)
    assert abs(total.mean() - 12 * (2 / 625 - 0.05)) < 4 * total.std() / np.sqrt(20000)

    cells = np.array(list(itertools.product(range(5), repeat=2)))
    far = np.abs(cells[:, None] - cells[None]).sum(axis=-1)  # [25, 25]
    a, b, x, y = (np.arange(25).reshape([-1 if i == j else 1 for j in range(4)]) for i in range(4))
    longest = np.minimum(np.maximum(far[a, x], far[b, y]), np.maximum(far[a, y], far[b, x]))
    best = (13 - np.maximum(longest, 1) - 0.6)[np.broadcast_to(x != y, longest.shape)]
    assert best.mean().round(2) == 8.99

    def act(obs, _):
        """Each agent goes to its landmark of the assignment whose longer way is the shorter one, rows first."""
        at = jnp.argmax(obs["state"][:, 0].reshape(-1, 4, 2, 5), axis=-1)
        ways = jnp.stack([at[:, 2:] - at[:, :2], at[:, 2:][:, ::-1] - at[:, :2]])  # [2, B, 2, 2]
        lengths = jnp.max(jnp.sum(jnp.abs(ways), axis=-1), axis=-1)  # [2, B]
        way = jnp.where((lengths[0] <= lengths[1])[:, None, None], ways[0], ways[1])
        rows, columns = way[..., 0], way[..., 1]
        sideways = jnp.where(columns < 0, 3, jnp.where(columns > 0, 4, 0))
        return jnp.where(rows < 0, 1, jnp.where(rows > 0, 2, sideways))

    first, *_, made = play(env, 512, 12, act=act)
    agents, marks = np.split(places(first["state"][:, 0]), 2, axis=1)
    away = np.abs(agents[:, :, None] - marks[:, None]).sum(axis=-1)
    longest = np.minimum(away[:, [0, 1], [0, 1]].max(axis=1), away[:, [0, 1], [1, 0]].max(axis=1))
    np.testing.assert_allclose(made.reward[..., 0].sum(axis=0), 13 - np.maximum(longest, 1) - 0.6, rtol=1e-5)


# TicTacToe

ROWS = ["012", "345", "678", "036", "147", "258", "048", "246"]


class Board:
    """The game in plain Python. ``play`` gives the reward of each agent and whether the game is over."""

    def __init__(self, mover):
        self.cells, self.mover = ["."] * 9, mover

    def play(self, cell):
        mover, other = self.mover, 1 - self.mover
        if self.cells[cell] != ".":
            return {mover: -1, other: 1}, True
        self.cells[cell], self.mover = str(mover), other
        if any(all(self.cells[int(i)] == str(mover) for i in row) for row in ROWS):
            return {mover: 1, other: -1}, True
        return {mover: 0, other: 0}, "." not in self.cells

    def seen(self, agent, over):
        own, others = ([cell == str(who) for cell in self.cells] for who in (agent, 1 - agent))
        return [*own, *others, self.mover == agent and not over]


def test_tic_tac_toe_step_by_step():
    """Legal play in half of the games, in the other half also illegal marks."""
    env = envs.make("TicTacToe-v0")

    def act(obs, random):
        legal = env.legal(obs) | (jnp.arange(random.shape[0]) < 32)[:, None, None]
        order = (jnp.arange(9)[None, None] - random[..., None]) % 9
        return jnp.argmin(jnp.where(legal, order, 9), axis=-1)

    first, _, actions, seen, made = play(env, 64, 60, act=act)
    outcomes = set()
    for b in range(64):
        board, obs = Board(int(first[b, :, -1].argmax())), first[b]
        for t in range(60):
            mover = board.mover
            np.testing.assert_array_equal(obs, [board.seen(agent, False) for agent in (0, 1)])
            np.testing.assert_array_equal(env.acting(obs), [mover == agent for agent in (0, 1)])
            legal = np.asarray(env.legal(obs))
            assert legal[1 - mover].all()
            np.testing.assert_array_equal(legal[mover], [cell == "." for cell in board.cells])
            reward, over = board.play(actions[t, b, mover])
            np.testing.assert_array_equal(made.reward[t, b], [reward[0], reward[1]])
            np.testing.assert_array_equal(made.terminated[t, b], [over] * 2)
            np.testing.assert_array_equal(made.next_obs[t, b], [board.seen(agent, over) for agent in (0, 1)])
            obs = seen[t, b]
            if over:
                outcomes.add((b < 32, mover, reward[0]))
                board = Board(int(obs[:, -1].argmax()))
    assert {(False, mover, mover * -2 + 1) for mover in (0, 1)} <= outcomes and (False, 0, 0) in outcomes
    assert (True, 0, -1) in outcomes and (True, 1, 1) in outcomes
    assert not made.truncated.any()


@pytest.mark.parametrize("beginner", [0, 1])
def test_random_tic_tac_toe(beginner):
    """All games of random legal play, ply by ply, equal positions together: 737/1260, 121/420 and 8/63."""
    env = envs.make("TicTacToe-v0")
    env_state, obs = env.begin(jnp.int32(beginner))
    assert obs[:, -1].tolist() == [beginner == 0, beginner == 1]
    states, weights, outcomes = (
        jax.tree.map(lambda x: np.asarray(x)[None], env_state),
        np.ones(1),
        dict.fromkeys((1, -1, 0), 0.0),
    )
    both = jax.jit(jax.vmap(lambda s, a: env.step((), s, jnp.stack([a, a]))))
    filled = lambda x: np.resize(x, (5040, *x.shape[1:]))  # so many at most, so that one program does
    for ply in range(9):
        marks = states.physical.marks
        position, cell = np.nonzero(~marks.any(axis=1))
        result = jax.device_get(both(jax.tree.map(lambda x, at=position: filled(x[at]), states), filled(cell)))
        states, made = jax.tree.map(lambda x, num=cell.size: x[:num], result)
        weights = weights[position] / (9 - ply)
        for outcome in outcomes:
            ended = made.terminated[:, 0] & (made.reward[:, beginner] == outcome)
            outcomes[outcome] += weights[ended].sum()
        going = ~made.terminated[:, 0]
        states, weights = jax.tree.map(lambda x, at=going: x[at], states), weights[going]
        if going.any():
            _, where, which = np.unique(rows(states.physical.marks), axis=0, return_index=True, return_inverse=True)
            states, weights = jax.tree.map(lambda x, at=where: x[at], states), np.bincount(which.reshape(-1), weights)
    assert not going.any()
    np.testing.assert_allclose([outcomes[1], outcomes[-1], outcomes[0]], [737 / 1260, 121 / 420, 8 / 63], rtol=1e-9)


# KuhnPoker

ENDS = {"pp": "shown 1", "pbp": -1, "pbb": "shown 2", "bp": 1, "bb": "shown 2"}
"""What the first mover gets for each play; or how much is at stake when cards are shown."""


def kuhn_plays(env, first):
    """Every play of every deal if agent ``first`` moves first: cards of the first and second mover, actions, their
    information sets, and the first mover's reward. Looks at every observation on the way."""
    step, second = stepper(env), 1 - first
    for card, gap in itertools.product(range(3), range(2)):
        level = jnp.array([card, gap, first], jnp.int32)
        start, obs = jax.device_get(env.begin(level))
        cards = obs[[first, second], :3].argmax(axis=-1).tolist()
        for history, end in ENDS.items():
            env_state, seen, met = start, obs, []
            for i, action in enumerate(history):
                seats = [first, second]
                history_bits = np.eye(4, dtype=bool)[["", "p", "b", "pb"].index(history[:i])]
                for seat, agent in enumerate(seats):
                    bits = [*np.eye(3, dtype=bool)[cards[seat]], seat == 0, seat == 1, *history_bits]
                    np.testing.assert_array_equal(seen[agent], bits)
                mover = seats[i % 2]
                np.testing.assert_array_equal(env.acting(seen), [mover == agent for agent in (0, 1)])
                met.append((cards[i % 2], history[:i], action))
                pair = ["pb".index(action)] * 2
                pair[1 - mover] = 1 - pair[mover]
                env_state, following, made = step(level, env_state, *pair)
                over = i == len(history) - 1
                np.testing.assert_array_equal(made.terminated, [over] * 2)
                assert over or not made.reward.any()
                seen = following
            assert not made.truncated.any() and not made.next_obs[:, 5:].any() and not np.any(env.acting(made.next_obs))
            assert made.reward[0] == -made.reward[1]
            stake = int(end[-1]) * (1 if cards[0] > cards[1] else -1) if isinstance(end, str) else end
            assert made.reward[first] == stake
            yield cards, met, float(made.reward[first])


@pytest.mark.parametrize("first", [0, 1])
def test_kuhn_poker(first):
    """Every play, and two values: of uniform play 1/8, of an equilibrium -1/18, for the first mover."""
    plays = list(kuhn_plays(envs.make("KuhnPoker-v0"), first))
    deals = {tuple(cards) for cards, _, _ in plays}
    assert deals == {(a, b) for a in range(3) for b in range(3) if a != b} and len(plays) == 30

    def value(bets):
        chance = lambda card, history, action: abs((action == "p") - bets(card, history))
        return sum(math.prod(chance(*each) for each in met) * reward for _, met, reward in plays) / 6

    equilibrium = {
        "": (0, 0, 0),
        "p": (1 / 3, 0, 1),
        "b": (0, 1 / 3, 1),
        "pb": (0, 1 / 3, 1),
    }
    np.testing.assert_allclose(value(lambda card, history: 0.5), 1 / 8)
    np.testing.assert_allclose(value(lambda card, history: equilibrium[history][card]), -1 / 18)


@pytest.mark.parametrize(("name", "turn"), [("TicTacToe-v0", -1), ("KuhnPoker-v0", 3)])
def test_seats_are_drawn_or_fixed(name, turn):
    """About half of all episodes each, and all of them agent 0; with all deals alike often."""
    keys = jax.random.split(jax.random.key(0), 6000)
    obs = np.asarray(jax.jit(jax.vmap(envs.make(name).reset))(keys)[1])
    assert abs(obs[:, 0, turn].mean() - 0.5) < 0.03 and (obs[..., turn].sum(axis=1) == 1).all()
    if name == "KuhnPoker-v0":
        deals, counts = np.unique(rows(obs), axis=0, return_counts=True)
        assert len(deals) == 12 and (np.abs(counts - 500) < 100).all()
    fixed = np.asarray(jax.jit(jax.vmap(envs.make(name, draw_seats=0).reset))(keys)[1])
    assert fixed[:, 0, turn].all() and not fixed[:, 1, turn].any()


# Parameters, and what check_env finds


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("MatrixGame-v0", {"game": "chess"}, r"game = 'chess': must be one of prisoners-dilemma"),
        ("MatrixGame-v0", {"rounds": 0}, "rounds = 0:"),
        ("MatrixGame-v0", {"payoffs": np.zeros((2, 3, 2))}, r"payoffs = .*\[2, 3, 2\].*:"),
        ("Permutation-v0", {"num_agents": 1}, "num_agents = 1:"),
        ("TicTacToe-v0", {"draw_seats": 2}, "draw_seats = 2:"),
        ("KuhnPoker-v0", {"draw_seats": -1}, "draw_seats = -1:"),
        ("Landmarks-v0", {"ways": 2}, "ways = 2:"),
        ("Landmarks-v0", {"max_steps": 0}, "max_steps = 0:"),
    ],
)
def test_parameters_are_checked(name, params, message):
    with pytest.raises(ConfigError, match=f"^env = '{name}': {message}"):
        envs.make(name, **params)


def edited(name="TicTacToe-v0", **changes):
    """A game with fields of each `Step` changed."""
    env = envs.make(name)

    def step(noise, env_state, action):
        env_state, made = env.step(noise, env_state, action)
        return env_state, made._replace(**{field: change(made) for field, change in changes.items()})

    return env._replace(step=step)


FAKES = {
    "number": (lambda: edited()._replace(num_agents=0), r"num_agents = 0: .*"),
    "one reward": (
        lambda: edited(reward=lambda made: made.reward[0]),
        r"reward: must be float32\[2\], but is float32\[\]",
    ),
    "one obs": (
        lambda: edited(next_obs=lambda made: made.next_obs[0]),
        r"step's next_obs: must be bool\[2, 19\], but is bool\[19\]",
    ),
    "one end": (
        lambda: edited(
            terminated=lambda made: made.terminated & jnp.array([True, False]),
        ),
        r"terminated, truncated: ends_together, but they differ between agents, first at step \d",
    ),
    "nobody": (
        lambda: edited()._replace(acting=lambda obs: obs[..., -1] & obs[..., 0]),
        "acting: no agent acts, first at step 1",
    ),
    "rewards that do not cancel": (
        lambda: edited(reward=lambda made: made.reward + jnp.array([0.0, 1.0])),
        "reward: zero_sum, but those of all agents do not add up to 0, first at step 1",
    ),
    "acting for all": (
        lambda: edited()._replace(acting=lambda obs: jnp.ones((2,), bool)),
        r"acting: must be bool\[\], but is bool\[2\]",
    ),
    "acting in numbers": (
        lambda: edited()._replace(acting=lambda obs: obs[..., -1] * 1.0),
        r"acting: must be bool\[\], but is float32\[\]",
    ),
    "legal for all": (
        lambda: edited()._replace(legal=lambda obs: jnp.ones((2, 9), bool)),
        r"legal: must be bool\[9\], but is bool\[2, 9\]",
    ),
    "nothing legal": (
        lambda: edited()._replace(legal=lambda obs: obs[..., :9] & obs[..., 9:18]),
        "legal: no action is legal, first at step 1",
    ),
    "own of arrays alone": (
        lambda: edited("Landmarks-v0")._replace(own=lambda obs: obs["own"] + 0),
        "own: must select a part of observation_space, as it does of observations: TypeError.*",
    ),
    "another part": (
        lambda: edited("Landmarks-v0")._replace(
            state=lambda obs: obs["own"] if isinstance(obs["own"], Box) else obs["own"][..., 0]
        ),
        r"state: must be bool\[40\], but is bool\[\]",
    ),
    "own without what acting reads": (
        lambda: edited("Landmarks-v0")._replace(acting=lambda obs: obs["own"][..., 0] | True),
        r"acting of own\(obs\): cannot be traced by jit: .*",
    ),
}


@pytest.mark.parametrize("fault", FAKES)
def test_check_env_finds(fault):
    make_fake, message = FAKES[fault]
    env = make_fake()
    with pytest.raises(ConfigError, match=f"^{env.name}: {message}$"):
        envs.check_env(env, num_steps=16, num_envs=4)


def test_check_env_counts_episodes_not_rows():
    result = examine(envs.make("TwoStep-v0"), num_steps=16, num_envs=4)
    assert (result.problems, result.terminated, result.truncated) == ([], 32, 0)
    assert result.notes == [
        "every episode begins with the same state and observation: nothing is drawn",
        "no episode was truncated",
    ]


def test_parts_of_observations():
    """What agents see and what critics see are parts of the observation, and of its space."""
    env = envs.make("Landmarks-v0")
    _, obs = env.reset(jax.random.key(0))
    for part in (env.own, env.state):
        assert part(obs).shape == (2, 40) and part(env.observation_space).shape == (40,)
    assert (env.state(obs)[0] == env.state(obs)[1]).all()
    assert (env.own(obs)[0] == env.state(obs)[0]).all() and not (env.own(obs)[1] == env.state(obs)[1]).all()
