"""One module an algorithm. Each has ``Config``, ``problems``, ``make_learner``, ``make_trainer`` and ``make_train``."""

from purerl.algos import apex, c51, dqn, iqn, ppo, pqn, qr_dqn, r2d2, rainbow

ALGORITHMS = {
    "ppo": ppo,
    "dqn": dqn,
    "c51": c51,
    "qr-dqn": qr_dqn,
    "iqn": iqn,
    "rainbow": rainbow,
    "apex": apex,
    "r2d2": r2d2,
    "pqn": pqn,
}
