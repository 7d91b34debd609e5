"""All that differs between the versions of jax that purerl runs on."""

import functools
from collections.abc import Callable
from typing import Any

import jax


def compute_on_host(function: Callable[..., Any], space: Any) -> Callable[..., Any]:
    """Returns ``function`` as the host computes it, with its results in the memory ``space``."""
    from jax.experimental import compute_on

    # compute_on2 in jax 0.10; in jax 0.11 it has the name of the context manager that it replaced.
    call: Callable[..., Any] = getattr(compute_on, "compute_on2", None) or compute_on.compute_on
    return call(function, compute_type="device_host", out_memory_spaces=space)


def scope(operation: Any) -> Any:
    """Returns the `jax.named_scope` in which an operation of a trace was traced."""
    return jax.named_scope(str(operation.source_info.name_stack) or "shard")


def loop_sizes(params: dict[str, Any]) -> tuple[int, int]:
    """Returns how many constants and how many carries a traced `jax.lax.scan` has, given its operation's parameters."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carries, _ = params["ft_in"].unpack()  # since jax 0.11
    return len(consts), len(carries)


@functools.cache
def has_compiler_option(device: jax.Device, name: str, value: Any) -> bool:
    """Returns whether the compiler for ``device`` knows the option ``name``.

    It is asked once for each option and value, by compiling a program that does nothing.
    """
    place = jax.sharding.SingleDeviceSharding(device)
    program = jax.jit(lambda x: x).lower(jax.ShapeDtypeStruct((), "float32", sharding=place))
    try:
        program.compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def lane_options(device: jax.Device) -> dict[str, Any]:
    """Returns those options of `purerl.compiler_options` for a CPU that its compiler has.

    Without the newer emitters of fused loops LLVM may optimise a little, and at level 0 bits differ again (jax 0.10.2).
    jax 0.11.2 has no other emitters; there it is the other way round.
    """
    options = {"xla_cpu_experimental_ynn_fusion_type": "", "xla_backend_optimization_level": 0}
    if has_compiler_option(device, "xla_cpu_use_fusion_emitters", False):
        options |= {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
    return {name: value for name, value in options.items() if has_compiler_option(device, name, value)}


def exact_options(device: jax.Device) -> dict[str, Any]:
    """Returns options for a CPU under which programs for one device and for several compute the same bits.

    They are as many of these options as the compiler has. For several devices XLA simplifies in another order, and at
    its usual level LLVM then chooses between exponentials of vectors and of scalars, which round differently (jax
    0.10.2).
    """
    name, level = "xla_backend_optimization_level", 1
    return {name: level} if has_compiler_option(device, name, level) else {}


def quick_options(device: jax.Device) -> dict[str, Any]:
    """Returns those options of `purerl.quick_options` for a CPU that its compiler has.

    jax 0.11.2 has only the newer emitters.
    """
    options = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_parallel_codegen_split_count": 1,
        "xla_cpu_use_fusion_emitters": False,
    }
    return {name: value for name, value in options.items() if has_compiler_option(device, name, value)}
