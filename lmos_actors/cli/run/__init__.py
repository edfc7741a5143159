"""The execution of `run`, `sim`, `validate`, `replay` and `diff`: running and comparing files."""
