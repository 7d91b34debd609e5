"""Environments of the host in which faults are planted: for `scripts/faults.py` and the tests of workers. No JAX."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from gymnasium import spaces

from purerl.hosts.bundle import Batch, HostEnv, Turn

MARK = "PURERL_FAULTS"
"""The variable that has the folder of a run, in which a file says that it had its fault."""
PLANTED = 2**30
"""The environment that is begun with this seed and ``i`` has the fault ``FAULTS[i]`` in its third step."""
AT = 3


def raises() -> None:
    """Fails, as code does that has a mistake."""
    raise ValueError("the walk broke")


def hangs() -> None:
    """Takes for ever where Python is asked now and then whether there are signals."""
    time.sleep(1e6)


def spins() -> None:
    """Takes for ever in compiled code, which lets no other Python run."""
    sum(range(10**15))


def parents() -> None:
    """Takes for ever after it has started a process that does."""
    subprocess.Popen(["sleep", "100000"])
    spins()


ACTS = {
    "raise": raises,
    "hang": hangs,
    "spin": spins,
    "parent": parents,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(7),
    "sys.exit": lambda: sys.exit("bye"),
}
"""What a step does."""
RETURNS = {
    "nan": lambda turn: turn._replace(obs=(turn.obs[0] * np.float32(np.nan),)),
    "inf": lambda turn: turn._replace(reward=turn.reward + np.float32(np.inf)),
    "shape": lambda turn: turn._replace(obs=(turn.obs[0][:, :2],)),
    "fewer": lambda turn: turn._replace(reward=turn.reward[1:]),
    "dtype": lambda turn: turn._replace(obs=(turn.obs[0].astype(complex),)),
    "dict": lambda turn: turn._replace(obs=({"x": turn.obs[0]},)),
    "both": lambda turn: turn._replace(terminated=turn.terminated | True, truncated=turn.truncated | True),
    "nothing": lambda turn: None,
}
"""What a step returns."""
FAULTS = [*ACTS, *RETURNS]


class Walk:
    """A walk whose length depends on the seed, seen as (steps, sum of actions, a random number)."""

    def reset(self, seed: int) -> np.ndarray:
        """Begins the first episode."""
        self.rng, self.total = np.random.default_rng(seed), 0
        return self.begin()

    def begin(self) -> np.ndarray:
        """Begins another episode."""
        self.steps, self.length = 0, int(self.rng.integers(2, 9))
        return self.observe()

    def observe(self) -> np.ndarray:
        """What is seen, float32 ``[3]``."""
        return np.array([self.steps, self.total, self.rng.random()], np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """The observation, the reward, and whether the walk terminated, or was cut off after 6 steps."""
        self.steps, self.total = self.steps + 1, self.total + int(action)
        terminated = self.steps == self.length
        return self.observe(), float(action) + self.rng.random(), terminated, self.steps == 6 and not terminated


def walk(fault: int = 0, after: int = 50, seconds: float = 0.0) -> HostEnv:
    """Walks, each step of a batch of which takes ``seconds``.

    With a ``fault``, counted from 1 in `FAULTS`, the first batch of a run that makes so many steps has it.
    """

    def first() -> bool:
        try:
            (Path(os.environ[MARK]) / "fault").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def batch(num_envs: int) -> Batch:
        walks, planted, steps = [Walk() for _ in range(num_envs)], "", 0

        def reset(seeds: np.ndarray) -> tuple[np.ndarray]:
            nonlocal planted, steps
            steps, result = 0, [seed - PLANTED for seed in seeds.tolist() if seed >= PLANTED]
            planted = FAULTS[result[0]] if result and result[0] < len(FAULTS) else ""
            return (np.stack([each.reset(seed) for each, seed in zip(walks, seeds.tolist(), strict=True)]),)

        def step(action: np.ndarray) -> Turn:
            nonlocal steps
            steps += 1
            time.sleep(seconds)
            now = planted if steps == AT else ""
            if fault and steps == after and first():
                now = FAULTS[int(fault) - 1]
            if now in ACTS:
                ACTS[now]()
            results = [each.step(one) for each, one in zip(walks, action, strict=True)]
            next_obs, reward, terminated, truncated = (np.stack(column) for column in zip(*results, strict=True))
            turn = Turn((next_obs,), reward.astype(np.float32), terminated, truncated, (next_obs,))
            if turn.last.any():
                rows = zip(walks, next_obs, turn.last, strict=True)
                turn = turn._replace(obs=(np.stack([each.begin() if last else x for each, x, last in rows]),))
            return RETURNS[now](turn) if now in RETURNS else turn

        return Batch(reset, step, lambda: None)

    return HostEnv("walk", spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(5), batch)


def team() -> HostEnv:
    """Walks whose steps the first of two agents decides; each sees its own number beside the walk."""
    one = walk()
    seen = spaces.Dict({"number": spaces.Box(0, 1, (1,), np.uint8), "walk": one.observation_space})

    def batch(num_envs: int) -> Batch:
        walks, numbers = one.batch(num_envs), np.tile(np.array([[0], [1]], np.uint8), (num_envs, 1, 1))

        def observed(obs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            return numbers.copy(), twice(obs[0])

        def step(action: np.ndarray) -> Turn:
            turn = walks.step(action[:, 0])
            flags = map(twice, (turn.reward, turn.terminated, turn.truncated))
            return Turn(observed(turn.next_obs), *flags, observed(turn.obs))

        return Batch(lambda seeds: observed(walks.reset(seeds)), step, walks.close)

    return one._replace(name="team", observation_space=seen, batch=batch, num_agents=2)


def twice(x: np.ndarray) -> np.ndarray:
    """``x`` for each of two agents."""
    return np.stack([x, x], axis=1)


def broken(how: str = "make") -> HostEnv:
    """An environment that cannot be made, or whose first episode cannot begin."""
    if how == "make":
        raises()
    if how == "exit":
        os._exit(9)
    if how == "print":
        print("loud")
    return walk()._replace(batch=lambda num_envs: Batch(lambda seeds: raises(), lambda action: None, lambda: None))


def still() -> HostEnv:
    """An environment that does nothing, to time what is around it."""

    def batch(num_envs: int) -> Batch:
        obs, zero, no = (np.zeros((num_envs, 4), np.float32),), np.zeros(num_envs, np.float32), np.zeros(num_envs, bool)
        turn = Turn(obs, zero, no, no, obs)
        return Batch(lambda seeds: obs, lambda action: turn, lambda: None)

    return HostEnv("still", spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2), batch)
