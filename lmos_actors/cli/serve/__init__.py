"""The execution of `serve` and `directory serve`."""
