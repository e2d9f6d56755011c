"""A trainer with a fault to choose (`python -m tests.support.tests_faulty FAULT`), and each fault's expected result."""
