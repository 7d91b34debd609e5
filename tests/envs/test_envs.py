"""Our own environments: the interface, probes in closed form, `make`, and what `check_env` finds."""

import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fleets import play

from purerl import envs
from purerl.catalogue import GYMNAX
from purerl.envs.episodic import EpisodeState, box, episodic, no_noise
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, sample
from purerl.types import Step

OURS = envs.names("native") + envs.names("probe")


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.mark.weekly(
    "MinAtar",
    "MatrixShaping",
    "MountainCar",
    "Acrobot",
    "probe",
    "Kuhn",
    "TicTac",
    "CoinGame",
    "Landmarks",
    "Permutation",
)
@pytest.mark.parametrize("name", OURS)
def test_contract(name):
    envs.check_env(envs.make(name), num_steps=64)


def test_names_are_distinct_and_complete():
    names = envs.names()
    assert len(set(names)) == len(names)
    assert set(GYMNAX) <= set(names)
    shadowed = {f"gymnax/{name}" for name in envs.names("native") if name in GYMNAX}
    assert {name for name in names if name.startswith("gymnax/")} == shadowed and len(shadowed) == 10


def test_import_stays_light():
    code = "import sys; from purerl import catalogue, envs; envs.names(); envs.make('CartPole-v1')"
    code += "; print({'gymnax', *catalogue.EXTRAS.values()} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("Cartpole-v1", {}, r"^env = 'Cartpole-v1': unknown environment; nearest: CartPole-v1, .*$"),
        ("probe/onestep", {}, r"^env = 'probe/onestep': unknown environment; nearest: probe/one-step, .*$"),
        ("CartPole-v1", {"gravty": 1.0}, r"^env = 'CartPole-v1': unknown parameter gravty; nearest: gravity, .*$"),
        ("Acrobot-v1", {"x": 1, "y": 2}, r"^env = .*unknown parameter x; near.*\nenv = .*unknown parameter y; .*$"),
        ("probe/one-step", {"r": 1}, r"^env = 'probe/one-step': unknown parameter r"),
        ("MNISTBandit-bsuite", {}, r"^env = 'MNISTBandit-bsuite': not supported"),
    ],
)
def test_make_explains_itself(name, params, message):
    with pytest.raises(ConfigError, match=message):
        envs.make(name, **params)


@pytest.mark.parametrize("name", ["CartPole-v1", "probe/constant-reward", "Breakout-MinAtar"])
def test_numbers_that_no_environment_can_have(name):
    parameter = "max_steps_in_episode" if name.startswith("Break") else "max_steps"
    for value in (0, -1, 2.5, float("nan")):
        with pytest.raises(ConfigError, match=f"^env = '{name}': {parameter} = {value}: must be "):
            envs.make(name, **{parameter: value})
    with pytest.raises(ConfigError, match=rf"^env = '{name}': {parameter} = {2**31}: must lie in"):
        envs.make(name, **{parameter: 2**31})
    assert envs.make(name, **{parameter: 20.0}).name == name


def test_episodes_have_steps():
    with pytest.raises(ConfigError, match="^env = 'mine': time_limit = 0:"):
        sound(time_limit=0)


def test_true_next_obs_and_automatic_reset():
    _, before, _, obs, step = play(envs.make("CartPole-v1", max_steps=30), 64, 100)
    last = step.terminated | step.truncated
    assert step.terminated.any() and step.truncated.any() and not (step.terminated & step.truncated).any()
    np.testing.assert_array_equal(obs[~last], step.next_obs[~last])
    assert (np.abs(obs[last]) <= 0.05).all()
    assert (np.abs(step.next_obs[step.terminated]) > np.radians(12)).any(axis=-1).all()
    np.testing.assert_array_equal(before.t[1:][last[:-1]], 0)
    np.testing.assert_array_equal(before.t[1:][~last[:-1]], before.t[:-1][~last[:-1]] + 1)
    np.testing.assert_array_equal(before.t[step.truncated], 29)
    assert len(np.unique(obs[last][:, 0])) == last.sum()


def test_cartpole_without_velocities():
    """All is the same but what is seen."""
    full, hidden = (play(envs.make("CartPole-v1", max_steps=30, hide_velocity=hide), 4, 60) for hide in (0, 1))
    np.testing.assert_array_equal(hidden[3], full[3][..., ::2])
    np.testing.assert_array_equal(hidden[4].next_obs, full[4].next_obs[..., ::2])
    np.testing.assert_array_equal(hidden[4].terminated, full[4].terminated)
    envs.check_env(envs.make("CartPole-v1", hide_velocity=1), num_steps=16)
    with pytest.raises(ConfigError, match="hide_velocity = 2:"):
        envs.make("CartPole-v1", hide_velocity=2)


