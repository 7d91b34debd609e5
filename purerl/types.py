"""Records of arrays and bundles of pure functions: the types that every other module uses.

Axes: ``T`` time, ``B`` environments, ``N`` samples, ``L`` sequence, ``A`` actions, ``S`` seeds, ``P`` population.

Alignment: ``action[t]`` was chosen in ``obs[t]``; ``reward[t]``, ``terminated[t]``, ``truncated[t]`` and
``next_obs[t]`` are its consequence. ``next_obs`` is the true next observation, before any reset.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import shards
from purerl.counters import Count
from purerl.exact import Sum
from purerl.spaces import Space

__all__ = [
    "Actors",
    "Array",
    "Dataset",
    "Design",
    "Distribution",
    "Env",
    "Key",
    "Learner",
    "Metrics",
    "Outcome",
    "PyTree",
    "Recorded",
    "Replay",
    "Result",
    "Sample",
    "Scalar",
    "Scores",
    "Situation",
    "Step",
    "TrainState",
    "Trainer",
    "Transition",
    "Updated",
]

Array = jax.Array
Key = jax.Array
"""A typed random key, as made by `jax.random.key`."""
PyTree = Any
Scalar = Array | float
"""A number, such as a field of a Config: a Python float or, traced, an array ``[]``."""
Metrics = dict[str, Array]
"""Scalars by name. The names are the same at every iteration; a value that does not exist is nan."""


class Step(NamedTuple):
    """The result of one environment step: the consequence of an action, before a new episode begins.

    ``next_obs`` is the observation that the action led to, also where the episode ended. ``terminated`` (the process
    ended) and ``truncated`` (it was cut off) may not both be true: a termination wins.

    Of several agents each has flags of its own. ``present`` is whether an agent was in the game when it acted, and
    ``over`` whether the game ended, for all of them; `purerl.envs.seats` fills them in. ``()``: all agents are in the
    game until they end together. ``info`` are numbers by name, those of `Env.info_names`.
    """

    next_obs: PyTree
    reward: Array
    terminated: Array
    truncated: Array
    present: Array | tuple[()] = ()
    over: Array | tuple[()] = ()
    info: Any = ()

    @property
    def last(self) -> Array:
        """Whether the episode ended here, either way."""
        return self.terminated | self.truncated

    @property
    def game_over(self) -> Array:
        """Whether the episode ended here for the last of its agents."""
        return self.last if isinstance(self.over, tuple) else self.over


class Recorded(NamedTuple):
    """Extras that a replay of sequences stores differently.

    It keeps ``every`` for all steps, and ``first`` for the steps at which sequences begin.
    """

    first: PyTree
    every: PyTree


class Transition(NamedTuple):
    """A trajectory, ``[T, B]`` leading every leaf. ``extras`` is what the policy recorded while acting.

    In a replay ``next_obs`` is ``()`` unless the replay stores next observations: the next observation is that of the
    next row, except where an episode ended. ``present`` and ``over`` are those of `Step`: where ``present`` is False
    there is nothing to learn from.
    """

    obs: PyTree
    action: PyTree
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: PyTree
    extras: PyTree
    present: Array | tuple[()] = ()
    over: Array | tuple[()] = ()

    @property
    def last(self) -> Array:
        """Whether the episode ended here, either way. ``[T, B]`` bool."""
        return self.terminated | self.truncated

    @property
    def game_over(self) -> Array:
        """Whether the episode ended here for the last of its agents. ``[T, B]`` bool."""
        return self.last if isinstance(self.over, tuple) else self.over

    @property
    def ended(self) -> Array:
        """Whether an episode ended here of an agent that was in the game. ``[T, B]`` bool."""
        return self.last if isinstance(self.present, tuple) else self.last & self.present


class Outcome(NamedTuple):
    """Transitions over one step or several, ``[N]`` leading every leaf.

    The value of ``action`` in ``obs`` is ``reward + discount *`` the value of ``next_obs``. ``extras`` are what the
    policy recorded in ``obs``, ``next_extras`` what it recorded in ``next_obs``.
    """

    obs: PyTree
    action: Array
    reward: Array
    discount: Array
    next_obs: PyTree
    extras: PyTree
    next_extras: PyTree


class Sample(NamedTuple):
    """``N`` draws from a replay buffer: ``items`` is an `Outcome` ``[N]`` or a `Transition` ``[L, N]``, others ``[N]``.

    Draw ``n`` begins in row ``slot[n]`` of environment ``env[n]`` (both int32). ``weight`` (float32) multiplies its
    loss; with 0 nothing may be learned from it.
    """

    items: Any
    slot: Array
    env: Array
    weight: Array


class Dataset(NamedTuple):
    """Whole episodes of play, one after another: ``T`` steps of ``E`` episodes, as numpy arrays.

    All but ``final_obs`` lead with ``[T]``. The next observation of a step is the observation of the next step; where
    an episode ended it is in ``final_obs`` ``[E, ...]``, episode by episode. Every episode ends, terminated or
    truncated, which is how episodes are distinguished.
    """

    obs: PyTree
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_obs: PyTree

    @property
    def last(self) -> Any:
        """Whether an episode ended here, either way. ``[T]`` bool."""
        return self.terminated | self.truncated


class Actors(NamedTuple):
    """``B`` environments in mid-episode: states, what the policy sees, and the running episodes' totals ``[B]``."""

    env_state: PyTree
    obs: PyTree
    carry: PyTree
    episode_return: Sum
    episode_length: Array


