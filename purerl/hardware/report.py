"""What the compiler reports of kernels of our own: registers, shared memory and spills."""

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import jax

from purerl.errors import ConfigError
from purerl.hardware.absent import INSTALL

OURS = re.compile(r"custom-call\(.*custom_call_target=\"__gpu\$xla\.gpu\.triton\".* name = \"(\w+)\"")


class Kernel(NamedTuple):
    """One kernel: the threads and shared memory of an instance, and the registers and spills of a thread.

    ``spill_stores`` and ``spill_loads`` are the bytes that instructions of a thread spill from registers into memory
    and read back. Each instruction counts once, in loops too.
    """

    name: str
    threads: int
    registers: int
    shared_bytes: int
    spill_stores: int
    spill_loads: int


class Reported(NamedTuple):
    """A compiled program and its kernels of our own."""

    program: jax.stages.Compiled
    kernels: list[Kernel]


def compiled(lowered: jax.stages.Lowered) -> Reported:
    """Compiles a program that is lowered for an NVIDIA GPU, and reports on its kernels of our own.

    XLA writes the code of every kernel, and NVIDIA's assembler reports on it.

    Raises:
        ConfigError: The assembler is not installed.
    """
    assembler = _assembler()
    with tempfile.TemporaryDirectory() as folder:
        program = lowered.compile(compiler_options={"xla_dump_to": folder})
        names = set(OURS.findall(program.as_text() or ""))
        shared = _shared("\n".join(path.read_text() for path in Path(folder).glob("*thunk_sequence.txt")))
        kernels = []
        for path in sorted(Path(folder).glob("*.ptx")):
            entry = re.search(r"\.entry (\w+)\(", path.read_text())
            if entry and entry.group(1) in names:
                kernels.append(_kernel(assembler, path, entry.group(1), shared.get(entry.group(1), 0)))
    return Reported(program, kernels)


def _shared(thunks: str) -> dict[str, int]:
    """Reads the bytes of shared memory by the names of kernels."""
    return {name: int(size) for name, size in re.findall(r"\] (\w+) grid: .*shared_memory: (\d+) bytes", thunks)}


def _assembler() -> str:
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations if spec and spec.submodule_search_locations else ():
        if (path := Path(place) / "cuda_nvcc" / "bin" / "ptxas").exists():
            return str(path)
    raise ConfigError(f"needs NVIDIA's assembler, {INSTALL}")


def _kernel(assembler: str, path: Path, name: str, shared: int) -> Kernel:
    text = path.read_text()
    [target], [threads] = re.findall(r"\.target (\w+)", text), re.findall(r"\.reqntid (\d+)", text)
    command = [assembler, "-v", f"-arch={target}", str(path), "-o", str(path.with_suffix(".cubin"))]
    return read(name, int(threads), shared, subprocess.run(command, capture_output=True, text=True, check=True).stderr)


def read(name: str, threads: int, shared_bytes: int, text: str) -> Kernel:
    """Reads what the assembler prints of a kernel.

    Args:
        name: The name of the kernel.
        threads: The threads of an instance.
        shared_bytes: The bytes of shared memory of an instance.
        text: The assembler's output.
    """
    numbers = (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads")
    registers, stores, loads = (int(re.findall(pattern, text)[-1]) for pattern in numbers)
    return Kernel(name, threads, registers, shared_bytes, stores, loads)
