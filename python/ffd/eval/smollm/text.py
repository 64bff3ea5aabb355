# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The long text that traces and evaluations read: the King James Bible of 1611.

Its copyright has expired. Debian packages the text (bible-kjv-text) with a
program that prints it (bible-kjv); verse references are removed and chapters
become paragraphs.
"""

from __future__ import annotations

import re
import subprocess

from ..files import regular_file

PROVENANCE = "King James Bible (1611, public domain), Debian package bible-kjv-text"
_VERSE = re.compile(r"(\d?[A-Za-z]+\d+):\d+ (.*)")


def king_james(first: str = "gen1:1", last: str = "rev22:21",
               program: str = "bible", data: str | None = None) -> str:
    """The verses from `first` to `last` as running text."""
    command = [program, "-f", *(["-p", data] if data else []), f"{first}-{last}"]
    try:
        printed = subprocess.run(command, stdin=subprocess.DEVNULL, check=True,
                                 capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"cannot run '{program}': {error}; install it with "
                         "'apt-get install bible-kjv bible-kjv-text', or pass --text") from error
    chapters: dict[str, list[str]] = {}
    for line in printed.splitlines():
        if match := _VERSE.fullmatch(line.strip()):
            chapters.setdefault(match[1], []).append(match[2].strip())
    return "\n\n".join(" ".join(verses) for verses in chapters.values())


def from_file(path: str) -> str:
    return regular_file(path).read_text(encoding="utf-8")
