"""What a benchmark measures, by name; without torch, since commands check it before they import anything slow."""

KINDS = ("training", "attention", "encoding", "decoding")
