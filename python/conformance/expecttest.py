"""The few lines that torch's test classes want of the module expecttest: expected output that stands in the test."""
import textwrap
import unittest


ACCEPT = False  # whether to rewrite what tests expect


class TestCase(unittest.TestCase):
    longMessage = True

    def assertExpectedInline(self, actual, expect, skip=0):
        self.assertMultiLineEqual(textwrap.dedent(expect), actual)
