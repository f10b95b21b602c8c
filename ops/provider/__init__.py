"""A provider to practise on: deterministic answers for any input, limits and faults on demand."""
