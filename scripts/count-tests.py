# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints "passed failed skipped" of a JUnit XML file (lit, GoogleTest, pytest)."""
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
for case in ElementTree.parse(sys.argv[1]).iter("testcase"):
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        failed += 1
    elif "skipped" in kinds or case.get("status") == "notrun":
        skipped += 1
    else:
        passed += 1
print(passed, failed, skipped)
sys.exit(0 if passed + failed + skipped else 1)
