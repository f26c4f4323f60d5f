"""Small Llamas with random weights, for machines that have no models: as
safetensors for vLLM, as GGUF for llama.cpp.

The weights are of a size at which attention matters, so that what a model says
depends on every token before (vLLM's load_format dummy gives such small ones that
it hardly does). There is no tokenizer: prompts and answers are token ids, and tokens
with a meaning never occur (llama-server keeps back bytes that are no whole
character).
"""

import dataclasses
import json
import os

from multiturn.workload import FIRST_TOKEN


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    context: int
    head: int = 64
    vocabulary: int = 2048

    @property
    def parameters(self) -> int:
        rows = 2 * (self.heads + self.kv_heads) * self.head + 3 * self.inner
        return self.hidden * (self.layers * rows + 2 * self.vocabulary)

    @property
    def kv_bytes(self) -> int:
        """Of a token, as 4-byte floats."""
        return 2 * self.layers * self.kv_heads * self.head * 4


SHAPES = {
    # Computing a prompt is nearly all that its first token takes.
    "bench": Shape(
        layers=10, hidden=1024, heads=16, kv_heads=2, inner=3584, context=16384
    ),
    # The same where computing is slower.
    "small": Shape(
        layers=6, hidden=512, heads=8, kv_heads=2, inner=1792, context=16384
    ),
    "tiny": Shape(layers=2, hidden=256, heads=4, kv_heads=2, inner=512, context=4096),
}

_NORMS = ("input_layernorm", "post_attention_layernorm")


def _matrices(s: Shape) -> list[tuple[str, str, int, int]]:
    """Of a layer: names in both formats, rows, columns."""
    q, kv = s.heads * s.head, s.kv_heads * s.head
    return [
        ("self_attn.q_proj", "attn_q", q, s.hidden),
        ("self_attn.k_proj", "attn_k", kv, s.hidden),
        ("self_attn.v_proj", "attn_v", kv, s.hidden),
        ("self_attn.o_proj", "attn_output", s.hidden, q),
        ("mlp.gate_proj", "ffn_gate", s.inner, s.hidden),
        ("mlp.up_proj", "ffn_up", s.inner, s.hidden),
        ("mlp.down_proj", "ffn_down", s.hidden, s.inner),
    ]


def config(s: Shape) -> dict[str, object]:
    """config.json, as vLLM reads it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": s.hidden,
        "intermediate_size": s.inner,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head,
        "vocab_size": s.vocabulary,
        "max_position_embeddings": s.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def make_safetensors(s: Shape, directory: str) -> None:
    import torch
    from safetensors.torch import save_file

    chance = torch.Generator().manual_seed(7)

    def weight(out: int, into: int, scale: float = 1.0) -> "torch.Tensor":
        return torch.randn(out, into, generator=chance) * (scale * into**-0.5)

    w = {
        "model.embed_tokens.weight": weight(s.vocabulary, s.hidden, s.hidden**0.5),
        "model.norm.weight": torch.ones(s.hidden),
        "lm_head.weight": weight(s.vocabulary, s.hidden),
    }
    for i in range(s.layers):
        for name, _, out, into in _matrices(s):
            w[f"model.layers.{i}.{name}.weight"] = weight(out, into, 2)
        for name in _NORMS:
            w[f"model.layers.{i}.{name}.weight"] = torch.ones(s.hidden)
    w["lm_head.weight"][:FIRST_TOKEN] = 0
    os.makedirs(directory, exist_ok=True)
    save_file(w, os.path.join(directory, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config(s), f)


def make_gguf(s: Shape, path: str) -> None:
    import gguf
    import numpy

    chance = numpy.random.Generator(numpy.random.PCG64(7))
    tokens = [b"<unk>", b"<s>", b"</s>"]
    tokens += [f"<0x{i:02X}>".encode() for i in range(256)]
    types = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2
    types += [gguf.TokenType.BYTE] * 256
    for i in range(len(tokens), s.vocabulary):
        tokens.append(f"t{i}".encode())
        types.append(gguf.TokenType.NORMAL)
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("kvpool-multiturn")
    w.add_context_length(s.context)
    w.add_embedding_length(s.hidden)
    w.add_block_count(s.layers)
    w.add_feed_forward_length(s.inner)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(s.head)
    w.add_vocab_size(s.vocabulary)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * len(tokens))
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)

    def weight(
        name: str, out: int, into: int, scale: float = 1.0, unsaid: int = 0
    ) -> None:
        t = chance.standard_normal((out, into), dtype=numpy.float32)
        t[:unsaid] = 0
        w.add_tensor(name, t * numpy.float32(scale * into**-0.5))

    def ones(name: str) -> None:
        w.add_tensor(name, numpy.ones(s.hidden, dtype=numpy.float32))

    weight("token_embd.weight", s.vocabulary, s.hidden, s.hidden**0.5)
    ones("output_norm.weight")
    weight("output.weight", s.vocabulary, s.hidden, unsaid=FIRST_TOKEN)
    for i in range(s.layers):
        ones(f"blk.{i}.attn_norm.weight")
        ones(f"blk.{i}.ffn_norm.weight")
        for _, name, out, into in _matrices(s):
            weight(f"blk.{i}.{name}.weight", out, into, 2)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