def test_termination_wins_over_truncation():
    *_, step = play(envs.make("probe/discount-two-steps"), 2, 4)
    np.testing.assert_array_equal(step.terminated[:, 0], [False, True, False, True])
    assert not step.truncated.any()


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("CartPole-v1", [-0.05] * 4, [0.05] * 4),
        ("Acrobot-v1", [np.cos(0.1), -np.sin(0.1)] * 2 + [-0.1] * 2, [1, np.sin(0.1)] * 2 + [0.1] * 2),
        ("MountainCar-v0", [-0.6, 0], [-0.4, 0]),
        ("MountainCarContinuous-v0", [-0.6, 0], [-0.4, 0]),
        ("Pendulum-v1", [-1] * 3, [1] * 3),
    ],
)
def test_initial_distribution_fills_its_range(name, low, high):
    _, obs = jax.jit(jax.vmap(envs.make(name).reset))(jax.random.split(jax.random.key(0), 2000))
    obs, low, high = np.array(obs), np.array(low), np.array(high)
    slack = 0.01 * (high - low) + 1e-6
    assert (obs >= low - 1e-6).all() and (obs <= high + 1e-6).all()
    assert (obs.min(axis=0) <= low + slack).all() and (obs.max(axis=0) >= high - slack).all()


@pytest.mark.parametrize(
    ("name", "parameter", "values"),
    [
        ("CartPole-v1", "gravity", [5.0, 9.8]),
        ("Acrobot-v1", "link_mass_2", [1.0, 2.0]),
        ("MountainCar-v0", "max_speed", [0.0001, 0.07]),
        ("MountainCarContinuous-v0", "power", [0.0015, 0.01]),
        ("Pendulum-v1", "max_torque", [0.5, 2.0]),
    ],
)
def test_parameters_can_be_vmapped(name, parameter, values):
    action = sample(envs.make(name).action_space, jax.random.key(3), ())

    def one(value):
        env = envs.make(name, **{parameter: value})
        env_state, _ = env.reset(jax.random.key(0))
        _, step = env.step(env.noise(jax.random.key(1), ()), env_state, action)
        return step.next_obs

    batch = jax.jit(jax.vmap(one))(jnp.array(values))
    np.testing.assert_allclose(batch[1], jax.jit(one)(values[1]), atol=1e-6)
    assert np.abs(batch[0] - batch[1]).max() > 1e-5


def test_time_limit_can_be_traced():
    def one(max_steps):
        env = envs.make("probe/constant-reward", max_steps=max_steps)
        env_state, _ = env.reset(jax.random.key(0))
        return env.step(env.noise(jax.random.key(1), ()), env_state, jnp.int32(0))[1].truncated

    np.testing.assert_array_equal(jax.jit(jax.vmap(one))(jnp.array([1, 2])), [True, False])


@pytest.mark.parametrize(
    ("name", "outside", "inside"),
    [
        ("CartPole-v1", [-3, 7], [0, 1]),
        ("Acrobot-v1", [-3, 7], [0, 2]),
        ("MountainCar-v0", [-3, 7], [0, 2]),
        ("MountainCarContinuous-v0", [[-3.0], [7.0]], [[-1.0], [1.0]]),
        ("Pendulum-v1", [[-3.0], [7.0]], [[-2.0], [2.0]]),
        ("probe/target-action", [[-3.0], [7.0]], [[-1.0], [1.0]]),
        ("probe/action-dependent-reward", [-3, 7], [0, 1]),
    ],
)
def test_actions_are_brought_into_range(name, outside, inside):
    env = envs.make(name)
    env_state, _ = env.reset(jax.random.key(0))
    step = jax.jit(jax.vmap(lambda a: env.step(env.noise(jax.random.key(1), ()), env_state, a)[1]))
    out, within = step(jnp.array(outside)), step(jnp.array(inside))
    np.testing.assert_array_equal(out.next_obs, within.next_obs)
    if name != "MountainCarContinuous-v0":  # where the price is that of the action as given
        np.testing.assert_array_equal(out.reward, within.reward)


def probe_run(name, **params):
    obs, _, action, after, step = play(envs.make(f"probe/{name}", **params), 16, 12)
    seen = np.concatenate([obs[None], after[:-1]])[..., 0]
    return seen, action, step


def test_probe_constant_reward():
    _, _, step = probe_run("constant-reward", reward=2.5, max_steps=4)
    np.testing.assert_array_equal(step.reward, 2.5)
    np.testing.assert_array_equal(step.truncated[:, 0], [False, False, False, True] * 3)
    assert not step.terminated.any()


