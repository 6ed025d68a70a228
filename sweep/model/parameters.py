"""How many numbers the tensors of a language model hold, from their shapes, for families whose shapes are known here.

Tied embeddings count once; the vision part of a model and layers that predict further tokens ahead do not count. Where
any part of the shape is not known the answer is None, never an estimate.
"""

from collections.abc import Sequence

from sweep.model.configs import MLP_WIDTH, VOCABULARY, WIDTH, Config
from sweep.model.families import family_name
from sweep.model.tensors import Recipe, layer_parameters

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
    layers = [layer_parameters(config, name, recipe, layer, kind) for layer, kind in enumerate(kinds)]
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
