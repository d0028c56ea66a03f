# SPDX-License-Identifier: Apache-2.0
"""Kinds of devices, by the names of allocations ("X64:0")."""
import enum


class DeviceEnum(enum.Enum):
    """A kind of device; its value is its name in allocations."""

    DEVICE_KIND_X86 = "X86"
    DEVICE_KIND_X64 = "X64"
    DEVICE_KIND_ARM = "ARM"
    DEVICE_KIND_ARM64 = "ARM64"
    DEVICE_KIND_NVIDIA = "NVIDIA"
    DEVICE_KIND_AMDGPU = "AMDGPU"
    DEVICE_KIND_INTELGPU = "INTELGPU"
    DEVICE_KIND_MALI = "MALI"
    DEVICE_KIND_ADRENO = "ADRENO"
    DEVICE_KIND_HEXAGON = "HEXAGON"
    DEVICE_KIND_MYRIAD = "MYRIAD"
    DEVICE_KIND_ARA1 = "ARA1"
    DEVICE_KIND_TPU = "TPU"
    DEVICE_KIND_CV22 = "CV22"


CPUS = frozenset({DeviceEnum.DEVICE_KIND_X86, DeviceEnum.DEVICE_KIND_X64, DeviceEnum.DEVICE_KIND_ARM, DeviceEnum.DEVICE_KIND_ARM64})
GPUS = frozenset({DeviceEnum.DEVICE_KIND_NVIDIA, DeviceEnum.DEVICE_KIND_AMDGPU, DeviceEnum.DEVICE_KIND_INTELGPU, DeviceEnum.DEVICE_KIND_MALI,
                  DeviceEnum.DEVICE_KIND_ADRENO})


def isDeviceCPU(kind: DeviceEnum) -> bool:
    return kind in CPUS


def isDeviceGPU(kind: DeviceEnum) -> bool:
    return kind in GPUS


def isDeviceNPU(kind: DeviceEnum) -> bool:
    return kind not in CPUS and kind not in GPUS
