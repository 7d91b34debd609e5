"""Cheap talk: it changes what is heard and nothing else, and who says nothing is a listener's padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import AS_SHIPPED
from fleets import alone, drawn

from purerl import compiler_options, envs, ppo
from purerl.envs.wrappers.parts import with_view
from purerl.errors import ConfigError
from purerl.learned import messages, sockets
from purerl.meta import evolution
from purerl.spaces import Box, sample

CARTPOLE = envs.make("CartPole-v1", max_steps=15)
CONFIG = ppo.Config(total_steps=4 * 32 * 12, num_envs=4, num_steps=32, hidden_sizes=(16,))


def moved(meta_params, size=1.0):
    """Meta-parameters that say something."""
    leaves, structure = jax.tree.flatten(meta_params)
    keys = jax.random.split(jax.random.key(5), len(leaves))
    return jax.tree.unflatten(
        structure, [x + size * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    )


def played(make_env, meta_params, num_steps=120):
    """Random play: what is seen first, states of the environment, what is seen and Steps ``[T, ...]``. The play is the
    same, whatever is said."""

    @jax.jit
    def run(meta_params, key):
        env, (key_reset, key_noise, key_action) = make_env(meta_params), jax.random.split(key, 3)
        noise, actions = drawn(env, key_noise, (num_steps,)), sample(env.action_space, key_action, (num_steps,))

        def move(state, given):
            state, seen, step = alone(env)(given[0], state, given[1])
            return state, (state, seen, step)

        first, obs = env.reset(key_reset)
        return obs, *jax.lax.scan(move, first, (noise, actions))[1]

    return jax.device_get(run(meta_params, jax.random.key(0)))


@pytest.mark.weekly
def test_who_says_nothing_is_padding():
    """A training with messages of zeros has the bits of one whose observations are padded, and others with others."""
    socket = sockets.make("cheap-talk", inputs=4, messages=3)
    space = CARTPOLE.observation_space
    low, high = (np.concatenate([x, np.zeros(3, np.float32)]) for x in (space.low, space.high))
    pad = lambda obs: jnp.concatenate([obs, jnp.zeros(3)])
    padded = with_view(CARTPOLE, pad, Box(low, high, low.shape, jnp.float32))

    def trained(make_env, meta_params):
        train = lambda given, key: ppo.make_train(CONFIG, make_env(given))(key).state.learner.params
        return jax.jit(train, compiler_options=AS_SHIPPED | compiler_options())(meta_params, jax.random.key(0))

    plain, silent = trained(lambda _: padded, ()), socket.init(jax.random.key(1))
    heard = lambda meta_params: socket.env(meta_params, CARTPOLE)
    jax.tree.map(np.testing.assert_array_equal, trained(heard, silent), plain)
    other = trained(heard, moved(silent))
    assert all(np.any(a != b) for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(plain), strict=True))


@pytest.mark.rest
@pytest.mark.parametrize("unseen", [(), (1, 3)])
def test_nothing_but_the_observation_changes(unseen):
    """States, rewards and ends are those of the environment, and so is what is left of the observation; the message is
    the formula's."""
    socket = sockets.make("cheap-talk", inputs=4, unseen=unseen, message_scale=2.5, message_gain=0.7)
    meta_params = moved(socket.init(jax.random.key(1)))
    first, states, seen_after, steps = played(lambda _: CARTPOLE, ())
    heard_first, heard_states, heard_after, heard = played(lambda given: socket.env(given, CARTPOLE), meta_params)
    assert steps.terminated.any() and steps.truncated.any()
    jax.tree.map(np.testing.assert_array_equal, heard_states, states)
    for name in ("reward", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(heard, name), getattr(steps, name))
    shown = [i for i in range(4) if i not in unseen]
    kernel, bias = (np.asarray(meta_params["learning"][0][name], np.float64) for name in ("kernel", "bias"))
    for seen, obs in ((heard_after, seen_after), (heard.next_obs, steps.next_obs), (heard_first[None], first[None])):
        np.testing.assert_array_equal(seen[:, : len(shown)], obs[:, shown])
        message = 2.5 * np.tanh(0.7 * (obs.astype(np.float64) @ kernel + bias))
        np.testing.assert_allclose(seen[:, len(shown) :], message, atol=1e-5)
    bounds = socket.env(meta_params, CARTPOLE).observation_space
    assert bounds.shape == (len(shown) + 2,) and np.all(bounds.high[-2:] == 2.5) and np.all(bounds.low[-2:] == -2.5)


