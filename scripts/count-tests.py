# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints "passed failed skipped" of JUnit XML files (lit, GoogleTest, pytest)."""
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
for case in (case for path in sys.argv[1:] for case in ElementTree.parse(path).iter("testcase")):
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        failed += 1
    elif "skipped" in kinds or case.get("status") == "notrun":
        skipped += 1
    else:
        passed += 1
print(passed, failed, skipped)
sys.exit(0 if passed + failed + skipped else 1)
