"""End-to-end reinforcement learning in JAX: a whole training is one pure function, to jit and vmap.

env, config = envs.make("CartPole-v1"), ppo.Config()
result = jax.jit(ppo.make_train(config, env))(jax.random.key(0))
"""

from purerl import envs
from purerl.algos import a2c, apex, appo, c51, dpo, dqn, impala, iqn, ppo, pqn, qr_dqn, r2d2, rainbow, reinforce
from purerl.config import ConfigError, check, sweep
from purerl.devices import compiler_options, use_cpu_cores
from purerl.evaluate import evaluate
from purerl.planning import DoesNotFit
from purerl.population import plan, train_population
from purerl.results import load
from purerl.selection import population_based_training, successive_halving
from purerl.version import __version__

__all__ = [
    "ConfigError",
    "DoesNotFit",
    "__version__",
    "a2c",
    "apex",
    "appo",
    "c51",
    "check",
    "compiler_options",
    "dpo",
    "dqn",
    "envs",
    "evaluate",
    "impala",
    "iqn",
    "load",
    "plan",
    "population_based_training",
    "ppo",
    "pqn",
    "qr_dqn",
    "r2d2",
    "rainbow",
    "reinforce",
    "successive_halving",
    "sweep",
    "train_population",
    "use_cpu_cores",
]
