# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tasks in the manner of RULER (Hsieh et al. 2024, arXiv 2404.06654), generated.

Prompts are expensive to process, so two of them carry all tasks of a sample: a
long text in which needles (one key with one value, several keys, keys with
several values) and chains of variables are hidden, and a list of words with a
stretch of coded words. Each is asked several questions.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

Encode = Callable[[str], list[int]]

NOUNS = """apple arrow basket bell bottle branch bridge bucket button cabin candle canyon carpet
castle cloud coral cotton cradle crown curtain desert dragon eagle engine falcon feather fence
ferry flame forest fountain garden glacier guitar hammer harbor helmet hill honey island jacket
jungle kettle ladder lantern lemon lizard magnet maple market meadow mirror monkey mountain
needle oak ocean olive orchid oven paddle palace panther pearl pebble pencil penguin piano pillow
planet pocket pond prism puzzle rabbit raven ribbon river rocket saddle sailor salmon scarf
shadow shell silver spider spoon squirrel statue stove summit sunset table temple thunder tiger
tower tractor tunnel turtle valley velvet village violin wagon walnut whale window winter wolf
zebra""".split()
ADJECTIVES = """amber ancient blue bold brave bright calm clever cold crimson curious dark eager
early empty fancy fierce gentle giant golden green happy heavy hidden hollow huge icy jolly
lazy little lonely loud lucky mellow misty narrow noble odd pale plain polite proud quick quiet
rapid rough royal rusty sharp shiny silent simple sleepy slow small smooth soft spicy steep
strange sweet tall tame tidy tiny warm wide wild wise wooden young""".split()


@dataclass
class Question:
    """`answer` is made of items (checked) and what stands between them."""

    task: str
    text: str  # ends where the answer begins
    answer: list[tuple[str, bool]]  # text, whether it is an item
    ordered: bool = True

    def encoded(self, encode: Encode) -> tuple[list[int], list[tuple[int, int]]]:
        """The answer's tokens, and first and last + 1 of every item."""
        ids, spans = [], []
        for text, item in self.answer:
            part = encode(text)
            if item:
                spans.append((len(ids), len(ids) + len(part)))
            ids += part
        return ids, spans


def score(question: Question, ids: list[int], spans: list[tuple[int, int]],
          top: list[int]) -> list[bool]:
    """Which items the model would give, if its answer so far were right. `top`:
    the most likely token at each place of the answer. Of an unordered list, an
    item not listed yet has to begin there."""
    if question.ordered:
        return [list(top[a:b]) == ids[a:b] for a, b in spans]
    begins = [ids[a] for a, _ in spans]
    return [top[a] in begins[i:] for i, (a, _) in enumerate(spans)]


def listing(items: list[str]) -> list[tuple[str, bool]]:
    parts: list[tuple[str, bool]] = []
    for item in items:
        parts += [(" " + item, True), (",", False)]
    return parts[:-1]


@dataclass
class Prompt:
    kind: str  # "needles" or "words"
    text: str
    questions: list[Question]


