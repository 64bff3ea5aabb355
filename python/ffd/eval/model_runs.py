# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Perplexity, agreement and tasks of a model whose attention is a method.

Every result is one line of a journal, so a run goes on where it was stopped.
Methods of one prompt run in parallel processes that share the prompt's K and V.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from tqdm import tqdm

from . import tasks
from .decoding import Context, Traffic, follow, predict, prefill
from .evaluate import Journal
from .methods import Method, parse
from .parallel import parallel
from .smollm.model import Model


def _prompt(model: Model, tokens: list[int], room: int, name: str, quiet: bool) -> Context:
    with tqdm(total=model.layers, desc=f"prompt {name}", unit="layer", leave=False,
              disable=quiet) as bar:
        return prefill(model, tokens, room, bar.update)


def perplexity(model: Model, text: str, name: str, tokens: int, last: int, methods: list[Method],
               journal: Journal, jobs: int, quiet: bool = False) -> None:
    """Predicts the last `last` of the first `tokens` tokens of `text`."""
    key = {"kind": "perplexity", "text": name, "tokens": tokens, "last": last}
    have = {r["method"] for r in journal.records if key.items() <= r.items()}
    missing = [m for m in methods if m.text not in have]
    if not missing:
        return
    ids = model.tokenizer().encode(text[:12 * tokens])[:tokens]
    if len(ids) < tokens or not 0 < last < tokens:
        raise ValueError(f"text '{name}' has {len(ids)} tokens; expected {tokens}, the last "
                         f"{last} of which are predicted")
    context = _prompt(model, ids[:-last], last, f"{name} {tokens}", quiet)
    given = ids[-last:]
    exact = parse("exact")
    states, traffic = follow(context, given, exact, threads=jobs)
    base, _ = predict(context, given, states, None, keep=True)

    def run(method: Method) -> dict:
        if method == exact:
            guess, divergence, read = base, np.zeros(last), traffic
        else:
            states, read = follow(context, given, method)
            guess, divergence = predict(context, given, states, base.logp)
        return {**key, "method": method.text, "device": model.device, **_read(read),
                "nll": _short(guess.nll), "kl": _short(divergence),
                "agree": "".join("01"[int(x)] for x in guess.top == base.top)}

    with tqdm(total=len(missing), desc=f"perplexity {name} {tokens}", unit="method",
              disable=quiet) as bar:
        for record in parallel(run, missing, jobs, partial(setattr, model, "threads", 1)):
            journal.add(record)
            bar.update()


def _read(traffic: Traffic) -> dict:
    read, kept = traffic.shares()
    return {"read": round(read, 5), "kept": round(kept, 5)}


def _short(x: Iterable[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in x]


def run_tasks(model: Model, text: str, lengths: list[int], samples: Iterable[int], methods: list[Method],
              journal: Journal, jobs: int, quiet: bool = False) -> None:
    """All tasks at every length; samples outermost, so that a stopped run has
    whole samples."""
    tokenizer = model.tokenizer()
    have = {(r["tokens"], r["sample"], r["prompt"], r["method"]) for r in journal.records
            if r["kind"] == "task"}
    exact = parse("exact")
    everything = [exact, *(m for m in methods if m != exact)]
    for index in samples:
        for tokens in lengths:
            for prompt in tasks.sample(index, tokens, text, tokenizer.encode):
                missing = [m for m in everything
                           if (tokens, index, prompt.kind, m.text) not in have]
                if missing:
                    _ask(model, prompt, tokens, index, missing, journal, jobs, quiet)


def _ask(model: Model, prompt: tasks.Prompt, tokens: int, index: int, methods: list[Method],
         journal: Journal, jobs: int, quiet: bool) -> None:
    """Each question is decoded exactly behind the prompt, each answer with every
    method behind the question; one pass tells which tokens the model would choose
    while its answer is right, which is what greedy decoding would do."""
    encode = model.tokenizer().encode
    ids = encode(prompt.text)
    asked = [(question, encode(question.text), *question.encoded(encode))
             for question in prompt.questions]
    name = f"{prompt.kind} {tokens} #{index}"
    context = _prompt(model, ids, max(len(q) + len(a) for _, q, a, _ in asked), name, quiet)
    exact = parse("exact")
    views = []  # the context behind each question, and what it wrote into the cache
    for _, text, _, _ in asked:
        view = context.behind(follow(context, text, exact)[0])
        views.append((view, view.tail(len(ids))))

    def run(method: Method) -> tuple[Traffic, list[np.ndarray]]:
        total, likely = Traffic(), []
        for (_, _, answer, _), (view, tail) in zip(asked, views):
            view.restore(len(ids), tail)
            states, traffic = follow(view, answer, method, len(ids))
            likely.append(predict(view, answer, states, None)[0].top)
            total.add(traffic)
        return total, likely

    wanted = [exact, *(m for m in methods if m != exact)]  # the first is compared with
    want: list[np.ndarray] = []
    with tqdm(total=len(wanted), desc=name, unit="method", disable=quiet) as bar:
        # One thread in a worker: the others have the other cores.
        results = parallel(run, wanted, jobs, partial(setattr, model, "threads", 1))
        for method, (traffic, likely) in zip(wanted, results):
            want = want or likely
            answers = [{"task": question.task,
                        "right": [int(x) for x in tasks.score(question, answer, spans,
                                                              top.tolist())],
                        "agree": [int(x) for x in top == base]}
                       for (question, _, answer, spans), top, base in zip(asked, likely, want)]
            if method in methods:
                journal.add({"kind": "task", "tokens": tokens, "sample": index,
                             "prompt": prompt.kind, "method": method.text,
                             "device": model.device, **_read(traffic),
                             "answers": answers})
            bar.update()