class Situation(NamedTuple):
    """The inputs of ``B`` acting rows: their observations, what their policies remember, and the environments' states.

    ``env_state`` leads with the number of environments, which is smaller than ``B`` where agents share one; ``()``
    where there are no states, as outside of loops. Only a learner that plans inside of the environment reads it.
    ``agents`` (int ``[B]``) are the agents whose rows these are, each with the state of its environment; ``()``: the
    rows are all agents of each environment, side by side.
    """

    obs: PyTree
    carry: PyTree
    env_state: PyTree = ()
    agents: Any = ()


class Fault(NamedTuple):
    """What was not finite first in a training: its ``kind`` (int32, an index of `FAULTS`), in an iteration from 1."""

    kind: Array
    iteration: Count


FAULTS = "nothing", "a reward", "an observation", "the loss", "the gradient", "a parameter"
"""The kinds of `Fault`."""


class TrainState(NamedTuple):
    """Everything that a training needs to go on.

    ``iteration`` counts the finished ones. ``alive`` (bool) is False from the first iteration on whose loss or learner
    was not finite; the learner stays as it was before that iteration. ``stopping`` is the state of `loops.stopping`,
    ``()`` where nothing stops a training early, and ``curriculum`` the state of `curricula.training`, ``()`` where
    nothing chooses levels. ``fault`` is what was not finite first, of `FAULTS` the first where nothing was.
    """

    learner: PyTree
    actors: Actors
    replay: PyTree
    iteration: Count
    alive: Array
    key: Key
    stopping: PyTree = ()
    curriculum: PyTree = ()
    fault: Fault | tuple[()] = ()

    def __repr__(self) -> str:
        arrays = [leaf for leaf in jax.tree.leaves(self) if hasattr(leaf, "dtype")]
        size = sum(array.size * array.dtype.itemsize for array in arrays)
        return f"TrainState({size:,} bytes in {len(arrays)} arrays)"


class Scores(NamedTuple):
    """A learner's estimates on policy for the steps of a trajectory, ``[T, B]``.

    They are the value of each observation, and the advantage of the action that was taken there.
    """

    value: Array
    advantage: Array


class Updated(NamedTuple):
    """The result of an update: the new state, the metrics, and the scores of the samples.

    ``scores`` are `Scores` of a trajectory on policy, and the priorities ``[N]`` of a sample off policy.
    """

    state: PyTree
    metrics: Metrics
    scores: Any


class Result(NamedTuple):
    """The result of ``train(key)``: the last state, and metrics with one row an iteration."""

    state: TrainState
    metrics: Metrics

    def __repr__(self) -> str:
        shape = list(np.shape(next(iter(self.metrics.values()), ())))
        return f"Result({self.state!r}, metrics {shape}: {', '.join(self.metrics)})"


