"""Kernels of our own: functions and scans that are computed on the chip from their first read to their last write."""

from purerl.kernels.choice import AUTO, for_devices, requested, using
from purerl.kernels.program import fuse
from purerl.kernels.scans import scan
from purerl.kernels.setting import INTERPRETED, OFF, ON, setting

__all__ = ["AUTO", "INTERPRETED", "OFF", "ON", "for_devices", "fuse", "scan", "setting", "using", "requested"]
