"""The families of models that are known: what their files leave unsaid, and which files are refused.

A key that hints at an unusual cache and that no rule has dealt with stops the reading, whatever the family: a wrong
cache size looks as good as a right one.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sweep.model.configs import BY_HAND, Config, shown


class Family(NamedTuple):
    """How the files of one model_type are read.

    window: what `sliding_window` means without a list of layers: "every" layer has it, "late" ones do (from
    max_window_layers on, if switched on), or all but each `every`-th ("pattern"); "chunked" and "interval" are such
    patterns of chunks and of linear attention; "" if the family knows no window.
    defaults: values of absent keys. accounts_for: unusual keys that the reading deals with, as a regular expression.
    """

    window: str = ""
    every: int = 0
    defaults: Mapping[str, int] = MappingProxyType({})
    accounts_for: str = ""


def _defaults(layers: int, heads: int, width: int, mlp: int, vocabulary: int, **more: int) -> dict[str, int]:
    sizes = dict(zip(("num_hidden_layers", "num_attention_heads", "hidden_size"), (layers, heads, width), strict=True))
    return {**sizes, "intermediate_size": mlp, "vocab_size": vocabulary, **more}


MLA = r"q_lora_rank|(qk_nope|v|qk)_head_dim|head_dim|num_(key_value|attention)_heads"
_MAMBA = r"mamba_.*|ssm_.*|conv_.*|use_conv_bias|use_mamba_kernels|n_groups|chunk_size"
_GATED_DELTA = r"linear_.*|full_attention_interval|use_sliding_window|sliding_window"
_LIGHTNING = "linear_.*|layernorm_linear_attention_.*"

FAMILIES: Mapping[str, Family] = {
    "llama": Family(defaults=_defaults(32, 32, 4096, 11008, 32000)),
    "mistral": Family(
        "every", defaults=_defaults(32, 32, 4096, 14336, 32000, num_key_value_heads=8, sliding_window=4096)
    ),
    "mixtral": Family("every", defaults=_defaults(32, 32, 4096, 14336, 32000, num_key_value_heads=8)),
    "starcoder2": Family("every", defaults={"num_key_value_heads": 2}),
    "phi3": Family("every", defaults=_defaults(32, 32, 3072, 8192, 32064)),
    "phi3_v": Family("every"),
    "phimoe": Family("every", defaults={"num_key_value_heads": 8}),
    "qwen2": Family(
        "late",
        defaults=_defaults(32, 32, 4096, 22016, 151936, num_key_value_heads=32),
        accounts_for="sliding_window",
    ),
    "qwen2_vl": Family("late", accounts_for="sliding_window"),
    "qwen2_vl_text": Family("late", accounts_for="sliding_window"),
    "qwen2_5_vl": Family("late", accounts_for="sliding_window"),
    "qwen2_5_vl_text": Family("late", accounts_for="sliding_window"),
    "qwen3": Family(
        "late",
        defaults=_defaults(32, 32, 4096, 22016, 151936, num_key_value_heads=32, head_dim=128),
        accounts_for="sliding_window",
    ),
    "gemma": Family(defaults=_defaults(28, 16, 3072, 24576, 256000, num_key_value_heads=16, head_dim=256)),
    "gemma2": Family(
        "pattern",
        2,
        _defaults(26, 8, 2304, 9216, 256000, num_key_value_heads=4, head_dim=256, sliding_window=4096),
        "sliding_window_size",
    ),
    "gemma3_text": Family(
        "pattern", 6, _defaults(26, 8, 2304, 9216, 262208, num_key_value_heads=4, head_dim=256, sliding_window=4096)
    ),
    "gemma3n_text": Family(
        "pattern",
        5,
        {"num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "num_kv_shared_layers": 15},
        ".*sparsity_pattern",
    ),
    "gemma4_text": Family(
        "pattern",
        6,
        {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512, "global_head_dim": 512},
        "num_global_key_value_heads",
    ),
    "cohere2": Family("pattern", 4, {"sliding_window": 4096}, "layer_switch"),
    "olmo3": Family("pattern", 4, {"sliding_window": 4096}),
    "exaone4": Family("pattern", 4, {"sliding_window": 4096}),
    "gpt_oss": Family("pattern", 2, {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128}),
    "llama4_text": Family(
        "chunked", 4, {"num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192}
    ),
    "deepseek_v2": Family(accounts_for=MLA),
    "deepseek_v3": Family(accounts_for=MLA),
    "kimi_k2": Family(accounts_for=MLA),
    "kimi_linear": Family(accounts_for=MLA),
    "glm4_moe_lite": Family(accounts_for=MLA),
    "jamba": Family(defaults={"num_key_value_heads": 8}, accounts_for=_MAMBA),
    "bamba": Family(defaults={"num_key_value_heads": 8}, accounts_for=_MAMBA),
    "falcon_h1": Family(accounts_for=_MAMBA),  # attention and Mamba side by side in every layer
    "granitemoehybrid": Family(accounts_for=_MAMBA),
    "nemotron_h": Family(accounts_for=_MAMBA),
    "lfm2": Family(accounts_for=r"conv_.*|block_.*|num_heads"),
    "lfm2_moe": Family(accounts_for=r"conv_.*|block_.*|num_heads"),
    "qwen3_next": Family("interval", 4, {"num_key_value_heads": 2, "head_dim": 256}, _GATED_DELTA),
    "qwen3_5_text": Family("interval", 4, {"num_key_value_heads": 4, "head_dim": 256}, _GATED_DELTA),
    "qwen3_5_moe_text": Family("interval", 4, {"num_key_value_heads": 2, "head_dim": 256}, _GATED_DELTA),
    "minimax": Family(accounts_for=_LIGHTNING),
    "minimax_m2": Family(accounts_for=_LIGHTNING),
    "mllama_text_model": Family(defaults={"num_key_value_heads": 8}),
    "nemotron-nas": Family(),
    "falcon": Family(accounts_for="multi_query|num_kv_heads|n_head_kv"),
    "gpt_bigcode": Family(),
    "chatglm": Family(accounts_for="multi_query_group_num"),
    "mpt": Family(),
    "dbrx": Family(),
}  # fmt: skip
ALIASES = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "minimax_m1": "minimax",
    "minimax_text_01": "minimax",
    "MiniMaxM1": "minimax",
    "MiniMaxText01": "minimax",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Families whose ordinary keys say everything; a model_type in neither list is read alike, and the answer says so.
PLAIN = _names("""
    apertus arcee aya baichuan bloom codegen cohere deepseek dots1 ernie4_5 ernie4_5_moe exaone glm glm4 glm4_moe
    glm4v_text glm4v_moe_text gpt2 gpt_neox gptj granite granitemoe helium hunyuan_v1_dense internlm internlm2 internlm3
    minicpm ministral ministral3 nemotron olmo olmo2 olmoe opt persimmon phi qwen qwen2_moe qwen3_moe qwen3_vl_moe_text
    qwen3_vl_text seed_oss smollm3 stablelm xverse