class Design(NamedTuple):
    """Operations on the levels of an environment beside drawing them, for curricula that choose among levels.

    ``change(key, level)`` is a level near to ``level``. ``build(key, choices)`` is the level that ``choices``, int32
    ``[G]``, stand for, the i-th below ``sizes[i]``; the key is for what they leave open. Both consume their key and
    return levels that ``begin`` takes, as those that ``levels`` draws. An episode is solved if its undiscounted return
    is above ``solved``; None: none is.
    """

    change: Callable[[Key, PyTree], PyTree]
    sizes: tuple[int, ...]
    build: Callable[[Key, Array], PyTree]
    solved: Any = None  # a number or a tracer


class Env(NamedTuple):
    """An environment. Functions are for one environment; callers vmap them.

    An episode begins in a level: ``levels(key, shape)`` draws ``shape`` many at once, and ``begin(level)`` is the state
    and the first observation of one, the same each time; a level holds at least one array, also where nothing is random
    (`purerl.envs.episodic.one_level`). ``noise(key, shape)`` draws all that is random about ``shape`` many steps, so
    that it can be drawn outside a scan, and ``step`` takes one element of it; ``()`` where steps are deterministic. A
    step never begins a new episode: where it ends one it returns the last state, and the code that steps many
    environments begins the next episode (`purerl.envs.fleet`), as ``resets`` says (`purerl.envs.resets`).
    ``keep(before, begun)`` is a new episode's state with what it keeps of the last state of the episode before; None:
    nothing. Observations are elements of ``observation_space``, which may be a tree of spaces.

    ``legal(obs)`` is a mask of the actions that may be taken: ``[..., A]`` for `Discrete` actions, ``[...,
    sum(sizes)]`` for `MultiDiscrete` ones, of observations with any leading axes; None if all may. For other spaces it
    is one mask of the values of all choices (`purerl.spaces.choices`), one after another; numbers are always legal. It
    is computed from boolean and integer leaves alone, which no normaliser changes, and at least one value of each
    choice must be legal.

    With ``num_agents`` ``N`` above 1, observations, actions and every field of `Step` lead with ``[N]``; the spaces and
    the functions of observations are those of one agent. `purerl.envs.fleet` makes a row of each agent,
    `purerl.envs.agents.joint` one row of all. An agent may end before the others: its action and what it is given are
    then ignored until the game is over, when no agent is left. ``ends_together`` promises that all always end at once,
    so that nobody has to look. ``present(env_state)``, bool ``[N]``, says who acts next, where agents also begin after
    the others; None: all, until their own end.

    ``acting(obs)`` is False ``[...]`` where whatever the agent does is ignored, because it is out of the game or it is
    another's turn; None: always True. ``own(obs)`` is the part of an observation that the agent's policy may see; None:
    all of it. ``state(obs)`` is the part for critics and mixers that see the whole environment; None: there is none. An
    environment of one agent that has both is for critics that see more than the policy.
    Both select parts of a tree, so that they also select the spaces of these parts; ``legal`` and ``acting`` read what
    ``own`` selects as they read an observation.

    ``zero_sum``: the rewards of all agents add up to 0 at every step, so there is no team. ``partly_observed``: what an
    observation leaves out matters, so that an agent with a memory can do better. ``hidden``: the state holds what an
    agent may not know when it acts, such as another's cards, so that none may plan by the state; it need not be given
    where ``partly_observed`` is. ``redraw(key, env_state)`` is the state with all that it holds of what is still to
    happen, such as keys of later steps, drawn anew, so that whoever plans by a copy of it does not know the future.
    Consumes its key; None: the state's typed keys are drawn anew, and it holds nothing else.

    ``design`` is given where levels are tasks that an agent can be taught in, one after another; None: levels are the
    chance with which episodes of one task begin.

    ``info_names`` are the numbers that `Step.info` has, float32 ``[]`` each, or ``[N]``. Those of the last steps of
    episodes are averaged into the metrics ``info/NAME``.

    ``host`` steps an environment of the host (`purerl.envs.hosted`); None for all others. A level is then the first
    observation, and the noise of a step is the result of the host's step: the code that steps hands both in. What
    ``levels`` and ``noise`` draw has only the right shapes, so that programs can be traced and planned.
    """

    name: str
    levels: Callable[[Key, tuple[int, ...]], PyTree]
    begin: Callable[[PyTree], tuple[PyTree, PyTree]]  # (level) -> (env_state, obs)
    noise: Callable[[Key, tuple[int, ...]], PyTree]
    step: Callable[[PyTree, PyTree, Any], tuple[PyTree, Step]]  # (noise, env_state, action)
    observation_space: Space
    action_space: Space
    legal: Callable[[PyTree], Array] | None = None
    num_agents: int = 1
    acting: Callable[[PyTree], Array] | None = None
    own: Callable[[PyTree], PyTree] | None = None
    state: Callable[[PyTree], PyTree] | None = None
    keep: Callable[[PyTree, PyTree], PyTree] | None = None  # (env_state before, begun) -> env_state
    resets: str = "every"
    zero_sum: bool = False
    partly_observed: bool = False
    host: Any = None  # hosts.HostEnv
    design: Design | None = None
    ends_together: bool = False
    present: Callable[[PyTree], Array] | None = None  # (env_state)
    info_names: tuple[str, ...] = ()
    hidden: bool = False
    redraw: Callable[[Key, PyTree], PyTree] | None = None  # (key, env_state) -> env_state

    def __repr__(self) -> str:
        agents = f", {self.num_agents} agents" if self.num_agents > 1 else ""
        return f"Env({self.name!r}, observations {self.observation_space}, actions {self.action_space}{agents})"

    def reset(self, key: Key) -> tuple[PyTree, PyTree]:
        """Begins an episode in a level of its own: ``(env_state, obs)``. Consumes ``key``."""
        return self.begin(self.levels(key, ()))


