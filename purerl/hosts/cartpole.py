"""Gymnasium's CartPole as one array: its `CartPoleVectorEnv`, with episodes that begin where others ended."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.utils import seeding

from purerl.errors import RAISED
from purerl.hosts import leaves
from purerl.hosts.bundle import Leaves
from purerl.hosts.copies import Copies, plan
from purerl.hosts.libraries import not_made
from purerl.hosts.rows import Ends, Rows, Source, Which
from purerl.hosts.singles import picture

TASKS = "CartPole-v0", "CartPole-v1"


def array(name: str, task: str, params: dict[str, Any]) -> Source:
    """Returns the environment whose rows are `rows` of ``task``."""
    limit = gymnasium.spec(task).max_episode_steps

    def make(num_envs: int) -> CartPoleVectorEnv:
        try:
            return CartPoleVectorEnv(num_envs, **{"max_episode_steps": limit, **params})
        except RAISED as error:
            raise not_made(name, error) from error

    copies = Copies(name, make, whole=True)
    looked = copies.look(plan().num_envs)

    def taken(num_envs: int, pictures: bool = False) -> Rows:
        envs = copies.taken(1, num_envs)
        made = rows(envs[0], task)

        def close() -> None:
            made.close()
            copies.release(envs)

        return made._replace(close=close)

    return Source(
        **leaves.fields(name, looked.single_observation_space, looked.single_action_space),
        rows=taken,
        fps=float(looked.metadata["render_fps"]),
        copies=copies,
    )


def rows(env: Any, task: str) -> Rows:
    """Returns rows of ``task``, with the dynamics of ``env``, Gymnasium's vector environment.

    By itself that vector begins an episode in the step after its end and spends this step on it. Here the columns of
    its ``state`` that ended are drawn at once, each from a generator of its own, as the single environments do: row
    ``i`` begins its episodes in the states in which a single environment with its seed does.
    """
    num_envs: int = env.num_envs
    env.reset()
    generators: list[np.random.Generator] = []
    drawing: list[Any] = []

    def seed(seeds: np.ndarray) -> None:
        generators[:] = [seeding.np_random(each)[0] for each in seeds.tolist()]

    def begin(which: Which) -> Leaves:
        for i in range(num_envs) if which is None else which:
            env.state[:, i] = generators[i].uniform(env.low, env.high, 4)
        env.steps[slice(None) if which is None else which] = 0
        return (shown(which),)

    def step(action: np.ndarray, which: Which) -> Ends:
        if which is None:
            return advanced(np.asarray(action, np.int64))
        state, steps = env.state, env.steps.copy()
        everywhere = np.zeros(num_envs, np.int64)
        everywhere[which] = action
        ends = advanced(everywhere)
        state[:, which], steps[which] = env.state[:, which], env.steps[which]
        env.state, env.steps = state, steps
        return Ends((shown(which),), ends.reward[which], ends.terminated[which], ends.truncated[which])

    def advanced(action: np.ndarray) -> Ends:
        obs, reward, terminated, truncated, _ = env.step(action)
        env.prev_done = np.zeros(num_envs, bool)
        return Ends((obs,), reward, terminated, truncated & ~terminated)

    def shown(which: Which) -> np.ndarray:
        state = env.state if which is None else env.state[:, which]
        return state.T.astype(np.float32)

    def render(i: int) -> Any:
        if not drawing:
            drawing.append(gymnasium.make(task, render_mode="rgb_array", disable_env_checker=True))
            drawing[0].reset()
        drawing[0].unwrapped.state = env.state[:, i]
        return drawing[0].render()

    def close() -> None:
        for each in drawing:
            each.close()

    return Rows(num_envs, seed, begin, step, close, picture(render))
