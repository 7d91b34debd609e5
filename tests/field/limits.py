"""Names that are registered when this module is imported, as packages of environments do."""

from gymnasium.envs.registration import register

register("FieldCart-v3", entry_point="gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=77)
register("field/Ten-v0", entry_point="ten:Ten", max_episode_steps=5)
register("FieldEndless-v0", entry_point="endless:Endless", max_episode_steps=20)
