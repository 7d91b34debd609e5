"""Environments whose `reset` and `step` do not follow Gymnasium's present interface, their masks and their rewards."""

from fractions import Fraction

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from purerl.errors import ConfigError, HostError
from purerl.hosts import local, protocol, singles
from purerl.hosts.gymnasium import single
from purerl.hosts.rows import host_env
from purerl.hosts.sound import InvalidData
from purerl.hosts.vectors import vector


class Clock(gymnasium.Env):
    """Shows a draw and the step; four steps. ``form`` says what is old about it."""

    observation_space = spaces.Box(-1, 9, (2,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.begun(), {}

    def begun(self):
        self.time, self.drawn = 0, self.np_random.random()
        return self.seen()

    def seen(self):
        return np.array([self.drawn, self.time], np.float32)

    def step(self, action):
        self.time += 1
        return self.seen(), 1.0, self.time >= 4, False, {}


class NoSeed(Clock):
    def reset(self, *, options=None):
        return self.begun(), {}


class NoOptions(Clock):
    def reset(self, seed=None):
        gymnasium.Env.reset(self, seed=seed)
        return self.begun(), {}


class Nothing(Clock):
    def reset(self):
        return self.begun(), {}


class OnlyObservation(Clock):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class NoInfo(Clock):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], None

    def step(self, action):
        return (*super().step(action)[:4], None)


class Four(Clock):
    def step(self, action):
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over, info


class Cut(Clock):
    def step(self, action):
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over, {"TimeLimit.truncated": over}


class Late(Clock):
    """Its spaces are set by the first reset, and it has no metadata."""

    metadata = None
    observation_space = action_space = None

    def reset(self, *, seed=None, options=None):
        self.observation_space, self.action_space = Clock.observation_space, Clock.action_space
        return super().reset(seed=seed)


OLD = NoSeed, NoOptions, Nothing, OnlyObservation, NoInfo, Four, Cut, Late


def stepped(env, count=6):
    """The last observations, the ends and the kinds of them of some steps of two copies."""
    batch = env.batch(2)
    first = batch.reset(np.arange(2))
    turns = [batch.step(np.zeros(2, int)) for _ in range(count)]
    assert [turn.last.tolist() for turn in turns] == [[k % 4 == 3] * 2 for k in range(count)]
    return np.stack([first[0], *(turn.next_obs[0] for turn in turns)]), turns[3].truncated.all()


@pytest.mark.parametrize("kind", OLD, ids=lambda kind: kind.__name__)
def test_older_forms_are_read(kind):
    whole, _ = stepped(host_env(single("clock", Clock), []))
    made = {"bare": kind, "wrapped": lambda: gymnasium.wrappers.TimeLimit(kind(), 99)}
    if kind is not Late:
        made["vector"] = lambda num_envs, pictures=False: SyncVectorEnv([kind] * num_envs)
    for name, make in made.items():
        env = host_env((vector if name == "vector" else single)("clock", make), [])
        obs, cut = stepped(env)
        np.testing.assert_array_equal(
            obs[:5] if kind is Nothing else obs, whole[: len(obs) if kind is not Nothing else 5]
        )
        assert cut == (kind is Cut)
        assert [note.partition(" takes no seed")[0] for note in env.notes] == (
            [protocol.where(kind(), "reset")] if kind in (NoSeed, Nothing) else []
        )


def test_what_follows_the_interface_is_called_as_it_is():
    env = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.OrderEnforcing(Clock()), 9)
    reading = protocol.read(env)
    inner = env.env.env
    assert isinstance(inner, protocol.Reader) and inner.np_random is env.unwrapped.np_random
    reading.reset(seed=0)
    reading.step(0)
    assert protocol.settled(reading) is env and type(env.env.env) is Clock
    bare = Clock()
    assert isinstance(protocol.read(bare), protocol.Reader) and protocol.settled(protocol.read(bare)) is bare


class Around(gymnasium.Wrapper):
    """An older wrapper around an older environment."""

    def reset(self):
        return self.env.reset()[0]

    def step(self, action):
        return self.env.step(action)[:5]


def test_each_layer_is_read_as_it_is():
    env = host_env(single("clock", lambda: gymnasium.wrappers.TimeLimit(Around(Cut()), 9)), [])
    assert stepped(env)[1] and len(env.notes) == 1


class Wrong(Clock):
    """Returns ``result`` from one of its methods."""

    def __init__(self, method="reset", result=None):
        self.method, self.result = method, result

    def reset(self, *, seed=None, options=None):
        return self.result if self.method == "reset" else super().reset(seed=seed)

    def step(self, action):
        return self.result if self.method == "step" else super().step(action)


