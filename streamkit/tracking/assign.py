# SPDX-License-Identifier: Apache-2.0
"""Linear assignment: the pairs with the greatest total gain.

The shortest augmenting path method for the assignment problem (Kuhn 1955, Munkres 1957; in the form with potentials,
O(n^2 m), of Jonker and Volgenant 1987). Pairs without a competitor, nearly all in a calm scene, are taken first, which
does not change the optimum and leaves little to solve.
"""

from __future__ import annotations

import numpy as np

from streamkit.tracking.jit import cached, compiled


@compiled
def assign(gain: np.ndarray) -> np.ndarray:
    """Return the column of each row, -1 for none.

    Args:
        gain: (n, m) float64; a pair with a gain of 0 or less is never taken.

    Returns:
        (n,) int64.
    """
    n, m = gain.shape
    column_of = np.full(n, -1, np.int64)
    wanted = np.zeros(n, np.int64)
    wanting = np.zeros(m, np.int64)
    for i in range(n):
        for j in range(m):
            if gain[i, j] > 0:
                wanted[i] += 1
                wanting[j] += 1
    rows = np.empty(n, np.int64)
    left = 0
    for i in range(n):
        if wanted[i] == 0:
            continue
        if wanted[i] == 1:
            j = _first(gain, i)
            if wanting[j] == 1:
                column_of[i] = j
                wanting[j] = 0
                continue
        rows[left] = i
        left += 1
    if left == 0:
        return column_of
    columns = np.empty(m, np.int64)
    right = 0
    for j in range(m):
        if wanting[j] > 0:
            columns[right] = j
            right += 1
    upright = left <= right
    cost = np.empty((min(left, right), max(left, right)))
    for a in range(left):
        for b in range(right):
            worth = -max(gain[rows[a], columns[b]], 0.0)
            if upright:
                cost[a, b] = worth
            else:
                cost[b, a] = worth
    of = _solve(cost)
    for c in range(len(of)):
        if cost[c, of[c]] < 0:
            a, b = (c, of[c]) if upright else (of[c], c)
            column_of[rows[a]] = columns[b]
    return column_of


@compiled
def _first(gain: np.ndarray, i: int) -> int:
    for j in range(gain.shape[1]):
        if gain[i, j] > 0:
            return j
    return -1


@compiled
def _solve(cost: np.ndarray) -> np.ndarray:
    """Solve (n, m) costs, n <= m, for the least total: a column of its own for every row.

    Row by row, find the cheapest path to a free column and reassign the rows along it. Row and column numbers count
    from 1 here, and column 0 stands for the row that is being placed.
    """
    n, m = cost.shape
    row_price = np.zeros(n + 1)
    column_price = np.zeros(m + 1)
    row_of = np.zeros(m + 1, np.int64)
    way = np.zeros(m + 1, np.int64)
    path_cost = np.empty(m + 1)
    done = np.empty(m + 1, np.bool_)
    for i in range(1, n + 1):
        row_of[0] = i
        at = 0
        path_cost.fill(np.inf)
        done.fill(False)
        while row_of[at] != 0:
            done[at] = True
            row = row_of[at]
            step = np.inf
            following = 0
            for j in range(1, m + 1):
                if done[j]:
                    continue
                reduced = cost[row - 1, j - 1] - row_price[row] - column_price[j]
                if reduced < path_cost[j]:
                    path_cost[j] = reduced
                    way[j] = at
                if path_cost[j] < step:
                    step = path_cost[j]
                    following = j
            for j in range(m + 1):
                if done[j]:
                    row_price[row_of[j]] += step
                    column_price[j] -= step
                else:
                    path_cost[j] -= step
            at = following
        while at != 0:
            row_of[at] = row_of[way[at]]
            at = way[at]
    column_of = np.empty(n, np.int64)
    for j in range(1, m + 1):
        if row_of[j] != 0:
            column_of[row_of[j] - 1] = j - 1
    return column_of


@cached
def best_pairs(gain: np.ndarray) -> np.ndarray:
    """`assign`, for calls from Python."""
    return assign(gain)
