#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# embedded.py: MLPerf Tiny's networks as programs in C (quern export --to c) on emulated boards: flash, arena and instructions of a run, in f32 and in 8 bits.
# Needs the compilers and emulators of `tool/deps embedded`, NumPy, and build/quern. CMSIS_NN=DIR, a copy of github.com/ARM-software/CMSIS-NN: its functions
# beside them. QEMU counts instructions, not cycles. The table is written to bench/results/embedded.txt.
import glob
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import cmsis_nn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUERN, BOARD = os.path.join(ROOT, "build/quern"), os.path.join(ROOT, "bench/embedded_board")
NETS = {"dscnn": (1, 49, 10), "mobilenet-vww": (3, 96, 96), "resnet8": (3, 32, 32), "autoencoder": (640,)}
FREE = ["-O2", "-ffreestanding", "-fno-tree-loop-distribute-patterns", "-DWRAP"]
M4 = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
SECTIONS = ["-ffunction-sections", "-fdata-sections"]
LINK = ["-nostartfiles", "-Wl,--gc-sections", "-Wl,--wrap=net_run", "-Wl,--no-warn-rwx-segments"]


def run(*words):
    r = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    if r.returncode and not ("qemu" in words[0] and "exit " in r.stdout):
        sys.exit(f"{' '.join(words)}\n{r.stdout}")
    return r.stdout


class Board:
    def __init__(self, isa):
        self.isa, self.is_arm = isa, isa != "rv32imac"
        self.cc = "arm-none-eabi-gcc" if self.is_arm else "riscv64-unknown-elf-gcc"
        self.own = M4 if self.is_arm else ["-march=rv32imac", "-mabi=ilp32"]
        self.library = [] if self.is_arm else ["--specs=picolibc.specs"]
        self.script = os.path.join(BOARD, "arm.ld" if self.is_arm else "riscv.ld")

    def link(self, folder, objects, to):
        board = os.path.join(folder, "board.o")
        own = self.own if self.is_arm else ["-march=rv32imac_zicsr", "-mabi=ilp32"]
        run(self.cc, *own, *FREE, "-c", os.path.join(BOARD, "board.c"), "-o", board)
        run(self.cc, *self.own, *self.library, *LINK, "-T", self.script, "-o", to, board, *objects, "-lm")

    def size(self, elf):
        line = run(self.cc.replace("gcc", "size"), elf).split("\n")[1].split()
        return int(line[0]) + int(line[1])

    def instructions(self, elf):
        if self.is_arm:
            words = ["qemu-system-arm", "-M", "mps2-an386", "-semihosting-config", "enable=on,target=native"]
        else:
            words = ["qemu-system-riscv32", "-M", "virt", "-bios", "none", "-serial", "stdio", "-monitor", "none"]
        out = run(*words, "-icount", "shift=0", "-display", "none", "-kernel", elf)
        count, code = re.search(r"instructions (\d+)", out), re.search(r"exit (\d+)", out)
        return int(count[1]), int(code[1])

    def flash(self, folder, objects):
        """What the objects, called from main, add to an empty program."""
        main, empty = os.path.join(folder, "main.c"), os.path.join(folder, "empty.c")
        with open(main, "w") as f:
            f.write("void net_run(const void *, const void *, void *);\nint main(void) { net_run(0, 0, 0); return 0; }\n")
        with open(empty, "w") as f:
            f.write("void net_run(const void *a, const void *b, void *c) { (void)a, (void)b, (void)c; }\n")
        sizes = []
        for source, more in ((empty, []), (None, objects)):
            if source:
                more = [os.path.join(folder, "empty.o")]
                run(self.cc, *self.own, "-c", source, "-o", more[0])
            run(self.cc, *self.own, "-c", main, "-o", main + ".o")
            self.link(folder, [main + ".o", *more], os.path.join(folder, "size.elf"))
            sizes.append(self.size(os.path.join(folder, "size.elf")))
        return sizes[1] - sizes[0]