def test_probe_discount_two_steps():
    seen, _, step = probe_run("discount-two-steps")
    np.testing.assert_array_equal(seen[:, 0], [0, 1] * 6)
    np.testing.assert_array_equal(step.reward, seen)


@pytest.mark.parametrize(
    ("name", "reward"),
    [
        ("one-step", lambda obs, action: np.ones_like(obs)),
        ("obs-dependent-reward", lambda obs, action: obs),
        ("action-dependent-reward", lambda obs, action: 2.0 * action - 1),
        ("obs-action-match", lambda obs, action: obs * (2 * action - 1)),
        ("target-action", lambda obs, action: -((action[..., 0] - 0.5) ** 2)),
    ],
)
def test_probes_of_one_step(name, reward):
    seen, action, step = probe_run(name)
    assert step.terminated.all()
    np.testing.assert_allclose(step.reward, reward(seen, action), rtol=1e-6)
    if name.startswith("obs"):
        assert set(np.unique(seen)) == {-1, 1}


# What check_env finds. The sound environment counts down from 3; each fake below breaks one promise of it.


PARTS = {
    "levels": lambda key, shape: jax.random.uniform(key, shape),
    "initial": lambda level: jnp.stack([level, jnp.float32(3)]),
    "dynamics": lambda physical, action: (physical - jnp.array([0.0, 1.0]), 1.0, physical[1] <= 1),
    "observe": lambda physical: physical,
    "time_limit": 10,
    "observation_space": box((0.0, 0.0), (1.0, 3.0)),
    "action_space": Discrete(2),
}


def sound(**changes):
    return episodic("mine", **(PARTS | changes))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_random_dynamics(shape):
    """`dynamics` is given the noise of its step: another one has another result, the same one the same."""

    def dynamics(physical, action, noise):
        return physical + jnp.stack([noise["by"], -1.0 * noise["down"]]), noise["by"], False

    def noise(key, shape):
        key_by, key_down = jax.random.split(key)
        return {"by": jax.random.uniform(key_by, shape), "down": jax.random.randint(key_down, shape, 1, 3)}

    env = sound(noise=noise, dynamics=dynamics)
    env_state, obs = env.reset(jax.random.key(0))
    first, other = (env.noise(jax.random.key(seed), shape) for seed in (1, 2))
    assert all(x.shape == shape for x in jax.tree.leaves(first))

    def step(chance):
        function = lambda one: env.step(one, env_state, jnp.int32(0))[1]
        for _ in shape:
            function = jax.vmap(function)
        return jax.jit(function)(chance)

    made = step(first)
    np.testing.assert_array_equal(made.reward, first["by"])
    moved = np.stack([np.asarray(first["by"]), -np.asarray(first["down"], np.float32)], axis=-1)
    np.testing.assert_allclose(made.next_obs, np.broadcast_to(obs, moved.shape) + moved, rtol=1e-6)
    np.testing.assert_array_equal(made.next_obs, step(first).next_obs)
    assert (np.asarray(made.next_obs) != step(other).next_obs).any(axis=-1).all()


@pytest.mark.parametrize(("reward", "paid"), [(2.0, [2, 2]), (jnp.array([1.0, -1.0]), [1, -1])])
def test_several_agents(reward, paid):
    """Each is paid its own or the team's reward, and the end of the episode is everybody's."""
    env = sound(
        num_agents=2,
        dynamics=lambda physical, action: (physical - jnp.stack([0.0, jnp.max(action)]), reward, physical[1] <= 2),
        observe=lambda physical: jnp.stack([physical, physical[::-1]]),
        observation_space=box((0.0, 0.0), (3.0, 3.0)),
        time_limit=2,
    )
    envs.check_env(env, num_steps=8)
    env_state, _ = env.reset(jax.random.key(0))
    ends = []
    for _ in range(2):
        env_state, made = env.step((), env_state, jnp.array([0, 1]))
        np.testing.assert_array_equal(made.reward, paid)
        np.testing.assert_array_equal(made.next_obs[0], made.next_obs[1][::-1])
        ends.append((made.terminated.tolist(), made.truncated.tolist()))
    assert ends == [([False] * 2, [False] * 2), ([True] * 2, [False] * 2)]


def with_step(change):
    """The sound environment with ``change(env_state, step) -> (env_state, step)`` after each step."""
    env = sound()
    return env._replace(step=lambda noise, env_state, action: change(*env.step(noise, env_state, action)))


def edit_step(**changes):
    return with_step(lambda env_state, step: (env_state, step._replace(**{k: f(step) for k, f in changes.items()})))


