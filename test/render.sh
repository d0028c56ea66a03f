#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# render.sh BUILD: examples/denoise renders the same bytes with any number of threads, other noise
# in another pass, other scenes for other numbers, feature images besides the colour, and converges
# with more samples; wrong arguments are refused.
. "$(dirname "$0")/common.sh"
flags=
case $1 in *san*) flags=-fsanitize=address,undefined ;; esac
example() { # NAME SOURCE...
    to=$dir/$1; shift
    ${CC:-cc} -O2 -std=gnu11 -ffp-contract=off -Wall -Wextra -Werror $flags -Iinclude -o "$to" "$@" -L"$build" -lquern \
        -Wl,-rpath,"$build" -lm -lpthread || fail "$to is not built"
}
example render examples/denoise/*.c
example psnr examples/psnr.c
cd "$dir" || exit 1
render() { ./render "$@" || fail "render $*"; }

# The box and one random scene of each kind of place among the first numbers.
for scene in 0 1 2 3 4 5; do
    render --scene $scene --threads 1 one.npy 21 13 2
    render --scene $scene --threads 3 three.npy 21 13 2
    for plane in "" .albedo .normal .depth; do
        cmp one$plane.npy three$plane.npy || fail "scene $scene depends on threads"
        cmp -s one$plane.npy "last$plane.npy" && fail "scenes $scene and the one before are the same"
        mv three$plane.npy "last$plane.npy"
    done
    render --scene $scene --pass 1 other.npy 21 13 2
    cmp -s one.npy other.npy && fail "passes are the same in scene $scene"
    # Of other random numbers with more samples, the picture is nearer to one of many samples.
    render --scene $scene --pass 2 many.png 21 13 128
    render --scene $scene --pass 3 few.png 21 13 1
    render --scene $scene --pass 4 more.png 21 13 64
    few=$(./psnr few.png many.png) more=$(./psnr more.png many.png)
    awk "BEGIN {exit !($more > $few + 3)}" || fail "scene $scene: $few dB with 1 sample, $more dB with 64"
done

# Shapes in the header; colour alone where that is asked for.
head -c 120 one.npy | grep -a -q '(1, 3, 13, 21)' || fail "the shape of colour"
head -c 120 last.depth.npy | grep -a -q '(1, 1, 13, 21)' || fail "the shape of depth"
render --only-colour alone.pfm 5 4 1
[ -s alone.pfm ] && ! [ -e alone.depth.pfm ] || fail "colour alone"

for wrong in "a.png 0 4 1" "a.png 4 4" "a 4 4 1" "--scene x a.png 4 4 1" "--threads 0 a.png 4 4 1" "--size 3 a.png 4 4 1" "a.png 4 99999999 1" \
    "--scene"; do
    ./render $wrong 2> err
    [ $? -eq 2 ] && grep -q usage err || fail "not refused: $wrong"
done
./render no/folder/a.png 4 4 1 2> err
[ $? -eq 1 ] && grep -q folder err || fail "not said: no folder"
echo passed
