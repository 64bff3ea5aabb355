# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far two attention results are apart, and the bars of docs/numerics.md.

One definition of cosine, relative error and lse error for the checker, the
property tests and the tables.
"""

from __future__ import annotations

import numpy as np

# docs/numerics.md, Tolerances: (relative error, lse error, lse error relative).
SPARSE = {"f16": (2e-3, 2e-3, 1e-6), "bf16": (1e-2, 2e-3, 1e-6)}
DENSE = {"f16": (5e-3, 5e-3, 0.0), "bf16": (2e-2, 5e-3, 0.0)}

# At two bits q * s may be rounded to 11 bits (attend_c1). On heads with very
# large products that alone moves lse by more than the bar above: of ten layers
# of a real trace by up to 0.063 of the bar on f, and o by 0.019 of it. These
# shares of the bar on f are therefore granted on top.
LSE_SHARE, O_SHARE = 1 / 8, 1 / 32


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """norm(got - want) / norm(want) over everything handed in."""
    size = float(np.linalg.norm(want))
    gap = float(np.linalg.norm(got.astype(np.float64) - want))
    return gap / size if size else (0.0 if gap == 0 else np.inf)


def cosines(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Cosine similarity per output vector [..., Dv]; 1 where both are zero."""
    got = got.astype(np.float64)
    sizes = np.linalg.norm(got, axis=-1) * np.linalg.norm(want, axis=-1)
    dots = (got * want).sum(axis=-1)
    return np.where(sizes > 0, dots / np.where(sizes > 0, sizes, 1), 1.0)


def lse_errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """abs(got - want), 0 where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        return np.where(got == want, 0.0, np.abs(got.astype(np.float64) - want))


def disagreement(got_o: np.ndarray, got_lse: np.ndarray, want_o: np.ndarray,
                 want_lse: np.ndarray, bars: tuple[float, float, float],
                 score_bar: np.ndarray | None = None) -> str | None:
    """Says what is wrong with o [B, Hq, Dv] and lse [B, Hq], or None. A number
    that is not finite must not be finite in the other either (of which kind
    depends on the order of sums); the finite rest is held to the bars, o as one
    vector per sequence. `score_bar` [B, Hq] is that of f where q * s may be
    rounded to 11 bits."""
    if got_o.shape != want_o.shape or got_lse.shape != want_lse.shape:
        return f"shapes {got_o.shape}, {got_lse.shape}; expected {want_o.shape}, {want_lse.shape}"
    empty = want_lse == -np.inf  # attend_c3
    if (got_lse[empty] != -np.inf).any() or (got_o[empty] != 0).any():
        return "o = 0, lse = -inf expected of a sequence without tokens"
    finite = np.isfinite(want_o)
    if (np.isfinite(got_o) != finite).any():
        at = tuple(np.argwhere(np.isfinite(got_o) != finite)[0])
        return f"o{[int(i) for i in at]} is {got_o[at]}, expected {want_o[at]}"
    relative, absolute, scaled = bars
    for b in range(len(want_o)):
        error = relative_error(np.where(finite[b], got_o[b], 0), np.where(finite[b], want_o[b], 0))
        bound = relative + (0 if score_bar is None else O_SHARE * score_bar[b].max())
        if error > bound:
            return f"o[{b}] has relative error {error:.2e} > {bound:.1e}"
    known = np.isfinite(want_lse)
    if (np.isfinite(got_lse) != known).any():
        return "lse is finite where the reference is not, or the other way round"
    error = lse_errors(np.where(known, got_lse, 0), np.where(known, want_lse, 0))
    bound = absolute + scaled * np.abs(np.where(known, want_lse, 0))
    if score_bar is not None:
        bound = bound + LSE_SHARE * score_bar
    if (error > bound).any():
        at = np.unravel_index(np.argmax(error - bound), error.shape)
        return f"lse{[int(i) for i in at]} is off by {error[at]:.2e} > {bound[at]:.1e}"
    return None


def skipped_disagreement(got: np.ndarray | None, bounds: tuple[np.ndarray, np.ndarray],
                         shift: np.ndarray) -> str | None:
    """Says what is wrong with skipped_lse [B, Hq], or None: between its bounds
    (cert_c3) but for rounding, -inf exactly where nothing is skipped."""
    least, most = bounds
    if got is None or got.shape != least.shape:
        return f"skipped_lse has shape {None if got is None else got.shape}, expected {least.shape}"
    empty = np.isneginf(least)
    if (np.isneginf(got) != empty).any() or not np.isfinite(got[~empty]).all():
        at = tuple(np.argwhere((np.isneginf(got) != empty) | np.isnan(got))[0])
        return f"skipped_lse{[int(i) for i in at]} is {got[at]}, expected {least[at]}"
    least, most, got = (np.where(empty, 0, x) for x in (least, most, got))
    slack = 2e-3 + 1e-6 * np.abs(most) + 1e-6 * np.abs(shift)
    wrong = (got < least - slack) | (got > most + slack)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        return (f"skipped_lse{[int(i) for i in at]} is {got[at]}, expected {least[at]} to "
                f"{most[at]}")
    return None
