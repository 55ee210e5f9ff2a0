"""Writes a tiny language model with random weights, for an inference server that runs it as it would run any other.

Run by the interpreter of `.servers/environment`, which has gguf and numpy. `tiny_model.py vocabulary SOURCE OUT` keeps the
beginning of a vocabulary; `tiny_model.py models VOCABULARY` makes one model for each line of JSON on standard input, and
answers each with a line.

The model is Llama's architecture with one layer whose attention and feed-forward weights are zero, so the next token depends on
the last one alone: the logit of b after a is the product of a row of the output matrix with the embedding of a. Random weights
make that a random chain of token pairs. Adding a multiple of the embedding of a to the row of b makes b likely after a, and
the first column, which is 1 in every embedding, makes a token likely everywhere.

The vocabulary is the beginning of a real one (its merges in their order, so any beginning is a vocabulary), and on top of it
the markers of a chat template as tokens of their own, as they are in the models that the template belongs to.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy

WIDTH = 256
SIZE = 1000
NOISE = 1.5
"""Standard deviation of the logits of pairs that were not asked for."""
NEVER = 40.0
_PRINTED = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}
"""How this kind of vocabulary writes bytes: as themselves where they are printed, else behind all of them."""


def main(command: str, source: str, *rest: str) -> None:
    if command == "vocabulary":
        Path(rest[0]).write_text(json.dumps(beginning_of(source)), encoding="utf-8")
        return
    kept = json.loads(Path(source).read_text(encoding="utf-8"))
    for line in sys.stdin:
        write_model(kept, json.loads(line))
        print("done", flush=True)


def beginning_of(path: str) -> dict[str, Any]:
    """The first tokens of a vocabulary, the merges that lead to them, and the rule that splits text before merging."""
    fields = gguf.GGUFReader(path).fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents(slice(0, SIZE))
    known = set(tokens)
    merges = [
        merge
        for merge in fields["tokenizer.ggml.merges"].contents(slice(0, 2 * SIZE))
        if known.issuperset(merge.split(" ", 1)) and merge.replace(" ", "", 1) in known
    ]
    return {"tokens": tokens, "merges": merges, "pre": fields["tokenizer.ggml.pre"].contents()}


def is_text(token: str) -> bool:
    """Does a token stand for whole characters? Parts of them by chance are text that no server reads."""
    try:
        bytes(BYTES[character] for character in token).decode()
    except UnicodeDecodeError:
        return False
    return True


def write_model(kept: dict[str, Any], wish: dict[str, Any]) -> None:
    """One model: `markers` are its tokens behind those of the vocabulary."""
    random = numpy.random.default_rng(wish["seed"])
    tokens = [*kept["tokens"], *wish["markers"]]
    kinds = [int(gguf.TokenType.NORMAL)] * len(kept["tokens"])
    kinds += [int(gguf.TokenType.CONTROL if m == wish["end"] else gguf.TokenType.USER_DEFINED) for m in wish["markers"]]
    writer = gguf.GGUFWriter(wish["out"], "llama")
    writer.add_context_length(65536)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(8)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // 8)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(kept["pre"])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(kept["merges"])
    writer.add_bos_token_id(tokens.index(wish["begin"]))
    writer.add_eos_token_id(tokens.index(wish["end"]))
    writer.add_add_bos_token(False)

    embeddings = random.choice(numpy.array([-1.0, 1.0], numpy.float32), (len(tokens), WIDTH))
    embeddings[:, 0] = 1
    output = random.normal(0, NOISE / WIDTH**0.5, (len(tokens), WIDTH)).astype(numpy.float32)
    for before, after, logit in wish["pairs"]:
        output[after] += embeddings[before] * (logit / WIDTH)
    for token, logit in wish["everywhere"]:
        output[token, 0] += logit
    for token, text in enumerate(kept["tokens"]):
        if not is_text(text):
            output[token, 0] -= NEVER
    writer.add_tensor("token_embd.weight", embeddings.astype(numpy.float16))
    writer.add_tensor("output.weight", output.astype(numpy.float16))
    writer.add_tensor("output_norm.weight", numpy.ones(WIDTH, numpy.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", numpy.ones(WIDTH, numpy.float32))
    narrow = WIDTH // 8
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (narrow, WIDTH), "attn_v": (narrow, WIDTH), "attn_output": (WIDTH, WIDTH)}
    shapes |= {"ffn_gate": (32, WIDTH), "ffn_up": (32, WIDTH), "ffn_down": (WIDTH, 32)}
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", numpy.zeros(shape, numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main(*sys.argv[1:])
