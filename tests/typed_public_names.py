"""What type checkers know of the stable names. mypy checks this file, and nothing runs it.

A comment that ignores an error is an error itself where there is none (``warn_unused_ignores``).
"""

from typing import assert_type

from purerl import dqn, envs, evaluate, ippo, ppo, r2d3, types
from purerl.formulas import losses
from purerl.loops.evaluation import Evaluation

env = envs.make("CartPole-v1")
config = ppo.Config()

assert_type(env, types.Env)
assert_type(ppo.make_learner(config, env, value_loss=losses.squared_value_loss), types.Learner)
assert_type(ippo.make_trainer(config, env, network=None), types.Trainer)
ppo.make_train(config, env, netwrok=None)  # type: ignore[call-arg]
dqn.make_train(config, env, td_loss="huber")  # type: ignore[arg-type]
r2d3.make_train(config, env, demos=None)


def play(key: types.Key, learner: types.Learner, state: types.TrainState) -> None:
    """Evaluates a learner."""
    assert_type(evaluate(key, env, learner, learner.policy(state.learner)), Evaluation)
