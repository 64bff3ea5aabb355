# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ffd.eval around its methods: traces, measures, journals, the report, decoding
through a (tiny, random) model, tasks, calibration and the command line.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

import evalpath  # noqa: F401
from devices import DEVICES
from elements import BF16, F16
from ffd.eval import evaluate as evaluation
from ffd.eval import model_runs, model_tables, tables, tasks
from ffd.eval.calibrate import GRID, calibrate
from ffd.eval.cli import main
from ffd.eval.decoding import follow, predict, prefill
from ffd.eval.evaluate import Journal, evaluate, unpack_map
from ffd.eval.measures import Truth, ranks, salient
from ffd.eval.methods import Exact, parse
from ffd.eval.methods.ffd import load_deltas
from ffd.eval.problem import Problem, round_element
from ffd.eval.smollm.capture import capture
from ffd.eval.smollm.model import Model, causal_attention
from ffd.eval.smollm.text import from_file
from ffd.eval.trace import Trace, TraceError
from ffd_reference import Spec, rows_of
from tensorfile import half, plain, save

ROOT = Path(__file__).resolve().parent.parent.parent
SLICE = ROOT / "test" / "data" / "smollm2-slice.safetensors"


# --- Traces ----------------------------------------------------------------------

def write_trace(path: Path, element=F16, tokens: int = 300) -> Path:
    rng = np.random.default_rng(3)
    tensors = {}
    for layer in (0, 2):
        tensors[f"layers.{layer}.q"] = half((3 * rng.normal(size=(4, 4, 64))).astype(np.float32),
                                            element)
        for name in "kv":
            x = rng.normal(size=(1, tokens, 2, 64)).astype(np.float32)
            tensors[f"layers.{layer}.{name}"] = half(x, element)
        tensors[f"layers.{layer}.lengths"] = plain(
            np.array([tokens - 40, tokens - 20, tokens - 1, tokens], np.int32))
    save(path, tensors)
    return path


def test_ffd_on_a_real_trace_is_the_reference() -> None:
    """The kept blocks of every head of the stored slice, and the figures that the
    compiled kernel reports for it."""
    trace = Trace(SLICE)
    layer = trace.layer(13)
    spec = Spec(delta=5.0)
    heads = layer.q.reshape(len(layer.q), -1, 64)
    rows = np.arange(len(layer.lengths))
    out = {h: parse("ffd").run(layer.problem(h, rows)) for h in range(3)}
    compared = 0
    for some, head, row in rows_of(heads, layer.k[None], layer.v[None], layer.lengths, spec):
        tokens = np.repeat(row.select(), 16, axis=-1)
        assert np.array_equal(out[head].kept[some, 0, :row.start], tokens)
        compared += tokens.size
    assert compared > 100_000


def test_figures_of_the_slice(tmp_path: Path) -> None:
    """As ffd-run --report prints them: bytes are those of the packed cache."""
    journal = Journal(tmp_path / "trace.jsonl")
    evaluate(Trace(SLICE), [parse("ffd"), parse("ffd:delta=7")], journal, quiet=True)
    five, seven = tables.by_method(journal.records).values()
    assert round(five["read"], 3) == 0.184 and round(seven["read"], 3) == 0.281
    assert round(five["cosine"], 4) == 0.9949 and round(seven["cosine"], 4) == 0.9986
    assert round(five["relative"], 4) == 0.0781 and round(five["lse_max"], 3) == 0.654


def test_bf16_traces(tmp_path: Path) -> None:
    layer = Trace(write_trace(tmp_path / "t.safetensors", BF16)).layer(2)
    assert layer.element == "bf16"
    assert np.array_equal(layer.k, BF16.round(layer.k))
    assert not np.array_equal(layer.k, F16.round(layer.k + 1e-3))


def test_rounding_is_the_reference_s() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20000, dtype=np.uint32)
    x = bits.view(np.float32)
    for element in (F16, BF16):
        want = element.round(x)
        assert np.array_equal(round_element(x, element.name), want, equal_nan=True)


