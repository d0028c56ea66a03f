# SPDX-License-Identifier: Apache-2.0
#
# A library in a process of its own answers lines of JSON on standard input (bench/worker.py): "do"
# names a method of the engine, which gets the line and returns the answer.
import json
import os
import sys


def serve(open_engine):
    """The engine is opened by the first line; what fails is an answer with the reason."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    engine = None
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            engine = engine or open_engine()
            answer = getattr(engine, ask["do"])(ask)
        except Exception as e:  # of any library: the row says so
            answer = {"error": str(e) or type(e).__name__}
        print(json.dumps(answer), file=answers, flush=True)
