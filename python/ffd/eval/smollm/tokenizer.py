# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The byte-level BPE tokenizer of SmolLM2, from a GGUF file's vocabulary.

Text is cut into words (each digit its own, as the file's
pre-tokeniser "smollm" asks), bytes become printable characters, and the
merges are applied in order of rank.
"""

from __future__ import annotations

import re

# GPT-2's pattern with \p{L} and \p{N} spelled for Python's re, after which
# digits stand alone.
_WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)|[^\W\d_]+|\d"
                    r"| [^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def _byte_characters() -> list[str]:
    """GPT-2's map from bytes to printable characters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in printable else next(others)) for b in range(256)]


class Tokenizer:
    def __init__(self, tokens: list[str], merges: list[str]):
        self._ids = {token: i for i, token in enumerate(tokens)}
        self._ranks = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
        self._characters = _byte_characters()
        self._tokens = tokens
        self._bytes = {c: b for b, c in enumerate(self._characters)}
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        return [i for word in _WORDS.findall(text) for i in self._word(word)]

    def decode(self, ids: list[int]) -> str:
        data = bytes(self._bytes[c] for i in ids for c in self._tokens[i] if c in self._bytes)
        return data.decode(errors="replace")

    def _word(self, word: str) -> list[int]:
        if word not in self._cache:
            parts = [self._characters[b] for b in word.encode()]
            while len(parts) > 1:
                ranks = [self._ranks.get(pair, len(self._ranks))
                         for pair in zip(parts, parts[1:])]
                best = min(ranks)
                if best == len(self._ranks):
                    break
                at = ranks.index(best)
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            self._cache[word] = [self._ids[p] for p in parts]
        return self._cache[word]
