# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries of model runs, with 95 % confidence intervals by bootstrap."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from .tables import text

BLOCK = 32  # neighbouring tokens that are drawn together
DRAWS = 2000


def interval(sums: np.ndarray, counts: np.ndarray | None = None) -> tuple[float, float]:
    """2.5 and 97.5 percent points of sum / count over independent units drawn with
    replacement; both [units], counts of 1 by default."""
    drawn = np.random.default_rng(0).integers(0, len(sums), (DRAWS, len(sums)))
    means = sums[drawn].sum(1) / (len(sums) if counts is None else counts[drawn].sum(1))
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def _blocks(x: np.ndarray) -> np.ndarray:
    """[N] -> means of [blocks]; a remainder is left out."""
    block = min(BLOCK, len(x))
    return x[:len(x) // block * block].reshape(-1, block).mean(1)


ALL = "all texts"


def perplexities(records: list[dict]) -> list[dict]:
    """Per text, length and method: perplexity, its ratio to that of exact
    attention, divergence and agreement, each with an interval. Where several texts
    have the same length and methods, lines of all of them together follow."""
    runs: dict[tuple, dict[str, dict[str, dict]]] = defaultdict(lambda: defaultdict(dict))
    for r in records:
        if r["kind"] == "perplexity":
            runs[r["tokens"], r["last"]][r["text"]][r["method"]] = r
    lines = []
    for key, texts in runs.items():
        texts = {name: methods for name, methods in texts.items() if "exact" in methods}
        for name, methods in texts.items():
            lines += [_line(key, name, [(r, methods["exact"])]) for r in methods.values()]
        shared = [m for m in dict.fromkeys(m for methods in texts.values() for m in methods)
                  if all(m in methods for methods in texts.values())]
        if len(texts) > 1:
            lines += [_line(key, ALL, [(methods[m], methods["exact"])
                                       for methods in texts.values()]) for m in shared]
    return lines


def _line(key: tuple[int, int], name: str, runs: list[tuple[dict, dict]]) -> dict:
    """One method's runs, each with that of exact attention over the same tokens."""
    def joined(of) -> np.ndarray:
        return np.concatenate([of(r, base) for r, base in runs])

    line = {"text": name, "tokens": key[0], "last": key[1], "method": runs[0][0]["method"],
            "read": float(np.mean([r["read"] for r, _ in runs])),
            "kept": float(np.mean([r["kept"] for r, _ in runs])),
            "perplexity": float(np.exp(joined(lambda r, _: r["nll"]).mean()))}
    columns = {"increase": lambda r, base: np.array(r["nll"]) - np.array(base["nll"]),
               "kl": lambda r, _: np.array(r["kl"]),
               "agree": lambda r, _: np.array([int(c) for c in r["agree"]])}
    for what, of in columns.items():
        mean = joined(of).mean()
        low, high = interval(joined(lambda r, base, of=of: _blocks(of(r, base))))
        for end, value in (("", mean), ("_low", low), ("_high", high)):
            line[what + end] = float(100 * np.expm1(value) if what == "increase" else value)
    return line


def _cell(line: dict, what: str, form: str) -> str:
    """The value and its interval; `form` has three places."""
    if what not in line:
        return "-"
    return form.format(*(line[what + end] for end in ("", "_low", "_high")))


INCREASE = "{:+.2f} % ({:+.2f} .. {:+.2f})"
KL = "{:.4f} ({:.4f} .. {:.4f})"
SHARE = "{:.1%} ({:.1%} .. {:.1%})"


def perplexity_table(lines: list[dict], form=text) -> str:
    header = ["method", "text", "tokens", "read", "perplexity", "increase", "KL to exact",
              "same token as exact"]
    return form(header, [[
        x["method"], x["text"], str(x["tokens"]), f"{x['read']:.1%}", f"{x['perplexity']:.3f}",
        _cell(x, "increase", INCREASE), _cell(x, "kl", KL), _cell(x, "agree", SHARE)]
        for x in lines])


def by_text(lines: list[dict], what: str, form=text) -> str:
    """Methods against the texts of one length: "increase", "kl" or "agree"."""
    shown = {"increase": INCREASE, "kl": KL, "agree": SHARE}[what]
    texts = [t for t in dict.fromkeys(x["text"] for x in lines) if t != ALL]
    cell = {(x["text"], x["method"]): _cell(x, what, shown) for x in lines}
    return form(["method", *texts],
                [[m, *(cell.get((t, m), "-") for t in texts)]
                 for m in dict.fromkeys(x["method"] for x in lines) if m != "exact"])


def task_scores(records: list[dict]) -> list[dict]:
    """Per length, task and method: share of right items, what it is above that of
    exact attention in the same prompts, and the share of answer tokens that exact
    attention would choose too; means over questions. Units of the bootstrap are
    samples, not questions: those of one prompt share its text and its cache. Only
    prompts that every method asked at their length has finished count."""
    records = [r for r in records if r["kind"] == "task"]
    methods: dict[int, set[str]] = defaultdict(set)
    have: dict[tuple, set[str]] = defaultdict(set)
    for r in records:
        methods[r["tokens"]].add(r["method"])
        have[r["tokens"], r["sample"], r["prompt"]].add(r["method"])
    # tokens, task, method -> sample -> [right, same, questions], sums
    groups: dict[tuple, dict[int, np.ndarray]] = defaultdict(lambda: defaultdict(
        lambda: np.zeros(3)))
    read: dict[tuple, list[float]] = defaultdict(list)
    for r in records:
        if len(have[r["tokens"], r["sample"], r["prompt"]]) < len(methods[r["tokens"]]):
            continue
        read[r["tokens"], r["method"]].append(r["read"])
        for a in r["answers"]:
            one = np.array([np.mean(a["right"]), np.mean(a["agree"]), 1])
            for task in (a["task"], "all"):
                groups[r["tokens"], task, r["method"]][r["sample"]] += one
    lines = []
    for (tokens, task, method), samples in groups.items():
        x = np.array(list(samples.values()))
        line = {"tokens": tokens, "task": task, "method": method, "questions": int(x[:, 2].sum()),
                "samples": len(x), "read": float(np.mean(read[tokens, method]))}
        wanted = {"score": x[:, 0], "agree": x[:, 1]}
        if exact := groups.get((tokens, task, "exact")):
            wanted["above"] = x[:, 0] - [exact[i][0] for i in samples]
        for what, sums in wanted.items():
            low, high = interval(sums, x[:, 2])
            line |= {what: float(sums.sum() / x[:, 2].sum()), f"{what}_low": low,
                     f"{what}_high": high}
        lines.append(line)
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
        points = {k: 100 * x for k, x in total.items() if k.startswith("above")}
        rows.append([method, str(tokens), f"{total['read']:.1%}",
                     *(f"{cell[tokens, method, n]['score']:.0%}" if (tokens, method, n) in cell
                       else "-" for n in names),
                     _cell(total, "score", "{:.1%} ({:.0%} .. {:.0%})"),
                     _cell(points, "above", "{:+.1f} ({:+.1f} .. {:+.1f})"),
                     _cell(total, "agree", SHARE), f"{total['samples']} / {total['questions']}"])
    return form(["method", "tokens", "read", *names, "all", "points above exact",
                 "same token as exact", "samples / questions"], rows)
