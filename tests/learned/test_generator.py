"""The socket of levels: generators that begin with uniform choices, and where what they train is judged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl import envs
from purerl.errors import ConfigError
from purerl.learned import artefacts, sockets
from purerl.learned.generator import GeneratorSettings

ENV = envs.make("CartPole-v1", randomise="length:0.25:1.0,gravity:5:15")
SIZES = list(ENV.design.sizes)
KEY = jax.random.key(0)
NUMBER = 8000


@pytest.fixture(scope="module")
def socket():
    return sockets.make("levels", **sockets.settings("levels", GeneratorSettings(), ENV))


def drawn(socket, meta_params):
    """The parameters of levels ``[NUMBER, 2]`` as their choices."""
    levels = socket.env(meta_params, ENV).levels(KEY, (NUMBER // 2, 2))[0]
    parts = {"length": (0.25, 0.75), "gravity": (5, 10)}
    return np.stack([(np.ravel(levels[name]) - low) / width * 16 - 0.5 for name, (low, width) in parts.items()], axis=1)


@pytest.mark.rest
def test_choices_are_uniform_at_first(socket):
    choices = np.round(drawn(socket, socket.init(KEY))).astype(int)
    for column in choices.T:
        counts = np.bincount(column, minlength=16)
        assert counts.size == 16 and scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.rest
def test_levels_follow_the_network(socket):
    meta_params = socket.init(KEY)
    last = meta_params[-1]
    moved = meta_params[:-1] + [{**last, "bias": jnp.array([3.0, -3.0, 0.0, 0.0])}]
    long, weak = drawn(socket, moved).mean(axis=0)
    assert long > 12 and weak < 3
    narrow = meta_params[:-1] + [{**last, "bias": jnp.array([0.0, 0.0, -4.0, -4.0])}]
    assert np.ptp(drawn(socket, narrow), axis=0).max() <= 1.01


@pytest.mark.rest
def test_levels_are_drawn_by_the_key_alone(socket):
    env = socket.env(socket.init(KEY), ENV)
    one, same = (env.levels(KEY, (3,)) for _ in range(2))
    assert all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(same)))
    envs.check_env(env, num_steps=64)


def test_what_it_trains_is_judged_in_other_levels(socket):
    trial = socket.trial(socket.init(KEY), ENV)
    assert trial.levels is ENV.levels and socket.sign == 1


def test_files_hold_the_sizes_of_choices(socket, tmp_path):
    settings = sockets.settings("levels", GeneratorSettings(), ENV)
    artefacts.save(tmp_path / "artefact.json", artefacts.of_socket("levels", socket.init(KEY), {}, settings=settings))
    result = artefacts.load(tmp_path / "artefact.json")
    assert result.option == "generator" and result.settings["sizes"] == SIZES
    np.testing.assert_array_equal(
        result.env(ENV).levels(KEY, (4,))[0]["length"], socket.env(socket.init(KEY), ENV).levels(KEY, (4,))[0]["length"]
    )


def test_what_does_not_fit_is_refused(socket):
    with pytest.raises(ConfigError, match="has no levels to choose from"):
        sockets.settings("levels", GeneratorSettings(), envs.make("CartPole-v1"))
    with pytest.raises(ConfigError, match="its levels have other choices"):
        socket.env(socket.init(KEY), envs.make("CartPole-v1", randomise="length:0.25:1.0"))
    with pytest.raises(ConfigError, match="settings of levels: noise: unknown; nearest: "):
        sockets.make("levels", noise=3)
    with pytest.raises(ConfigError, match="sizes"):
        sockets.make("levels", sizes=[1] * 5000)
