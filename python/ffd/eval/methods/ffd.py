# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FFD as docs/numerics.md defines it, and variations of it to be measured.

With default parameters beyond `delta`, `select_block`, `scan_bits` and `lag` the
kept blocks are those of every other implementation, bit for bit.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace, as_float, device
from ..files import regular_file
from ..problem import ELEMENT_BYTES, Outcome, Problem, attend, masked, round_element, span
from .base import Method, check
from .sparq import mean_values
from .split import Blocks, scan, split_of, tail_scores

LIMIT = 1 << 30  # select_c1 to select_c3
CENTRES = ("none", "row", "rowmean", "mean", "middle")
SELECTORS = ("top_delta", "top_k", "top_p", "all")


@functools.lru_cache(maxsize=8)
def load_deltas(path: str) -> dict[int, list[float]]:
    """A table of ffd-eval calibrate: layer -> delta per kv head."""
    table = json.loads(regular_file(path).read_text(encoding="utf-8"))["deltas"]
    return {int(layer): [float(d) for d in row] for layer, row in table.items()}


@dataclass
class Selection:
    """What the rule decided for R rows with the same n committed blocks."""

    kept: Array  # [..., R, selection blocks]
    scores: Array | None  # [..., R, G, committed tokens], estimated, float32
    pseudo_max: Array  # [..., R, G], as a score
    noise: Array | None  # [..., R, G, n], standard deviation of the scan's error


