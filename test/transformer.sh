#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# transformer.sh BUILD: examples/transformer on tiny networks: every product is tuned into one database, which the programs use; a second run
# goes on from it; wrong options.
. "$(dirname "$0")/common.sh"
top=$(dirname "$here")
cd "$dir" || exit 1
ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS # of Vulkan's driver, see denoise.sh
example=$top/examples/transformer/tune.sh
few="--build $build --out work --time 1 --bench 0.1 --candidates 2 --threads 1 --sizes --small"
devices=cpu
if "$quern" devices 2> /dev/null | grep -q '"name":"vulkan"'; then devices="cpu vulkan"
else echo "skipped: Vulkan, for which there is no device (Debian's mesa-vulkan-drivers has one)"; fi

# shellcheck disable=SC2086 # several words
exits 0 "$example" $few $devices
for device in $devices; do
    for net in bert-large-deepgen gpt2-deepgen llama2; do
        says "^$net *$device .* correct$"
        is_file "work/$net-$device.dnx"
    done
    is_file "work/$device.db"
done
# products of the three networks, each with its kernels
ls work/bert-large-deepgen > products
[ "$(wc -l < products)" -eq 5 ] || wrong "other products than five of BERT"
while read -r f; do is_file "work/cpu-$f"; grep -q '"speedup"' "work/cpu-$f" || wrong "no result for $f"; done < products
# what is known is not measured again
before=$(wc -c < work/cpu.db)
# shellcheck disable=SC2086
exits 0 "$example" $few --nets llama2 cpu; says '^llama2 *cpu .* correct$'
is_file work/cpu.db; [ "$(wc -c < work/cpu.db)" -ge "$before" ] || wrong "the database has shrunk"
exits 2 "$example" --fast; says "'--fast'"
exits 1 "$example" --build nowhere --out work2 cpu
finish