def impure():
    calls = iter(range(100))
    return sound(initial=lambda level: jnp.stack([level * 0 + next(calls) / 100, jnp.float32(3)]))


def impure_levels():
    calls = iter(range(100))
    return sound(levels=lambda key, shape: jax.random.uniform(key, shape) / (2 + next(calls)))


def resetting(state=True, obs=False):
    """Its steps begin the next episode where one ends, in the state or in what is seen, as they once had to."""
    env = sound()

    def step(level, env_state, action):
        env_state, made = env.step((), env_state, action)
        after = env_state, made.next_obs
        start = jax.tree.map(lambda x, y: jnp.where(made.last, x, y), env.begin(level), after)
        return (start if state else after)[0], made._replace(next_obs=(start if obs else after)[1])

    return env._replace(noise=env.levels, step=step)


def without_time(env):
    """An environment whose state is the physical one alone."""

    def begin(level):
        env_state, obs = env.begin(level)
        return env_state.physical, obs

    def step(noise, physical, action):
        env_state, made = env.step(noise, EpisodeState(physical, jnp.zeros((), jnp.int32)), action)
        return env_state.physical, made

    return env._replace(begin=begin, step=step)


def unvmappable():
    like = jax.ShapeDtypeStruct((), jnp.float32)
    return edit_step(reward=lambda step: jax.pure_callback(lambda x: x, like, step.next_obs[0]))


FAKES = {
    "obs shape in begin": (
        lambda: sound()._replace(begin=lambda level: (sound().begin(level)[0], jnp.zeros(3))),
        r"mine: begin's obs: must be float32\[2\], but is float32\[3\]",
    ),
    "begin of one thing": (
        lambda: sound()._replace(begin=lambda level: sound().begin(level)[1]),
        r"mine: begin: must return \(env_state, obs\), but returns ",
    ),
    "obs dtype": (
        lambda: edit_step(next_obs=lambda step: step.next_obs.astype(jnp.float16)),
        r"mine: step's next_obs: must be float32\[2\], but is float16\[2\]",
    ),
    "obs tree": (
        lambda: edit_step(next_obs=lambda step: {"x": step.next_obs}),
        r"mine: step's next_obs: must be one array, but is PyTreeDef\(\{'x': \*\}\)",
    ),
    "reward dtype": (
        lambda: edit_step(reward=lambda step: step.reward.astype(jnp.int32)),
        r"mine: reward: must be float32\[\], but is int32\[\]",
    ),
    "weak reward": (lambda: edit_step(reward=lambda step: 1.0), r"mine: reward: is weakly typed; give it a dtype"),
    "flag dtype": (
        lambda: edit_step(terminated=lambda step: step.terminated.astype(jnp.float32)),
        r"mine: terminated: must be bool\[\], but is float32\[\]",
    ),
    "no Step": (
        lambda: with_step(lambda env_state, step: (env_state, tuple(step))),
        r"mine: step: must return \(env_state, Step\), but the second is tuple",
    ),
    "state dtype": (
        lambda: with_step(lambda env_state, step: (env_state._replace(t=env_state.t.astype(jnp.float32)), step)),
        r"mine: env_state\.t: int32\[\] after begin, but float32\[\] after step",
    ),
    "weak state": (
        lambda: with_step(lambda env_state, step: (env_state._replace(t=jnp.where(step.terminated, 0, 1)), step)),
        r"mine: step's env_state\.t: is weakly typed; give it a dtype",
    ),
    "state tree": (
        lambda: with_step(lambda env_state, step: (tuple(env_state), step)),
        r"mine: env_state: begin gives PyTreeDef\(.*\), but step PyTreeDef",
    ),
    "noise shape": (
        lambda: sound()._replace(noise=lambda key, shape: jax.random.uniform(key, shape[:1])),
        r"mine: noise: shape \(2,\) for noise\(key, \(2, 3\)\), but \(2, 3\) follows from noise\(key, \(\)\)",
    ),
    "level shape": (
        lambda: sound(levels=lambda key, shape: jax.random.uniform(key, shape[:1])),
        r"mine: levels: shape \(2,\) for levels\(key, \(2, 3\)\), but \(2, 3\) follows from levels\(key, \(\)\)",
    ),
    "no level": (
        lambda: sound(levels=no_noise, initial=lambda level: jnp.zeros(2)),
        "mine: levels: holds no array; where nothing is drawn, give purerl.envs.episodic.one_level",
    ),
    "impure levels": (
        impure_levels,
        "mine: levels: gives two results for one key: level differs",
    ),
    "keep of another shape": (
        lambda: sound()._replace(keep=lambda before, begun: begun._replace(t=jnp.float32(0))),
        r"mine: env_state\.t: int32\[\] after begin, but float32\[\] after keep",
    ),
    "keep of one state": (
        lambda: sound()._replace(keep=lambda state: state),
        "mine: keep: cannot be traced by jit: TypeError",
    ),
    "resets": (
        lambda: sound()._replace(resets="many"),
        "mine: resets = 'many':",
    ),
    "a space for a function": (
        lambda: sound()._replace(step=Discrete(2)),
        r"mine: step: must be a function; an Env is \(name, levels, begin, noise, step, \.\.\.\)",
    ),
    "branch on a tracer": (
        lambda: edit_step(reward=lambda step: jnp.float32(1) if step.terminated else jnp.float32(0)),
        r"mine: step: cannot be traced by jit: TracerBoolConversionError",
    ),
    "no vmap": (unvmappable, r"mine: begin or step: cannot be vmapped: NotImplementedError"),
    "space bounds": (
        lambda: sound(observation_space=Box(np.zeros(3), 1.0, (2,), jnp.float32)),
        r"mine: observation_space: low and high must broadcast to shape \(2,\)",
    ),
    "outside of the space": (
        lambda: sound(observation_space=box((0.0, 1.0), (1.0, 3.0))),
        r"^mine: step's next_obs: leaves observation_space: element \[1\] is 0, below the low of 1, first at step 3$",
    ),
    "not finite": (
        lambda: edit_step(reward=lambda step: step.reward / 0, next_obs=lambda step: step.next_obs / 0),
        r"mine: reward: is not finite, first at step 1\nmine: step's next_obs: is not finite, first at step 1$",
    ),
    "both flags": (
        lambda: edit_step(truncated=lambda step: step.terminated),
        r"^mine: terminated, truncated: are both true at one step, first at step 3$",
    ),
    "a step that resets": (
        resetting,
        "^mine: step's env_state: where an episode ends it is like what begin gives; leave out the reset, for whoever "
        "steps the environment begins the next episode$",
    ),
    "a step that resets what has no time": (
        lambda: without_time(resetting()),
        "^mine: step's env_state: where an episode ends it is like what begin gives; leave out the reset, .*$",
    ),
    "next_obs of the next episode": (
        lambda: resetting(state=False, obs=True),
        "^mine: step's next_obs: where an episode ends it is like what begin gives; return what the action led to$",
    ),
    "a Step with another field": (
        lambda: edit_step(obs=lambda step: step.next_obs),
        r"mine: step: cannot be traced by jit: .*field names: \['obs'\]",
    ),
    "impure begin": (
        impure,
        r"^mine: begin: gives two results for one level: env_state.physical differs\n.*: obs differs$",
    ),
}


