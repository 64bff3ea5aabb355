# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The float64 reference of FFD: slow, obvious, and the oracle for every target.

Written straight from docs/numerics.md, one function per section, with the
numbers of the constraints beside the lines that keep them. What the page fixes
to the bit (codes, scales, integer scores, thresholds, kept sets) is computed
with exactly those roundings; scores, outputs and lse are float64.

Arrays are float32 holding values of the element type. R counts rows that share
K and have the same number of committed blocks (say, the queries of a trace),
n committed blocks, G query heads of the group, or of those of all query tokens
that ask at once, one token after the other. The kernels' loops over
sequences and kv heads are in `decode`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elements import Element, F16, floor_log2, fma_f32, round_f16

LIMIT = 1 << 30  # select_c1 to select_c3: the range of thresholds
SMALLEST = np.float32(2.0 ** -100)  # split_c2, query_c2


@dataclass(frozen=True)
class Spec:
    """One specialisation and its run-time parameters."""

    element: Element = F16
    scan_bits: int = 2
    quant_block: int = 128
    select_block: int = 16
    lag: int = 0
    delta: float = 5.0
    sm_scale: float | None = None  # 1 / sqrt(D), rounded once to f32
    selector: str = "top_delta"  # or "top_k", "top_p", "all"
    parameter: float = 0  # k of top_k, p of top_p
    residual_bits: int = 8  # or 0: attention over the thumbnails alone
    centre: str = "none"  # or "row": keys relative to the mean of block 0
    pseudo_max: str = "scan"  # or "refined", of top_delta
    certificate: str = "none"  # or "plain", "noise", of top_delta

    @property
    def scans_keys(self) -> bool:
        """scan_bits = 16: K is not split at all."""
        return self.scan_bits == 16

    @property
    def levels(self) -> np.float32:
        """L: codes run from -L to L. Keys that are not split have scales all the
        same, for the unit of their scores (split_c8)."""
        return np.float32(1 if self.scans_keys else (2 ** self.scan_bits - 1) / 2)

    def scale(self, head_dim: int) -> np.float32:
        return np.float32(self.sm_scale if self.sm_scale is not None
                          else 1 / math.sqrt(head_dim))

    def committed(self, length: int) -> int:
        """n: the quantisation blocks whose K is split."""
        return max(0, length - self.lag) // self.quant_block


# --- Centred keys -----------------------------------------------------------

def centre_of(k: np.ndarray, spec: Spec) -> np.ndarray:
    """centre_c1: c [D] of the keys k [T, D] of a row with a committed block."""
    p = np.zeros((8, k.shape[-1]), np.float32)
    with np.errstate(all="ignore"):
        for t in range(0, spec.quant_block, 8):
            p = p + k[t:t + 8]
        for width in (4, 2, 1):
            p = p[:width] + p[width:2 * width]
        mean = spec.element.round(p[0] / np.float32(spec.quant_block))
    return np.where(np.isfinite(mean), mean, np.float32(0))


def centred(k: np.ndarray, c: np.ndarray, spec: Spec) -> np.ndarray:
    """centre_c3: d of k [T, D]."""
    with np.errstate(all="ignore"):
        return spec.element.round(k - c)


# --- Split of committed blocks of K -----------------------------------------

@dataclass
class Split:
    """n blocks of one kv head: scales [n, D] and codes x [n, QB, D], which are the
    keys themselves where they are not split."""

    scales: np.ndarray
    x: np.ndarray
    spec: Spec

    @property
    def thumbnails(self) -> np.ndarray:  # split_c5
        return self.x >> 8

    @property
    def residuals(self) -> np.ndarray:  # split_c5
        return self.x & 255

    def first(self, blocks: int) -> Split:
        return Split(self.scales[:blocks], self.x[:blocks], self.spec)

    def smax(self) -> np.ndarray:
        """split_c6: [D]; np.maximum lets NaN through."""
        return np.maximum.reduce(self.scales, axis=0, initial=0)

    def keys(self) -> np.ndarray:
        """k~ in float64, [n * QB, D]; attend_c1 is its product with q."""
        if self.spec.scans_keys:
            return self.x.astype(np.float64).reshape(-1, self.x.shape[-1])
        value = self.thumbnails - float(self.spec.levels)
        if self.spec.residual_bits:
            value = value + (self.residuals - 127.5) / 256
        return (self.scales[:, None].astype(np.float64) * value).reshape(-1, self.x.shape[-1])


