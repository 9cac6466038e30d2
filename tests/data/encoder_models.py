"""Small language models of random weights, made on the spot, and corpora of words alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, PreTrainedTokenizerFast, RobertaConfig, RobertaModel
from transformers import logging as transformers_logging

from pyro_chmm.data.corpus import Corpus

WORDS = ["anna", "lee", "sings", "in", "oslo", "today", "the", "quick", "fox"]


def corpus_of(*documents: Sequence[str]) -> Corpus:
    return Corpus.from_spans(list(documents), [[[]] for _ in documents], ["X"], ["lf"])


def bert(folder: Path, change: Callable[[Any], None] = lambda model: None, **config: Any) -> Path:
    """BERT of 3 layers and width 16, whose word pieces are WORDS, letters and ``##`` letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=1000))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    tokenizer.enable_truncation(7)  # some published tokenizers come with such settings; they must not matter
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"max_position_embeddings": 64, **config}
    return _save(folder, tokenizer, special, BertModel(BertConfig(**_small(len(ids)), **settings)), change)


def roberta(folder: Path) -> Path:
    """RoBERTa, whose bytes-made sub-tokens carry the space before a word, and whose positions start at 2."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = _byte_level(special)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), special, strict=True))
    config = RobertaConfig(**_small(tokenizer.get_vocab_size()), max_position_embeddings=34, pad_token_id=1)
    return _save(folder, tokenizer, names, RobertaModel(config))


def gpt2(folder: Path) -> Path:
    """GPT-2: no [CLS], no [SEP], no padding, and one more normalisation after the last layer."""
    tokenizer = _byte_level(["<|endoftext|>"])
    config = GPT2Config(vocab_size=tokenizer.get_vocab_size(), n_embd=16, n_layer=3, n_head=2, n_positions=32)
    return _save(folder, tokenizer, {"eos_token": "<|endoftext|>"}, GPT2Model(config))


def _byte_level(special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([" ".join(WORDS)] * 5, trainer)
    return tokenizer


def _small(vocabulary: int) -> dict[str, int]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }


def _save(
    folder: Path, tokenizer: Tokenizer, special: dict[str, str], model: Any, change: Callable[[Any], None] = lambda model: None
) -> Path:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        change(model)
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        model.save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    finally:
        if bars:
            transformers_logging.enable_progress_bar()
    return folder
