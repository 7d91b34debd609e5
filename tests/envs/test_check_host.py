"""What `check_env` says of environments of the host."""

import jax
import pytest

from purerl import ConfigError, envs
from purerl.envs.check_env import examine


def examined(name, **params):
    return examine(envs.make(name, **params), jax.random.key(0), 40, 3)


def test_cartpole_keeps_the_contract():
    result = examined("gymnasium/CartPole-v1")
    assert not result.problems and result.terminated > 0 == result.truncated
    assert result.notes[-1] == "no episode was truncated" and not any(
        "nothing is drawn" in note for note in result.notes
    )
    cut = examined("gymnasium/CartPole-v1", max_episode_steps=7)
    assert not cut.problems and cut.truncated > 0 == cut.terminated


def test_agents_keep_it():
    result = examined("hosted:pair")
    assert not result.problems and result.terminated == 40 // 4 * 3 * 2
    assert "purerl render cannot render it" in result.notes


@pytest.mark.parametrize(
    "name, params, line",
    [
        ("script", {"nan": 3}, "step: the observation of environment 0 is not finite, first at step 3"),
        (
            "script",
            {"unpaid": 2},
            "step: the reward of environment 0 is not finite: infinite, or too large for float32, first at step 2",
        ),
        ("faulty", {"fault": "space"}, "step's obs: leaves observation_space, first at step 5 (found 5)"),
        (
            "faulty",
            {"fault": "shape"},
            "step: environment 0: the observation has shape (3,), its space has (2,), first at step 4",
        ),
        ("faulty", {"fault": "seeds"}, "reset: the same seeds must give the same first observations"),
        (
            "faulty",
            {"fault": "mask"},
            "step: environment 0: no action is legal: action_mask is [0, 0, 0]; end the episode before, or let an"
            " action be legal, first at step 3",
        ),
        ("pair", {"alone": 2}, "terminated, truncated: must be the same for all agents, first at step 2"),
        (
            "pair",
            {"reset_early": True},
            "step: where an episode ended next_obs was always the first observation of the next; must be the"
            " observation after the last action",
        ),
    ],
)
def test_a_broken_promise_is_told(name, params, line):
    env = envs.make(f"hosted:{name}", **params)
    result = examine(env, jax.random.key(0), 12, 3)
    if params == {"fault": "space"}:  # the time that leaves it is the last of an episode
        line = line.replace("step's obs", "step's next_obs")
    assert line in result.problems
    with pytest.raises(ConfigError, match="must|step|reset|terminated"):
        envs.check_env(env, num_steps=12, num_envs=3)


def test_what_cannot_be_repeated_is_noted():
    result = examined("hosted:faulty", fault="steps")
    assert not result.problems
    assert "the same seeds and actions lead to different steps: runs are not reproducible" in result.notes
    assert "every episode begins with the same observation" in result.notes