class Needs(Clock):
    def reset(self, level, *, seed=None, options=None):
        return super().reset(seed=seed)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Wrong(result=(1, 2, 3)), r"Wrong.reset \(test_protocol.py:\d+\) returns 3 values, must return \("),
        (Wrong, r"Wrong.reset \(test_protocol.py:\d+\) returns a NoneType, must return \(observation, info\)"),
        (
            Needs,
            r"Needs.reset \(test_protocol.py:\d+\) must be callable with seed and options alone; needs \['level'\]",
        ),
        (lambda: Wrong(result=(np.zeros(3), {})), r"environment 0: the observation has shape \(3,\), its space has"),
        (lambda: Wrong(result=(np.full(2, 1e300), {})), "the observation of environment 0 is not finite: infinite, or"),
        (type("Bare", (Clock,), {"action_space": None}), "Bare has NoneType as its action_space; __init__ must set"),
    ],
    ids=["three", "none", "needs", "shape", "large", "space"],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_cannot_be_read_is_refused_before_it_is_used(make, line):
    for wrapped in make, lambda: gymnasium.wrappers.OrderEnforcing(make()):
        with pytest.raises(ConfigError, match=f"^env = 'clock': {line}"):
            single("clock", wrapped)


def failing(make, steps=9):
    stepper = local.inline(host_env(single("clock", make), []).batch(2))
    stepper.reset(np.arange(2))
    for _ in range(steps):
        stepper.send(np.zeros(2, int))
        stepper.receive()


class Changing(Clock):
    """From copy 1's step 3 on, or its next reset, something is ``different``."""

    made = 0

    def __init__(self, different):
        Changing.made += 1
        self.different, self.is_other = different, Changing.made % 2 == 0

    def reset(self, *, seed=None, options=None):
        again = hasattr(self, "time")
        if again and self.is_other and self.different in ("action_space", "observation_space"):
            other = {"action_space": spaces.Discrete(3), "observation_space": spaces.Box(0, 1, (3,))}[self.different]
            setattr(self, self.different, other)
        return super().reset(seed=seed)

    def step(self, action):
        obs, reward, over, cut, info = super().step(action)
        if self.is_other and self.time == 3:
            if self.different == "raise":
                raise KeyError("joint")
            reward = {"reward": None, "word": "much", "pair": np.ones(2), "large": 1e300}.get(self.different, reward)
            obs = {"shape": np.zeros(3), "number": 2.0}.get(self.different, obs)
            info = {"info": {"action_mask": [1]}}.get(self.different, info)
            over = np.zeros(2) if self.different == "flags" else over
            if self.different == "three":
                return obs, reward, over
        return obs, reward, over, cut, info


