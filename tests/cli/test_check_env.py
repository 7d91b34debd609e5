"""``purerl check-env``, and docs/your-environment.md: its file, its commands, and the lines that it explains."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from commands import run

import purerl

PAGE = (Path(purerl.__file__).parent.parent / "docs" / "your-environment.md").read_text()
OWN = '''
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from purerl.envs import box, episodic
from purerl.spaces import Box, Discrete


def sound(**changes):
    """Counts down from 3, at each step by one."""
    parts = {
        "levels": jax.random.uniform,
        "initial": lambda level: jnp.stack([level, jnp.float32(3)]),
        "dynamics": lambda physical, action: (physical - jnp.array([0.0, 1.0]), 1.0, physical[1] <= 1),
        "observe": lambda physical: physical,
        "time_limit": 10,
        "observation_space": box((0.0, 0.0), (1.0, 3.0)),
        "action_space": Discrete(2),
    }
    return episodic("mine", **(parts | changes))


def changed(change):
    """``change(env_state before, step)`` gives the step's new fields."""
    env = sound()

    def step(noise, env_state, action):
        after, step = env.step(noise, env_state, action)
        return after, step._replace(**change(env_state, step))

    return env._replace(step=step)


def nan_at_step_3():
    return changed(lambda before, step: {"reward": jnp.where(before.t == 2, jnp.nan, step.reward)})


def whole_reward():
    return changed(lambda before, step: {"reward": jnp.int32(1)})


def double_observation():
    return sound()._replace(observation_space=Box(0.0, 3.0, (2,), np.float64))


def wrong_leaf():
    return changed(lambda before, step: {"next_obs": {"x": step.next_obs}})


def wrong_shape():
    return changed(lambda before, step: {"next_obs": jnp.zeros(3)})


def wrong_state():
    env = sound()
    move = lambda state, step: (state._replace(t=state.t * 1.0), step)
    return env._replace(step=lambda *args: move(*env.step(*args)))


def too_far():
    return changed(lambda before, step: {"next_obs": step.next_obs.at[0].set(4.0)})


def both_flags():
    return changed(lambda before, step: {"truncated": step.terminated})


def resetting(state, obs):
    """Its steps begin the next episode, as they once had to."""
    env = sound()

    def step(level, env_state, action):
        after, step = env.step((), env_state, action)
        begun = jax.tree.map(lambda x, y: jnp.where(step.last, x, y), env.begin(level), (after, step.next_obs))
        return begun[0] if state else after, step._replace(next_obs=begun[1] if obs else step.next_obs)

    return env._replace(noise=env.levels, step=step)


def itself():
    return resetting(True, False)


def stale():
    return resetting(False, True)


def empty_levels():
    return sound(levels=lambda key, shape: (), initial=lambda level: jnp.zeros(2))


def untraceable():
    return changed(lambda before, step: {"reward": jnp.float32(1 if step.terminated else 0)})


CALLS = itertools.count()


def impure_begin():
    return sound(initial=lambda level: jnp.stack([level * 0 + next(CALLS) / 1000, jnp.float32(3)]))


def impure_step():
    return changed(lambda before, step: {"reward": step.reward + next(CALLS)})


def never_ending():
    return sound(dynamics=lambda physical, action: (physical, 1.0, False), time_limit=1000)


def always_ending():
    return sound(dynamics=lambda physical, action: (physical, 1.0, True))


def ignored_key():
    return sound(levels=lambda key, shape: jnp.zeros(shape))


def holding_key():
    """A state with a plain key, and what an agent may not know."""
    move = lambda now, action: ((now[0] - jnp.array([0.0, 1.0]), now[1]), 1.0, now[0][1] <= 1)
    begin = lambda level: (jnp.stack([level, jnp.float32(3)]), jnp.array([3, 4], jnp.uint32))
    env = sound(initial=begin, dynamics=move, observe=lambda now: now[0])
    return env._replace(hidden=True, partly_observed=True)


def wrong_redraw():
    return holding_key()._replace(redraw=lambda key, state: state._replace(t=0.0))
