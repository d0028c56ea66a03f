# SPDX-License-Identifier: Apache-2.0
"""optima_v2: the names of OptimaV2, a compiler for networks over several devices (ENERZAi), over quern's deployments.

    from optima_v2 import devices
    from optima_v2.manager import Manager
    Manager().optimize("MediapipeNet", [devices.DeviceEnum.DEVICE_KIND_X64], "net.gpickle", "outputs/", "allocation.json")

Graphs and allocations are made by `zaiConverter`. quern's own interface has more: `quern.deploy`, `quern.allocate`, `quern.Deployment`."""
