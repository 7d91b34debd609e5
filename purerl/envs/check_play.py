"""The checks of `check_env` for values: a run of random play, in which every promise is checked at every step."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces, trees
from purerl.envs import seats
from purerl.envs.check_types import agent_axis
from purerl.envs.resets import make_resets
from purerl.types import Array, Env, Key, PyTree, Step

_NUM_LEVELS = 512
_ROUNDING = 1e-6
"""How far a float32 observation may lie outside of its space, in units of one plus the bound."""


_MOST = 0.75
"""The shares from which on a step counts as one that begins the next episode itself.

They are the share of ends that are like beginnings, and the share of other steps that are not.
"""
_ITSELF = {
    "env_state": "step's env_state: where an episode ends it is like what begin gives; leave out the reset, for "
    "whoever steps the environment begins the next episode",
    "next_obs": "step's next_obs: where an episode ends it is like what begin gives; return what the action led to",
}


class Outside(NamedTuple):
    """Whether a leaf of an observation lies outside of its space.

    If so, it has the index of the element that does so most, its value and the bound that it breaks. With a leading
    axis of steps.
    """

    broken: Array
    element: Array  # [ndim]
    value: Array
    bound: Array


class Played(NamedTuple):
    """The result of a run of random play.

    It has for each promise whether it was broken, bool or `Outside`, and counts of episodes. ``begun``, of beginnings
    and of the whole play, are ``[1, ...]``, ``steps`` ``[num_steps, ...]``. ``varied`` is whether two beginnings
    differed.
    """

    begun: dict[str, Any]
    steps: dict[str, Any]
    varied: Array
    terminated: Array
    truncated: Array


def play(env: Env, key: Key, num_steps: int, num_envs: int) -> Played:
    """Begins episodes of ``env`` and steps ``num_envs`` of it ``num_steps`` times at random, under one jit.

    They begin in `_NUM_LEVELS` drawn levels, and in as many changed and built ones if there is a design. Consumes
    ``key``.
    """
    return jax.device_get(jax.jit(lambda key: _play(env, key, num_steps, num_envs))(key))


def lines(played: Played) -> list[str]:
    """Returns a line for each broken promise: of beginnings first, then steps, counted from 1, the earliest first."""
    first = {name: int(np.argmax(_broken(values))) for name, values in played.steps.items() if _broken(values).any()}
    return [
        *(name + _words(values, 0) for name, values in played.begun.items() if _broken(values).any()),
        *(
            f"{name}{_words(played.steps[name], at)}, first at step {at + 1}"
            for name, at in sorted(first.items(), key=lambda item: (item[1], item[0]))
        ),
    ]


def _broken(values: Any) -> np.ndarray:
    return np.asarray(values.broken if isinstance(values, Outside) else values)


def _words(values: Any, at: int) -> str:
    """Says which element of a leaf is outside of which bound; nothing for other promises."""
    if not isinstance(values, Outside):
        return ""
    element, value, bound = values.element[at].tolist(), values.value[at], values.bound[at]
    where, side = f"element {element} is" if element else "is", "above the high" if value > bound else "below the low"
    return f": {where} {value:.7g}, {side} of {bound:.7g}"


def _play(env: Env, key: Key, num_steps: int, num_envs: int) -> Played:
    key_level, key_noise, key_resets, key_action = jax.random.split(key, 4)
    merged = (lambda tree: trees.merge(tree, 2)) if env.num_agents > 1 else (lambda tree: tree)
    levels, same = (_levels(env, key_level) for _ in range(2))
    starts, again = (jax.vmap(lambda level: env.begin(level))(levels) for _ in range(2))
    observations = {f"begin's obs{path}": pair for path, pair in _pairs(env.observation_space, merged(starts[1]))}
    each = [_bits(x).reshape(trees.length(levels), -1) for x in jax.tree.leaves(starts)]
    varied = [jnp.any(x != x[:1]) for x in each]
    begun = {
        **_differing("levels: gives two results for one key", _named("level", levels), same),
        **_differing(
            "begin: gives two results for one level",
            [*_named("env_state", starts[0]), *_named("obs", starts[1])],
            again,
        ),
        **{f"{name}: leaves observation_space": _outside(*pair) for name, pair in observations.items()},
        **{f"{name}: is not finite": ~jnp.all(jnp.isfinite(x)) for name, (_, x) in observations.items()},
    }
    game, apart = seats.seated(env), seats.apart(env)
    begins = make_resets(game, num_envs)
    noise = env.noise(key_noise, (num_steps, num_envs)), begins.noise(key_resets, (num_steps,))
    actions = spaces.sample(env.action_space, key_action, (num_steps, num_envs, *agent_axis(env)))

    def one_step(env_state: PyTree, inputs: tuple[tuple[PyTree, PyTree], Array]) -> tuple[PyTree, Any]:
        (chance, anew), action = inputs
        after, made = jax.vmap(game.step)(chance, env_state, action)
        last = made.game_over.reshape(num_envs, -1)[:, 0]
        env_state, obs = begins.renew(anew, last, (after, made.next_obs))
        inner = after.inner if apart else after
        like = {"env_state": _like(starts[0], inner), "next_obs": _like(starts[1], made.next_obs)}
        counts = jnp.sum(last & made.terminated.reshape(num_envs, -1)[:, 0]), jnp.sum(last)
        shares = {name: (jnp.sum(x & last), jnp.sum(~x & ~last)) for name, x in like.items()}
        return env_state, (_promises(env, merged(made), merged(obs)), shares, counts)

    first = jax.vmap(game.begin)(trees.take(levels, slice(0, num_envs)))[0]
    steps, shares, counts = jax.lax.scan(one_step, first, (noise, actions), num_steps)[1]
    terminated, ended = map(jnp.sum, counts)
    for name, (ends, others) in jax.tree.map(jnp.sum, shares).items():
        middle = num_steps * num_envs - ended
        itself = (ended > 0) & (ends >= _MOST * ended) & (middle > 0) & (others >= _MOST * middle)
        begun[_ITSELF[name]] = itself
    begun = jax.tree.map(lambda x: x[None], begun)
    return Played(begun, steps, jnp.any(jnp.stack(varied)), terminated, ended - terminated)


def _levels(env: Env, key: Key) -> PyTree:
    """Returns `_NUM_LEVELS` drawn levels, and as many changed and built ones if there is a design."""
    drawn = env.levels(key, (_NUM_LEVELS,))
    if env.design is None:
        return drawn
    key_change, key_choose, key_build = jax.random.split(jax.random.fold_in(key, _NUM_LEVELS), 3)
    choices = spaces.sample(spaces.MultiDiscrete(env.design.sizes), key_choose, (_NUM_LEVELS,))
    changed = jax.vmap(env.design.change)(jax.random.split(key_change, _NUM_LEVELS), drawn)
    built = jax.vmap(env.design.build)(jax.random.split(key_build, _NUM_LEVELS), choices)
    return jax.tree.map(lambda *each: jnp.concatenate(each), drawn, changed, built)


def _promises(env: Env, step: Step, obs: PyTree) -> dict[str, Any]:
    """Checks each promise about a step of rows, after which the policy sees ``obs``: bool, or `Outside`."""
    violations: dict[str, Any] = {
        "reward: is not finite": ~jnp.all(jnp.isfinite(step.reward)),
        "terminated, truncated: are both true at one step": jnp.any(step.terminated & step.truncated),
        **_ends_apart(env, step),
        **_sums(env, step),
        **_legality(env, obs),
        **_participation(env, obs),
    }
    for path, (leaf, x) in _pairs(env.observation_space, step.next_obs):
        violations[f"step's next_obs{path}: leaves observation_space"] = _outside(leaf, x)
        violations[f"step's next_obs{path}: is not finite"] = ~jnp.all(jnp.isfinite(x))
    return violations


def _like(starts: PyTree, tree: PyTree) -> Array:
    """Returns ``[B]``: whether every element lies within the range that it has in the beginnings ``starts``."""
    within = [jnp.ones((), bool)]
    for begun, x in zip(jax.tree.leaves(starts), jax.tree.leaves(tree), strict=True):
        begun, x = (jnp.asarray(_bits(y), jnp.float32) for y in (begun, x))
        low, high = (of(begun, axis=0)[None] for of in (jnp.min, jnp.max))
        below, above = (high - low + _ROUNDING * (1 + jnp.abs(bound)) for bound in (low, high))
        within.append(~_rows((x < low - below) | (x > high + above)))
    return functools.reduce(jnp.logical_and, within)


def _outside(leaf: spaces.Leaf, x: Array) -> Outside:
    """Returns whether ``x`` ``[B, ...]`` leaves ``leaf``; numbers that are not finite break another promise."""
    x = jnp.asarray(x, jnp.float32)
    low, high = (jnp.broadcast_to(jnp.asarray(bound, jnp.float32), x.shape[1:]) for bound in spaces.bounds(leaf))
    least, most = low - _ROUNDING * (1 + jnp.abs(low)), high + _ROUNDING * (1 + jnp.abs(high))
    excess = jnp.where(jnp.isfinite(x), jnp.maximum(least[None] - x, x - most[None]), -jnp.inf).reshape(-1)
    worst = jnp.argmax(excess)
    number, value = worst % low.size, x.reshape(-1)[worst]
    bound = jnp.where(value > high.reshape(-1)[number], high.reshape(-1)[number], low.reshape(-1)[number])
    element = jnp.stack(jnp.unravel_index(number, low.shape)) if low.ndim else jnp.zeros(0, jnp.int32)
    return Outside(excess[worst] > 0, element, value, bound)


def _legality(env: Env, obs: PyTree) -> dict[str, Array]:
    """Returns what may be wrong with the legal actions in observations ``[B, ...]``."""
    if env.legal is None:
        return {}
    mask = env.legal(obs)
    blind = jax.tree.map(lambda x: jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x, obs)
    parts = jnp.split(mask, np.cumsum(spaces.choices(env.action_space))[:-1], axis=-1)
    return {
        "legal: no action is legal": ~jnp.all(jnp.stack([jnp.any(part, axis=-1) for part in parts])),
        "legal: depends on floats of the observation": jnp.any(mask != env.legal(blind)),
        **_same_of_own(env, "legal", mask, obs),
    }


def _participation(env: Env, obs: PyTree) -> dict[str, Array]:
    """Returns what may be wrong with the acting agents in observations ``[B, ...]``."""
    if env.acting is None:
        return {}
    acting = env.acting(obs)
    return {
        "acting: no agent acts": ~jnp.all(jnp.any(acting.reshape(-1, env.num_agents), axis=1)),
        **_same_of_own(env, "acting", acting, obs),
    }


def _same_of_own(env: Env, name: str, mask: Array, obs: PyTree) -> dict[str, Array]:
    """Returns whether `legal` or `acting` reads what `own` selects in another way than the observation."""
    if env.own is None:
        return {}
    return {f"{name}: differs between obs and own(obs)": jnp.any(mask != getattr(env, name)(env.own(obs)))}


def _ends_apart(env: Env, step: Step) -> dict[str, Array]:
    """Returns whether an episode ended for some of its agents alone although ``env`` promises otherwise."""
    if env.num_agents == 1 or not env.ends_together:
        return {}
    ends = step.last.reshape(-1, env.num_agents)
    return {"terminated, truncated: ends_together, but they differ between agents": jnp.any(ends != ends[..., :1])}


def _sums(env: Env, step: Step) -> dict[str, Array]:
    """Returns whether the rewards of a zero-sum game do not add up to 0."""
    if not env.zero_sum:
        return {}
    reward = step.reward.reshape(-1, env.num_agents)
    most = _ROUNDING * env.num_agents * (1 + jnp.max(jnp.abs(reward), axis=1))
    return {"reward: zero_sum, but those of all agents do not add up to 0": jnp.any(jnp.abs(jnp.sum(reward, 1)) > most)}


def _differing(line: str, named: list[tuple[str, Array]], other: PyTree) -> dict[str, Array]:
    """Returns for each named leaf whether it differs from that of ``other``."""
    return {
        f"{line}: {name} differs": ~jnp.array_equal(_bits(x), _bits(y), equal_nan=True)
        for (name, x), y in zip(named, jax.tree.leaves(other), strict=True)
    }


def _pairs(space: spaces.Space, obs: PyTree) -> Iterator[tuple[str, tuple[spaces.Leaf, Array]]]:
    """Returns each leaf of a space with its elements, by its path."""
    for leaf, (path, x) in zip(spaces.leaves(space), _named("", obs), strict=True):
        yield path, (leaf, x)


def _named(name: str, tree: PyTree) -> list[tuple[str, Array]]:
    return [(name + jax.tree_util.keystr(path), x) for path, x in jax.tree.leaves_with_path(tree)]


def _rows(x: Array) -> Array:
    """Returns ``[B]``: whether any element of an environment is true."""
    return jnp.any(x.reshape(x.shape[0], -1), axis=1)


def _bits(x: Array) -> Array:
    """Returns an array that can be compared, also if ``x`` holds keys."""
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
