# SPDX-License-Identifier: Apache-2.0
#
# A block of OptimaV2's documentation, as it is printed there. test/python_optima.py runs it.

    repr_data = []

    for input_tuple in some_dataset_iterator:
        # get input_tuple

        repr_data.append(input_tuple)

        output = model(*input_tuple)
        
        # Sample of how this input will 

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
        repr_data,
    )

