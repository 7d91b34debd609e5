"""EnvPool: environments in C++ that are stepped by threads of its own."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from purerl.catalogue import check_parameters
from purerl.errors import RAISED, ConfigError
from purerl.hosts import atari, leaves, telling
from purerl.hosts.bundle import Leaves
from purerl.hosts.leaves import MASK
from purerl.hosts.libraries import not_made, opened, quiet
from purerl.hosts.processes import cores
from purerl.hosts.rows import Ends, Rows, Source, Which
from purerl.hosts.singles import numbers, observed, picture
from purerl.names import nearest

_GIVEN = "num_envs", "batch_size", "seed", "env_seed", "gym_reset_return_info", "base_path"
"""Options of EnvPool that are set here."""
Layout = Callable[[np.ndarray], np.ndarray]
"""A change of the layout of images ``[..., height, width, channels]``."""


def named(name: str, task: str, params: dict[str, Any]) -> Source:
    """Returns the environment ``task`` of EnvPool, whose parameters are EnvPool's options.

    It has as many threads as there are cores unless ``num_threads`` is given. Images have their channels last; the grey
    frames of ``atari=1`` (`purerl.hosts.atari`) have none.
    """
    envpool = opened("envpool")
    known = envpool.list_all_envs()
    if task not in known:
        raise ConfigError(f"env = {name!r}: unknown environment; nearest: {nearest(task, known)}")
    options, layout = params, _as_it_is
    defaults = envpool.make_spec(task).config._asdict()
    if "noop_max" in defaults:
        options = atari.envpool_options(name, params)
        layout = _grey if atari.is_on(name, params) and options["stack_num"] == 1 else layout
    check_parameters(name, options, set(defaults) - set(_GIVEN))
    options = {each: _option(name, each, value, type(defaults[each])) for each, value in options.items()}

    def make(seeds: list[int], pictures: bool = False) -> Any:
        """Makes a pool with an environment for each seed."""
        given = {"num_threads": min(len(seeds), cores()), "render_mode": "rgb_array" if pictures else None} | options
        try:
            with quiet():
                return envpool.make_gymnasium(task, num_envs=len(seeds), env_seed=seeds, **given)
        except RAISED as error:
            raise not_made(name, error) from error

    probe = make([0])
    masked, action_space = MASK in probe.reset()[1], probe.action_space
    space = observed(probe.observation_space, action_space, masked)
    probe.close()

    def rows(num_envs: int, pictures: bool = False) -> Rows:
        made = _rows(num_envs, lambda seeds: make(seeds, pictures), space, action_space, masked, layout)
        return made if pictures else made._replace(frame=None)

    fields = leaves.fields(name, space, action_space)
    fields |= {"observation_space": _laid_out(fields["observation_space"], layout), "notes": ()}
    return Source(**fields, rows=rows, threaded=True, paced=False)


def _option(name: str, option: str, value: Any, kind: type) -> Any:
    """Returns ``value`` in the type that EnvPool has for an option. Raises `ConfigError` if that changes the value."""
    try:
        converted = kind(value)
        if converted == value:
            return converted
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"env = {name!r}: {option} = {value!r}: must be {kind.__name__}")


def _rows(num_envs: int, make: Any, space: Any, action_space: Any, masked: bool, layout: Layout) -> Rows:
    """Makes rows of a pool that is made anew when it is seeded, since EnvPool takes seeds when it makes a pool.

    A pool by itself begins an episode in the step after the end of one; here it is reset before that.
    """
    split, code = leaves.splitter(space), leaves.coder(action_space, "action_space")
    images = [leaf.axes is not None for leaf in leaves.flat(space)]
    pools: list[Any] = []
    every = np.arange(num_envs, dtype=np.int32)

    def seed(seeds: np.ndarray) -> None:
        close()
        pools.append(make(seeds.tolist()))

    def close() -> None:
        while pools:
            pools.pop().close()

    def shown(obs: Any, info: dict[str, Any]) -> tuple[np.ndarray, Leaves]:
        """Returns the order in which the rows ascend, which need not be the pool's, and the observations in it."""
        order = np.argsort(info["env_id"], kind="stable")
        leaves = split({"obs": obs, MASK: info[MASK]} if masked else obs)
        leaves = tuple(layout(x) if image else x for x, image in zip(leaves, images, strict=True))
        return order, tuple(np.ascontiguousarray(x[order]) for x in leaves)

    def begin(which: Which) -> Leaves:
        return shown(*pools[0].reset(every if which is None else which.astype(np.int32)))[1]

    def step(action: np.ndarray, which: Which) -> Ends:
        at = every if which is None else which.astype(np.int32)
        obs, reward, terminated, truncated, info = pools[0].step(code.decode(action), at)
        order, observed = shown(obs, info)
        ends = numbers(reward)[order], terminated[order], truncated[order]
        return Ends(observed, *ends, lambda row: telling.of_vector(info, int(order[row])))

    return Rows(num_envs, seed, begin, step, close, picture(lambda i: pools[0].render(env_ids=i)[0]))


def _as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def _grey(x: np.ndarray) -> np.ndarray:
    return x[..., 0]


def _laid_out(space: Any, layout: Layout) -> Any:
    """Returns the plain space of the observations in ``space`` after ``layout`` of their images."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _laid_out(each, layout) for key, each in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_laid_out(each, layout) for each in space.spaces])
    if isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8:
        return spaces.Box(layout(space.low), layout(space.high), dtype=np.uint8)
    return space
