# SPDX-License-Identifier: Apache-2.0
#
# Instruction sets that all engines are held to (bench/compare --isa), so that a processor with
# AVX-512 also measures what AVX2 processors get. quern compiles for the set; libraries that choose
# their kernels at run time are told by environment variables. An engine without such a switch is
# left out, unless the processor has nothing beyond the set.
AVX2 = "x86-64-v3"
SETS = (AVX2,)
BEYOND = {AVX2: ("avx512f", "avx_vnni", "avx10")}  # flags of processors, as the kernel names them

SWITCHES = {  # environment variables
    AVX2: {
        "openblas": {},  # by kernels
        "blis": {},
        "llama.cpp": {},  # by its build
        "onednn": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        "openvino": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        "torch": {
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
        },
    }
}


# Names of processors that select a library's kernels; "": its own choice.
KERNELS = {
    "": {"openblas": ("", "SkylakeX", "Haswell"), "blis": ("", "0", "3", "6")},  # skx, haswell, zen3
    AVX2: {"openblas": ("Haswell", "Zen"), "blis": ("3", "6")},
}


def kernels(isa, engine):
    return KERNELS[isa if isa and is_beyond(isa) else ""][engine]


def flags():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("flags"):
                return line.split(":")[1].split()
    return []


def is_beyond(isa):
    """Whether the processor has instructions that the set lacks."""
    return any(f.startswith(BEYOND[isa]) for f in flags())


def settings(isa, engine):
    """Environment variables that hold an engine to the set; None: nothing does."""
    if not isa or engine.startswith("quern") or not is_beyond(isa):
        return {}
    return SWITCHES[isa].get(engine)
