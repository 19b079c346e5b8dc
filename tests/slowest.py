#!/usr/bin/env python3
"""Prints how many Rust tests ran, by program, and the ten slowest, from the report that nextest writes.

    tests/slowest.py target/nextest/default/junit.xml
"""

import sys
from xml.etree import ElementTree

SLOWEST = 10

programs = [
    (suite.get("name", "").removeprefix("samewire::"), [(float(case.get("time", 0)), case.get("name")) for case in suite])
    for suite in ElementTree.parse(sys.argv[1]).getroot()
]
print(f"\n== {sum(len(tests) for _, tests in programs)} Rust tests")
for program, tests in programs:
    print(f"{len(tests):5}  {'unit' if program == 'samewire' else program}")
print(f"\n== the {SLOWEST} slowest, in seconds")
all_tests = sorted((time, program, name) for program, tests in programs for time, name in tests)
for time, program, name in reversed(all_tests[-SLOWEST:]):
    print(f"{time:5.1f}  {program} {name}")
