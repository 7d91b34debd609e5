"""Every algorithm with every kind of observations and of actions: a trainer, or lines that say why there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from demos import blank

from purerl.algos import ALGORITHMS
from purerl.envs.episodic import no_noise
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, MultiDiscrete, struct
from purerl.types import Env, Step

OBSERVATIONS = {
    "scalar": Box(-1.0, 1.0, (), jnp.float32),
    "vector": Box(-1.0, 1.0, (3,), jnp.float32),
    "matrix": Box(-1.0, 1.0, (4, 5), jnp.float32),
    "image": Box(False, True, (5, 5, 2), bool),
    "tiny image": Box(0, 255, (2, 2, 1), jnp.uint8),
    "number": Discrete(3),
    "numbers": MultiDiscrete((2, 3)),
    "tree": {"a": Box(-1.0, 1.0, (3,), jnp.float32), "b": Discrete(2)},
}
ACTIONS = {
    "number": (Discrete(2), None),
    "one": (Discrete(1), None),
    "numbers": (MultiDiscrete((2, 3)), None),
    "too many": (MultiDiscrete((50,) * 6), "has 15625000000 combinations of actions; at most 65536"),
    "vector": (Box(-1.0, 1.0, (2,), jnp.float32), "has Box actions; the algorithm needs Discrete or MultiDiscrete"),
    "scalar": (Box(-1.0, 1.0, (), jnp.float32), "has Box actions; the algorithm needs Discrete or MultiDiscrete"),
    "unbounded": (Box(-np.inf, np.inf, (2,), jnp.float32), "has Box actions; the algorithm needs Discrete or MultiDis"),
    "whole": (Box(0, 3, (2,), jnp.int32), "has Box actions; the algorithm needs Discrete or MultiDiscrete"),
    "endless": (Box(0, np.inf, (2,), jnp.int32), "has Box actions; the algorithm needs Discrete or MultiDiscrete"),
    "picture": (Box(0, 255, (9, 9, 4), jnp.uint8), "has Box actions; the algorithm needs Discrete or MultiDiscrete"),
    "empty": (Box(-1.0, 1.0, (0,), jnp.float32), "action_space: shape (0,): has no elements"),
    "tree": ({"a": Discrete(2)}, "has dict actions; the algorithm needs Discrete or MultiDiscrete"),
    "hybrid": (
        (Discrete(2), Box(-1.0, 1.0, (2,), jnp.float32), Box(False, True, (3,), bool)),
        "has tuple actions; the algorithm needs Discrete or MultiDiscrete",
    ),
    "endless part": ({"a": Box(0, np.inf, (2,), jnp.int32)}, "has dict actions; the algorithm needs Discrete or Mult"),
}
"""Action spaces, and what algorithms of action values say of each."""
OF_GRADIENTS = {
    **dict.fromkeys(("too many", "vector", "scalar", "unbounded", "whole", "tree", "hybrid")),
    "endless": "action_space: integers of int32 need finite bounds",
    "endless part": "action_space['a']: integers of int32 need finite bounds",
    "picture": "action_space: uint8[9, 9, 4] has 82944 values, each with an output of the policy; at most 65536",
}
"""What those of policy gradients say instead."""
OF_BOXES = {
    **dict.fromkeys(("number", "one"), "has Discrete actions; the algorithm needs Box"),
    **dict.fromkeys(("numbers", "too many"), "has MultiDiscrete actions; the algorithm needs Box"),
    **dict.fromkeys(("vector", "scalar")),
    "unbounded": "has actions without bounds; the algorithm needs a bounded Box",
    **dict.fromkeys(("whole", "endless"), "has Box actions of int32; must be floats"),
    "picture": "has Box actions of uint8; must be floats",
    **dict.fromkeys(("tree", "endless part"), "has dict actions; the algorithm needs Box"),
    "hybrid": "has tuple actions; the algorithm needs Box",
}
"""What those say that need actions in a bounded Box."""
OF_BOTH = {**OF_BOXES, **dict.fromkeys(("number", "one", "numbers")), "too many": ACTIONS["too many"][1]}
OF_BOTH |= dict.fromkeys(("tree", "endless part"), "has dict actions; the algorithm needs Discrete or MultiDiscrete")
OF_BOTH["hybrid"] = "has tuple actions; the algorithm needs Discrete or MultiDiscrete or Box"
"""What those say that act in a bounded Box, or with every combination of numbers."""
OF_TEAMS = {
    **dict.fromkeys(("numbers", "too many"), "has MultiDiscrete actions; the algorithm needs Discrete"),
    **dict.fromkeys(("vector", "scalar", "unbounded"), "has Box actions; the algorithm needs Discrete"),
    **dict.fromkeys(("whole", "endless", "picture"), "has Box actions; the algorithm needs Discrete"),
    **dict.fromkeys(("tree", "endless part"), "has dict actions; the algorithm needs Discrete"),
    "hybrid": "has tuple actions; the algorithm needs Discrete",
}
"""What those say whose agents choose one of their actions each."""
OF_ARRAYS = {
    **OF_GRADIENTS,
    "whole": "has Box actions of int32; must be floats",
    "tree": "has dict actions; the algorithm needs Discrete or MultiDiscrete or Box",
    "hybrid": "has tuple actions; the algorithm needs Discrete or MultiDiscrete or Box",
}
"""What those of policy gradients say that act in one array."""
GRADIENTS = "a2c", "appo", "dpo", "impala", "ippo", "mappo", "ppo", "reinforce"
ARRAYS = ("v-mpo",)
TEAMS = "iql", "masac", "qmix", "vdn"
BOXES = "crossq", "ddpg", "implicit-q", "rebrac", "sac", "td3", "td3-bc", "tqc"
BOTH = "bc", "cql", "mpo"


def fake(observations, actions):
    """An environment that is never stepped."""
    obs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), struct(observations))
    step_made = Step(obs, jnp.float32(0), jnp.zeros((), bool), jnp.zeros((), bool))
    begin, step = lambda level: ((), obs), lambda *_: ((), step_made)
    return Env("fake", jax.random.split, begin, no_noise, step, observations, actions)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_pair_of_spaces(algo):
    algorithm = ALGORITHMS[algo]
    config = algorithm.Config(hidden_sizes=(4,))
    for name, (actions, line) in ACTIONS.items():
        others = {GRADIENTS: OF_GRADIENTS, ARRAYS: OF_ARRAYS, BOXES: OF_BOXES, BOTH: OF_BOTH, TEAMS: OF_TEAMS}
        line = next((expected for family, expected in others.items() if algo in family), {}).get(name, line)
        for observations in OBSERVATIONS.values():
            env = fake(observations, actions)
            if line is None:
                trainer = algorithm.make_trainer(config, env, **blank(algorithm, config, env))
                assert callable(trainer.step), (name, observations)
            else:
                with pytest.raises(ConfigError) as refused:
                    algorithm.make_trainer(config, env, **blank(algorithm, config, env))
                assert str(refused.value).startswith(f"env = 'fake': {line}") and "\n" not in str(refused.value)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_empty_observations(algo):
    env = fake({"a": Box(-1.0, 1.0, (0, 3), jnp.float32)}, Discrete(2))
    with pytest.raises(ConfigError, match=r"^env = 'fake': observation_space\['a'\]:"):
        ALGORITHMS[algo].make_trainer(ALGORITHMS[algo].Config(), env)
