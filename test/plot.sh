#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plot.sh BUILD: plots of the files in corpus/plot: every picture, the same bytes again, fewer files, pictures of an earlier run removed;
# medians and intervals as the library computes them; wrong files, named with line and column.
. "$(dirname "$0")/common.sh"
python=python3
"$python" -c 'import matplotlib' 2> /dev/null || python=/usr/bin/python3
if ! "$python" -c 'import matplotlib' 2> /dev/null; then echo "skipped: no matplotlib (tool/deps plot)"; exit 77; fi
cd "$dir" || exit 1
plot() { want=$1; shift; exits "$want" "$quern" plot "$@"; }
fresh() { rm -rf run; cp -r "$here/corpus/plot" run; }
wrong_file() { fresh; sed "$2" "$here/corpus/plot/$1" > "run/$1"; plot 1 run; says "$3"; } # FILE EDIT MESSAGE

fresh; plot 0 run
for name in violin split medians roofline breakdown; do
    is_file run/$name.svg; is_file run/$name.png
done
grep -q 'oneDNN 3.2' run/split.svg || wrong "no name of the baseline"
grep -q 'L5' run/roofline.svg || wrong "no label of a layer"
cp -r run first; plot 0 run; same first run

rm run/samples.csv run/breakdown.csv; plot 0 run
is_file run/roofline.svg
[ ! -e run/violin.svg ] && [ ! -e run/breakdown.png ] || wrong "pictures without data"
rm run/*.csv; plot 3 run; says 'has no samples.csv'

wrong_file samples.csv '1s/iteration/rounds/; 1s/,ms/,s/' "line 1: column 'ms' is missing"
wrong_file samples.csv '3s/,[^,]*$/,-2/' "line 3: column 'ms': expected a number above 0, found '-2'"
wrong_file samples.csv '3s/,[^,]*$/,nan/' "found 'nan'"
wrong_file samples.csv '4s/,[^,]*$//' "line 4: expected 5 columns"
wrong_file roofline.csv '2s/,[^,]*$/,x/' "roofline.csv': line 2: column 'seconds'"
wrong_file ceilings.csv '2s/,[^,]*$/,0/' "ceilings.csv': line 2: column 'value'"
wrong_file breakdown.csv '2s/,[^,]*$/,-1/' "expected a number from 0"

# Statistics of the script: those of src/tune/stats.c, and properties of densities.
cat > check.py << 'EOF'
import random, runpy, sys
p = runpy.run_path(sys.argv[1])
r = random.Random(1)
assert p["interval"]([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
assert p["interval"](list(range(100))) == (49.5, 40, 59)
assert abs(p["bandwidth"]([1, 1.5, 2, 2.5, 3]) - 0.9 / 1.34 * 5 ** -0.2) < 1e-12
for _ in range(100):
    v = [10 + r.gauss(0, 1) + 50 * (r.random() < 0.05) for _ in range(r.randint(2, 60))]
    at, d, outliers = p["density"](v)
    assert max(d) == 1 and min(d) >= 0 and at[0] >= min(v) and sum(at[0] <= x <= at[-1] for x in v) + outliers == len(v)
    scaled = p["density"]([5 + 0.1 * x for x in v])[1]
    assert all(abs(a - b) < 1e-6 for a, b in zip(d, scaled))
assert p["density"]([0.25] * 3)[0] == [0.25, 0.25]
EOF
n=$((n + 1)); "$python" check.py "$here/../src/lab/plot.py" > out 2> err || wrong "statistics of the script"
finish