def split(k: np.ndarray, spec: Spec) -> Split:
    """K [n * QB, D] of committed blocks -> thumbnails, residuals and scales."""
    blocks = k.reshape(-1, spec.quant_block, k.shape[-1])
    bits, levels = spec.scan_bits, spec.levels
    with np.errstate(all="ignore"):
        amax = np.max(np.abs(blocks), axis=1)  # split_c1, NaN propagates
        s = spec.element.round(amax / levels)  # split_c1
        if spec.element.name == "bf16":
            s[s < SMALLEST] = 0  # split_c2
        s[~np.isfinite(amax)] = np.nan  # split_c3
        if spec.scans_keys:
            return Split(s, blocks, spec)  # split_c8
        inv = np.where(s == 0, np.float32(0), np.float32(1) / s)  # split_c4
        wide = fma_f32(blocks, (inv * np.float32(256))[:, None], np.float32(2 ** (bits + 7)))
        x = np.clip(np.floor(wide), 0, 2 ** (bits + 8) - 1)  # split_c4
        x = np.where(np.isnan(s)[:, None], np.float32(0), x)  # split_c3
    return Split(s, x.astype(np.int32), spec)


# --- The query of a row -----------------------------------------------------

@dataclass
class Query:
    """What the scan needs of the queries of R rows."""

    k: int  # query_c1
    m: np.ndarray  # [R, G], query_c2
    e: np.ndarray  # [R, G], query_c3
    qh: np.ndarray  # [R, G, D] f16 values, query_c3
    F: np.ndarray  # [R, G], query_c4
    nonfinite: np.ndarray  # [R], query_c5


def to_scan_scales(s: np.ndarray, k: int, spec: Spec) -> np.ndarray:
    """query_c1: scales -> the f16 numbers s'."""
    return s if spec.element.name == "f16" else round_f16(np.ldexp(s, -k))


def prepare_query(q: np.ndarray, smax: np.ndarray, spec: Spec) -> Query:
    """q [R, G, D] against the largest scales [D] of its row."""
    with np.errstate(all="ignore"):
        k = 0
        if spec.element.name == "bf16":  # query_c1
            k = int(np.clip(floor_log2(np.max(smax)), -126, 126))
        scan_max = to_scan_scales(smax, k, spec)
        m = np.max(np.abs(q) * scan_max, axis=-1)  # query_c2
        m = np.where(m < SMALLEST, np.float32(0), m)
        inv = np.where(m == 0, np.float32(0), np.float32(126) / m)
        scaled = q * inv[..., None]  # f32(q * inv), query_c3
        used = scan_max != 0
        A = np.max(np.where(used, np.abs(scaled), np.float32(0)), axis=-1)
        e = np.where(A == 0, 0, np.clip(floor_log2(A) - 14, 0, 15))
        qh = np.where(used, round_f16(np.ldexp(scaled, -e[..., None])), np.float32(0))
        F = np.ldexp(m / np.float32(126), k)  # query_c4, left to right
        F = F * spec.scale(q.shape[-1]) * np.float32(2.0 ** -8)
        nonfinite = ~np.isfinite(m).all(axis=-1)  # query_c5
    return Query(k, m, e, qh, F, nonfinite)


# --- Scan -------------------------------------------------------------------

def fold(query: Query, scales: np.ndarray, spec: Spec) -> np.ndarray:
    """scan_c1: Q [R, G, n, D] of blocks with `scales` [n, D]; 0 where numbers are
    not finite."""
    s = to_scan_scales(scales, query.k, spec)
    with np.errstate(all="ignore"):
        product = round_f16(query.qh[:, :, None] * s)
        y = np.ldexp(product, query.e[:, :, None, None])
        hi = np.rint(y)  # ties to even
        lo = np.rint(np.float32(128) * (y - hi))
        Q = np.float32(128) * hi + lo
    return np.where(np.isfinite(Q), Q, np.float32(0))


def to_units(f: np.ndarray, F: np.ndarray) -> np.ndarray:
    """Scores in whole scan units, as integers: select_c1, scan_c3. NaN is the
    least of them (select_c3 decides)."""
    with np.errstate(all="ignore"):
        units = np.floor(f / F)
    units = np.where(np.isnan(units), np.float32(-LIMIT), units)
    return np.clip(units, -LIMIT, LIMIT).astype(np.int64)


