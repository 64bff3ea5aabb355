#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times dense decode attention of PyTorch (and FlashInfer, if importable) for
ffd-bench: usage torch_sdpa.py request.json reply.json.

Every backend is timed as ffd-bench times its own kernels: one CUDA graph of
launches over rotating copies that together exceed the cache several times, the
median over replays. Each SDPA backend is tried in two forms, `gqa`
(enable_gqa=True, one query token) and `packed` (the query heads of a group as
query tokens, which is the same attention); whatever a backend refuses is left
out."""

from __future__ import annotations

import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CACHE_TIMES = 4
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}


def time_graph(launch, copies: int, reps: int) -> float:
    """Seconds of one launch(i), i rotating over the copies."""
    launches = copies * -(-8 // copies)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(min(launches, 4)):
            launch(i % copies)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = [launch(i % copies) for i in range(launches)]
        for _ in range(3):
            graph.replay()
        times = []
        for _ in range(reps):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) * 1e-3 / launches)
    del kept, graph
    return statistics.median(times)


def sdpa_times(request: dict, q, k, v, reps: int) -> dict[str, float]:
    """q [copy, B, Hkv, G, D], k and v [copy, B, Hkv, T, D]."""
    copies, batch, heads, group, dim = q.shape
    one = q.reshape(copies, batch, heads * group, 1, dim)
    forms = {"gqa": lambda i: F.scaled_dot_product_attention(one[i], k[i], v[i], enable_gqa=True),
             "packed": lambda i: F.scaled_dot_product_attention(q[i], k[i], v[i])}
    # The math backend in float32 on one sequence and kv head: what is right.
    score = (q[0, 0, 0].float() @ k[0, 0, 0].float().T) * dim**-0.5
    right = torch.softmax(score, dim=-1) @ v[0, 0, 0].float()
    found = {}
    for name, backend in BACKENDS.items():
        for form, launch in forms.items():
            try:
                with sdpa_kernel([backend]):
                    got = launch(0)
                    got = got.reshape(batch, heads, group, -1)[0, 0].float()
                    if not torch.dist(got, right) <= 2e-2 * right.norm():
                        raise RuntimeError("wrong result")
                    found[f"{name}-{form}"] = time_graph(launch, copies, reps)
            except RuntimeError as refused:
                print(f"{name}-{form}: {str(refused).splitlines()[0]}", file=sys.stderr)
                torch.cuda.synchronize()
    return found


def flashinfer_times(request: dict, q, k, v, reps: int) -> dict[str, float]:
    """FlashInfer's batched decode over pages of 16 tokens, on tensor cores."""
    try:
        import flashinfer
    except ImportError:
        return {}
    copies, batch, heads, group, dim = q.shape
    tokens, page = k.shape[3], 16
    pages = tokens // page  # whole pages only: never more work than the others
    try:
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), "NHD",
            use_cuda_graph=True, use_tensor_cores=True,
            paged_kv_indptr_buffer=torch.empty(batch + 1, dtype=torch.int32, device="cuda"),
            paged_kv_indices_buffer=torch.empty(batch * pages, dtype=torch.int32, device="cuda"),
            paged_kv_last_page_len_buffer=torch.empty(batch, dtype=torch.int32, device="cuda"))
        counts = torch.arange(batch + 1, dtype=torch.int32) * pages
        ids = torch.randperm(batch * pages).to(torch.int32)
        wrapper.plan(counts, ids, torch.full((batch,), page, dtype=torch.int32), heads * group,
                     heads, dim, page, q_data_type=q.dtype, kv_data_type=k.dtype)
        paged = [tuple(x[i][:, :, :pages * page].reshape(batch, heads, pages, page, dim)
                       .permute(0, 2, 3, 1, 4).reshape(-1, page, heads, dim).contiguous()
                       for x in (k, v)) for i in range(copies)]
        rows = q.reshape(copies, batch, heads * group, dim)
        return {"flashinfer": time_graph(lambda i: wrapper.run(rows[i], paged[i]), copies, reps)}
    except Exception as failed:  # another version's interface, memory, compilation
        print(f"flashinfer: {failed}", file=sys.stderr)
        return {}


def measure(request: dict, point: dict) -> dict[str, float]:
    heads, group = request["kv_heads"], request["group"]
    dim, value_dim = request["head_dim"], request["value_dim"]
    batch, tokens = point["batch"], point["visible"]
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[request["dtype"]]
    size = batch * heads * tokens * (dim + value_dim) * 2
    free, _ = torch.cuda.mem_get_info()
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    copies = max(2, min(64, -(-CACHE_TIMES * cache // size)))
    copies = min(copies, int(free * 0.4) // size)
    if copies < 1:
        raise MemoryError(f"{size >> 20} MB do not fit")
    torch.manual_seed(1)

    def normal(*shape):
        return torch.randn(shape, dtype=dtype, device="cuda")

    q = normal(copies, batch, heads, group, dim)
    k = normal(copies, batch, heads, tokens, dim)
    v = normal(copies, batch, heads, tokens, value_dim)
    found = sdpa_times(request, q, k, v, request["reps"])
    found.update(flashinfer_times(request, q, k, v, request["reps"]))
    return found


def main() -> None:
    with open(sys.argv[1]) as file:
        request = json.load(file)
    version = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
    if torch.backends.cudnn.is_available():
        version += f", cuDNN {torch.backends.cudnn.version()}"
    reply = {"version": version, "note": "", "points": []}
    if not torch.cuda.is_available():
        reply["note"] = "PyTorch finds no CUDA device"
    for point in request["points"] if torch.cuda.is_available() else ():
        try:
            seconds = measure(request, point)
        except (MemoryError, torch.cuda.OutOfMemoryError) as full:
            reply["note"] = f"{point['tokens']} tokens, batch {point['batch']}: {full}"
            seconds = {}
        torch.cuda.empty_cache()
        reply["points"].append({**point, "seconds": seconds})
        with open(sys.argv[2], "w") as file:  # what is there counts, whatever comes
            json.dump(reply, file)
    with open(sys.argv[2], "w") as file:
        json.dump(reply, file)


if __name__ == "__main__":
    main()
