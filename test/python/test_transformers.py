# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small random model of transformers whose decode steps are FFD's, on the GPU if
FFD_TARGET says so: with an infinite delta the logits are those of its own attention.
Once through host memory, once in a cache that grows where the tensors are."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ffd

TARGET = os.environ.get("FFD_TARGET", "cpu")


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if TARGET != "cpu" and not module.cuda.is_available():
        pytest.skip("torch does not see the GPU")
    return module


def check_model(torch, name: str, attend, calls: list[int]) -> None:
    """A model of two layers: a prompt of 297 tokens and three steps, by its own
    attention and by another, which notes the tokens of its steps in `calls`."""
    from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

    AttentionInterface.register(name, attend)
    torch.manual_seed(3)
    device = "cpu" if TARGET.startswith("cpu") else "cuda"
    config = LlamaConfig(vocab_size=97, hidden_size=256, intermediate_size=128,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         head_dim=64, max_position_embeddings=1024,
                         attn_implementation="sdpa")
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).eval()
    ids = torch.randint(0, 97, (2, 300), device=device)

    def steps() -> np.ndarray:
        with torch.no_grad():
            cached = model(ids[:, :-3], use_cache=True)
            logits = []
            for i in range(297, 300):
                cached = model(ids[:, i:i + 1], past_key_values=cached.past_key_values,
                               use_cache=True)
                logits.append(cached.logits[:, -1].float().cpu().numpy())
        return np.stack(logits)

    want = steps()
    model.set_attn_implementation(name)
    got = steps()
    assert calls == [298, 298, 299, 299, 300, 300]  # two layers each
    gap = np.abs(got - want).max() / np.abs(want).max()
    assert gap < 3e-2, gap
    assert np.abs(want).max() > 0.1 and not (got == want).all()


def test_a_model_decodes(torch, runtime):
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    calls: list[int] = []

    def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **rest):
        """Prompts by torch; a step of one token by FFD, through the host."""
        if query.shape[2] > 1:
            return sdpa_attention_forward(module, query, key, value, attention_mask,
                                          scaling=scaling, dropout=dropout, **rest)
        q, k, v = (x.transpose(1, 2).cpu() for x in (query, key, value))  # tokens before heads
        got = ffd.decode(q, k, v, delta=np.inf, sm_scale=scaling, runtime=runtime)
        calls.append(k.shape[1])
        out = torch.from_dlpack(got.out).to(query.device, query.dtype)  # [batch, 1, heads, dim]
        return out, None

    check_model(torch, "ffd_test", attend, calls)


def test_a_model_decodes_with_a_cache_that_grows(torch):
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    calls: list[int] = []
    with ffd.PagedCache(layers=2, heads=4, kv_heads=2, head_dim=64, dtype=torch.bfloat16,
                        max_sequences=2, max_tokens=512, delta=np.inf, threads=1,
                        target=TARGET) as cache:
        sequences = [cache.create(), cache.create()]

        def attend(module, query, key, value, attention_mask, **rest):
            """Appends what is new; the prompt itself by torch."""
            new = query.shape[2]
            k, v = (x[:, :, -new:].transpose(1, 2) for x in (key, value))  # tokens before heads
            cache.append(module.layer_idx, sequences, k, v)
            if new > 1:
                return sdpa_attention_forward(module, query, key, value, attention_mask, **rest)
            out = cache.decode(module.layer_idx, sequences, query.transpose(1, 2))
            calls.append(key.shape[2])
            return out.to(query.dtype), None

        check_model(torch, "ffd_paged_test", attend, calls)
        assert [cache.length(s) for s in sequences] == [300, 300] and cache.committed(0) == 256
