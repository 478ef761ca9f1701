"""Runs tests of the suite one after the other: reads `Class.test` lines from stdin, and answers each on the descriptor
given as argument with `passed`, `failed` or `skipped`. What tests print goes to stdout and stderr. Started by `run`."""
import os
import sys
import unittest


def main():
    import suite

    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    for line in sys.stdin:
        class_name, _, test_name = line.strip().partition(".")
        result = unittest.TextTestRunner(stream=sys.stderr).run(suite.CLASSES[class_name](test_name))
        sys.stderr.flush()
        if not result.wasSuccessful():
            answers.write("failed\n")
        else:
            answers.write("skipped\n" if result.skipped else "passed\n")


if __name__ == "__main__":
    main()