""")
_ENCODERS = _names("""
    albert bert big_bird camembert canine chinese_clip clip convbert data2vec-text deberta deberta-v2 distilbert
    electra ernie esm flaubert fnet funnel ibert layoutlm layoutlmv2 layoutlmv3 longformer luke megatron-bert
    mobilebert modernbert mpnet nomic_bert nystromformer rembert roberta roformer siglip squeezebert vit xlm
    xlm-roberta xlm-roberta-xl xmod
""")
_ENCODER_DECODERS = _names("""
    bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder fsmt led longt5 m2m_100 marian mbart mt5 nllb-moe
    pegasus pegasus_x plbart prophetnet speech-encoder-decoder switch_transformers t5 t5gemma umt5
    vision-encoder-decoder whisper
""")
_NO_ATTENTION = _names("falcon_mamba mamba mamba2 rwkv rwkv5 rwkv6")
_UNREAD = _names("""
    diffllama doge gpt_neo hunyuan hymba longcat_flash minicpm3 openelm ouro phi3small phi4flash recurrent_gemma
    reformer transfo-xl xlnet zamba zamba2
""")
# Models whose ordinary keys are all there and mean something else.
REFUSED = {
    **dict.fromkeys(_ENCODERS, "it is an encoder, which keeps no KV cache"),
    **dict.fromkeys(_ENCODER_DECODERS, "it is an encoder and a decoder, whose two caches grow differently"),
    **dict.fromkeys(_NO_ATTENTION, "it has no attention, hence no KV cache that grows"),
    **dict.fromkeys(_UNREAD, "its cache is laid out in a way that is not read here"),
}

# Keys that speak of a cache other than one key and one value for each token, layer and KV head.
_UNUSUAL = re.compile(
    r"window|sliding|swa(_|$)|attention_chunk|chunk_size$|chunked|local_attention|global_|_global|bidirectional|linear_attn"
    r"|linear_attention|^linear_|lightning|kda|retention|recurren|rwkv|mamba|ssm|(^|_)lru|(^|_)conv(_|1d|$)|delta_net"
    r"|lora_rank|latent|use_mla|(^|_)cla(_|$)|kv_shar|share_kv|shared_kv|share_factor|shared_layers|kv_reuse|reuse_kv"
    r"|per_layer_config|cross_attention|is_encoder_decoder|encoder_layers|decoder_layers|layer_type|layers_type|block_type"
    r"|attention_type|attn_type|block_configs|hybrid|(^|_)pattern|attn_layer|full_attn|^index_|indexer|sparse_attention"
    r"|sparse_attn|sparse_config|sparsity|blocksparse|compress|ut_steps|num_loops|multi_query|query_group|attention_group|kv_group"
    r"|key_value_group|heads|head_dim|dim_head|d_head|d_kv$|head_size|kv_channels|n_head|attn_config|attention_config|attention_other|no_op"
    r"|dense_attention_every|layer_wise|layerwise"
)
_ORDINARY = re.compile(  # the keys that only look like it
    r"chunk_size_feed_forward|decoder_sparse_step|.*token_(id|index)|max_window_layers|cross_attention_hidden_size"
    r"|pruned_heads|moe_.*|mtp_.*|mlp_layer_types"
)
_SUPERSEDED = re.compile(  # by an explicit list of layers
    r"_?sliding_window(_pattern|_size)?|use_sliding_window|full_attention_interval|attn_layer_(period|offset|indices)|layer_switch"
    r"|attention_chunk_size|full_attn_idxs"
)


def family_name(config: Config) -> str:
    """The name under which the model's family is listed here: its model_type, or what that is another name of."""
    return ALIASES.get(config.model_type, config.model_type)


