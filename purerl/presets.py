"""Settings that are known together, by name: what a paper or a library used, for the algorithms that it fits."""

from typing import Any

from purerl.algos import ALGORITHMS
from purerl.config import ConfigError

MINATAR = {
    "total_steps": 10_000_000,
    "num_envs": 64,
    "num_steps": 128,
    "num_minibatches": 8,
    "activation": "relu",
    "hidden_sizes": (128,),
}
MINATAR_ONE_STEP = {
    "total_steps": 10_000_000,
    "num_envs": 16,
    "num_steps": 16,
    "learning_rate": 2e-3,
    "entropy_coef": 0.05,
    "trace_lambda": 0.95,
    "activation": "relu",
    "hidden_sizes": (128,),
}
BRAX = {
    "total_steps": 50_000_000,
    "num_envs": 2048,
    "num_steps": 10,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "learning_rate_decay": 0.0,
    "entropy_coef": 0.0,
    "normalize_obs": True,
    "normalize_reward": True,
    "hidden_sizes": (256, 256),
}
OPENAI_FIVE = {
    "num_envs": 256,
    "num_steps": 64,
    "num_epochs": 1,
    "num_minibatches": 16,
    "sequence_length": 16,
    "memory": "lstm",
    "memory_size": 128,
    "hidden_sizes": (128, 128),
    "lag": 1.0,
    "max_lag": 1,
    "gamma": 0.998,
    "value_coef": 1.0,
    "learning_rate": 2e-3,
    "total_steps": 5_000_000,
}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "minatar": {
        "ppo": MINATAR | {"learning_rate": 5e-3},
        "dpo": MINATAR | {"learning_rate": 5e-3},
        "impala": MINATAR_ONE_STEP,
    },
    "brax": {"ppo": BRAX, "dpo": BRAX},
    "openai-five": {"ppo": OPENAI_FIVE},
}
"""Fields of a config by preset and algorithm.

``minatar`` and ``brax`` are PureJaxRL's for PPO and DPO, with a convolution on MinAtar; IMPALA's were tuned on
Breakout, where a smaller entropy bonus lets it settle on few bricks. ``openai-five`` is the recipe of Berner
et al. 2019 (arXiv 1912.06680) at a size for small machines: recurrent PPO, large batches in sequences of 16 steps, each
used once, by parameters one version old. Its team spirit is `normalize.team_spirit`.
"""


def config(name: str, algo: str) -> Any:
    """The config of algorithm ``algo`` with the preset ``name``. Raises `ConfigError` if there is none."""
    if name not in PRESETS or algo not in PRESETS[name]:
        known = ", ".join(preset for preset, algos in PRESETS.items() if algo in algos) or "none"
        raise ConfigError(f"preset = {name!r}: {algo} has no such preset; it has {known}")
    return ALGORITHMS[algo].Config(**PRESETS[name][algo])
