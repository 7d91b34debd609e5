"""Programs of trainings in environments of the host: for all rows of all members at once, between steps of the host.

Parameters, memories and trajectories stay on the device; observations and actions travel (central inference: Espeholt
et al. 2020, SEED RL, arXiv 1910.06591, section 3.1).
"""

import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, trees
from purerl.errors import ConfigError
from purerl.loops import hosting
from purerl.loops.hosting import Choice, Lane, StepResult
from purerl.loops.rollout import restart
from purerl.population import planning
from purerl.population.layouts import Layout, layout, spread
from purerl.population.membership import Members
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer, TrainState, Transition

Leaves = tuple[Array, ...]
"""The arguments of members, of which a call of a program reads plain arrays in less time than a config."""


def leaves(given: PyTree) -> Leaves:
    """Returns the arguments of members as programs take them."""
    return tuple(jax.tree.leaves(given))


class Packing:
    """One array for each result of the host's step, since each array that travels costs a call.

    ``like`` is a `StepResult` ``[P, E, ...]`` of shapes and dtypes. Packed it is uint8 ``[P, E, D]``.
    """

    def __init__(self, like: StepResult):
        specs, self._structure = jax.tree.flatten(like)
        self._lead = specs[0].shape[:2]
        sizes = [math.prod(each.shape[2:]) * each.dtype.itemsize for each in specs]
        ends = np.cumsum(sizes).tolist()
        self._leaves = [(each, slice(end - size, end)) for each, size, end in zip(specs, sizes, ends, strict=True)]
        self.struct = jax.ShapeDtypeStruct((*self._lead, ends[-1]), np.uint8)

    def packed(self, result: StepResult) -> np.ndarray:
        """Returns arrays of numpy as a new one."""
        out = np.empty(self.struct.shape, np.uint8)
        for x, (each, where) in zip(jax.tree.leaves(result), self._leaves, strict=True):
            out[..., where].view(each.dtype)[...] = x.reshape(*self._lead, -1)
        return out

    def unpacked(self, out: Array) -> StepResult:
        """Reverts `packed`, within a program."""

        def leaf(each: jax.ShapeDtypeStruct, part: Array) -> Array:
            if each.dtype.itemsize > 1:
                part = part.reshape(*self._lead, -1, each.dtype.itemsize)
            typed = part != 0 if each.dtype == bool else jax.lax.bitcast_convert_type(part, each.dtype)
            return typed.reshape(each.shape)

        return jax.tree.unflatten(self._structure, [leaf(each, out[..., where]) for each, where in self._leaves])


class Programs(NamedTuple):
    """The programs of a training on the host, compiled for all members ``[P]`` at once, whose states are ``like``.

    The rows of a member are stepped in ``groups`` of the same size. ``given`` are the members' arguments, as `leaves`
    of them, and results of the host's steps are `Packing.packed`. `enter`, `leave`, `learn`, `fill`, `step` and `last`
    overwrite their first argument. ``chunk`` is `learn` with its cost.

    `behave`, `fill` and `learn` are given states that `enter` made and `leave` turns back. They are the members' states
    ``[P]``, but on CPU a single member's has no leading axis: removing the axis within `learn` makes XLA copy the whole
    replay buffer, for each program that reads and writes it.
    """

    begin: Callable[[Leaves, Key], TrainState]
    enter: Callable[[TrainState], TrainState]
    leave: Callable[[TrainState], TrainState]
    arrive: Callable[[Leaves, PyTree], Lane]
    behave: Callable[[TrainState, Leaves], PyTree]
    draw: Callable[[Leaves, Key], tuple[Key, Key, tuple[PyTree, ...]]]
    blank: Callable[[], Transition]
    choose: Callable[..., Choice]
    step: Callable[..., tuple[Lane, Choice, Transition]]
    last: Callable[..., tuple[Lane, Transition]]
    fill: Callable[..., tuple[TrainState, tuple[()]]] | None
    learn: Callable[..., tuple[TrainState, Metrics]]
    like: TrainState
    packing: Packing
    chunk: planning.Compiled


