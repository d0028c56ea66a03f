# SPDX-License-Identifier: Apache-2.0
#
# Attention: the rows of bench/compare, as plain data like those of rows.py. Operands and files:
# attention_forms.py.
from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    """heads of (queries, size) attend to (keys, size); each group of heads / groups heads has keys
    and values of its own. causal: a query sees as many keys as it has predecessors, and its own;
    one query alone sees all."""

    name: str
    queries: int
    keys: int
    heads: int
    groups: int
    size: int
    causal: bool = False

    kind = "attention"

    @property
    def pairs(self):
        """Queries and keys that meet, of one head."""
        return self.queries * (self.queries + 1) // 2 if self.causal else self.queries * self.keys

    @property
    def flops(self):
        """Those of the two products."""
        return 4.0 * self.heads * self.pairs * self.size

    @property
    def bytes(self):
        return 8.0 * self.size * (self.heads * self.queries + self.groups * self.keys)

    @property
    def scores(self):
        """Bytes, if they are kept."""
        return 4 * self.heads * self.queries * self.keys

    def describe(self):
        text = "%d quer%s, %d keys, %d heads of %d" % (
            self.queries, "y" if self.queries == 1 else "ies", self.keys, self.heads, self.size,
        )  # fmt: skip
        text += ", %d share keys" % (self.heads // self.groups) if self.groups < self.heads else ""
        return text + ", causal" * self.causal


# Heads, heads of keys, size of a head.
SHAPES = ((8, 8, 64), (16, 16, 64), (32, 8, 64), (32, 32, 128), (32, 4, 128))


def rows():
    """Prompts of several lengths, causal and (of one shape) not; then single tokens behind many."""
    def name(what, n, heads, groups, size):
        return "%s %d, %dx%d" % (what, n, heads, size) + (" by %d" % (heads // groups)) * (groups < heads)

    whole = (16, 16, 64)
    found = [Attention(name("whole", n, *whole), n, n, *whole) for n in (128, 512, 2048)]
    found += [Attention(name("causal", n, *s), n, n, *s, True) for n in (128, 512, 2048) for s in SHAPES]
    found.append(Attention(name("causal", 16384, *SHAPES[0]), 16384, 16384, *SHAPES[0], True))
    found += [Attention(name("token", n, *s), 1, n, *s) for n in (128, 1024, 8192, 32768) for s in SHAPES]
    return found