@pytest.mark.parametrize("fault", FAKES)
def test_check_env_finds(fault):
    make_fake, message = FAKES[fault]
    with pytest.raises(ConfigError, match=message):
        envs.check_env(make_fake(), num_steps=8, num_envs=4)


def test_check_env_lists_all_problems():
    fake = edit_step(reward=lambda step: 1, truncated=lambda step: 0, next_obs=lambda step: step.next_obs[None])
    with pytest.raises(ConfigError) as error:
        envs.check_env(fake)
    assert [line.split(":")[1].strip() for line in str(error.value).splitlines()] == [
        "step's next_obs",
        "reward",
        "truncated",
    ]


def test_check_env_accepts_keys_in_the_state_and_whole_observations():
    def begin(key):
        return key, jnp.zeros((), jnp.int32)

    def step(noise, key, action):
        key, key_next = jax.random.split(key)
        obs = jax.random.randint(key, (), 0, 2)
        return key_next, Step(obs, jnp.float32(0), jnp.zeros((), bool), jnp.zeros((), bool))

    env = sound()._replace(levels=jax.random.split, begin=begin, step=step, observation_space=Discrete(2))
    envs.check_env(env, num_steps=8, num_envs=4)


def test_check_env_takes_steps_that_only_look_like_resets():
    """Without a time in the state an end may look like a beginning where the middle of episodes does too."""
    still = sound(dynamics=lambda physical, action: (physical, 1.0, False), time_limit=3)
    envs.check_env(without_time(still), num_steps=8, num_envs=4)
    one_step = sound(dynamics=lambda physical, action: (physical, 1.0, True))
    envs.check_env(without_time(one_step), num_steps=8, num_envs=4)


def test_an_error_of_the_function_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(mine=lambda: len(3)))
    with pytest.raises(ConfigError, match=r"TypeError: object of type 'int' has no len\(\) \([^;]*\)$"):
        envs.make("mine:mine")
