"""One module an algorithm. Each has ``Config``, ``problems``, ``make_learner``, ``make_trainer`` and ``make_train``."""

from typing import Any

from purerl.algos import a2c, apex, appo, c51, dpo, dqn, impala, iqn, ppo, pqn, qr_dqn, r2d2, rainbow, reinforce

ALGORITHMS = {
    "ppo": ppo,
    "dpo": dpo,
    "a2c": a2c,
    "reinforce": reinforce,
    "impala": impala,
    "appo": appo,
    "dqn": dqn,
    "c51": c51,
    "qr-dqn": qr_dqn,
    "iqn": iqn,
    "rainbow": rainbow,
    "apex": apex,
    "r2d2": r2d2,
    "pqn": pqn,
}


def read_config(algo: str, fields: dict[str, Any]) -> Any:
    """The config of the algorithm called ``algo`` with fields as JSON has them, where tuples are lists."""
    return ALGORITHMS[algo].Config(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
