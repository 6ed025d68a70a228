"""Parameters of one layer, from the shapes of its tensors: attention of each kind, Mamba, MLPs and experts."""

from collections.abc import Callable
from typing import Any, NamedTuple

from sweep.model.configs import MLP_WIDTH, WIDTH, Config, shown
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


def layer_parameters(config: Config, name: str, recipe: Recipe, layer: int, kind: str) -> int:
    """Parameters of one layer of this kind, counted from 0, with its norms."""
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
