# SPDX-License-Identifier: Apache-2.0
#
# Medians and ratios of times measured in rounds, with 95 % confidence intervals by order
# statistics, without assumptions about the distribution of times.
import math


def median(x):
    x = sorted(x)
    n = len(x)
    return (x[(n - 1) // 2] + x[n // 2]) / 2


def interval(x):
    """95 % confidence interval of the median, by the binomial distribution of ranks. With fewer
    than six values: the minimum and the maximum, which is less than 95 %."""
    x = sorted(x)
    n, below, k = len(x), 0.0, 0
    while k < n // 2:
        below += math.comb(n, k) / 2**n
        if below > 0.025:
            break
        k += 1
    k = max(0, k - 1)
    return x[k], x[n - 1 - k]


def ratio(reference, x):
    """Speed-up over the reference: the median of the rounds' ratios, and its interval. A slowdown
    of a whole round cancels."""
    r = [a / b for a, b in zip(reference, x)]
    return (median(r), *interval(r))


def geomean(x):
    return math.exp(sum(map(math.log, x)) / len(x))