@pytest.mark.parametrize("damage, says", [
    (lambda b: b[:100], "not a safetensors file"), (lambda b: b[:-1000], "is cut short"),
    (lambda b: b[:8] + b"[" + b" " * (b.index(b"}}") - 8) + b"]" + b[b.index(b"}}") + 2:],
     "no JSON object"),
    (lambda b: b.replace(b"data_offsets", b"data_offzets"), "no valid dtype, shape and data_off"),
    (lambda b: b.replace(b"layers.2.v", b"layers.2.w"), "no tensor 'layers.2.v'"),
    (lambda b: b.replace(b".q", b".p"), "has neither"),
    (lambda b: b.replace(b"[4,4,64]", b"[8,2,64]"), r"lengths' has shape \(4,\), expected \(8,\)"),
    (lambda b: b.replace(b"[4,4,64]", b"[4,8,32]"), "expected .N, Hq, D.")])
def test_damaged_traces_are_named(tmp_path: Path, damage, says: str) -> None:
    path = write_trace(tmp_path / "t.safetensors")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TraceError, match=says):
        Trace(path).layer(2)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "folder"), (tmp_path / "pipe", "pipe"), ("/dev/zero", "device")):
        says = f"'{path}' is a {kind}, expected a regular file"
        for read in (Trace, load_deltas, from_file):
            with pytest.raises(ValueError, match=says):
                read(str(path))


# --- Measures ----------------------------------------------------------------------

def test_ranks_and_salient_tokens() -> None:
    x = np.array([3.0, 1.0, 3.0, 2.0, 1.0, 1.0])
    assert ranks(x).tolist() == [4.5, 1.0, 4.5, 3.0, 1.0, 1.0]
    assert salient(np.array([0.1, 0.5, 0.05, 0.3, 0.05]), 0.9).tolist() == [1, 1, 0, 1, 0]
    assert salient(np.array([0.25] * 4), 0.5).tolist() == [1, 1, 0, 0]


def test_measures_are_their_definitions() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((1, 2, 64), (400, 64), (400, 64)))
    problem = Problem(3 * q, k, v, np.array([390]), 9, want_estimates=True)
    truth = Truth(problem, Exact().run(problem))
    out = parse("ffd:delta=1").run(problem)
    got = truth.measure(out)
    for g in range(2):
        scores = (3 * q[0, g].astype(float)) @ k[:390].astype(float).T / 8
        p = np.exp(scores) / np.exp(scores).sum()
        kept = out.kept[0, 0, :390]
        want = p @ v[:390].astype(float)
        o = out.o[0, g].astype(float)
        estimate = out.estimate[0, g, :262].astype(float)
        order = [sorted(range(262), key=lambda t: x[t]) for x in (estimate, scores)]
        place = np.empty((2, 262))
        for i in range(2):
            place[i, order[i]] = range(262)
        expected = {
            "kept": kept.mean(), "missed": p[~kept].sum(),
            "cosine": o @ want / math.sqrt((o @ o) * (want @ want)),
            "lse": abs(out.lse[0, g] - math.log(np.exp(scores).sum())),
            "error2": ((o - want) ** 2).sum(), "size2": (want ** 2).sum(),
            "gap": scores.max() - out.pseudo_max[0, g],
            "spearman": np.corrcoef(place)[0, 1]}
        for name, value in expected.items():
            assert abs(got[name][g] - value) < 1e-3 * max(1, abs(value)), name
        mass, chosen = 0.0, 0
        best = sorted(range(390), key=lambda t: -p[t])
        while mass < 0.9:
            mass += p[best[chosen]]
            chosen += 1
        assert abs(got["hit"][g] - kept[best[:chosen]].mean()) < 1e-6
    shape = truth.shape()
    best = np.sort(problem.scores[0, 0, :390])
    assert abs(shape["top_gap"][0] - (best[-1] - best[-2])) < 1e-4
    assert abs(shape["score_std"][0] - best.std()) < 1e-4


# --- Journals and tables -------------------------------------------------------------