def scan(query: Query, parts: Split, q: np.ndarray) -> np.ndarray:
    """a_int [R, G, n * QB] for queries q [R, G, D]: exact integers; zeros where
    numbers are not finite (such a row keeps everything, select_c3)."""
    spec = parts.spec
    if spec.scans_keys:  # scan_c3
        f = tail_scores(q, parts.x.reshape(-1, q.shape[-1]), spec.scale(q.shape[-1]))
        a = to_units(f, query.F[..., None]).astype(np.int32)
        return np.where(query.nonfinite[:, None, None], np.int32(0), a)
    Q = fold(query, parts.scales, spec)
    # scan_c2. Sums stay below 2^30: float64 adds them exactly, and at two bits
    # they stay below 2^24, where float32 does.
    exact = np.float32 if spec.scan_bits == 2 else np.float64
    weights = (2 * parts.thumbnails - (2 ** spec.scan_bits - 1)).astype(exact)
    R, G, n, D = Q.shape
    left = Q.astype(exact).transpose(2, 0, 1, 3).reshape(n, R * G, D)
    a = left @ weights.transpose(0, 2, 1)  # [n, R * G, QB]
    return a.transpose(1, 0, 2).reshape(R, G, -1).astype(np.int32)


def refine_ends(query: Query, parts: Split, a_int: np.ndarray) -> np.ndarray | None:
    """select_c5: refined scores [R, G, 2 * QB] of the first and the last block, in
    whole scan units; None if the pseudo-max is not refined or there are none."""
    spec = parts.spec
    if spec.pseudo_max != "refined" or not len(parts.scales):
        return None
    QB = spec.quant_block
    ends = [0, len(parts.scales) - 1]
    Q = fold(query, parts.scales[ends], spec).astype(np.int64)  # [R, G, 2, D]
    weights = 2 * parts.residuals[ends].astype(np.int64) - 255
    r_int = np.einsum("rgnd,ntd->rgnt", Q, weights)
    coarse = np.stack((a_int[..., :QB], a_int[..., -QB:]), axis=2).astype(np.int64)
    return (coarse + (r_int >> 8)).reshape(*a_int.shape[:2], -1)


# --- Tail scores ------------------------------------------------------------

def tail_scores(q: np.ndarray, k: np.ndarray, sm_scale: np.float32) -> np.ndarray:
    """tail_c1: q [R, G, D], k [t, D] -> f [R, G, t], float32 in the fixed order."""
    lanes = q.shape[-1] // 16
    q = q.reshape(*q.shape[:2], 1, lanes, 16)
    k = k.reshape(len(k), lanes, 16)
    p = np.zeros((*q.shape[:2], len(k), 16), np.float32)
    with np.errstate(all="ignore"):
        for j in range(lanes):  # channels i + 16 * j
            p = fma_f32(q[..., j, :], k[:, j, :], p)
        for width in (8, 4, 2, 1):
            p = p[..., :width] + p[..., width:2 * width]
        return sm_scale * p[..., 0]


# --- Pseudo-max, threshold and selection ------------------------------------

@dataclass
class Scores:
    """Everything selection looks at, for R rows with n committed blocks."""

    query: Query
    a_int: np.ndarray  # [R, G, n * QB]
    tail: np.ndarray  # [R, G, t]; -inf beyond a row's length
    tail_lengths: np.ndarray  # [R], or [R, G] where heads see different tails
    spec: Spec
    ends: np.ndarray | None = None  # [R, G, 2 * QB], select_c5


def per_head(numbers: np.ndarray) -> np.ndarray:
    """[R] or [R, G] -> what broadcasts with [R, G]."""
    return numbers[:, None] if numbers.ndim == 1 else numbers


def pseudo_max(scores: Scores) -> np.ndarray:
    """select_c1: pm [R, G]."""
    QB, a = scores.spec.quant_block, scores.a_int
    F = scores.query.F
    pm = np.full(F.shape, -LIMIT, np.int64)
    if a.shape[-1]:
        ends = scores.ends  # select_c5
        if ends is None:
            ends = np.concatenate((a[..., :QB], a[..., -QB:]), axis=-1)
        pm = np.maximum(pm, ends.max(axis=-1))
    if scores.tail.shape[-1]:
        units = to_units(scores.tail.max(axis=-1), F)
        present = per_head(scores.tail_lengths) > 0
        pm = np.where(present, np.maximum(pm, units), pm)
    return pm


