"""Settings that families of algorithms have in common, each group written once. A family's Config extends them."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import flax.linen as nn
import jax
import numpy as np

from purerl import config as cfg
from purerl import networks, spaces
from purerl.curricula.settings import TWICE, CurriculumSettings
from purerl.networks import memory
from purerl.networks.memory import Memory
from purerl.networks.torsos import KINDS, Convolution, Convolutions, is_image
from purerl.types import Env

ON_POLICY = "whole trajectories to learn from, as algorithms on policy have them"
LOG_RATIOS = "probabilities of actions, as policy gradients have them"
TORSO = "the settings of a torso"
EVERY_DECISION = "the decisions of all agents"
"""What learners can offer to the wrappers around them: the values of ``offers`` (`wrappers`)."""


@cfg.config
class OnPolicy(CurriculumSettings):
    """Settings of training on policy (`curricula.on_policy`)."""

    offers: ClassVar[tuple[str, ...]] = (ON_POLICY,)

    @property
    def batch_size(self) -> int:
        """Number of environment steps of one iteration that are learned from."""
        return self.num_envs * self.num_steps

    @property
    def iteration_frames(self) -> int:
        """Number of environment steps of one iteration, including those of scored levels and of another agent."""
        return self.batch_size * (2 if self.curriculum in TWICE else 1)

    @property
    def num_iterations(self) -> int:
        """Number of iterations of the whole training."""
        return self.total_steps // self.iteration_frames


@cfg.config
class StepSize:
    """Settings of Adam's step size. A Config that extends them has ``total_updates`` of its own."""

    heading: ClassVar[str] = "optimiser"
    learning_rate: cfg.Positive = 2.5e-4
    """Adam's learning rate at the start."""
    learning_rate_decay: cfg.Fraction = 1.0
    """Fraction by which each learning rate has decayed, linearly, at the end of training. 0: constant."""
    adam_b1: ClassVar[float] = 0.9
    adam_epsilon: ClassVar[float] = 1e-8

    if TYPE_CHECKING:

        @property
        def total_updates(self) -> int:
            """Number of gradient steps of the whole training, which those that extend it know."""


@cfg.config
class Adam(StepSize):
    """Settings of `gradients.make_optimiser`."""

    heading: ClassVar[str] = "optimiser"
    max_grad_norm: cfg.Positive = 0.5
    """Upper clip of the global norm of gradients."""
    weight_decay: cfg.Limit = 0
    """Decoupled weight decay, as in AdamW: a step also takes this times the step size off each kernel. Biases, scales
    of norms and free parameters, such as standard deviations and temperatures, do not decay. 0: none."""


@cfg.config
class Torso:
    """Settings of `make_torso`."""

    heading: ClassVar[str] = "network"
    offers: ClassVar[tuple[str, ...]] = (TORSO,)
    torso: Literal["plain", "resnet", "nature", "simba"] = "plain"
    """Network before the heads. plain: dense layers, after a convolution for images. resnet: IMPALA's residual network,
    for images only. nature: the three convolutions of DQN on Atari, for images of at least 36 x 36; its paper has
    hidden_sizes = 512. simba: residual blocks of dense layers with layer normalisation, one for each of hidden_sizes,
    which must be one width; its paper also has normalised observations."""
    convolutions: tuple[str, ...] = ()
    """Convolutions of the torso, each as CHANNELS:KERNEL:STRIDE, such as 32:8:4, or as CHANNELS for a 3 x 3 kernel; for
    resnet, the CHANNELS of each section. Empty: 16 for plain, 16 32 32 for resnet, 32:8:4 64:4:2 64:3:1 for nature."""
    hidden_sizes: tuple[cfg.Count, ...] = (64, 64)
    """Widths of the dense layers."""
    activation: Literal["tanh", "relu", "silu", "gelu", "elu"] = "tanh"
    """Activation of the dense and convolutional layers."""
    layer_norm: bool = False
    """Layer normalisation before each activation of a plain torso."""


WITH_MEMORY = cfg.Needs("a memory", lambda config: config.memory != "none")
WITHOUT_MEMORY = cfg.Needs("memory = 'none'; with a memory the torso is shared", lambda config: config.memory == "none")
WITH_WINDOW = cfg.Needs("memory = 'gtrxl'", lambda config: config.memory == "gtrxl")
WITH_LAG = cfg.Needs("a lag", lambda config: config.lag != 0)
WITH_PRIORITIES = cfg.Needs("prioritised", lambda config: config.prioritised)
WITH_EPSILON = cfg.Needs("an epsilon", lambda config: config.epsilon_start != 0 or config.epsilon_end != 0)
WITH_ANNEALING = cfg.Needs(
    "an epsilon_end other than epsilon_start", lambda config: config.epsilon_start != config.epsilon_end
)


@cfg.config
class Recall:
    """Settings of `make_memory`."""

    heading: ClassVar[str] = "network"
    memory: Literal["none", "gru", "lstm", "lru", "gtrxl"] = "none"
    """Recurrent layer between the torso and the head. Its state is reset at the end of an episode."""
    memory_size: Annotated[cfg.Count, WITH_MEMORY] = 64
    """Width of the recurrent layer."""
    memory_window: Annotated[cfg.Count, WITH_WINDOW] = 32
    """Number of past steps that gtrxl attends to."""


