# SPDX-License-Identifier: Apache-2.0
"""The names of deepgen's Python runtime over quern: scripts written for that kernel generator run as they are.

    from kcg.TorchInjector import *      # OpProxy, OpInjector, TuneResult, matmul, attention
    from kcg.ModelUtils import *         # CustomLinear, compile_model, registerPreCompiledKernelByJson ...

python/compat/README.md says what differs.
"""
