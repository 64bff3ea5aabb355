# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FFD as docs/numerics.md defines it, and variations of it to be measured.

With default parameters beyond `delta`, `select_block`, `scan_bits` and `lag` the
kept blocks are those of every other implementation, bit for bit.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..problem import ELEMENT_BYTES, Outcome, Problem, attend, masked, round_element
from .base import Method, check
from .split import Blocks, scan, split_of, tail_scores

LIMIT = 1 << 30  # select_c1 to select_c3
CENTRES = ("none", "row", "rowmean", "mean", "middle")
SELECTORS = ("top_delta", "top_k", "top_p", "all")


@functools.lru_cache(maxsize=8)
def load_deltas(path: str) -> dict[int, list[float]]:
    """A table of ffd-eval calibrate: layer -> delta per kv head."""
    table = json.loads(Path(path).read_text(encoding="utf-8"))["deltas"]
    return {int(layer): [float(d) for d in row] for layer, row in table.items()}


@dataclass
class Selection:
    """What the rule decided for R rows with the same n committed blocks."""

    kept: np.ndarray  # [R, selection blocks]
    scores: np.ndarray | None  # [R, G, committed tokens], estimated, float32
    pseudo_max: np.ndarray  # [R, G], as a score
    noise: np.ndarray | None  # [R, G, n], standard deviation of the scan's error


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
    refine_max      the pseudo-max comes from refined scores of the first and the
                    last committed block, which are then always read
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
        check(self.scan_bits != 16 or (self.centre == "none" and self.noise == 0
                                       and self.certificate != "noise"),
              "ffd:scan_bits", 16, "2, 4 or 8 with centre, noise or certificate=noise")

    # --- Pieces ---------------------------------------------------------------

    def delta_of(self, problem: Problem) -> np.float32:
        if not self.deltas:
            return np.float32(self.delta)
        table = load_deltas(self.deltas)
        if problem.layer not in table or problem.head >= len(table[problem.layer]):
            raise ValueError(f"ffd:deltas={self.deltas}: no delta for layer {problem.layer}, "
                             f"kv head {problem.head}")
        return np.float32(table[problem.layer][problem.head])

    def shift(self, problem: Problem) -> np.ndarray | None:
        """The constant [D] that leaves all keys of the row, or None."""
        if not self.centre.startswith("row") or len(problem.k) < self.quant_block:
            return None
        count = self.quant_block if self.centre == "row" else (problem.fixed or len(problem.k))
        return round_element(problem.k[:count].mean(axis=0), problem.element)

    def select(self, problem: Problem, rows: np.ndarray, k: np.ndarray,
               parts: Blocks | None, n: int) -> Selection:
        """The rule for `rows` with n >= 1 committed blocks of keys k [T, D]."""
        q, lengths = problem.q[rows], problem.lengths[rows]
        R, G, D = q.shape
        QB, start, scale = self.quant_block, n * self.quant_block, problem.sm_scale
        tail = tail_scores(q, k[start:lengths.max()], scale)
        beyond = np.arange(tail.shape[-1]) >= (lengths - start)[:, None]
        bad = ~(np.isfinite(tail) | beyond[:, None]).all(axis=(1, 2))
        tail = masked(tail, ~beyond[:, None])
        noise = None
        if parts is None:  # 16-bit scan: scores are scores
            a = (k[:start] @ (q.reshape(R * G, D) * scale).T).reshape(n, QB, R, G)
            F, nonfinite = np.ones((R, G), np.float32), ~np.isfinite(q).all(axis=(1, 2))
            threshold_type: type = np.float32
        else:
            scanned = scan(q, parts, self.scan_bits, problem.element, scale)
            a, F, nonfinite = scanned.a, scanned.F, scanned.nonfinite
            threshold_type = np.int64
            with np.errstate(all="ignore"):
                if parts.offsets is not None:
                    constant = np.einsum("rgd,nd->nrg", q, parts.offsets) * scale / F
                    a = a + np.floor(np.nan_to_num(constant))[:, None]
                if self.noise or self.certificate == "noise":
                    variance = np.einsum("rgd,nd->rgn", q ** 2, parts.scales ** 2) / 12
                    noise = scale * np.sqrt(variance)
        # Pseudo-max in units of the scan, select_c1.
        flat = a.reshape(start, R, G)
        ends = [flat[:self.sink]]
        if self.local:
            ends.append(flat[max(0, start - self.local):])
        if self.refine_max and parts is not None:
            ends = [self._refined(q, parts.keys[i], F, scale)
                    for i in (slice(0, QB), slice(start - QB, start))]
        pm = np.maximum.reduce([end.max(axis=0) for end in ends])
        if tail.shape[-1]:
            with np.errstate(all="ignore"):
                units = tail.max(axis=-1) / F
                if threshold_type is np.int64:
                    units = np.floor(units)
            units = np.clip(np.where(np.isnan(units), -LIMIT, units), -LIMIT, LIMIT)
            pm = np.where(lengths[:, None] > start, np.maximum(pm, units), pm)
        blocks = a.reshape(-1, self.select_block, R, G).max(axis=1)  # [blocks, R, G]
        if self.selector == "top_delta":
            delta = self.delta_of(problem)
            with np.errstate(all="ignore"):
                units = delta / F  # select_c2
                usable = units < np.float32(LIMIT)
                d = np.where(usable, units, np.float32(0))
                d = np.ceil(d).astype(np.int64) if threshold_type is np.int64 else d
            threshold = np.clip(pm.astype(threshold_type) - d, -LIMIT, LIMIT)
            everything = ~usable | ~np.isfinite(F) | (nonfinite | bad)[:, None]
            threshold = np.where(everything, -LIMIT, threshold)[None]  # select_c3
            if self.noise:
                slack = np.repeat(noise.transpose(2, 0, 1), QB // self.select_block, axis=0)
                with np.errstate(all="ignore"):
                    threshold = threshold - np.nan_to_num(self.noise * slack / F)
            kept = (blocks >= threshold).any(axis=2).T  # select_c4
        else:
            kept = self._ranked(a, blocks, F, nonfinite)
        if self.refine_max:
            kept[:, :QB // self.select_block] = kept[:, -(QB // self.select_block):] = True
        if self.keep_sink:
            kept[:, :-(-self.keep_sink // self.select_block)] = True
        if self.keep_local:
            kept[:, max(0, (start - self.keep_local) // self.select_block):] = True
        scores = None
        if problem.want_estimates or self.certificate != "none":
            scores = (flat.transpose(1, 2, 0) * F[..., None]).astype(np.float32)
        return Selection(kept, scores, (pm * F).astype(np.float32), noise)

    @staticmethod
    def _refined(q: np.ndarray, keys: np.ndarray, F: np.ndarray, scale: np.float32) -> np.ndarray:
        """Refined scores [tokens, R, G] in units of the scan."""
        with np.errstate(all="ignore"):
            units = np.floor(np.einsum("rgd,td->trg", q * scale, keys) / F)
        return np.clip(np.nan_to_num(units, nan=-LIMIT), -LIMIT, LIMIT)

    def _ranked(self, a: np.ndarray, blocks: np.ndarray, F: np.ndarray,
                nonfinite: np.ndarray) -> np.ndarray:
        """top_k, top_p and all: [R, blocks]."""
        count, R = len(blocks), F.shape[0]
        if self.selector == "all":
            return np.ones((R, count), bool)
        approx = a.astype(np.float32) * F
        w = (blocks.astype(np.float32) * F).max(axis=2).T  # [R, blocks]
        order = np.argsort(-w, axis=-1, kind="stable")  # ties to the lower block
        if self.selector == "top_k":
            k = self.parameter if self.parameter > 1 else np.ceil(self.parameter * count)
            wanted = np.full(R, min(int(k), count))
        else:
            with np.errstate(all="ignore"):
                wide = approx.astype(np.float64)
                mass = np.exp(wide - wide.max(axis=(0, 1, 3), keepdims=True))
                mass = mass.reshape(count, self.select_block, R, -1).sum(axis=(1, 3)).T
                share = np.cumsum(np.take_along_axis(mass, order, axis=-1), axis=-1)
                reached = share / share[:, -1:] >= self.parameter
            wanted = np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1, count)
        kept = np.zeros((R, count), bool)
        np.put_along_axis(kept, order, np.arange(count) < wanted[:, None], axis=-1)
        kept[nonfinite] = True
        return kept

    # --- The whole --------------------------------------------------------------

    def run(self, problem: Problem) -> Outcome:
        R, G, D = problem.q.shape
        T, Dv = problem.v.shape
        k, shift = problem.k, self.shift(problem)
        if shift is not None:
            k = round_element(k - shift, problem.element)
        committed = np.maximum(0, problem.lengths - self.lag) // self.quant_block
        kept = problem.visible.copy()
        estimate = np.full((R, G, T), -np.inf, np.float32) if problem.want_estimates else None
        pseudo = np.full((R, G), -np.inf, np.float32)
        f = np.empty((R, G, T), np.float32)
        missed = np.zeros((R, G), np.float32) if self.certificate != "none" else None
        skipped = np.zeros((R, G), np.float32)  # log-space sums need lse first
        pending: list[tuple[np.ndarray, Selection, np.ndarray]] = []
        for n in np.unique(committed):
            rows = np.flatnonzero(committed == n)
            start = int(n) * self.quant_block
            part = Problem(problem.q[rows], k, problem.v, np.full(len(rows), len(k)))
            if n == 0:
                f[rows] = part.products(k)
                pseudo[rows] = masked(f[rows], problem.visible[rows][:, None]).max(axis=-1)
                if estimate is not None:
                    estimate[rows] = f[rows]
                continue
            parts = None
            if self.scan_bits != 16:
                parts = split_of(problem, k, int(n), self.quant_block, self.scan_bits,
                                 self.centre, self.residual)
            chosen = self.select(problem, rows, k, parts, int(n))
            tokens = np.repeat(chosen.kept, self.select_block, axis=-1)
            kept[rows, :start] &= tokens
            f[rows, :, :start] = part.products(k[:start] if parts is None else parts.keys)
            f[rows, :, start:] = part.products(k[start:])
            pseudo[rows] = chosen.pseudo_max
            if estimate is not None:
                estimate[rows, :, :start] = chosen.scores
                estimate[rows, :, start:] = f[rows, :, start:]
            if missed is not None:
                pending.append((rows, chosen, tokens))
        o, lse = attend(masked(f, kept[:, None]), problem.v)
        for rows, chosen, tokens in pending:
            guess = chosen.scores
            if self.certificate == "noise":
                guess = guess - np.repeat(chosen.noise ** 2 / 2, self.quant_block, axis=-1)
            guess = masked(guess - lse[rows][..., None], ~tokens[:, None])
            skipped[rows] = np.exp(np.minimum(guess, 80)).sum(axis=-1)
            missed[rows] = skipped[rows] / (1 + skipped[rows])
        if self.fold != "none":
            lse = lse + np.log1p(skipped)
            weight = (1 / (1 + skipped))[..., None]
            o = o * weight
            if self.fold == "mean":
                mean = np.cumsum(problem.v, axis=0, dtype=np.float64)[problem.lengths - 1]
                mean = (mean / problem.lengths[:, None]).astype(np.float32)
                o = o + (1 - weight) * mean[:, None]
        if shift is not None:
            constant = (problem.q @ shift) * problem.sm_scale
            lse, pseudo = lse + constant, pseudo + constant
            if estimate is not None:
                estimate += constant[..., None]
        if estimate is not None:
            estimate = masked(estimate, problem.visible[:, None])
        return Outcome(o, lse, kept[:, None], self.read(problem, committed, kept), estimate,
                       pseudo, missed)

    def read(self, problem: Problem, committed: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """[R]: bytes of the packed cache (head dims that need no padding)."""
        D, Dv = problem.k.shape[1], problem.v.shape[1]
        split = committed * self.quant_block
        within = np.arange(kept.shape[-1]) < split[:, None]
        refined = (kept & within).sum(axis=-1)
        scanned = split * D * self.scan_bits / 8
        per_token = ELEMENT_BYTES * Dv
        if self.scan_bits != 16:
            vectors = 2 if self.centre in ("mean", "middle") else 1  # scales, offsets
            scanned = scanned + committed * vectors * ELEMENT_BYTES * D
            per_token += D if self.residual else 0
        return (scanned + refined * per_token
                + (problem.lengths - split) * problem.token_bytes).astype(float)
