"""Kernels of our own: a function, or a scan over steps, computed on the chip from its first read to its last write."""

from purerl.kernels.program import fuse, scan
from purerl.kernels.setting import AUTO, INTERPRETED, OFF, ON, for_devices, setting, using, wanted

__all__ = ["AUTO", "INTERPRETED", "OFF", "ON", "for_devices", "fuse", "scan", "setting", "using", "wanted"]
