"""The context sizes of well-known models, for which none is set."""

from __future__ import annotations

# By the beginning of a model's name; the longest one that fits counts. Where a provider limits the
# input to less than the context, that limit stands here.
CONTEXT_SIZES = {
    "gpt-3.5": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-5": 272_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    "claude": 200_000,
    "gemini": 1_048_576,
    "grok": 131_072,
    "deepseek": 64_000,
    "mistral": 32_768,
    "mistral-large": 128_000,
    "llama-3": 8_192,
    "llama-3.1": 128_000,
    "llama-3.2": 128_000,
    "llama-3.3": 128_000,
    "qwen": 32_768,
}


def find_context_size(model: str) -> int:
    """Return the context of a model in tokens, or 0 if the model is unknown."""
    name = model.rpartition("/")[2].lower()  # some endpoints put the vendor before the name
    found = [prefix for prefix in CONTEXT_SIZES if name.startswith(prefix)]
    return CONTEXT_SIZES[max(found, key=len)] if found else 0
