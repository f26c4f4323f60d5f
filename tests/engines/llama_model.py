"""llama_model.py FILE: a small Llama with random weights, as GGUF. Its tokens
are bytes."""

import sys

import gguf
import numpy

HIDDEN, HEADS, LAYERS, INNER, CONTEXT = 256, 4, 4, 512, 4096
TOKENS = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{i:02X}>".encode() for i in range(256)]
TYPES = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]


def main():
    chance = numpy.random.Generator(numpy.random.PCG64(7))
    w = gguf.GGUFWriter(sys.argv[1], "llama")
    w.add_name("kvpool-test")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(HIDDEN // HEADS)
    w.add_vocab_size(len(TOKENS))
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_tokenizer_model("llama")
    w.add_token_list(TOKENS)
    w.add_token_scores([0.0] * len(TOKENS))
    w.add_token_types(TYPES + [gguf.TokenType.BYTE] * 256)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)

    def add(name, out, into, scale=1.0):
        t = chance.standard_normal((out, into), dtype=numpy.float32)
        w.add_tensor(name, t * numpy.float32(scale * into**-0.5))

    def ones(name):
        w.add_tensor(name, numpy.ones(HIDDEN, dtype=numpy.float32))

    add("token_embd.weight", len(TOKENS), HIDDEN, HIDDEN**0.5)
    ones("output_norm.weight")
    add("output.weight", len(TOKENS), HIDDEN)
    for i in range(LAYERS):
        p = f"blk.{i}."
        ones(p + "attn_norm.weight")
        ones(p + "ffn_norm.weight")
        for name in "attn_q", "attn_k", "attn_v", "attn_output":
            add(f"{p}{name}.weight", HIDDEN, HIDDEN, 2)
        add(p + "ffn_gate.weight", INNER, HIDDEN)
        add(p + "ffn_up.weight", INNER, HIDDEN)
        add(p + "ffn_down.weight", HIDDEN, INNER)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
