"""No memory, as a `Memory`: for networks that may have one."""

from purerl.networks.memory.base import Memory


def forgetful() -> Memory:
    """Gives what it is given, and carries nothing."""
    return Memory(
        init=lambda key, x: {},
        init_carry=lambda num_envs: (),
        step=lambda params, x, carry: (x, ()),
        unroll=lambda params, x, carry, last: (x, (), ()),
    )
