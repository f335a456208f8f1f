"""One real GPU, through CuPy: loading cubins, buffers, launches; every failure becomes one sentence (GpuError).

CuPy is imported when a device is opened, not before.  The device's primary context is used, which other frameworks of
the process may be using too: the device that was current is current again afterwards, nothing is reset, and memory
comes from a pool of its own, which is emptied at the end.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.errors import GpuError, NoGpuError
from gpusim.runner.nvml import Nvml
from gpusim.runner.sampling import CupyWatch, flush_bytes
from gpusim.toolchain import Cubin, nvrtc_version, supported_archs

INSTALL = "run pip install 'gpusim[gpu]' (or the cupy-cuda12x package for a driver of CUDA 12)"
LARGE_SHARED_BYTES = 48 << 10
"""Dynamic shared memory beyond this must be asked for."""

# CUDA's error numbers, the same in the runtime and the driver interface (cuda.h, driver_types.h)
OUT_OF_MEMORY, INSUFFICIENT_DRIVER, BUSY, NO_DEVICE, WRONG_DEVICE = 2, 35, 46, 100, 101
INVALID_IMAGE, NO_BINARY, UNSUPPORTED_PTX = 200, 209, 222
STICKY = {
    214: "an uncorrectable memory error (ECC)",
    700: "it accessed an illegal address",
    702: "it ran longer than the system allows",
    710: "an assertion failed",
    714: "its stack was corrupted or too small",
    715: "it executed an illegal instruction",
    716: "it made a misaligned access",
    717: "it used an address of the wrong memory space",
    718: "it jumped to an illegal address",
    719: "it failed in an unspecified way",
}
"""Errors after which the process can do nothing more with the GPU, and what a kernel did."""


@dataclass(frozen=True)
class DeviceFacts:
    """What a GPU is and what it is reached through; sizes in bytes, CUDA versions as numbers such as 13020."""

    number: int
    name: str
    arch: int
    pci_bus_id: str
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    driver: str
    driver_cuda: int
    runtime_cuda: int
    cupy: str


def gib(size: float) -> str:
    """A size in bytes, in words."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


def version(number: int) -> str:
    """CUDA's number for a version as text: 13020 is "13.2"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def runs_on(cubin_arch: int, device_arch: int) -> bool:
    """Whether machine code for an architecture runs on a device: the same major number, and no later minor one."""
    return cubin_arch // 10 == device_arch // 10 and cubin_arch % 10 <= device_arch % 10


def own_arch(device_arch: int, name: str) -> str:
    """The architecture to compile for, so that a device runs the code: its own, or the latest before of its kind."""
    usable = [arch for arch in supported_archs() if runs_on(arch, device_arch)]
    if not usable:
        raise GpuError(
            f"the {name} is an sm_{device_arch}, and NVRTC {nvrtc_version()} makes no code for that "
            f"(it does for {', '.join(f'sm_{arch}' for arch in supported_archs())})"
        )
    return f"sm_{max(usable)}"


def check_arch(cubin_arch: int, device_arch: int, name: str) -> None:
    """Raises GpuError for code that the device cannot run."""
    if not runs_on(cubin_arch, device_arch):
        raise GpuError(
            f"code for sm_{cubin_arch} does not run on the {name}, which is an sm_{device_arch}: "
            f"leave --arch out, or give --arch sm_{device_arch}"
        )


def translated(error: BaseException, doing: str) -> GpuError | None:
    """One sentence for an error of CuPy while ``doing`` something; None for an error that is not CuPy's."""
    status = getattr(error, "status", None)
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError) or status == OUT_OF_MEMORY:
        return GpuError(f"there was too little memory while {doing} ({said}): choose a smaller --size")
    if not isinstance(status, int):
        if isinstance(error, RuntimeError) and said.startswith("CuPy failed to load"):
            return NoGpuError(f"CuPy cannot load a part of CUDA ({said}): {INSTALL}")
        return None
    if status in STICKY:
        return GpuError(
            f"the GPU stopped while {doing}: {STICKY[status]} (CUDA error {status}); nothing more can be done with the "
            "GPU in this process, and compute-sanitizer or 'gpusim analyze --execute' may tell where it happened",
            lost=True,
        )
    if status in (INVALID_IMAGE, NO_BINARY, UNSUPPORTED_PTX):
        return GpuError(
            f"the driver does not take the code while {doing} ({said}): it is for another architecture, or made by a "
            f"compiler (NVRTC {nvrtc_version()}) that is later than the driver, which then must be updated"
        )
    if status == BUSY:
        return GpuError(f"the GPU is in use by another process that has it for itself ({said}): try again later")
    return GpuError(f"the GPU refused while {doing}: {said}")


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """CuPy's errors become GpuError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        sentence = translated(error, doing)
        if sentence is None:
            raise
        if sentence.lost:
            _keep(sentence)
        raise sentence from error


_lost: list[GpuError] = []
"""Errors that lost a device.  With them all that is on the device is kept: to give it back would only fail again."""


def _keep(error: GpuError) -> None:
    """Keep what is on a lost device until the process ends, and then let CuPy's complaints about it go nowhere."""
    if not _lost:
        atexit.register(_silence)
    _lost.append(error)


