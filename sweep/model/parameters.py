"""How many numbers the tensors of a language model hold, from their shapes, for families whose shapes are known here.

Tied embeddings count once; the vision part of a model and layers that predict further tokens ahead do not count. Where
any part of the shape is not known the answer is None, never an estimate.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sweep.model.configs import MLP_WIDTH, VOCABULARY, WIDTH, Config, shown
from sweep.model.families import family_name
from sweep.model.layers import head_dim, kv_heads, query_heads


class Recipe(NamedTuple):
    """What differs between transformers that are otherwise alike. Norms and biases are counted in vectors.

    tied: the output matrix is the embedding's, where the file does not say. norms: vectors of the width in a layer.
    """

    tied: bool = False
    norms: int = 2
    norm_bias: bool = False
    gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: str = ""  # "head": one head's dim each for query and key; "layer": all heads' dims


_LAYER_NORMS = Recipe(norm_bias=True, gated=False, qkv_bias=True, output_bias=True, mlp_bias=True)
RECIPES = {
    "llama": Recipe(),
    "mistral": Recipe(),
    "mixtral": Recipe(),
    "phi3": Recipe(),
    "qwen2": Recipe(qkv_bias=True),
    "qwen2_moe": Recipe(qkv_bias=True),
    "qwen": Recipe(qkv_bias=True),
    "qwen3": Recipe(qk_norm="head"),
    "qwen3_vl_text": Recipe(qk_norm="head"),
    "qwen3_moe": Recipe(qk_norm="head"),
    "qwen3_next": Recipe(qk_norm="head"),
    "olmo2": Recipe(qk_norm="layer"),
    "gemma": Recipe(tied=True),
    "gemma2": Recipe(tied=True, norms=4),
    "gemma3_text": Recipe(tied=True, norms=4, qk_norm="head"),
    "cohere": Recipe(tied=True, norms=1),
    "cohere2": Recipe(tied=True, norms=1),
    "chatglm": Recipe(),
    "gpt_oss": Recipe(qkv_bias=True, output_bias=True),
    "minimax_m2": Recipe(),
    "deepseek_v2": Recipe(),
    "deepseek_v3": Recipe(),
    "kimi_k2": Recipe(),
    "glm4_moe_lite": Recipe(),
    "jamba": Recipe(),
    "mllama_text_model": Recipe(),
    "llama4_text": Recipe(),
    "nemotron-nas": Recipe(),
    "starcoder2": Recipe(tied=True, norm_bias=True, gated=False),
    "gpt2": _LAYER_NORMS._replace(tied=True),
    "gpt_bigcode": _LAYER_NORMS._replace(tied=True),
    "opt": _LAYER_NORMS._replace(tied=True),
    "gpt_neox": _LAYER_NORMS,
    "gptj": Recipe(norms=1, norm_bias=True, gated=False, mlp_bias=True),
    "mpt": Recipe(tied=True, gated=False),
    "falcon": Recipe(norms=1, norm_bias=True, gated=False),
}


def parameters(config: Config, kinds: Sequence[str]) -> int | None:
    """Parameters of the language model whose layers are of these kinds; None where its tensors are not known here."""
    name = family_name(config)
    recipe = RECIPES.get(name)
    vocabulary = config.whole(*VOCABULARY)
    if recipe is None or vocabulary is None or not _as_published(config, name):
        return None
    recipe = _with_keys(config, name, recipe)
    width = config.needed(*WIDTH)
    tied = _tied(config, recipe)
    if tied is None:
        return None
    outside = vocabulary * width * (1 if tied else 2) + width * (2 if recipe.norm_bias else 1) + _extra(config, name)
    layers = [_layer(config, name, recipe, layer, kind) for layer, kind in enumerate(kinds)]
    return outside + sum(layers)


def _as_published(config: Config, name: str) -> bool:
    """Whether nothing in the file asks for tensors that the recipe leaves out, and nothing that it needs is missing."""
    match name:
        case "nemotron-nas" | "mpt" | "gpt2" | "gptj" | "gpt_bigcode" | "falcon":
            pass  # the width of the MLP may be missing
        case _ if config.whole(*MLP_WIDTH) is None:
            return False
    match name:
        case "opt":
            same = config.whole("word_embed_proj_dim") in (None, config.needed(*WIDTH))
            return same and config.flag("do_layer_norm_before", True)
        case "falcon":
            return (
                config.flag("parallel_attn", True)
                and not config.flag("bias", False)
                and not config.flag("alibi", False)
            )
        case "mpt":
            attention = config.section("attn_config")
            return (
                config.flag("no_bias", False) and attention.flag("alibi", False) and not attention.flag("qk_ln", False)
            )
        case "chatglm":
            return config.value("multi_query_group_num") is not None and not config.flag("add_bias_linear", False)
        case "gpt_neox":
            return config.flag("attention_bias", True)
        case "minimax_m2":
            return config.value("qk_norm_type") in (None, "per_layer")
    if "kv_lora_rank" in config.keys and config.flag("attention_bias", False):
        return False
    return name not in _NEEDS or all(config.value(key) is not None for key in _NEEDS[name])


_MLA_KEYS = (
    "qk_nope_head_dim",
    "v_head_dim",
    "moe_intermediate_size",
    "n_routed_experts",
    "n_shared_experts",
    "first_k_dense_replace",
)
_NEEDS = {
    "mixtral": ("num_local_experts",),
    "gpt_oss": ("num_local_experts",),
    "llama4_text": ("num_local_experts", "intermediate_size_mlp"),
    "qwen3_moe": ("num_experts", "moe_intermediate_size"),
    "qwen2_moe": ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"),
    "qwen3_next": ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size", "linear_num_value_heads"),
    "jamba": ("num_experts", "mamba_dt_rank", "mamba_d_state", "mamba_d_conv", "mamba_expand"),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"), _MLA_KEYS),
}


def _with_keys(config: Config, name: str, recipe: Recipe) -> Recipe:
    """The recipe after the switches that the file has."""
    match name:
        case (
            "llama"
            | "cohere"
            | "cohere2"
            | "qwen3"
            | "qwen3_moe"
            | "qwen3_vl_text"
            | "gemma"
            | "gemma2"
            | "gemma3_text"
        ):
            bias = config.flag("attention_bias", False)
            mlp_bias = name == "llama" and config.flag("mlp_bias", False)
            recipe = recipe._replace(qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias)
        case "chatglm":
            recipe = recipe._replace(qkv_bias=config.flag("add_qkv_bias", False))
        case "starcoder2":
            bias = config.flag("use_bias", True)
            recipe = recipe._replace(qkv_bias=bias, output_bias=bias, mlp_bias=bias)
        case "falcon" if config.flag("new_decoder_architecture", False) or config.keys.get("n_head_kv") is not None:
            recipe = recipe._replace(norms=2)
        case "minimax_m2" if config.flag("use_qk_norm", False):
            recipe = recipe._replace(qk_norm="layer")
    if name == "cohere" and config.flag("use_qk_norm", False):
        recipe = recipe._replace(qk_norm="layer")
    return recipe


def _tied(config: Config, recipe: Recipe) -> bool | None:
    """Whether input and output share a matrix; None where two parts of the file disagree."""
    inner, outer = config.value("tie_word_embeddings"), config.outer.get("tie_word_embeddings")
    if config.part and outer is not None:
        config.read["tie_word_embeddings"] = None
    if inner is not None and outer is not None and inner != outer:
        return None
    given = inner if inner is not None else outer
    if not isinstance(given, bool):
        whose = "the embedding" if recipe.tied else "its own"
        config.assume(f"the output matrix is {whose}, as in the published models of its family")
        return recipe.tied
    return given


def _extra(config: Config, name: str) -> int:
    """Tensors outside the layers that few families have: learned positions, biases of the output."""
    width = config.needed(*WIDTH)
    match name:
        case "gpt2" | "gpt_bigcode":
            return config.needed("n_positions") * width
        case "opt":
            return (config.needed("max_position_embeddings") + 2) * width
        case "gptj":
            return config.needed(*VOCABULARY)
        case "mllama_text_model":
            return 8 * width  # words of the embedding for pictures
    return 0


def _layer(config: Config, name: str, recipe: Recipe, layer: int, kind: str) -> int:
    width = config.needed(*WIDTH)
    if name == "nemotron-nas":
        return _searched_layer(config, layer)
    norms = recipe.norms * width * (2 if recipe.norm_bias else 1)
    mixer = _MIXERS.get(kind)
    if mixer is not None:
        attention = mixer(config)
    elif config.keys.get("kv_lora_rank") is not None:
        attention = _latent_attention(config)
    else:
        attention = _attention(config, recipe, gated=name == "qwen3_next")
        attention += query_heads(config) if name == "gpt_oss" else 0  # a sink for each head
    return attention + norms + _feed_forward(config, name, recipe, layer)


def _attention(config: Config, recipe: Recipe, gated: bool = False) -> int:
    width, queries, keys = (
        config.needed(*WIDTH),
        query_heads(config) * head_dim(config),
        kv_heads(config) * head_dim(config),
    )
    projections = width * queries * (3 if gated else 2) + 2 * width * keys
    biases = (queries + 2 * keys if recipe.qkv_bias else 0) + (width if recipe.output_bias else 0)
    norms = {"": 0, "head": 2 * head_dim(config), "layer": queries + keys}[recipe.qk_norm]
    return projections + biases + norms


def _latent_attention(config: Config) -> int:
    width, heads = config.needed(*WIDTH), query_heads(config)
    latent, rotary = config.needed("kv_lora_rank"), config.needed("qk_rope_head_dim")
    plain, value = config.needed("qk_nope_head_dim"), config.needed("v_head_dim")
    queries = heads * (plain + rotary)
    narrow = config.whole("q_lora_rank")
    query = width * queries if narrow is None else width * narrow + narrow + narrow * queries
    return query + width * (latent + rotary) + latent + latent * heads * (plain + value) + heads * value * width


def _cross_attention(config: Config) -> int:
    return _attention(config, Recipe(qk_norm="head")) + 2  # two gates


def _mamba(config: Config) -> int:
    width = config.needed(*WIDTH)
    inner, state = config.needed("mamba_expand") * width, config.needed("mamba_d_state")
    kernel = config.needed("mamba_d_conv")
    rank = -(-width // 16) if config.value("mamba_dt_rank") == "auto" else config.needed("mamba_dt_rank")
    projections = width * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * width
    biases = inner * config.flag("mamba_conv_bias", True) + inner  # of the convolution and of the step size
    biases += (2 * inner + width) * config.flag("mamba_proj_bias", False)
    return projections + biases + inner * kernel + inner * state + inner + rank + 2 * state  # A, D and three norms


def _gated_delta(config: Config) -> int:
    width, heads = config.needed(*WIDTH), config.needed("linear_num_value_heads")
    keys = config.needed("linear_num_key_heads") * config.needed("linear_key_head_dim")
    value_dim = config.needed("linear_value_head_dim")
    values = heads * value_dim
    projections = width * (2 * keys + 2 * values) + width * 2 * heads + values * width
    return projections + (2 * keys + values) * config.needed("linear_conv_kernel_dim") + 2 * heads + value_dim


_MIXERS: dict[str, Callable[[Config], int]] = {
    "mamba": _mamba,
    "linear attention": _gated_delta,
    "cross attention": _cross_attention,
}


def _mlp(width: int, inner: int, recipe: Recipe) -> int:
    into = 2 if recipe.gated else 1
    return (into + 1) * width * inner + (into * inner + width if recipe.mlp_bias else 0)


def _feed_forward(config: Config, name: str, recipe: Recipe, layer: int) -> int:
    width = config.needed(*WIDTH)
    match name:
        case "mixtral":
            return _experts(config, "num_local_experts", config.needed(*MLP_WIDTH))
        case "minimax_m2":
            experts = config.needed("num_local_experts")
            return _experts(config, "num_local_experts", config.needed(*MLP_WIDTH)) + experts * config.flag(
                "use_routing_bias", False
            )
        case "gpt_oss":
            experts, inner = config.needed("num_local_experts"), config.needed(*MLP_WIDTH)
            return _experts(config, "num_local_experts", inner) + experts * (2 * inner + width + 1)
        case "llama4_text":
            return _llama4(config, layer)
        case "qwen2_moe" | "qwen3_moe" | "qwen3_next":
            return _qwen_experts(config, recipe, layer)
        case "jamba":
            period, offset = config.needed("expert_layer_period"), config.whole("expert_layer_offset", least=0)
            inner = config.needed(*MLP_WIDTH)
            return _experts(config, "num_experts", inner) if layer % period == offset else _mlp(width, inner, recipe)
        case "deepseek_v2" | "deepseek_v3" | "kimi_k2" | "glm4_moe_lite":
            return _shared_and_routed(config, name, recipe, layer)
        case "mpt":
            return _mlp(width, width * (config.whole("expansion_ratio") or 4), recipe)
        case "qwen":  # its file counts both halves of the gate
            return _mlp(width, config.needed(*MLP_WIDTH) // 2, recipe)
        case _:
            return _mlp(width, config.whole(*MLP_WIDTH) or 4 * width, recipe)


def _experts(config: Config, count: str, inner: int) -> int:
    """Gated experts and the router that chooses among them."""
    width, experts = config.needed(*WIDTH), config.needed(count)
    return experts * 3 * width * inner + width * experts


def _qwen_experts(config: Config, recipe: Recipe, layer: int) -> int:
    width = config.needed(*WIDTH)
    dense = layer in (config.sequence("mlp_only_layers") or []) or (layer + 1) % (
        config.whole("decoder_sparse_step") or 1
    )
    if dense:
        return _mlp(width, config.needed(*MLP_WIDTH), recipe)
    shared = config.whole("shared_expert_intermediate_size", least=0) or 0
    return _experts(config, "num_experts", config.needed("moe_intermediate_size")) + (
        3 * width * shared + width if shared else 0
    )


def _shared_and_routed(config: Config, name: str, recipe: Recipe, layer: int) -> int:
    width, inner = config.needed(*WIDTH), config.needed("moe_intermediate_size")
    first = config.whole("first_k_dense_replace", least=0) or 0
    if layer < first or layer % (config.whole("moe_layer_freq") or 1):
        return _mlp(width, config.needed(*MLP_WIDTH), recipe)
    shared = config.whole("n_shared_experts", least=0) or 0
    bias = config.needed("n_routed_experts") if name != "deepseek_v2" else 0  # added to the scores while choosing
    return _experts(config, "n_routed_experts", inner) + 3 * width * inner * shared + bias


def _llama4(config: Config, layer: int) -> int:
    width, inner = config.needed(*WIDTH), config.needed(*MLP_WIDTH)
    step = config.whole("interleave_moe_layer_step") or 1
    if (layer + 1) % step:
        return 3 * width * config.needed("intermediate_size_mlp")
    return _experts(config, "num_local_experts", inner) + 3 * width * inner


def _searched_layer(config: Config, layer: int) -> int:
    """A layer of an architecture search, whose attention and MLP may each be gone, or an MLP of any width."""
    block: Any = (config.sequence("block_configs") or [])[layer]
    inner = Config(config.where, block, config.outer)
    attention, mlp = inner.section("attention"), inner.section("ffn")
    width, total = config.needed(*WIDTH), 0
    if attention.flag("replace_with_linear", False):
        total += width * width + width
    elif not attention.flag("no_op", False):
        keys = query_heads(config) // attention.needed("n_heads_in_group") * head_dim(config)
        total += 2 * width * query_heads(config) * head_dim(config) + 2 * width * keys + width
    if mlp.flag("replace_with_linear", False):
        total += width * width + width
    elif not mlp.flag("no_op", False):
        total += 3 * width * _searched_width(mlp, width) + width
    return total


def _searched_width(mlp: Config, width: int) -> int:
    """Width of an MLP given as a multiple of the model's, two thirds of it for the gate, in whole 256s."""
    multiple = mlp.value("ffn_mult")
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < 1000:
        raise mlp.fault(f"{mlp.part}ffn_mult: must be a number above 0, got {shown(multiple)}")
    return -(-int(2 * multiple * width / 3) // 256) * 256