@cfg.config
class Minibatches(OnPolicy):
    """Settings of epochs of minibatches, by `gradients.minibatch_epochs`."""

    num_epochs: cfg.Count = 4
    """Number of passes over each batch."""
    num_minibatches: cfg.Count = 4
    """Number of minibatches of a batch. Must divide num_envs * num_steps or, with a memory, the number of sequences."""

    @property
    def total_updates(self) -> int:
        """Number of gradient steps of the whole training."""
        return self.num_iterations * self.num_epochs * self.num_minibatches


@cfg.config
class SequenceMinibatches(Minibatches):
    """Settings of epochs of minibatches, of sequences if the network has a memory."""

    sequence_length: Annotated[cfg.NonNegativeCount, WITH_MEMORY] = 16
    """Number of steps that gradients flow back through, with a memory. Must divide num_steps. 0: num_steps."""

    @property
    def sequence_steps(self) -> int:
        """Number of steps of a sequence."""
        return self.sequence_length or self.num_steps


@cfg.config
class Epsilon:
    """Settings of epsilon-greedy exploration, by `schedules.anneal`."""

    epsilon_start: cfg.Fraction = 1.0
    """Probability of a random action at the start."""
    epsilon_end: cfg.Fraction = 0.05
    """Probability of a random action after exploration_fraction of the training."""
    exploration_fraction: Annotated[cfg.OpenFraction, WITH_ANNEALING] = 0.1
    """Fraction of the training over which the probability of a random action decays linearly from epsilon_start to
    epsilon_end."""


def make_torso(config: Torso, env: Env, hidden_sizes: Sequence[int] | None = None) -> nn.Module:
    """Makes the torso for the observations of ``env``; ``hidden_sizes`` default to all of the config's."""
    images = convolutions(config)
    sizes = tuple(config.hidden_sizes if hidden_sizes is None else hidden_sizes)
    return networks.torso(env.observation_space, sizes, config.activation, config.layer_norm, images)


def convolutions(config: Torso) -> Convolutions:
    """Returns how a torso processes images. Raises `ValueError` for settings that `torso_problems` rejects."""
    given = [[int(part) for part in text.split(":")] for text in config.convolutions]
    layers = tuple(Convolution(*(numbers if len(numbers) > 1 else (*numbers, 3, 1))) for numbers in given)
    return Convolutions(config.torso, layers or KINDS[config.torso])


def make_memory(config: Recall) -> Memory:
    """Makes the memory that ``config`` describes."""
    if config.memory == "none":
        return memory.forgetful()
    return memory.make(config.memory, config.memory_size, config.memory_window)


def torso_problems(config: Torso, env: Env | None) -> list[str]:
    """Returns the reasons why the torso of ``config`` cannot read observations of ``env`` (None: not known)."""
    form = re.compile(r"[1-9]\d{0,5}" if config.torso == "resnet" else r"[1-9]\d{0,5}(:[1-9]\d{0,5}){2}|[1-9]\d{0,5}")
    if any(not form.fullmatch(text) for text in config.convolutions):
        requirement = "CHANNELS, for a resnet" if config.torso == "resnet" else "CHANNELS:KERNEL:STRIDE or CHANNELS"
        return [f"convolutions = {config.convolutions}: each must be {requirement}"]
    problems = ["layer_norm = True: a resnet has none"] if config.torso == "resnet" and config.layer_norm else []
    if config.torso == "simba":
        problems = simba_problems(config)
    layers = convolutions(config)
    if env is None or layers._replace(kind="plain" if config.torso == "simba" else config.torso) == Convolutions():
        return problems
    images, asking = _images(env.observation_space), f"torso = {config.torso!r}: "
    if config.convolutions:
        asking = f"convolutions = {config.convolutions!r}: "
    if not images:
        problems.append(f"{asking}needs images of three axes; {env.name} has {_shapes(env.observation_space)}")
    small = [shape for shape in images if not layers.fit(shape)]
    return problems + [f"{asking}{env.name} has images {shape}, which are too small" for shape in small]


def simba_problems(config: Torso) -> list[str]:
    """Returns a line for each setting that residual blocks cannot have."""
    problems = ["layer_norm = True: simba has its own"] if config.layer_norm else []
    for name in ("hidden_sizes", "critic_hidden_sizes"):
        sizes = getattr(config, name, ())
        if len(set(sizes)) > 1:
            problems.append(f"{name} = {sizes}: must be one width, for each residual block of torso = 'simba'")
    return problems


def support_problems(low: float, high: float) -> list[str]:
    """Returns one line if the atoms of a return from ``low`` to ``high``, which may be traced, have no extent."""
    if cfg.known(low, high) and np.float32(low) >= np.float32(high):
        return [f"v_min = {low!r}: must be below v_max = {high!r}"]
    return []


def _images(space: spaces.Space) -> list[tuple[int, ...]]:
    """Returns the shapes of the images among the leaves of a space."""
    return [leaf.shape for leaf in spaces.leaves(space) if is_image(leaf)]


def with_head_problems(config: Torso) -> list[str]:
    """Returns one line if ``hidden_sizes`` lacks the width of the head."""
    return ["hidden_sizes = (): must have the width of the head"] if config.hidden_sizes == () else []


def _shapes(space: spaces.Space) -> str:
    return ", ".join(f"the shape {x.shape}" for x in jax.tree.leaves(spaces.struct(space)))
