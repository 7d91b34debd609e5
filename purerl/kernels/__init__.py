"""Kernels of our own: a function, or a scan over steps, computed on the chip from its first read to its last write."""

from purerl.kernels.program import fuse
from purerl.kernels.scans import scan
from purerl.kernels.setting import AUTO, INSIDE, INTERPRETED, OFF, ON, for_devices, setting, using, wanted

__all__ = ["AUTO", "INSIDE", "INTERPRETED", "OFF", "ON", "for_devices", "fuse", "scan", "setting", "using", "wanted"]