def refuse_what_does_not_decode(config: Config, name: str) -> None:
    """Raise if the model is known to keep no cache of keys and values, or one that is not read here."""
    for each in (name, str(config.outer.get("model_type"))):
        if each in REFUSED:
            raise config.fault(f"model_type {each} is not read: {REFUSED[each]}; give another model {BY_HAND}")
    if config.outer.get("is_encoder_decoder") is True or config.keys.get("is_encoder_decoder") is True:
        raise config.fault(f"is_encoder_decoder is true, and such models are not read; give another model {BY_HAND}")
    named = config.outer.get("architectures")
    generates = re.compile(r"CausalLM|LMHead|ConditionalGeneration|ChatModel|VLChat|ForGeneration")
    if (
        name not in FAMILIES
        and name not in PLAIN
        and isinstance(named, list)
        and named
        and not any(generates.search(str(each)) for each in named)
    ):
        raise config.fault(
            f"architectures {shown(str(named[0]))} does not generate text, as far as is known here; {BY_HAND[3:]}"
        )


def refuse_unaccounted(config: Config, family: Family) -> None:
    """Raise if a key hints at an unusual cache and nothing above has dealt with it."""
    listed = any(config.keys.get(key) is not None for key in ("layer_types", "layers_block_type"))
    switched_off = config.keys.get("use_sliding_window") is False
    for key, value in config.keys.items():
        if (
            config.part + key in config.read
            or not value
            or value == -1
            or not _UNUSUAL.search(key)
            or _ORDINARY.fullmatch(key)
        ):
            continue
        if re.fullmatch(family.accounts_for, key) or (listed and _SUPERSEDED.fullmatch(key)):
            continue
        if switched_off and key == "sliding_window":
            continue
        name = shown(key).strip('"')  # a key may hold anything
        raise config.fault(
            f"{config.part}{name} = {shown(value)} is not understood for model_type {shown(config.model_type)}; "
            f"take it out if it does not change the cache, {BY_HAND}"
        )