@pytest.mark.parametrize(
    ("different", "words"),
    [
        ("shape", r"invalid data at step 3: environment 1: the observation has shape \(3,\), its space has \(2,\)"),
        ("number", r"at step 3: environment 1: the observation has shape \(\), its space has \(2,\)"),
        ("reward", "at step 3: environment 1: the reward is None, must be a number"),
        ("word", "at step 3: environment 1: the reward is 'much', must be a number"),
        ("pair", r"at step 3: environment 1: the reward is an array of shape \(2,\), must be a number"),
        ("flags", r"at step 3: environment 1: terminated is an array of shape \(2,\), must be True or False"),
        ("large", "at step 3: the reward of environment 1 is not finite: infinite, or too large for float32"),
        ("three", r"at step 3: environment 1: Changing.step \(test_protocol.py:\d+\) returns 3 values, must return"),
        (
            "action_space",
            r"at step 4: environment 1: Changing.reset \(.*\) changes action_space: was Discrete\(4\), is",
        ),
        ("observation_space", r"at step 4: environment 1: Changing.reset \(.*\) changes observation_space: was"),
        ("raise", r"^environment 1 raised KeyError: 'joint' \(test_protocol.py:\d+ step\) at step 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_goes_wrong_later_is_told_with_copy_and_step(different, words):
    Changing.made = 0
    with pytest.raises(HostError, match=words):
        failing(lambda: Changing(different))


@pytest.mark.parametrize(
    "reward", [1, True, np.float64(1), np.array(1.0), np.ones(1), np.ones((1, 1)), [1.0], Fraction(1)]
)
def test_rewards_that_are_numbers_are_taken(reward):
    for all_of_them in (reward, reward), (reward, 0.5):
        rewards = singles.numbers(all_of_them)
        assert rewards.dtype == np.float32 and rewards.tolist() == [1.0, float(np.ravel(all_of_them[1])[0])]


@pytest.mark.parametrize("flag", [True, 1, np.int64(1), np.array(True), np.ones(1), np.ones((1, 1)), [True]])
def test_flags_of_one_element_are_taken(flag):
    for all_of_them in (flag, flag), (flag, False):
        flags = singles.flags(all_of_them, "truncated")
        assert flags.dtype == bool and flags.tolist() == [True, all_of_them[1] is not False]


class Masked(Clock):
    """Action ``time % 4`` is illegal, and raises. ``form`` makes the mask, of the step as well."""

    def __init__(self, form, method=None):
        self.form = form
        if method:
            self.action_masks = lambda: self.legal()

    def legal(self):
        return np.arange(4) != self.time % 4

    def info(self):
        mask = self.form(self.legal(), self.time)
        return {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], self.info()

    def step(self, action):
        assert self.legal()[action], (action, self.time)
        obs, reward, over, cut, _ = super().step(action)
        return obs, reward, over, cut, self.info()


FORMS = {
    "bool": lambda mask, time: mask,
    "int8": lambda mask, time: mask.astype(np.int8),
    "int64": lambda mask, time: mask.astype(int),
    "float": lambda mask, time: mask.astype(float),
    "list": lambda mask, time: mask.tolist(),
    "tuple": lambda mask, time: tuple(mask.astype(int)),
    "missing at the end": lambda mask, time: None if time == 4 else mask,
}


LEGAL = [[int(action != time) for action in range(4)] for time in (0, 1, 2, 3, 0, 1, 2, 3, 0, 1)]
"""The masks of ten steps, in episodes of four."""


def masks(env):
    """Plays nine steps of what is legal in two copies; returns the masks of each."""
    batch = env.batch(2)
    seen = [batch.reset(np.arange(2))[0]]
    for _ in range(9):
        seen.append(batch.step(seen[-1].argmax(axis=1)).obs[0])
    assert {mask.dtype for mask in seen} == {np.dtype(np.int8)}
    return np.stack(seen, axis=1).tolist()


@pytest.mark.parametrize("form", FORMS)
def test_masks_of_every_kind_are_read(form):
    assert masks(host_env(single("masked", lambda: Masked(FORMS[form])), [])) == [LEGAL, LEGAL]
    for mode in AutoresetMode.SAME_STEP, AutoresetMode.DISABLED:
        made = lambda num_envs, pictures=False, mode=mode: Vector(
            [lambda: Masked(FORMS[form])] * num_envs, autoreset_mode=mode
        )
        assert masks(host_env(vector("masked", made), [])) == [LEGAL, LEGAL]


class Vector(SyncVectorEnv):
    """A vector of another class, whose mode stays."""


@pytest.mark.parametrize("form", [lambda mask, time: None, lambda mask, time: None if time == 2 else mask])
def test_masks_are_asked_for_where_info_has_none(form):
    make = lambda: gymnasium.wrappers.TimeLimit(Masked(form, method=True), 99)
    env = host_env(single("masked", make), [])
    assert env.legal == "action_mask"
    assert masks(env) == [LEGAL, LEGAL]
    several = vector("masked", lambda num_envs, pictures=False: SyncVectorEnv([make] * num_envs))
    assert masks(host_env(several, [])) == [LEGAL, LEGAL]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            lambda mask, time: None if time == 2 else mask,
            "has no 'action_mask', which the first one had; must have one",
        ),
        (lambda mask, time: mask[:3] if time == 2 else mask, "the action_mask has 3 elements, there are 4 actions"),
        (lambda mask, time: mask - 1e9 if time == 2 else mask, "the action_mask has -999999999.0, must have 0 and 1"),
        (lambda mask, time: "all" if time == 2 else mask, "the action_mask is a str, must be an array of 0 and 1"),
        (lambda mask, time: mask & (time != 2), r"no action is legal: action_mask is \[0, 0, 0, 0\]; end the episode"),
        (
            lambda mask, time: mask if time > 1 else None,
            r"step gives an 'action_mask' in its info, Masked.reset .* does not",
        ),
    ],
)
def test_masks_that_are_wrong_later_are_told(form, words):
    for source in (
        single("masked", lambda: Masked(form)),
        vector("masked", lambda num_envs, pictures=False: SyncVectorEnv([lambda: Masked(form)] * num_envs)),
    ):
        batch = host_env(source, []).batch(2)
        seen = batch.reset(np.arange(2))
        with pytest.raises(InvalidData, match=words.replace("Masked.reset .* does", "(Masked.)?reset.* does")):
            for time in range(3):
                action = seen[0].argmax(axis=1) if len(seen) == 2 else np.full(2, (time + 1) % 4)
                seen = batch.step(action).obs


def test_wrappers_that_keep_statistics_or_change_rewards_are_told():
    wrappers = gymnasium.wrappers
    kept = "NormalizeObservation keeps statistics, which evaluation, eval, export and resume do not see"
    notes = single("clock", lambda: wrappers.ClipReward(wrappers.NormalizeObservation(Clock()), 0, 1)).notes
    assert notes[0].startswith("ClipReward changes rewards") and notes[1].startswith(kept) and len(notes) == 2
    assert notes[1].endswith("give --normalize-obs instead")
    made = lambda num_envs, pictures=False: SyncVectorEnv([lambda: wrappers.NormalizeReward(Clock())] * num_envs)
    notes = vector("clock", made).notes
    assert notes[0].endswith("give --normalize-reward instead") and "changes rewards" in notes[1]
    assert not single("clock", lambda: wrappers.TimeLimit(Clock(), 3)).notes


class Torque(Masked):
    action_space = spaces.Box(-1, 1, (1,))

    def legal(self):
        return np.ones(1, bool)

    def step(self, action):
        return super().step(0)


def test_masks_of_what_is_no_choice_are_left_alone():
    env = host_env(single("torque", lambda: Torque(FORMS["bool"], method=True)), [])
    batch = env.batch(1)
    assert env.legal is None and len(batch.reset(np.arange(1))) == 1
    assert batch.step(np.zeros((1, 1), np.float32)).reward == 1
