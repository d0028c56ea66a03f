#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_types.sh BUILD: the type hints of the Python package (mypy --strict), and of a program that uses it rightly and wrongly. Needs mypy, of
# $MYPY, the path, or Debian's.
. "$(dirname "$0")/common.sh"
cd "$dir" || exit 1
top=$(dirname "$here")
mypy=${MYPY:-mypy}
command -v "$mypy" > /dev/null || { echo "skipped: no mypy (Debian: mypy; or MYPY, the path of one in a virtual environment)"; exit 77; }
export MYPYPATH="$top/python" MYPY_CACHE_DIR="$build/python/mypy"
mkdir -p "$build/python"

# By the oldest Python that the package is for: nothing of a later library is used. Later versions of mypy, and of numpy's hints, do not know it any more.
oldest=$(sed -n 's/^requires-python = ">=\(.*\)"$/\1/p' "$top/python/pyproject.toml")
"$mypy" --python-version "$oldest" -c 'import numpy' > /dev/null 2>&1 ||
    { echo "skipped: Python $oldest, which this mypy or numpy does not know"; oldest=; }
exits 0 "$mypy" ${oldest:+--python-version "$oldest"} --strict --config-file "$top/python/pyproject.toml" -p quern
cat > right.py <<'X'
from typing import Any, Dict, Tuple, Union
import quern
net: quern.Program = quern.compile("net.onnx", sizes={"H": 3}, isa=["x86-64-v3"], assume={"B": 1, "S": "1..4"})
quern.tune(b"graph {}", "net.db", seconds=1, progress=lambda event: None)
shapes: Dict[str, Tuple[Union[int, str], ...]] = net.output_shapes
median: float = net.bench(seconds=0.5).median
layer: str = net.profile()[0]["layer"]
assert net.verify().ok and net.verify()[0].max_abs < 1
text: str = net.explain()
y: Any = net(1, x=2)
conv = quern.Operator("Conv", {"pads": [1, 1], "auto_pad": "NOTSET"}, sizes="N:?")
state = net.state(4, {"batch": 2}).fork()
length: int = len(state)
try:
    quern.load("net.dnx", threads=2)
except quern.Error as e:
    status: str = e.status
X
exits 0 "$mypy" --strict --config-file "$top/python/pyproject.toml" right.py
cat > wrong.py <<'X'
import quern
quern.compile("net.onnx", thread=1)
quern.compile("net.onnx", sizes=[3])
quern.load("net.dnx").bench().middle
net: str = quern.load("net.dnx")
quern.Operator(3)
X
exits 1 "$mypy" --strict --config-file "$top/python/pyproject.toml" wrong.py
says 'Found 5 errors in 1 file'
finish
