"""End-to-end reinforcement learning in JAX: a whole training is one pure function, to jit and vmap.

env, config = envs.make("CartPole-v1"), ppo.Config()
result = jax.jit(ppo.make_train(config, env))(jax.random.key(0))
"""

import importlib
from typing import Any

from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError
from purerl.version import __version__

_WHERE = {
    "check": "purerl.config",
    "sweep": "purerl.config",
    "compiler_options": "purerl.population.devices",
    "quick_options": "purerl.population.devices",
    "use_cache": "purerl.population.devices",
    "use_cpu_cores": "purerl.population.devices",
    "use_one_thread": "purerl.population.devices",
    "evaluate": "purerl.loops.evaluation",
    "DoesNotFit": "purerl.population.planning",
    "plan": "purerl.population",
    "train_population": "purerl.population",
    "acting": "purerl.runs.reading.acting",
    "train_in_chunks": "purerl.runs.running.chunked",
    "load": "purerl.runs.reading.evaluation",
    "load_dataset": "purerl.runs.describing.datasets",
    "record": "purerl.loops.recording",
    "population_based_training": "purerl.population.selection",
    "successive_halving": "purerl.population.selection",
}
"""Where each public name is defined. A name is imported, and JAX with it, when it is first used."""
_ALGORITHMS = {stem: name for name, stem in ALGORITHMS.modules.items()}

__all__ = ["ConfigError", "__version__", *_WHERE, *_ALGORITHMS]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    elif name in _ALGORITHMS:
        value = ALGORITHMS[_ALGORITHMS[name]]
    else:
        try:
            return importlib.import_module(f"purerl.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module 'purerl' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
