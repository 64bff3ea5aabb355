# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far an Outcome is from exact attention. Everything is per query head."""

from __future__ import annotations

import numpy as np

from .problem import Outcome, Problem

SALIENT = 0.9  # salient: the fewest tokens with this share of the softmax
RECENT = 128  # newest tokens that rank correlation leaves out: they are cheap to know
RANKED_ROWS = 6  # rows that are sorted, of those asked
GAP_POINTS = (0, 5, 25, 50, 75, 95, 100)


def ranks(x: np.ndarray) -> np.ndarray:
    """Ranks of a vector, equal numbers sharing the mean of theirs."""
    order = np.argsort(x, kind="stable")
    ordered = x[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    group = np.cumsum(first) - 1
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], len(x))
    out = np.empty(len(x))
    out[order] = ((starts + ends - 1) / 2)[group]
    return out


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's, of two vectors; 0 if one is constant. Of ranks: Spearman's."""
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size else 0.0


def salient(p: np.ndarray, share: float = SALIENT) -> np.ndarray:
    """Mask of the fewest tokens that hold `share` of p [T], ties to the lower."""
    order = np.argsort(-p, kind="stable")
    count = np.searchsorted(np.cumsum(p[order]), share * p.sum()) + 1
    mask = np.zeros(len(p), bool)
    mask[order[:count]] = True
    return mask


class Truth:
    """Exact attention of a problem and what is derived from it once."""

    def __init__(self, problem: Problem, exact: Outcome):
        self.problem, self.exact = problem, exact
        self.p = np.exp(problem.scores - exact.lse[..., None])
        self.top = problem.scores.max(axis=-1)
        R, G, _ = self.p.shape
        rows = np.unique(np.linspace(0, R - 1, min(R, RANKED_ROWS)).astype(int))
        self.ranked = [(r, g, salient(self.p[r, g])) for r in rows for g in range(G)]
        self._ranks: dict[tuple[int, int], np.ndarray] = {}  # of old tokens' scores

    def shape(self) -> dict[str, list[float]]:
        """Of the distribution itself: distance of the two best scores, standard
        deviation of the scores of a row; means over rows."""
        best = np.partition(self.problem.scores, -2, axis=-1)[..., -2:]
        see = self.problem.visible[:, None]
        count = self.problem.lengths[:, None]
        f = np.where(see, self.problem.scores, 0).astype(np.float64)
        deviation = np.sqrt(np.maximum(
            (f ** 2).sum(axis=-1) / count - (f.sum(axis=-1) / count) ** 2, 0))
        return {"top_gap": _list((best[..., 1] - best[..., 0]).mean(axis=0)),
                "score_std": _list(deviation.mean(axis=0))}

    def measure(self, out: Outcome) -> dict[str, list[float]]:
        problem, exact = self.problem, self.exact
        R, G, T = self.p.shape
        kept = np.broadcast_to(out.kept, (R, G, T))
        o, want = out.o.astype(np.float64), exact.o.astype(np.float64)
        size = np.linalg.norm(o, axis=-1) * np.linalg.norm(want, axis=-1)
        cosine = np.where(size > 0, (o * want).sum(axis=-1) / np.where(size > 0, size, 1), 1.0)
        lse = np.abs(out.lse.astype(np.float64) - exact.lse)
        missed = np.clip(1 - np.where(kept, self.p, 0).sum(axis=-1), 0, 1)
        share = kept.sum(axis=-1) / problem.lengths[:, None]
        dense = problem.lengths * float(problem.token_bytes)
        result = {
            "kept": share.mean(axis=0), "bytes": np.full(G, out.bytes.mean()),
            "dense_bytes": np.full(G, dense.mean()),
            "cosine": cosine.mean(axis=0), "cosine_min": cosine.min(axis=0),
            "error2": ((o - want) ** 2).sum(axis=(0, 2)), "size2": (want ** 2).sum(axis=(0, 2)),
            "lse": lse.mean(axis=0), "lse_max": lse.max(axis=0),
            "missed": missed.mean(axis=0), "missed_max": missed.max(axis=0),
            "hit": self._hits(kept)}
        if out.estimate is not None:
            result["spearman"] = self._correlation(out.estimate)
        if out.pseudo_max is not None:
            gap = (self.top - out.pseudo_max).astype(np.float64)
            result["gap"] = gap.mean(axis=0)
            for point in GAP_POINTS:
                result[f"gap_{point}"] = np.percentile(gap, point, axis=0)
        if out.missed is not None:
            result["certificate"] = out.missed.mean(axis=0)
            result["certificate_error"] = np.abs(out.missed - missed).mean(axis=0)
            low = out.missed + 0.01 < missed  # the estimate promised too much
            result["certificate_low"] = low.mean(axis=0)
        return {name: _list(x) for name, x in result.items()}

    def _hits(self, kept: np.ndarray) -> np.ndarray:
        """Share of the salient tokens that were read."""
        found = [[] for _ in range(kept.shape[1])]
        for r, g, mask in self.ranked:
            found[g].append((kept[r, g] & mask).sum() / mask.sum())
        return np.mean(found, axis=1)

    def _correlation(self, estimate: np.ndarray) -> np.ndarray:
        found = [[] for _ in range(estimate.shape[1])]
        for r, g, _ in self.ranked:
            old = max(2, int(self.problem.lengths[r]) - RECENT)
            if (r, g) not in self._ranks:
                self._ranks[r, g] = ranks(self.problem.scores[r, g, :old])
            found[g].append(correlation(ranks(estimate[r, g, :old]), self._ranks[r, g]))
        return np.mean(found, axis=1)


def _list(x: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in np.asarray(x, float)]
