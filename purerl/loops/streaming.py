"""What the host does for trainings from recorded play that lies in its memory: it draws, and reads, their samples."""

from typing import NamedTuple

import jax

from purerl import trees
from purerl.loops import hosting
from purerl.replay.fixed import places
from purerl.replay.streamed import Drawn, Streamed
from purerl.types import Array, Key, Trainer


class Stream(NamedTuple):
    """A dataset in the host's memory, of which an iteration takes ``num_updates`` samples of ``batch_size`` steps."""

    data: Streamed
    batch_size: int
    num_updates: int

    @property
    def like(self) -> Drawn:
        """What an iteration of one training learns from, ``[num_updates, batch_size]``, as `jax.ShapeDtypeStruct`."""
        return self.data.like((self.num_updates, self.batch_size))

    def draw(self, keys: Key) -> tuple[Key, Array]:
        """Draws the steps of the iterations before which the trainings have the ``keys`` ``[P]``.

        Returns:
            Their keys after it; and the steps ``[P, num_updates, batch_size]`` (int32), those that a program which
            holds the data draws.
        """
        return _draw(keys, self.num_updates, self.batch_size, self.data.size)


def update_keys(key: Key, num_updates: int) -> tuple[Key, Key]:
    """Splits the key of learning into those of the samples and of the updates, both ``[num_updates]``."""
    samples, updates = jax.random.split(key, (2, num_updates))
    return samples, updates


def draw_one(key: Key, num_updates: int, batch_size: int, count: int) -> tuple[Key, Array]:
    """Draws the steps of an iteration of one training, as `Stream.draw` does."""
    key, _, key_learn = hosting.keys(key)
    samples, _ = update_keys(key_learn, num_updates)
    return key, jax.vmap(lambda each: places(each, batch_size, count))(samples)


_draw = jax.jit(jax.vmap(draw_one, in_axes=(0, None, None, None)), static_argnums=(1, 2, 3))


def traceable(trainer: Trainer) -> Trainer:
    """Returns a trainer whose iteration can be traced: one of a `Stream` learns from zeros."""
    return trainer.fed(trees.zeros(trainer.stream.like)) if trainer.stream else trainer
