# SPDX-License-Identifier: Apache-2.0
#
# A block of OptimaV2's documentation, as it is printed there. test/python_optima.py runs it.

# Import Manager from optima_v2
from optima_v2.manager import Manager

# ... 
manager_instance = Manager()
manager_instance.optimize(
    "MediapipeNet",
    [
        devices.DeviceEnum.DEVICE_KIND_HEXAGON,
        devices.DeviceEnum.DEVICE_KIND_X64,
    ],
    "~/models/mediapipe/mediapipe.gpickle",
    "~/outputs/",
    "~/models/mediapipe/mediapipe_allocation.json",
    representative_data,
)

