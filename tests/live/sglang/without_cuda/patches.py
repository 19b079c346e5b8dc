"""Two things that SGLang does with CUDA alone, done without: masks of grammars, and memory that is pinned."""

from __future__ import annotations

from typing import Any, Callable

import torch
from sglang.srt.constrained import xgrammar_backend


def apply_vocab_mask(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
    """Tokens whose bit is not set are impossible."""
    count = min(logits.shape[-1], vocab_mask.shape[-1] * 32)
    bits = ((vocab_mask.unsqueeze(-1) >> torch.arange(32, dtype=torch.int32)) & 1).bool()
    logits[:, :count].masked_fill_(~bits.reshape(vocab_mask.shape[0], -1)[:, :count], float("-inf"))


def without_pinning(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)

    return made


for grammar in vars(xgrammar_backend).values():
    if isinstance(grammar, type) and "apply_vocab_mask" in vars(grammar):
        grammar.apply_vocab_mask = staticmethod(apply_vocab_mask)
for name in ("tensor", "empty", "zeros", "ones", "full", "arange"):
    setattr(torch, name, without_pinning(getattr(torch, name)))