def ours(board, model, folder):
    run(QUERN, "export", model, "--to", "c", "--isa", board.isa, "-o", folder, "-q")
    with open(os.path.join(folder, "Makefile")) as f:
        arch = re.search(r"^ARCH =(.*)$", f.read(), re.M)[1].split()
    with open(os.path.join(folder, "net.h")) as f:
        arena = int(re.search(r"ARENA_BYTES (\d+)", f.read())[1])
    objects = []
    for name in ("net", "net_weights", "net_test"):
        objects.append(os.path.join(folder, name + ".o"))
        run(board.cc, *arch, *board.library, "-std=c99", "-O2", *SECTIONS, "-DNET_QUIET", "-c", os.path.join(folder, name + ".c"), "-o", objects[-1])
    elf = os.path.join(folder, "test.elf")
    board.link(folder, objects, elf)
    count, code = board.instructions(elf)
    if code:
        sys.exit(f"{model}, {board.isa}: wrong results")
    return board.flash(folder, objects[:2]), arena, count


def cmsis(board, net, folder, library):
    text = cmsis_nn.program(net)
    source, main = os.path.join(folder, "peer.c"), os.path.join(folder, "peer_main.c")
    with open(source, "w") as f:
        f.write(text)
    with open(main, "w") as f:
        f.write("#include <stdint.h>\nextern int32_t most;\nvoid net_run(const void *, const void *, void *);\nint main(void) { net_run(0, 0, 0); return most; }\n")
    include = "-I" + os.path.join(os.environ["CMSIS_NN"], "Include")
    for name in (source, main):
        run(board.cc, *board.own, "-O3" if name == source else "-O1", *SECTIONS, include, "-c", name, "-o", name + ".o")
    elf = os.path.join(folder, "peer.elf")
    board.link(folder, [source + ".o", main + ".o", library], elf)
    count, scratch = board.instructions(elf)
    return board.flash(folder, [source + ".o", library]), int(re.search(r"/\* (\d+) \*/", text)[1]) + scratch, count


def cmsis_library(board, folder):
    path = os.environ["CMSIS_NN"]
    objects = []
    for source in sorted(glob.glob(os.path.join(path, "Source/*/*.c"))):
        name = os.path.basename(source)
        if ("s8" in name or "NNSupport" in source) and not re.search("f16|f32|flt|lstm|svdf", name):
            objects.append(os.path.join(folder, name + ".o"))
            run(board.cc, *board.own, "-O3", *SECTIONS, "-I" + os.path.join(path, "Include"), "-c", source, "-o", objects[-1])
    library = os.path.join(folder, "peer.a")
    run("arm-none-eabi-ar", "rcs", library, *objects)
    return library


def models(net, shape, folder):
    model, samples, quantised = (os.path.join(folder, net + end) for end in (".onnx", ".npz", ".int8.onnx"))
    run(QUERN, "zoo", net, "-o", model)
    np.savez(samples, input=np.random.default_rng(1).standard_normal((16, *shape)).astype(np.float32))
    run(QUERN, "quantize", model, "--data", samples, "-o", quantised, "--no-report", "-q")
    return {"f32": model, "int8": quantised}


def main():
    lines = ["network        type  target     program    flash   arena  instructions"]
    with tempfile.TemporaryDirectory() as folder:
        m4, rv = Board("armv7e-m"), Board("rv32imac")
        library = cmsis_library(m4, folder) if "CMSIS_NN" in os.environ else None
        for net, shape in NETS.items():
            for kind, model in models(net, shape, folder).items():
                for board in (m4, rv) if kind == "int8" else (m4,):
                    row = ours(board, model, os.path.join(folder, net + kind + board.isa))
                    lines.append(f"{net:14} {kind:5} {board.isa:10} {'quern':8} {row[0]:7} {row[1]:7} {row[2]:13}")
            if library:
                row = cmsis(m4, net, folder, library)
                lines.append(f"{net:14} int8  armv7e-m   {'CMSIS-NN':8} {row[0]:7} {row[1]:7} {row[2]:13}")
            print("\n".join(lines[-4:]), flush=True)
    with open(os.path.join(ROOT, "bench/results/embedded.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
