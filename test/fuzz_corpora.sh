#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz_corpora.sh BUILD: every parser on its corpus, test/corpus/NAME, and on changed copies of it.
set -u
for f in test/fuzz_*.c; do
    n=$(basename "$f" .c)
    [ "$n" = fuzz_main ] && continue
    echo "$n"
    "$1/test/$n" "test/corpus/${n#fuzz_}" || exit 1
done