'''
BAD = {
    "nan_at_step_3": "reward: is not finite, first at step 3",
    "whole_reward": "reward: must be float32[], but is int32[]",
    "double_observation": "observation_space: dtype float64: JAX has float32 in its place",
    "wrong_leaf": "step's next_obs: must be one array, but is PyTreeDef({'x': *})",
    "wrong_shape": "step's next_obs: must be float32[2], but is float32[3]",
    "wrong_state": "env_state.t: int32[] after begin, but float32[] after step",
    "too_far": "step's next_obs: leaves observation_space: element [0] is 4, above the high of ",
    "both_flags": "terminated, truncated: are both true at one step",
    "itself": "step's env_state: where an episode ends it is like what begin gives",
    "stale": "step's next_obs: where an episode ends it is like what begin gives",
    "empty_levels": "levels: holds no array",
    "wrong_redraw": "env_state.t: int32[] after begin, but float32[] after redraw",
    "untraceable": "step: cannot be traced by jit: TracerBoolConversionError",
    "impure_begin": "begin: gives two results for one level",
    "impure_step": "step: is another program each time it is traced",
}
NOTED = {
    "never_ending": "no episode ended, so episode ends were not checked; increase --steps",
    "always_ending": "every step ended an episode, so no other steps were checked",
    "holding_key": "env_state.physical[1]: looks like a random key; no search can plan here without redraw",
    "ignored_key": "every episode begins with the same state and observation: nothing is drawn",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with the module ``checked_own`` and those that the page has the whole of."""
    modules = {"checked_own": OWN, **dict(re.findall(r"whole of `(\w+)\.py`.*?```python\n(.*?)```", PAGE, re.DOTALL))}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in modules:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", BAD)
def test_bad_environments(name, here, capsys):
    run("check-env", f"checked_own:{name}", "--steps", "8", "--envs", "2", expect=2)
    out, err = capsys.readouterr()
    assert out == "" and f"purerl: error: env = 'checked_own:{name}': " in err and BAD[name] in err
    assert f"': {BAD[name]}" in err
    assert BAD[name] in PAGE
    assert name != "untraceable" or "(checked_own.py:" in err


@pytest.mark.parametrize("name", NOTED)
def test_noted_environments(name, here, capsys):
    run("check-env", f"checked_own:{name}", "--steps", "8", "--envs", "2")
    out = capsys.readouterr().out
    assert f"note          {NOTED[name]}" in out and NOTED[name].removeprefix("env_state.physical[1]: ") in PAGE
    assert ("marks         partly_observed, hidden" in out) == (name == "holding_key")


@pytest.mark.rest
def test_sound_environment(here, capsys):
    run("check-env", "checked_own:sound", "--steps", "6", "--envs", "2", "--env-params", "sticky_actions=0.5")
    output, *rows = capsys.readouterr().out.splitlines()
    assert output.startswith("checked_own:sound passes all checks")
    assert [row.split(maxsplit=1) for row in rows] == [
        ["observations", "Box float32[2]"],
        ["actions", "Discrete(n=2)"],
        ["play", "2 copies, 6 steps each, at random"],
        ["episodes", "4 terminated, 0 truncated"],
        ["note", "no episode was truncated"],
    ]
    for name, code in (("sound", 0), ("both_flags", 2)):
        run("check-env", f"checked_own:{name}", "--steps", "6", "--envs", "2", "--json", expect=code)
        result = json.loads(capsys.readouterr().out)
        assert result["env"] == f"checked_own:{name}" and bool(result["problems"]) == bool(code)
        assert (result["steps"], result["envs"], result["terminated"]) == (6, 2, 4)


def test_the_second_example(here, capsys):
    run("check-env", "orchard:orchard", "--steps", "21", "--envs", "2", "--env-params", "slip=0.2")
    assert [row.split(maxsplit=1) for row in capsys.readouterr().out.splitlines()[1:5]] == [
        ["observations", "['free'] Box bool[5], ['image'] Box bool[5, 5, 3]"],
        ["actions", "Discrete(n=5)"],
        ["agents", "2"],
        ["play", "2 copies, 21 steps each, at random"],
    ]


def test_trees_and_bad_input(capsys):
    run("check-env", "probe/dict-obs", "--steps", "2", "--envs", "1")
    assert "['img'] Box bool[5, 5, 1], ['pos'] Box float32[2]" in capsys.readouterr().out
    run("check-env", "CartPole-v1", "--steps", "0", expect=2)
    run("check-env", "Cartpole-v1", expect=2)
    run("check-env", expect=2)


@pytest.mark.weekly
def test_the_page(here, capsys):
    """Its commands, in its order: each ends well, and what was learned finds the door and the apples."""
    lines = [line for block in re.findall("```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines]
    named = {Path(args[-1]).name for args in commands if "--out" in args}
    used = {(args[1], word) for args in commands for word in args}
    modules = {path.stem for path in here.glob("*.py")} - {"checked_own"}
    assert used >= {(command, f"{name}:{name}") for command in ("check-env", "train") for name in modules}
    for program, *args in commands:
        assert program == "purerl"
        run(*args)
        output = capsys.readouterr().out
        if args[0] == "eval":
            summary = json.loads((here / "runs" / "corridor" / "summary.json").read_text())
            assert output and summary["return_mean"] > -11
    for name in ("orchard", "orchard-dqn"):
        assert json.loads((here / "runs" / name / "summary.json").read_text())["return_mean"] > 3
    [other] = [path for path in (here / "runs").iterdir() if path.name not in named]
    config = json.loads((other / "config.json").read_text())
    assert config["env_params"] == {"randomise": "length:0.5:2", "max_episode_steps": 20}
    run("resume", str(other), "--total-steps", "2560")
    assert json.loads((other / "config.json").read_text())["env_params"] == config["env_params"]
    run("eval", str(other), "--episodes", "2")