def thresholds(scores: Scores, delta: float) -> np.ndarray:
    """thr [R, G]."""
    query = scores.query
    delta = np.float32(delta)
    with np.errstate(all="ignore"):
        units = delta / query.F  # select_c2
        usable = units < np.float32(LIMIT)  # select_c3; false for NaN
        d = np.ceil(np.where(usable, units, np.float32(0)))
    thr = np.clip(pseudo_max(scores) - d.astype(np.int64), -LIMIT, LIMIT)
    beyond = np.arange(scores.tail.shape[-1]) >= per_head(scores.tail_lengths)[..., None]
    bad_tail = ~(np.isfinite(scores.tail) | beyond).all(axis=(1, 2))
    everything = ~usable | ~np.isfinite(query.F) | ~(delta >= 0)
    everything |= (query.nonfinite | bad_tail)[:, None]
    return np.where(everything, -LIMIT, thr)  # select_c3


def select(scores: Scores, spec: Spec | None = None) -> np.ndarray:
    """kept [R, blocks], one per selection block of the committed tokens."""
    spec = spec or scores.spec
    a = scores.a_int.reshape(*scores.a_int.shape[:2], -1, spec.select_block)
    R, G, blocks = a.shape[:3]
    if spec.selector == "all" or blocks == 0:
        return np.ones((R, blocks), bool)
    if spec.selector == "top_delta":
        thr = thresholds(scores, spec.delta)
        kept = (a.max(axis=-1) >= thr[..., None]).any(axis=1)  # select_c4
        if spec.pseudo_max == "refined":
            kept[:, 0] = kept[:, -1] = True  # select_c6
        return kept
    # Ablations, on a = F * a_int and its maximum w over heads and tokens.
    F = np.where(np.isfinite(scores.query.F), scores.query.F, np.float32(0))
    approx = F[..., None, None] * a.astype(np.float32)
    w = approx.max(axis=(1, 3))
    order = np.argsort(-w, axis=-1, kind="stable")  # ties to the lower block
    if spec.selector == "top_k":
        count = np.full(R, min(int(spec.parameter), blocks))
    elif spec.selector == "top_p":
        with np.errstate(all="ignore"):
            wide = approx.astype(np.float64)
            mass = np.exp(wide - wide.max(axis=(1, 2, 3), keepdims=True)).sum(axis=(1, 3))
            share = np.cumsum(np.take_along_axis(mass, order, axis=-1), axis=-1)
            reached = share / share[:, -1:] >= spec.parameter
        count = np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1, blocks)
        if spec.parameter == 1:
            count = np.full(R, blocks)
    else:
        raise ValueError(f"unknown selector {spec.selector}")
    kept = np.zeros((R, blocks), bool)
    np.put_along_axis(kept, order, np.arange(blocks) < count[:, None], axis=-1)
    kept[~np.isfinite(scores.query.F).all(axis=-1)] = True
    kept[scores.query.nonfinite] = True  # query_c5
    return kept