class Distribution(NamedTuple):
    """A family of action distributions over the parameters that a network puts out, ``[..., num_params]``.

    Functions act on the last axis; leading axes are free. ``noise(key, shape)`` draws the randomness of ``shape`` many
    samples, so that ``sample(params, noise)`` is deterministic. The last ``num_free`` of the parameters are by custom
    learned on their own, not computed from the observation. Actions and noise may be trees of arrays.
    """

    num_params: int
    num_free: int
    noise: Callable[[Key, tuple[int, ...]], PyTree]
    sample: Callable[[Array, PyTree], PyTree]
    mode: Callable[[Array], PyTree]
    log_prob: Callable[[Array, PyTree], Array]  # (params, action)
    entropy: Callable[[Array], Array]


def unmoved(state: PyTree, trajectory: Transition, key: Key) -> tuple[PyTree, Metrics]:
    """Returns the state as it is, without metrics: `Learner.observe` of a learner that ignores what it observes."""
    return state, {}


class Learner(NamedTuple):
    """An algorithm, as pure functions of its own ``State``. Observations are batched ``[B, ...]``.

    ``behaviour(state)`` is all that ``explore`` needs of the state, so that the program that acts need not hold the
    state, and may be another program, an older version or another process. ``policy(state)`` is what ``exploit`` needs,
    and all that a saved policy holds. ``noise(key, shape)`` draws the randomness of ``shape`` many calls of
    ``explore``, one environment each. ``restart`` is called after every step with the step's results, rewards and ends
    of episodes among them, and decides what the carry keeps and what begins anew; None: all of it begins anew where an
    episode ended.

    The learner learns from the ``rows`` of a fleet alone (int ``[B']``; None: from all). ``observe`` gets the
    trajectory of these rows, once an iteration, before anything is stored or learned. ``log_ratio(trajectory,
    behaviour)`` is the log of the ratio of the probability that each action of a trajectory ``[T, B]`` had to the one
    that ``behaviour`` would have given it, 0 where the action was ignored; None: there are no probabilities.

    ``sample`` draws actions from the distribution of the evaluated policy, where ``exploit`` takes the most likely ones
    and ``explore`` may add noise that is not the policy's. Consumes its key; None: the policy has no distribution.

    ``own(obs)`` is the part of an observation that the policy reads, of the kind of `Env.own`, where critics read more;
    None: all of it. What ``exploit`` is given as the rest changes no action, so that who plays needs only this part.

    ``search(policy, situation, key, sample)`` acts as ``exploit`` does, or to ``sample`` as ``sample`` does, and also
    returns what the search found that it acts by (`purerl.learners.parts.planning.Planned`). Of agents in turn that has
    a row for each environment, of the agent whose turn it is. Consumes its key; None: the learner does not search.

    ``critics`` are parameters by name that policies lack and another training can begin with, such as critics; None:
    there are none.
    """

    init: Callable[[Key, PyTree], PyTree]  # (key, obs [B, ...]) -> State
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    noise: Callable[[Key, tuple[int, ...]], PyTree]
    behaviour: Callable[[PyTree], PyTree]
    explore: Callable[[PyTree, Situation, PyTree], tuple[PyTree, PyTree, PyTree]]
    # (Behaviour, Situation [B], noise) -> (action, carry, extras)
    policy: Callable[[PyTree], PyTree]
    exploit: Callable[[PyTree, Situation, Key], tuple[PyTree, PyTree]]
    # (Policy, Situation [B], key) -> (action, carry)
    update: Callable[[PyTree, Any, Key], Updated]
    # (State, Transition [T, B] on policy or Sample [N] off policy, key)
    restart: Callable[[PyTree, Step], PyTree] | None = None  # (carry, Step [B]) -> carry
    rows: np.ndarray | None = None
    observe: Callable[[PyTree, Transition, Key], tuple[PyTree, Metrics]] = unmoved
    # (State, Transition [T, B'], key) -> (State, metrics)
    log_ratio: Callable[[Transition, PyTree], Array] | None = None
    sample: Callable[[PyTree, Situation, Key], tuple[Array, PyTree]] | None = None
    # (Policy, Situation [B], key) -> (action, carry)
    own: Callable[[PyTree], PyTree] | None = None
    search: Callable[[PyTree, Situation, Key, bool], tuple[PyTree, PyTree, Any]] | None = None
    # (Policy, Situation [B], key, sample) -> (action, carry, Planned [G])
    critics: Callable[[PyTree], dict[str, PyTree]] | None = None  # (State) -> parameters by name


