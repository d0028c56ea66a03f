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
    """95 % of the median: the ranks between which it lies by the binomial distribution. With fewer
    than six values these are the least and the greatest, which is less than 95 %."""
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
    """How many times as fast as the reference: the median of the rounds' ratios, and its interval.
    What slows a whole round down cancels."""
    r = [a / b for a, b in zip(reference, x)]
    return (median(r), *interval(r))


def geomean(x):
    return math.exp(sum(map(math.log, x)) / len(x))