def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch) -> None:
    trace = Trace(write_trace(tmp_path / "t.safetensors"))
    methods = [parse(m) for m in ("exact", "ffd", "kivi")]
    whole = Journal(tmp_path / "whole.jsonl")
    evaluate(trace, methods, whole, quiet=True)
    assert len(whole.records) == 6
    data = (tmp_path / "whole.jsonl").read_bytes()
    (tmp_path / "part.jsonl").write_bytes(data[:len(data) * 2 // 3])  # torn in a line
    part = Journal(tmp_path / "part.jsonl")
    kept = len(part.records)
    assert 0 < kept < 6
    asked = []
    original = evaluation._layer
    monkeypatch.setattr(evaluation, "_layer",
                        lambda *args: asked.append(len(args[1])) or original(*args))
    evaluate(trace, methods, part, quiet=True)
    assert sum(asked) == 6 - kept
    again = Journal(tmp_path / "part.jsonl").records

    def key(r: dict) -> tuple:
        return r["layer"], r["method"]
    assert sorted(again, key=key) == sorted(whole.records, key=key)


def test_parallel_layers_give_the_same(tmp_path: Path) -> None:
    trace = Trace(write_trace(tmp_path / "t.safetensors"))
    one, two = (Journal(tmp_path / f"{n}.jsonl") for n in (1, 2))
    for journal, jobs in ((one, 1), (two, 2)):
        evaluate(trace, [parse("ffd"), parse("quest")], journal, queries=2, jobs=jobs, quiet=True)
    assert one.records == two.records


def test_maps_show_kept_blocks(tmp_path: Path) -> None:
    trace = Trace(write_trace(tmp_path / "t.safetensors"))
    journal = Journal(tmp_path / "j.jsonl")
    evaluate(trace, [parse("ffd:delta=1")], journal, layers=[2], quiet=True)
    entry = journal.records[0]["maps"][1]
    out = parse("ffd:delta=1").run(trace.layer(2).problem(1, np.arange(4)))
    kept = unpack_map(entry)
    assert kept.shape == (4, 300 // 16)
    assert np.array_equal(np.repeat(kept, 16, axis=1)[:, :256], out.kept[:, 0, :256])


def test_report(tmp_path: Path) -> None:
    assert main(["trace", str(SLICE), "-o", str(tmp_path), "-q", "--queries", "3", "-m", "exact",
                 "ffd", "ffd:delta=7,centre=row", "quest:budget=256", "kivi"]) == 0
    assert main(["report", "-o", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img ") >= 6 and "ffd:delta=7,centre=row" in page
    for outside in ("src=\"http", "href=", "<script", "@import", "url("):
        assert outside not in page
    rows = (tmp_path / "heads.csv").read_text().splitlines()
    assert len(rows) == 1 + 5 * 2 * 9 and rows[0].startswith("trace,method,layer,head,")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["methods"]["exact"]["read"] == 1.0
    text = (tmp_path / "tables.md").read_text()
    assert "| ffd |" in text and "smollm2-slice.safetensors (2500 tokens, 2 layers)" in text


def test_report_of_many_methods(tmp_path: Path) -> None:
    """More families of one method than there are colours and markers."""
    trace = Trace(write_trace(tmp_path / "t.safetensors"))
    journal = Journal(tmp_path / "trace.jsonl")
    evaluate(trace, [parse("ffd")], journal, layers=[2], quiet=True)
    names = [f"ffd:keep_sink={i}" for i in range(1, 40)]
    for name in names:
        journal.add({**journal.records[0], "method": name})
    assert main(["report", "-o", str(tmp_path)]) == 0
    drawn = (tmp_path / "figure-1.svg").read_text()
    assert all(f">{name}<" in drawn for name in names)


# --- A tiny model -------------------------------------------------------------------

@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """Two layers of random numbers, whose tokens are bytes."""
    from ffd.eval.smollm.tokenizer import _byte_characters
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    rng = np.random.default_rng(5)
    layers, heads, kv_heads, D, C, F = 2, 4, 2, 32, 128, 96
    writer = GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(D)
    writer.add_context_length(8192)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_token_list(_byte_characters())
    writer.add_token_merges(["x y"])

    def add(name: str, *shape: int, mean: float = 0.0, scale: float = 0.2) -> None:
        x = mean + scale * rng.normal(size=shape)
        writer.add_tensor(name, x.astype(np.float32))
    add("token_embd.weight", 256, C, scale=1.0)
    add("output_norm.weight", C, mean=1.0)
    for i in range(layers):
        for name, shape in {"attn_norm": (C,), "ffn_norm": (C,), "attn_q": (heads * D, C),
                            "attn_k": (kv_heads * D, C), "attn_v": (kv_heads * D, C),
                            "attn_output": (C, heads * D), "ffn_gate": (F, C), "ffn_up": (F, C),
                            "ffn_down": (C, F)}.items():
            add(f"blk.{i}.{name}.weight", *shape, mean=1.0 if "norm" in name else 0.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model(weights: Path) -> Model:
    return Model(weights, keep=True)


TEXT = "".join(random.Random(1).choices("abcdefghij klmnop. qrstuvw\n", k=6000))


def test_attention_of_the_model() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((70, 4, 32), (90, 2, 32),
                                                               (90, 2, 32)))
    got = causal_attention(q, k, v, chunk=32)
    for t in range(70):
        for h in range(4):
            scores = k[:21 + t, h // 2].astype(float) @ q[t, h].astype(float) / math.sqrt(32)
            p = np.exp(scores - scores.max())
            assert np.allclose(got[t, h], p @ v[:21 + t, h // 2] / p.sum(), atol=1e-5)


@pytest.mark.parametrize("name", ["exact", "ffd:delta=3", "quest:budget=64,dense_layers=0",
                                  "streaming:window=50", "kivi", "ffd:delta=3,centre=middle"])
def test_a_chunk_equals_token_after_token(model: Model, name: str) -> None:
    ids = model.tokenizer().encode(TEXT)[:300]
    method = parse(name)
    context = prefill(model, ids[:250], 50)
    states, traffic = follow(context, ids[250:], method)
    again = prefill(model, ids[:250], 50)
    for i, token in enumerate(ids[250:]):
        one, _ = follow(again, [token], method, fixed=250)
        # f16 rounding of attention outputs may fall the other way.
        assert np.abs(one[0] - states[i]).max() < 0.02 * np.abs(states[i]).max(), i
        again = again.behind(one)
    assert 0 < traffic.read <= traffic.dense
    if name == "exact":
        assert traffic.read == traffic.dense
        list(model.forward(ids, model.layers - 1))
        assert np.allclose(states, model.hidden[250:], atol=0.05 * np.abs(states).max())


def test_threads_change_nothing(model: Model, weights: Path) -> None:
    ids = model.tokenizer().encode(TEXT)[:600]
    one, many = (prefill(m, ids, 0) for m in (model, Model(weights, keep=True, threads=3)))
    assert np.array_equal(one.cache.k, many.cache.k)
    assert np.allclose(one.last, many.last, atol=1e-4)


def test_predictions(model: Model) -> None:
    ids = model.tokenizer().encode(TEXT)[:200]
    context = prefill(model, ids[:190], 10)
    states, _ = follow(context, ids[190:], parse("exact"))
    base, none = predict(context, ids[190:], states, None, keep=True)
    assert none is None
    logits = np.concatenate((context.last[None], states[:-1])) @ model._weight(
        "token_embd.weight").T
    p = np.exp(logits.astype(float))
    p /= p.sum(axis=1, keepdims=True)
    assert np.allclose(base.nll, -np.log(p[np.arange(10), ids[190:]]), atol=1e-3)
    assert base.top.tolist() == p.argmax(axis=1).tolist()
    other, _ = follow(context, ids[190:], parse("streaming:window=8"))
    q = np.exp(np.concatenate((context.last[None], other[:-1])).astype(float)
               @ model._weight("token_embd.weight").T.astype(float))
    q /= q.sum(axis=1, keepdims=True)
    _, divergence = predict(context, ids[190:], other, base.logp)
    assert np.allclose(divergence, (p * np.log(p / q)).sum(axis=1), atol=1e-3)
    assert divergence[1:].max() > 1e-3


@pytest.mark.parametrize("device", DEVICES[1:])
def test_torch_runs_what_numpy_runs(weights: Path, tmp_path: Path, device: str) -> None:
    """All kv heads and rows at once there, head by head in pieces here. Sums in
    another order change states by the rounding of f16, and now and then a block."""
    names = ["exact", "ffd:delta=4", "ffd:delta=2,centre=row,refine_max=true", "kivi",
             "quest:budget=0.3,dense_layers=0", "twilight:dense_layers=0", "sparq:budget=0.2",
             "streaming:window=0.1"]
    methods, records = [parse(m) for m in names], {}
    for where in ("numpy", device):
        journal = Journal(tmp_path / f"{where}.jsonl")
        model = Model(weights, keep=True, device=where)
        model_runs.perplexity(model, TEXT, "random", 500, 200, methods, journal, 1, True)
        model_runs.run_tasks(model, "In the beginning. And it was good. " * 300, [2500],
                             range(1), methods[:2], journal, 1, True)
        records[where] = journal.records
    for one, other in zip(*records.values()):
        assert (one["method"], one["device"], other["device"]) == (other["method"], "numpy", device)
        assert abs(one["read"] - other["read"]) < 0.003
        if one["kind"] == "perplexity":
            assert abs(np.mean(one["nll"]) - np.mean(other["nll"])) < 0.01
            assert abs(np.mean(one["kl"]) - np.mean(other["kl"])) < 0.01 + 0.05 * np.mean(one["kl"])
            same = np.mean([a == b for a, b in zip(one["agree"], other["agree"])])
            assert same > 0.95, one["method"]


def test_perplexity_runs_and_goes_on(model: Model, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "m.jsonl")
    methods = [parse(m) for m in ("exact", "streaming:window=16", "ffd:delta=4")]
    model_runs.perplexity(model, TEXT, "random", 400, 64, methods[:2], journal, 1, True)
    model_runs.perplexity(model, TEXT, "random", 400, 64, methods, journal, 2, True)
    assert [r["method"] for r in journal.records] == [m.text for m in methods]
    lines = {x["method"]: x for x in model_tables.perplexities(journal.records)}
    assert lines["exact"]["kl"] == 0 and lines["exact"]["agree"] == 1
    assert lines["exact"]["increase"] == 0
    worst = lines["streaming:window=16"]
    assert worst["kl"] > 0.01 and worst["agree"] < 1 and worst["read"] < 0.1
    assert worst["kl_low"] < worst["kl"] < worst["kl_high"]
    assert "random" in model_tables.perplexity_table(list(lines.values()))


def _predicted(text: str, method: str, nll: list[float], tokens: int = 500) -> dict:
    return {"kind": "perplexity", "text": text, "tokens": tokens, "last": len(nll),
            "method": method, "read": 0.5, "kept": 0.5, "nll": nll,
            "kl": [x / 10 for x in nll], "agree": "01" * (len(nll) // 2)}


def test_texts_together() -> None:
    """Every token counts once, and only methods that ran on all texts."""
    records = [_predicted("a", "exact", [1.0] * 64), _predicted("b", "exact", [2.0] * 64),
               _predicted("a", "kivi", [1.5] * 32 + [1.0] * 32),
               _predicted("b", "kivi", [3.0] * 64), _predicted("b", "quest", [2.0] * 64),
               _predicted("c", "kivi", [9.0] * 64),  # without exact attention
               _predicted("a", "exact", [1.0] * 64, 900)]  # one text of that length
    lines = model_tables.perplexities(records)
    assert not any(x["text"] == "c" for x in lines)
    together = {x["method"]: x for x in lines if x["text"] == model_tables.ALL}
    assert sorted(together) == ["exact", "kivi"] and together["kivi"]["tokens"] == 500
    kivi = together["kivi"]
    assert kivi["increase"] == pytest.approx(100 * np.expm1((0.25 + 1.0) / 2))
    assert kivi["perplexity"] == pytest.approx(np.exp((1.25 + 3.0) / 2))
    assert kivi["kl"] == pytest.approx(0.2125) and kivi["agree"] == 0.5
    assert kivi["increase_low"] < kivi["increase"] < kivi["increase_high"]
    table = model_tables.by_text([x for x in lines if x["tokens"] == 500], "agree")
    assert table.splitlines()[0].split() == ["method", "a", "b"]
    assert table.splitlines()[-1].split()[:2] == ["quest", "-"]


def test_tasks_run(model: Model, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "m.jsonl")
    methods = [parse(m) for m in ("exact", "ffd:delta=4")]
    text = "In the beginning there was a word. And it was good. " * 200
    for _ in range(2):  # the second run finds everything done
        model_runs.run_tasks(model, text, [2500], range(1), methods, journal, 1, True)
    assert len(journal.records) == 4
    lines = model_tables.task_scores(journal.records)
    exact = next(x for x in lines if (x["method"], x["task"]) == ("exact", "all"))
    assert exact["agree"] == 1.0 and exact["questions"] == 10
    assert "multikey" in model_tables.task_table(lines)


def test_tasks_are_drawn_by_sample() -> None:
    """Questions of a sample that go the same way are not evidence eight times; the
    distance from exact attention is that of the same prompts."""
    def answered(sample: int, method: str, right: int, prompt: str = "needles") -> dict:
        answer = {"task": "multikey", "right": [right], "agree": [1, right]}
        return {"kind": "task", "tokens": 2048, "sample": sample, "prompt": prompt,
                "method": method, "read": 0.5, "answers": [answer] * 8}
    records = [answered(i, "exact", i % 2) for i in range(20)]
    records += [answered(i, "kivi", int(i % 4 == 1)) for i in range(20)]
    records.append(answered(20, "exact", 1))  # kivi did not come to it
    lines = {(x["method"], x["task"]): x for x in model_tables.task_scores(records)}
    exact, kivi = lines["exact", "all"], lines["kivi", "all"]
    assert exact["questions"] == 160 and exact["samples"] == 20
    assert exact["score"] == 0.5 and kivi["score"] == 0.25 and kivi["agree"] == 0.625
    # 20 draws of a half: 1.96 * sqrt(0.25 / 20); 160 would give 0.08.
    assert abs(exact["score_high"] - exact["score_low"] - 2 * 0.22) < 0.07
    assert exact["above"] == 0 == exact["above_high"] and kivi["above"] == -0.25
    assert -0.5 < kivi["above_low"] < -0.25 < kivi["above_high"] < 0
    assert "20 / 160" in model_tables.task_table(list(lines.values()))


def test_capture(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    capture(model, TEXT, "random", 400, 5, path, quiet=True)
    trace = Trace(path)
    layer = trace.layer(1)
    assert trace.layers == [0, 1] and layer.q.shape == (5, 2, 2, 32)
    assert layer.k.shape == (400, 2, 32) and layer.lengths.tolist()[-1] == 400
    with pytest.raises(ValueError, match="expected 9000"):
        capture(model, TEXT, "random", 9000, 5, path, quiet=True)


def test_capture_from_the_command_line(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    path = tmp_path / "t.safetensors"
    assert main(["capture", str(path), "--weights", str(weights), "--text",
                 str(tmp_path / "text"), "--tokens", "300", "--queries", "2", "-q"]) == 0
    assert len(Trace(path).layer(0).lengths) == 2
    out = tmp_path / "out"
    assert main(["model", "--weights", str(weights), "--text", str(tmp_path / "text"), "--tokens",
                 "300", "--last", "20", "--tasks", "0", "-m", "exact", "kivi", "-o", str(out),
                 "-q"]) == 0
    assert main(["report", "-o", str(out)]) == 0
    assert "Through the model" in (out / "report.html").read_text()


# --- Tasks --------------------------------------------------------------------------

def test_prompts_hold_what_is_asked() -> None:
    def encode(text: str) -> list[int]:
        return list(text.encode())
    text = "A sentence that says little. Another one, longer than the first. " * 500
    needles, words = tasks.sample(3, 4000, text, encode)
    assert tasks.sample(3, 4000, text, encode)[0].text == needles.text  # the same again
    assert tasks.sample(4, 4000, text, encode)[0].text != needles.text
    for prompt in (needles, words):
        assert 3200 < len(prompt.text) < 4000
    kinds = [q.task for q in needles.questions]
    assert kinds == ["single", *["multikey"] * 3, *["multivalue"] * 2, *["variables"] * 2]
    for question in needles.questions:
        items = [t.strip() for t, item in question.answer if item]
        if question.task in ("single", "multikey"):
            fact = f"{question.text} {items[0]}."
            assert needles.text.count(fact) == 1 and needles.text.count(items[0]) == 1
        elif question.task == "multivalue":
            places = [needles.text.index(f" is: {i}.") for i in items]
            assert len(items) == 3 and places == sorted(places)
        else:
            places = [needles.text.index(f"VAR {i} = VAR") for i in items]
            assert len(items) == 3 and places == sorted(places)
    common, frequent = words.questions
    listed = words.text.split("\n")[1].split()
    counts = {w: listed.count(w) for w in listed if not w.endswith(".")}
    best = sorted(counts, key=lambda w: -counts[w])[:5]
    assert sorted(best) == sorted(t.strip() for t, item in common.answer if item)
    coded = words.text.split("frequent.\n")[1].split()
    best = sorted(set(coded), key=lambda w: -coded.count(w))[:3]
    assert best == [t.strip() for t, item in frequent.answer if item]


def test_scores_of_answers() -> None:
    ordered = tasks.Question("multivalue", "", tasks.listing(["12", "34"]))
    ids, spans = ordered.encoded(lambda t: list(t.encode()))
    assert bytes(ids) == b" 12, 34" and spans == [(0, 3), (4, 7)]
    assert tasks.score(ordered, ids, spans, list(ids)) == [True, True]
    assert tasks.score(ordered, ids, spans, list(b" 13, 34")) == [False, True]
    free = tasks.Question("common", "", [("ab", True), (",", False), ("cd", True)], False)
    ids, spans = free.encoded(lambda t: list(t.encode()))
    assert tasks.score(free, ids, spans, list(b"cx,cx")) == [True, True]
    assert tasks.score(free, ids, spans, list(b"ab,ab")) == [True, False]  # listed already


def test_intervals_hold_their_mean() -> None:
    x = np.random.default_rng(0).normal(3.0, 1.0, 400)
    low, high = model_tables.interval(x)
    assert low < x.mean() < high and abs((high - low) - 2 * 1.96 / 20) < 0.03


# --- Calibration and the command line -------------------------------------------------

def test_calibration_meets_its_target(tmp_path: Path) -> None:
    trace, path = Trace(SLICE), tmp_path / "deltas.json"
    calibrate(trace, parse("ffd"), 0.02, 4, path, quiet=True)
    method = parse(f"ffd:deltas={path}")
    table = json.loads(path.read_text())["deltas"]
    for layer in trace.layers:
        rows = np.unique(np.linspace(0, 15, 4).astype(int))
        for head in range(3):
            problem = trace.layer(layer).problem(head, rows)
            truth = Truth(problem, Exact().run(problem))
            delta = table[str(layer)][head]
            assert np.mean(truth.measure(method.run(problem))["missed"]) <= 0.02
            if delta > GRID[0]:
                less = parse(f"ffd:delta={delta - 0.5}").run(problem)
                assert np.mean(truth.measure(less)["missed"]) > 0.02
    with pytest.raises(ValueError, match="no delta for layer 20"):
        problem.layer = 20
        method.run(problem)


@pytest.mark.parametrize("arguments, says", [
    (["trace", str(SLICE), "-m", "nothing"], "unknown method 'nothing'"),
    (["trace", "missing.safetensors"], "missing.safetensors"),
    (["trace", str(SLICE), "--layers", "3"], "has no layer 3"),
    (["trace", str(SLICE), "-j", "0"], "--jobs=0: expected 1 or more"),
    pytest.param(["model", "--text", __file__, "--device", "cuda:77"], "--device=cuda:77",
                 marks=pytest.mark.skipif(len(DEVICES) == 1, reason="without torch")),
    (["report"], "no results"),
    (["calibrate", str(SLICE), "--target", "2", "-o", "x"], "--target=2.0"),
    (["calibrate", str(SLICE), "-m", "kivi", "-o", "x"], "expected ffd")])
def test_errors_of_the_command_line(arguments: list[str], says: str, tmp_path: Path, capsys,
                                    monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, *([] if arguments[0] == "calibrate" else ["-q"])]) == 1
    assert says in capsys.readouterr().err


def test_methods_are_listed(capsys) -> None:
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    for paper in ("2406.10774", "2402.02750", "2502.02770", "2312.04985", "2309.17453"):
        assert paper in out


def test_tables_of_spread_and_stress(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "trace.jsonl")
    evaluate(Trace(SLICE), [parse("exact"), parse("ffd")], journal, queries=2, quiet=True)
    line = tables.variation(journal.records, ["ffd"]).splitlines()[1].split()
    kept = np.concatenate([r["heads"]["kept"] for r in journal.records if r["method"] == "ffd"])
    assert line[:4] == ["ffd", "18", f"{100 * kept.mean():.1f}", f"{100 * kept.std():.1f}"]
    rows = tables.stress(journal.records, ["ffd"], lambda header, rows: rows)
    assert [r[1] for r in rows] == ["regular", "flat or several peaks"]
    shares = [float(r[2].split()[0]) for r in rows]
    assert abs(sum(shares) - 100) < 0.2 and 10 <= shares[1] <= 25


def test_comparison_at_equal_bytes() -> None:
    def line(read: float, error: float) -> dict[str, float]:
        return {"read": read, "relative": error, "lse": 2 * error, "missed": error / 2}
    summary = {"ffd:delta=3": line(0.2, 0.1), "ffd:delta=7": line(0.4, 0.001),
               "kivi": line(0.3, 0.02), "streaming": line(0.5, 0.1)}
    rows = tables.equal_bytes(summary, "ffd", lambda header, rows: rows)
    assert rows == [["kivi", "30.0%", "2.00", "2.00", "2.00"]]  # the base has 0.01 there


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="would install into .venv")
def test_the_script_runs() -> None:
    done = subprocess.run([ROOT / "scripts" / "ffd-eval", "methods"], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "2406.10774" in done.stdout
