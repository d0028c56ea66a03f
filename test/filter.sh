#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# filter.sh BUILD: quern filter against the definition of the operator, computed here tap by tap,
# its gradients against differences; kernels for all pixels, pictures, other element types; and
# messages for wrong arguments and mismatching files.
. "$(dirname "$0")/common.sh"
example=$dir/example
case $1 in *san*) flags=-fsanitize=address,undefined ;; *) flags= ;; esac
# shellcheck disable=SC2086 # none or one word
${CC:-cc} -std=gnu11 $flags -Iinclude -o "$example" examples/filter.c -L"$build" -lquern -Wl,-rpath,"$build" || exit 1
cd "$dir" || exit 1
code() { want=$1; shift; exits "$want" "$quern" filter "$@"; } # code CODE ARGUMENTS: of quern filter

byte() { printf "\\$(printf %03o "$1")"; }

# integers SEED COUNT LEAST MOST: one per line
integers() { awk -v s="$1" -v n="$2" -v a="$3" -v b="$4" 'BEGIN { srand(s); while (n-- > 0) print int(a + rand() * (b - a + 1)) }'; }

# npy SIZES: integers of standard input as an array of bytes, "2, 3"
npy() {
    head="{'descr': '|i1', 'fortran_order': False, 'shape': ($1), }
"
    printf '\223NUMPY\001\000'; byte ${#head}; printf '\000%s' "$head"
    # shellcheck disable=SC2059 # the bytes are the format
    printf "$(awk '{ printf "\\%03o", ($1 + 256) % 256 }')"
}
# numbers FILE COUNT: of an array of f32, one a line
numbers() { tail -c $((4 * $2)) "$1" | od -A n -v -t f4 | tr -s ' ' '\n' | sed '/^$/d'; }

# The expected result, for lists X W of numbers and sizes h, w of the map of weights; what=dx or dw: the gradient of the sum of
# products with the list DY, by differences.
cat > model.awk <<'X'
function place(p, n) { # the index of position p in n pixels; -1: none
    if (p >= 0 && p < n) return p
    if (padding == "zero") return -1
    if (padding == "replicate") return p < 0 ? 0 : n - 1
    while (p < 0 || p >= n) p = n == 1 ? 0 : p < 0 ? -p : 2 * (n - 1) - p
    return p
}
function weights(    b, p, t, at, top, sum) { # W -> V
    for (at = 0; at < nw; at++) V[at] = transform == "exp" ? exp(W[at]) : W[at]
    if (transform != "softmax") return
    for (b = 0; b < n; b++) for (p = 0; p < h * w; p++) {
        for (sum = t = 0; t < kh * kw; t++) sum += exp(W[(b * kh * kw + t) * h * w + p])
        for (t = 0; t < kh * kw; t++) V[(b * kh * kw + t) * h * w + p] = exp(W[(b * kh * kw + t) * h * w + p]) / sum
    }
}
function forward(    b, y, x, i, j, q, r, k, near, far, v) { # X, W -> Y
    weights()
    for (k = 0; k < ny; k++) Y[k] = 0
    for (k = 0; k < n * my; k++) D[k] = 0
    for (b = 0; b < n; b++) for (y = 0; y < h; y++) for (x = 0; x < w; x++) for (i = 0; i < kh; i++) for (j = 0; j < kw; j++) {
        q = place(y + i * dh - by, fh); r = place(x + j * dw - bx, fw)
        if (q < 0 || r < 0) continue
        v = V[((b * kh * kw + i * kw + j) * h + y) * w + x]
        near = y * w + x; far = q * fw + r
        for (k = b * c; k < (b + 1) * c; k++)
            if (mode == "splat") Y[k * my + far] += v * X[k * mx + near]
            else Y[k * my + near] += v * X[k * mx + far]
        D[b * my + (mode == "splat" ? far : near)] += v
    }
    for (k = 0; k < ny; k++) {
        if (normalize == "sum") Y[k] /= D[int(k / my / c) * my + k % my] + epsilon
        Y[k] += bias
    }
}
function loss(    k, sum) { forward(); for (k = 0; k < ny; k++) sum += Y[k] * DY[k]; return sum }
FILENAME == ARGV[1] { X[nx++] = $1 }
FILENAME == ARGV[2] { W[nw++] = $1 }
FILENAME == ARGV[3] { DY[nd++] = $1 }
END {
    fh = h; fw = w; by = int((kh - 1) * dh / 2); bx = int((kw - 1) * dw / 2)
    if (padding == "valid") { fh += (kh - 1) * dh; fw += (kw - 1) * dw; by = bx = 0 }
    mx = mode == "splat" ? h * w : fh * fw; my = mode == "splat" ? fh * fw : h * w; ny = n * c * my
    if (what == "y") { forward(); for (k = 0; k < ny; k++) printf "%.9g\n", Y[k] }
    if (what == "dx") for (k = 0; k < nx; k++) { v = X[k]; X[k] = v + 1; a = loss(); X[k] = v - 1; printf "%.9g\n", (a - loss()) / 2; X[k] = v }
    if (what == "dw") for (k = 0; k < nw; k++) {
        v = W[k]; W[k] = v + 1e-3; a = loss(); W[k] = v - 1e-3; printf "%.9g\n", (a - loss()) / 2e-3; W[k] = v
    }
}
X

# near FILE LIST TOLERANCE: the array holds these numbers
near() {
    n=$((n + 1))
    numbers "$1" "$(wc -l < "$2")" > got
    paste got "$2" | awk -v tol="$3" 'function abs(x) { return x < 0 ? -x : x }
        NF != 2 || !(abs($1 - $2) <= tol * (1 + abs($2))) { print "number " NR - 1 ": " $1 " instead of " $2; bad = 1 } END { exit bad || !NR }' > out ||
        wrong "$1 is not what the definition says: $case"
}

# check N C H W KHxKW DHxDW MODE PADDING TRANSFORM NORMALIZE [gradients]: random integers; H, W of the map of weights
seed=0
check() {
    case=$*; seed=$((seed + 1))
    nn=$1 c=$2 h=$3 w=$4 kh=${5%x*} kw=${5#*x} dh=${6%x*} dw=${6#*x} mode=$7 padding=$8 transform=$9
    shift 9
    normalize=$1 gradients=${2:-}
    xh=$h xw=$w yh=$h yw=$w
    if [ "$padding" = valid ]; then
        if [ "$mode" = splat ]; then yh=$((h + (kh - 1) * dh)) yw=$((w + (kw - 1) * dw)); else xh=$((h + (kh - 1) * dh)) xw=$((w + (kw - 1) * dw)); fi
    fi
    integers $seed $((nn * c * xh * xw)) -4 4 > x.txt
    integers $((seed + 1000)) $((nn * kh * kw * h * w)) 0 2 > w.txt
    integers $((seed + 2000)) $((nn * c * yh * yw)) -3 3 > dy.txt
    npy "$nn, $c, $xh, $xw" < x.txt > x.npy
    npy "$nn, $((kh * kw)), $h, $w" < w.txt > w.npy
    npy "$nn, $c, $yh, $yw" < dy.txt > dy.npy
    set -- x.npy --weights w.npy --kernel-shape "${kh}x$kw" --dilations "${dh}x$dw" --mode "$mode" --padding "$padding" --transform "$transform" \
        --normalize "$normalize" --epsilon 0.5 --bias -1.5 -o y.npy
    if [ "$gradients" ]; then set -- "$@" --grad-output dy.npy --grad-input dx.npy --grad-weights dw.npy; fi
    code 0 "$@"
    set -- -v n="$nn" -v c="$c" -v h="$h" -v w="$w" -v kh="$kh" -v kw="$kw" -v dh="$dh" -v dw="$dw" -v mode="$mode" -v padding="$padding" \
        -v transform="$transform" -v normalize="$normalize" -v epsilon=0.5 -v bias=-1.5 -f model.awk x.txt w.txt dy.txt
    awk -v what=y "$@" > want.txt; near y.npy want.txt 1e-5
    if [ "$gradients" ]; then
        awk -v what=dx "$@" > want.txt; near dx.npy want.txt 1e-4
        awk -v what=dw "$@" > want.txt; near dw.npy want.txt 1e-4
    fi
}

check 1 3 6 9 3x3 1x1 gather zero none none
check 1 3 6 9 3x3 1x1 splat zero none none
check 2 1 5 7 5x2 1x2 gather reflect none sum
check 2 4 5 7 2x5 2x1 splat reflect none none
check 1 2 4 11 3x4 1x3 gather replicate exp sum
check 1 2 3 4 4x3 3x1 splat replicate softmax none
check 2 3 4 5 3x2 2x1 gather valid softmax none
check 1 5 4 5 2x3 1x2 splat valid none sum
check 1 1 2 3 7x7 1x1 gather reflect none none
check 1 2 3 4 3x2 1x1 gather zero none none gradients
check 1 2 3 4 2x3 1x1 splat zero exp sum gradients
check 2 1 3 3 3x1 1x1 gather reflect softmax sum gradients
check 1 2 3 3 2x2 1x2 gather valid none sum gradients
check 1 2 3 3 2x2 2x1 splat valid softmax none gradients
check 1 1 2 4 3x3 1x1 splat replicate exp none gradients

# a kernel for all pixels is that at every pixel, from a list and from a file; axes of size 1 may be left out
integers 7 30 -4 4 > x.txt
npy "5, 6" < x.txt > x.npy; npy "1, 1, 5, 6" < x.txt > x4.npy
printf '%s\n' 1 -2 3 0 4 -1 > k.txt; npy "2, 3" < k.txt > k.npy
awk '{ for (p = 0; p < 30; p++) print }' k.txt | npy "6, 5, 6" > w.npy
code 0 x.npy --weights w.npy --kernel-shape 2x3 --padding reflect -o y.npy
code 0 x.npy --kernel 2x3:1,-2,3,0,4,-1 --padding reflect -o y2.npy; same y.npy y2.npy
code 0 x.npy --kernel k.npy --padding reflect -o y2.npy --threads 1; same y.npy y2.npy
code 0 x.npy --kernel k.npy --padding reflect --db f.db -o y2.npy; same y.npy y2.npy
code 0 x.npy --kernel k.npy --padding reflect --db f.db -o y2.npy; same y.npy y2.npy
code 0 x4.npy --kernel k.npy --padding reflect -o y4.npy; numbers y4.npy 30 > a; numbers y.npy 30 > b; same a b
code 0 x.npy --kernel k.npy --grad-output x4.npy --grad-weights dw.npy; code 0 x4.npy --weights w.npy --kernel-shape 2x3 --grad-output x.npy --grad-weights dw2.npy
same dw.npy dw2.npy
code 0 x.npy --kernel box:3 --padding replicate -o y.npy
code 0 x.npy --kernel 3:1,1,1,1,1,1,1,1,1 --padding replicate --normalize sum -o y2.npy
numbers y2.npy 30 > b; case=box near y.npy b 1e-6

code 0 x.npy --kernel box:3 --padding replicate --db f.db --seconds 60 --max-candidates 2 -o y2.npy; numbers y2.npy 30 > b; case=tuned near y.npy b 1e-6
code 2 x.npy --kernel box:3 --seconds 1 -o y2.npy; says '--seconds needs --db'

# a Gauss kernel, seen at a single pixel
awk 'BEGIN { for (p = 0; p < 35; p++) print p == 17 }' | npy "5, 7" > one.npy
code 0 one.npy --kernel gauss:5x7,1.25 -o y.npy
awk 'BEGIN { for (i = -2; i <= 2; i++) for (j = -3; j <= 3; j++) s += exp(-(i * i + j * j) / 3.125)
             for (i = -2; i <= 2; i++) for (j = -3; j <= 3; j++) printf "%.9g\n", exp(-(i * i + j * j) / 3.125) / s }' > want.txt
case=gauss near y.npy want.txt 1e-6

# pictures: bytes survive, channels are filtered alike, weights may be of f16
integers 9 60 0 127 > x.txt; npy "3, 4, 5" < x.txt > x.npy
code 0 x.npy --kernel 1:0.00392156863 -o x.png
code 0 x.png --kernel 1:255 -o y.npy; case=png near y.npy x.txt 1e-5
code 0 x.png --kernel 1:1 -o y.png; same x.png y.png
code 0 x.png --kernel 1:1 -o x.pfm; code 0 x.pfm --kernel 1:255 -o y.npy; case=pfm near y.npy x.txt 1e-5
integers 8 180 0 3 > w.txt; npy "9, 4, 5" < w.txt > w.npy
cat > half.graph <<'X'
graph {
  input %x: f16[9,4,5]
  %y: f16[9,4,5] = Relu(%x)
  output %y
}
X
"$quern" run half.graph -i w.npy -o w16.npy > out 2> err || wrong "weights of f16"
[ "$(wc -c < w16.npy)" -lt 700 ] || wrong "weights of f16 are none"
code 0 x.npy --weights w.npy -o y.npy; code 0 x.npy --weights w16.npy -o y2.npy; same y.npy y2.npy

# the example: with all differences forgiven it is a box, with none the picture itself
"$example" x.pfm y.pfm 1e6 > out 2> err || wrong "the example"
code 0 x.pfm --kernel box:5 --padding replicate -o y2.pfm; numbers y2.pfm 60 > want.txt; case=example near y.pfm want.txt 1e-5
"$example" x.pfm y.pfm 1e-4 > out 2> err || wrong "the example"
numbers x.pfm 60 > want.txt; case=example near y.pfm want.txt 1e-5
"$example" none.pfm y.pfm > out 2> err && wrong "the example takes what is not there"
says "none.pfm"

# arguments and files that do not fit
code 2; says 'IN.png.* is missing'
code 2 x.npy --kernel box:3; says 'no output, give -o FILE'
code 2 x.npy -o y.npy; says 'either --weights FILE or --kernel'
code 2 x.npy --kernel box:3 --weights w.npy -o y.npy; says 'either --weights FILE or --kernel'
code 2 x.npy --kernel box:3 --kernel-shape 3 -o y.npy; says 'applies to --weights only'
for k in box box: box:0 box:3x box:9999 gauss:3 gauss:3,0 gauss:3,-1 gauss:3,1,2 gauss:3,inf 3x3 3x3: 2:1,,1,1 "2:1,1,1,1," 3x:1 blur:3; do
    code 2 x.npy --kernel "$k" -o y.npy; says "'$k', expected box:K, gauss:K,SIGMA"
done
code 2 x.npy --kernel 3x3:1,2,3 -o y.npy; says '3 numbers in --kernel, expected 9 for 3x3'
code 2 x.npy --kernel gauss:2,1e-30 -o y.npy; says 'all weights of the Gauss kernel are 0'
code 1 x.npy --kernel w.npy -o y.npy; says "'w.npy' has shape (9, 4, 5), input 'kernel' needs (KH, KW)"
code 1 x.npy --kernel missing.npy -o y.npy; says "'missing.npy'"
code 1 none.png --kernel box:3 -o y.npy; says "'none.png'"
code 2 x.npy --weights w.npy --kernel-shape 3y3 -o y.npy; says "'3y3', expected K or KHxKW"
code 1 x.npy --weights w.npy --kernel-shape 2x4 -o y.npy; says "'w.npy' has shape (9, 4, 5), input 'weights' needs (8, 4, 5)"
npy "6, 4, 5" < /dev/null > six.npy; head -n 120 w.txt | npy "6, 4, 5" > six.npy
code 2 x.npy --weights six.npy -o y.npy; says "'six.npy' has 6 weights per pixel, not a square number"
code 1 y.png --weights w.npy --padding valid -o y.npy; says "input 'weights' needs (9, 2, 3)"
code 1 x.npy --weights one.npy -o y.npy; says "'one.npy' has shape (5, 7), input 'weights' needs (N, T, H, W)"
code 1 k.npy --weights w.npy -o y.npy; says "needs (9, 2, 3)"
head -n 5 k.txt | npy "5," > five.npy; code 1 five.npy --kernel box:3 -o y.npy; says "'five.npy' has shape (5), input 'x' needs (N, C, H, W)"
head -n 120 w.txt | npy "2, 3, 4, 5" > two.npy; code 1 two.npy --weights w.npy -o y.npy; says "'w.npy' has shape (9, 4, 5), input 'weights' needs (2, 9, 4, 5)"
npy "3, 0, 5" < /dev/null > none.npy; code 0 none.npy --kernel box:3 -o y.npy
code 2 none.npy --kernel box:3 --padding valid -o y.npy; says "has 0 rows, the kernel extends over 3"
code 2 x.npy --kernel 5x3:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 --padding valid -o y.npy; says "has 4 rows, the kernel extends over 5"
code 2 x.npy --kernel box:3 --mode scatter -o y.npy; says "mode is 'scatter', expected 'gather' or 'splat'"
code 2 x.npy --kernel box:3 --padding same -o y.npy; says "'zero' or 'reflect' or 'replicate' or 'valid'"
code 2 x.npy --kernel box:3 --transform log -o y.npy; says "'none' or 'exp' or 'softmax'"
code 2 x.npy --kernel box:3 --normalize max -o y.npy; says "'none' or 'sum'"
code 2 x.npy --kernel box:3 --dilations 0 -o y.npy; says "'0', expected D or DHxDW"
code 2 x.npy --kernel box:3 --epsilon -1 -o y.npy; says "'-1' is not a number"
code 2 x.npy --kernel box:3 --bias a -o y.npy; says "'a', expected numbers"
code 2 x.npy --kernel box:3 --bias 1,2 -o y.npy; says "2 numbers in --bias, 'x.npy' has 3 channels"
code 2 x.npy --kernel box:3 --bias 1e300 -o y.npy; says "'1e300', expected numbers"
code 2 x.npy --kernel box:3 --grad-input dx.npy; says 'gradients need --grad-output'
code 2 x.npy --kernel box:3 --grad-output x.npy; says 'needs --grad-input'
code 1 x.npy --kernel box:3 --grad-output one.npy --grad-input dx.npy; says "'one.npy' has shape (5, 7), input 'grad-output' needs (3, 4, 5)"
code 2 x.npy --kernel box:3 -o y.xyz; says "'y.xyz'"
code 1 x.npy --kernel box:3 -o no/such/folder.npy
code 2 x.npy --kernel box:3 -o y.npy --device nix; says "'nix'"

finish
