"""The clock of a GPU and its driver's version, from NVML, the library behind ``nvidia-smi``; nothing is changed.

Only the standard library is needed.
"""

from __future__ import annotations

import ctypes

LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
SM_CLOCK = 1  # NVML_CLOCK_SM


class Nvml:
    """One GPU.  ``pci_bus_id`` as CUDA gives it, so that CUDA_VISIBLE_DEVICES does not matter."""

    def __init__(self, library: ctypes.CDLL, device: ctypes.c_void_p) -> None:
        self._library, self._device = library, device
        # the newer name of the same function came with driver 535
        self._reasons = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            library, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )

    @classmethod
    def open(cls, pci_bus_id: str) -> Nvml | None:
        """The GPU at that place, None where NVML is not installed or does not know it."""
        library = None
        for name in LIBRARIES:
            try:
                library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        if library is None or library.nvmlInit_v2() != 0:
            return None
        device = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(device)) != 0:
            return None
        return cls(library, device)

    def clock(self) -> tuple[int, int] | None:
        """(SM clock in MHz, reasons for it as bits) now; None if it cannot be told."""
        mhz, bits = ctypes.c_uint(), ctypes.c_ulonglong()
        if self._library.nvmlDeviceGetClockInfo(self._device, SM_CLOCK, ctypes.byref(mhz)) != 0:
            return None
        if self._reasons is None or self._reasons(self._device, ctypes.byref(bits)) != 0:
            return mhz.value, 0
        return mhz.value, bits.value

    def driver(self) -> str:
        """Version of the driver, such as "580.95.05"; "unknown" if it cannot be told."""
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self._library.nvmlSystemGetDriverVersion(text, 96) == 0 else "unknown"
