#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs every ```mlir example of the TableGen descriptions through ffd-opt.

    check-examples.py FFD_OPT MLIR_TBLGEN SOURCE_ROOT

An op, attribute or type must have an example that contains it. Ops are wrapped
in a function; values that an example uses but does not define are declared with
the types that the parser says it expects. Examples of passes are whole
functions: the first block must go through the pass, and the ops of a second one
must appear, in order, in what comes out.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SPEC = ("#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, "
        "element = f16, scan_bits = 2, quant_block = 128, select_block = 16>\n")
DIALECT = [  # heading in the generated page, mlir-tblgen option, file
    ("op", "-gen-op-doc", "dialect/FFDOps.td"),
    ("op", "-gen-op-doc", "dialect/FFDTileOps.td"),
    ("op", "-gen-op-doc", "dialect/FFDGPUOps.td"),
    ("attribute", "-gen-attrdef-doc", "dialect/FFDAttrs.td"),
]
PASSES = ["include/ffd/Transforms/Passes.td", "include/ffd/Conversion/Passes.td"]
# Every pass of these files has an example; elsewhere it is checked if there.
PASSES_WITH_EXAMPLES = ["include/ffd/Transforms/Passes.td"]


class Example:
    """One example: an op or attribute, its text, and the values it lacks."""

    def __init__(self, name, text, where):
        self.name, self.text, self.where = name, text, where
        defined = set()
        for line in text.splitlines():
            match = re.match(r"\s*((?:%[\w:]+(?:,\s*)?)+)\s*=\s", line)
            if match:
                defined |= set(re.findall(r"%(\w+)", match[1]))
            match = re.match(r"\s*\^\w+\((.*)\):", line)
            if match:
                defined |= set(re.findall(r"%(\w+)\s*:", match[1]))
        used = re.findall(r"%(\w+)", re.sub(r"//.*", "", text))
        self.types = {n: "none" for n in dict.fromkeys(used) if n not in defined}

    def program(self):
        """A module that ffd-opt can parse."""
        text = self.text
        top = re.search(r"^\s*(func\.func|module|llvm\.func)\b", text, re.M)
        if re.match(r"\s*[#!]\w+\s*=", text) and not top:  # aliases
            return text + "\n"
        if re.match(r"\s*#[\w.]+(<.*>)?\s*$", text, re.S):  # an attribute
            return f'module attributes {{doc.example = {text.strip()}}} {{}}\n'
        prologue = "" if re.search(r"^#s\s*=", text, re.M) else SPEC
        if top:
            return prologue + text + "\n"
        values = "".join(f'  %{n} = "doc.value"() : () -> {t}\n'
                         for n, t in self.types.items())
        return f"{prologue}func.func @example() {{\n{values}{text}\n  return\n}}\n"


def run(command, text=None):
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    return result.returncode, result.stdout, result.stderr


def descriptions(tool, root, option, source):
    """[(name, [example text])] of one TableGen file, in order."""
    include = pathlib.Path(tool).resolve().parent.parent / "include"
    code, out, err = run([tool, option, f"-I{root}/dialect", f"-I{root}/include",
                          f"-I{include}", f"{root}/{source}"])
    if code:
        sys.exit(f"check-examples: {source}:\n{err}")
    found = []
    for part in re.split(r"^### ", out, flags=re.M)[1:]:
        # Attributes are headed by their C++ class; their syntax has the name.
        name = re.search(r"#ffd\.\w+", part) if option == "-gen-attrdef-doc" \
            else re.search(r"`-?-?([\w.-]+)`", part)
        name = name[name.lastindex or 0]
        found.append((name, re.findall(r"^```mlir\n(.*?)^```", part, re.M | re.S)))
    return found


def settle(ffd_opt, examples):
    """Finds the types of undefined values: what the parser expects of each is
    in its message. Returns the messages that remain, per example."""
    mismatch = re.compile(r"use of value '%(\w+)' expects different type than "
                          r"prior uses: '(.*)' vs 'none'")
    pending, failed = list(examples), {}
    while pending:
        text, starts, line = "", [], 1
        for example in pending:
            starts.append(line)
            chunk = example.program() + "// -----\n"
            text += chunk
            line += chunk.count("\n")
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(text)
            file.flush()
            code, _, err = run([ffd_opt, file.name, "--split-input-file",
                                "--allow-unregistered-dialect", "-o", "/dev/null"])
        if code == 0:
            break
        again = []
        lines = re.findall(r":(\d+):\d+: error: (.*)", err)
        if not lines:
            sys.exit(f"check-examples: {ffd_opt} failed:\n{err}")
        for at, message in lines:
            index = max(i for i, start in enumerate(starts) if start <= int(at))
            example, match = pending[index], mismatch.search(message)
            if match and match[1] in example.types:
                example.types[match[1]] = match[2]
                again.append(example)
            else:
                failed.setdefault(example, f"line {int(at) - starts[index] + 1} "
                                  f"of\n{example.program()}: {message}")
        pending = [e for e in dict.fromkeys(again) if e not in failed]
    return failed


def check_pass(ffd_opt, name, blocks):
    before = Example(name, blocks[0], "")
    code, out, err = run([ffd_opt, "-", f"--{name}", "--allow-unregistered-dialect"],
                         before.program())
    if code:
        return f"the first block does not go through the pass:\n{err}"
    at = 0
    for block in blocks[1:]:
        code, _, err = run([ffd_opt, "-", "--allow-unregistered-dialect"],
                           Example(name, block, "").program())
        if code:
            return f"the second block does not parse:\n{err}"
        for op in re.findall(r"\b((?:ffd|linalg|tensor)\.[\w.]+)(?=[\s:(])", block):
            at = out.find(op, at)
            if at < 0:
                return f"'{op}' of the second block is not in the output:\n{out}"
            at += len(op)
    return None


def main():
    ffd_opt, tool, root = sys.argv[1:]
    tool = shutil.which(tool) or tool
    problems, examples, passes = [], [], 0
    for kind, option, source in DIALECT:
        for name, blocks in descriptions(tool, root, option, source):
            if not any(name in block for block in blocks):
                problems.append(f"{source}: {kind} '{name}' has no ```mlir example "
                                "that contains it, expected one")
            examples += [Example(name, block, source) for block in blocks]
    for example, message in settle(ffd_opt, examples).items():
        problems.append(f"{example.where}: example of '{example.name}', {message}")

    registered = run([ffd_opt, "--help-hidden"])[1]
    for source in PASSES:
        for name, blocks in descriptions(tool, root, "-gen-pass-doc", source):
            if blocks and f"--{name}" in registered:
                passes += 1
                problem = check_pass(ffd_opt, name, blocks)
                if problem:
                    problems.append(f"{source}: example of '--{name}': {problem}")
            elif not blocks and source in PASSES_WITH_EXAMPLES:
                problems.append(f"{source}: pass '--{name}' has no ```mlir "
                                "example, expected one")
    for problem in problems:
        print(f"check-examples: {problem}")
    print(f"{len(examples)} examples of the dialect and {passes} of passes, "
          f"{len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