def whole(size: int, lanes: int | None = None) -> Layout:
    """Returns a layout of exactly ``size`` members on the first device.

    It has at most ``lanes`` lanes, by which ``size`` can be divided.
    """
    deal = layout(size, jax.local_devices()[:1], lanes)
    beside = max(n for n in range(1, deal.lanes + 1) if size % n == 0)
    return Layout(deal.devices, size // beside, beside)


def every(one: Callable[..., PyTree], deal: Layout) -> Callable[..., Any]:
    """Maps ``one(given, *args)`` of a member over all members; the arguments lead with ``[P]``."""
    return lambda *args: spread(lambda mine, _: ((), one(*mine)), deal)(args, ())[1]


def alone(deal: Layout) -> bool:
    """Returns whether the state of a member has no leading axis within `Programs`."""
    return deal.size == 1 and backend.is_cpu()


def entered(state: PyTree, deal: Layout) -> PyTree:
    """Removes the leading axis of the state of a member that is `alone`."""
    return trees.take(state, 0) if alone(deal) else state


def left(state: PyTree, deal: Layout) -> PyTree:
    """Reverts `entered`."""
    return jax.tree.map(lambda x: x[None], state) if alone(deal) else state


def updated(
    trainer_of: Callable[[Leaves], Trainer], one: Callable[..., tuple[TrainState, PyTree]], deal: Layout
) -> Callable[..., tuple[TrainState, PyTree]]:
    """Maps ``one(trainer, state, *args)`` of a member over all members, whose state is one that was `entered`."""

    def update(mine: PyTree, state: TrainState) -> tuple[TrainState, PyTree]:
        return one(trainer_of(mine[0]), state, *mine[1:])

    def update_alone(state: TrainState, *args: PyTree) -> tuple[TrainState, PyTree]:
        state, out = update(trees.take(args, 0), state)
        return state, left(out, deal)

    return update_alone if alone(deal) else lambda state, *args: spread(update, deal)(args, state)


def programs(
    make_trainer: Callable[..., Trainer],
    members: Members,
    groups: int,
    lanes: int | None = None,
    stage: Callable[[str], None] = lambda name: None,
) -> Programs:
    """Compiles the trainings ``make_trainer(**given)`` of a population, whose environments are the host's.

    Args:
        make_trainer: Makes the `Trainer` of a member.
        members: The members.
        groups: The number of groups that the rows of a member are stepped in.
        lanes: As in `population.train_population`.
        stage: Called with the name of the stage that begins after tracing.

    Raises:
        planning.DoesNotFit: The program needs more memory than is free.
        ConfigError: The environments cannot be cut into ``groups``.
    """
    start, size = time.perf_counter(), members.size
    deal = whole(size, lanes)
    one_of: Trainer = make_trainer(**trees.take(members.given, 0))
    num_envs, num_steps, env = one_of.fleet.env_steps, one_of.num_steps, one_of.fleet.env
    structure = jax.tree.structure(members.given)
    check_groups(one_of, groups)

    def trainer_of(given: Leaves) -> Trainer:
        return make_trainer(**jax.tree.unflatten(structure, given))

    def parts(given: Leaves) -> tuple[Env, Any]:
        trainer = trainer_of(given)
        return trainer.fleet.env, trainer.learner

    def draw(given: Leaves, key: Key) -> tuple[Key, Key, tuple[PyTree, ...]]:
        key, key_act, key_learn = hosting.keys(key)
        trainer = trainer_of(given)
        noise, part = trainer.learner.noise(key_act, (num_steps, trainer.fleet.size)), trainer.fleet.size // groups
        cut = lambda group: jax.tree.map(lambda x: x[:, group * part : (group + 1) * part], noise)
        return key, key_learn, tuple(map(cut, range(groups)))

    def go_on(given: Leaves, lane: Lane, choice: Choice, result: StepResult) -> tuple[Lane, Transition]:
        env, learner = parts(given)
        return hosting.go_on(env, restart(learner), lane, choice, result)

    def arrive(given: Leaves, first: PyTree) -> Lane:
        env, learner = parts(given)
        return hosting.arrive(env, learner.init_carry, first)

    taken = every(go_on, deal)
    act = every(lambda given, *args: hosting.choose(parts(given)[1], *args), deal)

    def begin(given: Leaves, key: Key) -> TrainState:
        trainer = trainer_of(given)
        return (trainer.begin or trainer.init)(key)

    def chosen(given: Leaves, behaviour: PyTree, lane: Lane, noise: PyTree, at: Any) -> Choice:
        now = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, at, 1, keepdims=False), noise)
        choice: Choice = act(given, behaviour, lane, now)
        return choice

    def put(rows: Transition, row: Transition, at: Any) -> Transition:
        write = lambda all_rows, new: jax.lax.dynamic_update_index_in_dim(all_rows, new, at, 1)
        return jax.tree.map(write, rows, row)

    def step(rows: Any, given: Any, behaviour: Any, lane: Any, choice: Any, noise: Any, at: Any, result: Any) -> Any:
        lane, row = taken(given, lane, choice, packing.unpacked(result))
        return lane, chosen(given, behaviour, lane, noise, at + 1), put(rows, row, at)

    def last(rows: Any, given: Any, lane: Any, choice: Any, at: Any, result: Any) -> tuple[Any, Transition]:
        lane, row = taken(given, lane, choice, packing.unpacked(result))
        return lane, put(rows, row, at)

    def behave(state: TrainState, given: Leaves) -> PyTree:
        own = every(lambda given, learner: trainer_of(given).learner.behaviour(learner), deal)
        return jax.tree.map(jnp.copy, own(given, left(state.learner, deal)))

    planning.check_state(begin, *trees.take((leaves(members.given), members.keys), 0), devices=deal.devices)
    given, keys = trees.shapes(leaves(members.given)), trees.shapes(members.keys)
    at = jax.ShapeDtypeStruct((), np.int32)
    result: StepResult = jax.eval_shape(functools.partial(_step_result, env, size, num_envs // groups))
    packing = Packing(result)
    made: dict[str, Any] = {}

    def trace(name: str, function: Callable[..., Any], *args: PyTree) -> Any:
        made[name] = jax.jit(function, donate_argnums=(0,) if name in OVERWRITES else ()).trace(*args)
        return made[name].out_info

    outside = trace("begin", every(begin, deal), given, keys)
    state = trace("enter", lambda state: entered(state, deal), outside)
    trace("leave", lambda state: left(state, deal), state)
    lane = trace("arrive", every(arrive, deal), given, result.first)
    behaviour = trace("behave", behave, state, given)
    next_key, key_learn, noises = trace("draw", every(draw, deal), given, keys)
    choice = trace("choose", chosen, given, behaviour, lane, noises[0], at)
    row = jax.eval_shape(taken, given, lane, choice, result)[1]
    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, num_steps, *x.shape[1:]), x.dtype), row)
    trace("blank", lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), rows))
    trace("step", step, rows, given, behaviour, lane, choice, noises[0], at, packing.struct)
    trace("last", last, rows, given, lane, choice, at, packing.struct)
    several = (lane,) * groups, (rows,) * groups
    if one_of.fill:
        trace("fill", updated(trainer_of, hosting.fill, deal), state, given, *several)
    trace("learn", updated(trainer_of, hosting.learn, deal), state, given, next_key, key_learn, *several)
    stage("compiling")
    ready = {name: traced.lower().compile(backend.compiler_options()) for name, traced in made.items()}
    planning.check_program(ready["learn"], deal.devices, "cut num_envs or what else makes an agent large")
    chunk = planning.Compiled(ready["learn"], deal, size, time.perf_counter() - start)
    return Programs(**{"fill": None, **ready}, like=outside, packing=packing, chunk=chunk)


OVERWRITES = "enter", "leave", "step", "last", "fill", "learn"


def check_groups(trainer: Trainer, groups: int) -> None:
    """Raises `ConfigError` if the rows of a training cannot be stepped in ``groups`` groups."""
    num_envs = trainer.fleet.env_steps
    if num_envs % groups:
        raise ConfigError(f"double_buffering = 'on': num_envs = {num_envs} cannot be cut into {groups} halves")
    if groups > 1 and trainer.learner.rows is not None:
        raise ConfigError(
            "double_buffering = 'on': opponents play in rows of their own, which cannot be cut into halves"
        )


def _step_result(env: Env, size: int, num_envs: int) -> StepResult:
    """Returns zeros like the result of the host's step, of ``num_envs`` environments of each of ``size`` members."""
    key, shape = jax.random.key(0), (size, num_envs)
    return StepResult(env.noise(key, shape), env.levels(key, shape))
