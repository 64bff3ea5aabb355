#!/usr/bin/env python3
"""Prints damaged copies of .mlir files, separated for --split-input-file.

Every copy has one to three edits: a token dropped, doubled, swapped with
another or replaced by one of another file, a number changed, or the end cut
off. Seeded, so that a failure can be repeated.
"""
import random
import re
import sys

NUMBERS = ["0", "-1", "3", "1000", "99999999999999999999", "0x7FC00000"]


def damage(tokens, others, rng):
    tokens = list(tokens)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(tokens))
        kind = rng.randrange(6)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[at])
        elif kind == 2:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens[at] = rng.choice(others)
        elif kind == 4:
            numbers = [i for i, t in enumerate(tokens) if t.isdigit()]
            if numbers:
                tokens[rng.choice(numbers)] = rng.choice(NUMBERS)
        else:
            tokens = tokens[: at + 1]
        if not tokens:
            break
    return "".join(tokens)


def main():
    seed, count, *paths = sys.argv[1:]
    rng = random.Random(int(seed))
    chunks = []
    for path in paths:
        text = re.sub(r"//(?! -----).*", "", open(path).read())
        chunks += text.split("// -----")
    split = [re.findall(r"[\w.]+|\s+|.", chunk) for chunk in chunks]
    words = sorted({token for tokens in split for token in tokens})
    print("\n// -----\n".join(
        damage(rng.choice(split), words, rng) for _ in range(int(count))))


if __name__ == "__main__":
    main()