@dataclass(frozen=True)
class FFD(Method):
    """Thumbnails are scanned, blocks with a score within `delta` of the
    pseudo-max are refined.

    delta, deltas   in natural-log units; a JSON table per layer and kv head
                    replaces the one number
    select_block    tokens kept or skipped together
    scan_bits       2, 4, 8; 16 scans the keys themselves
    residual        false: kept blocks are attended with thumbnails alone
    selector        top_delta, top_k (parameter: blocks, or a share up to 1),
                    top_p (parameter: p), all
    lag             newest tokens that are never split
    sink, local     tokens at the start, and newest committed ones, that enter
                    the pseudo-max
    keep_sink, keep_local   tokens at the start, newest committed ones always read
    refine_max      the pseudo-max takes refined scores of the first and the last
                    committed block, whatever sink and local say, and the first and
                    the last selection block are always read (select_c5, select_c6):
                    what the tools and `ffd.Cache` do by default. Here it is off, as
                    in the paper, so that names of methods keep their meaning
    centre          none; row: the mean of block 0 is subtracted from all keys;
                    rowmean: the mean of all; mean, middle: each block's mean, or
                    middle of minimum and maximum
    noise           delta grows by this multiple of the scan's standard deviation
    certificate     estimate of the skipped mass: none, plain, noise (corrected
                    for the bias that noise has under exp)
    fold            none; norm: that mass enters the normaliser; mean: it also
                    weighs the mean of all values
    """

    delta: float = 5.0
    deltas: str = ""
    select_block: int = 16
    scan_bits: int = 2
    residual: bool = True
    selector: str = "top_delta"
    parameter: float = 0.0
    quant_block: int = 128
    lag: int = 0
    sink: int = 128
    local: int = 128
    keep_sink: int = 0
    keep_local: int = 0
    refine_max: bool = False
    centre: str = "none"
    noise: float = 0.0
    certificate: str = "none"
    fold: str = "none"
    name = "ffd"
    paper = "Faster Flash Decoding, arXiv 2609.00097"

    def __post_init__(self) -> None:
        check(self.delta >= 0, "ffd:delta", self.delta, "0 or more")
        check(self.scan_bits in (2, 4, 8, 16), "ffd:scan_bits", self.scan_bits, "2, 4, 8 or 16")
        check(self.selector in SELECTORS, "ffd:selector", self.selector, ", ".join(SELECTORS))
        check(self.centre in CENTRES, "ffd:centre", self.centre, ", ".join(CENTRES))
        check(self.certificate in ("none", "plain", "noise"), "ffd:certificate",
              self.certificate, "none, plain or noise")
        check(self.fold in ("none", "norm", "mean"), "ffd:fold", self.fold, "none, norm or mean")
        check(self.fold == "none" or self.certificate != "none", "ffd:certificate",
              self.certificate, "plain or noise, which fold needs")
        check(self.quant_block > 0 and self.select_block > 0
              and self.quant_block % self.select_block == 0, "ffd:select_block",
              self.select_block, f"a divisor of quant_block={self.quant_block}")
        check(0 < self.sink <= self.quant_block, "ffd:sink", self.sink,
              f"1 to quant_block={self.quant_block}")
        check(self.local >= 0 and self.lag >= 0, "ffd:local", self.local, "0 or more")
        check(self.selector not in ("top_k", "top_p") or self.parameter > 0, "ffd:parameter",
              self.parameter, "more than 0")
        check(not self.refine_max or (self.scan_bits != 16 and self.residual), "ffd:refine_max",
              self.refine_max, "false without residuals")
        check(self.scan_bits != 16 or (self.centre == "none" and self.noise == 0
                                       and self.certificate != "noise"),
              "ffd:scan_bits", 16, "2, 4 or 8 with centre, noise or certificate=noise")

    # --- Pieces ---------------------------------------------------------------

    def delta_of(self, problem: Problem) -> Array:
        """A number, or one per kv head [..., 1, 1]."""
        if not self.deltas:
            return problem.on(np.float32(self.delta))
        table, (lead, *_) = load_deltas(self.deltas), problem.shape
        row = table.get(problem.layer, [])[problem.head:][:math.prod(lead)]
        if len(row) < math.prod(lead):
            raise ValueError(f"ffd:deltas={self.deltas}: no delta for layer {problem.layer}, "
                             f"kv head {problem.head + len(row)}")
        return problem.on(np.array(row, np.float32).reshape(*lead, 1, 1))

    def shift(self, problem: Problem) -> Array | None:
        """The constant [..., D] that leaves all keys of the row, or None."""
        count = problem.k.shape[-2]
        if not self.centre.startswith("row") or count < self.quant_block:
            return None
        count = self.quant_block if self.centre == "row" else (problem.fixed or count)
        xp = array_namespace(problem.k)
        mean = xp.mean(problem.k[..., :count, :], axis=-2, dtype=xp.float64)
        return round_element(mean, problem.element)

    def select(self, problem: Problem, rows: slice | Array, k: Array, lengths: np.ndarray,
               parts: Blocks | None, n: int) -> Selection:
        """The rule for `rows`, which see `lengths` tokens, with n >= 1 committed blocks
        of keys k [..., T, D]."""
        xp = array_namespace(k)
        q = problem.q[..., rows, :, :]
        *lead, R, G, D = q.shape
        QB, start, scale = self.quant_block, n * self.quant_block, problem.sm_scale
        sees = problem.sees[rows]
        tail = tail_scores(q, k[..., start:int(lengths.max()), :], scale)
        beyond = problem.at[:tail.shape[-1]] >= (sees - start)[:, None]
        bad = ~xp.all(xp.isfinite(tail) | beyond[:, None], axis=(-2, -1))
        tail = masked(tail, ~beyond[:, None])
        noise = None
        flat = q.reshape((*lead, R * G, D))
        if parts is None:  # 16-bit scan: scores are scores
            a = k[..., :start, :] @ xp.matrix_transpose(flat * float(scale))
            a = a.reshape((*lead, n, QB, R, G))
            F = xp.ones_like(q[..., 0])
            nonfinite = ~xp.all(xp.isfinite(q), axis=(-2, -1))
        else:
            scanned = scan(q, parts, self.scan_bits, problem.element, scale)
            a, F, nonfinite = scanned.a, scanned.F, scanned.nonfinite
            with np.errstate(all="ignore"):
                if parts.offsets is not None:
                    constant = (parts.offsets @ xp.matrix_transpose(flat)) * float(scale)
                    constant = constant.reshape((*lead, n, R, G)) / F[..., None, :, :]
                    a = a + xp.floor(xp.nan_to_num(constant))[..., None, :, :]
                if self.noise or self.certificate == "noise":
                    variance = flat ** 2 @ xp.matrix_transpose(parts.scales ** 2) / 12
                    noise = float(scale) * xp.sqrt(variance).reshape((*lead, R, G, n))
        # Pseudo-max in units of the scan, select_c1.
        scores = a.reshape((*lead, start, R, G))
        ends = [scores[..., :self.sink, :, :]]
        if self.local:
            ends.append(scores[..., max(0, start - self.local):, :, :])
        if self.refine_max:  # select_c5
            ends = [a[..., i, :, :, :] + scanned.refinement(parts, i) for i in (0, n - 1)]
        pm = functools.reduce(xp.maximum, (xp.max(end, axis=-3) for end in ends))
        if tail.shape[-1]:
            with np.errstate(all="ignore"):
                units = xp.max(tail, axis=-1) / F
                if parts is not None:
                    units = xp.floor(units)
            units = xp.clip(xp.where(xp.isnan(units), -LIMIT, units), -LIMIT, LIMIT)
            units = xp.astype(units, pm.dtype)
            pm = xp.where((sees > start)[:, None], xp.maximum(pm, units), pm)
        blocks = xp.max(a.reshape((*lead, -1, self.select_block, R, G)), axis=-3)
        if self.selector == "top_delta":
            with np.errstate(all="ignore"):
                units = self.delta_of(problem) / F  # select_c2
                usable = units < LIMIT
                d = xp.where(usable, units, 0.0)
            threshold = xp.astype(pm, xp.float64)  # holds all integers that occur
            if parts is None:
                threshold = xp.astype(pm - d, xp.float64)
            else:
                threshold = threshold - xp.astype(xp.ceil(d), xp.float64)
            threshold = xp.clip(threshold, -LIMIT, LIMIT)
            everything = ~usable | ~xp.isfinite(F) | (nonfinite | bad)[..., None]
            # select_c3
            threshold = xp.where(everything, float(-LIMIT), threshold)[..., None, :, :]
            if self.noise:
                slack = self.noise * xp.moveaxis(noise, -1, -3) / F[..., None, :, :]
                slack = xp.repeat(xp.nan_to_num(slack), QB // self.select_block, axis=-3)
                threshold = threshold - slack
            kept = xp.any(xp.astype(blocks, xp.float64) >= threshold, axis=-1)  # select_c4
            kept = xp.matrix_transpose(kept)
        else:
            kept = self._ranked(a, blocks, F, nonfinite)
        forced = np.zeros(kept.shape[-1], bool)
        if self.refine_max:
            forced[0] = forced[-1] = True  # select_c6
        if self.keep_sink:
            forced[:-(-self.keep_sink // self.select_block)] = True
        if self.keep_local:
            forced[max(0, (start - self.keep_local) // self.select_block):] = True
        if forced.any():
            kept = kept | problem.on(forced)
        estimates = None
        if problem.want_estimates or self.certificate != "none":
            estimates = as_float(xp.moveaxis(scores, -3, -1) * F[..., None])
        return Selection(kept, estimates, as_float(pm * F), noise)

    def _ranked(self, a: Array, blocks: Array, F: Array, nonfinite: Array) -> Array:
        """top_k, top_p and all: [..., R, blocks]."""
        xp = array_namespace(a)
        *lead, count, R, G = blocks.shape
        w = xp.max(as_float(blocks) * F[..., None, :, :], axis=-1)
        w = xp.matrix_transpose(w)  # [..., R, blocks]
        if self.selector == "all":
            return w == w
        order = xp.argsort(-w, axis=-1, stable=True)  # ties to the lower block
        if self.selector == "top_k":
            k = self.parameter if self.parameter > 1 else np.ceil(self.parameter * count)
            wanted = min(int(k), count)
        else:
            with np.errstate(all="ignore"):
                wide = xp.astype(as_float(a) * F[..., None, None, :, :], xp.float64)
                mass = xp.exp(wide - xp.max(wide, axis=(-4, -3, -1), keepdims=True))
                mass = mass.reshape((*lead, count, self.select_block, R, G))
                mass = xp.matrix_transpose(xp.sum(mass, axis=(-3, -1)))
                share = xp.cumulative_sum(xp.take_along_axis(mass, order, axis=-1), axis=-1)
                short = ~(share / share[..., -1:] >= self.parameter)
            # The blocks before the first that reaches p, and that one.
            wanted = xp.clip(xp.sum(short, axis=-1) + 1, None, count)[..., None]
        kept = xp.argsort(order, axis=-1) < wanted
        return kept | nonfinite[..., None]

    # --- The whole --------------------------------------------------------------

    def run(self, problem: Problem) -> Outcome:
        xp = array_namespace(problem.k)
        lead, R, G, T = problem.shape
        k, shift = problem.k, self.shift(problem)
        if shift is not None:
            k = round_element(k - shift[..., None, :], problem.element)
        committed = np.maximum(0, problem.lengths - self.lag) // self.quant_block

        def filled(*shape: int, value: float = 0.0, dtype=xp.float32) -> Array:
            return xp.full((*lead, *shape), value, dtype=dtype, device=device(k))
        kept = filled(R, T, value=True, dtype=xp.bool) & problem.visible
        estimate = filled(R, G, T) if problem.want_estimates else None
        pseudo, f = filled(R, G), filled(R, G, T)
        missed = filled(R, G) if self.certificate != "none" else None
        skipped = filled(R, G)  # log-space sums need lse first
        pending: list[tuple[slice | Array, Selection, Array]] = []
        for n in np.unique(committed):
            some = np.flatnonzero(committed == n)
            lengths, rows = problem.lengths[some], span(some)
            rows = rows if isinstance(rows, slice) else problem.on(rows)
            start = int(n) * self.quant_block
            part = Problem(problem.q[..., rows, :, :], k, problem.v, np.full(len(some), T))
            if n == 0:
                f[..., rows, :, :] = part.products(k)
                seen = masked(f[..., rows, :, :], problem.visible[rows][:, None])
                pseudo[..., rows, :] = xp.max(seen, axis=-1)
                if estimate is not None:
                    estimate[..., rows, :, :] = f[..., rows, :, :]
                continue
            parts = None
            if self.scan_bits != 16:
                parts = split_of(problem, k, int(n), self.quant_block, self.scan_bits,
                                 self.centre, self.residual)
            chosen = self.select(problem, rows, k, lengths, parts, int(n))
            tokens = xp.repeat(chosen.kept, self.select_block, axis=-1)
            kept[..., rows, :start] = kept[..., rows, :start] & tokens
            f[..., rows, :, :start] = part.products(k[..., :start, :] if parts is None
                                                    else parts.keys)
            f[..., rows, :, start:] = part.products(k[..., start:, :])
            pseudo[..., rows, :] = chosen.pseudo_max
            if estimate is not None:
                estimate[..., rows, :, :start] = chosen.scores
                estimate[..., rows, :, start:] = f[..., rows, :, start:]
            if missed is not None:
                pending.append((rows, chosen, tokens))
        o, lse = attend(masked(f, kept[..., None, :]), problem.v)
        for rows, chosen, tokens in pending:
            guess = chosen.scores
            if self.certificate == "noise":
                guess = guess - xp.repeat(chosen.noise ** 2 / 2, self.quant_block, axis=-1)
            guess = masked(guess - lse[..., rows, :][..., None], ~tokens[..., None, :])
            mass = xp.sum(xp.exp(xp.clip(guess, None, 80)), axis=-1)
            skipped[..., rows, :] = mass
            missed[..., rows, :] = mass / (1 + mass)
        if self.fold != "none":
            lse = lse + xp.log1p(skipped)
            weight = (1 / (1 + skipped))[..., None]
            o = o * weight
            if self.fold == "mean":
                o = o + (1 - weight) * mean_values(problem)[..., None, :]
        if shift is not None:
            flat = problem.q.reshape((*lead, R * G, -1))
            constant = (flat @ shift[..., None]).reshape((*lead, R, G)) * float(problem.sm_scale)
            lse, pseudo = lse + constant, pseudo + constant
            if estimate is not None:
                estimate = estimate + constant[..., None]
        if estimate is not None:
            estimate = masked(estimate, problem.visible[:, None])
        return Outcome(o, lse, kept[..., None, :], self.read(problem, committed, kept), estimate,
                       pseudo, missed)

    def read(self, problem: Problem, committed: np.ndarray, kept: Array) -> Array:
        """[..., R]: bytes of the packed cache (head dims that need no padding)."""
        xp = array_namespace(kept)
        D, Dv = problem.k.shape[-1], problem.v.shape[-1]
        split = committed * self.quant_block
        committed_end = problem.on(split)[:, None]
        refined = xp.sum(kept & (problem.at < committed_end), axis=-1)
        residuals = 0.0
        if self.refine_max:  # of the first and the last block, kept or not
            ends = (problem.at < self.quant_block) | (problem.at >= committed_end - self.quant_block)
            ends = ends & (problem.at < committed_end) & ~kept
            residuals = xp.sum(ends, axis=-1) * float(D)
        scanned = split * D * self.scan_bits / 8
        per_token = float(ELEMENT_BYTES * Dv)
        if self.scan_bits != 16:
            vectors = 2 if self.centre in ("mean", "middle") else 1  # scales, offsets
            scanned = scanned + committed * vectors * ELEMENT_BYTES * D
            per_token += D if self.residual else 0
        always = scanned + (problem.lengths - split) * problem.token_bytes
        return refined * per_token + residuals + problem.on(always.astype(float))
