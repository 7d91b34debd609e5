"""Presets of PPO: settings that belong together, each with what it is for and where it is from."""

from typing import Any

IMAGE = {
    "total_steps": 10_000_000,
    "num_envs": 64,
    "num_minibatches": 8,
    "learning_rate": 1e-3,
    "entropy_coef": 0.05,
    "normalize_reward": False,
    "activation": "relu",
    "hidden_sizes": (128,),
}
MEMORY = {"num_envs": 16, "learning_rate": 1e-3, "memory": "gru", "sequence_length": 32}
CONTINUOUS = {
    "total_steps": 1_000_000,
    "num_envs": 16,
    "num_epochs": 10,
    "num_minibatches": 32,
    "learning_rate": 1e-3,
    "entropy_coef": 0.0,
    "normalize_obs": True,
    "normalize_reward": True,
}
USUAL: dict[str, dict[str, Any]] = {"image": IMAGE, "memory": MEMORY, "continuous": CONTINUOUS}
"""Presets of PPO and of what extends it, chosen on Breakout of MinAtar, MemoryChain, and Pendulum. On Breakout seeds
differ more than settings do."""

MINATAR = {
    "total_steps": 10_000_000,
    "learning_rate": 5e-3,
    "num_envs": 64,
    "num_steps": 128,
    "num_minibatches": 8,
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
"""``minatar`` and ``brax`` are PureJaxRL's settings, with a convolution on MinAtar: comparisons of speed use them."""
LOCOMOTION = {
    "total_steps": 50_000_000,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "learning_rate_decay": 0.0,
    "clip_epsilon": 0.3,
    "normalize_obs": True,
    "hidden_sizes": (256, 256),
    "activation": "silu",
}
ANT = {**LOCOMOTION, "num_envs": 4096, "num_steps": 80, "num_epochs": 4, "gamma": 0.97, "entropy_coef": 1e-2}
HUMANOID = {**LOCOMOTION, "num_envs": 2048, "num_steps": 160, "num_epochs": 8, "gamma": 0.97, "entropy_coef": 1e-3}
HALFCHEETAH = {**HUMANOID, "gamma": 0.95}
"""Settings of brax' own training of these tasks (github.com/google/brax, notebooks/training.ipynb), except for the
widths of the networks, and with advantages over all steps of an iteration instead of 5 to 20. Brax also
multiplies the rewards: by 10 for ant and by 0.1 for humanoid (``reward_scale`` of the environment)."""
ROBOT = {
    "total_steps": 147_456_000,
    "num_envs": 4096,
    "num_steps": 24,
    "num_epochs": 5,
    "num_minibatches": 4,
    "learning_rate": 1e-3,
    "learning_rate_decay": 0.0,
    "adapt_learning_rate": 0.01,
    "max_grad_norm": 1.0,
    "value_coef": 2.0,
    "entropy_coef": 0.01,
    "normalize_obs": True,
    "hidden_sizes": (512, 256, 128),
    "activation": "elu",
}
"""Settings of legged_gym for robots that walk, by rsl_rl (Rudin et al. 2021, arXiv 2109.11978;
github.com/leggedrobotics/legged_gym, legged_gym/envs/base/legged_robot_config.py), and its length, 1500 iterations.
Differences: observations are normalised by their running moments in place of scales by hand; advantages are
standardised in each minibatch; a value loss has a factor of 0.5, which the coefficient of 2 makes up for."""
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
"""The recipe of Berner et al. 2019 (arXiv 1912.06680) at a size for small machines: recurrent PPO, large batches in
sequences of 16 steps, each used once, by parameters one version old. Its team spirit is `normalize.team_spirit`."""

MFOS = {
    "num_envs": 256,
    "num_steps": 100,
    "num_minibatches": 1,
    "gae_lambda": 1.0,
    "learning_rate": 2e-3,
    "learning_rate_decay": 0.0,
    "normalize_reward": True,
    "hidden_sizes": (256,),
    "total_steps": 12_800_000,
}
"""Settings for the matrix games of M-FOS (Lu et al. 2022, arXiv 2205.01447), with 256 games side by side in place of
4096, and 500 episodes of them: whole episodes of `MatrixShaping-v0`, whose advantages are returns less the
critic's values."""

MAZE = {
    "num_envs": 32,
    "num_steps": 256,
    "num_epochs": 5,
    "num_minibatches": 1,
    "sequence_length": 0,
    "learning_rate": 1e-4,
    "gamma": 0.995,
    "gae_lambda": 0.98,
    "entropy_coef": 1e-3,
    "activation": "relu",
    "hidden_sizes": (32,),
    "memory": "lstm",
    "memory_size": 256,
    "total_steps": 245_760_000,
}
"""JaxUED's settings for `Maze-v0` (github.com/DramaCow/jaxued, examples/maze_plr.py) and its length, 30,000
iterations, with gradients through all steps of each. JaxUED's network has one layer more, of 5 units for the
direction."""

ALL = {
    **USUAL,
    "minatar": MINATAR,
    "brax": BRAX,
    "ant": ANT,
    "humanoid": HUMANOID,
    "halfcheetah": HALFCHEETAH,
    "robot": ROBOT,
    "openai-five": OPENAI_FIVE,
    "mfos": MFOS,
    "maze": MAZE,
}
"""All presets of PPO by name."""