def test_led_to_a_goal():
    """The reward is by the distance to a goal that stays for an episode and is heard of in messages alone."""
    socket = sockets.make("cheap-talk", role="guide", inputs=4, goal_size=1, message_scale=2.0, message_gain=1.0)
    meta_params = moved(socket.init(jax.random.key(1)))
    _, (states, goals), seen, steps = played(lambda given: socket.trial(given, CARTPOLE), meta_params)
    last = steps.terminated | steps.truncated
    assert np.all((np.diff(goals[:, 0]) != 0) == last[1:]) and np.all(np.abs(goals) <= 2.4) and last.sum() > 2
    place = steps.next_obs[1:, 0].astype(np.float64)
    np.testing.assert_allclose(steps.reward[1:], np.exp(-np.square(place - goals[:-1, 0])), rtol=1e-5)
    kernel, bias = (np.asarray(meta_params["trained"][0][name], np.float64) for name in ("kernel", "bias"))
    heard = np.concatenate([seen[:, :4], goals], axis=1)
    np.testing.assert_allclose(seen[:, 4:], 2.0 * np.tanh(heard @ kernel + bias), atol=1e-5)


def test_goals():
    """Uniform on the track, the circle and the disc, and reached where the physics says."""
    draw = lambda name: np.asarray(messages.GOALS[name].draw(jax.random.key(0), (20_000,)))
    track, circle, disc = draw("CartPole-v1")[:, 0], draw("Pendulum-v1"), draw("Reacher-misc")
    np.testing.assert_allclose([track.min(), track.mean(), track.max()], [-2.4, 0, 2.4], atol=0.03)
    np.testing.assert_allclose(np.linalg.norm(circle, axis=1), 1, rtol=1e-5)
    radius = np.linalg.norm(disc, axis=1)
    np.testing.assert_allclose(np.mean(radius < np.sqrt(2)), 0.5, atol=0.02)  # half of the disc's area
    assert radius.max() <= 2 and max(np.abs(circle.mean(axis=0)).max(), np.abs(disc.mean(axis=0)).max()) < 0.03
    joints = np.array([0.3, -1.1])
    seen = np.concatenate([np.cos(joints), np.sin(joints), [5.0, 6.0, 7.0, 8.0]])
    hand = messages.GOALS["Reacher-misc"].reached(jnp.asarray(seen, jnp.float32))
    np.testing.assert_allclose(hand, [np.cos(joints).sum(), np.sin(joints).sum()], rtol=1e-6)


def test_fitness_by_role():
    """An adversary gains what is lost, an ally what is won; a guide by its own rewards, of a policy that is frozen."""
    metrics = {"episodes": jnp.array([0, 2, 1]), "episode_return": jnp.array([jnp.nan, 4.0, 8.0])}
    judged = {
        role: evolution.judge(sockets.make("cheap-talk", role=role, inputs=4, goal_size=1), CARTPOLE)
        for role in ("adversary", "ally", "guide")
    }
    assert judged["ally"]["fitness"](metrics) == 6 and judged["adversary"]["fitness"](metrics) == -6
    assert set(judged["ally"]) == {"fitness"} and judged["guide"]["trial"](None).observation_space.shape == (6,)


def test_random_messages_are_of_the_same_size():
    meta_params = {"a": jnp.full((200, 50), 3.0), "b": jnp.zeros(7)}
    drawn = messages.random(meta_params, jax.random.key(0))
    np.testing.assert_allclose(jnp.std(drawn["a"]), 3.0, rtol=0.03)
    assert abs(jnp.mean(drawn["a"])) < 0.1 and not np.any(drawn["b"])
    assert not any(np.any(x) for x in jax.tree.leaves(messages.silent(meta_params, jax.random.key(0))))


@pytest.mark.parametrize(
    ("env", "options", "line"),
    [
        ("Acrobot-v1", {"role": "guide"}, "env = 'Acrobot-v1': has no goals to guide to"),
        ("CartPole-v1", {"unseen": (4,)}, r"unseen = \(4,\):"),
        ("CartPole-v1", {"unseen": (0, 1, 2, 3)}, r"unseen = \(0, 1, 2, 3\): must be some of 0 to 3, and not all"),
        ("Breakout-MinAtar", {}, r"observations \[10, 10, 4\]; messages of this kind need \[400\]"),
    ],
)
def test_problems(env, options, line):
    with pytest.raises(ConfigError, match=line):
        messages.settings(messages.MessageSettings(**options), envs.make(env))


def test_a_guide_needs_to_see_the_place():
    """A mask of the environment moves the elements that say where an agent is, and files may say anything."""
    for changed, line in (({"observation_mask": "0"}, r"observations \[3\]"), ({"frame_stack": 2}, "a guide needs")):
        with pytest.raises(ConfigError, match=line):
            messages.settings(messages.MessageSettings(role="guide"), envs.make("CartPole-v1", **changed))
    with pytest.raises(ConfigError, match="goal_size = 2:"):
        sockets.make("cheap-talk", role="guide", inputs=4, goal_size=2).trial((), CARTPOLE)