class Replay(NamedTuple):
    """A buffer of past transitions, as pure functions of its own state.

    ``init(item)`` makes an empty one for transitions of the shapes and dtypes of ``item``: one step of one environment,
    without leading axes, as arrays or `jax.ShapeDtypeStruct`. ``sample`` consumes its key. ``update`` gets each sample
    that was learned from, with a priority for each draw ``[N]``. ``rows`` is how many rows must have been added before
    there is anything to draw.
    """

    init: Callable[[Transition], PyTree]
    add: Callable[[PyTree, Transition], PyTree]  # (state, trajectory [T, B]) -> state
    sample: Callable[[PyTree, Key], Sample]
    update: Callable[[PyTree, Sample, Array], PyTree]  # (state, sample, priority [N]) -> state
    rows: int


class Trainer(NamedTuple):
    """A training as pure functions: ``init(key)``, and an iteration in two halves that may be two programs.

    ``collect(behaviour, actors, key)`` acts, by what `Learner.behaviour` gives, and returns the actors, the trajectory
    ``[T, B]`` and the metrics of its episodes. ``learn(state, trajectory, key)`` stores the trajectory, if there is a
    replay, learns, and counts the iteration; it neither reads nor changes the actors and the key of the state. `step`
    is one after the other. ``warmup_steps`` is the number of frames that ``init`` takes, of one agent. ``stop(before,
    after, metrics)`` ends each iteration (None: nothing does): it decides whether the training stops early, and returns
    the state and the metrics of the iteration (`loops.stopping`).

    ``collect`` takes ``num_steps`` steps in the rows of ``fleet``, whose environments may be the host's: then it gives
    shapes alone, and the code that steps the host (`loops.hosting`) does what it would do in its place. For that the
    beginning has halves, too: ``begin(key)`` is the state before the warm-up (None: there is no warm-up, and ``init``
    gives that state), and ``fill(state, trajectory)`` stores a trajectory of the warm-up.

    Where a curriculum chooses levels (`curricula.training`), ``acts_by(state)`` is what ``collect`` takes in place of
    the behaviour. What ``collect`` then returns between the actors and the metrics is what ``learn`` takes, and an
    iteration takes ``scored_steps`` more steps in the rows of ``fleet``, which are scored or another agent's.

    With ``updates`` an iteration takes so many gradient steps on recorded play, and no step in an environment:
    ``fleet`` is what the policy is for, ``collect`` does nothing, and gradient steps are what is counted. ``stream``
    is what the host does if the play lies in its memory (`loops.Stream`; None: the program holds it): then `fed` makes
    the trainer whose iteration learns from given samples.
    """

    init: Callable[[Key], TrainState]
    collect: Callable[[PyTree, Actors, Key], tuple[Actors, Any, Metrics]]
    learn: Callable[[TrainState, Any, Key], tuple[TrainState, Metrics]]
    learner: Learner
    fleet: Any  # envs.Fleet
    num_steps: int
    warmup_steps: int = 0
    begin: Callable[[Key], TrainState] | None = None
    fill: Callable[[TrainState, Transition], TrainState] | None = None
    stop: Callable[[TrainState, TrainState, Metrics], tuple[TrainState, Metrics]] | None = None
    acts_by: Callable[[TrainState], PyTree] | None = None
    scored_steps: int = 0
    updates: int = 0
    stream: Any = None  # loops.Stream

    def fed(self, samples: Any) -> "Trainer":
        """Returns the trainer whose iterations learn from ``samples``, those of one iteration of ``stream``."""

        def collect(behaviour: PyTree, actors: Actors, key: Key) -> tuple[Actors, Any, Metrics]:
            actors, _, metrics = self.collect(behaviour, actors, key)
            return actors, samples, metrics

        return self._replace(collect=collect, stream=None)

    def step(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Runs one iteration, which collects a trajectory and learns from it.

        Consumes the key of ``state`` and leaves another.
        """
        key, *keys = jax.random.split(state.key, 3)
        key_collect, key_learn = map(shards.own, keys)
        behaviour = self.acts_by(state) if self.acts_by else self.learner.behaviour(state.learner)
        return self.after(state, key, self.collect(behaviour, state.actors, key_collect), key_learn)

    def after(
        self, state: TrainState, key: Key, collected: tuple[Actors, Any, Metrics], key_learn: Key
    ) -> tuple[TrainState, Metrics]:
        """Learns from what was ``collected`` in the iteration before ``key``. Consumes ``key_learn``."""
        actors, trajectory, episodes = collected
        after, metrics = self.learn(state._replace(actors=actors, key=key), trajectory, key_learn)
        metrics = {**episodes, **metrics}
        return self.stop(state, after, metrics) if self.stop else (after, metrics)

    @property
    def env_steps(self) -> int:
        """The number of frames that one iteration takes, of one agent."""
        return int(self.fleet.env_steps * (self.num_steps + self.scored_steps))

    @property
    def counts(self) -> int:
        """What one iteration adds to the length of a training of one agent: its frames, or its ``updates``."""
        return self.updates or self.env_steps

    @property
    def unit(self) -> str:
        """What is counted: "frames" or "updates"."""
        return "updates" if self.updates else "frames"

    @property
    def axis(self) -> str:
        """The name that logs have for what is counted: "env_steps" or "updates"."""
        return "updates" if self.updates else "env_steps"

    @property
    def host(self) -> Any:
        """What steps the environments of the training if the host does (`Env.host`); None: the device, or nobody."""
        return None if self.updates else self.fleet.host

    def frames(self, iterations: int) -> int:
        """Returns the frames of one agent after a number of iterations, warm-up included."""
        return self.warmup_steps + iterations * self.env_steps

    def counted(self, iterations: int) -> int:
        """Returns what is counted of one agent after a number of iterations: frames, warm-up included, or updates."""
        return self.warmup_steps + iterations * self.counts
