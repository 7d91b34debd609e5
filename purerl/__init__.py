"""End-to-end reinforcement learning in JAX: a whole training is one pure function, to jit and vmap.

env, config = envs.make("CartPole-v1"), ppo.Config()
result = jax.jit(ppo.make_train(config, env))(jax.random.key(0))
"""

from purerl import envs
from purerl.algos import ppo
from purerl.config import ConfigError, check, sweep
from purerl.evaluate import evaluate
from purerl.experiment import load
from purerl.version import __version__

__all__ = ["ConfigError", "__version__", "check", "envs", "evaluate", "load", "ppo", "sweep"]
