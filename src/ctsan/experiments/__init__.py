"""The paper's tables for any corpus: every system it compares, trained, measured and set side by side."""