def needles(rng: random.Random, haystack: str, tokens: int, encode: Encode) -> Prompt:
    names = [f"{a}-{n}" for a, n in zip(rng.sample(ADJECTIVES, 12), rng.sample(NOUNS, 12))]

    def number(digits: int) -> str:
        return str(rng.randrange(10 ** (digits - 1), 10 ** digits))
    lines, questions = [], []
    # One key of a kind of its own; six keys alike; two keys with three values.
    word, digits = rng.choice(NOUNS), number(6)
    lines.append(f"The secret code of the {word} is {digits}.")
    questions.append(Question("single", f"The secret code of the {word} is", listing([digits])))
    keys = {name: number(6) for name in names[:6]}
    lines += [f"The special magic number for {k} is: {v}." for k, v in keys.items()]
    for key in rng.sample(names[:6], 3):
        questions.append(Question("multikey", f"The special magic number for {key} is:",
                                  listing([keys[key]])))
    for key in names[6:8]:
        values = [number(4) for _ in range(3)]
        lines += [f"One of the lucky numbers of {key} is: {v}." for v in values]
        questions.append(Question("multivalue", f"The three lucky numbers of {key} are:",
                                  listing(values)))
    # Two chains of four variables, each defined by the one before.
    chains = []
    for _ in range(2):
        chain = ["".join(rng.sample(string.ascii_uppercase, 3)) for _ in range(4)]
        value = number(5)
        parts = [f"VAR {chain[0]} = {value}."]
        parts += [f"VAR {b} = VAR {a}." for a, b in zip(chain, chain[1:])]
        chains.append(parts)
        questions.append(Question(
            "variables", f"The four variables that have the value {value} are: {chain[0]},",
            listing(chain[1:])))
    intro = "Some facts are hidden in the following text. Remember them.\n\n"
    outro = "\n\nWhat were the facts that are hidden in the text?\n"
    room = tokens - sum(len(encode(" " + s)) for s in [*lines, *sum(chains, [])])
    room -= len(encode(intro)) + len(encode(outro)) + 48
    sentences = _sentences(haystack, room, encode)
    # Needles at random places; links of a chain and values of a key in order.
    places: list[tuple[float, str]] = [(rng.random(), line) for line in lines[:7]]
    for parts in (lines[7:10], lines[10:13], *chains):
        places += zip(sorted(rng.random() for _ in parts), parts)
    for place, line in sorted(places, reverse=True):
        sentences.insert(round(place * len(sentences)), line)
    return Prompt("needles", intro + " ".join(sentences) + outro, questions)


def _sentences(haystack: str, tokens: int, encode: Encode) -> list[str]:
    taken, used = [], 0
    for sentence in haystack.replace("\n", " ").split(". "):
        sentence = sentence.strip().rstrip(".") + "."
        used += len(encode(" " + sentence))
        if used > tokens:
            return taken
        taken.append(sentence)
    raise ValueError(f"the text is too short for a prompt of {tokens} tokens")


def words(rng: random.Random, tokens: int, encode: Encode) -> Prompt:
    """Five words that are common in a list, and three that are frequent among
    invented ones (frequencies 1 / rank^2, as a zeta distribution)."""
    room = (tokens - 160) // 2
    common = rng.sample(NOUNS, 5)
    rare = [n for n in NOUNS if n not in common]
    some = rng.choices(NOUNS, k=50)
    count = int(50 * room / len(encode(_numbered(some, 500))))
    listed = sum(([w] * (count // 10) for w in common), [])
    listed += [rng.choice(rare) for _ in range(count - len(listed))]
    rng.shuffle(listed)
    while len(encode(_numbered(listed))) > room:
        listed.pop(next(i for i in reversed(range(len(listed))) if listed[i] in rare))
    coded = ["".join(rng.choices(string.ascii_lowercase, k=6)) for _ in range(40)]
    weights = [1 / (i + 1) ** 2 for i in range(len(coded))]
    stream: list[str] = []
    while len(encode(" ".join(stream))) < room - 40:
        stream += rng.choices(coded, weights, k=8)
    text = ("Here is a list of words, some of which occur often.\n" + _numbered(listed)
            + "\n\nHere is a coded text, three words of which are frequent.\n"
            + " ".join(stream) + "\n\n")
    frequent = sorted(set(stream), key=lambda w: -stream.count(w))[:3]
    return Prompt("words", text, [
        Question("common", "The five words that occur most often in the list of words are:",
                 listing(common), ordered=False),
        Question("frequent", "The three most frequent words of the coded text are:",
                 listing(frequent), ordered=False)])


def _numbered(listed: list[str], first: int = 1) -> str:
    return " ".join(f"{first + i}. {w}" for i, w in enumerate(listed))


def sample(index: int, tokens: int, text: str, encode: Encode) -> list[Prompt]:
    """Both prompts of a sample; the text is read from another place each time."""
    rng = random.Random(f"ffd-eval {index} {tokens}")
    start = text.find(". ", (index * 130_003) % max(1, len(text) - 8 * tokens)) + 2
    return [needles(rng, text[start:], tokens, encode), words(rng, tokens, encode)]
