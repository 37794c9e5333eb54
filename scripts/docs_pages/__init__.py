"""Pages of docs/reference/ that scripts/generate-docs writes. Each module has a function that returns {path: text}."""
