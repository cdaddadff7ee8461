"""prune_lab: a laboratory for attention heads in encoder-decoder Transformers."""