def skipped_mass(scores: Scores, parts: Split, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cert_c1 to cert_c3: the least and the largest skipped_lse [R, G] for kept
    [R, blocks]; what centre_c4 adds is not in them."""
    spec, query = scores.spec, scores.query
    skipped = ~np.repeat(kept, spec.select_block, axis=-1)[:, None]  # [R, 1, T]
    with np.errstate(all="ignore"):
        F = query.F.astype(np.float64)[..., None]
        a = F * scores.a_int
        if spec.certificate == "noise":  # cert_c2
            Q = fold(query, parts.scales, spec).astype(np.float64)
            a = a - np.repeat(F ** 2 / 6 * (Q ** 2).sum(axis=-1), spec.quant_block, axis=-1)
        a = np.where(skipped, a, -np.inf)
        top = a.max(axis=-1, initial=-np.inf)
        none = np.isneginf(top)
        total = np.where(skipped, np.exp(a - np.where(none, 0, top)[..., None]), 0).sum(axis=-1)
        least = np.where(none, -np.inf, top + np.log(total))
        floor = np.log(skipped.sum(axis=-1)) - 126 * np.log(2)  # cert_c3
        floor = floor + F[..., 0] * thresholds(scores, spec.delta)
        return least, np.where(none, -np.inf, np.logaddexp(least, floor))


def top_p_margin(scores: Scores, spec: Spec) -> float:
    """How near the mass of any number of blocks comes to the share p of
    #ffd.top_p: nearer than 1e-5 the set may differ by a block."""
    a = scores.a_int.reshape(*scores.a_int.shape[:2], -1, spec.select_block)
    if a.shape[2] == 0:
        return 1.0
    with np.errstate(all="ignore"):
        wide = (scores.query.F[..., None, None] * a.astype(np.float32)).astype(np.float64)
        mass = np.exp(wide - wide.max(axis=(1, 2, 3), keepdims=True)).sum(axis=(1, 3))
        order = np.argsort(-wide.max(axis=(1, 3)), axis=-1, kind="stable")
        share = np.cumsum(np.take_along_axis(mass, order, axis=-1), axis=-1)
        gap = np.abs(share / share[:, -1:] - spec.parameter)
    return float(np.nanmin(gap, initial=1.0))


# --- Output -----------------------------------------------------------------

def attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray,
           sm_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Softmax attention in float64 of q [R, G, D] over the tokens of mask [R, T]
    or [R, G, T]: o [R, G, Dv] and the natural-log lse [R, G]. attend_c2,
    attend_c3. A token outside the mask is not looked at, whatever bits it holds."""
    with np.errstate(all="ignore"):
        R, G, D = q.shape
        mask = np.broadcast_to(mask if mask.ndim == 3 else mask[:, None], (R, G, mask.shape[-1]))
        flat = q.reshape(R * G, D).astype(np.float64) @ keys.astype(np.float64).T
        f = np.where(mask, float(sm_scale) * flat.reshape(R, G, -1), -np.inf)
        empty = ~mask.any(axis=-1)
        top = np.where(empty, 0.0, f.max(axis=-1, initial=-np.inf))
        p = np.where(mask, np.exp(f - top[..., None]), 0.0)
        total = p.sum(axis=-1)
        values = values.astype(np.float64)
        if np.isfinite(values).all():
            o = (p.reshape(R * G, -1) @ values).reshape(R, G, -1)
        else:  # 0 * inf must not leak from outside the mask
            o = np.stack([[p[r, g, mask[r, g]] @ values[mask[r, g]] for g in range(G)]
                          for r in range(R)])
        o = np.where(empty[..., None], 0.0, o / total[..., None])
        lse = np.where(empty, -np.inf, top + np.log(total))
    return o, lse


# --- A whole decode ---------------------------------------------------------

class Row:
    """R queries of one kv head that share K and V and the number of committed
    blocks: scores are computed once, then selected and attended at will."""

    def __init__(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray,
                 spec: Spec, parts: Split | None = None, tokens: int = 1):
        blocks = spec.committed(int(lengths[0])) if len(lengths) else 0
        assert all(spec.committed(int(t)) == blocks for t in lengths)
        self.q, self.spec, self.lengths = q, spec, np.asarray(lengths)
        self.stop = int(self.lengths.max())
        self.k, self.v = k[:self.stop], v[:self.stop]
        self.start = blocks * spec.quant_block  # of the tail
        self.sm_scale = spec.scale(q.shape[-1])
        held = self.k  # what the cache holds of it
        self.shift = np.zeros(q.shape[:2])  # centre_c4
        if spec.centre == "row" and blocks:  # centre_c2
            c = centre_of(k, spec)
            held = centred(self.k, c, spec)
            with np.errstate(all="ignore"):
                self.shift = float(self.sm_scale) * (q.astype(np.float64) @ c.astype(np.float64))
        self.parts = (parts or split(held[:self.start], spec)).first(blocks)
        query = prepare_query(q, self.parts.smax(), spec)
        tail = tail_scores(q, held[self.start:], self.sm_scale)
        # tokens_c1: token i of n sees all but the last n - 1 - i.
        asked = np.arange(q.shape[1]) // (q.shape[1] // tokens)
        seen = self.lengths[:, None] - (tokens - 1 - asked)  # [R, G]
        tail_lengths = seen - self.start
        within = np.arange(tail.shape[-1]) < tail_lengths[..., None]
        tail = np.where(within, tail, np.float32(-np.inf))
        self.visible = np.arange(self.stop) < seen[..., None]  # [R, G, T]
        a_int = scan(query, self.parts, q)
        self.scores = Scores(query, a_int, tail, tail_lengths, spec,
                             refine_ends(query, self.parts, a_int))
        self._keys = np.concatenate((self.parts.keys(), held[self.start:].astype(np.float64)))

    def select(self, spec: Spec | None = None) -> np.ndarray:
        return select(self.scores, spec)

    def sparse(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Attention over kept blocks and tail."""
        mask = self.visible.copy()
        if kept.shape[-1]:
            mask[..., :self.start] &= np.repeat(kept, self.start // kept.shape[-1],
                                                axis=-1)[:, None]
        o, lse = attend(self.q, self._keys, self.v, mask, self.sm_scale)
        return o, np.where(np.isneginf(lse), lse, lse + self.shift)  # centre_c4

    def skipped(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of skipped_lse [R, G]."""
        return tuple(np.where(np.isneginf(x), x, x + self.shift)
                     for x in skipped_mass(self.scores, self.parts, kept))

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Exact attention on the unsplit K."""
        return attend(self.q, self.k, self.v, self.visible, self.sm_scale)

    def score_bar(self) -> np.ndarray:
        """[R, G]: the bar of docs/numerics.md on a score f against float64, less
        its term for the f32 accumulation."""
        s = np.nan_to_num(self.parts.smax().astype(np.float64), posinf=0)
        q = np.nan_to_num(np.abs(self.q).astype(np.float64), posinf=0)
        return float(self.sm_scale) * (q * s).sum(axis=-1) * 2.0 ** -10


@dataclass
class Result:
    o: np.ndarray  # [B, Hq, Dv] float64; [B, n, Hq, Dv] for n query tokens
    lse: np.ndarray  # [B, Hq] float64, or [B, n, Hq]
    kept: np.ndarray  # [B, Hkv, blocks] uint8, zero-padded
    selectable: np.ndarray  # [B], selection blocks of the committed tokens
    score_bar: np.ndarray  # [B, Hq]
    skipped: tuple[np.ndarray, np.ndarray]  # [B, Hq] each: bounds of skipped_lse; or [B, n, Hq]
    shift: np.ndarray  # likewise: the size of what centre_c4 adds, for its bar


def rows_of(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray, spec: Spec):
    """Yields (sequences, kv head, Row) for q [B, Hq, D] or, of n tokens,
    [B, n, Hq, D], k and v [B or 1, T, Hkv, D]."""
    B, Hq, D = len(q), *q.shape[-2:]
    tokens = q.shape[1] if q.ndim == 4 else 1
    Hkv = k.shape[2]
    committed = np.array([spec.committed(int(t)) for t in lengths], int)
    for source in range(len(k)):
        mine = np.arange(B) if len(k) == 1 else np.array([source])
        most = committed[mine].max(initial=0) * spec.quant_block
        for head in range(Hkv):
            held = k[source, :most, head]
            if spec.centre == "row" and most:
                held = centred(held, centre_of(held, spec), spec)
            parts = split(held, spec)
            for n in np.unique(committed[mine]):
                some = mine[committed[mine] == n]
                heads = q.reshape(B, tokens, Hkv, Hq // Hkv, D)[some, :, head]
                yield some, head, Row(heads.reshape(len(some), -1, D), k[source, :, head],
                                      v[source, :, head], lengths[some], spec, parts, tokens)


def decode(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray | None,
           spec: Spec, dense: bool = False) -> Result:
    """A whole call; with `dense`, o and lse are exact attention on unsplit K."""
    B, Hq, Hkv = len(q), q.shape[-2], k.shape[2]
    tokens = q.shape[1] if q.ndim == 4 else 1
    # o and lse by kv head first, as rows have them.
    heads = (Hkv, tokens, Hq // Hkv)
    lengths = np.full(B, k.shape[1]) if lengths is None else np.asarray(lengths)
    selectable = np.array([spec.committed(int(t)) for t in lengths], int)
    selectable *= spec.quant_block // spec.select_block
    o = np.zeros((B, *heads, v.shape[-1]))
    lse = np.zeros((B, *heads))
    score_bar, shift = np.zeros_like(lse), np.zeros_like(lse)
    skipped = [np.full_like(lse, -np.inf) for _ in range(2)]
    kept = np.zeros((B, Hkv, int(selectable.max(initial=0))), np.uint8)
    for some, head, row in rows_of(q, k, v, lengths, spec):
        chosen = row.select()
        kept[some, head, :chosen.shape[-1]] = chosen
        out = row.dense() if dense else row.sparse(chosen)
        shape = (len(some), *heads[1:])
        o[some, head] = out[0].reshape(*shape, -1)
        lse[some, head] = out[1].reshape(shape)
        score_bar[some, head] = row.score_bar().reshape(shape)
        shift[some, head] = np.abs(row.shift).reshape(shape)
        if spec.certificate != "none":
            for bound, mine in zip(skipped, row.skipped(chosen)):
                bound[some, head] = mine.reshape(shape)
    by_token = [x.swapaxes(1, 2).reshape(*q.shape[:-1], *x.shape[4:])
                for x in (o, lse, score_bar, shift, *skipped)]
    return Result(by_token[0], by_token[1], kept, selectable, by_token[2],
                  (by_token[4], by_token[5]), by_token[3])
