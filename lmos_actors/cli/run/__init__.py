"""Running files: `run`, `sim`, `validate`, `replay`, `diff`."""
