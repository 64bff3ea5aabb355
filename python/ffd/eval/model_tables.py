# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries of model runs, with 95 % confidence intervals by bootstrap."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from .tables import text

BLOCK = 32  # neighbouring tokens that are drawn together
DRAWS = 2000


def interval(values: np.ndarray, statistic=np.mean) -> tuple[float, float]:
    """2.5 and 97.5 percent points of the statistic of rows drawn with
    replacement. `values` has one row per independent unit."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(values), (DRAWS, len(values)))
    low, high = np.percentile([statistic(values[i]) for i in drawn], (2.5, 97.5))
    return float(low), float(high)


def _blocks(x: np.ndarray) -> np.ndarray:
    """[N] -> [blocks, BLOCK]; a remainder is left out."""
    block = min(BLOCK, len(x))
    return x[:len(x) // block * block].reshape(-1, block)


def perplexities(records: list[dict]) -> list[dict]:
    """Per text, length and method: perplexity, its ratio to that of exact
    attention, divergence and agreement, each with an interval."""
    records = [r for r in records if r["kind"] == "perplexity"]
    exact = {(r["text"], r["tokens"], r["last"]): np.array(r["nll"])
             for r in records if r["method"] == "exact"}
    lines = []
    for r in records:
        base = exact.get((r["text"], r["tokens"], r["last"]))
        if base is None:
            continue
        nll, kl = np.array(r["nll"]), np.array(r["kl"])
        agree = np.array([int(c) for c in r["agree"]])
        more = _blocks(nll - base)
        low, high = (100 * np.expm1(x) for x in interval(more))
        lines.append({
            "text": r["text"], "tokens": r["tokens"], "last": r["last"], "method": r["method"],
            "read": r["read"], "kept": r["kept"], "perplexity": float(np.exp(nll.mean())),
            "increase": float(100 * np.expm1((nll - base).mean())), "increase_low": low,
            "increase_high": high, "kl": float(kl.mean()),
            "kl_low": interval(_blocks(kl))[0], "kl_high": interval(_blocks(kl))[1],
            "agree": float(agree.mean()), "agree_low": interval(_blocks(agree))[0],
            "agree_high": interval(_blocks(agree))[1]})
    return lines


def perplexity_table(lines: list[dict], form=text) -> str:
    header = ["method", "text", "tokens", "read", "perplexity", "increase", "KL to exact",
              "same token as exact"]
    return form(header, [[
        x["method"], x["text"], str(x["tokens"]), f"{x['read']:.1%}", f"{x['perplexity']:.3f}",
        f"{x['increase']:+.2f} % ({x['increase_low']:+.2f} .. {x['increase_high']:+.2f})",
        f"{x['kl']:.4f} ({x['kl_low']:.4f} .. {x['kl_high']:.4f})",
        f"{x['agree']:.1%} ({x['agree_low']:.1%} .. {x['agree_high']:.1%})"] for x in lines])


def task_scores(records: list[dict]) -> list[dict]:
    """Per length, task and method: share of right items, and of answer tokens
    that exact attention would choose too. Units of the bootstrap are questions.
    Only samples that every method asked at their length has finished count."""
    records = [r for r in records if r["kind"] == "task"]
    methods: dict[int, set[str]] = defaultdict(set)
    have: dict[tuple, set[str]] = defaultdict(set)
    for r in records:
        methods[r["tokens"]].add(r["method"])
        have[r["tokens"], r["sample"], r["prompt"]].add(r["method"])
    groups: dict[tuple, list[tuple]] = defaultdict(list)
    read: dict[tuple, list[float]] = defaultdict(list)
    for r in records:
        if len(have[r["tokens"], r["sample"], r["prompt"]]) < len(methods[r["tokens"]]):
            continue
        read[r["tokens"], r["method"]].append(r["read"])
        for a in r["answers"]:
            one = (np.mean(a["right"]), np.mean(a["agree"]))
            for task in (a["task"], "all"):
                groups[r["tokens"], task, r["method"]].append(one)
    lines = []
    for (tokens, task, method), values in groups.items():
        x = np.array(values)
        (a, b), (c, d) = interval(x[:, 0]), interval(x[:, 1])
        lines.append({"tokens": tokens, "task": task, "method": method, "questions": len(x),
                      "read": float(np.mean(read[tokens, method])),
                      "score": float(x[:, 0].mean()), "score_low": a, "score_high": b,
                      "agree": float(x[:, 1].mean()), "agree_low": c, "agree_high": d})
    return lines


def task_table(lines: list[dict], form=text) -> str:
    """One row per length and method, one column per task."""
    names = [t for t in dict.fromkeys(x["task"] for x in lines) if t != "all"]
    cell = {(x["tokens"], x["method"], x["task"]): x for x in lines}
    keys = sorted({(x["tokens"], x["method"]) for x in lines},
                  key=lambda k: (k[0], [x["method"] for x in lines].index(k[1])))
    rows = []
    for tokens, method in keys:
        total = cell[tokens, method, "all"]
        rows.append([method, str(tokens), f"{total['read']:.1%}",
                     *(f"{cell[tokens, method, n]['score']:.0%}" if (tokens, method, n) in cell
                       else "-" for n in names),
                     f"{total['score']:.1%} ({total['score_low']:.0%} .. "
                     f"{total['score_high']:.0%})",
                     f"{total['agree']:.1%} ({total['agree_low']:.1%} .. "
                     f"{total['agree_high']:.1%})", str(total["questions"])])
    return form(["method", "tokens", "read", *names, "all", "same token as exact", "questions"],
                rows)
