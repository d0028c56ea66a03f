#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embedded.sh BUILD: programs in C on emulated boards without an operating system (bench/embedded_board): Cortex-M3, Cortex-M4 and RISC-V of 32 bits, networks in f32 and in
# 8 bits, results compared on the board. Skipped without compilers and emulators (tool/deps embedded).
. "$(dirname "$0")/common.sh"
boards=$(cd "$here/../bench/embedded_board" && pwd)
cd "$dir" || exit 1
has() { for word; do command -v "$word" > /dev/null || return 1; done; }
arm='' riscv=''
if has arm-none-eabi-gcc qemu-system-arm && echo '#include <math.h>' | arm-none-eabi-gcc -E - > /dev/null 2>&1; then arm=1; fi
if has riscv64-unknown-elf-gcc qemu-system-riscv32 && [ -n "$(riscv64-unknown-elf-gcc -print-file-name=picolibc.specs | grep /)" ]; then riscv=1; fi
[ -n "$arm" ] || echo "skipped: Cortex-M, for which there is no compiler or emulator (tool/deps embedded)"
[ -n "$riscv" ] || echo "skipped: RISC-V, for which there is no compiler or emulator (tool/deps embedded)"
[ -n "$arm$riscv" ] || exit 77

# on_board NETWORK ISA: exports it, builds it with its Makefile's options and runs it.
on_board() {
    folder=$1-$2
    exits 0 "$quern" export "$1" --to c --isa "$2" -o "$folder"
    options=$(sed -n 's/^ARCH = //p' "$folder/Makefile")
    free='-ffreestanding -fno-tree-loop-distribute-patterns'
    # shellcheck disable=SC2086 # several words
    case $2 in
    rv32imac)
        exits 0 riscv64-unknown-elf-gcc $options -march=rv32imac_zicsr -O2 $free -DWRAP -c "$boards/board.c" -o board.o
        exits 0 riscv64-unknown-elf-gcc $options --specs=picolibc.specs -std=c99 -O2 -Wall -Wextra -Werror -DNET_QUIET -nostartfiles -T "$boards/riscv.ld" \
            -Wl,--wrap=net_run -Wl,--no-warn-rwx-segments -o "$folder/elf" board.o "$folder/net.c" "$folder/net_weights.c" "$folder/net_test.c" -lm
        exits 0 qemu-system-riscv32 -M virt -bios none -icount shift=0 -display none -serial stdio -monitor none -kernel "$folder/elf" ;;
    *)
        machine=mps2-an386
        if [ -z "$options" ]; then machine=mps2-an385 options='-mcpu=cortex-m3 -mthumb'; fi
        exits 0 arm-none-eabi-gcc $options -O2 $free -DWRAP -c "$boards/board.c" -o board.o
        exits 0 arm-none-eabi-gcc $options -std=c99 -O2 -Wall -Wextra -Werror -DNET_QUIET -nostartfiles -T "$boards/arm.ld" -Wl,--wrap=net_run -o "$folder/elf" \
            board.o "$folder/net.c" "$folder/net_weights.c" "$folder/net_test.c" -lm
        exits 0 qemu-system-arm -M $machine -icount shift=0 -display none -semihosting-config enable=on,target=native -kernel "$folder/elf" ;;
    esac
    says 'instructions [1-9]'; says 'exit 0'
}

. "$here/bytes_graph.sh"
exits 0 "$quern" zoo dscnn -o floats.onnx
for isa in ${arm:+armv7e-m generic} ${riscv:+rv32imac}; do on_board bytes.graph "$isa"; done
if [ -n "$arm" ]; then on_board floats.onnx armv7e-m; fi
finish