def _silence() -> None:
    """Standard error to nowhere: CuPy writes a traceback for everything that it cannot give back to a lost device."""
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def import_cupy() -> Any:
    """CuPy, if it is installed and can be imported.  Raises NoGpuError."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise NoGpuError(f"CuPy cannot be imported, since {error.name} is missing: {INSTALL}") from error
        raise NoGpuError(f"measuring needs CuPy, which is not installed: {INSTALL}") from error
    except ImportError as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise NoGpuError(f"CuPy cannot be imported ({said}): {INSTALL}") from error
    return cupy


def check_devices(cupy: Any, number: int) -> None:
    """Raises NoGpuError, which says why, unless there is a device of that number that CuPy can use."""
    runtime = cupy.cuda.runtime
    driver_cuda = runtime.driverGetVersion()
    if not driver_cuda:
        raise NoGpuError("there is no NVIDIA driver on this machine: measuring needs a GPU ('gpusim analyze' does not)")
    needed = runtime.runtimeGetVersion()
    try:
        count = runtime.getDeviceCount()
    except RuntimeError as error:
        status = getattr(error, "status", None)
        if status == INSUFFICIENT_DRIVER or driver_cuda // 1000 < needed // 1000:
            raise NoGpuError(
                f"this CuPy is made for CUDA {needed // 1000}, and the driver knows CUDA {version(driver_cuda)}: "
                f"update the driver, or install cupy-cuda{driver_cuda // 1000}x in place of it"
            ) from error
        if status == NO_DEVICE:
            raise NoGpuError(
                "the driver shows no GPU: measuring needs one (CUDA_VISIBLE_DEVICES may hide it)"
            ) from error
        raise NoGpuError(f"CUDA cannot be started: {' '.join(str(error).split())}") from error
    if number >= count:
        have = "there is only device 0" if count == 1 else f"there are devices 0 to {count - 1}"
        raise NoGpuError(f"there is no device {number}: {have}" if count else "there is no GPU")


class Device:
    """A GPU in use; made by :func:`opened`."""

    def __init__(self, cupy: Any, facts: DeviceFacts, watch: CupyWatch, pool: Any, folder: Path) -> None:
        self.cupy, self.facts, self.watch = cupy, facts, watch
        self._pool, self._folder = pool, folder

    @property
    def arch(self) -> str:
        """The architecture to compile for."""
        return own_arch(self.facts.arch, self.facts.name)

    def free_bytes(self) -> int:
        """Memory that can be had, unused parts of our own pool included."""
        with guarded("asking for the free memory"):
            return int(self.cupy.cuda.runtime.memGetInfo()[0]) + int(self._pool.free_bytes())

    def require(self, size: float, what: str) -> None:
        """Raises GpuError unless that many bytes are free."""
        free = self.free_bytes()
        if size > free:
            raise GpuError(
                f"{what} needs {gib(size)} of the GPU's memory, and of the {gib(self.facts.memory_bytes)} of the "
                f"{self.facts.name} {gib(free)} are free: choose a smaller --size"
            )

    def kernel(self, cubin: Cubin, name: str, shared_bytes: int) -> Any:
        """A kernel (mangled name) of a cubin, whose very bytes are loaded."""
        check_arch(cubin.arch, self.facts.arch, self.facts.name)
        path = self._folder / f"{cubin.sha256}.cubin"  # CuPy keeps modules by path
        if not path.exists():
            path.write_bytes(cubin.data)
        with guarded(f"loading {name}"):
            function = self.cupy.RawModule(path=str(path)).get_function(name)
            if shared_bytes > LARGE_SHARED_BYTES:
                function.max_dynamic_shared_size_bytes = shared_bytes
        return function

    def upload(self, array: np.ndarray[Any, Any], what: str) -> Any:
        """A copy of an array on the device."""
        self.require(array.nbytes, what)
        with guarded(f"copying {what} to the GPU"):
            copy = self.cupy.empty(array.shape, array.dtype)
            copy.set(array)
            return copy

    def download(self, array: Any, what: str) -> np.ndarray[Any, Any]:
        """A copy of an array of the device."""
        with guarded(f"copying {what} from the GPU"):
            return np.asarray(self.cupy.asnumpy(array))

    def run(self, launches: Sequence[Callable[[], None]], doing: str) -> None:
        """Carry out launches and wait for them."""
        with guarded(doing):
            for launch in launches:
                launch()
            self.watch.stream.synchronize()

    @staticmethod
    def guarded(doing: str) -> AbstractContextManager[None]:
        """Errors of CuPy inside become GpuError."""
        return guarded(doing)

    def release(self) -> None:
        """Give back the memory that nothing uses any more."""
        if not _lost:
            with suppress(RuntimeError):
                self._pool.free_all_blocks()


def _facts(cupy: Any, number: int) -> tuple[DeviceFacts, Nvml | None]:
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(number)
    pci_bus_id = str(cupy.cuda.Device(number).pci_bus_id)
    nvml = Nvml.open(pci_bus_id)
    facts = DeviceFacts(
        number=number,
        name=properties["name"].decode(),
        arch=10 * properties["major"] + properties["minor"],
        pci_bus_id=pci_bus_id,
        multiprocessors=properties["multiProcessorCount"],
        memory_bytes=properties["totalGlobalMem"],
        l2_bytes=properties["l2CacheSize"],
        driver=nvml.driver() if nvml is not None else "unknown",
        driver_cuda=runtime.driverGetVersion(),
        runtime_cuda=runtime.runtimeGetVersion(),
        cupy=cupy.__version__,
    )
    return facts, nvml


@contextmanager
def opened(number: int = 0) -> Iterator[Device]:
    """The GPU of that number, current until the end of the context.  Raises NoGpuError or GpuError."""
    cupy = import_cupy()
    with guarded("starting CUDA"):
        check_devices(cupy, number)
        facts, nvml = _facts(cupy, number)
    pool = cupy.cuda.MemoryPool()
    with ExitStack() as stack:
        with guarded(f"taking the {facts.name} into use"):
            stack.enter_context(cupy.cuda.Device(number))
            stack.enter_context(cupy.cuda.using_allocator(pool.malloc))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpusim-")))
            free = int(cupy.cuda.runtime.memGetInfo()[0])
            if flush_bytes(facts.l2_bytes) > free:
                raise GpuError(
                    f"{gib(flush_bytes(facts.l2_bytes))} of the GPU's memory are needed to flush its cache, and "
                    f"{gib(free)} are free: end other programs that use the {facts.name}"
                )
            watch = CupyWatch(cupy, facts.l2_bytes, nvml.clock if nvml is not None else lambda: None)
        device = Device(cupy, facts, watch, pool, folder)
        try:
            yield device
        finally:
            device.release()
