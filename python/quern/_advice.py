# SPDX-License-Identifier: Apache-2.0
"""Advice in error messages: the name that was probably meant, and ways around types that the library does not have."""
from __future__ import annotations

import difflib
from typing import Any, Collection, Iterable


def meant(name: object, known: Iterable[object]) -> str:
    """"; did you mean 'threads'?", or nothing if no known name is similar."""
    found = difflib.get_close_matches(str(name).lower(), [str(k) for k in known], n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def check_names(what: str, given: Iterable[object], known: Collection[str]) -> None:
    """Raises TypeError for a name that is not one of the known ones. what: whose, "export()"."""
    for name in given:
        if name not in known:
            raise TypeError(f"{what} has no option {name!r}, it has {', '.join(known)}{meant(name, known)}")


def other_type(dtype: Any) -> str:
    """What to pass instead of elements of a type (of NumPy or PyTorch) that the library does not know."""
    name = str(dtype)
    if "complex" in name:
        return "pass real and imaginary parts as numbers of their own (torch.view_as_real(x), or x.real and x.imag)"
    if "qint" in name or "quint" in name:
        return "pass x.dequantize(); networks in 8 bits are made by `quern quantize` (doc/quantize.md)"
    if name == "object" or name.startswith(("<U", "|S", "str", "datetime", "timedelta")):
        return "expected an array of numbers"
    if name[:1] in "<>" and name[1:2] in "iufb":
        return "convert the order of its bytes, x.astype(x.dtype.newbyteorder('='))"
    return "convert it to one that it knows, as by x.float() or x.astype('float32')"
