"""Text to batches: corpora, tokenizers, batches within a token budget."""
